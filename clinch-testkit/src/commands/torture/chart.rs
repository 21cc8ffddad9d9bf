//! A picture of a run: who held what, what was done, and what must not have been.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Fault;
use super::judge::{Process, Verdict, Violation};

const WIDTH: usize = 1200;
const LEFT: usize = 270;
const ROW: usize = 26;
/// How many columns the time has.
const COLUMNS: usize = WIDTH - LEFT - 20;
/// One for each process; more begin again.
const COLOURS: [&str; 6] = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"];

/// As SVG, which stands on its own.
pub(super) fn draw(
    name: &str,
    start: u64,
    processes: &[Process],
    faults: &[Fault],
    verdict: &Verdict,
) -> String {
    let tenures: Vec<_> = processes.iter().flat_map(|process| &process.life.tenures).collect();
    let ends = tenures.iter().map(|tenure| tenure.until).chain(faults.iter().map(|fault| fault.until));
    let end = ends.max().unwrap_or(start + 1).max(start + 1);
    let column = |at: u64| {
        let share = u128::from(at.saturating_sub(start)) * COLUMNS as u128 / u128::from(end - start);
        usize::try_from(share).unwrap_or(COLUMNS).min(COLUMNS - 1)
    };
    let keys: BTreeSet<&str> = tenures.iter().map(|tenure| tenure.key.as_str()).collect();
    let kinds: BTreeSet<&str> = faults.iter().map(|fault| fault.kind.as_str()).collect();
    let height = 96 + (keys.len() + kinds.len() + 2) * ROW;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="12" y="24" font-size="17" fill="#222">{name}: {} operations, {} faults, {} violations</text>
<text x="12" y="44" fill="#555">who held each key (a colour a process; grey: nobody), what was done, what must not have been</text>
"##,
        verdict.operations,
        faults.len(),
        verdict.violations.len(),
    );
    let mut y = 60;
    for key in keys {
        let mut by_column: Vec<BTreeMap<usize, u64>> = vec![BTreeMap::new(); COLUMNS];
        for tenure in tenures.iter().filter(|tenure| tenure.key == key) {
            for here in &mut by_column[column(tenure.from)..=column(tenure.until)] {
                *here.entry(tenure.process).or_default() += 1 + (tenure.until - tenure.from);
            }
        }
        label(&mut svg, y, key);
        let most =
            |held: &BTreeMap<usize, u64>| held.iter().max_by_key(|(_, time)| **time).map(|(who, _)| *who);
        runs(&mut svg, y, by_column.iter().map(most));
        y += ROW;
    }
    for kind in kinds {
        label(&mut svg, y, kind);
        for fault in faults.iter().filter(|fault| fault.kind == kind) {
            let (from, to) = (column(fault.from), column(fault.until));
            bar(&mut svg, y, from, to + 1 - from, "#555555");
        }
        y += ROW;
    }
    let rows: [(&str, &[Violation], &str); 2] = [
        ("explained by a documented loss", &verdict.excused, "#ee8833"),
        ("violations", &verdict.violations, "#cc0000"),
    ];
    for (name, found, colour) in rows {
        label(&mut svg, y, name);
        found.iter().for_each(|violation| bar(&mut svg, y, column(violation.at), 2, colour));
        y += ROW;
    }
    let seconds = (end - start) / 1_000_000_000;
    let _ = writeln!(
        svg,
        r##"<text x="{LEFT}" y="{0}" fill="#555">0 s</text><text x="{1}" y="{0}" fill="#555" text-anchor="end">{seconds} s</text>
</svg>"##,
        y + 16,
        LEFT + COLUMNS,
    );
    svg
}

fn label(svg: &mut String, y: usize, text: &str) {
    let _ = writeln!(svg, r##"<text x="12" y="{}" fill="#222">{text}</text>"##, y + 15);
    bar(svg, y, 0, COLUMNS, "#eeeeee");
}

fn bar(svg: &mut String, y: usize, from: usize, width: usize, colour: &str) {
    let _ = writeln!(
        svg,
        r#"<rect x="{}" y="{y}" width="{width}" height="{}" fill="{colour}"/>"#,
        LEFT + from,
        ROW - 6
    );
}

/// Bars of neighbours that are the same, as one.
fn runs(svg: &mut String, y: usize, columns: impl Iterator<Item = Option<usize>>) {
    let mut run: Option<(usize, usize)> = None;
    let mut finish = |run: Option<(usize, usize)>, to: usize| {
        if let Some((from, process)) = run {
            bar(svg, y, from, to - from, COLOURS[process % COLOURS.len()]);
        }
    };
    for (here, process) in columns.chain([None]).enumerate() {
        if run.map(|(_, process)| process) != process {
            finish(run, here);
            run = process.map(|process| (here, process));
        }
    }
}
