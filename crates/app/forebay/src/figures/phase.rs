//! Figures over simulated time.

use crate::plot::axis::{self, Scale};
use crate::plot::lines::{Chart, Line};
use forebay_machine::results::Series;

/// The time series of a run as up to two charts: rates, and shares.
pub fn over_time(series: &Series) -> Vec<Chart> {
    let last = series.seconds.last().copied().unwrap_or(0.0);
    let (factor, unit) = match last {
        s if s < 1e-3 => (1e6, "us"),
        s if s < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    let lines = |rates: bool| -> Vec<Line> {
        series
            .columns
            .iter()
            .filter(|(name, _)| name.ends_with("_GBps") == rates)
            .map(|(name, values)| Line {
                name: name.strip_suffix("_GBps").unwrap_or(name).replace('_', " "),
                points: series
                    .seconds
                    .iter()
                    .map(|s| s * factor)
                    .zip(values.iter().copied())
                    .collect(),
                ..Line::default()
            })
            .collect()
    };
    let chart = |title: &str, y_top: f64, lines: Vec<Line>| Chart {
        title: title.to_string(),
        x_name: format!("simulated time in {unit}"),
        x_label: axis::label,
        x_scale: Scale::Linear,
        x_at_points: false,
        y_top,
        lines,
        size: (560.0, 220.0),
    };
    [chart("GB/s", 0.0, lines(true)), chart("Mean busy share", 0.0, lines(false))]
        .into_iter()
        .filter(|c| !c.lines.is_empty() && !series.seconds.is_empty())
        .collect()
}
