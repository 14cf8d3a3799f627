//! The sessions of one client with the storage nodes of an instance, opened when a node is first
//! needed.
//!
//! Node 0 is special: every client opens a session with it before it sends requests to any other
//! node, and keeps it alive by heartbeats. A time to live that another node grants is limited by what
//! node 0 has granted, since nodes of earlier releases do not recall what they have granted to the only
//! client that they know.

mod affected_files;
mod batches;
mod cache_recalls;
mod delegation;
mod event_watch;
mod exchange;
mod pending_writes;

pub use delegation::{Delegation, Reported};
pub use pending_writes::PendingWrites;

use crate::pool::Pool;
use crate::session::{
    CallResult, ClientOptions, InodeTags, PendingCall, ReplyCaches, Session, SessionReply,
};
use crate::system::System;
use crate::truncations::{BootIds, Truncations};
use cache_recalls::CacheRecalls;
use forebay_policy::layout::Layout;
use forebay_protocol::address::Address;
use forebay_protocol::message::{CACHE_LIFETIME_NS, FileRequest, InodeRequest};
use forebay_protocol::{Credentials, Errno, HandleId, Ino, InstanceId, NodeIndex, Request};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Maximum number of requests to different nodes that one operation has in flight.
pub const MAX_IN_FLIGHT: usize = 32;

/// Maximum time to live of a reply.
const MAX_TTL: Duration = Duration::from_nanos(CACHE_LIFETIME_NS);
/// Time without a reply after which node 0 gets a heartbeat; much shorter than its session timeout.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);

/// The node that every client has a session with.
pub const NODE_0: NodeIndex = NodeIndex(0);

/// The addresses of an instance's storage daemons, in the order of the instance's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddresses(pub Vec<Address>);

impl From<Address> for NodeAddresses {
    fn from(address: Address) -> NodeAddresses {
        NodeAddresses(vec![address])
    }
}

impl From<Vec<Address>> for NodeAddresses {
    fn from(addresses: Vec<Address>) -> NodeAddresses {
        NodeAddresses(addresses)
    }
}

#[derive(Debug)]
struct NodeSession {
    address: Address,
    session: OnceLock<Session>,
    /// Held while the session is opened.
    opening: Mutex<()>,
}

/// All sessions of a client.
#[derive(Debug)]
pub struct Sessions {
    instance: InstanceId,
    options: ClientOptions,
    caches: ReplyCaches,
    tags: Arc<InodeTags>,
    /// Distinguishes this client from others.
    client_number: u64,
    layout: Layout,
    nodes: Box<[NodeSession]>,
    next_handle: AtomicU64,
    /// The right to append. A request that waits for an append lock occupies a connection, and the
    /// holder of the lock needs one: at most half of them may wait.
    pub append_slots: Pool<()>,
    exclusivity: Mutex<Exclusivity>,
    cache_recalls: CacheRecalls,
    /// Writes that programs take to be carried out, and that are not acknowledged.
    pub pending_writes: PendingWrites,
    /// Changes of entries that programs take to be made, and that are not acknowledged.
    pub delegation: Delegation,
    /// Files that were truncated and not synced.
    pub(crate) truncations: Truncations,
}

/// Exclusive access that node 0 has granted to the only client of an instance.
#[derive(Debug, Default)]
struct Exclusivity {
    /// No other client exists until then.
    until: Option<Instant>,
    /// Last reply of node 0.
    last_reply: Option<Instant>,
    last_heartbeat: Option<Instant>,
}

