//! Figures of traffic runs.

use crate::plot::bars::{self, Bar};
use crate::plot::palette::Palette;
use crate::plot::svg::{Svg, TextStyle};
use forebay_machine::results::{InterferenceRun, TrafficRun};
use forebay_units::human::{percent, seconds};

/// Latency of a packet: mean and percentiles; without bars if the network is saturated.
pub fn latency(run: &TrafficRun, palette: &Palette) -> Svg {
    let Some(l) = &run.latency_ns else {
        return bars::draw(
            "Latency of a packet: none, the network is saturated",
            &[],
            560.0,
            palette,
        );
    };
    let bars: Vec<Bar> = [
        ("mean", l.mean),
        ("median", l.p50),
        ("90th percentile", l.p90),
        ("99th percentile", l.p99),
        ("99.9th percentile", l.p999),
        ("largest", l.max),
    ]
    .into_iter()
    .map(|(name, ns)| Bar {
        name: name.to_string(),
        value: ns,
        text: seconds(ns * 1e-9),
        series: 0,
    })
    .collect();
    bars::draw("Latency of a packet", &bars, 560.0, palette)
}

/// Packets by number of router-to-router links crossed.
pub fn hops(run: &TrafficRun, palette: &Palette) -> Svg {
    let all: u64 = run.hops_histogram.iter().sum();
    let last = run.hops_histogram.iter().rposition(|packets| *packets > 0).unwrap_or(0);
    let bars: Vec<Bar> = run
        .hops_histogram
        .iter()
        .enumerate()
        .skip_while(|(_, packets)| **packets == 0)
        .take_while(|(hops, _)| *hops <= last)
        .map(|(hops, packets)| Bar {
            name: format!("{hops} {}", if hops == 1 { "hop" } else { "hops" }),
            value: *packets as f64,
            text: percent(*packets as f64 / all.max(1) as f64),
            series: 2,
        })
        .collect();
    bars::draw("Packets by router-to-router links crossed", &bars, 560.0, palette)
}

/// Use of each class of links: busiest and mean.
pub fn links(run: &TrafficRun, palette: &Palette) -> Svg {
    let bars: Vec<Bar> = run
        .links
        .iter()
        .flat_map(|class| {
            [("busiest", class.max_utilisation, 1), ("mean", class.mean_utilisation, 5)].map(
                |(which, value, series)| Bar {
                    name: format!("{} {which}", class.class),
                    value,
                    text: percent(value),
                    series,
                },
            )
        })
        .collect();
    bars::draw("Busy share of links by class", &bars, 560.0, palette)
}

/// The picture of a traffic run: latency, hops and links, one below the other.
pub fn overview(run: &TrafficRun, palette: &Palette) -> Svg {
    let title = format!(
        "{} traffic on {}, load {}",
        capitalised(&run.pattern),
        run.machine,
        percent(run.offered_load)
    );
    let mut figure = heading(&title, palette);
    for part in [latency(run, palette), hops(run, palette), links(run, palette)] {
        figure.below(&part);
    }
    figure
}

/// The picture of an interference run.
pub fn interference_overview(run: &InterferenceRun, palette: &Palette) -> Svg {
    let title = format!("IOR with {} traffic on {}", run.traffic_alone.pattern, run.machine);
    let mut figure = heading(&title, palette);
    for part in interference(run, palette) {
        figure.below(&part);
    }
    figure
}

fn heading(title: &str, palette: &Palette) -> Svg {
    let mut figure = Svg::new(560.0, 40.0, title);
    figure.text((16.0, 26.0), TextStyle::plain(16.0, palette.ink).bold(), false, title);
    figure
}

/// A pattern's name at the start of a heading.
pub fn capitalised(name: &str) -> String {
    let mut chars = name.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// IOR's rate and the traffic's latency, alone and together.
pub fn interference(run: &InterferenceRun, palette: &Palette) -> [Svg; 2] {
    let rate = |point: &forebay_machine::results::IorPoint| {
        point.write_gbps.or(point.read_gbps).unwrap_or(f64::NAN)
    };
    let bar = |name: &str, value: f64, text: String, series| Bar {
        name: name.to_string(),
        value,
        text,
        series,
    };
    let gbps = |v: f64| format!("{} GB/s", forebay_units::human::number(v));
    let (alone, together) = (rate(&run.ior_alone), rate(&run.ior_together));
    let rates =
        [bar("IOR alone", alone, gbps(alone), 0), bar("with traffic", together, gbps(together), 1)];
    let mean = |run: &TrafficRun| run.latency_ns.as_ref().map_or(f64::NAN, |l| l.mean);
    let text = |ns: f64| if ns.is_nan() { "saturated".to_string() } else { seconds(ns * 1e-9) };
    let (a, t) = (mean(&run.traffic_alone), mean(&run.traffic_together));
    let latencies = [bar("traffic alone", a, text(a), 0), bar("with IOR", t, text(t), 1)];
    [
        bars::draw("IOR's rate", &rates, 560.0, palette),
        bars::draw("Mean latency of the traffic", &latencies, 560.0, palette),
    ]
}
