//! Time series as CSV, one value a line, so that any tool can pick and pivot them.

use forebay_machine::results::{InterferenceRun, IorStudy, Series, TrafficRun};
use std::fmt::Write;

const HEADING: &str = "run,nodes,access,iteration,seconds,name,value\n";

fn add(out: &mut String, run: &str, nodes: u32, access: &str, iteration: u32, series: &Series) {
    for (name, values) in &series.columns {
        for (seconds, value) in series.seconds.iter().zip(values) {
            let _ = writeln!(
                out,
                "{run},{nodes},{access},{iteration},{seconds},{name},{value}"
            );
        }
    }
}

/// The series of all phases at all node counts.
pub fn of_study(study: &IorStudy) -> String {
    let mut out = HEADING.to_string();
    for point in &study.points {
        for p in &point.phases {
            add(
                &mut out,
                "ior",
                point.nodes,
                &p.access,
                p.iteration,
                &p.series,
            );
        }
    }
    out
}

/// The series of a traffic run.
pub fn of_traffic(run: &TrafficRun) -> String {
    let mut out = HEADING.to_string();
    add(&mut out, "traffic", run.nodes, "", 0, &run.series);
    out
}

/// The series of the four runs of an interference study.
pub fn of_interference(run: &InterferenceRun) -> String {
    let mut out = HEADING.to_string();
    for (name, point) in [
        ("ior-alone", &run.ior_alone),
        ("ior-together", &run.ior_together),
    ] {
        for p in &point.phases {
            add(
                &mut out,
                name,
                point.nodes,
                &p.access,
                p.iteration,
                &p.series,
            );
        }
    }
    for (name, run) in [
        ("traffic-alone", &run.traffic_alone),
        ("traffic-together", &run.traffic_together),
    ] {
        add(&mut out, name, run.nodes, "", 0, &run.series);
    }
    out
}
