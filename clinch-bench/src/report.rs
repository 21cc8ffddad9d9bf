//! The table.

use crate::results::{Results, Row};

/// All rows by scenario, then what was to be reached, then what is to be known about it.
pub(crate) fn print(results: &Results) {
    let mut scenario = "";
    for row in &results.rows {
        if row.scenario != scenario {
            scenario = row.scenario;
            println!("\n{}", head(scenario));
            println!(
                "  {:<38} {:>12} {:>17} {:>8} {:>7} {:>6} {:>8} {:>8}  more",
                "", row.unit, "least … most", "ratio", "cmds", "conns", "srv µs", "cli µs"
            );
        }
        println!("{}", line(row));
    }
    println!("\nTo reach");
    for goal in &results.goals {
        let verdict = if goal.is_reached() { "reached" } else { "short" };
        let sign = if goal.at_least { "≥" } else { "≤" };
        let (seen, wanted) = (number(goal.seen), number(goal.wanted));
        println!("  {:<4} {:<52} {seen:>9}  {sign} {wanted:<7} {verdict}", goal.scenario, goal.what);
    }
    let mut notes: Vec<_> = results.rows.iter().flat_map(|row| &row.notes).chain(&results.notes).collect();
    notes.dedup();
    let mut told: Vec<&String> = Vec::new();
    for note in notes {
        if !told.contains(&note) {
            println!("{}* {note}", if told.is_empty() { "\n" } else { "" });
            told.push(note);
        }
    }
    for wrong in results.wrong() {
        println!("WRONG: {wrong}");
    }
}

fn head(scenario: &str) -> &'static str {
    match scenario {
        "S1" => "S1   one task, take and give back",
        "S2" => "S2   256 tasks, own keys, one manager",
        "S3" => "S3   32 tasks over 4 managers, one key, no work under it",
        "S3f" => "S3f  the same, fair queue, no local pass",
        "S4a" => "S4a  1,000 tries at once on a key that this process holds",
        "S4b" => "S4b  1,000 tries at once on a key that is held elsewhere",
        "S5" => "S5   from the call of release to the waiter on another connection having its guard",
        "S6" => "S6   duplicate guard over HTTP",
        "S7" => "S7   memory engine, take and give back, own keys",
        "S8" => "S8   growth",
        _ => "S9   a limit of 10,000 permits, take and give back",
    }
}

fn line(row: &Row) -> String {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    let figures: Vec<_> =
        row.figures.iter().map(|(name, value)| format!("{name} {}", number(*value))).collect();
    let wrong = if row.wrong.is_empty() { "" } else { "  WRONG" };
    let spread = format!("{} … {}", number(row.rate.least), number(row.rate.most));
    format!(
        "  {:<38} {:>12} {:>17} {:>8} {:>7} {:>6} {:>8} {:>8}  {}{wrong}",
        row.name,
        number(row.rate.median),
        spread,
        or_dash(row.ratio.map(|ratio| format!("{ratio:.2}×"))),
        or_dash(row.commands.map(number)),
        or_dash(row.connections.map(|connections| connections.to_string())),
        or_dash(row.server_us.map(number)),
        or_dash(row.client_us.map(number)),
        figures.join(", "),
    )
}

/// With as many digits as mean something.
fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "–".to_owned(),
        0.0 => "0".to_owned(),
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e4 => format!("{:.1} k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.4}"),
    }
}
