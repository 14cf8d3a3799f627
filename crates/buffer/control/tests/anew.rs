//! A storage node goes away while an instance is made on it and others.
#![allow(clippy::unwrap_used, reason = "what cannot be unwrapped has failed")]

use std::collections::{BTreeMap, BTreeSet};

use forebay_control::controller::*;
use forebay_control::messages::*;
use forebay_control::storage_node::{self, StorageNode};
use forebay_job_script::JobScript;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

const ROOT: Owner = Owner { uid: 0, gid: 0 };
const NODES: u32 = 3;

struct Site {
    controller: Controller,
    nodes: Vec<StorageNode>,
    now: u64,
    /// Fragments there are.
    made: BTreeMap<FragmentId, (NodeId, FragmentPlan)>,
    answers: Vec<Outcome>,
}

impl Site {
    fn step(&mut self, input: ControllerInput, silent: &[u32]) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.controller.step(UnixMillis(self.now), input) {
                match effect {
                    ControllerEffect::Reply { outcome, .. } => self.answers.push(outcome),
                    ControllerEffect::Send(Peer::StorageNode(id), order)
                        if !silent.contains(&id.0) =>
                    {
                        inputs.extend(self.node(id, storage_node::StorageInput::Command(order)));
                    }
                    _ => {}
                }
            }
        }
    }

    /// What a node reports, its orders carried out.
    fn node(&mut self, id: NodeId, input: storage_node::StorageInput) -> Vec<ControllerInput> {
        let mut reports = Vec::new();
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for effect in self.nodes[id.0 as usize].step(input) {
                match effect {
                    storage_node::StorageEffect::Report(report) => {
                        reports.push(ControllerInput::Report(report))
                    }
                    storage_node::StorageEffect::Create(plan) => {
                        inputs.push(storage_node::StorageInput::Created(plan.fragment, Ok(())));
                        self.made.insert(plan.fragment, (id, plan));
                    }
                    storage_node::StorageEffect::Destroy(plan) => {
                        inputs.push(storage_node::StorageInput::Destroyed(plan.fragment, Ok(())));
                        self.made.remove(&plan.fragment);
                    }
                    _ => {}
                }
            }
        }
        reports
    }

    fn second(&mut self, silent: &[u32]) {
        self.now += 1000;
        for id in (0..NODES).filter(|id| !silent.contains(id)) {
            for report in self.node(NodeId(id), storage_node::StorageInput::Tick) {
                self.step(report, silent);
            }
        }
        self.step(ControllerInput::Tick, silent);
    }

    fn ask(&mut self, number: u64, request: Request, silent: &[u32]) {
        let envelope = Envelope {
            client: 1,
            number,
            caller: ROOT,
            request,
        };
        self.step(ControllerInput::Request(Box::new(envelope)), silent);
    }
}

#[test]
fn all_fragments_are_made_again_and_know_the_same_places() {
    let node = |id| StorageNode::restore(NodeId(id), 10, UnixMillis(0), Vec::new()).unwrap();
    let mut site = Site {
        controller: Controller::restore(Settings::default(), Vec::new()).unwrap(),
        nodes: (0..NODES).map(node).collect(),
        now: 1000,
        made: BTreeMap::new(),
        answers: Vec::new(),
    };
    let pool = Request::AddPool {
        name: "fast".into(),
        granularity: Bytes(1 << 30),
        equalize_fragments: false,
    };
    site.ask(1, pool, &[]);
    for id in 0..NODES {
        let request = Request::AddNode {
            name: format!("bb{id}"),
            pool: "fast".into(),
            granules: 10,
            address: Some(format!("10.0.0.{id}:7511")),
        };
        site.ask(u64::from(id) + 2, request, &[]);
    }
    site.second(&[]);
    site.answers.clear();

    // One of three nodes never hears that it is to make its part.
    let script = "#DW jobdw capacity=6GiB type=scratch access_mode=striped\n\
                  #DW stage_in type=file source=/pfs/a destination=$DW_JOB_STRIPED/a\n";
    let setup = Setup::from_script(&JobScript::parse(script, None).unwrap());
    let request = Request::Setup {
        token: "7".into(),
        owner: Owner { uid: 7, gid: 7 },
        creator: "test".into(),
        setup,
    };
    site.ask(9, request, &[2]);
    assert_eq!(site.made.len(), 2);
    for _ in 0..15 {
        site.second(&[2]);
    }
    assert_eq!(site.answers.len(), 1, "{:?}", site.answers);
    assert!(site.answers[0].is_ok());

    let made: Vec<&(NodeId, FragmentPlan)> = site.made.values().collect();
    let plans = || made.iter().map(|(_, plan)| plan);
    let nodes: BTreeSet<u32> = made.iter().map(|(node, _)| node.0).collect();
    assert_eq!((made.len(), nodes), (2, BTreeSet::from([0, 1])));
    assert_eq!(plans().map(|plan| plan.granules).sum::<u64>(), 6);
    let peers: Vec<String> = made
        .iter()
        .map(|(node, _)| format!("10.0.0.{}:7511", node.0))
        .collect();
    for (place, plan) in plans().enumerate() {
        assert_eq!(plan.instance, made[0].1.instance);
        assert_eq!(usize::from(plan.place.node.0), place);
        assert_eq!((plan.place.nodes, &plan.place.peers), (2, &peers));
    }
    let state = site.controller.state();
    let session = state.session("7").unwrap().1;
    assert_eq!(session.instance, Some(made[0].1.instance));
    let staged = state.stages.iter().map(|(_, stage)| stage.instance);
    assert!(staged.eq([made[0].1.instance]));

    // The node that comes back gives away what is no longer wanted of it, and nothing is left.
    site.second(&[]);
    site.second(&[]);
    assert_eq!(site.controller.state().instances.iter().count(), 1);
    assert_eq!(site.controller.state().fragments.iter().count(), 2);
}
