//! Load-balanced instances: their cost, the choice of replicas, and readers whose replica cannot be
//! read.

use crate::harness;
use std::collections::{BTreeMap, BTreeSet};

use forebay_control::controller::{Cause, ControllerInput, Request, Settings};
use forebay_control::messages::{
    ComputeCommand, ComputeReport, FragmentId, Report, StagePlan, StageProgress, StampedCommand,
    StateStamp, StorageCommand, StorageReport,
};
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use harness::{ADA, ControllerHarness, SimPeers};

const NODES: u32 = 3;

/// A mount command: host, generation and storage nodes.
type MountCommand = (String, u64, Vec<NodeId>);

/// Storage nodes and compute nodes that obey every command at once.
#[derive(Default)]
struct ObedientPeers {
    /// Sequence number of the last report.
    sequence: u64,
    /// Storage nodes that neither receive nor send messages.
    silent: BTreeSet<u32>,
    /// Storage nodes whose replicas cannot be mounted.
    unmountable: BTreeSet<u32>,
    fragments: BTreeMap<u32, BTreeSet<FragmentId>>,
    /// Stages that were started, with their nodes.
    stages: Vec<(u32, StagePlan)>,
    mounts: Vec<MountCommand>,
}

impl ObedientPeers {
    fn storage_report(
        &mut self,
        node: NodeId,
        body: StorageReport,
        inputs: &mut Vec<ControllerInput>,
    ) {
        if self.silent.contains(&node.0) {
            return;
        }
        self.sequence += 1;
        inputs.push(ControllerInput::Report(Report::Storage {
            node,
            disk: 1,
            sequence: self.sequence,
            body,
        }));
    }

    /// The storage node from which each host was last told to read.
    fn readers(&self) -> BTreeMap<&str, u32> {
        let last = self.mounts.iter();
        last.map(|(host, _, nodes)| (host.as_str(), nodes[0].0)).collect()
    }
}

impl SimPeers for ObedientPeers {
    fn tick(&mut self, inputs: &mut Vec<ControllerInput>) {
        for node in 0..NODES {
            let fragments = self.fragments.entry(node).or_default();
            let heartbeat = StorageReport::Heartbeat {
                fragments: fragments.iter().copied().collect(),
                written: Bytes(0),
                obeyed: StateStamp::default(),
                copies_instances: true,
                shares_stages: false,
            };
            self.storage_report(NodeId(node), heartbeat, inputs);
        }
    }

    fn storage_command(
        &mut self,
        node: NodeId,
        stamped: StampedCommand<StorageCommand>,
        inputs: &mut Vec<ControllerInput>,
    ) {
        if self.silent.contains(&node.0) {
            return;
        }
        let report = match stamped.command {
            StorageCommand::CreateFragment(plan) => {
                assert_eq!(plan.place.nodes, 1, "a replica is complete on its own");
                let fragments = self.fragments.entry(node.0).or_default();
                fragments.insert(plan.fragment);
                StorageReport::FragmentReady(plan.fragment)
            }
            StorageCommand::RemoveFragment(fragment) => {
                self.fragments.entry(node.0).or_default().remove(&fragment);
                StorageReport::FragmentRemoved(fragment)
            }
            StorageCommand::StartStage(plan) => {
                self.stages.push((node.0, plan.clone()));
                StorageReport::StageDone(plan.stage, plan.attempt, StageProgress::default())
            }
            StorageCommand::CancelStage(stage) => StorageReport::StageCancelled(stage),
            StorageCommand::EndShare(_) => panic!("stages of replicas are not shared"),
            StorageCommand::FenceHosts { .. } => panic!("mounts of replicas write nothing"),
        };
        self.storage_report(node, report, inputs);
    }

    fn compute_command(
        &mut self,
        host: String,
        stamped: StampedCommand<ComputeCommand>,
        inputs: &mut Vec<ControllerInput>,
    ) {
        let body = match stamped.command {
            ComputeCommand::Mount(plan) => {
                let (activation, generation) = (plan.activation, plan.generation);
                assert_eq!(plan.addresses.len(), 1);
                let fails = self.unmountable.contains(&plan.nodes[0].0);
                self.mounts.push((host.clone(), generation, plan.nodes));
                match fails {
                    true => ComputeReport::MountFailed(activation, generation, "refused".into()),
                    false => ComputeReport::Mounted(activation, generation),
                }
            }
            ComputeCommand::Unmount(activation) => ComputeReport::Unmounted(activation),
        };
        self.sequence += 1;
        inputs.push(ControllerInput::Report(Report::Compute {
            host,
            sequence: self.sequence,
            body,
        }));
    }
}

type TestPool = ControllerHarness<ObedientPeers>;

fn test_pool() -> TestPool {
    ControllerHarness::new(Settings::default(), ObedientPeers::default(), NODES)
}

