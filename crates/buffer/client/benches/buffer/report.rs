//! The table and the JSON document of both benchmarks.

use crate::Outcome;
use serde_json::{Value, json};
use std::path::Path;

/// The target of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    None,
}

/// A figure: one line of the table.
#[derive(Debug)]
pub struct Line {
    pub case: String,
    pub who: String,
    pub measured: f64,
    pub unit: &'static str,
    /// The median of the ratios of all rounds to another contestant, and its name.
    pub ratio: Option<(f64, &'static str)>,
    /// The target of the ratio if it is at most 1, otherwise of the figure.
    pub target: Target,
}

impl Line {
    /// The value to which the target applies.
    fn judged(&self) -> f64 {
        match (self.target, self.ratio) {
            (Target::AtLeast(least), Some((ratio, _))) if least <= 1.0 => ratio,
            _ => self.measured,
        }
    }

    fn is_met(&self) -> Option<bool> {
        match self.target {
            Target::AtLeast(least) => Some(self.judged() >= least),
            Target::AtMost(most) => Some(self.judged() <= most),
            Target::None => None,
        }
    }

    fn target(&self) -> String {
        match self.target {
            Target::AtLeast(least) => format!(">= {}", number(least)),
            Target::AtMost(most) => format!("<= {}", number(most)),
            Target::None => String::new(),
        }
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => "failed".to_owned(),
        v if v >= 1000.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub fn print_heading() {
    println!(
        "{:<34}{:<12}{:>12} {:<6}{:>22}  {:<10}met",
        "case", "", "measured", "", "compared", "target"
    );
}

pub fn print_line(line: &Line) {
    let ratio = line.ratio.map(|(ratio, name)| format!("{ratio:.2} x {name}"));
    let met = match line.is_met() {
        Some(true) => "yes",
        Some(false) => "NO",
        None => "",
    };
    let text = format!(
        "{:<34}{:<12}{:>12} {:<6}{:>22}  {:<10}{met}",
        line.case,
        line.who,
        number(line.measured),
        line.unit,
        ratio.unwrap_or_default(),
        line.target(),
    );
    println!("{}", text.trim_end());
}

/// The median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.get(middle.wrapping_sub(1))) {
        (Some(upper), Some(lower)) if values.len().is_multiple_of(2) => (upper + lower) / 2.0,
        (Some(middle), _) => *middle,
        _ => f64::NAN,
    }
}

/// Writes all figures as JSON, under the key `name`.
pub fn write_json(name: &str, lines: &[Line], path: &Path) -> Outcome<()> {
    let value = |line: &Line| -> Value {
        let (least, most) = match line.target {
            Target::AtLeast(least) => (Some(least), None),
            Target::AtMost(most) => (None, Some(most)),
            Target::None => (None, None),
        };
        json!({
            "case": line.case,
            "who": line.who,
            "measured": line.measured,
            "unit": line.unit,
            "ratio": line.ratio.map(|(ratio, _)| ratio),
            "ratio_to": line.ratio.map(|(_, name)| name),
            "at_least": least,
            "at_most": most,
            "met": line.is_met(),
        })
    };
    let all: Vec<Value> = lines.iter().map(value).collect();
    let text = serde_json::to_string_pretty(&json!({ name: all }))?;
    Ok(std::fs::write(path, text + "\n")?)
}
