//! A client of one node that caches names and attributes under leases, and changes nothing. As long as it has
//! a lease, the node must not change what it has cached.

use crate::support::daemon::{INSTANCE, call, hello};
use crate::world::World;
use forebay_protocol::message::{
    Attach, CACHE_LIFETIME_NS, CacheRecall, EVENT_SLOT, InodeRequest, LockRequest, NameRequest,
    SessionRequest, SessionToken, TrailingField,
};
use forebay_protocol::{Attr, Errno, Ino, LeaseId, NodeIndex, Reply, Request, Timestamp};
use forebay_store::node::ConnId;

/// Replies that a client keeps.
const MAX_CACHED: usize = 8;
/// Time for which the client waits for a reply before it asks for something else.
const REPLY_TIMEOUT_NS: u64 = 3_000_000_000;

/// Request of a client.
#[derive(Clone, Debug)]
enum Asked {
    Name(Ino, Vec<u8>),
    Attributes(Ino),
}

/// Contents of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Absent,
    /// The number of an inode on another node.
    Elsewhere(Ino),
    Attributes(Ino, Attributes),
}

/// Mode, links, owner, group and time of the last change.
type Attributes = (u16, u32, u32, u32, Timestamp);

fn attributes(attr: &Attr) -> Attributes {
    (attr.mode, attr.nlink, attr.uid, attr.gid, attr.ctime)
}

pub struct Cacher {
    node: NodeIndex,
    token: Option<SessionToken>,
    /// Connections for requests and for events, and the starts of the daemon that know them.
    conn: Option<(ConnId, u64)>,
    watch: Option<(ConnId, u64)>,
    seq: u64,
    watch_seq: u64,
    asked: Option<(Asked, u64)>,
    /// The lease has been recalled since the request was sent.
    is_late: bool,
    /// What is cached, until when.
    cached: Vec<(Asked, Known, u64)>,
    /// The recall to confirm.
    dropped: Option<LeaseId>,
    /// Starts of the daemon when something was cached.
    starts: u64,
    /// Checks of something that was cached.
    pub served: u64,
}

impl Cacher {
    pub fn new(node: NodeIndex) -> Cacher {
        Cacher {
            node,
            token: None,
            conn: None,
            watch: None,
            seq: 0,
            watch_seq: 0,
            asked: None,
            is_late: false,
            cached: Vec::new(),
            dropped: None,
            starts: 0,
            served: 0,
        }
    }

    pub fn act(&mut self, world: &mut World) {
        let starts = world.starts(self.node);
        for conn in [&mut self.conn, &mut self.watch] {
            conn.take_if(|(_, known)| *known != starts || world.random.one_in(60));
        }
        match self.conn {
            None => self.attach(world),
            Some((conn, _)) => self.go_on(world, conn),
        }
        if self.token.is_some() && world.random.one_in(2) {
            self.take_events(world);
        }
    }

    /// Check that what is cached is what the node has.
    pub fn serve(&mut self, world: &World) {
        // A power cut undoes changes that have been seen.
        if world.has_power_cuts && self.starts != world.starts(self.node) {
            self.cached.clear();
        }
        self.cached.retain(|(_, _, until_ns)| world.clock_ns < *until_ns);
        for (asked, known, _) in &self.cached {
            // A file without a name is there for those that have it open.
            if matches!(known, Known::Attributes(_, (_, links, ..)) if *links == 0) {
                continue;
            }
            let now = self.known_to_node(world, asked);
            assert!(
                now.is_none_or(|now| now == *known),
                "{asked:?} is {now:?}, and a client with a lease has cached {known:?}"
            );
            self.served += 1;
        }
    }

    /// What the node has. `None`: the directory is removed.
    fn known_to_node(&self, world: &World, asked: &Asked) -> Option<Known> {
        let names = &world.volume(self.node)?.names;
        let of_inode = |ino: Ino| match names.get(ino) {
            Some(inode) => Known::Attributes(ino, attributes(&inode.attr(ino))),
            None if ino.metadata_node() != self.node => Known::Elsewhere(ino),
            None => Known::Absent,
        };
        Some(match asked {
            Asked::Attributes(ino) => of_inode(*ino),
            Asked::Name(dir, name) => {
                let entry = names.get(*dir)?.dir()?.entry(name);
                entry.map_or(Known::Absent, |entry| of_inode(entry.ino))
            }
        })
    }

    fn attach(&mut self, world: &mut World) {
        self.asked = None;
        self.seq += 1;
        let conn = world.connect(self.node);
        let Some(reply) = self.attach_slot(world, conn, 0, self.seq) else { return };
        match reply {
            Reply::Attached { token, .. } => {
                self.token = Some(token);
                self.conn = Some((conn, world.starts(self.node)));
            }
            Reply::Failed(Errno::ESTALE) => (self.token, self.watch) = (None, None),
            _ => {}
        }
    }

