//! All workflows: their jobs, the order of these, and what Slurm has to do next. No I/O and no clock.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::calls::{Persistent, Report};
use crate::mark::Mark;
use crate::placement::{Holdings, Pull};
use crate::slurm::{SlurmJob, SlurmState};
use forebay_workflow_script::NornsScript;

/// Seconds after which the records of an ended workflow are dropped.
const RECORDS_KEPT: u64 = 24 * 3600;
/// Seconds after a job's end after which reports from its nodes are not awaited.
const REPORTS_AWAITED: u64 = 300;

/// The state of a job in its workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// It has not started.
    Pending,
    /// It has nodes.
    Running,
    /// It has succeeded.
    Completed,
    /// It has failed, or was cancelled by its user.
    Failed,
    /// It was cancelled because a job before it failed.
    Removed,
    /// It vanished from Slurm's queue before its end was seen.
    Lost,
}

impl JobState {
    /// Whether it neither runs nor will run.
    pub fn has_ended(self) -> bool {
        !matches!(self, JobState::Pending | JobState::Running)
    }

    /// Whether it has ended otherwise than by success.
    pub fn has_failed(self) -> bool {
        self.has_ended() && self != JobState::Completed
    }
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Slurm's id.
    pub id: u32,
    /// Id of the workflow: that of its first job.
    pub workflow: u32,
    /// Name of its user.
    pub user: String,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its place in the workflow.
    pub mark: Mark,
    /// State.
    pub state: JobState,
    /// The reason of a failure or removal.
    pub reason: String,
    /// Nodes, in the order of ranks.
    pub nodes: Vec<String>,
    /// Number of nodes that it needs.
    pub node_count: u32,
    /// Time of submission, in seconds since 1970.
    pub submitted: u64,
    /// Time of its start, in seconds since 1970; 0 if unknown.
    pub starts: u64,
    /// Time of its end, or the latest end by its time limit, in seconds since 1970; 0 if unknown.
    pub ends: u64,
    /// The job's working directory.
    pub working_directory: String,
    /// The user has chosen nodes.
    pub has_own_nodes: bool,
    /// Time of its release, when the jobs before it had completed, in seconds since 1970.
    pub released: Option<u64>,
    /// Nodes that it waits for, because they hold its data.
    pub preferred: Vec<String>,
    /// Its directives, when it has nodes.
    pub script: Option<NornsScript>,
    /// Name of the directory of the workflow's data, when it has nodes.
    pub directory: Option<u32>,
    /// Transfers to each of its nodes, when it has nodes.
    pub pulls: BTreeMap<String, Vec<Pull>>,
    /// The last report from each node's prolog.
    pub prepared: BTreeMap<String, Report>,
    /// The last report from each node's epilog.
    pub finished: BTreeMap<String, Report>,
}

impl Job {
    /// Whether all nodes of a completed job have reported its end.
    fn is_complete(&self) -> bool {
        let done = |node| self.finished.get(node).is_some_and(|report| !report.under_way);
        self.state == JobState::Completed && self.nodes.iter().all(done)
    }

    /// Nodes that have not reported the job's end.
    fn silent_nodes(&self) -> Vec<&str> {
        let is_silent = |node: &&String| self.finished.get(*node).is_none_or(|r| r.under_way);
        self.nodes.iter().filter(is_silent).map(String::as_str).collect()
    }

    /// Data that a stage has not copied are still on the job's nodes.
    pub fn keeps_results(&self) -> bool {
        self.finished.values().any(|report| report.failure.is_some())
    }
}

/// A change that Slurm has to make. Changes are repeated until the queue shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Cancel a job, if it has not started.
    Cancel {
        /// The job.
        job: u32,
    },
    /// Release a held job.
    Release {
        /// The job.
        job: u32,
        /// The nodes that it has to wait for; none if it may run on any. `None`: its request for nodes
        /// stays as it is.
        nodes: Option<Vec<String>>,
    },
    /// Let a job run on any nodes.
    ForgetNodes {
        /// The job.
        job: u32,
    },
    /// Remove data on a node.
    Clean {
        /// The workflow.
        workflow: u32,
        /// Its user.
        uid: u32,
        /// The user's group.
        gid: u32,
        /// The node.
        node: String,
        /// The directories.
        directories: BTreeSet<u32>,
    },
}

