//! A session with a storage daemon: connections, retransmission, recovery after the daemon restarts.

mod batches;
mod connect;
mod data_calls;
mod data_connections;
mod inode_tags;
mod leases;
mod liveness;
mod lock_table;
mod locks;
mod open_handles;
mod pairs;
mod reply_caches;
mod request_kinds;
mod unsynced_changes;
mod write_leases;

pub use batches::PendingBatch;
pub use data_calls::{SendCheck, receive_data_reply};
pub use data_connections::DataConnection;
pub use inode_tags::InodeTags;
pub use leases::FileLease;
pub use lock_table::LockCallback;
pub use open_handles::OpenedBy;
pub use reply_caches::ReplyCaches;

use crate::backoff::Backoff;
use crate::pool::Pool;
use crate::system::{Channel, Connection, Os, System};
use data_connections::DataConnections;
use forebay_net::auth::PoolKey;
use forebay_net::connection::Response;
use forebay_net::munge::Munge;
use forebay_net::record::DataProtection;
use forebay_protocol::address::Address;
use forebay_protocol::message::{
    BATCH_SLOTS, CACHE_LIFETIME_NS, ClientHost, FIRST_BATCH_SLOT, MAX_HOST_NAME, SESSION_LEASE_NS,
    SessionToken, is_batch_slot,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{
    Attr, Call, Credentials, Errno, HandleId, InstanceId, NodeIndex, Reply, Request,
};
use leases::Leases;
use liveness::Probe;
use lock_table::LockTable;
use open_handles::OpenHandle;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use unsynced_changes::{PendingSyncs, UnsyncedChanges};
use write_leases::WriteLeases;

/// Options of a client's sessions with daemons.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Time for which requests are repeated if a daemon does not reply; then they fail with `EIO`.
    pub timeout: Duration,
    /// Connections to each daemon for requests, and so the number of requests in flight. At most
    /// 57. Batches of requests have others.
    pub connections: u32,
    /// The key of the pool, for daemons on other hosts.
    pub key: Option<PoolKey>,
    /// The `munged` of this host, for daemons on other hosts; preferred to the key.
    pub munge: Option<Munge>,
    /// Protection of data to and from other hosts that daemons must have; `None` accepts any.
    pub data_protection: Option<DataProtection>,
    /// Collect the closes of files for some milliseconds, and send them in one request, so that no program
    /// waits for a close. Takes a thread.
    pub batch_closes: bool,
    /// Memory for data that are read ahead of sequential reads from other hosts, in bytes, also for each
    /// mount; less than 1 MiB: nothing is read ahead. Takes a thread, when it is first used.
    pub read_ahead_bytes: u64,
    /// Report small sequential writes before they are carried out, if no other client has the file open;
    /// a program must sync or [flush](crate::File::flush) a file to learn of their errors. Takes a thread for
    /// each of up to 64 files that are written so, and up to 2 MiB of memory for each. A mount does, whatever this
    /// says, unless it is [synchronous](crate::MountOptions::synchronous).
    pub delays_writes: bool,
    /// Time after which a daemon may have ended a session that it has not heard of: at most that of
    /// the daemons.
    pub session_lease: Duration,
    /// The host, as storage nodes list it.
    pub client: ClientHost,
    /// Clock and network.
    pub system: Arc<dyn System>,
}

/// The name of this host.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.len() <= MAX_HOST_NAME { name } else { String::new() }
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            timeout: Duration::from_secs(60),
            connections: 16,
            key: None,
            munge: None,
            data_protection: None,
            batch_closes: true,
            read_ahead_bytes: 64 << 20,
            delays_writes: false,
            session_lease: Duration::from_nanos(SESSION_LEASE_NS),
            client: ClientHost { host: host_name(), mount: None },
            system: Arc::new(Os),
        }
    }
}

/// Backoff of a request that conflicts with another one; the timeout is that of the session.
const CONFLICT_BACKOFF: Backoff =
    Backoff::new(Duration::from_micros(50), Duration::from_millis(50), Duration::MAX);
/// Timeout of a request whose reply is dispensable.
const BEST_EFFORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of connections of a session for single requests.
const MAX_CONNECTIONS: u32 = FIRST_BATCH_SLOT;

/// The result of a request, or an error: a refusal, or `EPROTO`.
pub trait CallResult: TryFrom<Reply, Error = Errno> {}
impl<T: TryFrom<Reply, Error = Errno>> CallResult for T {}

