//! Persistent instances move off storage nodes that an operator drains.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod harness;

use std::collections::{BTreeMap, BTreeSet};

use forebay_control::compute_node::{ComputeInput, ComputeNode};
use forebay_control::controller::{
    Cause, ControllerInput, EvacuationStatus, EvacuationStep, InstanceSpec, Outcome, QuotaSubject,
    Request, Settings, StageState,
};
use forebay_control::messages::{
    ComputeCommand, HostFence, InstanceId, MountPlan, Report, StageId, StagePlan, StageProgress,
    StampedCommand, StorageCommand, StorageReport, UnixMillis,
};
use forebay_control::storage_node::{MoverOutcome, StorageInput, StorageNode};
use forebay_job_script::{
    Access, AccessMode, BufferPath, Capacity, Direction, InstanceRef, Stage, StageKind, StagePath,
};
use forebay_policy::pool::NodeId;
use forebay_protocol::message::ALL_HOSTS;
use forebay_units::Bytes;
use harness::{ADA, ControllerHarness, ROOT, SimPeers, SimStorage, step_compute};

const GRANULE: u64 = 1 << 30;
/// Longer than the time after which a silent node is offline.
const OFFLINE_MS: u64 = 11_000;
const USER_OF_DATA: &str = "#DW persistentdw name=data\n";

/// Storage nodes whose movers end when the test says so, and two compute nodes.
struct SimPool {
    storage: SimStorage,
    hosts: BTreeMap<String, ComputeNode>,
    /// Mounts that were carried out.
    mounts: Vec<MountPlan>,
    /// The last plan of each stage that was started.
    plans: BTreeMap<StageId, StagePlan>,
    /// Nodes with an older release.
    old: BTreeSet<u32>,
}

impl SimPool {
    fn host_step(&mut self, host: &str, input: ComputeInput, inputs: &mut Vec<ControllerInput>) {
        step_compute(self.hosts.get_mut(host).unwrap(), input, inputs, &mut self.mounts);
    }
}

impl SimPeers for SimPool {
    fn tick(&mut self, inputs: &mut Vec<ControllerInput>) {
        self.storage.tick(inputs);
        for input in inputs.iter_mut() {
            if let ControllerInput::Report(Report::Storage { node, body, .. }) = input
                && let StorageReport::Heartbeat { copies_instances, .. } = body
            {
                *copies_instances = !self.old.contains(&node.0);
            }
        }
        for host in ["nid0", "nid1"] {
            self.host_step(host, ComputeInput::Tick, inputs);
        }
    }

    fn storage_command(
        &mut self,
        node: NodeId,
        command: StampedCommand<StorageCommand>,
        inputs: &mut Vec<ControllerInput>,
    ) {
        if let StorageCommand::StartStage(plan) = &command.command {
            self.plans.insert(plan.stage, plan.clone());
        }
        self.storage.command(node, command, inputs);
    }

    fn compute_command(
        &mut self,
        host: String,
        command: StampedCommand<ComputeCommand>,
        inputs: &mut Vec<ControllerInput>,
    ) {
        self.host_step(&host, ComputeInput::Command(command), inputs);
    }
}

type TestPool = ControllerHarness<SimPool>;

fn test_pool(nodes: u32) -> TestPool {
    test_pool_with(Settings::default(), nodes)
}

fn test_pool_with(settings: Settings, nodes: u32) -> TestPool {
    let host = |name: &str| (name.to_owned(), ComputeNode::new(name.into(), UnixMillis(0)));
    let peers = SimPool {
        storage: SimStorage::new(nodes),
        hosts: BTreeMap::from([host("nid0"), host("nid1")]),
        mounts: Vec::new(),
        plans: BTreeMap::new(),
        old: BTreeSet::new(),
    };
    ControllerHarness::new(settings, peers, nodes)
}

fn create(pool: &mut TestPool, name: &str, granules: u64) {
    let access = vec![Access { mode: AccessMode::Striped, modifiers: Default::default() }];
    let capacity = Capacity::Bytes(Bytes(granules * GRANULE));
    let spec = InstanceSpec::scratch(capacity, access, None);
    let name = name.to_owned();
    let request = Request::CreatePersistent { name, owner: ADA, spec, public: false };
    pool.request(ADA, request).unwrap();
}

