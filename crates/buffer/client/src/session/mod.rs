//! A session with a storage daemon: connections, repetition, recovery after the daemon restarts.

mod connect;
mod data_calls;
mod data_connections;
mod locks;

pub use data_calls::receive_data_reply;
pub use data_connections::DataConnection;
pub use locks::LockCallback;

use crate::system::{Connection, Os, System};
use crate::unsynced::{PendingSync, Unsynced};
use connect::Identity;
use forebay_net::auth::PoolKey;
use forebay_net::connection::Response;
use forebay_net::munge::Munge;
use forebay_protocol::address::Address;
use forebay_protocol::message::{CACHE_LIFETIME_NS, OpenMode};
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest, SessionRequest};
use forebay_protocol::placement::{Capability, Placement};
use forebay_protocol::{
    Call, Credentials, Errno, HandleId, Ino, InstanceId, NodeIndex, Reply, Request,
};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How to reach a daemon.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// How long to keep trying when a daemon does not answer; then calls fail with `EIO`.
    pub timeout: Duration,
    /// Connections to each daemon for requests; as many can be under way at a time. At most 60.
    pub connections: u32,
    /// The pool's key, for daemons on other hosts.
    pub key: Option<PoolKey>,
    /// This host's `munged`, for daemons on other hosts; comes before the key.
    pub munge: Option<Munge>,
    /// Time and network.
    pub system: Arc<dyn System>,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            timeout: Duration::from_secs(60),
            connections: 16,
            key: None,
            munge: None,
            system: Arc::new(Os),
        }
    }
}

/// First pause before a request that met another one is tried again.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// How long an answer that can be done without is waited for.
const GLANCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Slot {
    number: u32,
    /// Number of the last call.
    seq: u64,
    link: Option<Connection>,
}

#[derive(Debug, Default)]
struct Pool {
    free: Vec<Slot>,
    made: u32,
    /// Those who wait for one.
    waiting: u32,
}

/// How a handle is opened again after a restart of the daemon.
#[derive(Clone, Debug)]
enum Reopen {
    File(Ino, OpenMode),
    Object(Capability, OpenMode),
}

/// The answer to a call.
#[derive(Debug)]
pub struct SessionReply {
    /// The reply.
    pub reply: Reply,
    /// The descriptor that came along.
    pub descriptor: Option<OwnedFd>,
    /// How long it may be believed.
    pub ttl: Duration,
}

/// A request that was sent, to be [finished](Session::finish).
#[derive(Debug)]
#[must_use = "its connection is lost unless it is finished"]
pub struct PendingCall {
    slot: Slot,
    call: Call,
    sent: Instant,
    /// The connection took it.
    taken: bool,
    /// What it is to make durable.
    unsynced: PendingSync,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    address: Address,
    instance: Option<InstanceId>,
    /// The place of the daemon's node in the instance, if that must be a certain one.
    node: Option<NodeIndex>,
    caches: bool,
    options: ClientOptions,
    place: OnceLock<Placement>,
    pool: Mutex<Pool>,
    lanes: Arc<data_connections::DataConnections>,
    returned: Condvar,
    identity: Mutex<Identity>,
    epoch: AtomicU64,
    boot: AtomicU64,
    /// Names and attributes that were changed.
    unsynced: Unsynced,
    handles: Mutex<BTreeMap<HandleId, Reopen>>,
    locks: Mutex<locks::LockTable>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Begin a session: with an instance, or without to administer the daemon. `node`: the daemon
    /// must be that one of the instance. `caches`: one cache sits between the session and all who
    /// use it.
    pub fn open(
        address: Address,
        instance: Option<InstanceId>,
        node: Option<NodeIndex>,
        options: ClientOptions,
        caches: bool,
    ) -> Result<Session, Errno> {
        let session = Session {
            address,
            instance,
            node,
            caches,
            options,
            place: OnceLock::new(),
            pool: Mutex::default(),
            lanes: Arc::default(),
            returned: Condvar::new(),
            identity: Mutex::default(),
            epoch: AtomicU64::new(0),
            boot: AtomicU64::new(0),
            unsynced: Unsynced::default(),
            handles: Mutex::default(),
            locks: Mutex::default(),
        };
        let mut slot = session.take_slot();
        let link = session.persist(|| session.connect(slot.number, 1, false));
        slot.link = Some(link?);
        session.put_slot(slot);
        Ok(session)
    }

