//! What really happened, as someone sees it who sees everything, and what must never happen.

use std::collections::{BTreeMap, BTreeSet};

use forebay_service::protocol::{FragmentId, InstanceId, StageId};

#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub jobs: u64,
    pub jobs_staged_out: u64,
    pub refused_for_good: u64,
    pub refused_full: u64,
    pub refused_kept: u64,
    pub hurried: u64,
    pub persistent_uses: u64,
    pub failed_copies: u64,
    pub controller_crashes: u64,
    pub node_crashes: u64,
    pub host_crashes: u64,
    pub disks_lost: u64,
    pub messages_lost: u64,
    pub messages_repeated: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.jobs += other.jobs;
        self.jobs_staged_out += other.jobs_staged_out;
        self.refused_for_good += other.refused_for_good;
        self.refused_full += other.refused_full;
        self.refused_kept += other.refused_kept;
        self.hurried += other.hurried;
        self.persistent_uses += other.persistent_uses;
        self.failed_copies += other.failed_copies;
        self.controller_crashes += other.controller_crashes;
        self.node_crashes += other.node_crashes;
        self.host_crashes += other.host_crashes;
        self.disks_lost += other.disks_lost;
        self.messages_lost += other.messages_lost;
        self.messages_repeated += other.messages_repeated;
    }
}

/// A job's data.
#[derive(Clone, Debug, Default)]
pub struct JobTruth {
    /// How often the job ran.
    pub runs: u64,
    /// Whether a user said that results may be destroyed.
    pub hurried: bool,
    /// For each stage-out's line the run whose results it has saved.
    pub saved: BTreeMap<u32, u64>,
    /// Lines of stage-outs.
    pub outs: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub counts: Counts,
    /// By token.
    pub jobs: BTreeMap<String, JobTruth>,
    /// Tokens of instances.
    pub labels: BTreeMap<InstanceId, String>,
    /// Tokens and lines of stages.
    pub stages: BTreeMap<StageId, (String, u32)>,
    /// Fragments that could be used: one that was replaced before never held anything.
    pub used: BTreeSet<FragmentId>,
    /// Instances of which a disk was lost.
    pub damaged: BTreeSet<InstanceId>,
}

impl Truth {
    /// A part of an instance is destroyed: its results must be safe, or given up.
    pub fn destroyed(&self, fragment: FragmentId, instance: InstanceId) {
        if !self.used.contains(&fragment) {
            return;
        }
        let Some(job) = self
            .labels
            .get(&instance)
            .and_then(|token| self.jobs.get(token))
        else {
            return;
        };
        if job.runs == 0 || job.hurried || self.damaged.contains(&instance) {
            return;
        }
        for line in &job.outs {
            let saved = job.saved.get(line).copied();
            assert_eq!(
                saved,
                Some(job.runs),
                "results of {:?} destroyed before stage-out",
                self.labels[&instance]
            );
        }
    }

    /// A copy out of an instance is whole.
    pub fn saved(&mut self, stage: StageId) {
        let Some((token, line)) = self.stages.get(&stage).cloned() else {
            return;
        };
        if let Some(job) = self.jobs.get_mut(&token) {
            job.saved.insert(line, job.runs);
        }
    }

    /// A copy into an instance begins or ends: its job must not have run.
    pub fn writes_input(&self, stage: StageId) {
        let Some((token, line)) = self.stages.get(&stage) else {
            return;
        };
        let runs = self.jobs.get(token).map_or(0, |job| job.runs);
        assert_eq!(
            runs, 0,
            "input of {token} (line {line}) staged over what it wrote"
        );
    }
}