/// The reply to a request.
#[derive(Debug)]
pub struct SessionReply<T = Reply> {
    /// The reply.
    pub reply: T,
    /// The descriptor that the daemon passed with it.
    pub descriptor: Option<OwnedFd>,
    /// Time to live in a cache.
    pub ttl: Duration,
    /// The attributes of the directory that the request has changed, with the same time to live.
    pub directory: Option<Attr>,
    /// The number of the delegation that the session has for the same time.
    pub delegation: Option<u64>,
}

impl SessionReply {
    /// The result of the request. A refusal is an error.
    pub fn into_result<T: CallResult>(self) -> Result<SessionReply<T>, Errno> {
        let SessionReply { reply, descriptor, ttl, directory, delegation } = self;
        Ok(SessionReply { reply: reply.try_into()?, descriptor, ttl, directory, delegation })
    }
}

/// A connection for metadata requests by its number, with one call at a time.
#[derive(Debug)]
struct Slot {
    number: u32,
    /// Sequence number of the last call.
    seq: u64,
    connection: Option<Connection>,
}

impl Slot {
    fn new(number: u32) -> Slot {
        Slot { number, seq: 0, connection: None }
    }
}

/// A request that was sent, whose reply is to be [received](Session::receive_or_retransmit).
#[derive(Debug)]
#[must_use = "its connection is lost unless its reply is received"]
pub struct PendingCall {
    slot: Slot,
    call: Call,
    sent_at: Instant,
    /// Whether the connection accepted it.
    is_sent: bool,
    /// The changes that it makes durable.
    pending_syncs: PendingSyncs,
}

/// Identity of a session at the daemon.
#[derive(Debug, Default)]
struct SessionIdentity {
    token: Option<SessionToken>,
    /// Sequence number of the last call on the recovery connection.
    recovery_seq: u64,
    /// Time at which the daemon last left an attempt to attach unanswered.
    unanswered: Option<Instant>,
    /// Boot id of the daemon's host when its handles were last open.
    boot_id: u64,
    /// An administrator has ended the session: no other is begun in its place.
    is_evicted: bool,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    address: Address,
    /// The number of the client.
    client_number: u64,
    tags: Arc<InodeTags>,
    instance: Option<InstanceId>,
    /// The node that the daemon must be in the instance.
    expected_node: Option<NodeIndex>,
    caches: ReplyCaches,
    options: ClientOptions,
    placement: OnceLock<Placement>,
    slots: Pool<Slot>,
    /// Those that carry batches.
    batch_slots: Pool<Slot>,
    /// Whether the daemon took batches at the last handshake.
    takes_batches: AtomicBool,
    /// Whether it remembered write leases when it is restarted.
    keeps_write_leases: AtomicBool,
    data_connections: Arc<DataConnections>,
    identity: Mutex<SessionIdentity>,
    epoch: AtomicU64,
    boot_id: AtomicU64,
    /// Time when the last request that was answered was sent.
    last_contact: Mutex<Option<Instant>>,
    probe: Mutex<Probe>,
    unsynced: UnsyncedChanges,
    /// The open handles.
    handles: Mutex<BTreeMap<HandleId, OpenHandle>>,
    locks: Mutex<LockTable>,
    leases: Mutex<Leases>,
    write_leases: Mutex<WriteLeases>,
}

impl Session {
    /// Opens a session with an instance, or without one to administer the daemon. `expected_node`:
    /// the daemon must be this node of the instance. `client_number`: the same for all sessions of a client;
    /// 0: it has no others.
    pub fn open(
        address: Address,
        instance: Option<InstanceId>,
        expected_node: Option<NodeIndex>,
        options: ClientOptions,
        caches: ReplyCaches,
        tags: Arc<InodeTags>,
        client_number: u64,
    ) -> Result<Session, Errno> {
        let session = Session {
            address,
            client_number,
            tags,
            instance,
            expected_node,
            caches,
            slots: Pool::new(options.connections.clamp(1, MAX_CONNECTIONS)),
            batch_slots: Pool::new(BATCH_SLOTS),
            takes_batches: AtomicBool::new(false),
            keeps_write_leases: AtomicBool::new(false),
            options,
            placement: OnceLock::new(),
            data_connections: Arc::default(),
            identity: Mutex::default(),
            epoch: AtomicU64::new(0),
            boot_id: AtomicU64::new(0),
            last_contact: Mutex::default(),
            probe: Mutex::default(),
            unsynced: UnsyncedChanges::default(),
            handles: Mutex::default(),
            locks: Mutex::default(),
            leases: Mutex::default(),
            write_leases: Mutex::default(),
        };
        let mut slot = session.slots.acquire(Slot::new);
        let connection = session.with_retries(|| session.connect(slot.number, 1, false));
        slot.connection = Some(connection?);
        session.slots.release(slot);
        Ok(session)
    }

