//! Time, and all that happens in it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use forebay_model::units::Bytes;
use forebay_policy::pool::NodeId;
use forebay_service::controller::{
    self, Controller, Envelope, FragmentState, Outcome, Request, Settings,
};
use forebay_service::protocol::*;
use forebay_service::{host, node};
use forebay_store::objects::MemoryObjects;
use forebay_store::storage::Memory;
use forebay_wire::Call;
use forebay_wire::peer::PeerMessage;

use crate::actors::Actor;
use crate::journals::Journals;
use crate::machines::{Compute, Place, Records, Storage, apply, rows};
use crate::network::{Link, Wake, address};
use crate::pfs::Pfs;
use crate::random::Random;
use crate::seat::{ActorId, Asked, LinkId, Machine, Said, Shared};
use crate::storage::SyncAsked;
use crate::truth::Truth;
use crate::users::{Step, User};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const GRANULE: u64 = 1 << 20;
const NODES: usize = 4;
const HOSTS: usize = 3;
/// Everything must have come to its end by then.
const END: u64 = 2500 * SECOND;

/// How hard the world is, each in a thousand.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub lose: u64,
    pub repeat: u64,
    pub delay: u64,
    /// A connection breaks when something is sent on it.
    pub cut: u64,
    /// A crash before an effect, or within a second.
    pub crash: u64,
    /// Crashes may be power cuts.
    pub power: bool,
    /// A crashed node has lost its disk.
    pub lose_disk: u64,
    /// Something is wrong with the parallel file system, or a machine is cut off, within a second.
    pub outage: u64,
    /// Faults end at this time, so that everything can come to its end.
    pub until: u64,
}

impl Faults {
    pub fn none() -> Faults {
        Faults {
            lose: 0,
            repeat: 0,
            delay: 0,
            cut: 0,
            crash: 0,
            power: false,
            lose_disk: 0,
            outage: 0,
            until: 0,
        }
    }

    pub fn of(seed: u64) -> Faults {
        let mut random = Random::new(seed ^ 0xfa17);
        Faults {
            lose: random.below(200),
            repeat: random.below(200),
            delay: random.below(200),
            cut: random.below(2) * random.below(30),
            crash: random.below(8),
            power: random.chance(400),
            lose_disk: u64::from(random.chance(150)) * random.below(100),
            outage: random.below(2) * random.below(30),
            until: 150 * SECOND,
        }
    }
}

/// Something that is going to happen.
#[derive(Clone, Debug)]
pub enum Event {
    ToController(Box<controller::Input>),
    ToPeer(Peer, Order),
    ToUser(u64, u64, Outcome),
    Peer(usize, Box<PeerMessage>),
    Tick(Place),
    Users,
    /// A node's log becomes durable, in this life of the node.
    Sync(usize, u64, Option<SyncAsked>),
    Syn(ActorId, u64, usize),
    Wake(ActorId, u64, Wake),
    Up(LinkId, Call, Vec<u8>),
    UpEnd(LinkId),
    Down(LinkId, Said),
    DownEnd(LinkId),
}

pub struct World {
    pub now: u64,
    pub random: Random,
    pub faults: Faults,
    trace: bool,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    pub steps: u64,
    /// A fingerprint of all that happened.
    pub history: u64,
    pub shared: Arc<Shared>,
    pub asks: (Sender<Asked>, Receiver<Asked>),
    pub actors: BTreeMap<ActorId, Actor>,
    pub next_actor: ActorId,
    pub links: BTreeMap<LinkId, Link>,
    pub next_link: LinkId,
    pub controller: Option<Controller>,
    controller_down: u64,
    controller_records: Records,
    pub nodes: Vec<Storage>,
    pub hosts: Vec<Compute>,
    /// Machines that nobody can reach until then.
    pub isolated: BTreeMap<Place, u64>,
    pub pfs: Pfs,
    pfs_back: u64,
    pub users: Vec<User>,
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
        stripe: 4096,
        ..Settings::default()
    }
}

