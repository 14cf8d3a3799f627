//! Figures of job queues: utilization over time, waiting times, and the life of each job of a short trace.

use crate::cli::jobs::document::{JobsRun, Point, PolicyResult};
use crate::plot::axis::{Axis, Scale, label};
use crate::plot::bars::{self, Bar};
use crate::plot::lines::{Chart, Line};
use crate::plot::palette::Palette;
use crate::plot::svg::{Anchor, Stroke, Svg, TextStyle};
use forebay_schedule::simulation::History;
use forebay_schedule::usage::{MeanUsage, means};
use forebay_units::human::{counted, seconds};

/// Intervals of a chart over time.
const INTERVALS: u32 = 120;
/// Jobs up to which each has a row.
const MAX_ROWS: usize = 60;
/// Width of a chart.
const WIDTH: f64 = 760.0;
/// Points of a distribution.
const POINTS: usize = 60;

/// The picture of a run.
pub(crate) fn overview(run: &JobsRun, palette: &Palette) -> Svg {
    let title = match &run.machine {
        Some(machine) => format!("Jobs on {machine}"),
        None => "Jobs".to_owned(),
    };
    let mut figure = Svg::new(WIDTH, 40.0, &title);
    figure.text((16.0, 26.0), TextStyle::plain(16.0, palette.ink).bold(), false, &title);
    for part in charts(run, palette) {
        figure.below(&part);
    }
    figure
}

/// The charts: of the first point, or of all points of a sweep.
pub(crate) fn charts(run: &JobsRun, palette: &Palette) -> Vec<Svg> {
    let mut charts = Vec::new();
    if run.points.len() > 1 {
        charts.push(swept_waits(run, palette));
        return charts;
    }
    let point = &run.points[0];
    charts.push(mean_waits(point, palette));
    charts.push(distribution(point).draw(palette));
    let nodes = f64::from(point.nodes);
    let granules = point.cluster.granules() as f64;
    charts.push(
        over_time(point, "Nodes in use, share", 1.0, &|mean| mean.nodes / nodes).draw(palette),
    );
    if granules > 0.0 {
        let of = |mean: &MeanUsage| mean.granules / granules;
        charts.push(over_time(point, "Burst buffer in use, share", 1.0, &of).draw(palette));
    }
    charts.push(over_time(point, "Jobs that wait", 0.0, &|mean| mean.waiting).draw(palette));
    for result in &point.policies {
        if let Some(history) = result.histories.first().filter(|one| one.jobs.len() <= MAX_ROWS) {
            charts.push(lives(result, history, palette));
        }
    }
    charts
}

/// Mean waiting time of each policy.
fn mean_waits(point: &Point, palette: &Palette) -> Svg {
    let bar = |(series, result): (usize, &PolicyResult)| Bar {
        name: result.policy.to_string(),
        value: result.summary.mean_wait_seconds,
        text: seconds(result.summary.mean_wait_seconds),
        series: series % palette.series.len(),
    };
    let bars: Vec<Bar> = point.policies.iter().enumerate().map(bar).collect();
    bars::draw("Mean waiting time", &bars, WIDTH, palette)
}

/// Mean waiting times against the swept values.
fn swept_waits(run: &JobsRun, palette: &Palette) -> Svg {
    let bar = |point: &Point, (series, result): (usize, &PolicyResult)| Bar {
        name: format!("{} {}", point.label(), result.policy),
        value: result.summary.mean_wait_seconds,
        text: seconds(result.summary.mean_wait_seconds),
        series: series % palette.series.len(),
    };
    let bars: Vec<Bar> = run
        .points
        .iter()
        .flat_map(|point| point.policies.iter().enumerate().map(|one| bar(point, one)))
        .collect();
    bars::draw("Mean waiting time", &bars, WIDTH, palette)
}

/// Share of the jobs that wait at most for a time.
fn distribution(point: &Point) -> Chart {
    let waits = |result: &PolicyResult| -> Vec<f64> {
        let jobs = result.histories.iter().flat_map(|history| &history.jobs);
        let mut waits: Vec<f64> = jobs.map(|job| job.waiting().seconds()).collect();
        waits.sort_by(f64::total_cmp);
        waits
    };
    let all: Vec<Vec<f64>> = point.policies.iter().map(waits).collect();
    let longest = all.iter().filter_map(|waits| waits.last()).fold(100.0_f64, |a, b| a.max(*b));
    let line = |(result, waits): (&PolicyResult, &Vec<f64>)| {
        let points = (0..=POINTS).map(|nth| {
            let time = longest.powf(nth as f64 / POINTS as f64);
            let waiting = waits.partition_point(|wait| *wait <= time * (1.0 + 1e-9));
            (time, waiting as f64 / waits.len().max(1) as f64)
        });
        Line { name: result.policy.to_string(), points: points.collect(), ..Line::default() }
    };
    Chart {
        title: "Share of the jobs that wait at most for a time".to_owned(),
        x_name: "waiting time".to_owned(),
        x_label: seconds,
        x_scale: Scale::Log,
        x_at_points: false,
        y_top: 1.0,
        lines: point.policies.iter().zip(&all).map(line).collect(),
        size: (WIDTH, 260.0),
    }
}