const JOB: &str = "#DW jobdw capacity=3GiB type=scratch access_mode=ldbalance\n\
                   #DW stage_in type=file source=/pfs/a destination=$DW_JOB_LDBALANCE/a\n\
                   #DW stage_in type=file source=/pfs/b destination=$DW_JOB_LDBALANCE/b\n";

#[test]
fn each_node_stores_a_replica_that_occupies_granules() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    assert_eq!(pool.used_granules(), [3, 3, 3]);
    assert_eq!(pool.controller.status().instances[0].capacity, Bytes(9 << 30));
    let stage_in = Request::StageIn { token: "7".into() };
    pool.request(ADA, stage_in).unwrap();
    let mut filled: Vec<(u32, u32)> =
        pool.peers.stages.iter().map(|(n, p)| (*n, p.directive.line)).collect();
    filled.sort();
    assert_eq!(filled, [(0, 2), (0, 3), (1, 2), (1, 3), (2, 2), (2, 3)]);
    let paths = pool.controller.mount_variables("7", ADA).unwrap();
    assert_eq!(paths[0].0, "DW_JOB_LDBALANCE");
    // A stage of the running job is refused: it would fill one replica only.
    let what = pool.peers.stages[0].1.directive.clone();
    let later = Request::BeginStage { token: "7".into(), what };
    assert_eq!(pool.request(ADA, later).unwrap_err().cause, Cause::Invalid);
    // Seven granules are free on each node, and no more can be allocated.
    let more = "#DW jobdw capacity=8GiB type=scratch access_mode=ldbalance\n";
    let full = pool.setup(ADA, "8", more).unwrap_err();
    assert_eq!(full.cause, Cause::Full);
    assert!(full.reason.contains("space for a complete copy"), "{full}");
    pool.setup(ADA, "9", &more.replace("8GiB", "7GiB")).unwrap();
    assert_eq!(pool.used_granules(), [10, 10, 10]);
    pool.teardown(ADA, "7", false).unwrap();
    assert_eq!(pool.used_granules(), [7, 7, 7]);
}

#[test]
fn readers_are_spread_over_replicas_and_leave_an_offline_one() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    pool.request(ADA, Request::StageIn { token: "7".into() }).unwrap();
    pool.activate(ADA, "7", &["a", "b", "c", "d", "e", "f"]).unwrap();
    let readers = pool.peers.readers();
    let of = |node| readers.values().filter(|of| **of == node).count();
    assert_eq!([of(0), of(1), of(2)], [2, 2, 2], "{readers:?}");
    let before: BTreeMap<String, u32> =
        readers.iter().map(|(host, node)| ((*host).to_owned(), *node)).collect();
    let commands = pool.peers.mounts.len();

    // After nine seconds the node is not offline yet.
    pool.peers.silent.insert(1);
    pool.advance_ms(9_000);
    assert_eq!(pool.peers.mounts.len(), commands);
    pool.advance_ms(3_000);
    let readers = pool.peers.readers();
    for (host, node) in &before {
        let now = readers[host.as_str()];
        assert_eq!(now == *node, *node != 1, "{host} reads {now}");
    }
    // Its readers are spread over the other replicas, with one command each.
    let of = |node| readers.values().filter(|of| **of == node).count();
    assert_eq!([of(0), of(1), of(2)], [3, 0, 3]);
    assert_eq!(pool.peers.mounts.len(), commands + 2);
    assert!(pool.peers.mounts[commands..].iter().all(|(_, generation, _)| *generation == 2));

    // No reader is moved back.
    pool.peers.silent.clear();
    pool.advance_ms(30_000);
    assert_eq!(pool.peers.mounts.len(), commands + 2);
}

#[test]
fn replica_that_fails_to_mount_is_skipped() {
    let mut first = test_pool();
    first.setup(ADA, "7", JOB).unwrap();
    first.request(ADA, Request::StageIn { token: "7".into() }).unwrap();
    first.peers.unmountable.extend([0, 1]);
    first.activate(ADA, "7", &["a", "b", "c"]).unwrap();
    assert!(first.peers.readers().values().all(|node| *node == 2));
    let mut other = test_pool();
    other.setup(ADA, "7", JOB).unwrap();
    other.request(ADA, Request::StageIn { token: "7".into() }).unwrap();
    other.peers.unmountable.extend([0, 1, 2]);
    let failed = other.activate(ADA, "7", &["a"]).unwrap_err();
    assert!(failed.reason.contains("refused"), "{failed}");
    assert_eq!(other.peers.mounts.len(), 3, "each once: {:?}", other.peers.mounts);
}

#[test]
fn setup_continues_without_a_replica_that_is_never_created() {
    let mut pool = test_pool();
    pool.peers.silent.insert(2);
    pool.setup(ADA, "7", JOB).unwrap();
    let stage_in = Request::StageIn { token: "7".into() };
    pool.request(ADA, stage_in).unwrap();
    assert_eq!(pool.peers.stages.len(), 4);
    pool.activate(ADA, "7", &["a", "b", "c"]).unwrap();
    assert!(!pool.peers.readers().values().any(|node| *node == 2));
}