pub fn host_name(index: usize) -> String {
    format!("nid{index:05}")
}

impl World {
    pub fn new(seed: u64, faults: Faults, trace: bool) -> World {
        let mut random = Random::new(seed);
        let mut truth = Truth::default();
        let power = &truth.losses.power;
        power.store(faults.power, Ordering::Relaxed);
        let shared = Shared::new();
        let pfs = Pfs::new(Machine(shared.clone()));
        let hosts: Vec<String> = (0..HOSTS).map(host_name).collect();
        let persistents = random.below(3);
        let users = (0..persistents + 2 + random.below(4))
            .map(|index| User::new(index, persistents, &hosts, &mut random, &mut truth, &pfs))
            .collect();
        let nodes = (0..NODES).map(|_| Storage {
            life: 0,
            boot: 1,
            down: 0,
            granules: 6 + random.below(8),
            disk: Memory::new(random.next()),
            objects: MemoryObjects::default(),
            journals: Journals::new(Machine(shared.clone())),
            records: Records::new(),
            fragments: BTreeMap::new(),
            running: None,
            orders: Default::default(),
            copies: BTreeMap::new(),
        });
        let nodes = nodes.collect();
        let host = |_| Compute {
            life: 0,
            down: 0,
            runs: None,
            plans: BTreeMap::new(),
            mounts: Arc::new(Mutex::default()),
            using: BTreeMap::new(),
        };
        let mut world = World {
            now: 0,
            random,
            faults,
            trace,
            queue: BTreeMap::new(),
            sequence: 0,
            steps: 0,
            history: 0,
            shared,
            asks: channel(),
            actors: BTreeMap::new(),
            next_actor: 0,
            links: BTreeMap::new(),
            next_link: 0,
            controller: None,
            controller_down: 0,
            controller_records: Records::new(),
            nodes,
            hosts: (0..HOSTS).map(host).collect(),
            isolated: BTreeMap::new(),
            pfs,
            pfs_back: 0,
            users,
            truth,
        };
        world.prepare();
        world
    }

    /// Pool and nodes are there from the beginning, and everything begins to tick.
    fn prepare(&mut self) {
        let mut controller = Controller::restore(settings(), Vec::new()).unwrap();
        let mut requests = vec![Request::AddPool {
            name: "wlm_pool".into(),
            granularity: Bytes(GRANULE),
            equalize_fragments: self.random.chance(300),
        }];
        for (index, node) in self.nodes.iter().enumerate() {
            requests.push(Request::AddNode {
                name: format!("bb{index}"),
                pool: "wlm_pool".into(),
                granules: node.granules,
                address: Some(address(index).to_string()),
            });
        }
        for (number, request) in (1..).zip(requests) {
            let envelope = envelope(1, number, request);
            let input = controller::Input::Request(Box::new(envelope));
            for effect in controller.step(Instant(0), input) {
                match effect {
                    controller::Effect::Persist(changes) => {
                        apply(&mut self.controller_records, changes);
                    }
                    controller::Effect::Reply { outcome, .. } => {
                        assert!(outcome.is_ok(), "{outcome:?}");
                    }
                    controller::Effect::Send(..) => {}
                }
            }
        }
        let places = (0..NODES).map(Place::Node);
        let places = places.chain((0..HOSTS).map(Place::Host));
        for place in places.chain([Place::Controller]) {
            let first = 1 + self.random.below(SECOND);
            self.at(first, Event::Tick(place));
        }
        self.at(MS, Event::Users);
    }

    pub fn run(&mut self) {
        while let Some(((when, _), event)) = self.queue.pop_first() {
            assert!(when < END, "{}", self.unfinished());
            self.now = when;
            self.shared.set(when);
            self.happen(event);
            self.flush();
            if matches!(self.queue.first_key_value(), Some(((next, _), _)) if *next == when) {
                continue;
            }
            if self.users.iter().all(|user| user.step == Step::Ended) && self.is_empty() {
                break;
            }
        }
        for id in self.actors.keys().copied().collect::<Vec<_>>() {
            self.kill(id);
        }
    }

