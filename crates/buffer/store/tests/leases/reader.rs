//! A client on another host that reads the file, and keeps what it has read under a lease.

use crate::World;
use crate::link::{HANDLE, Link, close_request, open_request};
use crate::support::daemon::{INSTANCE, hello};
use forebay_protocol::message::{
    CacheRecall, EVENT_SLOT, FileRequest, LockRequest, OpenMode, READ_LEASE_NS,
};
use forebay_protocol::{LeaseId, Reply, Request};
use forebay_store::node::ConnId;
use std::collections::BTreeSet;

const MODE: OpenMode =
    OpenMode { read: true, write: false, truncate: false, descriptor: false, ..OpenMode::NONE };

#[derive(Default)]
pub struct Reader {
    link: Link,
    is_open: bool,
    /// The lease, and the time at which it expires.
    lease: Option<(LeaseId, u64)>,
    /// The version that it has read, under a lease.
    kept: Option<(LeaseId, u64)>,
    watch: Option<ConnId>,
    watch_seq: u64,
    /// Leases that were recalled while a request for leases was in flight.
    recalled: BTreeSet<LeaseId>,
    /// Recalled leases to confirm.
    returned: Vec<LeaseId>,
    pub was_lost: bool,
    silent_until_ns: u64,
}

impl Reader {
    pub fn act(&mut self, world: &mut World) {
        // A partition separates it from the daemon, but not from what it keeps.
        self.serve(world);
        if world.clock_ns < self.silent_until_ns {
            return;
        }
        if world.random.one_in(80) {
            self.silent_until_ns = world.clock_ns + world.random.below(2 * READ_LEASE_NS);
            if world.random.one_in(2) {
                self.link.break_connection(world);
                self.break_watch(world);
            }
            return;
        }
        if world.random.one_in(2) {
            self.take_events(world, true);
        }
        if self.link.pending.is_none() {
            let request = match world.random.below(8) {
                0 if self.is_open => close_request(),
                0 | 1 if !self.is_open => open_request(world, MODE),
                2..7 if self.is_open => lease_request(),
                _ => return self.read(world),
            };
            self.begin(world, request);
        }
        self.go_on(world, true);
        self.read(world);
    }

    /// Read under a lease, without faults.
    pub fn finish(&mut self, world: &mut World) {
        self.silent_until_ns = 0;
        self.take_events(world, false);
        if self.link.pending.is_none() {
            let request = if self.is_open { lease_request() } else { open_request(world, MODE) };
            self.begin(world, request);
        }
        self.go_on(world, false);
        self.read(world);
        self.serve(world);
    }

    fn begin(&mut self, world: &World, request: Request) {
        if let Request::File(FileRequest::Close { .. }) = request {
            (self.is_open, self.link.open, self.lease) = (false, None, None);
        }
        self.recalled.clear();
        self.link.request(world, request);
    }

    fn valid_lease(&self, world: &World) -> Option<LeaseId> {
        let (id, expires_ns) = self.lease?;
        (world.clock_ns < expires_ns).then_some(id)
    }

    /// Read from the daemon under a lease, and keep that.
    fn read(&mut self, world: &mut World) {
        if let Some(id) = self.valid_lease(world) {
            self.kept = Some((id, world.version));
        }
    }

    /// Read what is kept.
    fn serve(&mut self, world: &mut World) {
        let Some((id, version)) = self.kept else {
            return;
        };
        if self.valid_lease(world) == Some(id) {
            let acknowledged = world.acknowledged;
            assert!(version >= acknowledged, "version {version} was read after {acknowledged}");
            world.served += 1;
        }
    }

    fn go_on(&mut self, world: &mut World, faults: bool) {
        let taken = self.link.go_on(world, faults);
        self.was_lost |= self.link.was_lost;
        let Some((pending, reply)) = taken else {
            return;
        };
        match (&pending.request, reply) {
            (Request::File(FileRequest::Open { .. }), Reply::Opened { .. }) => {
                (self.is_open, self.link.open) = (true, Some(MODE));
            }
            (Request::File(FileRequest::Close { .. }), Reply::Done) => {}
            (Request::Lock(LockRequest::Lease { .. }), Reply::Leases(leases)) => {
                let granted = leases.first().copied().flatten();
                let granted = granted.filter(|id| !self.recalled.contains(id));
                self.lease = granted.map(|id| (id, pending.sent_ns + READ_LEASE_NS));
            }
            (request, reply) => panic!("{request:?} was answered {reply:?}"),
        }
    }

    fn break_watch(&mut self, world: &mut World) {
        if let Some(conn) = self.watch.take() {
            world.disconnect(conn);
        }
    }

    /// Take events, and wait for more.
    fn take_events(&mut self, world: &mut World, faults: bool) {
        if self.link.token.is_none() || self.link.epoch != world.epoch {
            return self.break_watch(world);
        }
        let Some(conn) = self.watch else {
            let conn = world.connect();
            self.watch_seq += 1;
            let request = hello(Some(INSTANCE), self.link.token, EVENT_SLOT);
            if let Some(Reply::Attached { .. }) = world.ask(conn, self.watch_seq, request) {
                self.watch = Some(conn);
                self.await_events(world, conn);
            }
            return;
        };
        let Some(reply) = world.reply(conn, self.watch_seq) else {
            return;
        };
        let Reply::Events { recalled, .. } = reply else {
            return self.break_watch(world);
        };
        if faults && world.random.one_in(6) {
            return self.break_watch(world); // the events are lost
        }
        if self.lease.is_some_and(|(id, _)| recalled.contains(&id)) {
            self.lease = None;
        }
        self.recalled.extend(&recalled);
        self.returned = recalled;
        self.await_events(world, conn);
    }

    fn await_events(&mut self, world: &mut World, conn: ConnId) {
        self.watch_seq += 1;
        let returned = std::mem::take(&mut self.returned);
        let request =
            LockRequest::AwaitEvents { known: Vec::new(), returned, cache: CacheRecall::Ignored };
        world.send(conn, self.watch_seq, Request::Lock(request));
    }
}

fn lease_request() -> Request {
    Request::Lock(LockRequest::Lease { handles: vec![HANDLE] })
}
