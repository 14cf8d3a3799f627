//! A controller with simulated peers, in steps of half a second.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::{BTreeMap, BTreeSet};

use forebay_control::compute_node::{ComputeEffect, ComputeInput, ComputeNode};
use forebay_control::controller::{
    Controller, ControllerEffect, ControllerInput, Outcome, Request, RequestEnvelope, RequestId,
    Settings, Setup,
};
use forebay_control::messages::{
    ComputeCommand, FragmentId, FragmentPlan, HostFence, MountPlan, Owner, ShareDecision,
    SharePlan, ShareTally, StagePlan, StampedCommand, StorageCommand, UnixMillis,
};
use forebay_control::records::{Change, StoredRecord};
use forebay_control::storage_node::{MoverOutcome, StorageEffect, StorageInput, StorageNode};
use forebay_job_script::JobScript;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

pub const ROOT: Owner = Owner { uid: 0, gid: 0 };
pub const ADA: Owner = Owner { uid: 1000, gid: 100 };

/// Time of a step.
const STEP_MS: u64 = 500;

/// Storage nodes and compute nodes. Their reports are added to `inputs`.
pub trait SimPeers {
    /// Time for heartbeats.
    fn tick(&mut self, inputs: &mut Vec<ControllerInput>);
    /// A command arrives at a storage node.
    fn storage_command(
        &mut self,
        node: NodeId,
        command: StampedCommand<StorageCommand>,
        inputs: &mut Vec<ControllerInput>,
    );
    /// A command arrives at a compute node.
    fn compute_command(
        &mut self,
        host: String,
        command: StampedCommand<ComputeCommand>,
        inputs: &mut Vec<ControllerInput>,
    );
}

/// A copy of a controller's database.
pub struct Backup(BTreeMap<(String, u128), Vec<u8>>);

/// A controller with one pool, `fast`, of nodes with ten granules of 1 GiB each.
pub struct ControllerHarness<P> {
    pub controller: Controller,
    pub peers: P,
    /// Time in milliseconds.
    pub now: u64,
    records: BTreeMap<(String, u128), Vec<u8>>,
    requests: u128,
}

impl<P: SimPeers> ControllerHarness<P> {
    /// The nodes are `bb0`, `bb1`, …
    pub fn new(settings: Settings, peers: P, nodes: u32) -> ControllerHarness<P> {
        let mut harness = ControllerHarness {
            controller: Controller::restore(settings, Vec::new()).unwrap(),
            peers,
            now: 10_000_000,
            records: BTreeMap::new(),
            requests: 0,
        };
        let pool = Request::AddPool {
            name: "fast".into(),
            granularity: Bytes(1 << 30),
            equalize_fragments: false,
        };
        harness.request(ROOT, pool).unwrap();
        for node in 0..nodes {
            let add = Request::AddNode {
                name: format!("bb{node}"),
                pool: "fast".into(),
                granules: 10,
                address: Some(format!("bb{node}:7511")),
            };
            harness.request(ROOT, add).unwrap();
        }
        harness
    }

    /// Makes a request, and lets time pass until it is answered.
    pub fn request(&mut self, caller: Owner, request: Request) -> Outcome {
        let id = self.send_request(caller, request);
        for _ in 0..1000 {
            if let Some(outcome) = self.step(Vec::new(), Some(id)) {
                return outcome;
            }
        }
        panic!("no reply");
    }

    /// Makes a request whose reply nobody waits for.
    pub fn send_request(&mut self, caller: Owner, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        let envelope = RequestEnvelope { id, caller, request };
        self.deliver(vec![ControllerInput::Request(Box::new(envelope))], None);
        id
    }

    /// Delivers an input of a driver.
    pub fn input(&mut self, input: ControllerInput) {
        self.deliver(vec![input], None);
    }

    /// Sets the clock forward.
    pub fn skip_ms(&mut self, milliseconds: u64) {
        self.now += milliseconds;
    }

