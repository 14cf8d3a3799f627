//! A controller and the peers that it orders about, in one place and in turns of half a second.

use forebay_control::controller::*;
use forebay_control::messages::*;
use forebay_control::records::Change;
use forebay_job_script::JobScript;
use forebay_units::Bytes;

pub const ROOT: Owner = Owner { uid: 0, gid: 0 };
pub const ADA: Owner = Owner {
    uid: 1000,
    gid: 100,
};

/// Storage nodes and hosts, and where the controller's records go.
pub trait SimPeers {
    /// Makes records durable.
    fn persist(&mut self, _: &[Change]) {}
    /// What they report by themselves.
    fn tick(&mut self, inputs: &mut Vec<ControllerInput>);
    /// Does what one of them is told, and reports it.
    fn carry_out(&mut self, peer: Peer, order: StampedCommand, inputs: &mut Vec<ControllerInput>);
}

/// A controller with one pool, `fast`, of nodes with ten granules of 1 GiB each.
pub struct ControllerHarness<P> {
    pub controller: Controller,
    pub peers: P,
    pub now: u64,
    number: u64,
}

impl<P: SimPeers> ControllerHarness<P> {
    /// Nodes are `bb0`, `bb1`, …
    pub fn new(controller: Controller, peers: P, nodes: u32) -> ControllerHarness<P> {
        let mut driven = ControllerHarness {
            controller,
            peers,
            now: 1000,
            number: 0,
        };
        let pool = Request::AddPool {
            name: "fast".into(),
            granularity: Bytes(1 << 30),
            equalize_fragments: false,
        };
        driven.request(ROOT, pool).unwrap();
        for node in 0..nodes {
            let add = Request::AddNode {
                name: format!("bb{node}"),
                pool: "fast".into(),
                granules: 10,
                address: Some(format!("bb{node}:7511")),
            };
            driven.request(ROOT, add).unwrap();
        }
        driven
    }

    /// Asks, and lets time pass until there is an answer.
    pub fn request(&mut self, caller: Owner, request: Request) -> Outcome {
        self.number += 1;
        let envelope = Envelope {
            client: 1,
            number: self.number,
            caller,
            request,
        };
        let mut inputs = vec![ControllerInput::Request(Box::new(envelope))];
        for _ in 0..1000 {
            if let Some(outcome) = self.turn(std::mem::take(&mut inputs)) {
                return outcome;
            }
        }
        panic!("never answered");
    }

    /// Nothing is asked for so many milliseconds.
    pub fn advance_ms(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 500 {
            self.turn(Vec::new());
        }
    }

    /// Half a second passes; the answer to the last request, if it comes in it.
    fn turn(&mut self, mut inputs: Vec<ControllerInput>) -> Option<Outcome> {
        self.now += 500;
        inputs.push(ControllerInput::Tick);
        self.peers.tick(&mut inputs);
        let mut answer = None;
        while !inputs.is_empty() {
            for input in std::mem::take(&mut inputs) {
                for effect in self.controller.step(UnixMillis(self.now), input) {
                    match effect {
                        ControllerEffect::Persist(changes) => self.peers.persist(&changes),
                        ControllerEffect::Reply {
                            number, outcome, ..
                        } if number == self.number => answer = Some(outcome),
                        ControllerEffect::Reply { .. } => {}
                        ControllerEffect::Send(peer, order) => {
                            self.peers.carry_out(peer, order, &mut inputs);
                        }
                    }
                }
            }
        }
        answer
    }

    /// Has the job of a script set up.
    pub fn setup(&mut self, caller: Owner, token: &str, script: &str) -> Outcome {
        let setup = Setup::from_script(&JobScript::parse(script, None).unwrap());
        let request = Request::Setup {
            token: token.into(),
            owner: caller,
            creator: "test".into(),
            setup,
        };
        self.request(caller, request)
    }
}
