//! A storage node is given up: what is refused, what is lost, and what goes on without it.
#![allow(clippy::unwrap_used, reason = "what cannot be unwrapped has failed")]

mod driven;

use std::collections::{BTreeMap, BTreeSet};

use driven::{ADA, ControllerHarness, ROOT, SimPeers};
use forebay_control::controller::*;
use forebay_control::messages::*;
use forebay_control::records::Change;
use forebay_control::storage_node::{self, StorageNode};
use forebay_policy::pool::NodeId;

type Records = BTreeMap<(String, u64), Vec<u8>>;

/// Nodes with ten granules each, of which some say nothing; copies on them never end.
struct Pool {
    nodes: Vec<StorageNode>,
    silent: BTreeSet<u32>,
    records: Records,
}

impl Pool {
    fn node(
        &mut self,
        id: u32,
        input: storage_node::StorageInput,
        inputs: &mut Vec<ControllerInput>,
    ) {
        for effect in self.nodes[id as usize].step(input) {
            let next = match effect {
                storage_node::StorageEffect::Report(report) => {
                    inputs.push(ControllerInput::Report(report));
                    continue;
                }
                storage_node::StorageEffect::Create(plan) => {
                    storage_node::StorageInput::Created(plan.fragment, Ok(()))
                }
                storage_node::StorageEffect::Destroy(plan) => {
                    storage_node::StorageInput::Destroyed(plan.fragment, Ok(()))
                }
                storage_node::StorageEffect::StopMover(stage, attempt) => {
                    storage_node::StorageInput::MoverEnded(
                        stage,
                        attempt,
                        storage_node::MoverOutcome::Stopped,
                    )
                }
                storage_node::StorageEffect::StartMover(_)
                | storage_node::StorageEffect::Persist(_) => continue,
            };
            self.node(id, next, inputs);
        }
    }
}

impl SimPeers for Pool {
    fn persist(&mut self, changes: &[Change]) {
        for change in changes {
            let key = (change.table.to_owned(), change.key);
            match change.value.clone() {
                Some(value) => self.records.insert(key, value),
                None => self.records.remove(&key),
            };
        }
    }

    fn tick(&mut self, inputs: &mut Vec<ControllerInput>) {
        for id in 0..self.nodes.len() as u32 {
            if !self.silent.contains(&id) {
                self.node(id, storage_node::StorageInput::Tick, inputs);
            }
        }
    }

    fn carry_out(&mut self, peer: Peer, order: StampedCommand, inputs: &mut Vec<ControllerInput>) {
        if let Peer::StorageNode(NodeId(id)) = peer
            && !self.silent.contains(&id)
        {
            self.node(id, storage_node::StorageInput::Command(order), inputs);
        }
    }
}

type Site = ControllerHarness<Pool>;

const OFFLINE: u64 = 11_000;
const JOB: &str = "#DW jobdw capacity=6GiB type=scratch access_mode=striped\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/b destination=/pfs/b\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/c destination=/pfs/c\n";

fn site() -> Site {
    let node = |id| StorageNode::restore(NodeId(id), 10, UnixMillis(0), Vec::new()).unwrap();
    let peers = Pool {
        nodes: (0..3).map(node).collect(),
        silent: BTreeSet::new(),
        records: Records::new(),
    };
    let controller = Controller::restore(Settings::default(), Vec::new()).unwrap();
    ControllerHarness::new(controller, peers, 3)
}

fn forget(site: &mut Site, caller: Owner, node: u32, lost: bool) -> Outcome {
    let node = NodeId(node);
    site.request(
        caller,
        Request::ForgetNode {
            node,
            allow_data_loss: lost,
        },
    )
}

fn lost(outcome: Outcome) -> Vec<String> {
    match outcome.unwrap() {
        Answer::NodeForgotten(losses) => losses.into_iter().map(|loss| loss.label).collect(),
        other => panic!("{other:?}"),
    }
}

fn teardown(site: &mut Site, token: &str) -> Outcome {
    let (token, hurry) = (token.to_owned(), true);
    site.request(ADA, Request::Teardown { token, hurry })
}

fn quantity(site: &Site) -> (u64, u64) {
    let pool = &site.controller.status().pools[0];
    (pool.quantity, pool.free)
}

