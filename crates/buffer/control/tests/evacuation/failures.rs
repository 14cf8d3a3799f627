//! Nodes, movers and controllers fail while an instance moves.

use std::collections::BTreeSet;

use crate::harness::{ADA, ROOT};
use crate::pool::*;
use forebay_control::controller::{Cause, ControllerInput, EvacuationStep, Request, Settings};
use forebay_control::messages::{HostFence, Report, StageProgress, StorageReport, UnixMillis};
use forebay_control::storage_node::{StorageInput, StorageNode};
use forebay_job_script::{Direction, StagePath};
use forebay_policy::pool::NodeId;
use forebay_protocol::message::ALL_HOSTS;
use forebay_units::Bytes;

#[test]
fn restarted_mover_node_continues_the_attempt() {
    let mut pool = copying();
    let (stage, attempt, node) = running_copy(&pool).unwrap();
    let rows = pool.peers.storage.rows(node);
    let restored = StorageNode::restore(node, 10, UnixMillis(pool.now), rows).unwrap();
    pool.peers.storage.nodes[node.0 as usize] = restored;
    let mut inputs = Vec::new();
    pool.peers.storage.step(node, StorageInput::Started, &mut inputs);
    inputs.into_iter().for_each(|input| pool.input(input));
    pool.advance_ms(3000);
    assert_eq!(running_copy(&pool), Some((stage, attempt, node)));
    finish_copy(&mut pool);
    assert!(is_clean(&pool) && evacuations(&pool).is_empty());
}

#[test]
fn failed_copy_is_tried_again_and_then_given_up_for_a_while() {
    let mut pool = copying();
    let before = place(&pool, "data");
    for attempt in 1..=3 {
        assert_eq!(running_copy(&pool).unwrap().1, attempt);
        fail_copy(&mut pool, "EIO at /a");
        if attempt < 3 {
            let (step, reason) = step(&pool);
            assert_eq!(step, EvacuationStep::Copying);
            assert!(reason.contains("EIO at /a"), "{reason}");
            pool.advance_ms(11_000);
        }
    }
    pool.advance_ms(2000);
    let (waiting, reason) = step(&pool);
    assert_eq!(waiting, EvacuationStep::Waiting);
    assert!(reason.contains("another attempt in"), "{reason}");
    assert!(reason.contains("the last one failed: EIO at /a"), "{reason}");
    assert!(is_clean(&pool) && place(&pool, "data") == before);
    let noted = notices(&mut pool);
    assert!(noted.last().unwrap().ends_with("failed: EIO at /a"), "{noted:?}");
    // Meanwhile it can be mounted.
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    pool.activate(ADA, "7", &["nid0"]).unwrap();
    pool.deactivate(ADA, "7").unwrap();
    pool.restart();
    pool.advance_ms(50_000);
    assert_eq!(step(&pool).0, EvacuationStep::Waiting, "a restart does not shorten the delay");
    pool.advance_ms(12_000);
    finish_copy(&mut pool);
    assert!(is_clean(&pool) && evacuations(&pool).is_empty());
}