    fn happen(&mut self, event: Event) {
        self.history = self.history.wrapping_mul(0x100_0000_01b3) ^ self.now;
        match event {
            Event::ToController(input) => self.controller_step(*input),
            Event::ToPeer(Peer::Node(node), order) => {
                self.node_step(node.0 as usize, node::Input::Order(order));
            }
            Event::ToPeer(Peer::Host(name), order) => {
                if let Some(index) = (0..HOSTS).find(|index| host_name(*index) == name) {
                    self.host_step(index, host::Input::Order(order));
                }
            }
            Event::ToUser(client, number, outcome) => self.answered(client, number, &outcome),
            Event::Peer(node, message) => self.peer_message(node, message),
            Event::Tick(place) => {
                self.tick(place);
                let next = self.now + SECOND;
                self.at(next, Event::Tick(place));
            }
            Event::Users => {
                self.users_act();
                let next = self.now + 200 * MS;
                self.at(next, Event::Users);
            }
            Event::Sync(node, life, asked) => {
                if self.nodes[node].life == life {
                    self.sync(node, asked);
                }
            }
            Event::Syn(actor, wait, node) => self.syn(actor, wait, node),
            Event::Wake(actor, wait, wake) => self.wake(actor, wait, wake),
            Event::Up(link, call, payload) => self.up(link, call, payload),
            Event::UpEnd(link) => self.up_end(link),
            Event::Down(link, said) => self.down(link, said),
            Event::DownEnd(link) => self.down_end(link),
        }
    }

    fn tick(&mut self, place: Place) {
        match place {
            Place::Node(index) => self.tick_node(index),
            Place::Host(index) => self.tick_host(index),
            Place::Controller => {
                if self.controller.is_none() && self.now >= self.controller_down {
                    self.say(|| "controller starts".into());
                    let rows = rows(&self.controller_records);
                    self.controller = Some(Controller::restore(settings(), rows).unwrap());
                }
                self.controller_step(controller::Input::Tick);
                self.outages();
            }
        }
    }

    /// What happens to the parallel file system, to the network and to the pool.
    fn outages(&mut self) {
        if self.now >= self.pfs_back {
            self.pfs.set_away(false);
            self.pfs.set_capacity(None);
        }
        if self.chance(self.faults.outage) {
            self.pfs_back = self.now + self.random.below(20) * SECOND;
            match self.random.below(3) {
                0 => {
                    self.truth.counts.pfs_crashes += 1;
                    self.pfs.crash();
                    self.pfs.set_away(true);
                }
                1 => {
                    self.truth.counts.pfs_away += 1;
                    self.pfs.set_away(true);
                }
                _ => self.pfs.set_capacity(Some(self.random.below(100_000))),
            }
        }
        if self.chance(self.faults.outage) {
            self.truth.counts.isolations += 1;
            let place = match self.random.below(8) {
                0 => Place::Controller,
                n @ 1..5 => Place::Node(n as usize - 1),
                n => Place::Host(n as usize - 5),
            };
            let longest = if self.random.chance(200) { 70 } else { 10 };
            let until = self.now + self.random.below(longest * SECOND);
            self.say(|| format!("{place:?} is cut off for {} ms", (until - self.now) / MS));
            self.isolated.insert(place, until);
        }
        let drain = self.chance(self.faults.outage);
        if drain || !self.faulty() && self.now % (10 * SECOND) < SECOND {
            self.truth.counts.drains += u64::from(drain);
            let node = NodeId(self.random.below(NODES as u64) as u32);
            let drained = drain && self.random.chance(500);
            let request = Request::Drain { node, drained };
            let envelope = envelope(self.random.next(), 1, request);
            self.controller_step(controller::Input::Request(Box::new(envelope)));
        }
    }