/// The controller is killed and takes up what it has made durable.
fn restart(site: &mut Site) {
    let rows = site.peers.records.iter();
    let rows: Vec<_> = rows
        .map(|((table, key), value)| (table.clone(), *key, value.clone()))
        .collect();
    site.controller = Controller::restore(Settings::default(), rows).unwrap();
}

#[test]
fn only_an_operator_gives_up_a_node_and_only_one_that_is_offline() {
    let mut site = site();
    site.setup(ADA, "7", JOB).unwrap();
    let refused = |outcome: Outcome| {
        let failure = outcome.unwrap_err();
        (failure.cause, failure.reason)
    };
    assert_eq!(refused(forget(&mut site, ADA, 1, true)).0, Cause::Denied);
    assert_eq!(refused(forget(&mut site, ROOT, 9, true)).0, Cause::NotFound);
    let (cause, reason) = refused(forget(&mut site, ROOT, 1, true));
    assert_eq!(cause, Cause::Busy);
    assert!(reason.contains("`bb1` is not offline"), "{reason}");
    assert!(reason.contains("forebay drain bb1"), "{reason}");
    site.peers.silent.insert(1);
    site.advance_ms(OFFLINE);
    // What would be lost is named, and nothing has happened.
    let (cause, reason) = refused(forget(&mut site, ROOT, 1, false));
    assert_eq!(cause, Cause::Busy);
    let named = "job `7` of user 1000, 3 stage-out(s) not done";
    assert!(reason.contains(named), "{reason}");
    assert!(reason.contains("forebay forget bb1 --lost"), "{reason}");
    let status = site.controller.status();
    assert!(status.instances[0].intact && !status.nodes[1].forgotten);
    // A controller that has just started does not know who is alive.
    restart(&mut site);
    let (_, reason) = refused(forget(&mut site, ROOT, 1, true));
    assert!(reason.contains("has just started"), "{reason}");
    site.advance_ms(OFFLINE);
    assert_eq!(lost(forget(&mut site, ROOT, 1, true)), ["7"]);
}

#[test]
fn status_marks_forgotten_nodes_until_they_report_again() {
    let mut site = site();
    let given_up = |site: &Site| {
        let nodes = site.controller.status().nodes;
        [0, 1, 2].map(|id| nodes[id].forgotten)
    };
    assert_eq!(given_up(&site), [false; 3]);
    site.peers.silent.insert(1);
    site.advance_ms(OFFLINE);
    assert_eq!(given_up(&site), [false; 3], "offline is not given up");
    lost(forget(&mut site, ROOT, 1, false));
    assert_eq!(given_up(&site), [false, true, false]);
    // It reports again, empty.
    site.peers.silent.clear();
    site.advance_ms(OFFLINE);
    assert_eq!(given_up(&site), [false; 3]);
}

#[test]
fn what_waits_for_a_lost_node_goes_on_without_it() {
    let mut site = site();
    site.setup(ADA, "7", JOB).unwrap();
    site.setup(ADA, "8", JOB).unwrap();
    let stages = |site: &Site, state: fn(&StageState) -> bool| {
        let stages = site.controller.status().stages.into_iter();
        stages.filter(|s| s.token == "7" && state(&s.state)).count()
    };
    // Each node moves one; none of them ends.
    let envelope = |number, request| {
        ControllerInput::Request(Box::new(Envelope {
            client: 99,
            number,
            caller: ADA,
            request,
        }))
    };
    let token = "7".to_owned();
    let now = UnixMillis(site.now);
    let begin = envelope(1, Request::StageOut { token });
    site.controller.step(now, begin);
    site.advance_ms(2000);
    assert_eq!(stages(&site, |s| *s == StageState::Running), 3);
    site.peers.silent.insert(1);
    site.advance_ms(OFFLINE);
    // One job is being taken down, and that waits for the node.
    let (token, hurry) = ("7".to_owned(), true);
    let now = UnixMillis(site.now);
    let end = envelope(2, Request::Teardown { token, hurry });
    site.controller.step(now, end);
    site.advance_ms(60_000);
    assert_eq!(stages(&site, |s| *s == StageState::Cancelling), 1);
    let mut known = lost(forget(&mut site, ROOT, 1, true));
    known.sort();
    assert_eq!(known, ["7", "8"]);
    // It is known also to a controller that is killed right then, which reads its configuration.
    restart(&mut site);
    let node = Request::AddNode {
        name: "bb1".into(),
        pool: "fast".into(),
        granules: 10,
        address: None,
    };
    site.request(ROOT, node).unwrap();
    assert!(site.controller.status().nodes[1].forgotten);
    site.advance_ms(2000);
    let status = site.controller.status();
    let labels: Vec<&str> = status.instances.iter().map(|i| &*i.label).collect();
    assert_eq!(labels, ["8"], "the other one is gone");
    assert!(!status.instances[0].intact);
    assert_eq!(status.instances[0].nodes.len(), 2);
    assert_eq!(quantity(&site), (20, 16));

    // What was on it cannot be staged out any more, and the reason is said.
    let token = "8".to_owned();
    let failure = site.request(ADA, Request::StageOut { token }).unwrap_err();
    let named = "storage node `bb1`, which held a part of `8`, is lost for good";
    assert!(failure.reason.contains(named), "{failure}");
    teardown(&mut site, "8").unwrap();
    assert!(site.controller.status().sessions.is_empty());
    assert_eq!(quantity(&site), (20, 20));
    // New ones use the others.
    site.setup(ADA, "9", JOB).unwrap();
    assert_eq!(site.controller.status().instances[0].nodes.len(), 2);
}

