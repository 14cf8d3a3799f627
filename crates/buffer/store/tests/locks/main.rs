//! Clients that lock ranges of one file, in virtual time: connections break, calls and replies are lost,
//! delayed or duplicated, clients fall silent until their sessions expire, and the daemon is killed and
//! started again. Each seed is one history; a failure names its seed, and `FOREBAY_SEED=<n>` runs that
//! one alone.
//!
//! Invariants:
//! - no two clients that the daemon knows hold conflicting locks;
//! - a client that reconnects in time after a restart of the daemon still holds its locks;
//! - a client that waits is granted the lock in the end, unless that is a deadlock.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod client;
#[path = "../support/mod.rs"]
mod support;

use client::Client;
use forebay_protocol::message::{
    AdminRequest, NameRequest, NewInode, SessionRequest, SessionToken,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{FileKind, Ino, LockOwner, Reply, Request};
use forebay_store::node::{ConnId, Input};
use std::collections::BTreeMap;
use support::daemon::{Daemon, INSTANCE, Output, at, call, connected, hello, spec};
use support::seeds::{self, Random};

const LEASE_NS: u64 = 5_000_000_000;
const SEGMENT_BYTES: u64 = 1 << 20;

struct World {
    random: Random,
    daemon: Daemon,
    clock_ns: u64,
    started_ns: u64,
    /// Starts of the daemon.
    epoch: u64,
    next_conn: u64,
    file: Ino,
    /// Replies that no client has taken.
    replies: BTreeMap<ConnId, Vec<(u64, Reply)>>,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            random: Random::of(seed),
            daemon: Daemon::new(seed, SEGMENT_BYTES, LEASE_NS),
            clock_ns: 1,
            started_ns: 0,
            epoch: 0,
            next_conn: 1,
            file: Ino::ROOT,
            replies: BTreeMap::new(),
        };
        world.start();
        let admin = world.connect();
        world.ask(admin, 1, hello(None, None, 0));
        let spec = spec(1 << 20, 60, Placement::single_node());
        world.ask(admin, 2, Request::Admin(AdminRequest::CreateInstance(spec)));
        let conn = world.connect();
        world.ask(conn, 1, hello(Some(INSTANCE), None, 0));
        let make = Request::Name(NameRequest::Mknod {
            parent: Ino::ROOT,
            name: b"f".to_vec(),
            new: NewInode::Node(FileKind::File, 0),
            mode: 0o644.into(),
        });
        let Some(Reply::Attr(attr)) = world.ask(conn, 2, make) else {
            panic!("no file");
        };
        world.file = attr.ino;
        world.ask(conn, 3, Request::Session(SessionRequest::Detach));
        world
    }

    fn input(&mut self, input: Input) {
        let outputs = self.daemon.step(at(self.clock_ns), input);
        for output in outputs.expect("the storage has no faults") {
            match output {
                Output::Reply(conn, sent) => {
                    let replies = self.replies.entry(conn).or_default();
                    replies.push((sent.seq, sent.reply));
                }
                Output::Disconnect(conn) => self.disconnect(conn),
                Output::Sync(_)
                | Output::SyncLog
                | Output::Message { .. }
                | Output::DataConnection(..) => {}
            }
        }
    }

    fn connect(&mut self) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.input(connected(conn));
        conn
    }

    fn disconnect(&mut self, conn: ConnId) {
        self.input(Input::Disconnected(conn));
        self.replies.remove(&conn);
    }

    fn send(&mut self, conn: ConnId, seq: u64, request: Request) {
        self.input(Input::Call(conn, call(seq, request)));
    }

    /// The reply to a call, if there is one.
    fn reply(&mut self, conn: ConnId, seq: u64) -> Option<Reply> {
        let replies = self.replies.remove(&conn)?;
        let found = replies.into_iter().find(|(to, _)| *to == seq)?;
        Some(found.1)
    }

    fn ask(&mut self, conn: ConnId, seq: u64, request: Request) -> Option<Reply> {
        self.send(conn, seq, request);
        self.reply(conn, seq)
    }

    /// The daemon is killed and started again.
    fn restart(&mut self) {
        self.replies.clear();
        self.daemon.stop(false);
        self.start();
    }

    fn start(&mut self) {
        let seed = self.random.below(u64::MAX);
        self.daemon.start(at(self.clock_ns), seed).unwrap();
        self.daemon.take_records();
        self.started_ns = self.clock_ns;
        self.epoch += 1;
    }

    /// Whether the daemon knows a session.
    fn knows(&self, token: SessionToken) -> bool {
        let mut sessions = self.daemon.node().unwrap().sessions();
        sessions.any(|(id, session)| (id, session.secret) == (token.session, token.secret))
    }
}

/// No two clients that the daemon knows hold conflicting locks.
fn check(world: &World, clients: &[Client]) {
    let known = clients.iter().filter(|client| client.is_known(world));
    let known: Vec<_> = known.collect();
    for (index, one) in known.iter().enumerate() {
        for other in known.iter().skip(index + 1) {
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
        world.clock_ns += 1 + world.random.below(50_000_000);
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
    // In the end all clients release their locks and wait only for those they are granted.
    for _ in 0..200 {
        world.clock_ns += 100_000_000;
        world.input(Input::Tick);
        for client in &mut clients {
            client.finish(&mut world);
        }
        check(&world, &clients);
    }
    let is_done = clients.iter().all(Client::is_done);
    assert!(is_done, "a client waits for ever");
    for client in &mut clients {
        client.lock_all(&mut world);
    }
}

#[test]
fn restarts_and_lost_messages_never_lead_to_conflicting_locks() {
    seeds::run_all(8000, run);
}
