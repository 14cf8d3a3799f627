//! Clients that keep what they have read of one file under read leases, clients that cache names and
//! attributes, and clients that write the file and create others, in virtual time: connections break, calls, replies and recalls are lost, delayed or duplicated, clients
//! fall silent, and the daemon is killed and started again. Each seed is one history; a failure names
//! its seed, and `FOREBAY_SEED=<n>` runs that one alone.
//!
//! Invariants:
//! - no read under a lease returns data older than a write or a truncation that was acknowledged before;
//! - no name or attribute is used from a cache that is older than a change that was acknowledged before;
//! - a request that conflicts with leases is carried out when they have expired, whatever their holders
//!   do;
//! - leases are granted again when nobody has the file open for writing.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod cacher;
mod link;
mod reader;
#[path = "../support/mod.rs"]
mod support;
mod writer;

use cacher::Cacher;
use forebay_protocol::message::{
    AdminRequest, NameRequest, NewInode, READ_LEASE_NS, SessionRequest,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{FileKind, Ino, Reply, Request};
use forebay_store::node::{ConnId, Input};
use forebay_store::objects::ObjectId;
use reader::Reader;
use std::collections::BTreeMap;
use support::daemon::{Daemon, INSTANCE, Output, Sent, at, call, connected, hello, spec};
use support::seeds::{self, Random};
use writer::Writer;

const LEASE_NS: u64 = 2_500_000_000;
const SEGMENT_BYTES: u64 = 1 << 20;
/// Longest time that leases of dead clients may delay a request, with the time between two inputs.
const MAX_DELAY_NS: u64 = 3 * READ_LEASE_NS;

/// A reply on its way to a client.
struct Answer {
    seq: u64,
    reply: Reply,
    /// The versions of the file and of the names that it shows, if it may be cached.
    cacheable: Option<(u64, u64)>,
}

/// The daemon, its network, and the contents of the file.
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
    replies: BTreeMap<ConnId, Vec<Answer>>,
    /// The version of the data object.
    version: u64,
    /// The length of the data object, and the version with which each length was set.
    length: u64,
    versions: BTreeMap<u64, u64>,
    last_length: u64,
    /// The last version whose write was acknowledged.
    acknowledged: u64,
    /// Reads that were served under a lease.
    served: u64,
    /// The number of names that were created, and how many of these were acknowledged.
    names: u64,
    acknowledged_names: u64,
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
            version: 0,
            length: 0,
            versions: BTreeMap::new(),
            last_length: 0,
            acknowledged: 0,
            served: 0,
            names: 0,
            acknowledged_names: 0,
        };
        world.start();
        let admin = world.connect();
        world.ask(admin, 1, hello(None, None, 0));
        let spec = spec(1 << 24, 4096, Placement::single_node());
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

    /// The data object is changed.
    fn change(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// The change that led to `version` is acknowledged.
    fn acknowledge(&mut self, version: u64) {
        assert!(version <= self.version);
        self.acknowledged = self.acknowledged.max(version);
    }

    /// A length that no request has set.
    fn new_length(&mut self) -> u64 {
        self.last_length += 1;
        self.last_length
    }

    /// The version with which a length was set; `None` if it was set again in the same step.
    fn version_of_length(&self, length: u64) -> Option<u64> {
        self.versions.get(&length).copied()
    }

    /// The name of the file that is created as number `number`.
    fn name(number: u64) -> Vec<u8> {
        format!("n{number}").into_bytes()
    }

    /// The name that was created last, if there is one.
    fn last_name(&self) -> Option<Vec<u8>> {
        (self.names > 0).then(|| World::name(self.names))
    }

    /// The creation of the name with this number is acknowledged.
    fn acknowledge_name(&mut self, number: u64) {
        assert!(number <= self.names);
        self.acknowledged_names = self.acknowledged_names.max(number);
    }

    fn note_names(&mut self) {
        let volume = self.daemon.node().and_then(|node| node.volume(INSTANCE));
        let root = volume.and_then(|volume| volume.names.get(Ino::ROOT));
        if let Some(dir) = root.and_then(|root| root.dir()) {
            while dir.get(&World::name(self.names + 1)).is_some() {
                self.names += 1;
            }
        }
    }

    fn note_length(&mut self) {
        let object = ObjectId { instance: INSTANCE, ino: self.file };
        let length =
            self.daemon.objects.object_contents(object).map_or(0, |data| data.len() as u64);
        if length != self.length {
            self.length = length;
            let version = self.change();
            // A client whose session has expired repeats its truncation in a new one.
            self.versions.insert(length, version);
        }
    }

    fn input(&mut self, input: Input) {
        let outputs = self.daemon.step(at(self.clock_ns), input);
        self.note_length();
        self.note_names();
        for output in outputs.expect("the storage has no faults") {
            match output {
                Output::Reply(conn, sent) => {
                    let replies = self.replies.entry(conn).or_default();
                    let Sent { seq, reply, cacheable, .. } = sent;
                    let cacheable = cacheable.then_some((self.version, self.names));
                    replies.push(Answer { seq, reply, cacheable });
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

    /// The reply to a call, if it has arrived.
    fn reply(&mut self, conn: ConnId, seq: u64) -> Option<Reply> {
        self.take_answer(conn, seq).map(|answer| answer.reply)
    }

    fn take_answer(&mut self, conn: ConnId, seq: u64) -> Option<Answer> {
        let replies = self.replies.get_mut(&conn)?;
        let index = replies.iter().position(|answer| answer.seq == seq)?;
        Some(replies.swap_remove(index))
    }

    fn has_reply(&self, conn: ConnId, seq: u64) -> bool {
        let replies = self.replies.get(&conn);
        replies.is_some_and(|replies| replies.iter().any(|answer| answer.seq == seq))
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
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let mut readers: Vec<Reader> = (0..2).map(|_| Reader::default()).collect();
    let mut cachers: Vec<Cacher> = (0..2).map(|_| Cacher::new()).collect();
    let mut writers: Vec<Writer> = (0..2).map(|_| Writer::default()).collect();
    for _ in 0..400 {
        let longest_ns = if world.random.one_in(4) { 200_000_000 } else { 5_000_000 };
        world.clock_ns += 1 + world.random.below(longest_ns);
        let deadline_ns = world.daemon.node().and_then(|node| node.next_deadline_ns());
        if deadline_ns.is_some_and(|deadline_ns| deadline_ns <= world.clock_ns) {
            world.input(Input::Tick);
        }
        match world.random.below(250) {
            0 => world.restart(),
            1..8 => world.input(Input::Tick),
            number if number % 3 == 0 => {
                let chosen = world.random.below(writers.len() as u64) as usize;
                writers[chosen].act(&mut world);
            }
            number if number % 3 == 1 => {
                let chosen = world.random.below(cachers.len() as u64) as usize;
                cachers[chosen].act(&mut world);
            }
            _ => {
                let chosen = world.random.below(readers.len() as u64) as usize;
                readers[chosen].act(&mut world);
            }
        }
    }
    // In the end the writers close the file while the others are dead.
    for _ in 0..200 {
        world.clock_ns += 100_000_000;
        world.input(Input::Tick);
        for writer in &mut writers {
            writer.finish(&mut world);
        }
    }
    assert!(writers.iter().all(Writer::is_done), "a writer waits for ever");
    // Then leases are granted, unless a writer from before a restart did not return in time.
    let served = world.served;
    let from_caches: u64 = cachers.iter().map(|cacher| cacher.served).sum();
    for _ in 0..100 {
        world.clock_ns += 10_000_000;
        for reader in &mut readers {
            reader.finish(&mut world);
        }
        for cacher in &mut cachers {
            cacher.finish(&mut world);
        }
    }
    let was_lost = writers.iter().any(|writer| writer.was_lost)
        || readers.iter().any(|reader| reader.was_lost)
        || cachers.iter().any(Cacher::was_lost);
    assert!(was_lost || world.served > served, "no lease is granted any more");
    let all_from_caches: u64 = cachers.iter().map(|cacher| cacher.served).sum();
    assert!(was_lost || all_from_caches > from_caches, "nothing is cached any more");
}

#[test]
fn reads_under_leases_are_never_older_than_acknowledged_changes() {
    seeds::run_all(3000, run);
}