    fn users_act(&mut self) {
        let ended = |user: &User| user.persistent || user.step == Step::Ended;
        let jobs_ended = self.users.iter().all(ended);
        for index in 0..self.users.len() {
            if self.users[index].step == Step::Run && !self.users[index].started {
                self.start_job(index);
                self.users[index].started = true;
            }
            let running = self.processes(&self.users[index].token);
            self.users[index].processes = running;
            let user = &mut self.users[index];
            let now = Instant(self.now / MS);
            let envelope = user.act(now, jobs_ended, &mut self.random, &mut self.truth);
            if let Some(envelope) = envelope {
                let (token, step) = (user.token.clone(), user.step);
                self.say(|| format!("user {token} asks {step:?} {}", envelope.number));
                let input = controller::Input::Request(Box::new(envelope));
                let message = Event::ToController(Box::new(input));
                // Users sit at the controller's machine, whose network fails as all others do.
                self.send(Place::Controller, Place::Controller, message);
            }
        }
    }

    fn answered(&mut self, client: u64, number: u64, outcome: &Outcome) {
        let mut users = std::mem::take(&mut self.users);
        for user in &mut users {
            let before = user.step;
            let now = Instant(self.now / MS);
            let (random, truth, pfs) = (&mut self.random, &mut self.truth, &self.pfs);
            user.answered(now, (client, number), outcome, random, truth, pfs);
            if user.step != before {
                self.say(|| {
                    let (token, step) = (&user.token, user.step);
                    format!("user {token} {before:?} -> {step:?}: {outcome:?}")
                });
            }
        }
        self.users = users;
    }

    fn controller_step(&mut self, input: controller::Input) {
        let Some(controller) = &mut self.controller else {
            return;
        };
        self.steps += 1;
        let effects = controller.step(Instant(self.now / MS), input);
        let state = controller.state();
        // Numbers given in a step whose records a crash loses are given again: the last one counts.
        for (id, instance) in state.instances.iter() {
            let label = instance.label.clone();
            self.truth.labels.insert(InstanceId(id), label);
        }
        for (_, session) in state.sessions.iter() {
            if let Some(instance) = session.instance {
                let token = session.token.clone();
                self.truth.current.insert(token, instance);
            }
        }
        for (id, fragment) in state.fragments.iter() {
            if matches!(fragment.state, FragmentState::Ready(_)) {
                self.truth.used.insert(FragmentId(id));
            }
        }
        self.check_allocation();
        for effect in effects {
            if self.chance(self.faults.crash) {
                self.say(|| "controller crashes".into());
                self.truth.counts.controller_crashes += 1;
                self.controller = None;
                self.controller_down = self.now + self.random.below(5 * SECOND);
                return;
            }
            match effect {
                controller::Effect::Persist(changes) => {
                    apply(&mut self.controller_records, changes);
                }
                controller::Effect::Send(peer, order) => {
                    let to = match &peer {
                        Peer::Node(node) => Place::Node(node.0 as usize),
                        Peer::Host(name) => {
                            let known = (0..HOSTS).find(|index| host_name(*index) == *name);
                            Place::Host(known.unwrap_or(0))
                        }
                    };
                    self.send(Place::Controller, to, Event::ToPeer(peer, order));
                }
                controller::Effect::Reply {
                    client,
                    number,
                    outcome,
                } => {
                    let message = Event::ToUser(client, number, outcome);
                    self.send(Place::Controller, Place::Controller, message);
                }
            }
        }
    }

    pub fn faulty(&self) -> bool {
        self.now < self.faults.until
    }

    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.faulty() && self.random.chance(per_mille)
    }

    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>8} {}", self.now / MS, what());
        }
    }

    pub fn at(&mut self, when: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((when, self.sequence), event);
    }
}

/// What the operator asks.
fn envelope(client: u64, number: u64, request: Request) -> Envelope {
    Envelope {
        client,
        number,
        caller: Owner { uid: 900, gid: 900 },
        request,
    }
}