    /// Whether the daemon is on this host, so that it passes descriptors of data objects.
    pub fn is_local(&self) -> bool {
        matches!(self.address, Address::Unix(_))
    }

    /// The placement of the instance when the session was opened.
    pub fn placement(&self) -> Result<&Placement, Errno> {
        self.placement.get().ok_or(Errno::EPROTO)
    }

    /// The epoch of the daemon at the last handshake: each start has its own.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether the daemon cannot have ended the session since its last reply.
    pub fn is_lease_current(&self) -> bool {
        let now = self.options.system.now();
        let last_contact = *self.last_contact.lock();
        last_contact.is_some_and(|sent_at| now - sent_at < self.options.session_lease)
    }

    /// The boot id of the daemon's host at the last handshake; 0 if it is unknown.
    pub fn boot_id(&self) -> u64 {
        self.boot_id.load(Ordering::Acquire)
    }

    /// Sends a request, and repeats it until there is a reply or the timeout elapses. The daemon
    /// carries it out once, however often it is repeated. A refusal is an error.
    pub fn call<T: CallResult>(&self, request: impl Into<Request>) -> Result<T, Errno> {
        self.exchange(None, request.into())?.reply.try_into()
    }

    /// As [`call`](Session::call), but a refusal is a reply, too, with a time to live.
    pub fn exchange(
        &self,
        caller: Option<&Credentials>,
        request: Request,
    ) -> Result<SessionReply, Errno> {
        self.receive_or_retransmit(self.send_awaited_call(caller, request)?)
    }

    /// As [`send_call`](Session::send_call), where the next thing that this thread does for long is to wait
    /// for the reply.
    fn send_awaited_call(
        &self,
        caller: Option<&Credentials>,
        request: Request,
    ) -> Result<PendingCall, Errno> {
        let slot = self.acquire_slot()?;
        Ok(self.begin_call(slot, caller, request, |connection, call| connection.carry_out(call)))
    }

    /// Sends a request without waiting for the reply. Requests to several nodes must be sent in
    /// ascending order of the nodes, or two clients could wait for each other's connections. While all
    /// connections have calls in flight, waits for one of them as long as the daemon works; `EIO`: it
    /// has not replied to anything for the timeout.
    pub fn send_call(
        &self,
        caller: Option<&Credentials>,
        request: Request,
    ) -> Result<PendingCall, Errno> {
        let slot = self.acquire_slot()?;
        Ok(self.send_on(slot, caller, request))
    }

    fn send_on(&self, slot: Slot, caller: Option<&Credentials>, request: Request) -> PendingCall {
        self.begin_call(slot, caller, request, |connection, call| connection.send(call, &[]))
    }

    fn begin_call(
        &self,
        mut slot: Slot,
        caller: Option<&Credentials>,
        request: Request,
        send: impl FnOnce(&mut dyn Channel, &Call) -> std::io::Result<()>,
    ) -> PendingCall {
        let sent_at = self.options.system.now();
        slot.seq += 1;
        let pending_syncs = self.unsynced.begin(&request, self.boot_id());
        let tags = self.tags.of(&request);
        let call = Call { seq: slot.seq, caller: caller.cloned(), tags, request };
        let is_sent = match &mut slot.connection {
            Some(connection) => send(&mut **connection, &call).is_ok(),
            None => false,
        };
        if !is_sent {
            slot.connection = None;
        }
        PendingCall { slot, call, sent_at, is_sent, pending_syncs }
    }

