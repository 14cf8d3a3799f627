//! A pool whose movers end when the test says so.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::{
    ADA, ControllerHarness, ROOT, SimPeers, SimStorage, step_compute, two_compute_nodes,
};
use forebay_control::compute_node::{ComputeInput, ComputeNode};
use forebay_control::controller::{
    ControllerInput, EvacuationStatus, EvacuationStep, InstanceSpec, Outcome, Request, Settings,
    StageState,
};
use forebay_control::messages::{
    ComputeCommand, InstanceId, MountPlan, Report, StageId, StagePlan, StageProgress,
    StampedCommand, StorageCommand, StorageReport,
};
use forebay_control::storage_node::{MoverOutcome, StorageInput};
use forebay_job_script::{Access, AccessMode, Capacity};
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

pub const GRANULE: u64 = 1 << 30;
/// Longer than the time after which a silent node is offline.
pub const OFFLINE_MS: u64 = 11_000;
pub const USER_OF_DATA: &str = "#DW persistentdw name=data\n";

/// Storage nodes whose movers end when the test says so, and two compute nodes.
pub struct SimPool {
    pub storage: SimStorage,
    pub hosts: BTreeMap<String, ComputeNode>,
    /// Mounts that were carried out.
    pub mounts: Vec<MountPlan>,
    /// The last plan of each stage that was started.
    pub plans: BTreeMap<StageId, StagePlan>,
    /// Nodes with an older release.
    pub old: BTreeSet<u32>,
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

pub type TestPool = ControllerHarness<SimPool>;

pub fn test_pool(nodes: u32) -> TestPool {
    test_pool_with(Settings::default(), nodes)
}

pub fn test_pool_with(settings: Settings, nodes: u32) -> TestPool {
    let peers = SimPool {
        storage: SimStorage::new(nodes),
        hosts: two_compute_nodes(),
        mounts: Vec::new(),
        plans: BTreeMap::new(),
        old: BTreeSet::new(),
    };
    ControllerHarness::new(settings, peers, nodes)
}

pub fn create(pool: &mut TestPool, name: &str, granules: u64) {
    let access = vec![Access { mode: AccessMode::Striped, modifiers: Default::default() }];
    let capacity = Capacity::Bytes(Bytes(granules * GRANULE));
    let spec = InstanceSpec::scratch(capacity, access, None);
    let name = name.to_owned();
    let request = Request::CreatePersistent { name, owner: ADA, spec, public: false };
    pool.request(ADA, request).unwrap();
}

pub fn destroy(pool: &mut TestPool, name: &str) -> Outcome {
    pool.request(ADA, Request::DestroyPersistent { name: name.into(), hurry: true })
}

pub fn drain(pool: &mut TestPool, node: u32) {
    let node = NodeId(node);
    pool.request(ROOT, Request::DrainNode { node, drained: true, evacuate: true }).unwrap();
}

pub fn undrain(pool: &mut TestPool, node: u32) {
    let node = NodeId(node);
    pool.request(ROOT, Request::DrainNode { node, drained: false, evacuate: false }).unwrap();
}

/// The nodes of an instance, and its id.
pub fn place(pool: &TestPool, name: &str) -> (InstanceId, Vec<u32>) {
    let status = pool.controller.status();
    let instance = status.persistent_instance(name).unwrap();
    (instance.id, instance.nodes.iter().map(|node| node.0).collect())
}

pub fn evacuations(pool: &TestPool) -> Vec<EvacuationStatus> {
    pool.controller.status().evacuations
}

/// The status of the only evacuation.
pub fn evacuation(pool: &TestPool) -> EvacuationStatus {
    let all = evacuations(pool);
    let [one] = &all[..] else { panic!("{all:?}") };
    one.clone()
}

/// Step of the only evacuation, and what it waits for.
pub fn step(pool: &TestPool) -> (EvacuationStep, String) {
    let EvacuationStatus { step, reason, .. } = evacuation(pool);
    (step, reason.unwrap_or_default())
}

pub fn notices(pool: &mut TestPool) -> Vec<String> {
    let notices = pool.controller.take_notices().into_iter();
    notices.map(|n| format!("{} {}: {}", n.action, n.object, n.outcome)).collect()
}

/// The copy that a mover is at work on.
pub fn running_copy(pool: &TestPool) -> Option<(StageId, u32, NodeId)> {
    let mut stages = pool.controller.state().stages.iter();
    let running = |stage: &forebay_control::controller::StageRecord| {
        stage.copy_of.is_some() && stage.state == StageState::Running
    };
    let (id, stage) = stages.find(|(_, stage)| running(stage))?;
    Some((id, stage.attempt, stage.node.unwrap()))
}

pub fn end_mover(pool: &mut TestPool, outcome: MoverOutcome) {
    let (stage, attempt, node) = running_copy(pool).expect("a copy is running");
    let ended = StorageInput::MoverEnded(stage, attempt, outcome);
    let mut inputs = Vec::new();
    pool.peers.storage.step(node, ended, &mut inputs);
    for input in inputs {
        pool.input(input);
    }
}

pub fn finish_copy(pool: &mut TestPool) {
    let moved = StageProgress { files: 3, bytes: 17, ..StageProgress::default() };
    end_mover(pool, MoverOutcome::Completed(moved));
    pool.advance_ms(1000);
}

pub fn fail_copy(pool: &mut TestPool, reason: &str) {
    end_mover(pool, MoverOutcome::Failed(reason.into()));
}

/// A pool of four nodes with an instance on the first three, of which the first one is drained, and
/// the copy is running.
pub fn copying() -> TestPool {
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
pub fn is_clean(pool: &TestPool) -> bool {
    let state = pool.controller.state();
    let copies = state.stages.iter().filter(|(_, stage)| stage.copy_of.is_some()).count();
    let current = pool.controller.status().instances.len();
    let fragments = state.storage.fragments().count();
    let listed: usize = state.storage.instances().map(|(_, row)| row.fragments.len()).sum();
    let stored = pool.peers.storage.fragments.len();
    copies == 0 && current == 1 && fragments == listed && stored == fragments
}
