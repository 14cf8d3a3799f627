//! Figures of sweeps.

use crate::cli::sweep::{SweepPoint, SweepRun, quantities_of};
use crate::plot::axis::{Scale, label};
use crate::plot::bars::{self, Bar};
use crate::plot::lines::{Chart, Line};
use crate::plot::palette::Palette;
use crate::plot::svg::{Svg, TextStyle};
use forebay_units::human::number;
use forebay_units::{Bytes, Rate};

/// Quantities that are drawn.
const MAX_CHARTS: usize = 4;

/// One chart below the other: each quantity against the first key that has numbers.
pub(crate) fn overview(run: &SweepRun, palette: &Palette) -> Svg {
    let title = format!("Sweep of {}, {}", run.keys.join(", "), run.machine);
    let mut figure = Svg::new(760.0, 40.0, &title);
    figure.text((16.0, 26.0), TextStyle::plain(16.0, palette.ink).bold(), false, &title);
    let axis = run.keys.iter().find(|key| run.points.iter().all(|p| x_of(p, key).is_some()));
    for (name, unit) in quantities_of(run).into_iter().take(MAX_CHARTS) {
        let heading = if unit.is_empty() { name.clone() } else { format!("{name}, {unit}") };
        let part = match axis {
            Some(key) => lines(run, key, &name, heading).draw(palette),
            None => bars_of(run, &name, &heading, palette),
        };
        figure.below(&part);
    }
    figure
}

/// The number of a point's value of a key, if it is one: also sizes and rates.
fn x_of(point: &SweepPoint, key: &str) -> Option<f64> {
    let text = point.settings.get(key)?;
    text.parse::<f64>()
        .ok()
        .or_else(|| text.parse::<Bytes>().ok().map(|b| b.0 as f64))
        .or_else(|| text.parse::<Rate>().ok().map(|r| r.0 as f64))
}

/// The values of a point's other keys.
fn others(run: &SweepRun, point: &SweepPoint, axis: &str) -> String {
    let keys = run.keys.iter().filter(|k| *k != axis);
    let pairs = keys.filter_map(|k| Some(format!("{k}={}", point.settings.get(k)?)));
    pairs.collect::<Vec<_>>().join(" ")
}

fn lines(run: &SweepRun, axis: &str, name: &str, title: String) -> Chart {
    let mut lines: Vec<Line> = Vec::new();
    for point in &run.points {
        let (Some(x), Some(estimate)) = (x_of(point, axis), point.replication.estimate(name))
        else {
            continue;
        };
        let of = others(run, point, axis);
        let line = match lines.iter_mut().position(|l| l.name == of) {
            Some(at) => &mut lines[at],
            None => {
                lines.push(Line { name: of, ..Line::default() });
                let last = lines.len() - 1;
                &mut lines[last]
            }
        };
        line.points.push((x, estimate.mean));
        line.half_widths.push(estimate.half_width.unwrap_or(0.0));
    }
    for line in &mut lines {
        let mut order: Vec<usize> = (0..line.points.len()).collect();
        order.sort_by(|&a, &b| line.points[a].0.total_cmp(&line.points[b].0));
        line.points = order.iter().map(|&i| line.points[i]).collect();
        line.half_widths = order.iter().map(|&i| line.half_widths[i]).collect();
    }
    let xs = || lines.iter().flat_map(|l| &l.points).map(|p| p.0);
    let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    let wide = low > 0.0 && high / low >= 8.0;
    Chart {
        title,
        x_name: axis.to_string(),
        x_label: label,
        x_scale: if wide { Scale::Log } else { Scale::Linear },
        x_at_points: true,
        y_top: 0.0,
        lines,
        size: (760.0, 260.0),
    }
}

fn bars_of(run: &SweepRun, name: &str, title: &str, palette: &Palette) -> Svg {
    let bars: Vec<Bar> = run
        .points
        .iter()
        .filter_map(|point| {
            let estimate = point.replication.estimate(name)?;
            let interval =
                estimate.half_width.map_or(String::new(), |h| format!(" ±{}", number(h)));
            Some(Bar {
                name: others(run, point, ""),
                value: estimate.mean,
                text: format!("{}{interval}", number(estimate.mean)),
                series: 0,
            })
        })
        .collect();
    bars::draw(title, &bars, 760.0, palette)
}
