//! The sessions of one client with the storage nodes of an instance, begun when something is first
//! asked of a node.

use crate::session::{Options, Said, Session, UnderWay, lock};
use forebay_wire::layout::Layout;
use forebay_wire::stream::Address;
use forebay_wire::{Caller, Errno, HandleId, InstanceId, Node, Reply, Request};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// Requests to different nodes that one call has under way at a time.
pub const WINDOW: usize = 32;

/// The addresses of an instance's storage daemons, in the order of the instance's nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes(pub Vec<Address>);

impl From<Address> for Nodes {
    fn from(address: Address) -> Nodes {
        Nodes(vec![address])
    }
}

impl From<Vec<Address>> for Nodes {
    fn from(addresses: Vec<Address>) -> Nodes {
        Nodes(addresses)
    }
}

impl From<&[Address]> for Nodes {
    fn from(addresses: &[Address]) -> Nodes {
        Nodes(addresses.to_vec())
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
    options: Options,
    caches: bool,
    layout: Layout,
    places: Box<[Place]>,
    next_handle: AtomicU64,
    /// Free turns to append, and who waits for one.
    turns: Mutex<u32>,
    returned: Condvar,
}

/// The right to append.
#[derive(Debug)]
pub struct Turn<'a>(&'a Sessions);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.turns) += 1;
        self.0.returned.notify_one();
    }
}

impl Sessions {
    /// Begin with the first of `nodes`; a single address may be that of any node, and leads to the
    /// others. `caches`: one cache sits between the sessions and all who use them.
    pub fn begin(
        nodes: &Nodes,
        instance: InstanceId,
        options: Options,
        caches: bool,
    ) -> Result<Sessions, Errno> {
        let first = nodes.0.first().ok_or(Errno::EINVAL)?;
        let expected = (nodes.0.len() > 1).then_some(Node(0));
        let session = Session::begin(
            first.clone(),
            Some(instance),
            expected,
            options.clone(),
            caches,
        )?;
        let at = session.place()?;
        let (own, layout) = (usize::from(at.node.0), at.layout());
        let mut addresses = nodes.0.clone();
        if addresses.len() == 1 && at.is_spread() {
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
        Ok(Sessions {
            instance,
            turns: Mutex::new((options.connections / 2).max(1)),
            returned: Condvar::new(),
            options,
            caches,
            layout,
            places,
            next_handle: AtomicU64::new(1),
        })
    }

    /// Other sessions with the same instance, for a cache.
    pub fn again_for_cache(&self) -> Result<Sessions, Errno> {
        let addresses = self.places.iter().map(|place| place.address.clone());
        let nodes = Nodes(addresses.collect());
        Sessions::begin(&nodes, self.instance, self.options.clone(), true)
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
    pub fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (0..self.layout.nodes()).map(Node)
    }

    /// A number for a new handle, the same on all nodes.
    pub fn new_handle(&self) -> HandleId {
        HandleId(self.next_handle.fetch_add(1, Ordering::Relaxed))
    }

    /// Wait for a turn to append. Whoever waits for the lock on a file's end holds a connection, and
    /// who has the lock needs one: no more than half of them may wait.
    pub fn turn(&self) -> Turn<'_> {
        let mut turns = lock(&self.turns);
        while *turns == 0 {
            turns = self
                .returned
                .wait(turns)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *turns -= 1;
        Turn(self)
    }

    /// The session with `node`, begun now if there is none.
    pub fn with(&self, node: Node) -> Result<&Session, Errno> {
        let place = self.places.get(usize::from(node.0)).ok_or(Errno::ESTALE)?;
        if let Some(session) = place.session.get() {
            return Ok(session);
        }
        let _beginning = lock(&place.beginning);
        if let Some(session) = place.session.get() {
            return Ok(session);
        }
        let session = Session::begin(
            place.address.clone(),
            Some(self.instance),
            Some(node),
            self.options.clone(),
            self.caches,
        )?;
        Ok(place.session.get_or_init(|| session))
    }

    /// Make a request of `node`.
    pub fn call(
        &self,
        node: Node,
        caller: Option<&Caller>,
        request: Request,
    ) -> Result<Said, Errno> {
        self.with(node)?.call(caller, request)
    }

    /// Make requests of several nodes at the same time. They must come in the order of the nodes,
    /// one each. `take` gets every answer, in the same order.
    pub fn each(
        &self,
        caller: Option<&Caller>,
        requests: impl IntoIterator<Item = (Node, Request)>,
        mut take: impl FnMut(Node, Result<Said, Errno>),
    ) {
        let mut flying = VecDeque::new();
        let mut land = |(node, sent): (Node, Result<(&Session, UnderWay), Errno>)| {
            let said = sent.and_then(|(session, under_way)| session.finish(under_way));
            let said = said.and_then(|said| match said.reply {
                Reply::Failed(errno) => Err(errno),
                _ => Ok(said),
            });
            take(node, said);
        };
        for (node, request) in requests {
            if flying.len() >= WINDOW
                && let Some(first) = flying.pop_front()
            {
                land(first);
            }
            let session = self.with(node);
            flying.push_back((
                node,
                session.map(|session| (session, session.start(caller, request))),
            ));
        }
        flying.into_iter().for_each(land);
    }
}
