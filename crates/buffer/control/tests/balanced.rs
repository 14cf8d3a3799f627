//! Load-balanced instances as the controller sees them: what they cost, who reads which copy, and
//! what becomes of readers whose copy cannot be read.
#![allow(
    clippy::unwrap_used,
    reason = "a test: what cannot be unwrapped has failed"
)]

mod driven;

use std::collections::{BTreeMap, BTreeSet};

use driven::{ADA, ControllerHarness, SimPeers};
use forebay_control::controller::*;
use forebay_control::messages::*;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

const NODES: u32 = 3;

/// Nodes and hosts that do at once what they are told.
#[derive(Default)]
struct Willing {
    /// Reports so far.
    count: u64,
    /// Nodes that say nothing.
    silent: BTreeSet<u32>,
    /// Nodes whose copies hosts cannot mount.
    unmountable: BTreeSet<u32>,
    fragments: BTreeMap<u32, BTreeSet<FragmentId>>,
    /// Stages begun, with the node.
    stages: Vec<(u32, StagePlan)>,
    /// Mounts ordered: host, turn and nodes.
    mounts: Vec<(String, u32, Vec<NodeId>)>,
}

impl Willing {
    fn report(&mut self, from: Peer, what: ReportBody, inputs: &mut Vec<ControllerInput>) {
        if matches!(&from, Peer::StorageNode(node) if self.silent.contains(&node.0)) {
            return;
        }
        self.count += 1;
        inputs.push(ControllerInput::Report(Report {
            from,
            sequence: self.count,
            body: what,
        }));
    }

    /// The node that each host was last told to read from.
    fn readers(&self) -> BTreeMap<&str, u32> {
        let last = self.mounts.iter();
        last.map(|(host, _, nodes)| (host.as_str(), nodes[0].0))
            .collect()
    }
}

impl SimPeers for Willing {
    fn tick(&mut self, inputs: &mut Vec<ControllerInput>) {
        for node in 0..NODES {
            let fragments = self.fragments.entry(node).or_default();
            let alive = ReportBody::StorageHeartbeat(fragments.iter().copied().collect());
            self.report(Peer::StorageNode(NodeId(node)), alive, inputs);
        }
    }

    fn carry_out(&mut self, peer: Peer, order: StampedCommand, inputs: &mut Vec<ControllerInput>) {
        if matches!(&peer, Peer::StorageNode(node) if self.silent.contains(&node.0)) {
            return;
        }
        let news = match (&peer, order.command) {
            (Peer::StorageNode(node), Command::SetupFragment(plan)) => {
                assert_eq!(plan.place.nodes, 1, "a copy stands by itself");
                let fragments = self.fragments.entry(node.0).or_default();
                fragments.insert(plan.fragment);
                ReportBody::FragmentReady(plan.fragment)
            }
            (Peer::StorageNode(node), Command::RemoveFragment(fragment)) => {
                self.fragments.entry(node.0).or_default().remove(&fragment);
                ReportBody::FragmentRemoved(fragment)
            }
            (Peer::StorageNode(node), Command::StartStage(plan)) => {
                self.stages.push((node.0, plan.clone()));
                ReportBody::StageDone(plan.stage, plan.attempt, StageProgress::default())
            }
            (Peer::StorageNode(_), Command::CancelStage(stage)) => {
                ReportBody::StageCancelled(stage)
            }
            (Peer::ComputeNode(host), Command::Mount(plan)) => {
                let (activation, turn) = (plan.activation, plan.generation);
                assert_eq!(plan.addresses.len(), 1);
                let bad = self.unmountable.contains(&plan.nodes[0].0);
                self.mounts.push((host.clone(), turn, plan.nodes));
                match bad {
                    true => ReportBody::MountFailed(activation, turn, "refused".into()),
                    false => ReportBody::Mounted(activation, turn),
                }
            }
            (Peer::ComputeNode(_), Command::Unmount(activation)) => {
                ReportBody::Unmounted(activation)
            }
            other => panic!("{other:?}"),
        };
        self.report(peer, news, inputs);
    }
}

type Site = ControllerHarness<Willing>;

fn site() -> Site {
    let controller = Controller::restore(Settings::default(), Vec::new()).unwrap();
    ControllerHarness::new(controller, Willing::default(), NODES)
}