#[test]
fn a_node_that_comes_back_is_emptied_before_it_gets_anything() {
    let mut site = site();
    for token in ["7", "8"] {
        site.setup(ADA, token, JOB).unwrap();
    }
    site.peers.silent.insert(1);
    site.advance_ms(OFFLINE);
    forget(&mut site, ROOT, 1, true).unwrap();
    teardown(&mut site, "7").unwrap();
    // With what it had, also of the instance that is still in the books.
    assert_eq!(site.peers.nodes[1].fragments().len(), 2);
    let mut inputs = Vec::new();
    site.peers
        .node(1, storage_node::StorageInput::Tick, &mut inputs);
    let mut orders = Vec::new();
    for input in inputs {
        for effect in site.controller.step(UnixMillis(site.now), input) {
            if let ControllerEffect::Send(Peer::StorageNode(NodeId(1)), order) = effect {
                orders.push(order);
            }
        }
    }
    let status = site.controller.status();
    assert!(status.nodes[1].forgotten && !status.nodes[1].online);
    assert_eq!(status.pools[0].quantity, 20, "not offered yet");
    let removes = |order: &StampedCommand| matches!(order.command, Command::RemoveFragment(_));
    assert_eq!(orders.iter().filter(|order| removes(order)).count(), 2);
    site.peers.silent.clear();
    site.advance_ms(3000);
    assert!(site.peers.nodes[1].fragments().is_empty());
    let status = site.controller.status();
    assert!(!status.nodes[1].forgotten && status.nodes[1].online);
    // All of it can be had, though the instance that has lost a part is there.
    assert_eq!(quantity(&site), (30, 26));
    assert!(!status.instances[0].intact);
    site.setup(ADA, "9", JOB).unwrap();
    assert_eq!(site.controller.status().instances[1].nodes.len(), 3);
    teardown(&mut site, "8").unwrap();
    teardown(&mut site, "9").unwrap();
    assert_eq!(quantity(&site), (30, 30));
    assert!(site.peers.nodes.iter().all(|n| n.fragments().is_empty()));
}

#[test]
fn nothing_is_lost_where_there_is_another_copy_or_nothing_was_used() {
    let mut site = site();
    let copied = "#DW jobdw capacity=2GiB type=scratch access_mode=ldbalance\n";
    site.setup(ADA, "7", copied).unwrap();
    let copies = site.controller.status().instances[0].nodes.clone();
    assert_eq!(copies.len(), 2);
    for node in &copies {
        site.peers.silent.insert(node.0);
    }
    site.advance_ms(OFFLINE);
    assert!(lost(forget(&mut site, ROOT, copies[0].0, false)).is_empty());
    let status = site.controller.status();
    assert!(status.instances[0].intact);
    assert_eq!(status.instances[0].nodes, copies[1..]);
    // The other one is the last.
    let failure = forget(&mut site, ROOT, copies[1].0, false).unwrap_err();
    assert!(failure.reason.contains("job `7`"), "{failure}");
    assert_eq!(lost(forget(&mut site, ROOT, copies[1].0, true)), ["7"]);
    assert!(!site.controller.status().instances[0].intact);
    teardown(&mut site, "7").unwrap();
    assert_eq!(quantity(&site), (10, 10));
}