/// All workflows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Graph {
    /// Jobs by id.
    pub jobs: BTreeMap<u32, Job>,
    /// Data on the nodes by workflow.
    pub holdings: BTreeMap<u32, Holdings>,
    /// Workflows whose data their user wants to be removed.
    pub unwanted: BTreeSet<u32>,
    /// Persistent data.
    pub persistent: Vec<Persistent>,
}

impl Graph {
    /// Takes in Slurm's queue at time `now`, in seconds since 1970, and returns what has to change. A
    /// job waits `wait` seconds for nodes that hold its data.
    pub fn observe(&mut self, now: u64, wait: u64, queue: &[SlurmJob]) -> Vec<Effect> {
        for seen in queue {
            let known = self.jobs.get(&seen.id);
            if known.is_none_or(|job| job.submitted != seen.submitted) {
                self.add(seen);
            }
            self.update(seen);
        }
        let present: BTreeSet<u32> = queue.iter().map(|job| job.id).collect();
        for job in self.jobs.values_mut() {
            if !job.state.has_ended() && !present.contains(&job.id) {
                job.state = JobState::Lost;
                job.reason = "it vanished from Slurm's queue before its end was seen".to_owned();
            }
        }
        let held: BTreeSet<u32> =
            queue.iter().filter(|job| job.is_held).map(|job| job.id).collect();
        let mut effects = Vec::new();
        // Jobs are submitted after the jobs that they name, so that one pass removes all.
        let pending: Vec<u32> = self.in_state(JobState::Pending);
        for id in pending {
            effects.extend(self.next_of_pending(id, held.contains(&id), (now, wait)));
        }
        // A removed job is cancelled until Slurm says so.
        let removed = queue.iter().filter(|seen| {
            seen.state == SlurmState::Pending
                && self.jobs.get(&seen.id).is_some_and(|job| job.state == JobState::Removed)
        });
        effects.extend(removed.map(|seen| Effect::Cancel { job: seen.id }));
        effects.extend(self.clean_ended());
        self.drop_old_records(now);
        effects
    }

    fn in_state(&self, state: JobState) -> Vec<u32> {
        self.jobs.values().filter(|job| job.state == state).map(|job| job.id).collect()
    }

    /// Adds a job; the workflows of the jobs before it become one.
    fn add(&mut self, seen: &SlurmJob) {
        let prior = seen.mark.prior.iter().filter_map(|id| self.jobs.get(id));
        let prior = prior.filter(|job| job.uid == seen.uid);
        let merged: BTreeSet<u32> = prior.map(|job| job.workflow).collect();
        let workflow = merged.first().copied().unwrap_or(seen.id);
        for job in self.jobs.values_mut().filter(|job| merged.contains(&job.workflow)) {
            job.workflow = workflow;
        }
        for joined in merged.iter().filter(|joined| **joined != workflow) {
            self.merge_holdings(*joined, workflow);
        }
        let job = Job {
            id: seen.id,
            workflow,
            user: seen.user.clone(),
            uid: seen.uid,
            gid: seen.gid,
            mark: seen.mark.clone(),
            state: JobState::Pending,
            reason: String::new(),
            nodes: Vec::new(),
            node_count: seen.node_count,
            submitted: seen.submitted,
            starts: 0,
            ends: 0,
            working_directory: seen.working_directory.clone(),
            has_own_nodes: seen.has_own_nodes,
            released: None,
            preferred: Vec::new(),
            script: None,
            directory: None,
            pulls: BTreeMap::new(),
            prepared: BTreeMap::new(),
            finished: BTreeMap::new(),
        };
        self.jobs.insert(seen.id, job);
    }

