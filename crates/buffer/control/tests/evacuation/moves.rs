//! An instance moves, with what its users do meanwhile.

use crate::harness::{ADA, ROOT};
use crate::pool::*;
use forebay_control::controller::{Cause, EvacuationStep, QuotaSubject, Request, Settings};
use forebay_control::messages::StageProgress;
use forebay_control::storage_node::{MoverOutcome, StorageInput};
use forebay_job_script::AccessMode;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

#[test]
fn instance_moves_to_other_nodes_and_is_then_removed_from_the_drained_one() {
    let mut pool = copying();
    let (before, _) = place(&pool, "data");
    let (id, _, mover) = running_copy(&pool).unwrap();
    let plan = pool.peers.plans[&id].clone();
    // The mover writes to new fragments, and reads all of the old ones.
    assert_ne!(plan.instance, before);
    let source = plan.copy_of.clone().unwrap();
    assert_eq!(source.instance, before);
    assert_eq!(source.addresses, ["bb0:7511", "bb1:7511", "bb2:7511"]);
    assert!(plan.read_back, "the copy is verified before the original is removed");
    assert_ne!(mover, NodeId(0));
    let status = evacuation(&pool);
    assert_eq!(
        (&*status.label, status.owner, &*status.nodes),
        ("data", Some(ADA), &[NodeId(0)][..])
    );
    assert_eq!(status.allocated, Bytes(GRANULE));
    assert!(!status.targets.contains(&NodeId(0)), "{status:?}");
    // Progress is that of the mover.
    let progress = StageProgress { files: 1, bytes: 5, ..StageProgress::default() };
    let mut inputs = Vec::new();
    pool.peers.storage.step(mover, StorageInput::MoverProgress(id, 1, progress), &mut inputs);
    inputs.into_iter().for_each(|input| pool.input(input));
    assert_eq!(evacuation(&pool).progress.bytes, 5);
    // Both are there until the copy is complete.
    assert_eq!(pool.used_granules()[0], 1);
    assert_eq!(pool.used_granules().iter().sum::<u64>(), 6);
    assert_eq!(pool.peers.storage.fragments.len(), 6);
    finish_copy(&mut pool);
    let (after, nodes) = place(&pool, "data");
    assert_eq!(after, plan.instance);
    assert!(!nodes.contains(&0) && nodes.len() == 3, "{nodes:?}");
    assert_eq!(pool.used_granules()[0], 0);
    assert_eq!(pool.used_granules().iter().sum::<u64>(), 3);
    assert!(evacuations(&pool).is_empty() && is_clean(&pool));
    let instance = pool.controller.status().persistent_instance("data").cloned().unwrap();
    assert!(instance.intact && instance.modes == [AccessMode::Striped]);
    // Jobs use the copy.
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    pool.activate(ADA, "7", &["nid0"]).unwrap();
    assert_eq!(pool.peers.mounts.last().unwrap().instance, after);
    // What happened is noted.
    let noted = notices(&mut pool);
    let [begun, done] = &noted[..] else { panic!("{noted:?}") };
    assert!(
        begun.starts_with("evacuate instance data of user 1000 off bb0: begun: to bb"),
        "{begun}"
    );
    assert!(done.contains("done: 3 files, 17 bytes, to bb"), "{done}");
}

