use super::*;

fn job(id: u32, prior: &[u32], state: SlurmState) -> SlurmJob {
    let is_held = !prior.is_empty() && state == SlurmState::Pending;
    let mark = Mark { start: prior.is_empty(), prior: prior.to_vec(), ..Mark::default() };
    SlurmJob {
        id,
        user: "ada".to_owned(),
        uid: 1000,
        gid: 100,
        mark,
        state,
        is_held,
        nodes: Vec::new(),
        node_count: 1,
        submitted: 10,
        starts: 0,
        ends: 0,
        working_directory: "/home/ada".to_owned(),
        has_own_nodes: false,
    }
}

fn failed() -> SlurmState {
    SlurmState::Failed("FAILED".to_owned())
}

use SlurmState::{Completed, Pending, Running};

#[test]
fn job_is_released_when_all_jobs_before_it_have_completed() {
    let mut graph = Graph::default();
    let queue = |first, second| [job(1, &[], first), job(2, &[], second), job(3, &[1, 2], Pending)];
    assert_eq!(graph.observe(20, 60, &queue(Running, Pending)), []);
    assert_eq!(graph.observe(20, 60, &queue(Completed, Running)), []);
    let release = [Effect::Release { job: 3, nodes: None }];
    assert_eq!(graph.observe(20, 60, &queue(Completed, Completed)), release);
    // Slurm has not done it yet.
    assert_eq!(graph.observe(20, 60, &queue(Completed, Completed)), release);
    assert!(graph.jobs.values().all(|job| job.workflow == 1), "one workflow");
}

#[test]
fn failed_job_removes_all_jobs_after_it_but_not_running_ones() {
    let mut graph = Graph::default();
    let queue = |first| {
        [
            job(1, &[], first),
            job(2, &[], Running),
            job(3, &[1, 2], Pending),
            job(4, &[3], Pending),
            job(5, &[2], Pending),
        ]
    };
    assert_eq!(graph.observe(20, 60, &queue(Running)), []);
    let effects = graph.observe(20, 60, &queue(failed()));
    assert_eq!(effects, [Effect::Cancel { job: 3 }, Effect::Cancel { job: 4 }]);
    assert_eq!(graph.jobs[&3].reason, "job 1 before it failed");
    assert_eq!(graph.jobs[&2].state, JobState::Running);
    assert_eq!(graph.jobs[&5].state, JobState::Pending);
    // It is cancelled until the queue shows that.
    assert_eq!(graph.observe(21, 60, &queue(failed())).len(), 2);
    let mut done = queue(failed());
    (done[2].state, done[3].state) = (failed(), failed());
    assert_eq!(graph.observe(21, 60, &done), []);
    assert_eq!(graph.jobs[&4].state, JobState::Removed);
}

#[test]
fn job_after_another_users_or_unknown_job_is_removed() {
    let mut graph = Graph::default();
    let mut other = job(2, &[1], Pending);
    other.uid = 1001;
    let queue = [job(1, &[], Running), other, job(3, &[99], Pending)];
    let effects = graph.observe(20, 60, &queue);
    assert_eq!(effects, [Effect::Cancel { job: 2 }, Effect::Cancel { job: 3 }]);
    assert_eq!(graph.jobs[&2].workflow, 2, "it is no part of the other user's workflow");
}

#[test]
fn job_that_vanishes_before_its_end_was_seen_counts_as_failed() {
    let mut graph = Graph::default();
    assert_eq!(graph.observe(20, 60, &[job(1, &[], Running), job(2, &[1], Pending)]), []);
    let effects = graph.observe(20, 60, &[job(2, &[1], Pending)]);
    assert_eq!(effects, [Effect::Cancel { job: 2 }]);
    assert_eq!(graph.jobs[&1].state, JobState::Lost);
}

#[test]
fn reused_id_is_a_new_job_and_records_are_dropped_after_a_day() {
    let mut graph = Graph::default();
    let _ = graph.observe(20, 60, &[job(1, &[], Completed)]);
    let mut again = job(1, &[], Running);
    again.submitted = 30;
    let _ = graph.observe(40, 60, &[again]);
    assert_eq!(graph.jobs[&1].state, JobState::Running);
    let _ = graph.observe(40, 60, &[]);
    let _ = graph.observe(41 + RECORDS_KEPT, 60, &[]);
    assert!(graph.jobs.is_empty());
}

#[test]
fn job_that_its_user_holds_is_not_released() {
    let mut graph = Graph::default();
    let mut held = job(2, &[1], Pending);
    held.mark.held = true;
    assert_eq!(graph.observe(20, 60, &[job(1, &[], Completed), held]), []);
}
