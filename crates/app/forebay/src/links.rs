//! What each link did, as CSV: one link of one phase a line.

use forebay_machine::results::{InterferenceRun, IorPoint, IorStudy, LinkUse, TrafficRun};
use std::fmt::Write;

const HEADING: &str = "run,nodes,access,iteration,class,link,bytes,busy_seconds,utilisation,\
                       stall_seconds,max_queue_bytes\n";

fn add(out: &mut String, phase: &str, links: &[LinkUse]) {
    for l in links {
        let _ = writeln!(
            out,
            "{phase},{},\"{}\",{},{},{},{},{}",
            l.class,
            l.name,
            l.bytes,
            l.busy_seconds,
            l.utilisation,
            l.stall_seconds,
            l.max_queue_bytes
        );
    }
}

fn add_point(out: &mut String, run: &str, point: &IorPoint) {
    for p in &point.phases {
        let phase = format!("{run},{},{},{}", point.nodes, p.access, p.iteration);
        add(out, &phase, &p.each_link);
    }
}

fn add_run(out: &mut String, name: &str, run: &TrafficRun) {
    add(out, &format!("{name},{},,0", run.nodes), &run.each_link);
}

/// The links in all phases at all node counts.
pub fn of_study(study: &IorStudy) -> String {
    let mut out = HEADING.to_string();
    for point in &study.points {
        add_point(&mut out, "ior", point);
    }
    out
}

/// The links in a traffic run.
pub fn of_traffic(run: &TrafficRun) -> String {
    let mut out = HEADING.to_string();
    add_run(&mut out, "traffic", run);
    out
}

/// The links in the four runs of an interference study.
pub fn of_interference(run: &InterferenceRun) -> String {
    let mut out = HEADING.to_string();
    add_point(&mut out, "ior-alone", &run.ior_alone);
    add_point(&mut out, "ior-together", &run.ior_together);
    add_run(&mut out, "traffic-alone", &run.traffic_alone);
    add_run(&mut out, "traffic-together", &run.traffic_together);
    out
}
