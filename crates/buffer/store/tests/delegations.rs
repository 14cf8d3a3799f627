//! Delegations: the only client of an instance reports changes of entries before they are made. Another
//! client attaches when it has returned its delegation, or has not answered the recall in time; what it
//! sends after that is refused, also by a daemon that was killed and started again. `history.rs` runs random
//! histories: each seed is one, and `FOREBAY_SEED=<n>` runs that one alone.
#![allow(clippy::unwrap_used)] // a test fails by panicking

#[path = "delegations/history.rs"]
mod history;
#[path = "delegations/prepared.rs"]
mod prepared;
mod support;

use forebay_protocol::message::{
    AdminRequest, Attach, CacheRecall, ClientHost, DELEGATION_RECALL_NS, Delegated, EVENT_SLOT,
    LockRequest, NameRequest, NewInode, PROTOCOL_VERSION, SessionRequest, SessionToken,
    TrailingField,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Errno, FileKind, Ino, LeaseId, Reply, Request, Timestamp};
use forebay_store::node::{ConnId, Input};
use support::daemon::{Daemon, INSTANCE, Output, at, call, connected, hello, spec};
use support::seeds::root;

const SESSION_LEASE_NS: u64 = 60_000_000_000;
const SEGMENT_BYTES: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// A daemon with an instance, in virtual time.
struct Site {
    daemon: Daemon,
    clock_ns: u64,
    next_conn: u64,
    /// Replies and closed connections that no client has looked at.
    output: Vec<Output>,
}

/// A mount: a connection for requests, and one on which it waits for events.
struct Client {
    token: SessionToken,
    conn: ConnId,
    seq: u64,
    events: ConnId,
    event_seq: u64,
}

impl Site {
    fn new() -> Site {
        Site::with_instance(1 << 20, 100)
    }

    /// With an instance that is short of nothing.
    fn large() -> Site {
        Site::with_instance(1 << 30, 100_000)
    }

    fn with_instance(capacity: u64, inodes: u64) -> Site {
        let daemon = Daemon::new(1, SEGMENT_BYTES, SESSION_LEASE_NS);
        let mut site = Site { daemon, clock_ns: SECOND_NS, next_conn: 1, output: Vec::new() };
        site.start();
        let conn = site.connect(true);
        site.call(conn, 1, hello(None, None, 0)).unwrap();
        let create = AdminRequest::CreateInstance(spec(capacity, inodes, Placement::single_node()));
        // Its reply would follow a sync.
        assert_eq!(site.call(conn, 2, create.into()), None);
        site
    }

    fn start(&mut self) {
        self.daemon.start(at(self.clock_ns), 7).unwrap();
    }

    /// The process dies and is started again. All connections are lost.
    fn restart(&mut self) {
        self.daemon.stop(false);
        self.output.clear();
        self.start();
    }

    fn pass(&mut self, ns: u64) {
        self.clock_ns += ns;
        self.input(Input::Tick);
    }

    fn input(&mut self, input: Input) {
        let output = self.daemon.step(at(self.clock_ns), input).unwrap();
        self.output.extend(output);
    }

