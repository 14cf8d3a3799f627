//! A storage node is given up: refusals, losses, and operation without it.

use crate::harness;
use forebay_control::controller::{
    Answer, Cause, ControllerEffect, Outcome, Request, Settings, StageState,
};
use forebay_control::messages::{Owner, StorageCommand, UnixMillis};
use forebay_policy::pool::NodeId;
use harness::{ADA, ControllerHarness, ROOT, SimStorage, heartbeat_due};

type TestPool = ControllerHarness<SimStorage>;

/// Longer than the time after which a silent node is offline.
const OFFLINE_MS: u64 = 11_000;
const JOB: &str = "#DW jobdw capacity=6GiB type=scratch access_mode=striped\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/b destination=/pfs/b\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/c destination=/pfs/c\n";

/// Three nodes whose movers never end.
fn test_pool() -> TestPool {
    ControllerHarness::new(Settings::default(), SimStorage::new(3), 3)
}

fn forget(pool: &mut TestPool, caller: Owner, node: u32, lost: bool) -> Outcome {
    let node = NodeId(node);
    pool.request(caller, Request::ForgetNode { node, allow_data_loss: lost })
}

fn lost(outcome: Outcome) -> Vec<String> {
    match outcome.unwrap() {
        Answer::NodeForgotten(losses) => losses.into_iter().map(|loss| loss.label).collect(),
        other => panic!("{other:?}"),
    }
}

fn quantity(pool: &TestPool) -> (u64, u64) {
    let status = &pool.controller.status().pools[0];
    (status.quantity, status.free)
}

#[test]
fn forget_requires_operator_and_offline_node() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    let refused = |outcome: Outcome| {
        let failure = outcome.unwrap_err();
        (failure.cause, failure.reason)
    };
    assert_eq!(refused(forget(&mut pool, ADA, 1, true)).0, Cause::Denied);
    assert_eq!(refused(forget(&mut pool, ROOT, 9, true)).0, Cause::NotFound);
    let (cause, reason) = refused(forget(&mut pool, ROOT, 1, true));
    assert_eq!(cause, Cause::Busy);
    assert!(reason.contains("`bb1` is not offline"), "{reason}");
    assert!(reason.contains("forebay drain bb1"), "{reason}");
    pool.peers.silent.insert(1);
    pool.advance_ms(OFFLINE_MS);
    // The losses are named, and nothing was changed.
    let (cause, reason) = refused(forget(&mut pool, ROOT, 1, false));
    assert_eq!(cause, Cause::Busy);
    let named = "job `7` of user 1000, 3 stage-out(s) not done";
    assert!(reason.contains(named), "{reason}");
    assert!(reason.contains("forebay forget bb1 --lost"), "{reason}");
    let status = pool.controller.status();
    assert!(status.instances[0].intact && !status.nodes[1].forgotten);
    // A restarted controller does not know yet which nodes are alive.
    pool.restart();
    let (_, reason) = refused(forget(&mut pool, ROOT, 1, true));
    assert!(reason.contains("has just started"), "{reason}");
    pool.advance_ms(OFFLINE_MS);
    assert_eq!(lost(forget(&mut pool, ROOT, 1, true)), ["7"]);
}

#[test]
fn status_marks_forgotten_nodes_until_they_report_again() {
    let mut pool = test_pool();
    let forgotten_nodes = |pool: &TestPool| {
        let nodes = pool.controller.status().nodes;
        [0, 1, 2].map(|id| nodes[id].forgotten)
    };
    assert_eq!(forgotten_nodes(&pool), [false; 3]);
    pool.peers.silent.insert(1);
    pool.advance_ms(OFFLINE_MS);
    assert_eq!(forgotten_nodes(&pool), [false; 3], "offline is not forgotten");
    lost(forget(&mut pool, ROOT, 1, false));
    assert_eq!(forgotten_nodes(&pool), [false, true, false]);
    // The node returns without fragments.
    pool.peers.silent.clear();
    pool.advance_ms(OFFLINE_MS);
    assert_eq!(forgotten_nodes(&pool), [false; 3]);
}

