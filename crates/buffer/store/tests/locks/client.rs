//! A client that takes and releases locks, and knows which it holds.

use crate::support::daemon::{INSTANCE, hello};
use crate::{LEASE_NS, World};
use forebay_protocol::lock::{FileLock, HeldLock, HeldRanges, MAX_LOCK_OFFSET};
use forebay_protocol::message::{
    CacheRecall, EVENT_SLOT, FileRequest, LockRequest, OpenMode, RECOVERY_SLOT, SessionToken,
};
use forebay_protocol::{Errno, HandleId, LockOwner, Reply, Request};
use forebay_store::node::ConnId;

const BYTES: u64 = 8;
const HANDLE: HandleId = HandleId(1);

pub struct Client {
    owner: LockOwner,
    token: Option<SessionToken>,
    epoch: u64,
    conn: Option<ConnId>,
    seq: u64,
    recovery_seq: u64,
    watch: Option<ConnId>,
    watch_seq: u64,
    /// Tickets to confirm.
    confirmed: Vec<u64>,
    open: bool,
    held: HeldRanges,
    /// The ticket and the lock that it waits for.
    waiting: Option<(u64, HeldLock)>,
    pending: Option<Request>,
    tickets: u64,
    silent_until_ns: u64,
}

impl Client {
    pub fn new(owner: LockOwner) -> Client {
        Client {
            owner,
            token: None,
            epoch: 0,
            conn: None,
            seq: 0,
            recovery_seq: 0,
            watch: None,
            watch_seq: 0,
            confirmed: Vec::new(),
            open: false,
            held: HeldRanges::default(),
            waiting: None,
            pending: None,
            tickets: 0,
            silent_until_ns: 0,
        }
    }

    pub fn held(&self) -> impl Iterator<Item = &HeldLock> {
        self.held.iter()
    }

    pub fn is_known(&self, world: &World) -> bool {
        self.token.is_some_and(|token| world.knows(token))
    }

    pub fn is_done(&self) -> bool {
        self.waiting.is_none() && self.pending.is_none() && self.held.is_empty()
    }

    pub fn act(&mut self, world: &mut World) {
        if world.clock_ns < self.silent_until_ns {
            return;
        }
        if world.random.one_in(80) {
            self.silent_until_ns = world.clock_ns + world.random.below(2 * LEASE_NS);
            return self.lose_connections(world);
        }
        if !self.connected(world) {
            return;
        }
        self.take_notifications(world);
        if self.pending.is_none() {
            self.pending = self.choose(world);
        }
        self.go_on(world, true);
    }

    /// Release all locks, without faults.
    pub fn finish(&mut self, world: &mut World) {
        self.silent_until_ns = 0;
        if !self.connected(world) {
            return;
        }
        self.take_notifications(world);
        if self.pending.is_none() && self.waiting.is_none() && !self.held.is_empty() {
            self.pending = Some(self.unlock(0, MAX_LOCK_OFFSET));
        }
        self.go_on(world, false);
    }

    pub fn lock_all(&mut self, world: &mut World) {
        let wanted = self.wanted(0, MAX_LOCK_OFFSET, true);
        for request in [self.lock(wanted, None), self.unlock(0, MAX_LOCK_OFFSET)] {
            self.seq += 1;
            let reply = world.ask(self.conn.unwrap(), self.seq, request);
            assert_eq!(reply, Some(Reply::Done));
        }
    }

    fn lose_connections(&mut self, world: &mut World) {
        for conn in [self.conn.take(), self.watch.take()].into_iter().flatten() {
            world.disconnect(conn);
        }
    }

    /// Make the pending request, perhaps again.
    fn go_on(&mut self, world: &mut World, faults: bool) {
        let (Some(request), Some(conn)) = (self.pending.clone(), self.conn) else {
            return;
        };
        match world.random.below(10) {
            0 if faults => {
                // The call is lost, and the connection breaks.
                world.disconnect(conn);
                self.conn = None;
            }
            1 if faults => {
                // The reply is lost.
                world.send(conn, self.seq, request);
                world.disconnect(conn);
                self.conn = None;
            }
            how => {
                if how == 2 {
                    world.send(conn, self.seq, request.clone());
                }
                match world.ask(conn, self.seq, request.clone()) {
                    Some(reply) => self.answered(&request, reply),
                    None => self.conn = None,
                }
            }
        }
    }

