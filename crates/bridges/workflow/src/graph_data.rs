//! The part of the graph that concerns data: plans for nodes, their reports, and removal.

use std::collections::{BTreeMap, BTreeSet};

use forebay_workflow_script::{Location, NornsScript, PersistAction, Principal};

use crate::calls::{Persistent, Plan, Report};
use crate::graph::{Effect, Graph, Job, JobState};
use crate::placement::{Holding, Holdings, Part, plan_pulls, preferred_nodes};

impl Graph {
    /// Everything that the jobs before a job left, directly or indirectly.
    fn needed_parts(&self, job: &Job) -> BTreeSet<Part> {
        let mut parts = BTreeSet::new();
        let mut waiting = job.mark.prior.clone();
        let mut seen = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            let Some(before) = self.jobs.get(&id).filter(|_| seen.insert(id)) else { continue };
            parts.extend((0u32..).zip(&before.nodes).map(|(rank, _)| (id, rank)));
            waiting.extend(&before.mark.prior);
        }
        // A node without data left nothing.
        let held: BTreeSet<Part> = self
            .holdings
            .get(&job.workflow)
            .into_iter()
            .flat_map(BTreeMap::values)
            .filter(|holding| holding.files > 0)
            .flat_map(|holding| holding.parts.iter().copied())
            .collect();
        parts.intersection(&held).copied().collect()
    }

    /// The nodes that hold most of what a job needs.
    pub(crate) fn preferred_nodes(&self, job: &Job) -> Vec<String> {
        let Some(holdings) = self.holdings.get(&job.workflow) else { return Vec::new() };
        let count = usize::try_from(job.node_count).unwrap_or(usize::MAX);
        preferred_nodes(holdings, &self.needed_parts(job), count)
    }

    /// The data of a workflow become those of another.
    pub(crate) fn merge_holdings(&mut self, from: u32, to: u32) {
        let Some(joined) = self.holdings.remove(&from) else { return };
        let here = self.holdings.entry(to).or_default();
        for (node, holding) in joined {
            let into = here.entry(node).or_default();
            into.directories.extend(holding.directories);
            into.parts.extend(holding.parts);
            into.bytes += holding.bytes;
            into.files += holding.files;
        }
    }

    /// The needs of a job on a node. `script` are its directives.
    ///
    /// # Errors
    /// The job is not known, or does not have the node.
    pub fn plan(&mut self, id: u32, node: &str, script: &NornsScript) -> Result<Plan, String> {
        let job = self.jobs.get(&id).ok_or_else(|| format!("job {id} is no workflow job"))?;
        let rank = job.nodes.iter().position(|name| name == node);
        let rank = rank.ok_or_else(|| format!("job {id} does not run on node {node}"))?;
        let pulls = match job.directory {
            Some(_) => job.pulls.clone(),
            None => {
                let nothing = Holdings::new();
                let holdings = self.holdings.get(&job.workflow).unwrap_or(&nothing);
                plan_pulls(holdings, &self.needed_parts(job), &job.nodes)
            }
        };
        let directory = job.directory.unwrap_or(job.workflow);
        let held = self.holdings.get(&job.workflow).and_then(|holdings| holdings.get(node));
        let mut merge = held.map(|held| held.directories.clone()).unwrap_or_default();
        merge.remove(&directory);
        let done = |node| {
            job.prepared
                .get(node)
                .is_some_and(|report| !report.under_way && report.failure.is_none())
        };
        let plan = Plan {
            uid: job.uid,
            gid: job.gid,
            directory,
            merge,
            rank: u32::try_from(rank).unwrap_or(u32::MAX),
            node_count: u32::try_from(job.nodes.len()).unwrap_or(u32::MAX),
            working_directory: job.working_directory.clone(),
            script: script.clone(),
            // The controller adds the addresses.
            pulls: pulls
                .get(node)
                .into_iter()
                .flatten()
                .map(|p| (p.clone(), String::new()))
                .collect(),
            was_prepared: job.nodes.iter().all(done),
        };
        let job = self.jobs.get_mut(&id).ok_or("the job is there")?;
        (job.directory, job.pulls, job.script) = (Some(directory), pulls, Some(script.clone()));
        Ok(plan)
    }

    /// Takes in what was done on a node. Returns whether the job has to be cancelled.
    ///
    /// # Errors
    /// The job is not known.
    pub fn report(&mut self, report: Report) -> Result<bool, String> {
        let id = report.job;
        let job = self.jobs.get_mut(&id).ok_or_else(|| format!("job {id} is no workflow job"))?;
        let node = report.node.clone();
        let reports = if report.ended { &mut job.finished } else { &mut job.prepared };
        reports.insert(node.clone(), report.clone());
        if report.under_way {
            return Ok(false);
        }
        let (workflow, directory) = (job.workflow, job.directory.unwrap_or(job.workflow));
        let rank = job.nodes.iter().position(|name| *name == node);
        let rank = rank.and_then(|rank| u32::try_from(rank).ok());
        let failed = !report.ended && report.failure.is_some();
        if failed {
            job.state = JobState::Failed;
            job.reason = format!("{node}: {}", report.failure.clone().unwrap_or_default());
        }
        let moved = job.pulls.get(&node).cloned().unwrap_or_default();
        let (user, uid) = (job.user.clone(), job.uid);
        let holdings = self.holdings.entry(workflow).or_default();
        let arrived: BTreeSet<Part> = match failed {
            true => BTreeSet::new(),
            false => moved.iter().flat_map(|pull| pull.parts.iter().copied()).collect(),
        };
        let held = holdings.entry(node.clone()).or_default();
        held.directories.retain(|from| !report.merged.contains(from));
        held.directories.insert(directory);
        held.parts.extend(arrived);
        if report.ended {
            held.parts.extend(rank.map(|rank| (id, rank)));
        }
        (held.bytes, held.files) = (report.bytes, report.files);
        for location in &report.stored {
            self.add_persistent(&user, uid, location, &node);
        }
        for location in &report.deleted {
            self.remove_persistent(uid, location, &node);
        }
        Ok(failed)
    }

    fn add_persistent(&mut self, user: &str, uid: u32, location: &Location, node: &str) {
        let known =
            self.persistent.iter_mut().find(|data| data.uid == uid && data.location == *location);
        match known {
            Some(data) => {
                data.nodes.insert(node.to_owned());
            }
            None => self.persistent.push(Persistent {
                user: user.to_owned(),
                uid,
                location: location.clone(),
                nodes: BTreeSet::from([node.to_owned()]),
                readers: BTreeSet::new(),
            }),
        }
    }

    /// Records that a node no longer has persistent data.
    pub fn remove_persistent(&mut self, uid: u32, location: &Location, node: &str) {
        for data in &mut self.persistent {
            if data.uid == uid && data.location == *location {
                data.nodes.remove(node);
            }
        }
        self.persistent.retain(|data| !data.nodes.is_empty());
    }

    /// Persistent data of a user.
    ///
    /// # Errors
    /// There are none at the location; the message lists those there are.
    pub fn find_persistent(&self, uid: u32, location: &Location) -> Result<&Persistent, String> {
        let mine = || self.persistent.iter().filter(|data| data.uid == uid);
        mine().find(|data| data.location == *location).ok_or_else(|| {
            let names: Vec<String> = mine().map(|data| data.location.to_string()).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("you have no persistent data at {location}; there are: {names}")
        })
    }

    /// Records who may read persistent data.
    pub fn set_reader(
        &mut self,
        uid: u32,
        location: &Location,
        action: PersistAction,
        principal: &Principal,
    ) {
        for data in &mut self.persistent {
            if data.uid != uid || data.location != *location {
                continue;
            }
            match action {
                PersistAction::Share => {
                    data.readers.insert(principal.clone());
                }
                PersistAction::Unshare => {
                    data.readers.remove(principal);
                }
                PersistAction::Store | PersistAction::Delete => {}
            }
        }
    }

    /// Marks the data of a workflow as no longer wanted.
    ///
    /// # Errors
    /// The workflow is not the user's, or a job of it has not ended.
    pub fn remove(&mut self, workflow: u32, uid: u32, is_root: bool) -> Result<(), String> {
        let jobs = || self.jobs.values().filter(|job| job.workflow == workflow);
        if !jobs().any(|job| is_root || job.uid == uid) {
            return Err(format!("you have no workflow {workflow}"));
        }
        if let Some(job) = jobs().find(|job| !job.state.has_ended()) {
            return Err(format!(
                "job {} of workflow {workflow} has not ended: wait for it, or cancel it",
                job.id
            ));
        }
        self.unwanted.insert(workflow);
        Ok(())
    }

    /// Data that are to be removed: those of workflows whose last job has completed and was staged
    /// out, and those that their user does not want.
    pub(crate) fn clean_ended(&self) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (workflow, holdings) in &self.holdings {
            let jobs = || self.jobs.values().filter(|job| job.workflow == *workflow);
            let has_ended = jobs().all(|job| job.state == JobState::Completed)
                && jobs().any(|job| job.mark.end)
                && jobs().all(|job| {
                    job.nodes
                        .iter()
                        .all(|node| job.finished.get(node).is_some_and(|report| !report.under_way))
                })
                && !jobs().any(Job::keeps_results);
            let Some(owner) = jobs().next() else { continue };
            if !has_ended && !self.unwanted.contains(workflow) {
                continue;
            }
            effects.extend(holdings.iter().map(|(node, holding)| Effect::Clean {
                workflow: *workflow,
                uid: owner.uid,
                gid: owner.gid,
                node: node.clone(),
                directories: holding.directories.clone(),
            }));
        }
        effects
    }

    /// Records that a node's data of a workflow were removed.
    pub fn cleaned(&mut self, workflow: u32, node: &str) {
        if let Some(holdings) = self.holdings.get_mut(&workflow) {
            holdings.remove(node);
            if holdings.is_empty() {
                self.holdings.remove(&workflow);
                self.unwanted.remove(&workflow);
            }
        }
    }

    /// Records that a job may run on any nodes.
    pub fn forget_nodes(&mut self, id: u32) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.preferred.clear();
        }
    }

    /// The known data of a workflow on a node.
    pub fn holding(&self, workflow: u32, node: &str) -> Option<&Holding> {
        self.holdings.get(&workflow)?.get(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{job, report};
    use crate::slurm::SlurmState;

    use SlurmState::{Completed, Pending, Running};

    /// Job 1 has run on n1 and left data; job 2 follows.
    fn after_producer() -> Graph {
        let mut graph = Graph::default();
        let script = NornsScript::default();
        let _ = graph.observe(20, 60, &[job(1, &[], Running, &["n1"]), job(2, &[1], Pending, &[])]);
        graph.plan(1, "n1", &script).unwrap();
        graph.report(report(1, "n1", false)).unwrap();
        graph.report(report(1, "n1", true)).unwrap();
        graph
    }

    #[test]
    fn job_waits_for_the_nodes_of_its_data_for_the_configured_time() {
        let mut graph = after_producer();
        let mut queue = [job(1, &[], Completed, &["n1"]), job(2, &[1], Pending, &[])];
        let nodes = Some(vec!["n1".to_owned()]);
        assert_eq!(graph.observe(20, 60, &queue), [Effect::Release { job: 2, nodes }]);
        queue[1].is_held = false;
        assert_eq!(graph.observe(79, 60, &queue), []);
        assert_eq!(graph.observe(80, 60, &queue), [Effect::ForgetNodes { job: 2 }]);
        graph.forget_nodes(2);
        assert_eq!(graph.observe(81, 60, &queue), []);
        // It runs elsewhere: its data move.
        queue[1] = job(2, &[1], Running, &["n2"]);
        assert_eq!(graph.observe(82, 60, &queue), []);
        let plan = graph.plan(2, "n2", &NornsScript::default()).unwrap();
        assert_eq!((plan.directory, plan.pulls.len()), (1, 1));
        assert_eq!(plan.pulls[0].0.from, "n1");
    }

    #[test]
    fn request_for_nodes_stays_and_a_preference_that_slurm_cannot_fulfil_ends() {
        let mut graph = Graph::default();
        let mut own = job(2, &[1], Pending, &[]);
        own.has_own_nodes = true;
        let queue = [job(1, &[], Completed, &["n1"]), own, job(3, &[1], Pending, &[])];
        let _ = graph.observe(20, 60, &queue[..1]);
        graph.report(report(1, "n1", true)).unwrap();
        let nodes = Some(vec!["n1".to_owned()]);
        let own = Effect::Release { job: 2, nodes: None };
        assert_eq!(graph.observe(21, 60, &queue), [own.clone(), Effect::Release { job: 3, nodes }]);
        // Slurm holds both again, and a minute passes.
        let any = Effect::Release { job: 3, nodes: Some(Vec::new()) };
        assert_eq!(graph.observe(81, 60, &queue), [own, any]);
    }

    #[test]
    fn job_is_released_only_when_the_epilogs_before_it_have_reported() {
        let mut graph = Graph::default();
        let queue = [job(1, &[], Completed, &["n1"]), job(2, &[1], Pending, &[])];
        assert_eq!(graph.observe(20, 60, &queue), [], "the epilog stages out");
        graph.report(report(1, "n1", true)).unwrap();
        assert_eq!(graph.observe(21, 60, &queue).len(), 1);
    }

    #[test]
    fn directories_of_a_joined_workflow_stay_known_until_they_are_merged() {
        let mut graph = Graph::default();
        let script = NornsScript::default();
        let running = [job(1, &[], Completed, &["n1"]), job(3, &[], Running, &["n1"])];
        let _ = graph.observe(20, 60, &running);
        for (id, ended) in [(1, false), (1, true), (3, false)] {
            graph.plan(id, "n1", &script).unwrap();
            graph.report(report(id, "n1", ended)).unwrap();
        }
        let mut queue = running.to_vec();
        queue.push(job(4, &[1, 3], Pending, &[]));
        let _ = graph.observe(21, 60, &queue);
        let workflow = graph.jobs[&4].workflow;
        // Job 3 began before the workflows were joined.
        graph.report(report(3, "n1", true)).unwrap();
        assert_eq!(graph.holding(workflow, "n1").unwrap().directories, BTreeSet::from([1, 3]));
        queue[1] = job(3, &[], Completed, &["n1"]);
        queue[2] = job(4, &[1, 3], Running, &["n1"]);
        let _ = graph.observe(22, 60, &queue);
        let plan = graph.plan(4, "n1", &script).unwrap();
        assert_eq!(plan.merge.len(), 1, "{plan:?}");
        let merged = Report { merged: plan.merge.clone(), ..report(4, "n1", false) };
        graph.report(merged).unwrap();
        let held = graph.holding(workflow, "n1").unwrap();
        assert_eq!(held.directories, BTreeSet::from([plan.directory]));
    }

    #[test]
    fn job_is_removed_if_the_end_of_one_before_it_is_never_reported() {
        let mut graph = Graph::default();
        let queue = [job(1, &[], Completed, &["n1"]), job(2, &[1], Pending, &[])];
        assert_eq!(graph.observe(315, 60, &queue), []);
        let _ = graph.observe(316, 60, &queue);
        let removed = &graph.jobs[&2];
        assert_eq!(removed.state, JobState::Removed);
        assert!(removed.reason.contains("n1 has not reported"), "{}", removed.reason);
    }

    #[test]
    fn data_are_removed_after_the_last_job_unless_a_stage_out_failed() {
        let mut graph = after_producer();
        let queue = [job(1, &[], Completed, &["n1"]), job(2, &[1], Completed, &["n1"])];
        let mut failed = report(2, "n1", true);
        failed.failure = Some("no space".to_owned());
        let _ = graph.observe(20, 60, &queue);
        graph.report(failed).unwrap();
        assert_eq!(graph.observe(30, 60, &queue), [], "the results are kept");
        assert!(graph.remove(1, 1001, false).is_err(), "it is another user's");
        graph.remove(1, 1000, false).unwrap();
        let effects = graph.observe(31, 60, &queue);
        assert!(matches!(&effects[..], [Effect::Clean { workflow: 1, node, .. }] if node == "n1"));
        graph.cleaned(1, "n1");
        assert!(graph.holdings.is_empty() && graph.observe(32, 60, &queue).is_empty());

        let mut graph = after_producer();
        let _ = graph.observe(20, 60, &queue);
        assert_eq!(graph.observe(21, 60, &queue), [], "the last job's epilog has not reported");
        graph.report(report(2, "n1", true)).unwrap();
        assert_eq!(graph.observe(30, 60, &queue).len(), 1);
    }
}
