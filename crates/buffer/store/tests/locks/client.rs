//! A client that takes and gives up locks, and knows which it has.

use crate::{INSTANCE, LEASE, World};
use forebay_protocol::lock::{FileLock, HeldLock, HeldRanges, MAX_LOCK_OFFSET};
use forebay_protocol::message::{
    Attach, LOCK_WATCH_SLOT, OpenMode, PROTOCOL_VERSION, RECOVERY_SLOT, SessionToken,
};
use forebay_protocol::message::{FileRequest, LockRequest, SessionRequest};
use forebay_protocol::{Errno, HandleId, InstanceId, LockOwner, Reply, Request};
use forebay_store::node::{ConnId, NodeState};

const BYTES: u64 = 8;
const HANDLE: HandleId = HandleId(1);

pub fn hello(instance: Option<InstanceId>, resume: Option<SessionToken>, slot: u32) -> Request {
    Request::Session(SessionRequest::Attach(Attach {
        version: PROTOCOL_VERSION,
        instance,
        token: resume,
        slot,
        data_connection: false,
        single_cache: false,
    }))
}

pub struct Client {
    owner: LockOwner,
    resume: Option<SessionToken>,
    epoch: u64,
    conn: Option<ConnId>,
    seq: u64,
    recovery_seq: u64,
    watch: Option<ConnId>,
    watch_seq: u64,
    told: Vec<u64>,
    open: bool,
    held: HeldRanges,
    /// What is waited for.
    waiting: Option<(u64, HeldLock)>,
    pending: Option<Request>,
    tickets: u64,
    silent_until: u64,
}

impl Client {
    pub fn new(owner: LockOwner) -> Client {
        Client {
            owner,
            resume: None,
            epoch: 0,
            conn: None,
            seq: 0,
            recovery_seq: 0,
            watch: None,
            watch_seq: 0,
            told: Vec::new(),
            open: false,
            held: HeldRanges::default(),
            waiting: None,
            pending: None,
            tickets: 0,
            silent_until: 0,
        }
    }

    pub fn held(&self) -> impl Iterator<Item = &HeldLock> {
        self.held.iter()
    }

    pub fn is_known(&self, state: &NodeState) -> bool {
        self.resume.is_some_and(|resume| {
            let session = state.sessions.get(&resume.session);
            session.is_some_and(|session| session.secret == resume.secret)
        })
    }

    pub fn is_done(&self) -> bool {
        self.waiting.is_none() && self.pending.is_none() && self.held.is_empty()
    }

    pub fn act(&mut self, world: &mut World) {
        if world.clock < self.silent_until {
            return;
        }
        if world.random.one_in(80) {
            self.silent_until = world.clock + world.random.below(2 * LEASE);
            return self.lose_connections(world);
        }
        if !self.connected(world) {
            return;
        }
        self.hear(world);
        if self.pending.is_none() {
            self.pending = self.choose(world);
        }
        self.go_on(world, true);
    }