    /// Receives the reply to a request that was sent; retransmits the request where necessary.
    pub fn receive_or_retransmit(&self, pending: PendingCall) -> Result<SessionReply, Errno> {
        let PendingCall { mut slot, mut call, mut sent_at, mut is_sent, pending_syncs } = pending;
        let backoff = CONFLICT_BACKOFF.with_timeout(self.options.timeout);
        let mut retries = backoff.start_at(sent_at, &*self.options.system);
        let result = loop {
            assert_eq!(call.seq, slot.seq, "one call at a time");
            let result = self.with_retries(|| {
                let mut connection = match slot.connection.take() {
                    Some(connection) => connection,
                    None => self.connect(slot.number, slot.seq, false)?,
                };
                self.check_batch(&call)?;
                if !std::mem::take(&mut is_sent) {
                    connection.carry_out(&call)?;
                }
                if call.request.may_take_long() {
                    self.await_slow_reply(&connection)?;
                }
                let response = connection.receive(call.seq, &mut [])?;
                slot.connection = Some(connection);
                Ok(response)
            });
            // EAGAIN: the request conflicts with another one, or a node is unreachable. Nothing was
            // done.
            let conflicts =
                matches!(&result, Ok(response) if response.reply == Reply::Failed(Errno::EAGAIN));
            if !conflicts {
                break result;
            }
            if !retries.wait() {
                tracing::error!(address = %self.address, request = ?call.request,
                    "request timeout: it conflicts with others, or a storage node is unreachable");
                break Err(Errno::EIO);
            }
            sent_at = self.options.system.now();
            slot.seq += 1;
            call.seq = slot.seq;
        };
        self.release(slot);
        if !result.as_ref().is_ok_and(|response| response.reply == Reply::Done) {
            self.unsynced.put_back(pending_syncs);
        } else if pending_syncs.is_lost(self.boot_id()) {
            tracing::error!(address = %self.address,
                "sync failed: the storage node restarted, and unsynced changes may be lost");
            return Err(Errno::EIO);
        }
        let response = result?;
        {
            let mut last_contact = self.last_contact.lock();
            *last_contact = (*last_contact).max(Some(sent_at));
        }
        Ok(self.with_ttl(response, sent_at))
    }

    /// A connection without a call in flight.
    fn acquire_slot(&self) -> Result<Slot, Errno> {
        self.acquire_slot_of(&self.slots, Slot::new)
    }

    fn acquire_slot_of(
        &self,
        slots: &Pool<Slot>,
        create: impl Fn(u32) -> Slot,
    ) -> Result<Slot, Errno> {
        let acquired = self.wait_while_responding(|interval| {
            Ok(slots.acquire_until(Some(Instant::now() + interval), &create))
        });
        acquired.map_err(|_| {
            tracing::error!(address = %self.address,
                "request timeout: the storage daemon replies to none of the requests before");
            Errno::EIO
        })
    }

    /// The call in flight on a connection is over.
    fn release(&self, slot: Slot) {
        let slots = if is_batch_slot(slot.number) { &self.batch_slots } else { &self.slots };
        slots.release(slot);
    }

    /// Sends a request once, with a short timeout, unless all connections have calls in flight for that
    /// long.
    pub fn call_best_effort(&self, request: impl Into<Request>) -> Option<SessionReply> {
        let sent_at = self.options.system.now();
        let deadline = Instant::now() + BEST_EFFORT_TIMEOUT;
        let mut slot = self.slots.acquire_until(Some(deadline), Slot::new)?;
        slot.seq += 1;
        let call = Call::new(slot.seq, request);
        let connection = slot.connection.take();
        let connection = connection.or_else(|| self.connect(slot.number, slot.seq, false).ok());
        let response = connection.and_then(|mut connection| {
            connection.set_timeout(Some(BEST_EFFORT_TIMEOUT)).ok()?;
            let response = connection.call(&call, &[], &mut []).ok()?;
            connection.set_timeout(Some(self.reply_timeout())).ok()?;
            slot.connection = Some(connection);
            Some(response)
        });
        self.slots.release(slot);
        response.map(|response| self.with_ttl(response, sent_at))
    }

    /// The response to a call sent at `sent_at`.
    fn with_ttl(&self, response: Response, sent_at: Instant) -> SessionReply {
        let reply = self.reply_with_ttl(response.reply, response.cacheable, sent_at);
        SessionReply { descriptor: response.descriptor, ..reply }
    }

    /// The reply to a call sent at `sent_at`, with its time to live. Its tags are kept, and the attributes
    /// of a directory separated.
    fn reply_with_ttl(&self, reply: Reply, cacheable: bool, sent_at: Instant) -> SessionReply {
        let ttl = if cacheable {
            let passed = self.options.system.now() - sent_at;
            Duration::from_nanos(CACHE_LIFETIME_NS).saturating_sub(passed)
        } else {
            Duration::ZERO
        };
        let reply = match reply {
            Reply::Tagged { reply, tags } => {
                self.tags.insert_all(tags);
                *reply
            }
            reply => reply,
        };
        let (reply, delegation) = match reply {
            Reply::Delegating { reply, number } => (*reply, Some(number)),
            reply => (reply, None),
        };
        let (reply, directory) = match reply {
            Reply::WithDirectory { reply, directory } => (*reply, Some(directory)),
            reply => (reply, None),
        };
        SessionReply { reply, descriptor: None, ttl, directory, delegation }
    }
}
