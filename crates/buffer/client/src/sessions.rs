//! The sessions of one client with the storage nodes of an instance, begun when something is first
//! asked of a node.
//!
//! Node 0 is different: every client begins a session with it before it asks anything of any node,
//! and keeps it. So node 0 knows whether a client is alone with the instance, and what another node
//! permits to be cached is believed only as long as node 0 has said so, too. (A client that has lost
//! node 0 from sight, but not others, for longer than a session lives goes on all the same. Whoever
//! is alone in the eyes of node 0 then may see what that client changes between other nodes up to
//! a second late.)

use crate::session::{ClientOptions, PendingCall, Session, SessionReply, lock};
use crate::system::System;
use crate::truncations::{BootIds, Truncations};
use forebay_policy::layout::Layout;
use forebay_protocol::address::Address;
use forebay_protocol::message::CACHE_LIFETIME_NS;
use forebay_protocol::message::InodeRequest;
use forebay_protocol::{Credentials, Errno, HandleId, InstanceId, NodeIndex, Reply, Request};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Requests to different nodes that one call has under way at a time.
pub const MAX_IN_FLIGHT: usize = 32;

/// How long an answer may be believed at most.
const BELIEVED: Duration = Duration::from_nanos(CACHE_LIFETIME_NS);
/// Node 0 is asked something after this time without an answer of it, well before it would take the
/// client for gone.
const IN_SIGHT: Duration = Duration::from_secs(20);

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

impl From<&[Address]> for NodeAddresses {
    fn from(addresses: &[Address]) -> NodeAddresses {
        NodeAddresses(addresses.to_vec())
    }
}

#[derive(Debug)]
struct Place {
    address: Address,
    session: OnceLock<Session>,
    /// Held while the session is begun.
    beginning: Mutex<()>,
}

/// All sessions of a client.
#[derive(Debug)]
pub struct Sessions {
    instance: InstanceId,
    options: ClientOptions,
    caches: bool,
    layout: Layout,
    places: Box<[Place]>,
    next_handle: AtomicU64,
    /// Free turns to append, and who waits for one.
    turns: Mutex<u32>,
    returned: Condvar,
    alone: Mutex<Alone>,
    /// Files that were cut and not synced.
    pub(crate) truncations: Truncations,
}

/// Until when node 0 is known to have no other client, and when it was last heard of and asked.
#[derive(Debug, Default)]
struct Alone {
    until: Option<Instant>,
    heard: Option<Instant>,
    asked: Option<Instant>,
}

/// The right to append.
#[derive(Debug)]
pub struct AppendSlot<'a>(&'a Sessions);

impl Drop for AppendSlot<'_> {
    fn drop(&mut self) {
        *lock(&self.0.turns) += 1;
        self.0.returned.notify_one();
    }
}