    /// Is the daemon on this host? Then data do not travel over sockets.
    pub fn is_local(&self) -> bool {
        matches!(self.address, Address::Unix(_))
    }

    /// Where the instance lies, as it was when the session began.
    pub fn placement(&self) -> Result<&Placement, Errno> {
        self.place.get().ok_or(Errno::EPROTO)
    }

    /// The daemon's start that the session last spoke to.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The start of the daemon's host that the session last spoke to; 0 if it is not known.
    pub fn boot_id(&self) -> u64 {
        self.boot.load(Ordering::Acquire)
    }

    /// The daemon opened a handle; open it again if it restarts.
    pub fn remember_file(&self, handle: HandleId, ino: Ino, mode: OpenMode) {
        lock(&self.handles).insert(handle, Reopen::File(ino, again(mode)));
    }

    /// The daemon opened a data object by this permit; open it again if it restarts.
    pub fn remember_object(&self, handle: HandleId, permit: Capability, mode: OpenMode) {
        lock(&self.handles).insert(handle, Reopen::Object(permit, again(mode)));
    }

    /// A handle is being closed.
    pub fn forget_handle(&self, handle: HandleId) {
        lock(&self.handles).remove(&handle);
    }

    fn take_slot(&self) -> Slot {
        let mut pool = lock(&self.pool);
        loop {
            if let Some(slot) = pool.free.pop() {
                return slot;
            }
            if pool.made < self.options.connections.clamp(1, 60) {
                pool.made += 1;
                return Slot {
                    number: pool.made - 1,
                    seq: 0,
                    link: None,
                };
            }
            pool.waiting += 1;
            pool = self
                .returned
                .wait(pool)
                .unwrap_or_else(PoisonError::into_inner);
            pool.waiting -= 1;
        }
    }

    fn put_slot(&self, slot: Slot) {
        let mut pool = lock(&self.pool);
        pool.free.push(slot);
        // Notifying is a system call, also when nobody waits.
        let awaited = pool.waiting > 0;
        drop(pool);
        if awaited {
            self.returned.notify_one();
        }
    }

    /// Make a request; repeat it until it is answered or patience ends. The daemon carries it out
    /// once, however often it is repeated.
    pub fn call(
        &self,
        caller: Option<&Credentials>,
        request: Request,
    ) -> Result<SessionReply, Errno> {
        let said = self.exchange(caller, request)?;
        match said.reply {
            Reply::Failed(errno) => Err(errno),
            _ => Ok(said),
        }
    }

    /// As [`call`](Session::call), but the daemon's refusal is an answer that may be believed, too.
    pub fn exchange(
        &self,
        caller: Option<&Credentials>,
        request: Request,
    ) -> Result<SessionReply, Errno> {
        self.receive_reply(self.send_call(caller, request))
    }

    /// Send a request without waiting for the answer. Whoever has several under way must send them
    /// in the order of their nodes, lest two wait for each other's connections.
    pub fn send_call(&self, caller: Option<&Credentials>, request: Request) -> PendingCall {
        let sent = self.options.system.now();
        let mut slot = self.take_slot();
        slot.seq += 1;
        let unsynced = match request {
            Request::File(FileRequest::Sync { .. })
            | Request::File(FileRequest::SyncMetadata { .. }) => self.unsynced.take(),
            _ => PendingSync::NOTHING,
        };
        if changes(&request) {
            self.unsynced.record_change(self.boot_id());
        }
        let call = Call {
            seq: slot.seq,
            caller: caller.cloned(),
            request,
        };
        let taken = match &mut slot.link {
            Some(link) => link.send(&call, &[]).is_ok(),
            None => false,
        };
        if !taken {
            slot.link = None;
        }
        PendingCall {
            slot,
            call,
            sent,
            taken,
            unsynced,
        }
    }