#[test]
fn operations_that_wait_for_forgotten_node_continue() {
    let unshared = Settings { max_nodes_per_stage: 1, ..Settings::default() };
    let mut pool = ControllerHarness::new(unshared, SimStorage::new(3), 3);
    pool.setup(ADA, "7", JOB).unwrap();
    pool.setup(ADA, "8", JOB).unwrap();
    let stages = |pool: &TestPool, state: fn(&StageState) -> bool| {
        let stages = pool.controller.status().stages.into_iter();
        stages.filter(|s| s.token == "7" && state(&s.state)).count()
    };
    // Each node moves one stage; none of them ends.
    let token = "7".to_owned();
    pool.send_request(ADA, Request::StageOut { token });
    pool.advance_ms(2000);
    assert_eq!(stages(&pool, |s| *s == StageState::Running), 3);
    pool.peers.silent.insert(1);
    pool.advance_ms(OFFLINE_MS);
    // The teardown of one job waits for the node.
    let teardown = Request::Teardown { token: "7".to_owned(), creator: None, hurry: true };
    pool.send_request(ADA, teardown);
    pool.advance_ms(60_000);
    assert_eq!(stages(&pool, |s| *s == StageState::Cancelling), 1);
    let mut known = lost(forget(&mut pool, ROOT, 1, true));
    known.sort();
    assert_eq!(known, ["7", "8"]);
    // Also after a restart, when the controller applies its configuration.
    pool.restart();
    let node =
        Request::AddNode { name: "bb1".into(), pool: "fast".into(), granules: 10, address: None };
    pool.request(ROOT, node).unwrap();
    assert!(pool.controller.status().nodes[1].forgotten);
    pool.advance_ms(2000);
    let status = pool.controller.status();
    let labels: Vec<&str> = status.instances.iter().map(|i| &*i.label).collect();
    assert_eq!(labels, ["8"], "job 7 is gone");
    assert!(!status.instances[0].intact);
    assert_eq!(status.instances[0].nodes.len(), 2);
    assert_eq!(quantity(&pool), (20, 16));

    // Its data cannot be staged out any more, for a stated reason.
    let token = "8".to_owned();
    let failure = pool.request(ADA, Request::StageOut { token }).unwrap_err();
    let named = "storage node `bb1`, which held a part of `8`, is lost for good";
    assert!(failure.reason.contains(named), "{failure}");
    pool.teardown(ADA, "8", true).unwrap();
    assert!(pool.controller.status().sessions.is_empty());
    assert_eq!(quantity(&pool), (20, 20));
    // New instances use the other nodes.
    pool.setup(ADA, "9", JOB).unwrap();
    assert_eq!(pool.controller.status().instances[0].nodes.len(), 2);
}

#[test]
fn returning_node_is_emptied_before_it_is_used() {
    let mut pool = test_pool();
    for token in ["7", "8"] {
        pool.setup(ADA, token, JOB).unwrap();
    }
    pool.peers.silent.insert(1);
    pool.advance_ms(OFFLINE_MS);
    forget(&mut pool, ROOT, 1, true).unwrap();
    pool.teardown(ADA, "7", true).unwrap();
    // The node still has its fragments, also that of the remaining instance.
    assert_eq!(pool.peers.nodes[1].fragments().len(), 2);
    let mut inputs = Vec::new();
    pool.peers.step(NodeId(1), heartbeat_due(), &mut inputs);
    let mut removals = 0;
    for input in inputs {
        for effect in pool.controller.step(UnixMillis(pool.now), input) {
            if let ControllerEffect::SendToStorageNode(NodeId(1), stamped) = effect
                && matches!(stamped.command, StorageCommand::RemoveFragment(_))
            {
                removals += 1;
            }
        }
    }
    let status = pool.controller.status();
    assert!(status.nodes[1].forgotten && !status.nodes[1].online);
    assert_eq!(status.pools[0].quantity, 20, "not used yet");
    assert_eq!(removals, 2);
    pool.peers.silent.clear();
    pool.advance_ms(3000);
    assert!(pool.peers.nodes[1].fragments().is_empty());
    let status = pool.controller.status();
    assert!(!status.nodes[1].forgotten && status.nodes[1].online);
    // All its granules are free, although the instance that lost a part remains.
    assert_eq!(quantity(&pool), (30, 26));
    assert!(!status.instances[0].intact);
    pool.setup(ADA, "9", JOB).unwrap();
    assert_eq!(pool.controller.status().instances[1].nodes.len(), 3);
    pool.teardown(ADA, "8", true).unwrap();
    pool.teardown(ADA, "9", true).unwrap();
    assert_eq!(quantity(&pool), (30, 30));
    assert!(pool.peers.nodes.iter().all(|n| n.fragments().is_empty()));
}

#[test]
fn forgetting_a_node_with_other_replica_loses_nothing() {
    let mut pool = test_pool();
    let replicated = "#DW jobdw capacity=2GiB type=scratch access_mode=ldbalance\n";
    pool.setup(ADA, "7", replicated).unwrap();
    let replicas = pool.controller.status().instances[0].nodes.clone();
    assert_eq!(replicas.len(), 2);
    for node in &replicas {
        pool.peers.silent.insert(node.0);
    }
    pool.advance_ms(OFFLINE_MS);
    assert!(lost(forget(&mut pool, ROOT, replicas[0].0, false)).is_empty());
    let status = pool.controller.status();
    assert!(status.instances[0].intact);
    assert_eq!(status.instances[0].nodes, replicas[1..]);
    // The other replica is the last one.
    let failure = forget(&mut pool, ROOT, replicas[1].0, false).unwrap_err();
    assert!(failure.reason.contains("job `7`"), "{failure}");
    assert_eq!(lost(forget(&mut pool, ROOT, replicas[1].0, true)), ["7"]);
    assert!(!pool.controller.status().instances[0].intact);
    pool.teardown(ADA, "7", true).unwrap();
    assert_eq!(quantity(&pool), (10, 10));
}
