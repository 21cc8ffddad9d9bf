//! Charts as SVG: bars on a logarithmic scale, in colours that can be read on dark and on light.

use std::fmt::Write as _;
use std::path::Path;

use crate::peers::Kind;
use crate::results::{Results, Row};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 230.0;
const RIGHT: f64 = 110.0;
const BAR: f64 = 18.0;
const GAP: f64 = 8.0;
const TOP: f64 = 56.0;

struct Chart {
    file: &'static str,
    title: &'static str,
    under: &'static str,
    scenario: &'static str,
    unit: &'static str,
    value: fn(&Row) -> f64,
}

const CHARTS: [Chart; 3] = [
    Chart {
        file: "s3-acquisitions.svg",
        title: "32 tasks over 4 processes want one lock",
        under: "acquisitions a second, logarithmic; more is better",
        scenario: "S3",
        unit: "/s",
        value: |row| row.rate.median,
    },
    Chart {
        file: "s3-longest-wait.svg",
        title: "The longest that one of 32 tasks waited for its turn",
        under: "milliseconds, logarithmic; less is better",
        scenario: "S3",
        unit: " ms",
        value: |row| row.figure("wait longest ms"),
    },
    Chart {
        file: "s5-hand-over.svg",
        title: "From release to the waiter on another connection having the lock",
        under: "median in milliseconds, logarithmic; less is better",
        scenario: "S5",
        unit: " ms",
        value: |row| row.figure("hand-over p50 ms"),
    },
];

/// Writes the charts of the scenarios that were run.
pub(crate) fn write(results: &Results, folder: &Path) -> std::io::Result<()> {
    for chart in CHARTS {
        let rows = results.rows.iter().filter(|row| row.scenario == chart.scenario);
        let mut bars: Vec<_> = rows
            .map(|row| (row, (chart.value)(row)))
            .filter(|(_, value)| value.is_finite() && *value > 0.0)
            .collect();
        if bars.is_empty() {
            continue;
        }
        bars.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(chart.file), chart.draw(&bars))?;
    }
    Ok(())
}

impl Chart {
    fn draw(&self, bars: &[(&Row, f64)]) -> String {
        let height = TOP + bars.len() as f64 * (BAR + GAP) + GAP;
        let most = bars.iter().map(|(_, value)| *value).fold(f64::MIN, f64::max).log10();
        let least = bars.iter().map(|(_, value)| *value).fold(f64::MAX, f64::min).log10().floor();
        let scale = (WIDTH - LEFT - RIGHT) / (most - least).max(0.5);
        // Neutral: middle greys on no background, so a page's own colours stay around it.
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"system-ui, sans-serif\" \
             font-size=\"13\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n\
             <style>.t{{fill:#808080}}.m{{font-weight:600}}.s{{font-size:12px}}</style>\n\
             <text class=\"t m\" x=\"0\" y=\"16\" font-size=\"15\">{title}</text>\n\
             <text class=\"t s\" x=\"0\" y=\"36\">{under}</text>\n",
            title = self.title,
            under = self.under,
        );
        for (place, (row, value)) in bars.iter().enumerate() {
            let y = TOP + place as f64 * (BAR + GAP);
            let length = ((value.log10() - least) * scale).max(2.0);
            let (colour, class) = match row.kind {
                Kind::Clinch => ("#e8590c", "t m"),
                Kind::Reference => ("#4c8bf5", "t"),
                Kind::Bound => ("#7a9e3a", "t"),
                Kind::Peer => ("#909090", "t"),
            };
            let text = y + BAR - 4.5;
            let (name, end) = (&row.name, LEFT + length + 6.0);
            let _ = writeln!(
                svg,
                "<text class=\"{class}\" x=\"{:.0}\" y=\"{text:.1}\" text-anchor=\"end\">{name}</text>\
                 <rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{colour}\"/>\
                 <text class=\"{class}\" x=\"{end:.1}\" y=\"{text:.1}\">{}{}</text>",
                LEFT - 8.0,
                shown(*value),
                self.unit,
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn shown(value: f64) -> String {
    match value {
        value if value >= 1e4 => format!("{:.0} k", value / 1e3),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value if value >= 10.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
