//! A strict reader of Prometheus' text format, version 0.0.4, with the naming rules of
//! <https://prometheus.io/docs/practices/naming/> that `promtool check metrics` knows.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

#[derive(Debug, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// All samples of a page.
#[derive(Debug, Default)]
pub struct Page {
    samples: BTreeMap<(String, Labels), f64>,
}

/// The family that samples may follow at the moment.
struct Family {
    name: String,
    kind: Kind,
}

impl Page {
    /// Reads a page; the first thing that is wrong with it otherwise.
    pub fn read(text: &str) -> Result<Page, String> {
        if !text.ends_with('\n') {
            return Err("the last line does not end".into());
        }
        let mut page = Page::default();
        let mut helped = None;
        let mut family: Option<Family> = None;
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            let wrong = |what: &str| format!("{what}: {line}");
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').ok_or_else(|| wrong("no help"))?;
                if help.trim().is_empty() || !seen.insert(name.to_owned()) {
                    return Err(wrong("empty or repeated"));
                }
                page.check(family.take())?;
                helped = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("no type"))?;
                if helped.take().as_deref() != Some(name) {
                    return Err(wrong("no help before it"));
                }
                let kind = match kind {
                    "counter" => Kind::Counter,
                    "gauge" => Kind::Gauge,
                    "histogram" => Kind::Histogram,
                    _ => return Err(wrong("unknown type")),
                };
                if !is_name(name) || name.ends_with("_total") != (kind == Kind::Counter) {
                    return Err(wrong("name and type"));
                }
                family = Some(Family { name: name.to_owned(), kind });
            } else {
                let (name, labels, value) = sample(line).ok_or_else(|| wrong("not a sample"))?;
                let family = family.as_ref().ok_or_else(|| wrong("no family"))?;
                let suffix =
                    name.strip_prefix(&family.name).ok_or_else(|| wrong("another family's"))?;
                let fits = match family.kind {
                    Kind::Histogram => match suffix {
                        "_bucket" => labels.contains_key("le"),
                        "_sum" | "_count" => !labels.contains_key("le"),
                        _ => false,
                    },
                    Kind::Counter => suffix.is_empty() && value >= 0.0,
                    Kind::Gauge => suffix.is_empty(),
                };
                // Prometheus adds these itself, and would rename ours.
                if labels.contains_key("job") || labels.contains_key("instance") {
                    return Err(wrong("a label of Prometheus' own"));
                }
                if !fits || page.samples.insert((name, labels), value).is_some() {
                    return Err(wrong("unfit or repeated"));
                }
            }
        }
        page.check(family)?;
        Ok(page)
    }

    /// A histogram's buckets rise to its count.
    fn check(&self, family: Option<Family>) -> Result<(), String> {
        let Some(Family { name, kind: Kind::Histogram }) = family else {
            return Ok(());
        };
        let mut all = BTreeMap::<Labels, Vec<(f64, f64)>>::new();
        for ((_, labels), value) in self.of(&format!("{name}_bucket")) {
            let mut labels = labels.clone();
            let bound = labels.remove("le").unwrap();
            let bound = match bound.as_str() {
                "+Inf" => f64::INFINITY,
                bound => bound.parse().map_err(|_| format!("{name}: le={bound}"))?,
            };
            all.entry(labels).or_default().push((bound, *value));
        }
        if self.of(&format!("{name}_count")).count() != all.len() {
            return Err(format!("{name}: counts and buckets differ"));
        }
        for (labels, mut buckets) in all {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            if !buckets.is_sorted_by_key(|(_, count)| *count) {
                return Err(format!("{name}{labels:?}: buckets fall"));
            }
            let count = self.find(&format!("{name}_count"), &labels);
            let last = buckets.last().copied();
            if last != count.map(|count| (f64::INFINITY, count)) {
                return Err(format!("{name}{labels:?}: {last:?} of {count:?}"));
            }
            let sum = self.find(&format!("{name}_sum"), &labels);
            if !sum.is_some_and(|sum| sum >= 0.0) {
                return Err(format!("{name}{labels:?}: sum {sum:?}"));
            }
        }
        Ok(())
    }

    fn of(&self, name: &str) -> impl Iterator<Item = (&(String, Labels), &f64)> {
        self.samples.iter().filter(move |((n, _), _)| n == name)
    }

    fn find(&self, name: &str, labels: &Labels) -> Option<f64> {
        self.samples.get(&(name.to_owned(), labels.clone())).copied()
    }

    /// The sample with these labels.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let all = labels.iter().map(|(n, v)| ((*n).into(), (*v).into()));
        self.find(name, &all.collect()).unwrap_or_else(|| panic!("no {name} {labels:?}"))
    }

    /// The only sample of that name.
    pub fn only(&self, name: &str) -> f64 {
        let all: Vec<_> = self.of(name).collect();
        assert_eq!(all.len(), 1, "{all:?}");
        *all[0].1
    }
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next();
    first.is_some_and(|c| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn sample(line: &str) -> Option<(String, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let mut value = String::new();
            let mut chars = after.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match chars.next()?.1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        _ => return None,
                    }),
                    (_, c) => value.push(c),
                }
            };
            if !is_name(label) || labels.insert(label.to_owned(), value).is_some() {
                return None;
            }
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    let value = rest.strip_prefix(' ')?;
    let plain = !value.contains(' ') && is_name(name);
    plain.then_some((name.to_owned(), labels, value.parse().ok()?))
}

#[test]
fn exposition_reader_rejects_malformed_pages() {
    let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"\\\"1\\\\\"} 3\n";
    assert_eq!(Page::read(good).unwrap().get("a_total", &[("x", "\"1\\")]), 3.0);
    let histogram = |last: &str| {
        format!(
            "# HELP h_seconds H.\n# TYPE h_seconds histogram\nh_seconds_bucket{{le=\"1\"}} 2\n\
             h_seconds_bucket{{le=\"+Inf\"}} {last}\nh_seconds_sum 1\nh_seconds_count 3\n"
        )
    };
    assert!(Page::read(&histogram("3")).is_ok());
    let bad = [
        histogram("1"),
        histogram("4"),
        good.replace("_total", ""),
        good.replace("# HELP a_total A.\n", ""),
        good.replace("\\\\", "\\"),
        format!("{good}a_total{{x=\"\\\"1\\\\\"}} 4\n"),
        format!("{good}b 4\n"),
        good.trim_end().to_owned(),
        good.replace(" 3\n", " three\n"),
    ];
    for page in bad {
        assert!(Page::read(&page).is_err(), "{page}");
    }
}