fn destroy(pool: &mut TestPool, name: &str) -> Outcome {
    pool.request(ADA, Request::DestroyPersistent { name: name.into(), hurry: true })
}

fn drain(pool: &mut TestPool, node: u32) {
    let node = NodeId(node);
    pool.request(ROOT, Request::DrainNode { node, drained: true, evacuate: true }).unwrap();
}

fn undrain(pool: &mut TestPool, node: u32) {
    let node = NodeId(node);
    pool.request(ROOT, Request::DrainNode { node, drained: false, evacuate: false }).unwrap();
}

/// The nodes of an instance, and its id.
fn place(pool: &TestPool, name: &str) -> (InstanceId, Vec<u32>) {
    let status = pool.controller.status();
    let instance = status.persistent_instance(name).unwrap();
    (instance.id, instance.nodes.iter().map(|node| node.0).collect())
}

fn evacuations(pool: &TestPool) -> Vec<EvacuationStatus> {
    pool.controller.status().evacuations
}

/// The status of the only evacuation.
fn evacuation(pool: &TestPool) -> EvacuationStatus {
    let all = evacuations(pool);
    let [one] = &all[..] else { panic!("{all:?}") };
    one.clone()
}

/// Step of the only evacuation, and what it waits for.
fn step(pool: &TestPool) -> (EvacuationStep, String) {
    let EvacuationStatus { step, reason, .. } = evacuation(pool);
    (step, reason.unwrap_or_default())
}

fn notices(pool: &mut TestPool) -> Vec<String> {
    let notices = pool.controller.take_notices().into_iter();
    notices.map(|n| format!("{} {}: {}", n.action, n.object, n.outcome)).collect()
}

/// The copy that a mover is at work on.
fn running_copy(pool: &TestPool) -> Option<(StageId, u32, NodeId)> {
    let mut stages = pool.controller.state().stages.iter();
    let running = |stage: &forebay_control::controller::StageRecord| {
        stage.copy_of.is_some() && stage.state == StageState::Running
    };
    let (id, stage) = stages.find(|(_, stage)| running(stage))?;
    Some((id, stage.attempt, stage.node.unwrap()))
}

fn end_mover(pool: &mut TestPool, outcome: MoverOutcome) {
    let (stage, attempt, node) = running_copy(pool).expect("a copy is running");
    let ended = StorageInput::MoverEnded(stage, attempt, outcome);
    let mut inputs = Vec::new();
    pool.peers.storage.step(node, ended, &mut inputs);
    for input in inputs {
        pool.input(input);
    }
}

fn finish_copy(pool: &mut TestPool) {
    let moved = StageProgress { files: 3, bytes: 17, ..StageProgress::default() };
    end_mover(pool, MoverOutcome::Completed(moved));
    pool.advance_ms(1000);
}

fn fail_copy(pool: &mut TestPool, reason: &str) {
    end_mover(pool, MoverOutcome::Failed(reason.into()));
}

