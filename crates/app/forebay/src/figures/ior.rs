//! The figure of an IOR study: rates against node count, with published measurements.

use crate::plot::axis;
use crate::plot::bandwidth::{Curve, Figure, Mark};
use crate::plot::lines::{Chart, Line};
use crate::validate::published::Published;
use forebay_machine::results::{IorPoint, IorStudy, Phase};
use forebay_units::human::number;

/// The published measurements that are comparable with a study: the same machine, burst-buffer
/// count and kind of file, in GB/s, of an access that the study has.
pub fn comparable<'a>(
    study: &IorStudy,
    file_per_process: bool,
    published: &'a [Published],
) -> Vec<&'a Published> {
    let files = if file_per_process { "file-per-process" } else { "shared" };
    let has = |access: &str| {
        study.points.iter().any(|p| match access {
            "write" => p.write_gbps.is_some(),
            "read" => p.read_gbps.is_some(),
            _ => false,
        })
    };
    published
        .iter()
        .filter(|row| {
            row.machine == study.machine
                && row.files == files
                && row.unit == "GB/s"
                && !row.scope.is_empty()
                && row.storage_nodes == study.burst_buffers.to_string()
                && has(&row.access)
        })
        .collect()
}

fn mark(row: &Published) -> Option<Mark> {
    let (first, last) = (row.first_nodes?, row.last_nodes?);
    let value = row.number()?;
    let processes = if row.client_procs_per_node.is_empty() {
        String::new()
    } else {
        format!(", {} processes a node", row.client_procs_per_node)
    };
    Some(Mark {
        name: row.access.clone(),
        span: (f64::from(first), f64::from(last)),
        value,
        per_x: row.scope == "per-node",
        tip: format!(
            "published: {}, {} ({} nodes{processes}): {} {}; {}",
            row.system,
            row.what,
            row.clients,
            number(value),
            row.unit,
            row.source
        ),
    })
}

/// The curve of a quantity: the means of replicates with their intervals, if there are some.
fn curve(
    name: &str,
    quantity: &str,
    points: &[IorPoint],
    rate: fn(&IorPoint) -> Option<f64>,
) -> Option<Curve> {
    let estimate = |p: &'_ IorPoint| p.replication.as_ref()?.estimate(quantity).cloned();
    let with_rate = || points.iter().filter(|p| rate(p).is_some());
    let mean = |p: &IorPoint| estimate(p).map(|e| e.mean).or(rate(p)).unwrap_or(0.0);
    let half_width = |p: &IorPoint| estimate(p)?.half_width;
    let points: Vec<(f64, f64)> = with_rate().map(|p| (f64::from(p.nodes), mean(p))).collect();
    let half_widths = with_rate().filter_map(half_width).collect();
    (!points.is_empty()).then(|| Curve { name: name.to_string(), points, half_widths })
}

/// The file system of a study, in its title.
pub fn storage(study: &IorStudy) -> String {
    match study.burst_buffers {
        0 => study.file_system.clone(),
        nodes => format!("{nodes} burst-buffer nodes"),
    }
}

/// A limiting resource in a sentence: `local link`, `SSD`.
pub fn resource(name: &str) -> String {
    match name {
        "ssd" | "ost" => name.to_uppercase(),
        "lnet-router" => "LNET router".to_string(),
        other => other.replace('-', " "),
    }
}

/// The figure of a study.
pub fn bandwidth(study: &IorStudy, published: &[&Published]) -> Figure {
    let each = if study.ppn == 1 { "process" } else { "processes" };
    Figure {
        title: format!("IOR on {}", study.machine),
        subtitle: format!(
            "{}, {} {each} a node; {}",
            storage(study),
            study.ppn,
            study.ior.join(" ")
        ),
        x_name: "compute nodes".to_string(),
        x_label: axis::label,
        curves: [
            curve("write", "write_GBps", &study.points, |p| p.write_gbps),
            curve("read", "read_GBps", &study.points, |p| p.read_gbps),
        ]
        .into_iter()
        .flatten()
        .collect(),
        marks: published.iter().filter_map(|row| mark(row)).collect(),
        limits: study.points.iter().map(|p| (f64::from(p.nodes), resource(&p.limit))).collect(),
    }
}