    /// Lets time pass.
    pub fn advance_ms(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / STEP_MS {
            self.step(Vec::new(), None);
        }
    }

    fn step(
        &mut self,
        mut inputs: Vec<ControllerInput>,
        awaited: Option<RequestId>,
    ) -> Option<Outcome> {
        self.now += STEP_MS;
        inputs.push(ControllerInput::Tick);
        self.peers.tick(&mut inputs);
        self.deliver(inputs, awaited)
    }

    /// Delivers inputs, and the reports that follow. Returns the outcome of the awaited request.
    fn deliver(
        &mut self,
        mut inputs: Vec<ControllerInput>,
        awaited: Option<RequestId>,
    ) -> Option<Outcome> {
        let known = awaited.and_then(|id| self.controller.state().requests.get(id));
        let mut outcome = known.and_then(|record| record.outcome().cloned());
        while !inputs.is_empty() {
            for input in std::mem::take(&mut inputs) {
                for effect in self.controller.step(UnixMillis(self.now), input) {
                    match effect {
                        ControllerEffect::Persist(changes) => self.persist(&changes),
                        ControllerEffect::Reply(id, reply) if Some(id) == awaited => {
                            outcome = Some(reply);
                        }
                        ControllerEffect::Reply(..) => {}
                        ControllerEffect::SendToStorageNode(node, command) => {
                            self.peers.storage_command(node, command, &mut inputs);
                        }
                        ControllerEffect::SendToComputeNode(host, command) => {
                            self.peers.compute_command(host, command, &mut inputs);
                        }
                    }
                }
            }
        }
        outcome
    }

    fn persist(&mut self, changes: &[Change]) {
        for change in changes {
            let key = (change.table.to_owned(), change.key);
            match change.value.clone() {
                Some(value) => self.records.insert(key, value),
                None => self.records.remove(&key),
            };
        }
    }

    /// Number of records of a table in the controller's database, and their bytes.
    pub fn stored(&self, table: &str) -> (usize, usize) {
        let records = self.records.iter().filter(|((of, _), _)| of == table);
        records.fold((0, 0), |(count, bytes), (_, value)| (count + 1, bytes + value.len()))
    }

    /// A copy of the controller's database.
    pub fn back_up(&self) -> Backup {
        Backup(self.records.clone())
    }

    /// Kills the controller and restores it from a backup.
    pub fn restore(&mut self, backup: &Backup) {
        self.records.clone_from(&backup.0);
        self.restart();
    }

    /// Kills the controller and restores it from its durable records.
    pub fn restart(&mut self) {
        let records = self.records.iter();
        let records: Vec<StoredRecord> =
            records.map(|((table, key), value)| (table.clone(), *key, value.clone())).collect();
        let settings = self.controller.settings().clone();
        self.controller = Controller::restore(settings, records).unwrap();
    }

    /// Sets up the job of a script.
    pub fn setup(&mut self, caller: Owner, token: &str, script: &str) -> Outcome {
        self.setup_by(caller, token, script, "test")
    }

    /// Sets up the job of a script in the name of a client.
    pub fn setup_by(&mut self, caller: Owner, token: &str, script: &str, creator: &str) -> Outcome {
        let request = Request::Setup {
            token: token.into(),
            owner: caller,
            creator: creator.into(),
            setup: Setup::from_script(&JobScript::parse(script, None).unwrap()),
        };
        self.request(caller, request)
    }

    /// Mounts a job on compute nodes.
    pub fn activate(&mut self, caller: Owner, token: &str, hosts: &[&str]) -> Outcome {
        let request = Request::Activate {
            token: token.into(),
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            creator: None,
        };
        self.request(caller, request)
    }

    /// Unmounts a job.
    pub fn deactivate(&mut self, caller: Owner, token: &str) -> Outcome {
        let request = Request::Deactivate { token: token.into(), creator: None };
        self.request(caller, request)
    }