    fn wanted(&self, start: u64, end: u64, exclusive: bool) -> HeldLock {
        let lock = FileLock { owner: self.owner, start, end, exclusive, pid: 0 };
        let handle = HANDLE;
        HeldLock { lock, handle }
    }

    fn lock(&self, wanted: HeldLock, ticket: Option<u64>) -> Request {
        Request::Lock(LockRequest::Acquire { handle: HANDLE, lock: wanted.lock, ticket })
    }

    /// From now on the client does not rely on what it holds there.
    fn unlock(&mut self, start: u64, end: u64) -> Request {
        self.held.release(start, end);
        self.seq += 1;
        Request::Lock(LockRequest::Release { handle: HANDLE, owner: self.owner, start, end })
    }

    fn choose(&mut self, world: &mut World) -> Option<Request> {
        if let Some((ticket, _)) = self.waiting {
            if !world.random.one_in(6) {
                return None;
            }
            self.seq += 1;
            return Some(Request::Lock(LockRequest::Cancel { ticket }));
        }
        let (a, b) = (world.random.below(BYTES), world.random.below(BYTES));
        let (start, end) = (a.min(b), a.max(b));
        if world.random.one_in(3) {
            return Some(self.unlock(start, end));
        }
        let wanted = self.wanted(start, end, world.random.one_in(2));
        if !wanted.lock.exclusive {
            // An exclusive lock may be shared before the reply arrives.
            let before: Vec<HeldLock> = self.held.iter().copied().collect();
            for held in before.iter().filter(|held| held.lock.exclusive) {
                let (from, to) = (held.lock.start.max(start), held.lock.end.min(end));
                if from <= to {
                    self.held.acquire(self.wanted(from, to, false));
                }
            }
        }
        let ticket = world.random.one_in(2).then(|| {
            self.tickets += 1;
            self.waiting = Some((self.tickets, wanted));
            self.tickets
        });
        self.seq += 1;
        Some(self.lock(wanted, ticket))
    }

    fn answered(&mut self, request: &Request, reply: Reply) {
        self.pending = None;
        match (request, reply) {
            (Request::Lock(LockRequest::Acquire { lock, ticket: None, .. }), Reply::Done) => {
                let (lock, handle) = (*lock, HANDLE);
                self.held.acquire(HeldLock { lock, handle });
            }
            (Request::Lock(LockRequest::Acquire { ticket: None, .. }), Reply::LockConflict(_)) => {}
            (Request::Lock(LockRequest::Acquire { ticket: Some(ticket), .. }), Reply::Done) => {
                self.granted(*ticket)
            }
            (Request::Lock(LockRequest::Acquire { .. }), Reply::LockPending)
            | (Request::Lock(LockRequest::Release { .. }), Reply::Done) => {}
            (Request::Lock(LockRequest::Acquire { .. }), Reply::Failed(Errno::EDEADLK)) => {
                self.waiting = None
            }
            (Request::Lock(LockRequest::Cancel { .. }), Reply::Done) => self.waiting = None,
            (Request::Lock(LockRequest::Cancel { ticket }), Reply::LocksGranted(found)) => {
                assert_eq!(found, [*ticket]);
                self.granted(*ticket);
            }
            // The file is not open: the session is a new one.
            (_, Reply::Failed(Errno::ENOTCONN)) => {
                self.pending = Some(request.clone());
                self.conn = None;
            }
            (request, reply) => panic!("{request:?} was answered {reply:?}"),
        }
    }

    /// A lock that it waited for is held.
    fn granted(&mut self, ticket: u64) {
        if let Some((_, wanted)) = self.waiting.take_if(|(waits, _)| *waits == ticket) {
            self.held.acquire(wanted);
        }
    }

