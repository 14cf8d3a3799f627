//! Prometheus text format, version 0.0.4:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use crate::LatencySnapshot;
use std::fmt::Write;

/// Type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Never decreases while the process runs; its name ends with `_total`.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Counts per bucket.
    Histogram,
}

/// A document under construction. Samples belong to the family that was
/// [begun](Exposition::begin_family) last. Metric and label names must be valid; label values are
/// escaped.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    name: &'static str,
}

impl Exposition {
    /// Begin a family.
    pub fn begin_family(
        &mut self,
        name: &'static str,
        kind: MetricKind,
        help: &str,
    ) -> &mut Exposition {
        let is_counter = kind == MetricKind::Counter;
        assert_eq!(name.ends_with("_total"), is_counter, "{name}");
        self.name = name;
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        self.write_line(format_args!("# HELP {name} {help}"));
        self.write_line(format_args!("# TYPE {name} {kind}"));
        self
    }

    fn write_line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{text}");
    }

    /// Add an integer sample.
    pub fn integer_sample(&mut self, labels: &[(&str, &str)], value: u64) -> &mut Exposition {
        let (name, labels) = (self.name, format_labels(labels, None));
        self.write_line(format_args!("{name}{labels} {value}"));
        self
    }

    /// Add a floating-point sample.
    pub fn float_sample(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Exposition {
        let (name, labels) = (self.name, format_labels(labels, None));
        self.write_line(format_args!("{name}{labels} {value}"));
        self
    }

    /// Add the samples of a histogram, in seconds.
    pub fn histogram_samples(
        &mut self,
        labels: &[(&str, &str)],
        latency: &LatencySnapshot,
    ) -> &mut Exposition {
        let name = self.name;
        let count = latency.count();
        for (bound, cumulative) in latency.cumulative_counts() {
            debug_assert!(cumulative <= count);
            let labels = format_labels(labels, Some(&bound.to_string()));
            self.write_line(format_args!("{name}_bucket{labels} {cumulative}"));
        }
        let infinite = format_labels(labels, Some("+Inf"));
        self.write_line(format_args!("{name}_bucket{infinite} {count}"));
        let labels = format_labels(labels, None);
        let sum = latency.total_seconds();
        self.write_line(format_args!("{name}_sum{labels} {sum}"));
        self.write_line(format_args!("{name}_count{labels} {count}"));
        self
    }

    /// The finished document.
    pub fn into_text(self) -> String {
        self.text
    }
}

fn format_labels(labels: &[(&str, &str)], upper_bound: Option<&str>) -> String {
    let all = labels.iter().copied().chain(upper_bound.map(|bound| ("le", bound)));
    let mut text = String::new();
    for (name, value) in all {
        text.push(if text.is_empty() { '{' } else { ',' });
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let _ = write!(text, "{name}=\"{value}\"");
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Latency;
    use std::time::Duration;

    #[test]
    fn document_follows_prometheus_text_format() {
        let latency = Latency::default();
        latency.record_duration(Duration::from_micros(3));
        latency.record_duration(Duration::from_secs(20));
        let mut page = Exposition::default();
        page.begin_family("a_total", MetricKind::Counter, "One\nline, a \\.")
            .integer_sample(&[], 7);
        page.begin_family("b_bytes", MetricKind::Gauge, "B.")
            .integer_sample(&[("name", "say \"\\\n\"")], 1);
        page.begin_family("c_seconds", MetricKind::Histogram, "C.")
            .histogram_samples(&[("k", "v")], &latency.snapshot());
        let text = page.into_text();
        let start = "# HELP a_total One\\nline, a \\\\.\n# TYPE a_total counter\na_total 7\n\
            # HELP b_bytes B.\n# TYPE b_bytes gauge\nb_bytes{name=\"say \\\"\\\\\\n\\\"\"} 1\n\
            # HELP c_seconds C.\n# TYPE c_seconds histogram\n\
            c_seconds_bucket{k=\"v\",le=\"0.000001\"} 0\n\
            c_seconds_bucket{k=\"v\",le=\"0.000002\"} 0\n\
            c_seconds_bucket{k=\"v\",le=\"0.000004\"} 1\n";
        assert!(text.starts_with(start), "{text}");
        let end = "c_seconds_bucket{k=\"v\",le=\"8.388608\"} 1\n\
            c_seconds_bucket{k=\"v\",le=\"+Inf\"} 2\n\
            c_seconds_sum{k=\"v\"} 20.000003\nc_seconds_count{k=\"v\"} 2\n";
        assert!(text.ends_with(end), "{text}");
    }
}
