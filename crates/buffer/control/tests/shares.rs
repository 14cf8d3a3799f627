//! Stages that the storage nodes of an instance move together.

use crate::harness;
use std::collections::BTreeSet;

use forebay_control::controller::{
    Answer, Cause, ControllerInput, Request, Settings, StageState, StageStatus,
};
use forebay_control::messages::{
    FailedFile, ShareDecision, SharePlan, ShareTally, StageFailure, StageProgress,
};
use forebay_control::storage_node::{MoverOutcome, StorageInput};
use forebay_policy::pool::NodeId;
use harness::{ADA, ControllerHarness, ROOT, SimStorage, one_file_each};

type Pool = ControllerHarness<SimStorage>;

const DIRECTORY: &str = "#DW jobdw capacity=25GiB type=scratch access_mode=striped\n\
     #DW stage_in type=directory source=/pfs/in destination=$DW_JOB_STRIPED/in\n";

fn completed() -> MoverOutcome {
    let progress = StageProgress {
        files: 1,
        files_total: 1,
        bytes: 10,
        bytes_total: 10,
        ..Default::default()
    };
    MoverOutcome::Completed(progress)
}

fn pool_with(settings: Settings) -> Pool {
    let mut pool = ControllerHarness::new(settings, SimStorage::new(3), 3);
    pool.peers.mover_outcome = Some(completed());
    // Nodes announce that they share stages.
    pool.advance_ms(1000);
    pool
}

/// All nodes may share a stage.
fn pool() -> Pool {
    pool_with(Settings::default())
}

fn stage_in(pool: &mut Pool) -> Result<Answer, forebay_control::controller::Failure> {
    pool.request(ADA, Request::StageIn { token: "7".into() })
}

fn stage(pool: &Pool) -> StageStatus {
    pool.controller.status().stages.into_iter().next().unwrap()
}

fn shares(pool: &Pool) -> Vec<(NodeId, Option<SharePlan>)> {
    pool.peers.started.iter().map(|(node, plan)| (*node, plan.share)).collect()
}

#[test]
fn all_nodes_move_a_directory_and_the_first_finishes_it() {
    let mut pool = pool();
    pool.setup(ADA, "7", DIRECTORY).unwrap();
    stage_in(&mut pool).unwrap();
    let shares = shares(&pool);
    let nodes: BTreeSet<NodeId> = shares.iter().map(|(node, _)| *node).collect();
    assert_eq!((shares.len(), nodes.len()), (3, 3), "{shares:?}");
    let plans: Vec<SharePlan> = shares.iter().map(|(_, share)| share.unwrap()).collect();
    let indices: BTreeSet<u32> = plans.iter().map(|plan| plan.index).collect();
    assert!(indices.into_iter().eq(0..3));
    assert!(plans.iter().all(|plan| (plan.count, plan.key) == (3, plans[0].key)));
    let first = shares.iter().find(|(_, share)| share.unwrap().index == 0).unwrap().0;
    let released = &pool.peers.released;
    assert_eq!(released[0].0, first, "{released:?}");
    assert!(released.iter().all(|(_, decision)| decision.complete));
    assert_eq!(released.iter().map(|(node, _)| *node).collect::<BTreeSet<_>>(), nodes);
    let stage = stage(&pool);
    assert_eq!(
        (stage.state, stage.progress.files, stage.progress.bytes),
        (StageState::Done, 3, 30)
    );
    assert_eq!(stage.nodes[0], first);
    let usage = pool.controller.job_usage(Some("7"))[0].staged_in;
    assert_eq!((usage.done, usage.files, usage.bytes), (1, 3, 30));
}