#[test]
fn operator_who_drains_again_does_not_wait_for_the_delay() {
    let mut pool = copying();
    for _ in 0..3 {
        fail_copy(&mut pool, "EIO");
        pool.advance_ms(11_000);
    }
    assert_eq!(step(&pool).0, EvacuationStep::Waiting);
    drain(&mut pool, 0);
    pool.advance_ms(1000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
}

#[test]
fn failed_copy_is_given_up_at_once_if_a_job_waits() {
    let mut pool = copying();
    let before = place(&pool, "data");
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    let request =
        Request::Activate { token: "7".into(), hosts: vec!["nid0".into()], creator: None };
    let id = pool.send_request(ADA, request);
    pool.advance_ms(1000);
    assert!(pool.peers.mounts.is_empty());
    fail_copy(&mut pool, "EIO");
    pool.advance_ms(1000);
    assert!(pool.controller.state().requests.get(id).unwrap().outcome().unwrap().is_ok());
    assert_eq!(pool.peers.mounts.last().unwrap().instance, before.0);
    assert_eq!(step(&pool).1, "it is in use: by `7` on nid0");
}

#[test]
fn lost_target_node_is_replaced_by_others() {
    let mut pool = copying();
    let first = evacuation(&pool).targets;
    let lost = *first.last().unwrap();
    pool.peers.storage.silent.insert(lost.0);
    // A daemon that is restarted continues.
    pool.advance_ms(60_000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
    assert!(running_copy(&pool).is_some());
    pool.advance_ms(600_000);
    assert_eq!(evacuations(&pool).len(), 1);
    if lost != NodeId(3) {
        // It has data of the source, too.
        let reason = step(&pool).1;
        assert!(reason.contains("nodes with its data are offline: bb"), "{reason}");
        return;
    }
    pool.advance_ms(70_000);
    let targets = evacuation(&pool).targets;
    assert!(!targets.is_empty() && !targets.contains(&lost), "{targets:?}");
    finish_copy(&mut pool);
    assert!(!place(&pool, "data").1.contains(&0));
}

#[test]
fn given_up_target_node_loses_no_data() {
    let mut pool = test_pool(4);
    create(&mut pool, "data", 2);
    let (before, nodes) = place(&pool, "data");
    assert_eq!(nodes, [0, 1]);
    drain(&mut pool, 0);
    pool.advance_ms(1000);
    let targets = evacuation(&pool).targets;
    let lost = *targets.iter().find(|node| node.0 > 1).unwrap();
    pool.peers.storage.silent.insert(lost.0);
    pool.advance_ms(OFFLINE_MS);
    let forget = Request::ForgetNode { node: lost, allow_data_loss: false };
    pool.request(ROOT, forget).unwrap();
    pool.advance_ms(1000);
    let status = pool.controller.status();
    assert!(status.persistent_instance("data").unwrap().intact);
    assert_eq!(place(&pool, "data").0, before);
    pool.advance_ms(70_000);
    assert!(!evacuation(&pool).targets.contains(&lost));
    finish_copy(&mut pool);
    assert!(!place(&pool, "data").1.contains(&0) && evacuations(&pool).is_empty());
}

#[test]
fn target_that_comes_back_empty_is_not_switched_to() {
    let mut pool = copying();
    let before = place(&pool, "data");
    let (id, attempt, node) = running_copy(&pool).unwrap();
    // Another target than the mover's has lost its fragment when the copy ends.
    let targets = evacuation(&pool).targets;
    let empty = *targets.iter().find(|target| **target != node).unwrap();
    let state = pool.controller.state();
    let plan = pool.peers.plans[&id].clone();
    let lost = state.storage.fragments_of(plan.instance).find(|(_, f)| f.node == empty).unwrap().0;
    let kept: Vec<_> = pool.peers.storage.nodes[empty.0 as usize].fragments();
    let kept = kept.into_iter().filter(|fragment| *fragment != lost).collect();
    let disk = state.storage.node(empty).unwrap().disk.unwrap();
    pool.peers.storage.silent.insert(empty.0);
    pool.input(ControllerInput::Report(Report::Storage {
        node: empty,
        disk,
        sequence: u64::MAX / 2,
        body: StorageReport::Heartbeat {
            fragments: kept,
            written: Bytes(0),
            obeyed: Default::default(),
            copies_instances: true,
            shares_stages: false,
        },
    }));
    let done = StorageReport::StageDone(id, attempt, StageProgress::default());
    let disk = pool.controller.state().storage.node(node).unwrap().disk.unwrap();
    let sequence = u64::MAX / 2;
    pool.input(ControllerInput::Report(Report::Storage { node, disk, sequence, body: done }));
    assert_eq!(place(&pool, "data"), before);
    assert!(pool.controller.status().persistent_instance("data").unwrap().intact);
}

#[test]
fn source_that_is_given_up_ends_the_evacuation() {
    let mut pool = copying();
    pool.peers.storage.silent.insert(0);
    pool.advance_ms(OFFLINE_MS);
    fail_copy(&mut pool, "cannot reach bb0");
    pool.advance_ms(11_000);
    let node = NodeId(0);
    let kept = pool.request(ROOT, Request::ForgetNode { node, allow_data_loss: false });
    assert_eq!(kept.unwrap_err().cause, Cause::Busy, "its data are nowhere else yet");
    pool.request(ROOT, Request::ForgetNode { node, allow_data_loss: true }).unwrap();
    pool.advance_ms(2000);
    let status = pool.controller.status();
    assert!(!status.persistent_instance("data").unwrap().intact);
    assert_eq!(status.instances.len(), 1, "the replacement is gone");
    destroy(&mut pool, "data").unwrap();
}

#[test]
fn drained_node_that_fails_after_the_switch_has_no_data() {
    let mut pool = copying();
    pool.peers.storage.silent.insert(0);
    finish_copy(&mut pool);
    pool.advance_ms(OFFLINE_MS);
    let left = evacuation(&pool);
    assert_eq!((left.step, &*left.label), (EvacuationStep::Leaving, "data"));
    let forget = Request::ForgetNode { node: NodeId(0), allow_data_loss: false };
    pool.request(ROOT, forget).unwrap();
    pool.advance_ms(1000);
    assert!(pool.controller.status().persistent_instance("data").unwrap().intact);
    assert_eq!(pool.controller.status().instances.len(), 1);
}

#[test]
fn drained_node_that_is_offline_is_waited_for() {
    let mut pool = test_pool(4);
    create(&mut pool, "data", 3);
    pool.peers.storage.silent.insert(0);
    pool.advance_ms(OFFLINE_MS);
    drain(&mut pool, 0);
    pool.advance_ms(2000);
    let waiting = "storage nodes with its data are offline: bb0".to_owned();
    assert_eq!(step(&pool), (EvacuationStep::Waiting, waiting));
    pool.peers.storage.silent.clear();
    pool.advance_ms(2000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
}

#[test]
fn destroyed_instance_is_removed_with_its_copy() {
    let mut pool = copying();
    destroy(&mut pool, "data").unwrap();
    pool.advance_ms(3000);
    assert_eq!(pool.used_granules(), [0, 0, 0, 0]);
    let state = pool.controller.state();
    assert!(state.sessions.is_empty() && state.storage.is_unused());
    assert!(state.stages.iter().next().is_none() && evacuations(&pool).is_empty());
    assert!(pool.peers.storage.fragments.is_empty());
}

#[test]
fn expired_instance_is_removed_with_its_copy() {
    let settings = Settings {
        persistent_lifetime_ms: Some(100_000),
        persistent_grace_ms: 50_000,
        ..Settings::default()
    };
    let mut pool = test_pool_with(settings, 4);
    create(&mut pool, "data", 3);
    drain(&mut pool, 0);
    pool.advance_ms(120_000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying, "its owner may still want it");
    pool.advance_ms(50_000);
    let state = pool.controller.state();
    assert!(state.sessions.is_empty() && state.storage.is_unused());
    assert!(pool.peers.storage.fragments.is_empty() && evacuations(&pool).is_empty());
}

#[test]
fn nodes_of_an_older_release_are_no_targets() {
    let mut pool = test_pool(3);
    pool.peers.old.extend([1, 2]);
    pool.advance_ms(1000);
    create(&mut pool, "data", 1);
    assert_eq!(place(&pool, "data").1, [0]);
    drain(&mut pool, 0);
    pool.advance_ms(2000);
    let (step_now, reason) = step(&pool);
    assert_eq!(step_now, EvacuationStep::Waiting);
    assert!(reason.contains("bb1, bb2 are of an older release"), "{reason}");
    // One with the data could not refuse clients.
    pool.peers.old = BTreeSet::from([0]);
    pool.advance_ms(2000);
    assert_eq!(step(&pool).1, "the storage daemons of bb0 are of an older release");
    pool.peers.old.clear();
    pool.advance_ms(2000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
}

/// Clients of which the controller does not know could write to what is copied.
#[test]
fn copy_begins_when_all_old_nodes_refuse_clients() {
    let mut pool = test_pool(4);
    create(&mut pool, "data", 3);
    pool.advance_ms(1000);
    pool.peers.storage.silent.insert(1);
    drain(&mut pool, 0);
    pool.advance_ms(3000);
    let (preparing, reason) = step(&pool);
    assert_eq!(preparing, EvacuationStep::Preparing);
    assert!(reason.contains("preparing the copy: bb1"), "{reason}");
    assert!(running_copy(&pool).is_none());
    pool.peers.storage.silent.clear();
    pool.advance_ms(2000);
    assert!(running_copy(&pool).is_some());
    let is_of_all = |hosts: &Vec<HostFence>| hosts.iter().any(|fence| fence.host == ALL_HOSTS);
    let fenced = pool.peers.storage.fenced.iter().filter(|(_, hosts)| is_of_all(hosts));
    let fenced: BTreeSet<u32> = fenced.map(|(node, _)| node.0).collect();
    assert_eq!(fenced, BTreeSet::from([0, 1, 2]));
    // A client that comes when the evacuation was cancelled is accepted.
    let fence = pool.peers.storage.fenced.iter().flat_map(|(_, hosts)| hosts).next().unwrap();
    let refused_before = fence.generation;
    undrain(&mut pool, 0);
    pool.advance_ms(1000);
    let status = pool.controller.status();
    let instance = status.persistent_instance("data").unwrap();
    assert_eq!(instance.mount_generation, Some(refused_before));
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    pool.activate(ADA, "7", &["nid0"]).unwrap();
    assert!(pool.peers.mounts.last().unwrap().generation >= refused_before);
}

/// The directive of a copy, which a node of an older release would carry out, leads to no file.
#[test]
fn directive_of_a_copy_fails_on_older_nodes() {
    let pool = copying();
    let plan = pool.peers.plans.values().next().unwrap();
    let StagePath::Pfs(source) = &plan.directive.source else { panic!("{plan:?}") };
    assert!(!std::path::Path::new(source).is_absolute(), "{source}");
    assert_eq!(plan.directive.direction, Direction::In);
}
