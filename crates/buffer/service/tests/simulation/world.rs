//! Simulated machines, network and time.

mod machines;

use std::collections::{BTreeMap, BTreeSet};

use forebay_model::jobscript::Direction;
use forebay_model::units::Bytes;
use forebay_policy::pool::NodeId;
use forebay_service::controller::{
    self, Controller, Envelope, FragmentState, Outcome, Request, Settings,
};
use forebay_service::host::{self, Host};
use forebay_service::node::{self, Copied, Node};
use forebay_service::protocol::*;
use forebay_service::table::Change;

use crate::jobs::{Step, User};
use crate::random::Random;
use crate::truth::Truth;

const GRANULE: u64 = 16 << 20;
const NODES: u32 = 4;
const HOSTS: usize = 3;

/// How hard the world is, each in a thousand.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub lose: u64,
    pub repeat: u64,
    pub delay: u64,
    /// A crash before an effect.
    pub crash: u64,
    /// A crashed node has lost its disk.
    pub lose_disk: u64,
    pub fail_copy: u64,
    /// Faults end at this time, so that everything can come to its end.
    pub until: u64,
}

impl Faults {
    pub fn none() -> Faults {
        Faults {
            lose: 0,
            repeat: 0,
            delay: 0,
            crash: 0,
            lose_disk: 0,
            fail_copy: 0,
            until: 0,
        }
    }

    pub fn of(seed: u64) -> Faults {
        let mut random = Random::new(seed ^ 0xfa17);
        Faults {
            lose: random.below(250),
            repeat: random.below(250),
            delay: random.below(300),
            crash: random.below(12),
            lose_disk: random.below(2) * random.below(60),
            fail_copy: random.below(2) * random.below(400),
            until: 150_000,
        }
    }
}

type Records = BTreeMap<(String, u64), Vec<u8>>;

#[derive(Clone, Debug)]
enum Message {
    ToController(Box<controller::Input>),
    ToPeer(Peer, Order),
    ToUser(u64, u64, Outcome),
    /// A machine's own events: never lost, but void once it has crashed.
    NodeEvent(usize, u64, node::Input),
    HostEvent(usize, u64, host::Input),
}

struct Machine<T> {
    /// Rises with every crash.
    life: u64,
    /// Down until then.
    down: u64,
    runs: Option<T>,
}

pub struct World {
    now: u64,
    random: Random,
    faults: Faults,
    trace: bool,
    queue: BTreeMap<(u64, u64), Message>,
    sequence: u64,
    pub steps: u64,
    controller: Machine<Controller>,
    controller_records: Records,
    nodes: Vec<Machine<Node>>,
    node_records: Vec<Records>,
    /// What is on each node's disk.
    disks: Vec<BTreeMap<FragmentId, FragmentPlan>>,
    granules: Vec<u64>,
    hosts: Vec<Machine<Host>>,
    mounts: Vec<BTreeMap<ActivationId, MountPlan>>,
    copies: BTreeSet<(usize, StageId, u32)>,
    users: Vec<User>,
    pub truth: Truth,
}

fn settings() -> Settings {
    Settings {
        offline_after: 8000,
        retry_after: 1000,
        host_dead_after: 40_000,
        request_timeout: 60_000,
        staging_timeout: 120_000,
        remember: 300_000,
        operator: 900,
        ..Settings::default()
    }
}

fn apply(records: &mut Records, changes: Vec<Change>) {
    for change in changes {
        let key = (change.table.to_owned(), change.key);
        match change.value {
            Some(value) => records.insert(key, value),
            None => records.remove(&key),
        };
    }
}

fn rows(records: &Records) -> Vec<(String, u64, Vec<u8>)> {
    records
        .iter()
        .map(|((table, key), value)| (table.clone(), *key, value.clone()))
        .collect()
}

fn host_name(index: usize) -> String {
    format!("nid{index:05}")
}

impl World {
    pub fn new(seed: u64, faults: Faults, trace: bool) -> World {
        let mut random = Random::new(seed);
        let mut truth = Truth::default();
        let hosts: Vec<String> = (0..HOSTS).map(host_name).collect();
        let persistents = random.below(3);
        let users = (0..persistents + 4 + random.below(6))
            .map(|index| User::new(index, persistents, &hosts, &mut random, &mut truth))
            .collect();
        let granules: Vec<u64> = (0..NODES).map(|_| 6 + random.below(8)).collect();
        let mut world = World {
            now: 0,
            random,
            faults,
            trace,
            queue: BTreeMap::new(),
            sequence: 0,
            steps: 0,
            controller: Machine {
                life: 0,
                down: 0,
                runs: None,
            },
            controller_records: Records::new(),
            nodes: (0..NODES)
                .map(|_| Machine {
                    life: 0,
                    down: 0,
                    runs: None,
                })
                .collect(),
            node_records: vec![Records::new(); NODES as usize],
            disks: vec![BTreeMap::new(); NODES as usize],
            granules,
            hosts: (0..HOSTS)
                .map(|_| Machine {
                    life: 0,
                    down: 0,
                    runs: None,
                })
                .collect(),
            mounts: vec![BTreeMap::new(); HOSTS],
            copies: BTreeSet::new(),
            users,
            truth,
        };
        world.prepare();
        world
    }

