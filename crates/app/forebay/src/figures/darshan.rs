//! Figures of a Darshan log.

use crate::plot::bars::{self, Bar};
use crate::plot::palette::Palette;
use crate::plot::svg::{Svg, TextStyle};
use forebay_machine::results::DarshanRun;
use forebay_units::human::seconds;

/// Phases that are drawn: those with the longest times.
const MOST: usize = 12;

/// The time of each phase in the log and as simulated.
pub fn phases(run: &DarshanRun, palette: &Palette) -> Svg {
    let mut all: Vec<_> = (1..).zip(&run.phases).filter(|(_, one)| !one.parts.is_empty()).collect();
    let longest = |(_, one): &(u32, &forebay_machine::results::DarshanPhase)| {
        one.measured_seconds.max(one.slowest_rank_seconds)
    };
    all.sort_by(|a, b| longest(b).total_cmp(&longest(a)));
    all.truncate(MOST);
    all.sort_by_key(|(number, _)| *number);
    let mut bars = vec![
        bar("all, log".into(), run.measured_seconds, 0),
        bar("all, simulated".into(), run.slowest_rank_seconds, 1),
    ];
    for (number, phase) in all {
        let name = format!("{number}: {} {}", phase.access, phase.files);
        bars.push(bar(format!("{name}, log"), phase.measured_seconds, 0));
        bars.push(bar(format!("{name}, simulated"), phase.slowest_rank_seconds, 1));
    }
    let title = format!("{} on {}", run.log, run.machine);
    let mut figure = Svg::new(720.0, 40.0, &title);
    figure.text((16.0, 26.0), TextStyle::plain(16.0, palette.ink).bold(), false, &title);
    figure.below(&bars::draw("Time of the slowest processes in calls", &bars, 720.0, palette));
    figure
}

fn bar(name: String, value: f64, series: usize) -> Bar {
    Bar { name, value, text: seconds(value), series }
}