/// A node's rate in the deciding phase, GB/s: its share of IOR's bandwidth, and the mean of the
/// nodes' acknowledged rates.
pub fn of_a_node(point: &IorPoint) -> (Option<f64>, Option<f64>) {
    let phase = deciding(point);
    (phase.map(|p| p.gbps / f64::from(point.nodes)), phase.map(|p| p.acknowledged_node_gbps.mean))
}

/// A node's rate against node count, in the deciding phases, with published rates per node.
pub fn node_rates(study: &IorStudy, published: &[&Published]) -> Chart {
    let line = |name: &str, value: fn(&Phase, u32) -> f64| Line {
        name: name.to_string(),
        points: study
            .points
            .iter()
            .filter_map(|p| Some((f64::from(p.nodes), value(deciding(p)?, p.nodes))))
            .collect(),
        ..Line::default()
    };
    let mut lines = vec![
        line("IOR / nodes", |p, nodes| p.gbps / f64::from(nodes)),
        line("acknowledged", |p, _| p.acknowledged_node_gbps.mean),
        line("slowest node", |p, _| p.acknowledged_node_gbps.min),
        line("fastest node", |p, _| p.acknowledged_node_gbps.max),
    ];
    let access = study.points.iter().find_map(deciding).map(|p| &*p.access);
    lines.extend(
        published
            .iter()
            .filter(|row| row.scope == "per-node" && Some(&*row.access) == access)
            .filter_map(|row| published_line(study, row)),
    );
    let doing = if access == Some("read") { "reading" } else { "writing" };
    Chart {
        title: format!("GB/s a node, {doing}"),
        x_name: "compute nodes".to_string(),
        x_label: axis::label,
        x_scale: axis::Scale::Log,
        x_at_points: true,
        y_top: 0.0,
        lines,
        size: (900.0, 240.0),
    }
}

/// A published rate at those of the study's node counts for which it was published.
fn published_line(study: &IorStudy, row: &Published) -> Option<Line> {
    let (first, last, value) = (row.first_nodes?, row.last_nodes?, row.number()?);
    let counts = study.points.iter().map(|p| p.nodes);
    let points: Vec<(f64, f64)> = counts
        .filter(|nodes| (first..=last).contains(nodes))
        .map(|nodes| (f64::from(nodes), value))
        .collect();
    (!points.is_empty()).then(|| Line { name: "published".to_string(), points, ..Line::default() })
}

/// The deciding phase of a point: the best write phase, else the best read phase.
pub fn deciding(point: &IorPoint) -> Option<&Phase> {
    best(point, "write").or_else(|| best(point, "read"))
}

/// The fastest phase of one access.
pub fn best<'a>(point: &'a IorPoint, access: &str) -> Option<&'a Phase> {
    point.phases.iter().filter(|p| p.access == access).max_by(|a, b| a.gbps.total_cmp(&b.gbps))
}

/// Use of the link classes against node count, of the deciding phases: the busiest link of
/// each class, or the mean of all of them.
pub fn link_use(study: &IorStudy, busiest: bool) -> Chart {
    let mut lines: Vec<Line> = Vec::new();
    for point in &study.points {
        let Some(phase) = deciding(point) else {
            continue;
        };
        for class in &phase.links {
            let value = if busiest { class.max_utilisation } else { class.mean_utilisation };
            let at = (f64::from(point.nodes), value);
            match lines.iter_mut().find(|l| l.name == class.class) {
                Some(line) => line.points.push(at),
                None => lines.push(Line {
                    name: class.class.clone(),
                    points: vec![at],
                    ..Line::default()
                }),
            }
        }
    }
    let what = if busiest { "busiest link of each class" } else { "mean of all links of a class" };
    Chart {
        title: format!("Busy share, {what}"),
        x_name: "compute nodes".to_string(),
        x_label: axis::label,
        x_scale: axis::Scale::Log,
        x_at_points: true,
        y_top: if busiest { 1.0 } else { 0.0 },
        lines,
        size: (560.0, 260.0),
    }
}