/// A pool of four nodes with an instance on the first three, of which the first one is drained, and
/// the copy is running.
fn copying() -> TestPool {
    let mut pool = test_pool(4);
    pool.advance_ms(1000);
    create(&mut pool, "data", 3);
    assert_eq!(place(&pool, "data").1.len(), 3);
    let first = place(&pool, "data").1[0];
    assert_eq!(first, 0, "the policy fills the first nodes");
    drain(&mut pool, 0);
    pool.advance_ms(1000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
    pool
}

/// Whether nothing is left of an evacuation: no replacement, copy or additional fragment.
fn is_clean(pool: &TestPool) -> bool {
    let state = pool.controller.state();
    let copies = state.stages.iter().filter(|(_, stage)| stage.copy_of.is_some()).count();
    let current = pool.controller.status().instances.len();
    let fragments = state.storage.fragments().count();
    let listed: usize = state.storage.instances().map(|(_, row)| row.fragments.len()).sum();
    let stored = pool.peers.storage.fragments.len();
    copies == 0 && current == 1 && fragments == listed && stored == fragments
}

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

fn stage_to_data() -> Stage {
    let instance = InstanceRef::Persistent("data".into());
    Stage {
        direction: Direction::In,
        kind: StageKind::File,
        source: StagePath::Pfs("/pfs/a".into()),
        destination: StagePath::Buffer(BufferPath { instance, path: "a".into() }),
        line: 0,
    }
}

#[test]
fn stages_of_users_and_the_copy_wait_for_each_other() {
    let unshared = Settings { max_nodes_per_stage: 1, ..Settings::default() };
    let mut pool = test_pool_with(unshared, 4);
    create(&mut pool, "data", 3);
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    let begin = || Request::BeginStage { token: "7".into(), what: stage_to_data() };
    pool.request(ADA, begin()).unwrap();
    drain(&mut pool, 0);
    pool.advance_ms(2000);
    let (waiting, reason) = step(&pool);
    assert_eq!((waiting, &*reason), (EvacuationStep::Waiting, "data are being staged for `7`"));
    let (id, stage) = pool.controller.state().stages.iter().next().unwrap();
    let ended = MoverOutcome::Completed(Default::default());
    let ended = StorageInput::MoverEnded(id, stage.attempt, ended);
    let mut inputs = Vec::new();
    let node = stage.node.unwrap();
    pool.peers.storage.step(node, ended, &mut inputs);
    inputs.into_iter().for_each(|input| pool.input(input));
    pool.advance_ms(2000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
    // While it moves, a stage waits; then a node with the new fragments moves its data.
    pool.request(ADA, begin()).unwrap();
    pool.advance_ms(2000);
    let last = |pool: &TestPool| {
        let stages = pool.controller.state().stages.iter();
        let (_, stage) = stages.filter(|(_, stage)| stage.copy_of.is_none()).last().unwrap();
        stage.clone()
    };
    assert_eq!(last(&pool).state, StageState::Queued);
    finish_copy(&mut pool);
    let stage = last(&pool);
    assert_eq!((stage.state, stage.instance), (StageState::Running, place(&pool, "data").0));
    assert!(place(&pool, "data").1.contains(&stage.node.unwrap().0));
}

#[test]
fn users_neither_see_nor_stop_the_copy() {
    let mut pool = copying();
    let (stage, ..) = running_copy(&pool).unwrap();
    assert!(pool.controller.status().stages.is_empty());
    let stopped = pool.request(ADA, Request::CancelStage { stage });
    assert_eq!(stopped.unwrap_err().cause, Cause::NotFound);
    assert!(running_copy(&pool).is_some());
}

#[test]
fn few_instances_move_at_a_time() {
    let mut pool = test_pool(4);
    for index in 0..8 {
        create(&mut pool, &format!("d{index}"), 1);
    }
    let first: Vec<u32> = (0..8).flat_map(|i| place(&pool, &format!("d{i}")).1).collect();
    for node in [0, 1, 2] {
        drain(&mut pool, node);
    }
    pool.advance_ms(2000);
    let to_move = first.iter().filter(|node| **node < 3).count();
    assert!(to_move > 4, "{first:?}");
    for _ in 0..to_move {
        let all = evacuations(&pool);
        let moving = all.iter().filter(|one| one.step == EvacuationStep::Copying).count();
        assert!(moving <= 4, "{all:?}");
        let waiting = all.iter().find(|one| one.step == EvacuationStep::Waiting);
        if let Some(waiting) = waiting {
            assert_eq!(waiting.reason.as_deref(), Some("other instances move first"));
        }
        assert!(all.iter().all(|one| one.targets.iter().all(|node| node.0 == 3)), "{all:?}");
        finish_copy(&mut pool);
    }
    assert!(evacuations(&pool).is_empty());
    assert_eq!(pool.used_granules(), [0, 0, 0, 8]);
}

/// The copy in a restored database may have become the instance since, with data of users.
#[test]
fn restored_controller_keeps_a_copy_that_may_be_in_use() {
    let mut pool = copying();
    let backup = pool.back_up();
    finish_copy(&mut pool);
    assert!(!place(&pool, "data").1.contains(&0));
    let stored = pool.peers.storage.fragments.clone();
    pool.restore(&backup);
    pool.advance_ms(3000);
    assert!(pool.controller.status().outdated);
    pool.request(ROOT, Request::AcceptRestored).unwrap();
    pool.advance_ms(20_000);
    assert_eq!(pool.peers.storage.fragments, stored, "nothing was removed");
    let unknown: u32 = pool.controller.status().nodes.iter().map(|node| node.unknown).sum();
    assert_eq!(unknown, 3, "an operator decides");
}