impl Exclusivity {
    fn time_left(&self, now: Instant) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

impl Sessions {
    /// Opens a session with the first of `nodes`; a single address may be that of any node, and
    /// provides the others.
    pub fn open(
        nodes: &NodeAddresses,
        instance: InstanceId,
        options: ClientOptions,
        caches: ReplyCaches,
    ) -> Result<Sessions, Errno> {
        let first = nodes.0.first().ok_or(Errno::EINVAL)?;
        let expected = (nodes.0.len() > 1).then_some(NODE_0);
        let tags: Arc<InodeTags> = Arc::default();
        let client_number = RandomState::new().build_hasher().finish();
        let session = Session::open(
            first.clone(),
            Some(instance),
            expected,
            options.clone(),
            caches,
            tags.clone(),
            client_number,
        )?;
        let placement = session.placement()?;
        let (own, layout) = (usize::from(placement.node.0), placement.layout());
        let mut addresses = nodes.0.clone();
        if addresses.len() == 1 && placement.is_distributed() {
            let peers = placement.peers.iter().map(|text| text.parse());
            addresses = peers.collect::<Result<_, _>>()?;
            if let Some(address) = addresses.get_mut(own) {
                *address = first.clone();
            }
        }
        if addresses.len() != usize::from(layout.nodes()) || own >= addresses.len() {
            tracing::error!(%instance, addresses = addresses.len(), nodes = layout.nodes(),
                "attach failed: the number of addresses is not that of the instance's nodes");
            return Err(Errno::EINVAL);
        }
        let nodes: Box<[NodeSession]> = addresses
            .into_iter()
            .map(|address| NodeSession {
                address,
                session: OnceLock::new(),
                opening: Mutex::default(),
            })
            .collect();
        if let Some(node) = nodes.get(own) {
            let _ = node.session.set(session);
        }
        let sessions = Sessions {
            instance,
            append_slots: Pool::new((options.connections / 2).max(1)),
            exclusivity: Mutex::new(Exclusivity {
                last_reply: Some(options.system.now()),
                ..Exclusivity::default()
            }),
            cache_recalls: CacheRecalls::default(),
            pending_writes: PendingWrites::default(),
            delegation: Delegation::default(),
            options,
            caches,
            tags,
            client_number,
            layout,
            nodes,
            truncations: Truncations::default(),
            next_handle: AtomicU64::new(1),
        };
        sessions.session(NODE_0)?;
        Ok(sessions)
    }

    /// Opens new sessions with the same instance, for a cache.
    pub fn open_for_cache(
        &self,
        caches: ReplyCaches,
        delays_writes: bool,
    ) -> Result<Sessions, Errno> {
        let addresses = self.nodes.iter().map(|node| node.address.clone());
        let nodes = NodeAddresses(addresses.collect());
        let options = ClientOptions { delays_writes, ..self.options.clone() };
        Sessions::open(&nodes, self.instance, options, caches)
    }

    /// The instance.
    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// The addresses of its storage daemons, in the order of its nodes.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.nodes.iter().map(|node| &node.address)
    }

    /// Whether any node of the instance is on another host.
    pub fn any_remote(&self) -> bool {
        self.nodes.iter().any(|node| !matches!(node.address, Address::Unix(_)))
    }

    /// Whether all users of the sessions share one cache, that of a kernel.
    pub fn has_single_cache(&self) -> bool {
        self.caches.is_single()
    }

    /// Whether that cache lets a user follow only names in directories that the user may search.
    pub fn cache_checks_permissions(&self) -> bool {
        self.caches == ReplyCaches::SingleWithPermissions
    }

    /// The options that the sessions were opened with.
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// Clock and network.
    pub fn system(&self) -> &dyn System {
        &*self.options.system
    }

