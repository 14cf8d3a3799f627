//! Prometheus' text format, version 0.0.4:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use crate::LatencySnapshot;
use std::fmt::Write;

/// What a family of metrics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises, but for restarts; its name ends with `_total`.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts by buckets.
    Histogram,
}

/// A document under construction. The samples of a family follow its [`family`](Exposition::family)
/// line; names are the caller's constants, label values may be anything.
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
        debug_assert_eq!(
            name.ends_with("_total"),
            kind == MetricKind::Counter,
            "{name}"
        );
        self.name = name;
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        self
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{text}");
    }

    /// A whole number of the current family.
    pub fn integer_sample(&mut self, labels: &[(&str, &str)], value: u64) -> &mut Exposition {
        let (name, labels) = (self.name, braced(labels, None));
        self.line(format_args!("{name}{labels} {value}"));
        self
    }

    /// A number of the current family.
    pub fn float_sample(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Exposition {
        let (name, labels) = (self.name, braced(labels, None));
        self.line(format_args!("{name}{labels} {value}"));
        self
    }

    /// A histogram of the current family, in seconds.
    pub fn histogram_samples(
        &mut self,
        labels: &[(&str, &str)],
        latency: &LatencySnapshot,
    ) -> &mut Exposition {
        let name = self.name;
        for (bound, count) in latency.cumulative_counts() {
            let labels = braced(labels, Some(&bound.to_string()));
            self.line(format_args!("{name}_bucket{labels} {count}"));
        }
        let count = latency.count();
        let infinite = braced(labels, Some("+Inf"));
        self.line(format_args!("{name}_bucket{infinite} {count}"));
        let labels = braced(labels, None);
        self.line(format_args!(
            "{name}_sum{labels} {}",
            latency.total_seconds()
        ));
        self.line(format_args!("{name}_count{labels} {count}"));
        self
    }

    /// The document.
    pub fn into_text(self) -> String {
        self.text
    }
}

fn braced(labels: &[(&str, &str)], bound: Option<&str>) -> String {
    let all = labels.iter().copied().chain(bound.map(|b| ("le", b)));
    let mut text = String::new();
    for (name, value) in all {
        text.push(if text.is_empty() { '{' } else { ',' });
        let value = value
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace('\n', r"\n");
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
    fn a_document_reads_as_prometheus_wants_it() {
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