    /// The durable records of the controller, for comparing histories.
    pub fn records(&self) -> &Records {
        &self.controller_records
    }

    /// Pool and nodes are there from the beginning.
    fn prepare(&mut self) {
        let mut controller = Controller::restore(settings(), Vec::new()).unwrap();
        let mut requests = vec![Request::AddPool {
            name: "wlm_pool".into(),
            granularity: Bytes(GRANULE),
            equalize_fragments: self.random.chance(300),
        }];
        for (index, granules) in self.granules.iter().enumerate() {
            requests.push(Request::AddNode {
                name: format!("bb{index}"),
                pool: "wlm_pool".into(),
                granules: *granules,
                address: Some(format!("bb{index}:7511")),
            });
        }
        for (number, request) in (1..).zip(requests) {
            let caller = Owner { uid: 900, gid: 900 };
            let envelope = Envelope {
                client: 1,
                number,
                caller,
                request,
            };
            for effect in
                controller.step(Instant(0), controller::Input::Request(Box::new(envelope)))
            {
                match effect {
                    controller::Effect::Persist(changes) => {
                        apply(&mut self.controller_records, changes)
                    }
                    controller::Effect::Reply { outcome, .. } => {
                        assert!(outcome.is_ok(), "{outcome:?}")
                    }
                    controller::Effect::Send(..) => {}
                }
            }
        }
    }

    pub fn run(&mut self) {
        const END: u64 = 1_500_000;
        while self.now < END {
            self.now += 100;
            self.start_machines();
            if self.now % 1000 == 0 {
                self.tick();
            }
            self.users_act();
            while let Some(entry) = self
                .queue
                .first_entry()
                .filter(|entry| entry.key().0 <= self.now)
            {
                let message = entry.remove();
                self.deliver(message);
            }
            if self.users.iter().all(|user| user.step == Step::Ended) && self.is_empty() {
                break;
            }
        }
        for user in &self.users {
            assert_eq!(
                user.step,
                Step::Ended,
                "{} never came to its end",
                user.token
            );
        }
        self.assert_empty();
    }

    fn is_empty(&self) -> bool {
        let Some(controller) = &self.controller.runs else {
            return false;
        };
        let state = controller.state();
        state.sessions.is_empty()
            && state.fragments.is_empty()
            && self.disks.iter().all(BTreeMap::is_empty)
            && self.mounts.iter().all(BTreeMap::is_empty)
    }

    /// Nothing is left of anything.
    fn assert_empty(&self) {
        let state = self.controller.runs.as_ref().unwrap().state();
        assert!(
            state.sessions.is_empty(),
            "sessions left: {:?}",
            state.sessions
        );
        assert!(state.instances.is_empty() && state.fragments.is_empty());
        assert!(state.configurations.is_empty() && state.namespaces.is_empty());
        assert!(
            state.registrations.is_empty()
                && state.activations.is_empty()
                && state.stages.is_empty()
        );
        for disk in &self.disks {
            assert!(disk.is_empty(), "orphan on a disk: {disk:?}");
        }
        for mounts in &self.mounts {
            assert!(mounts.is_empty(), "orphan mount: {mounts:?}");
        }
    }

