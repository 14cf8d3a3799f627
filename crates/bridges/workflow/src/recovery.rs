//! Second attempts: jobs that Slurm has requeued, and stages out that have failed.

use std::collections::BTreeSet;

use crate::calls::Report;
use crate::graph::{Graph, Job};

/// A stage-out that is to be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageOut {
    /// The job.
    pub job: u32,
    /// The node that has its data.
    pub node: String,
}

impl Graph {
    /// Forgets the first run of a job that Slurm has requeued: the next one gets other nodes, and is
    /// prepared anew. What the first run left on its nodes does not count as the job's data any more.
    pub(crate) fn forget_run(&mut self, id: u32) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.nodes.clear();
        job.pulls.clear();
        job.prepared.clear();
        job.finished.clear();
        job.directory = None;
        let workflow = job.workflow;
        for holding in self.holdings.get_mut(&workflow).into_iter().flat_map(|h| h.values_mut()) {
            holding.parts.retain(|(left_by, _)| *left_by != id);
        }
    }

    /// The failed stages out of a workflow become such that are under way. So do those under way of
    /// jobs that have ended: their node may have been restarted, and knows if it still copies.
    ///
    /// # Errors
    /// The workflow is not the user's, or no stage-out of it has failed.
    pub fn repeat_stage_outs(
        &mut self,
        workflow: u32,
        uid: u32,
        is_root: bool,
    ) -> Result<Vec<StageOut>, String> {
        let is_own = |of: u32, owner: u32| of == workflow && (is_root || owner == uid);
        if !self.jobs.values().any(|job| is_own(job.workflow, job.uid)) {
            return Err(format!("you have no workflow {workflow}"));
        }
        let mut repeated = Vec::new();
        for job in self.jobs.values_mut().filter(|job| is_own(job.workflow, job.uid)) {
            let (id, has_ended) = (job.id, job.state.has_ended());
            for (node, report) in &mut job.finished {
                if report.failure.is_some() || (has_ended && report.under_way) {
                    (report.failure, report.under_way) = (None, true);
                    repeated.push(StageOut { job: id, node: node.clone() });
                }
            }
        }
        match repeated.is_empty() {
            true => Err(format!("no stage-out of workflow {workflow} has failed")),
            false => Ok(repeated),
        }
    }

    /// A stage-out could not be started.
    pub fn stage_out_not_started(&mut self, stage_out: &StageOut, reason: &str) {
        let report = self.jobs.get_mut(&stage_out.job);
        if let Some(report) = report.and_then(|job| job.finished.get_mut(&stage_out.node)) {
            (report.failure, report.under_way) = (Some(reason.to_owned()), false);
        }
    }
}

/// Reports of stages out of a workflow's jobs: nodes that still copy, and failures.
pub fn outcome<'a>(jobs: impl Iterator<Item = &'a Job>) -> (BTreeSet<&'a str>, Vec<&'a Report>) {
    let reports: Vec<&Report> = jobs.flat_map(|job| job.finished.values()).collect();
    let copying = reports.iter().filter(|report| report.under_way);
    let copying = copying.map(|report| report.node.as_str()).collect();
    (copying, reports.into_iter().filter(|report| report.failure.is_some()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{job, report};
    use crate::slurm::SlurmState::{Completed, Pending, Running};
    use forebay_workflow_script::NornsScript;

    #[test]
    fn requeued_job_is_prepared_again_and_the_data_of_its_first_run_do_not_count() {
        let mut graph = Graph::default();
        let queue = |state, nodes: &[&str]| [job(1, &[], state, nodes)];
        let _ = graph.observe(20, 60, &queue(Running, &["n1"]));
        let script = NornsScript::default();
        graph.plan(1, "n1", &script).unwrap();
        graph.report(report(1, "n1", false)).unwrap();
        graph.report(report(1, "n1", true)).unwrap();
        let _ = graph.observe(21, 60, &queue(Pending, &[]));
        assert!(graph.jobs[&1].prepared.is_empty() && graph.jobs[&1].finished.is_empty());
        let _ = graph.observe(22, 60, &queue(Running, &["n2"]));
        let plan = graph.plan(1, "n2", &script).unwrap();
        assert!(!plan.was_prepared, "its stages in have not run: {plan:?}");
        graph.report(report(1, "n2", false)).unwrap();
        graph.report(report(1, "n2", true)).unwrap();
        let mut queue = queue(Completed, &["n2"]).to_vec();
        queue.push(job(2, &[1], Pending, &[]));
        let _ = graph.observe(23, 60, &queue);
        assert_eq!(graph.jobs[&2].preferred, ["n2"], "n1 has nothing that counts");
    }

    #[test]
    fn failed_stage_out_is_repeated_for_its_owner_only() {
        let mut graph = Graph::default();
        let _ = graph.observe(20, 60, &[job(1, &[], Completed, &["n1", "n2"])]);
        graph.report(report(1, "n1", true)).unwrap();
        let failed = Report { failure: Some("no space".to_owned()), ..report(1, "n2", true) };
        graph.report(failed).unwrap();
        assert!(graph.repeat_stage_outs(1, 1001, false).is_err(), "it is another user's");
        let repeated = graph.repeat_stage_outs(1, 1000, false).unwrap();
        let expected = StageOut { job: 1, node: "n2".to_owned() };
        assert_eq!(repeated, std::slice::from_ref(&expected));
        assert_eq!(outcome(graph.jobs.values()).0, BTreeSet::from(["n2"]));
        graph.stage_out_not_started(&expected, "n2 does not answer");
        assert_eq!(outcome(graph.jobs.values()).1.len(), 1);
        graph.repeat_stage_outs(1, 0, true).unwrap();
        graph.report(report(1, "n2", true)).unwrap();
        assert!(graph.repeat_stage_outs(1, 0, true).is_err(), "all have succeeded");
    }
}