#[test]
fn stages_that_cannot_be_shared_have_one_mover() {
    let log = "#DW jobdw capacity=25GiB type=scratch access_mode=striped\n\
         #DW stage_out type=log source=$DW_JOB_STRIPED/logs destination=/pfs/out\n";
    let small = DIRECTORY.replace("25GiB", "1GiB");
    let one = Settings { max_nodes_per_stage: 1, max_nodes: 1, ..Settings::default() };
    for (script, settings) in [
        (log, Settings::default()),
        (DIRECTORY, Settings { max_nodes_per_stage: 1, ..Settings::default() }),
        (small.as_str(), one),
    ] {
        let mut pool = pool_with(settings);
        pool.setup(ADA, "7", script).unwrap();
        pool.request(ADA, Request::StageIn { token: "7".into() }).unwrap();
        pool.request(ADA, Request::StageOut { token: "7".into() }).unwrap();
        let shares = shares(&pool);
        assert_eq!(shares.len(), 1, "{script}");
        assert_eq!(shares[0].1, None, "{script}");
        assert_eq!(stage(&pool).state, StageState::Done);
    }
}

#[test]
fn limit_on_nodes_per_stage_holds() {
    let mut pool = pool_with(Settings { max_nodes_per_stage: 2, ..Settings::default() });
    pool.setup(ADA, "7", DIRECTORY).unwrap();
    stage_in(&mut pool).unwrap();
    assert_eq!(shares(&pool).len(), 2);
    assert_eq!(stage(&pool).nodes.len(), 2);
}

#[test]
fn nodes_of_an_earlier_release_get_no_share() {
    for old in [vec![0, 1, 2], vec![1]] {
        let mut pool = ControllerHarness::new(Settings::default(), SimStorage::new(3), 3);
        pool.peers.mover_outcome = Some(completed());
        for node in &old {
            pool.peers.nodes[*node as usize].share_no_stages();
        }
        pool.advance_ms(1000);
        pool.setup(ADA, "7", DIRECTORY).unwrap();
        stage_in(&mut pool).unwrap();
        for (node, share) in shares(&pool) {
            assert!(share.is_none() || !old.contains(&node.0), "{old:?}");
        }
        assert_eq!(stage(&pool).state, StageState::Done);
    }
}

/// A pool in which share 2 of the stage never gets far, and the other ones wait for it.
fn waiting_pool() -> (Pool, NodeId) {
    let mut pool = pool();
    pool.peers.tally = |share| one_file_each(share).filter(|_| share.index != 2);
    pool.setup(ADA, "7", DIRECTORY).unwrap();
    pool.send_request(ADA, Request::StageIn { token: "7".into() });
    pool.advance_ms(5000);
    assert_eq!(stage(&pool).state, StageState::Running);
    assert!(pool.peers.released.is_empty());
    let slow = shares(&pool).into_iter().find(|(_, share)| share.unwrap().index == 2).unwrap().0;
    (pool, slow)
}

/// An event of the mover of a node; the reports reach the controller.
fn mover_event(pool: &mut Pool, node: NodeId, input: StorageInput) {
    let mut inputs: Vec<ControllerInput> = Vec::new();
    pool.peers.step(node, input, &mut inputs);
    for input in inputs {
        pool.input(input);
    }
}

#[test]
fn failure_of_one_share_stops_the_others_and_all_are_tried_again() {
    let (mut pool, slow) = waiting_pool();
    let id = stage(&pool).id;
    let file = FailedFile { path: "/pfs/in/x".into(), errno: 5 };
    let failure = StageFailure::new("/pfs/in/x: broken".into(), [file], StageProgress::default());
    let ended = StorageInput::MoverEnded(id, 1, MoverOutcome::Failed(failure));
    mover_event(&mut pool, slow, ended);
    pool.advance_ms(3000);
    assert_eq!(stage(&pool).state, StageState::Failed("/pfs/in/x: broken".into()));
    let stopped: BTreeSet<NodeId> = pool.peers.stopped.iter().copied().collect();
    assert!(stopped.len() == 2 && !stopped.contains(&slow), "{stopped:?}");
    assert!(pool.peers.released.is_empty());
    let (before, nodes) = (shares(&pool), stage(&pool).nodes);
    pool.peers.tally = one_file_each;
    stage_in(&mut pool).unwrap();
    assert_eq!((stage(&pool).state, stage(&pool).nodes), (StageState::Done, nodes));
    let again = &pool.peers.started[before.len()..];
    assert_eq!(again.len(), 3);
    for (node, plan) in again {
        let earlier = before.iter().find(|(of, _)| of == node).unwrap().1.unwrap();
        let now = plan.share.unwrap();
        assert_eq!((now.index, plan.attempt), (earlier.index, 2));
        assert_ne!(now.key, earlier.key, "parts of the failed attempt do not count");
    }
}

