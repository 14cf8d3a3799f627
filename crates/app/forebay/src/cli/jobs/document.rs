//! The result document of `forebay sim jobs`.

use super::JobsArgs;
use super::traces::{Simulated, TraceFile, named};
use crate::cli::output::VERSION;
use forebay_machine::results::SCHEMA;
use forebay_schedule::cluster::Cluster;
use forebay_schedule::policy::Policy;
use forebay_schedule::simulation::History;
use forebay_schedule::summary::Summary;
use forebay_schedule::time::Millis;
use forebay_units::human::counted;
use serde::Serialize;
use std::collections::BTreeMap;

/// The document.
#[derive(Debug, Serialize)]
pub(crate) struct JobsRun {
    /// Version of this document.
    pub(crate) schema: u32,
    /// `sim jobs`.
    pub(crate) kind: &'static str,
    /// Version of forebay.
    pub(crate) version: &'static str,
    /// The machine; `null` without a machine file.
    pub(crate) machine: Option<String>,
    /// Seed of burst buffers and plans.
    pub(crate) seed: u64,
    /// Distribution of the burst buffers, if they are not those of the trace.
    pub(crate) bb_per_node: Option<String>,
    /// Shortest running time in the bounded slowdown.
    pub(crate) bound_seconds: f64,
    /// The traces.
    pub(crate) traces: Vec<TraceInfo>,
    /// One entry for each combination of `--sweep`, or one.
    pub(crate) points: Vec<Point>,
    /// Warnings.
    pub(crate) warnings: Vec<String>,
}

/// A trace.
#[derive(Debug, Serialize)]
pub(crate) struct TraceInfo {
    /// Its file.
    pub(crate) file: String,
    /// Jobs that could be read.
    pub(crate) jobs: u64,
    /// Jobs that are left out because times or sizes are not known.
    pub(crate) left_out: u64,
    /// Jobs that ran longer than requested, and end at their limit.
    pub(crate) cut: u64,
}

/// Results on one machine.
#[derive(Debug, Serialize)]
pub(crate) struct Point {
    /// Value of each swept key.
    pub(crate) settings: BTreeMap<String, String>,
    /// Compute nodes.
    pub(crate) nodes: u32,
    /// Storage nodes.
    pub(crate) storage_nodes: u32,
    /// Capacity of the pool.
    pub(crate) capacity_bytes: u64,
    /// Bytes of a granule.
    pub(crate) granularity_bytes: u64,
    /// Rate of a storage node for stage-ins and checkpoints.
    #[serde(rename = "storage_in_GBps")]
    pub(crate) storage_in_gbps: Option<f64>,
    /// Rate of a storage node for stage-outs.
    #[serde(rename = "storage_out_GBps")]
    pub(crate) storage_out_gbps: Option<f64>,
    /// Rate of the parallel file system.
    #[serde(rename = "pfs_GBps")]
    pub(crate) pfs_gbps: Option<f64>,
    /// Jobs that can never run, which are left out.
    pub(crate) impossible_jobs: u64,
    /// One entry for each policy.
    pub(crate) policies: Vec<PolicyResult>,
    #[serde(skip)]
    pub(crate) cluster: Cluster,
    #[serde(skip)]
    impossible: Vec<(u64, String)>,
    #[serde(skip)]
    has_stages: bool,
}

/// Results of a policy.
#[derive(Debug, Serialize)]
pub(crate) struct PolicyResult {
    /// Its name.
    pub(crate) policy: Policy,
    /// Of all traces.
    #[serde(flatten)]
    pub(crate) summary: Summary,
    /// Of each trace.
    pub(crate) each_trace: Vec<Summary>,
    /// The history of each trace.
    #[serde(skip)]
    pub(crate) histories: Vec<History>,
}

impl PolicyResult {
    pub(super) fn new(
        policy: Policy,
        cluster: &Cluster,
        bound: Millis,
        histories: Vec<History>,
    ) -> PolicyResult {
        let all: Vec<&History> = histories.iter().collect();
        let summary = Summary::of(cluster, &all, bound);
        let each_trace = all.iter().map(|one| Summary::of(cluster, &[one], bound)).collect();
        PolicyResult { policy, summary, each_trace, histories }
    }
}