    fn faulty(&self) -> bool {
        self.now < self.faults.until
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.faulty() && self.random.chance(per_mille)
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>8} {}", self.now, what());
        }
    }

    /// Puts a message on the network: lost, delayed or repeated.
    fn send(&mut self, message: Message) {
        if self.chance(self.faults.lose) {
            self.truth.counts.messages_lost += 1;
            return;
        }
        let copies = if self.chance(self.faults.repeat) {
            2
        } else {
            1
        };
        self.truth.counts.messages_repeated += copies - 1;
        for _ in 0..copies {
            let mut delay = 1 + self.random.below(50);
            if self.chance(self.faults.delay) {
                delay += self.random.below(30_000);
            }
            self.at(self.now + delay, message.clone());
        }
    }

    fn at(&mut self, when: u64, message: Message) {
        self.sequence += 1;
        self.queue.insert((when, self.sequence), message);
    }

    fn start_machines(&mut self) {
        if self.controller.runs.is_none() && self.now >= self.controller.down {
            self.say(|| "controller starts".into());
            let restored = Controller::restore(settings(), rows(&self.controller_records));
            self.controller.runs = Some(restored.unwrap());
        }
        for index in 0..self.nodes.len() {
            if self.nodes[index].runs.is_none() && self.now >= self.nodes[index].down {
                self.say(|| format!("node {index} starts"));
                let id = NodeId(index as u32);
                let node = Node::restore(
                    id,
                    self.granules[index],
                    Instant(self.now),
                    rows(&self.node_records[index]),
                );
                self.nodes[index].runs = Some(node.unwrap());
                self.node_step(index, node::Input::Started);
            }
        }
        for index in 0..self.hosts.len() {
            if self.hosts[index].runs.is_none() && self.now >= self.hosts[index].down {
                self.hosts[index].runs = Some(Host::new(host_name(index), Instant(self.now)));
            }
        }
    }

    fn tick(&mut self) {
        self.controller_step(controller::Input::Tick);
        for index in 0..self.nodes.len() {
            self.node_step(index, node::Input::Tick);
        }
        for index in 0..self.hosts.len() {
            self.host_step(index, host::Input::Tick);
            if self.chance(self.faults.crash / 2) {
                self.crash_host(index);
            }
        }
    }

    fn users_act(&mut self) {
        let jobs_ended = self
            .users
            .iter()
            .all(|user| user.persistent || user.step == Step::Ended);
        let mut users = std::mem::take(&mut self.users);
        for user in &mut users {
            if let Some(envelope) = user.act(
                Instant(self.now),
                jobs_ended,
                &mut self.random,
                &mut self.truth,
            ) {
                self.say(|| {
                    format!(
                        "user {} asks {:?} {}",
                        user.token, user.step, envelope.number
                    )
                });
                self.send(Message::ToController(Box::new(controller::Input::Request(
                    Box::new(envelope),
                ))));
            }
        }
        self.users = users;
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::ToController(input) => self.controller_step(*input),
            Message::ToPeer(Peer::Node(node), order) => {
                self.node_step(node.0 as usize, node::Input::Order(order));
            }
            Message::ToPeer(Peer::Host(name), order) => {
                if let Some(index) = (0..HOSTS).find(|index| host_name(*index) == name) {
                    self.host_step(index, host::Input::Order(order));
                }
            }
            Message::ToUser(client, number, outcome) => {
                let mut users = std::mem::take(&mut self.users);
                for user in &mut users {
                    let before = user.step;
                    user.answered(
                        Instant(self.now),
                        client,
                        number,
                        &outcome,
                        &mut self.random,
                        &mut self.truth,
                    );
                    if user.step != before {
                        self.say(|| {
                            format!(
                                "user {} {before:?} -> {:?}: {outcome:?}",
                                user.token, user.step
                            )
                        });
                    }
                }
                self.users = users;
            }
            Message::NodeEvent(index, life, input) => {
                if self.nodes[index].life == life {
                    if let node::Input::Copied(stage, attempt, outcome) = &input {
                        self.copy_ended(index, *stage, *attempt, outcome);
                    }
                    self.node_step(index, input);
                }
            }
            Message::HostEvent(index, life, input) => {
                if self.hosts[index].life == life {
                    self.host_step(index, input);
                }
            }
        }
    }

    fn controller_step(&mut self, input: controller::Input) {
        let Some(controller) = &mut self.controller.runs else {
            return;
        };
        self.steps += 1;
        let effects = controller.step(Instant(self.now), input);
        let state = controller.state();
        // Numbers given in a step whose records a crash loses are given again: the last one counts.
        for (id, instance) in state.instances.iter() {
            self.truth
                .labels
                .insert(InstanceId(id), instance.label.clone());
        }
        for (id, fragment) in state.fragments.iter() {
            if matches!(fragment.state, FragmentState::Ready(_)) {
                self.truth.used.insert(FragmentId(id));
            }
        }
        for (id, stage) in state.stages.iter() {
            if let Some(session) = state.sessions.get(stage.session.0) {
                let of = (session.token.clone(), stage.what.line);
                self.truth.stages.insert(StageId(id), of);
            }
        }
        self.check_allocation();
        for effect in effects {
            if self.chance(self.faults.crash) {
                self.say(|| "controller crashes".into());
                self.truth.counts.controller_crashes += 1;
                self.controller.runs = None;
                self.controller.down = self.now + self.random.below(5000);
                return;
            }
            match effect {
                controller::Effect::Persist(changes) => {
                    apply(&mut self.controller_records, changes)
                }
                controller::Effect::Send(peer, command) => {
                    self.send(Message::ToPeer(peer, command))
                }
                controller::Effect::Reply {
                    client,
                    number,
                    outcome,
                } => {
                    self.send(Message::ToUser(client, number, outcome));
                }
            }
        }
    }

    /// Nothing is given twice: neither in the books nor on the disks.
    fn check_allocation(&self) {
        let Some(controller) = &self.controller.runs else {
            return;
        };
        for (index, granules) in self.granules.iter().enumerate() {
            let here = |f: &&controller::Fragment| f.node.0 as usize == index;
            let fragments = controller.state().fragments.iter().map(|(_, f)| f);
            let booked: u64 = fragments.filter(here).map(|f| f.granules).sum();
            assert!(
                booked <= *granules,
                "node {index} is over-allocated: {booked} of {granules}"
            );
            let stored: u64 = self.disks[index].values().map(|plan| plan.granules).sum();
            assert!(
                stored <= *granules,
                "disk {index} is over-committed: {stored} of {granules}"
            );
        }
        // A fragment that can be used is really there.
        for (id, fragment) in controller.state().fragments.iter() {
            let there = self.disks[fragment.node.0 as usize].contains_key(&FragmentId(id));
            let damaged = self.truth.damaged.contains(&fragment.instance);
            if matches!(fragment.state, FragmentState::Ready(_)) {
                assert!(there || damaged, "fragment {id} is ready but not there");
            }
        }
    }
}