    fn connect(&mut self, is_local: bool) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let connected =
            if is_local { connected(conn) } else { Input::Connected(conn, root(false)) };
        self.input(connected);
        conn
    }

    /// The reply to a call on a connection, if it has come.
    fn reply(&mut self, conn: ConnId, seq: u64) -> Option<Reply> {
        let is_it = |output: &Output| matches!(output, Output::Reply(to, sent) if (*to, sent.seq) == (conn, seq));
        let position = self.output.iter().position(is_it)?;
        match self.output.remove(position) {
            Output::Reply(_, sent) => Some(sent.reply),
            _ => None,
        }
    }

    fn call(&mut self, conn: ConnId, seq: u64, request: Request) -> Option<Reply> {
        self.input(Input::Call(conn, call(seq, request)));
        self.reply(conn, seq)
    }

    /// Attaches a connection of a mount.
    fn attach(
        &mut self,
        (is_local, delegates): (bool, bool),
        token: Option<SessionToken>,
        (slot, seq): (u32, u64),
    ) -> Result<(ConnId, SessionToken), Errno> {
        let conn = self.connect(is_local);
        let attach = Attach {
            version: PROTOCOL_VERSION,
            instance: Some(INSTANCE),
            token,
            slot,
            data_connection: false,
            single_cache: true,
            cache_checks_permissions: true,
            client: ClientHost::default(),
            delegates: TrailingField(delegates),
            client_number: TrailingField::default(),
        };
        let request = Request::Session(SessionRequest::Attach(attach));
        match self.call(conn, seq, request).unwrap() {
            Reply::Attached { token, .. } => Ok((conn, token)),
            Reply::Failed(errno) => Err(errno),
            other => panic!("{other:?}"),
        }
    }

    /// A mount on the daemon's host that uses delegations and obeys recalls.
    fn mount(&mut self) -> Client {
        let mut client = self.silent_client((true, true)).unwrap();
        client.await_events(self, CacheRecall::Obeyed);
        client
    }

    fn silent_client(&mut self, kind: (bool, bool)) -> Result<Client, Errno> {
        let (conn, token) = self.attach(kind, None, (0, 1))?;
        let (events, _) = self.attach(kind, Some(token), (EVENT_SLOT, 1))?;
        Ok(Client { token, conn, seq: 1, events, event_seq: 1 })
    }
}

impl Client {
    /// Connects again.
    fn return_to(&mut self, site: &mut Site) -> Result<(), Errno> {
        self.conn = site.attach((true, true), Some(self.token), (0, self.seq + 1))?.0;
        let next = (EVENT_SLOT, self.event_seq + 1);
        self.events = site.attach((true, true), Some(self.token), next)?.0;
        self.await_events(site, CacheRecall::Obeyed);
        Ok(())
    }

    fn await_events(&mut self, site: &mut Site, cache: CacheRecall) {
        self.event_seq += 1;
        let (known, returned) = (Vec::new(), Vec::new());
        let request = LockRequest::AwaitEvents { known, returned, cache };
        site.input(Input::Call(self.events, call(self.event_seq, request.into())));
    }

    /// The recall of what it caches, if it has come.
    fn recall(&mut self, site: &mut Site) -> Option<LeaseId> {
        match site.reply(self.events, self.event_seq)? {
            Reply::Events { recalled_cache, .. } => recalled_cache,
            other => panic!("{other:?}"),
        }
    }

    fn call(&mut self, site: &mut Site, request: impl Into<Request>) -> Reply {
        self.seq += 1;
        site.call(self.conn, self.seq, request.into()).unwrap()
    }

