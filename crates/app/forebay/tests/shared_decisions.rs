//! The buffer's controller and the twin take the same decisions: the same storage nodes for each
//! instance, and the same node for each byte of a file.

use forebay_control::controller::*;
use forebay_control::messages::*;
use forebay_control::storage_node::{StorageEffect, StorageInput, StorageNode};
use forebay_job_script::OptimizationStrategy;
use forebay_job_script::{Capacity, JobScript};
use forebay_machine::pool::{Instance, StoragePool};
use forebay_machine_file::machine::{Machine, NodeKind};
use forebay_policy::layout::StripeOrder;
use forebay_policy::pool::NodeId;
use forebay_protocol::Ino;
use forebay_random::RandomSequence;
use forebay_units::Bytes;
use std::collections::BTreeMap;

const REQUESTS: u32 = 1000;
const BYTES_PER_INSTANCE: u32 = 20;
const GRANULARITY: Bytes = Bytes(200 << 30);
const ROOT: Owner = Owner { uid: 0, gid: 0 };

/// A machine with 24 burst-buffer nodes in the buffer's order of stripes.
fn machine() -> Machine {
    let mut machine = Machine::load("cori-phase1").unwrap();
    let mut left = 24;
    machine.nodes.retain(|node| {
        let is_storage = node.kind == NodeKind::BurstBuffer;
        let keep = !is_storage || left > 0;
        left -= i32::from(is_storage);
        keep
    });
    let burst_buffer = machine.burst_buffer.as_mut().unwrap();
    burst_buffer.stripe_order = StripeOrder::Hashed;
    machine
}

/// The real controller with simulated storage nodes, which carry out all commands.
struct ControllerRun {
    controller: Controller,
    nodes: BTreeMap<NodeId, StorageNode>,
    /// The fragments that nodes were commanded to set up, by instance.
    fragments: BTreeMap<InstanceId, BTreeMap<FragmentId, (NodeId, FragmentPlan)>>,
    now: u64,
    number: u128,
}

impl ControllerRun {
    fn new(machine: &Machine, nodes: usize, granules: u64) -> ControllerRun {
        let settings = Settings {
            stripe_bytes: machine.burst_buffer.as_ref().unwrap().stripe.0,
            ..Settings::default()
        };
        let mut run = ControllerRun {
            controller: Controller::restore(settings, Vec::new()).unwrap(),
            nodes: BTreeMap::new(),
            fragments: BTreeMap::new(),
            now: 1000,
            number: 0,
        };
        let pool = Request::AddPool {
            name: "fast".into(),
            granularity: GRANULARITY,
            equalize_fragments: false,
        };
        run.request(pool).unwrap();
        for index in 0..nodes {
            let node = Request::AddNode {
                name: format!("bb{index}"),
                pool: "fast".into(),
                granules,
                address: Some(format!("bb{index}:7511")),
            };
            let Answer::Node(id) = run.request(node).unwrap() else {
                panic!("AddNode has no number")
            };
            let node = StorageNode::restore(id, granules, UnixMillis(0), Vec::new()).unwrap();
            run.nodes.insert(id, node);
        }
        run
    }

    /// Makes a request and advances time until it is answered.
    fn request(&mut self, request: Request) -> Outcome {
        self.number += 1;
        let id = RequestId(self.number);
        let envelope = RequestEnvelope { id, caller: ROOT, request };
        let mut request = Some(ControllerInput::Request(Box::new(envelope)));
        for _ in 0..1000 {
            self.now += 500;
            let mut inputs = vec![ControllerInput::Tick];
            for node in self.nodes.values_mut() {
                inputs.extend(reports(node.step(StorageInput::Tick { written: Bytes(0) })));
            }
            inputs.extend(request.take());
            let mut answer = None;
            while !inputs.is_empty() {
                for input in std::mem::take(&mut inputs) {
                    for effect in self.controller.step(UnixMillis(self.now), input) {
                        match effect {
                            ControllerEffect::Persist(_) => {}
                            ControllerEffect::Reply(replied, outcome) => {
                                assert_eq!(replied, id);
                                answer = Some(outcome);
                            }
                            ControllerEffect::SendToStorageNode(node, command) => {
                                inputs.extend(self.carry_out(node, command));
                            }
                            ControllerEffect::SendToComputeNode(name, _) => {
                                panic!("a command to {name}")
                            }
                        }
                    }
                }
            }
            if let Some(answer) = answer {
                return answer;
            }
        }
        panic!("no answer to request {}", self.number)
    }

    fn carry_out(
        &mut self,
        id: NodeId,
        command: StampedCommand<StorageCommand>,
    ) -> Vec<ControllerInput> {
        if let StorageCommand::CreateFragment(plan) = &command.command {
            let fragments = self.fragments.entry(plan.instance).or_default();
            fragments.insert(plan.fragment, (id, plan.clone()));
        }
        let node = self.nodes.get_mut(&id).unwrap();
        let mut inputs = Vec::new();
        for effect in node.step(StorageInput::Command(command)) {
            let effects = match effect {
                StorageEffect::Create(plan) => {
                    node.step(StorageInput::Created(plan.fragment, Ok(())))
                }
                StorageEffect::Destroy(plan) => {
                    node.step(StorageInput::Destroyed(plan.fragment, Ok(())))
                }
                effect => vec![effect],
            };
            inputs.extend(reports(effects));
        }
        inputs
    }