/// The unit of an axis until a time: its seconds, and its name.
fn unit_of(seconds: f64) -> (f64, &'static str) {
    match seconds {
        time if time < 7_200.0 => (60.0, "minutes"),
        time if time < 172_800.0 => (3_600.0, "hours"),
        _ => (86_400.0, "days"),
    }
}

/// Means over time, of the first trace.
fn over_time(point: &Point, title: &str, top: f64, of: &dyn Fn(&MeanUsage) -> f64) -> Chart {
    let last = point.policies.iter().filter_map(|result| result.histories.first());
    let last = last.filter_map(|history| history.usage.last()).map(|usage| usage.at).max();
    let (unit, name) = unit_of(last.unwrap_or_default().seconds());
    let line = |result: &PolicyResult| {
        let usage = result.histories.first().map_or(&[][..], |history| &history.usage);
        let points = means(usage, INTERVALS)
            .iter()
            .map(|mean| (mean.until.seconds() / unit, of(mean)))
            .collect();
        Line { name: result.policy.to_string(), points, ..Line::default() }
    };
    Chart {
        title: title.to_owned(),
        x_name: format!("time in {name}"),
        x_label: label,
        x_scale: Scale::Linear,
        x_at_points: false,
        y_top: top,
        lines: point.policies.iter().map(line).collect(),
        size: (WIDTH, 200.0),
    }
}

/// A row for each job: waiting, stage-in, run and stage-out.
fn lives(result: &PolicyResult, history: &History, palette: &Palette) -> Svg {
    const LEFT: f64 = 90.0;
    const ROW: f64 = 14.0;
    const TOP: f64 = 46.0;
    let title = format!("{}: the life of each job", result.policy);
    let bottom = TOP + ROW * history.jobs.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 34.0, &title);
    svg.text((16.0, 18.0), TextStyle::plain(12.0, palette.ink).bold(), false, &title);
    let kinds = [
        ("stage-in", palette.series[5]),
        ("runs", palette.series[0]),
        ("stage-out", palette.series[4]),
    ];
    for (nth, (name, colour)) in kinds.iter().enumerate() {
        let x = LEFT + 110.0 * nth as f64;
        svg.rect(x, 28.0, 10.0, 10.0, colour, None);
        svg.text((x + 14.0, 37.0), TextStyle::plain(11.0, palette.muted), false, name);
    }
    let last = history.jobs.iter().map(|job| job.done.seconds()).fold(0.0, f64::max);
    let (unit, unit_name) = unit_of(last);
    let axis = Axis::new(Scale::Linear, 0.0, last / unit, LEFT, WIDTH - 20.0);
    for tick in axis.ticks() {
        let x = axis.at(tick);
        svg.line((x, TOP), (x, bottom), Stroke::solid(palette.grid, 1.0));
        let style = TextStyle::plain(11.0, palette.muted).anchored(Anchor::Middle);
        svg.text((x, bottom + 16.0), style, false, &format!("{} {unit_name}", label(tick)));
    }
    for (nth, job) in history.jobs.iter().enumerate() {
        let y = TOP + ROW * nth as f64;
        let style = TextStyle::plain(10.0, palette.ink).anchored(Anchor::End);
        let name = format!("{}: {}", job.id, counted(job.nodes.into(), "node"));
        svg.text((LEFT - 6.0, y + 10.0), style, false, &name);
        let x = |time: forebay_schedule::time::Millis| axis.at(time.seconds() / unit);
        svg.line(
            (x(job.arrival), y + 6.0),
            (x(job.start), y + 6.0),
            Stroke::solid(palette.muted, 1.0),
        );
        let tip = format!(
            "job {}: waits for {}, runs for {}",
            job.id,
            seconds(job.waiting().seconds()),
            seconds(job.end.since(job.start).seconds())
        );
        let parts = [(job.begin, job.ready), (job.start, job.end), (job.end, job.done)];
        for ((from, until), (_, colour)) in parts.into_iter().zip(kinds) {
            if until > from {
                svg.rect(
                    x(from),
                    y + 2.0,
                    (x(until) - x(from)).max(1.0),
                    ROW - 5.0,
                    colour,
                    Some(&tip),
                );
            }
        }
    }
    svg
}