    /// Wait for the answer to a request that was sent; send it again where that is needed.
    pub fn receive_reply(&self, under_way: PendingCall) -> Result<SessionReply, Errno> {
        let PendingCall {
            mut slot,
            mut call,
            mut sent,
            mut taken,
            unsynced,
        } = under_way;
        let start = sent;
        let mut pause = FIRST_PAUSE;
        let result = loop {
            let answer = self.persist(|| {
                let mut link = match slot.link.take() {
                    Some(link) => link,
                    None => self.connect(slot.number, slot.seq, false)?,
                };
                if !std::mem::take(&mut taken) {
                    link.send(&call, &[])?;
                }
                let answer = link.receive(call.seq, &mut [])?;
                slot.link = Some(link);
                Ok(answer)
            });
            // It met another request. Nothing was done, and it may go through the next time.
            let met = matches!(&answer, Ok(said) if said.reply == Reply::Failed(Errno::EAGAIN));
            if !met {
                break answer;
            }
            if self.options.system.now() - start >= self.options.timeout {
                tracing::error!(address = %self.address, request = ?call.request,
                    "a request met others, or missed a storage node, until patience ended");
                break Err(Errno::EIO);
            }
            self.options.system.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            sent = self.options.system.now();
            slot.seq += 1;
            call.seq = slot.seq;
        };
        self.put_slot(slot);
        match &result {
            Ok(answer) if answer.reply == Reply::Done => {
                if unsynced.is_lost(self.boot_id()) {
                    tracing::error!(address = %self.address,
                        "the storage node was started anew, and what was not synced may be gone");
                    return Err(Errno::EIO);
                }
            }
            _ => self.unsynced.put_back(unsynced),
        }
        Ok(self.said(result?, sent))
    }
}

impl Session {
    /// Make a request that is not worth waiting for if the daemon is not there.
    pub fn call_best_effort(&self, request: Request) -> Option<SessionReply> {
        let sent = self.options.system.now();
        let mut slot = self.take_slot();
        slot.seq += 1;
        let call = Call {
            seq: slot.seq,
            caller: None,
            request,
        };
        let link = slot.link.take();
        let link = link.or_else(|| self.connect(slot.number, slot.seq, false).ok());
        let answer = link.and_then(|mut link| {
            link.set_timeout(Some(GLANCE)).ok()?;
            let answer = link.call(&call, &[], &mut []).ok()?;
            link.set_timeout(None).ok()?;
            slot.link = Some(link);
            Some(answer)
        });
        self.put_slot(slot);
        answer.map(|answer| self.said(answer, sent))
    }
}

/// Does a request change names or attributes?
fn changes(request: &Request) -> bool {
    match request {
        Request::File(FileRequest::Open { open, .. }) => open.truncate,
        Request::Name(NameRequest::Mknod { .. })
        | Request::Name(NameRequest::Create { .. })
        | Request::Name(NameRequest::PutFile { .. })
        | Request::Name(NameRequest::Unlink { .. })
        | Request::Name(NameRequest::RmDir { .. })
        | Request::Name(NameRequest::Rename { .. })
        | Request::Name(NameRequest::Link { .. })
        | Request::Inode(InodeRequest::SetAttr { .. })
        | Request::Inode(InodeRequest::SetXattr { .. })
        | Request::Inode(InodeRequest::RemoveXattr { .. })
        | Request::File(FileRequest::Allocate { .. }) => true,
        _ => false,
    }
}

/// How to open again what was opened like this.
fn again(mode: OpenMode) -> OpenMode {
    OpenMode {
        truncate: false,
        descriptor: false,
        ..mode
    }
}

impl Session {
    /// An answer to a call sent at `sent`.
    fn said(&self, answer: Response, sent: Instant) -> SessionReply {
        let valid = if answer.cacheable {
            let passed = self.options.system.now() - sent;
            Duration::from_nanos(CACHE_LIFETIME_NS).saturating_sub(passed)
        } else {
            Duration::ZERO
        };
        SessionReply {
            reply: answer.reply,
            descriptor: answer.descriptor,
            ttl: valid,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Without the goodbye the session would linger for the time of a lease.
        let slot = lock(&self.pool).free.pop();
        if let Some(Slot {
            seq,
            link: Some(mut link),
            ..
        }) = slot
        {
            let _ = link.set_timeout(Some(Duration::from_secs(5)));
            let call = Call {
                seq: seq + 1,
                caller: None,
                request: Request::Session(SessionRequest::Detach),
            };
            let _ = link.call(&call, &[], &mut []);
        }
    }
}
