//! Jobs and reports for tests of the graph.

use crate::calls::Report;
use crate::mark::Mark;
use crate::slurm::{SlurmJob, SlurmState};

/// A job of user 1000 in Slurm's queue; job 2 ends its workflow.
pub fn job(id: u32, prior: &[u32], state: SlurmState, nodes: &[&str]) -> SlurmJob {
    let mark = Mark { end: id == 2, prior: prior.to_vec(), ..Mark::default() };
    SlurmJob {
        id,
        user: "ada".to_owned(),
        uid: 1000,
        gid: 100,
        mark,
        is_held: state == SlurmState::Pending && !prior.is_empty(),
        state,
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        node_count: 1,
        submitted: 10,
        starts: 0,
        ends: 15,
        working_directory: String::new(),
        has_own_nodes: false,
    }
}

/// The report of a node with 7 bytes in one file.
pub fn report(job: u32, node: &str, ended: bool) -> Report {
    Report { job, node: node.to_owned(), ended, bytes: 7, files: 1, ..Report::default() }
}
