//! The session of a client: its connection for requests, and the call that waits for a reply.

use crate::support::daemon::{INSTANCE, hello};
use crate::{Answer, World};
use forebay_protocol::message::{
    Attach, FileRequest, OpenMode, RECOVERY_SLOT, SessionRequest, SessionToken,
};
use forebay_protocol::{Errno, HandleId, Reply, Request};
use forebay_store::node::ConnId;

/// The handle of every client.
pub const HANDLE: HandleId = HandleId(1);

/// A call without a reply.
#[derive(Clone)]
pub struct Pending {
    pub request: Request,
    /// Time at which it was first sent.
    pub sent_ns: u64,
    is_sent: bool,
}

#[derive(Default)]
pub struct Link {
    pub token: Option<SessionToken>,
    pub epoch: u64,
    pub conn: Option<ConnId>,
    pub seq: u64,
    recovery_seq: u64,
    pub pending: Option<Pending>,
    /// Time at which the pending call was last sent.
    pub last_sent_ns: u64,
    /// The file is open in this mode.
    pub open: Option<OpenMode>,
    /// The recovery connection with a call that waits, while handles are opened again.
    recovering: Option<(ConnId, u64)>,
    /// The start of the daemon that answered its last request.
    pub answered_epoch: u64,
    /// The session is one of a client with a single cache.
    single_cache: bool,
    /// The versions of the file and of the names that the last reply shows, if it may be cached.
    pub cacheable: Option<(u64, u64)>,
    /// The session expired at a daemon that had restarted, before it made a request there.
    pub was_lost: bool,
}

impl Link {
    /// The session of a client with a single cache.
    pub fn with_cache() -> Link {
        Link { single_cache: true, ..Link::default() }
    }

    /// The first request on a connection, which says whether the client has a single cache.
    pub fn hello(&self, request: Request) -> Request {
        match request {
            Request::Session(SessionRequest::Attach(attach)) => {
                let attach = Attach { single_cache: self.single_cache, ..attach };
                Request::Session(SessionRequest::Attach(attach))
            }
            other => panic!("{other:?} attaches no connection"),
        }
    }

    /// Begin a request.
    pub fn request(&mut self, world: &World, request: Request) {
        assert!(self.pending.is_none());
        self.seq += 1;
        self.pending = Some(Pending { request, sent_ns: world.clock_ns, is_sent: false });
    }

    /// Send the pending request, or take its reply. A connection of this host does not break unless
    /// the daemon dies: then there are no `faults`.
    pub fn go_on(&mut self, world: &mut World, faults: bool) -> Option<(Pending, Reply)> {
        if !self.connected(world) {
            return None;
        }
        let (conn, pending) = (self.conn?, self.pending.clone()?);
        if faults && world.random.one_in(12) {
            if world.random.one_in(2) {
                world.send(conn, self.seq, pending.request.clone()); // the reply is lost
            }
            self.break_connection(world);
            return None;
        }
        if !pending.is_sent || (faults && world.random.one_in(8)) {
            world.send(conn, self.seq, pending.request.clone());
            self.pending = Some(Pending { is_sent: true, ..pending.clone() });
            self.last_sent_ns = world.clock_ns;
            if world.random.one_in(3) {
                return None; // the reply takes its time
            }
        }
        let Answer { reply, cacheable, .. } = world.take_answer(conn, self.seq)?;
        self.cacheable = cacheable;
        if reply == Reply::Failed(Errno::ENOTCONN) {
            self.break_connection(world);
            return None;
        }
        self.pending = None;
        self.answered_epoch = world.epoch;
        Some((pending, reply))
    }

    pub fn break_connection(&mut self, world: &mut World) {
        if let Some(conn) = self.conn.take() {
            world.disconnect(conn);
        }
        if let Some((conn, _)) = self.recovering.take() {
            world.disconnect(conn);
        }
        if let Some(pending) = &mut self.pending {
            pending.is_sent = false;
        }
    }

    /// Connect, and open the file again if the daemon does not know it any more.
    fn connected(&mut self, world: &mut World) -> bool {
        if self.epoch != world.epoch && self.conn.is_some() {
            self.break_connection(world);
        }
        if self.conn.is_some() {
            return self.is_recovered(world);
        }
        self.seq = self.seq.max(1);
        let conn = world.connect();
        let request = self.hello(hello(Some(INSTANCE), self.token, 0));
        let mut reply = world.ask(conn, self.seq, request);
        if reply == Some(Reply::Failed(Errno::ESTALE)) {
            self.was_lost |= self.answered_epoch != world.epoch;
            (self.token, self.epoch) = (None, 0);
            reply = world.ask(conn, self.seq, self.hello(hello(Some(INSTANCE), None, 0)));
        }
        let Some(Reply::Attached { token, epoch, .. }) = reply else {
            assert_eq!(reply, Some(Reply::Failed(Errno::EAGAIN)));
            return false;
        };
        let is_known = self.epoch == epoch;
        (self.token, self.epoch, self.conn) = (Some(token), epoch, Some(conn));
        if let (Some(mode), false) = (self.open, is_known) {
            let conn = world.connect();
            self.recovery_seq += 1;
            world.ask(conn, self.recovery_seq, hello(Some(INSTANCE), Some(token), RECOVERY_SLOT));
            self.recovery_seq += 1;
            world.send(conn, self.recovery_seq, open_request(world, mode));
            self.recovering = Some((conn, self.recovery_seq));
        }
        self.is_recovered(world)
    }

    /// Whether the file has been opened again: before that no other request is made.
    fn is_recovered(&mut self, world: &mut World) -> bool {
        let Some((conn, seq)) = self.recovering else {
            return true;
        };
        let Some(reply) = world.reply(conn, seq) else {
            return false;
        };
        assert!(matches!(reply, Reply::Opened { .. }), "{reply:?}");
        self.recovering = None;
        world.disconnect(conn);
        true
    }

    /// Whether the daemon has received the pending call, and has not answered it.
    pub fn is_waiting(&self, world: &World) -> bool {
        let Some(conn) = self.conn.filter(|_| self.epoch == world.epoch) else {
            return false;
        };
        let is_sent = self.pending.as_ref().is_some_and(|pending| pending.is_sent);
        is_sent && self.recovering.is_none() && !world.has_reply(conn, self.seq)
    }
}

pub fn open_request(world: &World, open: OpenMode) -> Request {
    Request::File(FileRequest::Open { ino: world.file, handle: HANDLE, open })
}

pub fn close_request() -> Request {
    Request::File(FileRequest::Close { handle: HANDLE, returned: 0 })
}