    /// Take notifications of granted locks.
    fn take_notifications(&mut self, world: &mut World) {
        if let Some(conn) = self.watch {
            if let Some(reply) = world.reply(conn, self.watch_seq) {
                if world.random.one_in(6) {
                    // The notification is lost.
                    world.disconnect(conn);
                    self.watch = None;
                } else if let Reply::Events { granted: tickets, .. } = reply {
                    for ticket in &tickets {
                        self.granted(*ticket);
                    }
                    self.confirmed = tickets;
                    self.await_events(world, conn);
                } else {
                    self.watch = None;
                }
            }
            return;
        }
        let conn = world.connect();
        self.watch_seq += 1;
        let request = hello(Some(INSTANCE), self.token, EVENT_SLOT);
        if let Some(Reply::Attached { .. }) = world.ask(conn, self.watch_seq, request) {
            self.watch = Some(conn);
            self.await_events(world, conn);
        }
    }

    fn await_events(&mut self, world: &mut World, conn: ConnId) {
        self.watch_seq += 1;
        let confirmed = std::mem::take(&mut self.confirmed);
        let request = LockRequest::AwaitEvents {
            known: confirmed,
            returned: Vec::new(),
            cache: CacheRecall::Ignored,
        };
        world.send(conn, self.watch_seq, Request::Lock(request));
    }

    fn connected(&mut self, world: &mut World) -> bool {
        if let Some(conn) = self.conn {
            // A daemon that has started again does not know the connection.
            if self.epoch == world.epoch && self.is_known(world) {
                return true;
            }
            world.disconnect(conn);
        }
        self.lose_connections(world);
        let conn = world.connect();
        let seq = self.seq.max(1);
        self.seq = seq;
        let mut resumed = self.token.is_some();
        let mut reply = world.ask(conn, seq, hello(Some(INSTANCE), self.token, 0));
        if reply == Some(Reply::Failed(Errno::ESTALE)) {
            (self.token, self.epoch, resumed) = (None, 0, false);
            reply = world.ask(conn, seq, hello(Some(INSTANCE), None, 0));
        }
        if reply == Some(Reply::Failed(Errno::EAGAIN)) {
            return false; // another client may still be caching
        }
        let Some(Reply::Attached { token, epoch, .. }) = reply else {
            panic!("{reply:?}");
        };
        self.token = Some(token);
        if self.epoch != epoch {
            self.reopen(world, token, resumed);
            self.epoch = epoch;
            // The daemon has lost its waits.
            if let (Some((ticket, wanted)), None) = (self.waiting, &self.pending) {
                self.seq += 1;
                self.pending = Some(self.lock(wanted, Some(ticket)));
            }
        }
        self.conn = Some(conn);
        true
    }

    /// Open the file again, and reclaim the locks.
    fn reopen(&mut self, world: &mut World, token: SessionToken, resumed: bool) {
        let conn = world.connect();
        self.recovery_seq += 1;
        let request = hello(Some(INSTANCE), Some(token), RECOVERY_SLOT);
        world.ask(conn, self.recovery_seq, request);
        self.recovery_seq += 1;
        let open = Request::File(FileRequest::Open {
            ino: world.file,
            handle: HANDLE,
            open: OpenMode { read: true, ..OpenMode::default() },
        });
        let reply = world.ask(conn, self.recovery_seq, open);
        assert!(matches!(reply, Some(Reply::Opened { .. })), "{reply:?}");
        // Only a client that was away for too long may find them taken.
        let in_time = resumed && self.open && world.clock_ns < world.started_ns + LEASE_NS;
        for held in std::mem::take(&mut self.held).iter() {
            self.recovery_seq += 1;
            let request = self.lock(*held, None);
            match world.ask(conn, self.recovery_seq, request) {
                Some(Reply::Done) => self.held.acquire(*held),
                Some(Reply::LockConflict(_)) if !in_time => {}
                reply => panic!("{held:?} was answered {reply:?}"),
            }
        }
        self.open = true;
        world.disconnect(conn);
    }
}
