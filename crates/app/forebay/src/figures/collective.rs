//! Figures of collective operations.

use crate::plot::axis::{self, Scale};
use crate::plot::bars::{self, Bar};
use crate::plot::lines::{Chart, Line};
use crate::plot::palette::Palette;
use crate::plot::svg::{Svg, TextStyle};
use forebay_machine::results::{CollectiveRun, CollectiveTimes};
use forebay_units::human::seconds;

/// The runs of a study, with their names.
fn runs(run: &CollectiveRun) -> impl Iterator<Item = (&'static str, &CollectiveTimes)> {
    std::iter::once(("alone", &run.alone)).chain(run.together.iter().map(|t| ("together", t)))
}

/// Mean and percentiles of the times.
pub fn times(run: &CollectiveRun, palette: &Palette) -> Svg {
    let bars: Vec<Bar> = runs(run)
        .zip(0..)
        .flat_map(|((name, times), series)| {
            [
                ("mean", times.mean_seconds),
                ("median", times.p50_seconds),
                ("99%", times.p99_seconds),
                ("greatest", times.max_seconds),
            ]
            .map(|(which, value)| Bar {
                name: format!("{which}, {name}"),
                value,
                text: seconds(value),
                series,
            })
        })
        .collect();
    bars::draw(&format!("Time of the {}", run.operation), &bars, 560.0, palette)
}

/// The time of each iteration.
pub fn iterations(run: &CollectiveRun, palette: &Palette) -> Svg {
    let numbered = |times: &CollectiveTimes| {
        let us = times.iteration_seconds.iter().map(|seconds| seconds * 1e6);
        (1..).map(f64::from).zip(us).collect()
    };
    let line = |(name, times): (&str, &CollectiveTimes)| Line {
        name: name.to_string(),
        points: numbered(times),
        ..Line::default()
    };
    let chart = Chart {
        title: "Time of each iteration, us".to_string(),
        x_name: "iteration".to_string(),
        x_label: axis::label,
        x_scale: Scale::Linear,
        x_at_points: false,
        y_top: 0.0,
        lines: runs(run).map(line).collect(),
        size: (560.0, 220.0),
    };
    chart.draw(palette)
}

/// The picture of a study.
pub fn overview(run: &CollectiveRun, palette: &Palette) -> Svg {
    let title = format!("{} on {} nodes of {}", run.operation, run.nodes, run.machine);
    let mut figure = Svg::new(560.0, 40.0, &title);
    figure.text((16.0, 26.0), TextStyle::plain(16.0, palette.ink).bold(), false, &title);
    figure.below(&times(run, palette));
    figure.below(&iterations(run, palette));
    figure
}