    fn update(&mut self, seen: &SlurmJob) {
        let was_running = self.jobs.get(&seen.id).is_some_and(|job| job.state == JobState::Running);
        if was_running && seen.state == SlurmState::Pending {
            self.forget_run(seen.id);
        }
        let Some(job) = self.jobs.get_mut(&seen.id) else { return };
        (job.starts, job.ends) = (seen.starts, seen.ends);
        job.node_count = seen.node_count;
        if !seen.nodes.is_empty() {
            job.nodes.clone_from(&seen.nodes);
        }
        // It stays removed, or failed before its start, whatever Slurm calls it.
        let is_prepared = job.prepared.values().all(|report| report.failure.is_none());
        if job.state == JobState::Removed || !is_prepared {
            return;
        }
        job.state = match &seen.state {
            SlurmState::Pending => JobState::Pending,
            SlurmState::Running => JobState::Running,
            SlurmState::Completed => JobState::Completed,
            SlurmState::Failed(word) => {
                job.reason = format!("it ended as {word}");
                JobState::Failed
            }
        };
    }

    /// Removes a job that has not started if a job before it has failed, and releases it if all have
    /// completed.
    fn next_of_pending(
        &mut self,
        id: u32,
        is_held: bool,
        (now, wait): (u64, u64),
    ) -> Option<Effect> {
        let job = self.jobs.get(&id)?;
        let mut all_complete = true;
        let mut reason = None;
        for prior in &job.mark.prior {
            match self.jobs.get(prior) {
                Some(before) if before.uid != job.uid => {
                    reason = Some(format!("job {prior} is another user's"));
                }
                Some(before) if before.state.has_failed() => {
                    reason = Some(format!("job {prior} before it failed"));
                }
                Some(before) if before.is_complete() => {}
                Some(before) => {
                    all_complete = false;
                    // A node that died after the job's end sends no report, and has its data.
                    let is_late = before.ends.saturating_add(REPORTS_AWAITED) < now;
                    if is_late && before.state == JobState::Completed {
                        reason = Some(format!(
                            "node {} has not reported the end of job {prior}",
                            before.silent_nodes().join(", ")
                        ));
                    }
                }
                None => reason = Some(format!("job {prior} is not known as a workflow job")),
            }
        }
        let job = self.jobs.get_mut(&id)?;
        if let Some(reason) = reason {
            // The queue shows it as pending, so that it is cancelled with the removed jobs.
            (job.state, job.reason) = (JobState::Removed, reason);
            return None;
        }
        if job.mark.prior.is_empty() || !all_complete {
            return None;
        }
        if let Some(released) = job.released.filter(|_| !is_held) {
            let is_over = !job.preferred.is_empty() && released.saturating_add(wait) <= now;
            return is_over.then_some(Effect::ForgetNodes { job: id });
        }
        if !is_held || job.mark.held {
            return None;
        }
        let job = self.jobs.get(&id)?;
        // Slurm may hold a job again whose preferred nodes it cannot give.
        let first = job.released.unwrap_or(now);
        let is_over = job.released.is_some() && first.saturating_add(wait) <= now;
        let nodes = match (job.has_own_nodes, is_over) {
            (true, _) => None,
            (false, true) => Some(Vec::new()),
            (false, false) => Some(self.preferred_nodes(job)).filter(|nodes| !nodes.is_empty()),
        };
        let job = self.jobs.get_mut(&id)?;
        (job.released, job.preferred) = (Some(first), nodes.clone().unwrap_or_default());
        Some(Effect::Release { job: id, nodes })
    }

    /// Drops workflows that ended long ago.
    fn drop_old_records(&mut self, now: u64) {
        let is_kept =
            |job: &Job| !job.state.has_ended() || job.ends.max(job.submitted) + RECORDS_KEPT > now;
        let kept: BTreeSet<u32> =
            self.jobs.values().filter(|job| is_kept(job)).map(|job| job.workflow).collect();
        let kept = |workflow: &u32| kept.contains(workflow) || self.holdings.contains_key(workflow);
        self.jobs.retain(|_, job| kept(&job.workflow));
    }
}

#[cfg(test)]
mod tests;