fn activate(site: &mut Site, hosts: &[&str]) -> Outcome {
    let request = Request::Activate {
        token: "7".into(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
    };
    site.request(ADA, request)
}

fn used(site: &Site) -> Vec<u64> {
    let status = site.controller.status();
    status.nodes.iter().map(|node| node.used).collect()
}

const JOB: &str = "#DW jobdw capacity=3GiB type=scratch access_mode=ldbalance\n\
                   #DW stage_in type=file source=/pfs/a destination=$DW_JOB_LDBALANCE/a\n\
                   #DW stage_in type=file source=/pfs/b destination=$DW_JOB_LDBALANCE/b\n";

#[test]
fn each_node_gets_a_copy_of_everything_and_all_copies_count() {
    let mut site = site();
    site.setup(ADA, "7", JOB).unwrap();
    assert_eq!(used(&site), [3, 3, 3]);
    assert_eq!(site.controller.real_size("7", ADA).unwrap(), Bytes(9 << 30));
    let stage_in = Request::StageIn { token: "7".into() };
    site.request(ADA, stage_in).unwrap();
    let mut filled: Vec<(u32, u32)> = site
        .peers
        .stages
        .iter()
        .map(|(n, p)| (*n, p.directive.line))
        .collect();
    filled.sort();
    assert_eq!(filled, [(0, 2), (0, 3), (1, 2), (1, 3), (2, 2), (2, 3)]);
    let paths = site.controller.mount_variables("7", ADA).unwrap();
    assert_eq!(paths[0].0, "DW_JOB_LDBALANCE");
    // No stage of a running job: it would fill one copy alone.
    let what = site.peers.stages[0].1.directive.clone();
    let later = Request::BeginStage {
        token: "7".into(),
        what,
    };
    assert_eq!(site.request(ADA, later).unwrap_err().cause, Cause::Invalid);
    // Seven granules are free on each node, and never more than that is given.
    let more = "#DW jobdw capacity=8GiB type=scratch access_mode=ldbalance\n";
    let full = site.setup(ADA, "8", more).unwrap_err();
    assert_eq!(full.cause, Cause::Full);
    assert!(full.reason.contains("room for a whole copy"), "{full}");
    site.setup(ADA, "9", &more.replace("8GiB", "7GiB")).unwrap();
    assert_eq!(used(&site), [10, 10, 10]);
    let end = Request::Teardown {
        token: "7".into(),
        hurry: false,
    };
    site.request(ADA, end).unwrap();
    assert_eq!(used(&site), [7, 7, 7]);
}

#[test]
fn hosts_go_round_the_copies_and_leave_one_whose_node_is_away() {
    let mut site = site();
    site.setup(ADA, "7", JOB).unwrap();
    activate(&mut site, &["a", "b", "c", "d", "e", "f"]).unwrap();
    let readers = site.peers.readers();
    let of = |node| readers.values().filter(|of| **of == node).count();
    assert_eq!([of(0), of(1), of(2)], [2, 2, 2], "{readers:?}");
    let before: BTreeMap<String, u32> = readers
        .iter()
        .map(|(host, node)| ((*host).to_owned(), *node))
        .collect();
    let orders = site.peers.mounts.len();

    // Nine seconds are not long enough to count as away.
    site.peers.silent.insert(1);
    site.advance_ms(9_000);
    assert_eq!(site.peers.mounts.len(), orders);
    site.advance_ms(3_000);
    let readers = site.peers.readers();
    for (host, node) in &before {
        let now = readers[host.as_str()];
        assert_eq!(now == *node, *node != 1, "{host} reads {now}");
    }
    // Its readers are divided between the others, and told so once.
    let of = |node| readers.values().filter(|of| **of == node).count();
    assert_eq!([of(0), of(1), of(2)], [3, 0, 3]);
    assert_eq!(site.peers.mounts.len(), orders + 2);
    assert!(
        site.peers.mounts[orders..]
            .iter()
            .all(|(_, turn, _)| *turn == 2)
    );

    // Nobody is moved back.
    site.peers.silent.clear();
    site.advance_ms(30_000);
    assert_eq!(site.peers.mounts.len(), orders + 2);
}

#[test]
fn a_copy_that_cannot_be_mounted_is_passed_over() {
    let mut first = site();
    first.setup(ADA, "7", JOB).unwrap();
    first.peers.unmountable.extend([0, 1]);
    activate(&mut first, &["a", "b", "c"]).unwrap();
    assert!(first.peers.readers().values().all(|node| *node == 2));
    let mut other = site();
    other.setup(ADA, "7", JOB).unwrap();
    other.peers.unmountable.extend([0, 1, 2]);
    let failed = activate(&mut other, &["a"]).unwrap_err();
    assert!(failed.reason.contains("refused"), "{failed}");
    assert_eq!(
        other.peers.mounts.len(),
        3,
        "each once: {:?}",
        other.peers.mounts
    );
}

#[test]
fn a_copy_that_is_never_made_is_done_without() {
    let mut site = site();
    site.peers.silent.insert(2);
    site.setup(ADA, "7", JOB).unwrap();
    let stage_in = Request::StageIn { token: "7".into() };
    site.request(ADA, stage_in).unwrap();
    assert_eq!(site.peers.stages.len(), 4);
    activate(&mut site, &["a", "b", "c"]).unwrap();
    assert!(!site.peers.readers().values().any(|node| *node == 2));
}