    /// Do what is to be done, on a good line, to have nothing any more.
    pub fn come_to_an_end(&mut self, world: &mut World) {
        self.silent_until = 0;
        if !self.connected(world) {
            return;
        }
        self.hear(world);
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

    /// Make the pending request once more.
    fn go_on(&mut self, world: &mut World, faults: bool) {
        let (Some(request), Some(conn)) = (self.pending.clone(), self.conn) else {
            return;
        };
        match world.random.below(10) {
            0 if faults => {
                // Lost on the way there, and with it the connection.
                world.disconnect(conn);
                self.conn = None;
            }
            1 if faults => {
                // Lost on the way back.
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
        let lock = FileLock {
            owner: self.owner,
            start,
            end,
            exclusive,
            pid: 0,
        };
        let handle = HANDLE;
        HeldLock { lock, handle }
    }

    fn lock(&self, wanted: HeldLock, ticket: Option<u64>) -> Request {
        Request::Lock(LockRequest::Acquire {
            handle: HANDLE,
            lock: wanted.lock,
            ticket,
        })
    }

    /// From now on nothing is relied on there.
    fn unlock(&mut self, start: u64, end: u64) -> Request {
        self.held.release(start, end);
        self.seq += 1;
        Request::Lock(LockRequest::Release {
            handle: HANDLE,
            owner: self.owner,
            start,
            end,
        })
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
            // What was exclusive may be shared by the time of the answer.
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
            (
                Request::Lock(LockRequest::Acquire {
                    lock, ticket: None, ..
                }),
                Reply::Done,
            ) => {
                let (lock, handle) = (*lock, HANDLE);
                self.held.acquire(HeldLock { lock, handle });
            }
            (Request::Lock(LockRequest::Acquire { ticket: None, .. }), Reply::LockConflict(_)) => {}
            (
                Request::Lock(LockRequest::Acquire {
                    ticket: Some(ticket),
                    ..
                }),
                Reply::Done,
            ) => self.came(*ticket),
            (Request::Lock(LockRequest::Acquire { .. }), Reply::LockPending)
            | (Request::Lock(LockRequest::Release { .. }), Reply::Done) => {}
            (Request::Lock(LockRequest::Acquire { .. }), Reply::Failed(Errno::EDEADLK)) => {
                self.waiting = None
            }
            (Request::Lock(LockRequest::Cancel { .. }), Reply::Done) => self.waiting = None,
            (Request::Lock(LockRequest::Cancel { ticket }), Reply::LocksGranted(found)) => {
                assert_eq!(found, [*ticket]);
                self.came(*ticket);
            }
            // The file is not open: the session is a new one.
            (_, Reply::Failed(Errno::ENOTCONN)) => {
                self.pending = Some(request.clone());
                self.conn = None;
            }
            (request, reply) => panic!("{request:?} was answered {reply:?}"),
        }
    }

    /// A lock that was waited for is held.
    fn came(&mut self, ticket: u64) {
        if let Some((_, wanted)) = self.waiting.take_if(|(waits, _)| *waits == ticket) {
            self.held.acquire(wanted);
        }
    }

    /// Listen to what the daemon says of those that wait.
    fn hear(&mut self, world: &mut World) {
        if let Some(conn) = self.watch {
            if let Some(reply) = world.answer(conn, self.watch_seq) {
                if world.random.one_in(6) {
                    // Lost on the way.
                    world.disconnect(conn);
                    self.watch = None;
                } else if let Reply::LocksGranted(tickets) = reply {
                    for ticket in &tickets {
                        self.came(*ticket);
                    }
                    self.told = tickets;
                    self.await_news(world, conn);
                } else {
                    self.watch = None;
                }
            }
            return;
        }
        let conn = world.connect();
        self.watch_seq += 1;
        let request = hello(Some(INSTANCE), self.resume, LOCK_WATCH_SLOT);
        if let Some(Reply::Attached { .. }) = world.ask(conn, self.watch_seq, request) {
            self.watch = Some(conn);
            self.await_news(world, conn);
        }
    }

    fn await_news(&mut self, world: &mut World, conn: ConnId) {
        self.watch_seq += 1;
        let told = std::mem::take(&mut self.told);
        world.send(
            conn,
            self.watch_seq,
            Request::Lock(LockRequest::Await { known: told }),
        );
    }

    fn connected(&mut self, world: &mut World) -> bool {
        if let Some(conn) = self.conn {
            // A daemon that has started again does not know the connection.
            if self.epoch == world.state.epoch && self.is_known(&world.state) {
                return true;
            }
            world.disconnect(conn);
        }
        self.lose_connections(world);
        let conn = world.connect();
        let seq = self.seq.max(1);
        self.seq = seq;
        let mut resumed = self.resume.is_some();
        let mut reply = world.ask(conn, seq, hello(Some(INSTANCE), self.resume, 0));
        if reply == Some(Reply::Failed(Errno::ESTALE)) {
            (self.resume, self.epoch, resumed) = (None, 0, false);
            reply = world.ask(conn, seq, hello(Some(INSTANCE), None, 0));
        }
        if reply == Some(Reply::Failed(Errno::EAGAIN)) {
            return false; // someone may still be caching
        }
        let Some(Reply::Attached {
            token: resume,
            epoch,
            ..
        }) = reply
        else {
            panic!("{reply:?}");
        };
        self.resume = Some(resume);
        if self.epoch != epoch {
            self.reopen(world, resume, resumed);
            self.epoch = epoch;
            // It does not know who waits.
            if let (Some((ticket, wanted)), None) = (self.waiting, &self.pending) {
                self.seq += 1;
                self.pending = Some(self.lock(wanted, Some(ticket)));
            }
        }
        self.conn = Some(conn);
        true
    }

    /// Open the file again and take its locks again.
    fn reopen(&mut self, world: &mut World, resume: SessionToken, resumed: bool) {
        let conn = world.connect();
        self.recovery_seq += 1;
        let request = hello(Some(INSTANCE), Some(resume), RECOVERY_SLOT);
        world.ask(conn, self.recovery_seq, request);
        self.recovery_seq += 1;
        let open = Request::File(FileRequest::Open {
            ino: world.file,
            handle: HANDLE,
            open: OpenMode {
                read: true,
                write: true,
                ..OpenMode::default()
            },
        });
        let reply = world.ask(conn, self.recovery_seq, open);
        assert!(matches!(reply, Some(Reply::Opened { .. })), "{reply:?}");
        // Only who was gone for too long may find them taken.
        let in_time = resumed && self.open && world.clock < world.started + LEASE;
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
