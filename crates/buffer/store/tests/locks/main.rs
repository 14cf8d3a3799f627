//! Clients that lock ranges of one file, in virtual time: connections break, requests and answers
//! are lost, late or repeated, clients fall silent until their sessions expire, and the daemon is
//! killed and started again. Each seed is one history; a failure names its seed, and
//! `FOREBAY_SEED=<n>` runs that one alone.
//!
//! What must hold, whatever happens:
//! - no two clients that the daemon knows have locks that exclude each other;
//! - who comes back in time after a restart of the daemon has the locks that it had;
//! - who waits gets the lock in the end, unless that would take for ever.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod client;
#[path = "../seeds/mod.rs"]
mod seeds;

use client::{Client, hello};
use forebay_protocol::message::{AdminRequest, NameRequest, SessionRequest};
use forebay_protocol::message::{InstanceSpec, NewInode};
use forebay_protocol::{Call, FileKind, Ino, InstanceId, LockOwner, Reply, Request, Timestamp};
use forebay_store::node::{ConnId, Effect, Input, Limits, NodeState, Now, Record, Shard};
use forebay_store::objects::MemoryObjects;
use seeds::{Random, root};
use std::collections::BTreeMap;

const INSTANCE: InstanceId = InstanceId(7);
const LEASE: u64 = 5_000_000_000;

struct World {
    random: Random,
    shard: Shard<MemoryObjects>,
    objects: MemoryObjects,
    /// What the daemon would recover.
    state: NodeState,
    records: u64,
    clock: u64,
    started: u64,
    next_conn: u64,
    file: Ino,
    /// Answers that nobody has taken yet.
    answers: BTreeMap<ConnId, Vec<(u64, Reply)>>,
}

impl World {
    fn new(seed: u64) -> World {
        let objects = MemoryObjects::default();
        let mut random = Random::of(seed);
        let clock = 1;
        let shard = start(NodeState::default(), 0, &objects, clock, &mut random);
        let mut world = World {
            random,
            shard,
            objects,
            state: NodeState::default(),
            records: 0,
            clock,
            started: clock,
            next_conn: 1,
            file: Ino::ROOT,
            answers: BTreeMap::new(),
        };
        world.take_records();
        let admin = world.connect();
        world.ask(admin, 1, hello(None, None, 0));
        let spec = InstanceSpec {
            id: INSTANCE,
            uid: 0,
            gid: 0,
            mode: 0o755,
            capacity: 1 << 20,
            inodes: 60,
            placement: forebay_protocol::placement::Placement::single_node(),
        };
        world.ask(admin, 2, Request::Admin(AdminRequest::CreateInstance(spec)));
        let conn = world.connect();
        world.ask(conn, 1, hello(Some(INSTANCE), None, 0));
        let make = Request::Name(NameRequest::Mknod {
            parent: Ino::ROOT,
            name: b"f".to_vec(),
            new: NewInode::Node(FileKind::File, 0),
            mode: 0o644,
        });
        let Some(Reply::Attr(attr)) = world.ask(conn, 2, make) else {
            panic!("no file");
        };
        world.file = attr.ino;
        world.ask(conn, 3, Request::Session(SessionRequest::Detach));
        world
    }

    fn now(&self) -> Now {
        Now {
            wall: Timestamp::from_nanos(self.clock),
            steady_ns: self.clock,
        }
    }

    fn take_records(&mut self) {
        for bytes in self.shard.take_records() {
            let record: Record = postcard::from_bytes(&bytes).unwrap();
            self.state.apply(&record).unwrap();
            self.records += 1;
        }
    }

    fn input(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.shard.step(self.now(), input, &mut effects);
        self.take_records();
        for effect in effects {
            match effect {
                Effect::Reply {
                    conn, seq, reply, ..
                } => self.answers.entry(conn).or_default().push((seq, reply)),
                Effect::Disconnect(conn) => self.disconnect(conn),
                _ => {}
            }
        }
    }

    fn connect(&mut self) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.input(Input::Connected(conn, root()));
        conn
    }

    fn disconnect(&mut self, conn: ConnId) {
        self.input(Input::Disconnected(conn));
        self.answers.remove(&conn);
    }

    fn send(&mut self, conn: ConnId, seq: u64, request: Request) {
        let caller = None;
        let call = Call {
            seq,
            caller,
            request,
        };
        self.input(Input::Call(conn, call));
    }

    /// The answer to a call, if it has come.
    fn answer(&mut self, conn: ConnId, seq: u64) -> Option<Reply> {
        let answers = self.answers.remove(&conn)?;
        let found = answers.into_iter().find(|(to, _)| *to == seq)?;
        Some(found.1)
    }

    fn ask(&mut self, conn: ConnId, seq: u64, request: Request) -> Option<Reply> {
        self.send(conn, seq, request);
        self.answer(conn, seq)
    }

    /// The daemon is killed and started again.
    fn restart(&mut self) {
        self.answers.clear();
        self.shard = start(
            self.state.clone(),
            self.records,
            &self.objects,
            self.clock,
            &mut self.random,
        );
        self.started = self.clock;
        self.take_records();
    }
}

fn start(
    state: NodeState,
    last: u64,
    objects: &MemoryObjects,
    clock: u64,
    random: &mut Random,
) -> Shard<MemoryObjects> {
    let limits = Limits {
        lease_ns: LEASE,
        ..Limits::default()
    };
    let now = Now {
        wall: Timestamp::from_nanos(clock),
        steady_ns: clock,
    };
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&random.below(u64::MAX).to_le_bytes());
    Shard::start(state, last, objects.clone(), limits, None, now, seed).unwrap()
}

/// No two clients that the daemon knows exclude each other.
fn check(world: &World, clients: &[Client]) {
    let known: Vec<_> = clients
        .iter()
        .filter(|c| c.is_known(&world.state))
        .collect();
    for (at, one) in known.iter().enumerate() {
        for other in known.iter().skip(at + 1) {
            for (a, b) in one.held().flat_map(|a| other.held().map(move |b| (a, b))) {
                assert!(!a.lock.conflicts(&b.lock), "{a:?} and {b:?}");
            }
        }
    }
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let owner = |number| match seed % 3 {
        0 => LockOwner::Fcntl(number),
        1 => LockOwner::Flock(number),
        _ if number == 1 => LockOwner::Flock(number),
        _ => LockOwner::Fcntl(number),
    };
    let mut clients: Vec<Client> = (1..4).map(owner).map(Client::new).collect();
    for _ in 0..300 {
        world.clock += 1 + world.random.below(50_000_000);
        match world.random.below(60) {
            0 => world.restart(),
            1..6 => world.input(Input::Tick),
            _ => {
                let chosen = world.random.below(clients.len() as u64) as usize;
                clients[chosen].act(&mut world);
            }
        }
        check(&world, &clients);
    }
    // In the end all give up what they have and wait for nothing but what they get.
    for _ in 0..200 {
        world.clock += 100_000_000;
        world.input(Input::Tick);
        for client in &mut clients {
            client.come_to_an_end(&mut world);
        }
        check(&world, &clients);
    }
    assert!(
        clients.iter().all(Client::is_done),
        "someone waits for ever"
    );
    for client in &mut clients {
        client.lock_all(&mut world);
    }
}

#[test]
fn histories() {
    seeds::run_all(8000, run);
}