impl Point {
    pub(super) fn new(
        settings: Vec<(String, String)>,
        cluster: Cluster,
        simulated: Vec<Simulated>,
        policies: Vec<PolicyResult>,
    ) -> Point {
        let gbps = |rate: Option<f64>| rate.map(|rate| rate / 1e9);
        let mut jobs = simulated.iter().flat_map(|trace| &trace.jobs);
        let has_stages = jobs.any(|job| job.stage_in.0 + job.stage_out.0 > 0);
        let impossible: Vec<_> = simulated.into_iter().flat_map(|trace| trace.impossible).collect();
        Point {
            settings: settings.into_iter().collect(),
            nodes: cluster.nodes,
            storage_nodes: cluster.storage.len() as u32,
            capacity_bytes: cluster.capacity().0,
            granularity_bytes: cluster.granularity.0,
            storage_in_gbps: gbps(cluster.rates.storage_in),
            storage_out_gbps: gbps(cluster.rates.storage_out),
            pfs_gbps: gbps(cluster.rates.pfs),
            impossible_jobs: impossible.len() as u64,
            policies,
            cluster,
            impossible,
            has_stages,
        }
    }

    /// The values of the swept keys, as `capacity=100 GB`; empty without `--sweep`.
    pub(crate) fn label(&self) -> String {
        let pairs = self.settings.iter().map(|(key, value)| format!("{key}={value}"));
        pairs.collect::<Vec<_>>().join(" ")
    }

    /// Jobs that were left out, and rates without a limit.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.impossible.is_empty() {
            let count = counted(self.impossible_jobs, "job");
            let which = named(&self.impossible);
            warnings.push(format!("{count} that can never run left out: {which}"));
        }
        let rates = self.cluster.rates;
        if self.has_stages && rates.pfs.is_none() {
            let limit = match (rates.storage_in, rates.storage_out) {
                (None, None) => "stages take no time",
                _ => "only storage nodes limit stages",
            };
            warnings.push(format!(
                "no rate of the parallel file system is known, so {limit}; give --pfs-rate"
            ));
        }
        warnings
    }
}

impl JobsRun {
    pub(super) fn new(args: &JobsArgs, traces: &[TraceFile], points: Vec<Point>) -> JobsRun {
        let info = |trace: &TraceFile| TraceInfo {
            file: trace.name.clone(),
            jobs: trace.trace.jobs.len() as u64,
            left_out: trace.trace.left_out.len() as u64,
            cut: trace.trace.cut,
        };
        let mut warnings = Vec::new();
        for TraceFile { name, trace } in traces {
            if !trace.left_out.is_empty() {
                let count = counted(trace.left_out.len() as u64, "job");
                let which = named(&trace.left_out);
                warnings.push(format!("{name}: {count} without times or sizes left out: {which}"));
            }
            if trace.cut > 0 {
                let count = counted(trace.cut, "job");
                warnings.push(format!(
                    "{name}: {count} ran longer than requested in the trace, and end at their limit here"
                ));
            }
            if args.bb_per_node.is_some() && trace.has_buffers {
                warnings.push(format!("{name}: its burst buffers are replaced by --bb-per-node"));
            }
        }
        if args.bb_per_node.is_none() && !traces.iter().any(|trace| trace.trace.has_buffers) {
            warnings.push(
                "no job has a burst buffer; --bb-per-node gives them buffers of an assumed distribution"
                    .to_owned(),
            );
        }
        warnings.extend(warnings_of_points(&points));
        JobsRun {
            schema: SCHEMA,
            kind: "sim jobs",
            version: VERSION,
            machine: args.machine.clone(),
            seed: args.seed,
            bb_per_node: args.bb_per_node.map(|of| of.to_string()),
            bound_seconds: args.bound,
            traces: traces.iter().map(info).collect(),
            points,
            warnings,
        }
    }
}

/// Warnings about machines; one that holds for all combinations of a sweep is there once.
fn warnings_of_points(points: &[Point]) -> Vec<String> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for point in points {
        for text in point.warnings() {
            match found.iter_mut().find(|(other, _)| *other == text) {
                Some((_, labels)) => labels.push(point.label()),
                None => found.push((text, vec![point.label()])),
            }
        }
    }
    let shown = |(text, labels): (String, Vec<String>)| match labels.len() == points.len() {
        true => text,
        false => format!("with {}: {text}", labels.join(", ")),
    };
    found.into_iter().map(shown).collect()
}