impl Alone {
    fn left(&self, now: Instant) -> Duration {
        self.until
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

impl Sessions {
    /// Begin with the first of `nodes`; a single address may be that of any node, and leads to the
    /// others. `caches`: one cache sits between the sessions and all who use them.
    pub fn open(
        nodes: &NodeAddresses,
        instance: InstanceId,
        options: ClientOptions,
        caches: bool,
    ) -> Result<Sessions, Errno> {
        let first = nodes.0.first().ok_or(Errno::EINVAL)?;
        let expected = (nodes.0.len() > 1).then_some(NodeIndex(0));
        let session = Session::open(
            first.clone(),
            Some(instance),
            expected,
            options.clone(),
            caches,
        )?;
        let at = session.placement()?;
        let (own, layout) = (usize::from(at.node.0), at.layout());
        let mut addresses = nodes.0.clone();
        if addresses.len() == 1 && at.is_distributed() {
            let known = at.peers.iter().map(|text| text.parse());
            addresses = known.collect::<Result<_, _>>()?;
            if let Some(address) = addresses.get_mut(own) {
                *address = first.clone();
            }
        }
        if addresses.len() != usize::from(layout.nodes()) || own >= addresses.len() {
            tracing::error!(%instance, addresses = addresses.len(), nodes = layout.nodes(),
                "the instance does not lie on as many storage nodes as there are addresses");
            return Err(Errno::EINVAL);
        }
        let place = |address| Place {
            address,
            session: OnceLock::new(),
            beginning: Mutex::default(),
        };
        let places: Box<[Place]> = addresses.into_iter().map(place).collect();
        if let Some(place) = places.get(own) {
            let _ = place.session.set(session);
        }
        let sessions = Sessions {
            instance,
            turns: Mutex::new((options.connections / 2).max(1)),
            returned: Condvar::new(),
            alone: Mutex::new(Alone {
                heard: Some(options.system.now()),
                ..Alone::default()
            }),
            options,
            caches,
            layout,
            places,
            truncations: Truncations::default(),
            next_handle: AtomicU64::new(1),
        };
        sessions.session(NodeIndex(0))?;
        Ok(sessions)
    }

    /// Other sessions with the same instance, for a cache.
    pub fn open_for_cache(&self) -> Result<Sessions, Errno> {
        let addresses = self.places.iter().map(|place| place.address.clone());
        let nodes = NodeAddresses(addresses.collect());
        Sessions::open(&nodes, self.instance, self.options.clone(), true)
    }

    /// Time and network.
    pub fn system(&self) -> &dyn System {
        &*self.options.system
    }

    /// How files are spread.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Does the instance live on more than one node?
    pub fn striped(&self) -> bool {
        self.places.len() > 1
    }

    /// All nodes, in their order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        (0..self.layout.nodes()).map(NodeIndex)
    }

    /// A number for a new handle, the same on all nodes.
    pub fn new_handle(&self) -> HandleId {
        HandleId(self.next_handle.fetch_add(1, Ordering::Relaxed))
    }

    /// Wait for a turn to append. Whoever waits for the lock on a file's end holds a connection, and
    /// who has the lock needs one: no more than half of them may wait.
    pub fn acquire_append_slot(&self) -> AppendSlot<'_> {
        let mut turns = lock(&self.turns);
        while *turns == 0 {
            turns = self
                .returned
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *turns -= 1;
        AppendSlot(self)
    }

    /// The session with `node`, begun now if there is none.
    pub fn session(&self, node: NodeIndex) -> Result<&Session, Errno> {
        let place = self.places.get(usize::from(node.0)).ok_or(Errno::ESTALE)?;
        if let Some(session) = place.session.get() {
            return Ok(session);
        }
        let _beginning = lock(&place.beginning);
        if let Some(session) = place.session.get() {
            return Ok(session);
        }
        let session = Session::open(
            place.address.clone(),
            Some(self.instance),
            Some(node),
            self.options.clone(),
            self.caches,
        )?;
        Ok(place.session.get_or_init(|| session))
    }

    /// The starts of all nodes' hosts, learnt now of nodes that no session was begun with yet; 0 of
    /// those that do not answer.
    pub fn boot_ids(&self) -> BootIds {
        let boot = |node| self.session(node).map_or(0, Session::boot_id);
        self.nodes().map(boot).collect()
    }

    fn begun(&self) -> impl Iterator<Item = &Session> {
        self.places.iter().filter_map(|place| place.session.get())
    }

    /// Can a file be cut without another word to any node before: are all nodes' starts known, and
    /// is there nothing to be done by [`end_old_writes`](Sessions::end_old_writes)?
    pub fn may_truncate_on_open(&self) -> bool {
        self.begun().count() == self.places.len() && !self.begun().any(Session::has_unfenced_writes)
    }

    /// After this no write is carried out any more whose connection broke before. An error if a node
    /// cannot be asked.
    ///
    /// A write that failed may still lie in a socket. Other writes of this client wait by themselves
    /// until nothing can come of it, and so must everything that determines what a file contains, or
    /// it could be undone later. Other clients' writes do not wait: a daemon carries out nothing for
    /// a client that it can tell has closed its connection, and this client has closed that of a
    /// write before the program learns that it failed.
    pub fn fence_writes(&self) -> Result<(), Errno> {
        self.begun().try_for_each(Session::fence_writes)
    }

    /// The same, without waiting for nodes that do not answer: nothing can be done about those.
    pub fn try_fence_writes(&self) {
        self.begun().for_each(Session::try_fence_writes);
    }

    /// Make a request of `node`. The daemon's refusal is an answer that may be believed, too.
    pub fn exchange(
        &self,
        node: NodeIndex,
        caller: Option<&Credentials>,
        request: Request,
    ) -> Result<SessionReply, Errno> {
        if !self.striped() {
            return self.session(node)?.exchange(caller, request);
        }
        self.keep_in_sight(node);
        let mut said = self.session(node)?.exchange(caller, request)?;
        said.ttl = self.limit(node, said.ttl);
        Ok(said)
    }

    /// Before something is asked of `node`: that node 0 knows this client, and this client whether
    /// it is alone.
    fn keep_in_sight(&self, node: NodeIndex) {
        if node == NodeIndex(0) {
            return;
        }
        let now = self.options.system.now();
        {
            let mut alone = lock(&self.alone);
            let since = |then: Option<Instant>| then.map_or(Duration::MAX, |then| now - then);
            let needed =
                since(alone.heard) > IN_SIGHT || (self.caches && alone.left(now) < BELIEVED / 2);
            let pause = if self.caches {
                BELIEVED / 4
            } else {
                IN_SIGHT / 4
            };
            if !needed || since(alone.asked) < pause {
                return;
            }
            alone.asked = Some(now);
        }
        let first = self.places.first().and_then(|place| place.session.get());
        if let Some(said) =
            first.and_then(|session| session.call_best_effort(Request::Inode(InodeRequest::StatFs)))
        {
            self.limit(NodeIndex(0), said.ttl);
        }
    }

    /// For how long an answer of `node` may be believed, which itself permits `valid`.
    fn limit(&self, node: NodeIndex, valid: Duration) -> Duration {
        if node != NodeIndex(0) && valid.is_zero() {
            return valid;
        }
        let now = self.options.system.now();
        let mut alone = lock(&self.alone);
        if node == NodeIndex(0) {
            alone.heard = Some(now);
            alone.until = alone.until.max(Some(now + valid));
            return valid;
        }
        valid.min(alone.left(now))
    }

    /// Make requests of several nodes at the same time. They must come in the order of the nodes,
    /// one each. `take` gets every answer, in the same order.
    pub fn call_nodes(
        &self,
        caller: Option<&Credentials>,
        requests: impl IntoIterator<Item = (NodeIndex, Request)>,
        mut take: impl FnMut(NodeIndex, Result<SessionReply, Errno>),
    ) {
        let mut flying = VecDeque::new();
        let mut land = |(node, sent): (NodeIndex, Result<(&Session, PendingCall), Errno>)| {
            let said = sent.and_then(|(session, under_way)| session.receive_reply(under_way));
            let said = said.and_then(|said| match said.reply {
                Reply::Failed(errno) => Err(errno),
                _ if !self.striped() => Ok(said),
                _ => Ok(SessionReply {
                    ttl: self.limit(node, said.ttl),
                    ..said
                }),
            });
            take(node, said);
        };
        for (node, request) in requests {
            if flying.len() >= MAX_IN_FLIGHT
                && let Some(first) = flying.pop_front()
            {
                land(first);
            }
            let session = self.session(node);
            flying.push_back((
                node,
                session.map(|session| (session, session.send_call(caller, request))),
            ));
        }
        flying.into_iter().for_each(land);
    }
}