    /// Creates a file. Returns the number of the delegation that it gets.
    fn make(&mut self, site: &mut Site, name: &str) -> Option<u64> {
        let new = NewInode::Node(FileKind::File, 0);
        let (name, mode) = (name.as_bytes().to_vec(), 0o644.into());
        let reply = self.call(site, NameRequest::Mknod { parent: Ino::ROOT, name, new, mode });
        match &reply {
            Reply::Delegating { number, .. } => Some(*number),
            Reply::Attr(_) | Reply::WithDirectory { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    /// Sends a removal that was reported at `now_ns`.
    fn unlink(&mut self, site: &mut Site, number: u64, name: &str) -> Reply {
        let now_ns = site.clock_ns;
        self.unlink_at(site, number, name, now_ns)
    }

    fn unlink_at(&mut self, site: &mut Site, number: u64, name: &str, now_ns: u64) -> Reply {
        let reply = self.call(site, unlink(number, name, now_ns));
        match reply {
            Reply::Delegating { reply, .. } | Reply::WithDirectory { reply, .. } => match *reply {
                Reply::WithDirectory { reply, .. } => *reply,
                reply => reply,
            },
            reply => reply,
        }
    }
}

fn unlink(number: u64, name: &str, now_ns: u64) -> Delegated {
    let request = NameRequest::Unlink { parent: Ino::ROOT, name: name.as_bytes().to_vec() };
    Delegated { number, now: Timestamp::from_nanos(now_ns), request }
}

/// Those names of the root that a test uses.
fn names_of<'a>(site: &Site, used: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let volume = &site.daemon.node().unwrap().snapshot().volumes[&INSTANCE];
    let dir = volume.names.get(Ino::ROOT).unwrap().dir().unwrap();
    used.filter(|name| dir.get(name.as_bytes()).is_some()).collect()
}

fn names(site: &Site) -> Vec<&'static str> {
    names_of(site, ["a", "b", "c", "d", "e"].into_iter())
}

#[test]
fn only_client_that_obeys_recalls_gets_a_delegation() {
    let mut site = Site::new();
    let mut client = site.silent_client((true, true)).unwrap();
    assert_eq!(client.make(&mut site, "a"), None, "it could not be recalled");
    client.await_events(&mut site, CacheRecall::Obeyed);
    let number = client.make(&mut site, "b");
    assert!(number.is_some());
    for kind in [(true, false), (false, true)] {
        let mut site = Site::new();
        let mut client = site.silent_client(kind).unwrap();
        client.await_events(&mut site, CacheRecall::Obeyed);
        assert_eq!(client.make(&mut site, "a"), None, "local, delegates: {kind:?}");
        let refused = client.unlink(&mut site, 1 << 32, "a");
        assert_eq!(refused, Reply::Failed(Errno::EACCES), "local, delegates: {kind:?}");
    }
}

#[test]
fn change_has_the_time_at_which_it_was_reported() {
    let mut site = Site::new();
    let mut client = site.mount();
    for name in ["a", "b"] {
        client.make(&mut site, name).unwrap();
    }
    let number = client.make(&mut site, "c").unwrap();
    let changed_at = |site: &Site| {
        let volume = &site.daemon.node().unwrap().snapshot().volumes[&INSTANCE];
        let root = volume.names.get(Ino::ROOT).unwrap();
        (root.mtime, root.ctime)
    };
    let (first, second) = (site.clock_ns + 10, site.clock_ns + 20);
    site.pass(SECOND_NS);
    assert_eq!(client.unlink_at(&mut site, number, "b", second), Reply::Done);
    let time = Timestamp::from_nanos(second);
    assert_eq!(changed_at(&site), (time, time));
    assert_eq!(client.unlink_at(&mut site, number, "a", first), Reply::Done);
    assert_eq!(changed_at(&site), (time, time), "it was reported before the last change");
    assert_eq!(names(&site), ["c"]);
    let rmdir = NameRequest::RmDir { parent: Ino::ROOT, name: b"c".to_vec() };
    let other = Delegated { request: rmdir, ..unlink(number, "c", second) };
    assert_eq!(client.call(&mut site, other), Reply::Failed(Errno::EOPNOTSUPP));
    let refused = client.unlink_at(&mut site, number - 1, "c", second);
    assert_eq!(refused, Reply::Failed(Errno::EKEYREVOKED));
    assert_eq!(names(&site), ["c"]);
}

#[test]
fn other_client_attaches_when_the_delegation_is_returned() {
    let mut site = Site::new();
    let mut client = site.mount();
    client.make(&mut site, "a").unwrap();
    let number = client.make(&mut site, "b").unwrap();
    // The lease on names and attributes has expired.
    site.pass(3 * SECOND_NS);
    assert_eq!(site.silent_client((true, true)).err(), Some(Errno::EAGAIN));
    let recall = client.recall(&mut site).unwrap();
    assert_eq!(client.unlink(&mut site, number, "a"), Reply::Done);
    assert_eq!(site.silent_client((true, true)).err(), Some(Errno::EAGAIN));
    client.await_events(&mut site, CacheRecall::Dropped(recall));
    let mut other = site.silent_client((true, true)).unwrap();
    other.await_events(&mut site, CacheRecall::Obeyed);
    assert_eq!(other.make(&mut site, "c"), None);
    assert_eq!(client.make(&mut site, "d"), None, "there is another client");
    // A client that is alone again gets a delegation again.
    site.call(other.conn, other.seq + 1, Request::Session(SessionRequest::Detach));
    site.pass(3 * SECOND_NS);
    assert_eq!(client.make(&mut site, "e"), Some(number));
    assert_eq!(names(&site), ["b", "c", "d", "e"]);
}

/// A mount with a delegation that does not answer, and another client that attaches when the time of the
/// recall has passed.
fn revoked() -> (Site, Client, u64, Client) {
    let mut site = Site::new();
    let mut client = site.mount();
    let number = client.make(&mut site, "a").unwrap();
    let other = revoke(&mut site);
    (site, client, number, other)
}

/// Another client that attaches when a mount has not answered the recall of its delegation in time.
fn revoke(site: &mut Site) -> Client {
    assert_eq!(site.silent_client((true, true)).err(), Some(Errno::EAGAIN));
    site.pass(DELEGATION_RECALL_NS - 1);
    assert_eq!(site.silent_client((true, true)).err(), Some(Errno::EAGAIN));
    site.pass(1);
    site.silent_client((true, true)).unwrap()
}

#[test]
fn changes_of_a_client_that_was_silent_are_refused() {
    let (mut site, mut client, number, mut other) = revoked();
    let refused = client.unlink(&mut site, number, "a");
    assert_eq!(refused, Reply::Failed(Errno::EKEYREVOKED));
    assert_eq!(names(&site), ["a"]);
    // A daemon that starts again knows that, also when the other client has gone.
    site.restart();
    other.return_to(&mut site).unwrap();
    other.call(&mut site, Request::Session(SessionRequest::Detach));
    client.return_to(&mut site).unwrap();
    let refused = client.unlink(&mut site, number, "a");
    assert_eq!(refused, Reply::Failed(Errno::EKEYREVOKED));
    site.pass(3 * SECOND_NS);
    let next = client.make(&mut site, "b").unwrap();
    assert_ne!(next, number);
    assert_eq!(client.unlink(&mut site, next, "a"), Reply::Done);
    assert_eq!(names(&site), ["b"]);
}

#[test]
fn changes_are_made_after_a_restart_if_nobody_has_attached() {
    let mut site = Site::new();
    let mut client = site.mount();
    for name in ["a", "b"] {
        client.make(&mut site, name).unwrap();
    }
    let number = client.make(&mut site, "c").unwrap();
    assert_eq!(client.unlink(&mut site, number, "a"), Reply::Done);
    site.restart();
    // Its reply was lost.
    client.seq -= 1;
    client.return_to(&mut site).unwrap();
    assert_eq!(client.unlink(&mut site, number, "a"), Reply::Done);
    assert_eq!(client.unlink(&mut site, number, "b"), Reply::Done);
    assert_eq!(names(&site), ["c"]);
    // Another client that is faster waits.
    site.restart();
    assert_eq!(site.silent_client((true, true)).err(), Some(Errno::EAGAIN));
    client.return_to(&mut site).unwrap();
    assert_eq!(client.unlink(&mut site, number, "c"), Reply::Done);
    assert_eq!(names(&site), [] as [&str; 0]);
    let recall = client.recall(&mut site);
    client.await_events(&mut site, CacheRecall::Dropped(recall.unwrap()));
    assert!(site.silent_client((true, true)).is_ok());
}

#[test]
fn session_that_is_over_delays_nobody() {
    let mut site = Site::new();
    let mut client = site.mount();
    client.make(&mut site, "a").unwrap();
    site.call(client.conn, client.seq + 1, Request::Session(SessionRequest::Detach));
    assert!(site.silent_client((true, true)).is_ok());
}