    /// Layout of files on the nodes.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// All nodes, in ascending order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.layout.nodes()).map(NodeIndex)
    }

    /// A new handle, the same on all nodes.
    pub fn new_handle(&self) -> HandleId {
        HandleId(self.next_handle.fetch_add(1, Ordering::Relaxed))
    }

    /// The session with `node`, opened now if there is none.
    pub fn session(&self, node: NodeIndex) -> Result<&Session, Errno> {
        let node_session = self.nodes.get(usize::from(node.0)).ok_or(Errno::ESTALE)?;
        if let Some(session) = node_session.session.get() {
            return Ok(session);
        }
        let _opening = node_session.opening.lock();
        if let Some(session) = node_session.session.get() {
            return Ok(session);
        }
        let session = Session::open(
            node_session.address.clone(),
            Some(self.instance),
            Some(node),
            self.options.clone(),
            self.caches,
            self.tags.clone(),
            self.client_number,
        )?;
        let session = node_session.session.get_or_init(|| session);
        self.obey_cache_recalls_of(node);
        Ok(session)
    }

    /// Whether nodes refuse the number of an inode only because this client has forgotten its tag.
    pub fn lacks_tag(&self, ino: Ino) -> bool {
        self.tags.lacks(ino)
    }

    /// Whether there is a session with `node`.
    fn is_open(&self, node: NodeIndex) -> bool {
        let session = self.nodes.get(usize::from(node.0)).map(|node| &node.session);
        session.is_some_and(|session| session.get().is_some())
    }

    fn open_sessions(&self) -> impl Iterator<Item = &Session> {
        self.nodes.iter().filter_map(|node| node.session.get())
    }

    /// The boot ids of these nodes' hosts, `None` for those that do not reply. Sessions are opened with
    /// nodes that have none.
    pub fn boot_ids(&self, nodes: impl IntoIterator<Item = NodeIndex>) -> BootIds {
        let boot_id = |node| (node, self.session(node).ok().map(Session::boot_id));
        nodes.into_iter().map(boot_id).collect()
    }

    /// Whether an open request may truncate a file without a request to any node before it: all boot
    /// ids are known, and [`fence_writes`](Sessions::fence_writes) has nothing to do.
    pub fn may_truncate_on_open(&self) -> bool {
        self.open_sessions().count() == self.nodes.len()
            && !self.open_sessions().any(Session::has_unfenced_writes)
    }

    /// After this no write is carried out whose connection broke before. Fails if a node does not
    /// reply.
    ///
    /// A write that failed may still be in a socket. Other writes of this client wait until it
    /// cannot be carried out any more, and so must every request that determines the contents of a
    /// file, or it could be undone later. Writes of other clients do not wait: a daemon carries out
    /// nothing for a client whose connection it knows to be closed, and this client closes the
    /// connection of a write before the program learns that it failed.
    pub fn fence_writes(&self) -> Result<(), Errno> {
        self.open_sessions().try_for_each(Session::fence_writes)
    }

    /// As [`fence_writes`](Sessions::fence_writes), except for nodes that do not reply at once.
    pub fn try_fence_writes(&self) {
        self.open_sessions().for_each(Session::try_fence_writes);
    }

    /// Before a request to `node`: keeps the session with node 0 alive, and its grant up to date.
    fn send_heartbeat_if_due(&self, node: NodeIndex) {
        if node == NODE_0 {
            return;
        }
        let now = self.options.system.now();
        {
            let mut exclusivity = self.exclusivity.lock();
            let since = |then: Option<Instant>| then.map_or(Duration::MAX, |then| now - then);
            let expires = self.caches.is_single() && exclusivity.time_left(now) < MAX_TTL / 2;
            let due = expires || since(exclusivity.last_reply) > HEARTBEAT_INTERVAL;
            let min_interval =
                if self.caches.is_single() { MAX_TTL / 4 } else { HEARTBEAT_INTERVAL / 4 };
            if !due || since(exclusivity.last_heartbeat) < min_interval {
                return;
            }
            exclusivity.last_heartbeat = Some(now);
        }
        let recalls = self.cache_recalls.count();
        let first = self.nodes.first().and_then(|node| node.session.get());
        if let Some(reply) =
            first.and_then(|session| session.call_best_effort(InodeRequest::StatFs))
        {
            self.limit_ttl(NODE_0, reply.ttl, recalls);
        }
    }

    /// The time to live of a reply of `node`, which itself grants `ttl`. `recalls`: the recalls of the
    /// lease on names and attributes before the request was sent; one that came since ends the grant.
    fn limit_ttl(&self, node: NodeIndex, ttl: Duration, recalls: u64) -> Duration {
        assert!(ttl <= MAX_TTL);
        if node != NODE_0 && ttl.is_zero() {
            return ttl;
        }
        let now = self.options.system.now();
        let mut exclusivity = self.exclusivity.lock();
        let ttl = if self.cache_recalls.count() == recalls { ttl } else { Duration::ZERO };
        if self.nodes.len() == 1 {
            return ttl;
        }
        if node == NODE_0 {
            exclusivity.last_reply = Some(now);
            exclusivity.until = exclusivity.until.max(Some(now + ttl));
            return ttl;
        }
        ttl.min(exclusivity.time_left(now))
    }

    /// Sends requests to several nodes concurrently, one to each, in ascending order of the nodes.
    /// `take` gets every reply, in the same order; a refusal is an error.
    pub fn call_nodes<T: CallResult>(
        &self,
        caller: Option<&Credentials>,
        requests: impl IntoIterator<Item = (NodeIndex, impl Into<Request>)>,
        mut take: impl FnMut(NodeIndex, Result<SessionReply<T>, Errno>),
    ) {
        let requests = requests.into_iter().map(|(node, request)| (node, request.into()));
        let requests: Vec<(NodeIndex, Request)> = requests.collect();
        if requests.is_empty() {
            return;
        }
        for (_, request) in &requests {
            self.pending_writes.finish_before(request).iter().for_each(|file| file.finish());
        }
        self.delegation.finish();
        let recalls = self.cache_recalls.count();
        let mut in_flight = VecDeque::new();
        let mut receive = |(node, sent): (NodeIndex, Result<(&Session, PendingCall), Errno>)| {
            let reply = sent.and_then(|(session, pending)| session.receive_or_retransmit(pending));
            take(
                node,
                reply.and_then(|reply| {
                    let ttl = self.limit_ttl(node, reply.ttl, recalls);
                    SessionReply { ttl, ..reply }.into_result()
                }),
            );
        };
        let mut last = None;
        for (node, request) in requests {
            // In any other order two clients could wait for each other's connections.
            assert!(last < Some(node), "nodes are in ascending order");
            last = Some(node);
            if in_flight.len() == MAX_IN_FLIGHT
                && let Some(first) = in_flight.pop_front()
            {
                receive(first);
            }
            let session = self.session(node);
            let sent =
                session.and_then(|session| Ok((session, session.send_call(caller, request)?)));
            in_flight.push_back((node, sent));
            assert!(in_flight.len() <= MAX_IN_FLIGHT);
        }
        in_flight.into_iter().for_each(receive);
    }

    /// Sends the same request to all nodes. Returns the first error.
    pub fn call_all_nodes<T: CallResult>(
        &self,
        caller: Option<&Credentials>,
        request: impl Into<Request> + Clone,
        mut take: impl FnMut(T),
    ) -> Result<(), Errno> {
        let mut result = Ok(());
        let requests = self.nodes().map(|node| (node, request.clone()));
        self.call_nodes(caller, requests, |_, reply| {
            let taken = reply.map(|reply| take(reply.reply));
            result = result.and(taken);
        });
        result
    }

    /// Writes all changes of names and attributes so far to stable storage.
    pub fn sync(&self, caller: Option<&Credentials>) -> Result<(), Errno> {
        let request = FileRequest::Sync { handle: None, data_only: false };
        self.call_all_nodes(caller, request, |()| {})
    }

    /// The same, and the space of removed files is free on all nodes, unless one is slow.
    pub fn sync_removals(&self, caller: Option<&Credentials>) -> Result<(), Errno> {
        self.sync(caller)?;
        let request = FileRequest::Sync { handle: None, data_only: true };
        self.call_all_nodes(caller, request, |()| {})
    }
}