    /// Tears a job down.
    pub fn teardown(&mut self, caller: Owner, token: &str, hurry: bool) -> Outcome {
        let request = Request::Teardown { token: token.into(), creator: None, hurry };
        self.request(caller, request)
    }

    /// Granules in use on each node.
    pub fn used_granules(&self) -> Vec<u64> {
        let nodes = self.controller.status().nodes;
        nodes.iter().map(|node| node.used).collect()
    }
}

/// Real storage nodes that carry out all effects at once.
pub struct SimStorage {
    pub nodes: Vec<StorageNode>,
    /// Nodes that neither receive nor send messages.
    pub silent: BTreeSet<u32>,
    /// The fragments that exist.
    pub fragments: BTreeMap<FragmentId, (NodeId, FragmentPlan)>,
    /// The durable records of each node.
    records: BTreeMap<NodeId, BTreeMap<(String, u128), Vec<u8>>>,
    /// Fences that nodes have carried out.
    pub fenced: Vec<(NodeId, Vec<HostFence>)>,
    /// Outcome of movers; `None` if they never end.
    pub mover_outcome: Option<MoverOutcome>,
    /// The tally that movers report when they have copied their share; `None`: they do not get that
    /// far.
    pub tally: fn(SharePlan) -> Option<ShareTally>,
    /// Movers that were started, that were told what to do with their share, and that were stopped.
    pub started: Vec<(NodeId, StagePlan)>,
    pub released: Vec<(NodeId, ShareDecision)>,
    pub stopped: Vec<NodeId>,
}

/// A share of a source with one file for each.
pub fn one_file_each(share: SharePlan) -> Option<ShareTally> {
    Some(ShareTally { seen: 5, entries: u64::from(share.count), own: 1, ..ShareTally::default() })
}

impl SimStorage {
    /// Nodes of ten granules each.
    pub fn new(nodes: u32) -> SimStorage {
        let node = |id| StorageNode::restore(NodeId(id), 10, UnixMillis(0), Vec::new()).unwrap();
        SimStorage {
            nodes: (0..nodes).map(node).collect(),
            silent: BTreeSet::new(),
            fragments: BTreeMap::new(),
            records: BTreeMap::new(),
            fenced: Vec::new(),
            mover_outcome: None,
            tally: one_file_each,
            started: Vec::new(),
            released: Vec::new(),
            stopped: Vec::new(),
        }
    }

    /// The durable records of a node.
    pub fn rows(&self, node: NodeId) -> Vec<StoredRecord> {
        let rows = self.records.get(&node).into_iter().flatten();
        rows.map(|((table, key), value)| (table.clone(), *key, value.clone())).collect()
    }