#[test]
fn stage_fails_if_the_nodes_have_seen_different_sources() {
    let mut pool = pool();
    pool.peers.tally = |share| {
        one_file_each(share).map(|tally| ShareTally { seen: u64::from(share.index / 2), ..tally })
    };
    pool.setup(ADA, "7", DIRECTORY).unwrap();
    let failed = stage_in(&mut pool).unwrap_err();
    assert_eq!(failed.cause, Cause::Failed);
    assert!(failed.reason.contains("seen different files"), "{failed}");
    let incomplete = ShareDecision { complete: false, created: false };
    assert_eq!(pool.peers.released.len(), 3);
    assert!(pool.peers.released.iter().all(|(_, decision)| *decision == incomplete));
}

#[test]
fn restarted_controller_continues_with_the_same_shares() {
    let (mut pool, slow) = waiting_pool();
    let (id, nodes, started) = (stage(&pool).id, stage(&pool).nodes, pool.peers.started.len());
    pool.restart();
    pool.advance_ms(3000);
    assert_eq!((stage(&pool).state, stage(&pool).nodes), (StageState::Running, nodes));
    assert_eq!(pool.peers.started.len(), started);
    let tally = ShareTally {
        created: true,
        ..one_file_each(SharePlan { index: 2, count: 3, key: 0 }).unwrap()
    };
    mover_event(&mut pool, slow, StorageInput::ShareCopied(id, 1, tally));
    pool.restart();
    pool.advance_ms(5000);
    assert_eq!(stage(&pool).state, StageState::Done);
    assert!(pool.peers.released.iter().all(|(_, decision)| decision.created));
}

#[test]
fn cancelled_stage_has_no_mover_left() {
    let (mut pool, slow) = waiting_pool();
    let id = stage(&pool).id;
    pool.request(ADA, Request::CancelStage { stage: id }).unwrap();
    assert_eq!(stage(&pool).state, StageState::Cancelled);
    let stopped: BTreeSet<NodeId> = pool.peers.stopped.iter().copied().collect();
    assert!(stopped.len() == 3 && stopped.contains(&slow), "{stopped:?}");
    assert!(pool.peers.released.is_empty());
}

#[test]
fn stage_of_a_node_that_is_given_up_fails() {
    let (mut pool, slow) = waiting_pool();
    pool.peers.silent.insert(slow.0);
    pool.advance_ms(30_000);
    let forget = Request::ForgetNode { node: slow, allow_data_loss: true };
    pool.request(ROOT, forget).unwrap();
    pool.advance_ms(3000);
    let StageState::Failed(reason) = stage(&pool).state else { panic!("{:?}", stage(&pool)) };
    assert!(reason.contains("is lost for good"), "{reason}");
}

#[test]
fn shared_stages_leave_movers_for_others() {
    let mut pool = pool_with(Settings { max_stages_per_node: 4, ..Settings::default() });
    pool.peers.mover_outcome = None;
    for job in 0..8 {
        let token = format!("{job}");
        pool.setup(ADA, &token, &DIRECTORY.replace("25GiB", "3GiB")).unwrap();
        pool.send_request(ADA, Request::StageIn { token });
    }
    pool.advance_ms(2000);
    let status = pool.controller.status();
    let others = status.stages.iter().flat_map(|stage| stage.nodes.iter().skip(1));
    let others: Vec<NodeId> = others.copied().collect();
    assert!(others.len() >= 3, "{others:?}");
    for node in 0..3 {
        let of_node = others.iter().filter(|other| other.0 == node).count();
        assert!(of_node <= 2, "half of its movers are for stages that begin on it: {others:?}");
    }
}