    fn attach_slot(&self, world: &mut World, conn: ConnId, slot: u32, seq: u64) -> Option<Reply> {
        let Request::Session(SessionRequest::Attach(attach)) =
            hello(Some(INSTANCE), self.token, slot)
        else {
            return None;
        };
        let client_number = TrailingField(1 + u64::from(self.node.0));
        let attach =
            Attach { single_cache: true, cache_checks_permissions: true, client_number, ..attach };
        world.send(self.node, conn, call(seq, Request::Session(SessionRequest::Attach(attach))));
        world.take_reply(conn).map(|sent| sent.reply)
    }

    /// Take a reply, or ask for something.
    fn go_on(&mut self, world: &mut World, conn: ConnId) {
        let Some((asked, sent_ns)) = self.asked.clone() else {
            return self.ask(world, conn);
        };
        let Some(sent) = world.take_reply(conn) else {
            if world.clock_ns > sent_ns + REPLY_TIMEOUT_NS {
                self.conn = None;
            }
            return;
        };
        self.asked = None;
        let known = match sent.reply {
            Reply::Attr(attr) => Known::Attributes(attr.ino, attributes(&attr)),
            Reply::Referral { ino, .. } => Known::Elsewhere(ino),
            Reply::Failed(Errno::ENOENT) => Known::Absent,
            _ => return,
        };
        if sent.cacheable && !self.is_late {
            if self.cached.len() == MAX_CACHED {
                self.cached.remove(0);
            }
            self.starts = world.starts(self.node);
            self.cached.push((asked, known, sent_ns + CACHE_LIFETIME_NS));
        }
    }

    fn ask(&mut self, world: &mut World, conn: ConnId) {
        let Some(asked) = self.choose(world) else { return };
        let request = match asked.clone() {
            Asked::Attributes(ino) => Request::Inode(InodeRequest::GetAttr { ino }),
            Asked::Name(parent, name) => Request::Name(NameRequest::Lookup { parent, name }),
        };
        self.seq += 1;
        (self.asked, self.is_late) = (Some((asked, world.clock_ns)), false);
        world.send(self.node, conn, call(self.seq, request));
    }

    fn choose(&self, world: &mut World) -> Option<Asked> {
        let mut inodes: Vec<Ino> = Vec::new();
        let mut names: Vec<(Ino, Vec<u8>)> = Vec::new();
        for (ino, inode) in world.volume(self.node)?.names.iter() {
            inodes.push(ino);
            let entries = inode.dir().into_iter().flat_map(|dir| dir.after(0));
            names.extend(entries.map(|(_, entry)| (ino, entry.name.to_vec())));
        }
        let choice = world.random.below(1 << 32) as usize;
        match world.random.below(4) {
            0 => Some(Asked::Attributes(*inodes.get(choice % inodes.len().max(1))?)),
            // Names that clients use, and that may be absent.
            1 => {
                let directories: Vec<&Ino> = names.iter().map(|(dir, _)| dir).collect();
                let dir = **directories.get(choice % directories.len().max(1))?;
                Some(Asked::Name(
                    dir,
                    names[world.random.below(names.len() as u64) as usize].1.clone(),
                ))
            }
            _ => names
                .get(choice % names.len().max(1))
                .cloned()
                .map(|(dir, name)| Asked::Name(dir, name)),
        }
    }

    fn take_events(&mut self, world: &mut World) {
        let Some((conn, _)) = self.watch else {
            let conn = world.connect(self.node);
            self.watch_seq += 1;
            if let Some(Reply::Attached { .. }) =
                self.attach_slot(world, conn, EVENT_SLOT, self.watch_seq)
            {
                self.watch = Some((conn, world.starts(self.node)));
                self.await_events(world, conn);
            }
            return;
        };
        let Some(sent) = world.take_reply(conn) else { return };
        let Reply::Events { recalled_cache, .. } = sent.reply else {
            self.watch = None;
            return;
        };
        if world.random.one_in(10) {
            self.watch = None; // the events are lost
            return;
        }
        if recalled_cache.is_some() {
            self.cached.clear();
            self.is_late = true;
        }
        self.dropped = recalled_cache;
        self.await_events(world, conn);
    }

    fn await_events(&mut self, world: &mut World, conn: ConnId) {
        self.watch_seq += 1;
        let cache = self.dropped.take().map_or(CacheRecall::Obeyed, CacheRecall::Dropped);
        let (known, returned) = (Vec::new(), Vec::new());
        let request = Request::Lock(LockRequest::AwaitEvents { known, returned, cache });
        world.send(self.node, conn, call(self.watch_seq, request));
    }
}