    /// Delivers an input to a node and carries out its effects.
    pub fn step(&mut self, id: NodeId, input: StorageInput, inputs: &mut Vec<ControllerInput>) {
        for effect in self.nodes[id.0 as usize].step(input) {
            let next = match effect {
                StorageEffect::Report(report) => {
                    inputs.push(ControllerInput::Report(report));
                    continue;
                }
                StorageEffect::Create(plan) => {
                    let fragment = plan.fragment;
                    self.fragments.insert(fragment, (id, plan));
                    StorageInput::Created(fragment, Ok(()))
                }
                StorageEffect::Destroy(plan) => {
                    self.fragments.remove(&plan.fragment);
                    StorageInput::Destroyed(plan.fragment, Ok(()))
                }
                StorageEffect::FenceHosts(plan, hosts, through) => {
                    self.fenced.push((id, hosts));
                    StorageInput::HostsFenced(plan.fragment, through, Ok(()))
                }
                StorageEffect::StopMover(stage, attempt) => {
                    self.stopped.push(id);
                    StorageInput::MoverEnded(stage, attempt, MoverOutcome::Stopped)
                }
                StorageEffect::StartMover(plan) => {
                    self.started.push((id, plan.clone()));
                    let (stage, attempt) = (plan.stage, plan.attempt);
                    let completes = matches!(self.mover_outcome, Some(MoverOutcome::Completed(_)));
                    match (plan.share.filter(|_| completes), self.mover_outcome.clone()) {
                        (Some(share), _) => match (self.tally)(share) {
                            Some(tally) => StorageInput::ShareCopied(stage, attempt, tally),
                            None => continue,
                        },
                        (None, Some(outcome)) => StorageInput::MoverEnded(stage, attempt, outcome),
                        (None, None) => continue,
                    }
                }
                StorageEffect::ReleaseMover(stage, attempt, decision) => {
                    self.released.push((id, decision));
                    let outcome = match decision.complete {
                        true => self.mover_outcome.clone(),
                        false => Some(MoverOutcome::Stopped),
                    };
                    match outcome {
                        Some(outcome) => StorageInput::MoverEnded(stage, attempt, outcome),
                        None => continue,
                    }
                }
                StorageEffect::Persist(changes) => {
                    let records = self.records.entry(id).or_default();
                    for change in changes {
                        let key = (change.table.to_owned(), change.key);
                        match change.value {
                            Some(value) => records.insert(key, value),
                            None => records.remove(&key),
                        };
                    }
                    continue;
                }
            };
            self.step(id, next, inputs);
        }
    }

    /// Heartbeats of all nodes that are not silent.
    pub fn tick(&mut self, inputs: &mut Vec<ControllerInput>) {
        for id in 0..self.nodes.len() as u32 {
            if !self.silent.contains(&id) {
                self.step(NodeId(id), heartbeat_due(), inputs);
            }
        }
    }

    /// Delivers a command unless the node is silent.
    pub fn command(
        &mut self,
        id: NodeId,
        command: StampedCommand<StorageCommand>,
        inputs: &mut Vec<ControllerInput>,
    ) {
        if !self.silent.contains(&id.0) {
            self.step(id, StorageInput::Command(command), inputs);
        }
    }
}

impl SimPeers for SimStorage {
    fn tick(&mut self, inputs: &mut Vec<ControllerInput>) {
        SimStorage::tick(self, inputs);
    }

    fn storage_command(
        &mut self,
        node: NodeId,
        command: StampedCommand<StorageCommand>,
        inputs: &mut Vec<ControllerInput>,
    ) {
        self.command(node, command, inputs);
    }

    fn compute_command(
        &mut self,
        _: String,
        _: StampedCommand<ComputeCommand>,
        _: &mut Vec<ControllerInput>,
    ) {
    }
}

/// The compute nodes `nid0` and `nid1`.
pub fn two_compute_nodes() -> BTreeMap<String, ComputeNode> {
    let node = |name: &str| (name.to_owned(), ComputeNode::new(name.into(), UnixMillis(0)));
    ["nid0", "nid1"].map(node).into()
}

/// A compute node that mounts and unmounts at once. Its reports are added to `inputs`, and what it
/// mounts to `mounts`.
pub fn step_compute(
    node: &mut ComputeNode,
    input: ComputeInput,
    inputs: &mut Vec<ControllerInput>,
    mounts: &mut Vec<MountPlan>,
) {
    for effect in node.step(input) {
        let next = match effect {
            ComputeEffect::Mount(plan) => {
                let activation = plan.activation;
                mounts.push(plan);
                ComputeInput::Mounted(activation, Ok(()))
            }
            ComputeEffect::Unmount(plan) => ComputeInput::Unmounted(plan.activation, Ok(())),
            ComputeEffect::Report(report) => {
                inputs.push(ControllerInput::Report(report));
                continue;
            }
        };
        step_compute(node, next, inputs, mounts);
    }
}

pub fn heartbeat_due() -> StorageInput {
    StorageInput::Tick { written: Bytes(0) }
}