    /// Creates a persistent instance; returns the fragments of its nodes, or `None` if the pool
    /// has no space for it.
    fn create(
        &mut self,
        name: &str,
        capacity: Capacity,
        preference: OptimizationStrategy,
    ) -> Option<Vec<(NodeId, FragmentPlan)>> {
        let text = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n";
        let setup = Setup::from_script(&JobScript::parse(text, None).unwrap());
        let spec = InstanceSpec { capacity, preference, ..setup.instance.unwrap() };
        let request =
            Request::CreatePersistent { name: name.into(), owner: ROOT, spec, public: false };
        let known: Vec<InstanceId> = self.fragments.keys().copied().collect();
        match self.request(request) {
            Ok(_) => {
                let instances = self.fragments.iter();
                let new = instances.filter(|(id, _)| !known.contains(id));
                let new: Vec<_> = new.flat_map(|(_, fragments)| fragments.values()).collect();
                Some(new.into_iter().cloned().collect())
            }
            Err(failure) => {
                assert_eq!(failure.cause, Cause::Full, "{failure}");
                None
            }
        }
    }

    fn destroy(&mut self, name: &str) {
        let request = Request::DestroyPersistent { name: name.into(), hurry: true };
        self.request(request).unwrap();
    }
}

fn reports(effects: Vec<StorageEffect>) -> Vec<ControllerInput> {
    let report = |effect| match effect {
        StorageEffect::Report(report) => Some(ControllerInput::Report(report)),
        _ => None,
    };
    effects.into_iter().filter_map(report).collect()
}

/// A random request: granules, odd sizes and whole nodes.
fn random_request(random: &mut RandomSequence) -> (Capacity, OptimizationStrategy) {
    let capacity = match random.below(10) {
        0 => Capacity::Nodes(1 + random.below(6)),
        1 => Capacity::Bytes(Bytes(1 + random.next_u64() % GRANULARITY.0)),
        _ => Capacity::Bytes(Bytes(random.next_u64() % (60 * GRANULARITY.0) + 1)),
    };
    let preference = [
        OptimizationStrategy::Bandwidth,
        OptimizationStrategy::Interference,
        OptimizationStrategy::Wear,
    ];
    (capacity, preference[random.below(3) as usize])
}

/// Asserts that the nodes and their granules are equal, and the node of random bytes.
fn assert_same(
    fragments: &[(NodeId, FragmentPlan)],
    instance: &Instance,
    machine_node: &BTreeMap<NodeId, u32>,
    random: &mut RandomSequence,
) {
    let mut by_place = fragments.to_vec();
    by_place.sort_by_key(|(_, plan)| plan.place.node);
    let nodes: Vec<u32> = by_place.iter().map(|(id, _)| machine_node[id]).collect();
    assert_eq!(nodes, instance.nodes());
    let granules: Vec<u64> = by_place.iter().map(|(_, plan)| plan.granules).collect();
    let shares: Vec<u64> = instance.shares().iter().map(|s| s.granules).collect();
    assert_eq!(granules, shares);
    for _ in 0..BYTES_PER_INSTANCE {
        let (file, offset) = (random.next_u64(), random.next_u64() >> 20);
        let layout = by_place[0].1.place.layout();
        let extent = layout.extents(Ino(file), offset, 1).next().unwrap();
        let node = nodes[usize::from(extent.node.0)];
        assert_eq!(node, instance.node_of(file, offset), "file {file}, {offset}");
        let twin = instance.layout().extents(file, offset, 1).next().unwrap();
        assert_eq!(extent, twin);
    }
}

#[test]
fn controller_and_twin_choose_equal_nodes_for_1000_random_requests() {
    let machine = machine();
    let storage_nodes = machine.nodes_of_kind(NodeKind::BurstBuffer);
    let burst_buffer = machine.burst_buffer.as_ref().unwrap();
    let mut pool = StoragePool::new(&machine, burst_buffer, GRANULARITY);
    let node_bytes = burst_buffer.card_capacity.0 * u64::from(burst_buffer.cards);
    let granules = node_bytes / GRANULARITY.0;
    assert!(granules > 10, "{granules} granules per node");
    let mut run = ControllerRun::new(&machine, storage_nodes.len(), granules);
    let machine_node: BTreeMap<NodeId, u32> =
        run.nodes.keys().copied().zip(storage_nodes).collect();

    let mut random = RandomSequence::new(7);
    let mut live: Vec<(String, Instance)> = Vec::new();
    let (mut satisfied, mut refused) = (0, 0);
    for number in 0..REQUESTS {
        let (capacity, preference) = random_request(&mut random);
        let name = format!("i{number}");
        let fragments = run.create(&name, capacity, preference);
        match (fragments, pool.allocate(capacity, preference)) {
            (Some(fragments), Ok(instance)) => {
                assert_same(&fragments, &instance, &machine_node, &mut random);
                live.push((name, instance));
                satisfied += 1;
            }
            (None, Err(_)) => refused += 1,
            (fragments, instance) => panic!("{capacity:?}: {fragments:?}, {instance:?}"),
        }
        while !live.is_empty() && random.below(5) < 2 {
            let (name, instance) = live.swap_remove(random.below(live.len() as u32) as usize);
            run.destroy(&name);
            pool.release(&instance);
        }
    }
    assert!(satisfied > 600 && refused > 50, "{satisfied}, {refused}");
}