#[test]
fn drain_without_evacuation_keeps_the_instance() {
    let mut pool = test_pool(4);
    create(&mut pool, "data", 3);
    let before = place(&pool, "data");
    let request = Request::DrainNode { node: NodeId(0), drained: true, evacuate: false };
    pool.request(ROOT, request).unwrap();
    pool.advance_ms(20_000);
    assert_eq!(place(&pool, "data"), before);
    assert!(evacuations(&pool).is_empty() && is_clean(&pool));
    // It can be asked for later.
    drain(&mut pool, 0);
    pool.advance_ms(1000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
}

#[test]
fn only_an_operator_drains() {
    let mut pool = test_pool(2);
    let request = Request::DrainNode { node: NodeId(0), drained: true, evacuate: true };
    assert_eq!(pool.request(ADA, request).unwrap_err().cause, Cause::Denied);
}

#[test]
fn job_instance_ends_with_its_job() {
    let mut pool = test_pool(3);
    let job = "#DW jobdw capacity=2GiB type=scratch access_mode=striped\n";
    pool.setup(ADA, "7", job).unwrap();
    drain(&mut pool, 0);
    pool.advance_ms(20_000);
    let (step, reason) = step(&pool);
    assert_eq!((step, &*reason), (EvacuationStep::EndsWithJob, "job `7` has not ended"));
    assert!(is_clean(&pool));
    pool.teardown(ADA, "7", true).unwrap();
    pool.advance_ms(1000);
    assert!(evacuations(&pool).is_empty());
    assert_eq!(pool.used_granules(), [0, 0, 0]);
}

#[test]
fn mounted_instance_waits_until_it_is_unmounted() {
    let mut pool = test_pool(4);
    create(&mut pool, "data", 3);
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    pool.activate(ADA, "7", &["nid0", "nid1"]).unwrap();
    drain(&mut pool, 0);
    pool.advance_ms(20_000);
    let waiting = (EvacuationStep::Waiting, "it is in use: by `7` on nid0 and 1 others".to_owned());
    assert_eq!(step(&pool), waiting);
    assert!(is_clean(&pool), "no space is taken meanwhile");
    pool.deactivate(ADA, "7").unwrap();
    pool.advance_ms(1000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
    finish_copy(&mut pool);
    assert!(evacuations(&pool).is_empty());
}

#[test]
fn mount_waits_for_the_copy_and_then_uses_it() {
    let mut pool = copying();
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    let request =
        Request::Activate { token: "7".into(), hosts: vec!["nid0".into()], creator: None };
    let id = pool.send_request(ADA, request);
    // Longer than other requests wait.
    pool.advance_ms(Settings::default().request_timeout_ms + 10_000);
    assert!(pool.peers.mounts.is_empty(), "mounted while it is copied");
    assert!(pool.controller.state().requests.get(id).unwrap().outcome().is_none());
    assert_eq!(evacuation(&pool).waiting, ["7"]);
    let status = pool.controller.status();
    let reason = status.job_session("7").unwrap().waits_for.clone().unwrap();
    assert!(reason.contains("`data` moves off storage node bb0, which is drained"), "{reason}");
    finish_copy(&mut pool);
    assert!(pool.controller.state().requests.get(id).unwrap().outcome().unwrap().is_ok());
    let (instance, nodes) = place(&pool, "data");
    let mount = pool.peers.mounts.last().unwrap();
    assert_eq!(mount.instance, instance);
    assert_eq!(mount.nodes.iter().map(|node| node.0).collect::<Vec<_>>(), nodes);
    let status = pool.controller.status();
    assert_eq!(status.job_session("7").unwrap().waits_for, None);
    pool.deactivate(ADA, "7").unwrap();
}

#[test]
fn mount_that_is_given_up_meanwhile_leaves_nothing() {
    let mut pool = copying();
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    let request =
        Request::Activate { token: "7".into(), hosts: vec!["nid0".into()], creator: None };
    pool.send_request(ADA, request);
    pool.advance_ms(1000);
    pool.teardown(ADA, "7", true).unwrap();
    finish_copy(&mut pool);
    assert!(pool.peers.mounts.is_empty() && is_clean(&pool));
}

#[test]
fn undrain_cancels_and_removes_the_incomplete_copy() {
    let mut pool = copying();
    let before = place(&pool, "data");
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    let request =
        Request::Activate { token: "7".into(), hosts: vec!["nid0".into()], creator: None };
    pool.send_request(ADA, request);
    undrain(&mut pool, 0);
    pool.advance_ms(2000);
    assert_eq!(place(&pool, "data"), before);
    assert!(evacuations(&pool).is_empty() && is_clean(&pool));
    assert_eq!(pool.used_granules(), [1, 1, 1, 0]);
    // The mount that waited is carried out, on the instance as it was.
    assert_eq!(pool.peers.mounts.last().unwrap().instance, before.0);
    let noted = notices(&mut pool);
    assert!(
        noted.last().unwrap().contains("cancelled: it is not to be moved any more"),
        "{noted:?}"
    );
}

#[test]
fn undrain_after_the_switch_changes_nothing() {
    let mut pool = copying();
    finish_copy(&mut pool);
    let after = place(&pool, "data");
    undrain(&mut pool, 0);
    pool.advance_ms(2000);
    assert_eq!(place(&pool, "data"), after);
    assert!(is_clean(&pool));
}

#[test]
fn full_pool_is_waited_for() {
    let mut pool = test_pool(2);
    pool.advance_ms(1000);
    create(&mut pool, "data", 4);
    create(&mut pool, "other", 16);
    assert_eq!(pool.used_granules(), [10, 10]);
    drain(&mut pool, 0);
    pool.advance_ms(20_000);
    let waiting = evacuations(&pool);
    assert_eq!(waiting.len(), 2);
    for one in &waiting {
        assert_eq!(one.step, EvacuationStep::Waiting);
        let reason = one.reason.clone().unwrap();
        assert!(reason.contains("space on other nodes: pool `fast`"), "{reason}");
        assert!(
            reason.contains("4 granules requested, 0 free") || one.label == "other",
            "{reason}"
        );
    }
    destroy(&mut pool, "other").unwrap();
    pool.advance_ms(2000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
    finish_copy(&mut pool);
    assert_eq!(place(&pool, "data").1, [1]);
    assert_eq!(pool.used_granules(), [0, 4]);
}

#[test]
fn quota_counts_a_moving_instance_once() {
    let mut pool = test_pool(4);
    let subject = QuotaSubject::User(ADA.uid);
    let quota = Some(Bytes(4 * GRANULE));
    pool.request(ROOT, Request::SetQuota { subject, quota }).unwrap();
    create(&mut pool, "data", 3);
    drain(&mut pool, 0);
    pool.advance_ms(1000);
    let used = |pool: &TestPool| pool.controller.status().usage[0].used;
    assert_eq!((step(&pool).0, used(&pool)), (EvacuationStep::Copying, Bytes(3 * GRANULE)));
    create(&mut pool, "more", 1);
    finish_copy(&mut pool);
    assert_eq!(used(&pool), Bytes(4 * GRANULE));
}

#[test]
fn restarted_controller_continues_at_every_step() {
    let mut pool = test_pool(4);
    create(&mut pool, "data", 3);
    pool.restart();
    drain(&mut pool, 0);
    pool.restart();
    pool.advance_ms(1000);
    pool.restart();
    pool.advance_ms(2000);
    let (stage, attempt, _) = running_copy(&pool).unwrap();
    pool.restart();
    pool.advance_ms(2000);
    let (same, same_attempt, _) = running_copy(&pool).unwrap();
    assert_eq!((same, same_attempt), (stage, attempt), "the copy goes on");
    // The end of the copy is reported again if the controller did not get to know.
    let (_, _, node) = running_copy(&pool).unwrap();
    let ended = StorageInput::MoverEnded(stage, 1, MoverOutcome::Completed(Default::default()));
    pool.peers.storage.step(node, ended, &mut Vec::new());
    pool.restart();
    pool.advance_ms(3000);
    assert!(!place(&pool, "data").1.contains(&0));
    pool.restart();
    pool.advance_ms(2000);
    assert!(evacuations(&pool).is_empty() && is_clean(&pool));
}
