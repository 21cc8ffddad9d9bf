//! What Prometheus reads: its text format, version 0.0.4.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use super::buckets::Counted;
use super::recorder::{Labels, Recorder, Value};

/// Everything that was recorded.
pub(super) fn text(recorder: &Recorder) -> String {
    let mut out = String::with_capacity(16 * 1024);
    // Writing into a text cannot fail.
    let _ = write(&mut out, recorder);
    out
}

fn write(out: &mut String, recorder: &Recorder) -> std::fmt::Result {
    for (name, family) in &recorder.read().by_name {
        let Some(kind) = family.series.values().next().map(Value::kind) else { continue };
        if let Some(help) = &family.help {
            writeln!(out, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"))?;
        }
        writeln!(out, "# TYPE {name} {kind}")?;
        for (labels, value) in &family.series {
            match value {
                Value::Counter(count) => {
                    writeln!(out, "{name}{} {}", shown(labels, None), count.load(Ordering::Relaxed))?;
                }
                Value::Gauge(bits) => {
                    let number = f64::from_bits(bits.load(Ordering::Relaxed));
                    writeln!(out, "{name}{} {number}", shown(labels, None))?;
                }
                Value::Histogram(buckets) => histogram(out, name, labels, &buckets.counted())?,
            }
        }
    }
    Ok(())
}

fn histogram(out: &mut String, name: &str, labels: &Labels, counted: &Counted) -> std::fmt::Result {
    let mut so_far = 0;
    let bounds = counted.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    for (bound, count) in bounds.zip(&counted.counts) {
        so_far += count;
        writeln!(out, "{name}_bucket{} {so_far}", shown(labels, Some(&bound)))?;
    }
    writeln!(out, "{name}_sum{} {}", shown(labels, None), counted.sum)?;
    writeln!(out, "{name}_count{} {so_far}", shown(labels, None))
}

/// Labels as they stand after a name, with a bucket's bound if there is one.
fn shown(labels: &Labels, bound: Option<&str>) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    let all: Vec<_> = labels.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

#[cfg(test)]
mod tests {
    use metrics::{counter, gauge, histogram, with_local_recorder};

    use super::*;

    #[test]
    fn every_kind_as_prometheus_reads_it() {
        let recorder = Recorder::default();
        with_local_recorder(&recorder, || {
            metrics::describe_counter!("a_total", "Back\\slash\nand line.");
            metrics::describe_counter!("never_total", "Not recorded.");
            counter!("a_total", "guard" => "say \"hi\"\\\n", "at" => "x").increment(3);
            gauge!("b").set(-1.5);
            histogram!("c_ratio").record(0.3);
            histogram!("c_ratio").record(7.0);
        });
        assert_eq!(
            text(&recorder),
            "# HELP a_total Back\\\\slash\\nand line.\n\
             # TYPE a_total counter\n\
             a_total{at=\"x\",guard=\"say \\\"hi\\\"\\\\\\n\"} 3\n\
             # TYPE b gauge\n\
             b -1.5\n\
             # TYPE c_ratio histogram\n\
             c_ratio_bucket{le=\"0\"} 0\n\
             c_ratio_bucket{le=\"0.01\"} 0\n\
             c_ratio_bucket{le=\"0.05\"} 0\n\
             c_ratio_bucket{le=\"0.1\"} 0\n\
             c_ratio_bucket{le=\"0.25\"} 0\n\
             c_ratio_bucket{le=\"0.5\"} 1\n\
             c_ratio_bucket{le=\"0.75\"} 1\n\
             c_ratio_bucket{le=\"0.9\"} 1\n\
             c_ratio_bucket{le=\"1\"} 1\n\
             c_ratio_bucket{le=\"+Inf\"} 2\n\
             c_ratio_sum 7.3\n\
             c_ratio_count 2\n"
        );
    }
}
