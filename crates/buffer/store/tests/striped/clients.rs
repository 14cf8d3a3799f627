//! Clients that repeat calls until they get a reply. Each has a directory of its own, where it knows the
//! result of every change; in shared directories their changes conflict.

use crate::expected::Answered;
use crate::model::{Model, Name};
use crate::replacing::Replacing;
use crate::support::daemon::{INSTANCE, Sent, by_path, call, hello, in_batch, replying};
use crate::world::{STRIPE_BYTES, World};
use forebay_policy::layout::Layout;
use forebay_protocol::message::{
    FIRST_BATCH_SLOT, FileRequest, InodeRequest, NameRequest, NewInode, OnExisting, OpenMode,
    SessionRequest, SessionToken, SetAttr, is_batch_slot,
};
use forebay_protocol::placement::Capability;
use forebay_protocol::{Attr, Errno, FileKind, HandleId, Ino, NodeIndex, Reply, Request};
use forebay_store::node::ConnId;
use forebay_store::objects::ObjectId;
use std::collections::BTreeMap;

#[derive(Default)]
struct Session {
    conn: Option<ConnId>,
    token: Option<SessionToken>,
    seq: u64,
}

pub struct Pending {
    pub node: NodeIndex,
    pub request: Request,
    sent_on: Option<ConnId>,
    /// Whence the reply comes.
    replying: ConnId,
    sent_at_ns: u64,
    /// In the client's own directories.
    own: bool,
    /// A file that is to replace another one.
    replacing: Option<Replacing>,
}

/// The file that a client has open for writing.
pub struct Open {
    pub ino: Ino,
    pub handle: HandleId,
    pub permit: Capability,
    /// The start of its metadata node that knows the handle.
    starts: u64,
    /// It was created by the open.
    pub is_new: bool,
    /// Handles of its data objects, and the starts of the nodes that know them.
    pub pieces: BTreeMap<NodeIndex, (HandleId, u64)>,
}

pub struct Client {
    number: u64,
    pub home: Ino,
    sessions: BTreeMap<NodeIndex, Session>,
    pending: Option<Pending>,
    pub model: Model,
    pub open: Option<Open>,
    /// Lengths of files that were created to be written.
    pub sizes: BTreeMap<Ino, u64>,
    /// Contents of files that were stored whole and not opened since.
    pub whole: BTreeMap<Ino, Vec<u8>>,
    /// Directories that other clients use, too.
    shared: Vec<Ino>,
    count: u64,
}

const WRITE: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };

/// The file that a request truncates, and its new length.
pub fn truncation(request: &Request) -> Option<(Ino, u64)> {
    match request {
        Request::Inode(InodeRequest::SetAttr { ino, set, .. }) => Some((*ino, set.size?)),
        Request::File(FileRequest::Open { ino, open, .. }) if open.truncate => Some((*ino, 0)),
        _ => None,
    }
}

impl Client {
    pub fn new(number: u64) -> Client {
        Client {
            number,
            home: Ino::ROOT,
            sessions: BTreeMap::new(),
            pending: None,
            model: Model::default(),
            open: None,
            sizes: BTreeMap::new(),
            whole: BTreeMap::new(),
            shared: vec![Ino::ROOT],
            count: 0,
        }
    }

    /// The request that waits for a reply.
    pub fn pending_request(&self) -> String {
        let pending = self.pending.as_ref();
        format!("{:?}", pending.map(|pending| &pending.request))
    }

    pub fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    /// Make the client's own directory, before any fault.
    pub fn make_home(&mut self, world: &mut World) {
        let request = Request::Name(NameRequest::Mknod {
            parent: Ino::ROOT,
            name: format!("home{}", self.number).into_bytes(),
            new: NewInode::Dir,
            mode: 0o755.into(),
        });
        self.begin(NodeIndex(0), request, true);
        for _ in 0..1000 {
            world.settle(1);
            self.go_on(world);
            if self.is_idle() {
                let home = self.model.get(Ino::ROOT, format!("home{}", self.number).as_bytes());
                self.home = home.expect("a directory").0;
                self.model.dirs.remove(&Ino::ROOT);
                return;
            }
        }
        panic!("no directory could be made");
    }

    fn begin(&mut self, node: NodeIndex, request: Request, own: bool) {
        self.sessions.entry(node).or_default().seq += 1;
        let replacing = None;
        self.pending = Some(Pending {
            node,
            request,
            sent_on: None,
            replying: ConnId(0),
            sent_at_ns: 0,
            own,
            replacing,
        });
    }

    pub fn act(&mut self, world: &mut World) {
        if self.pending.is_none() {
            let (node, request, own) = self.choose(world);
            self.begin(node, request, own);
        }
        self.go_on(world);
        // A connection breaks, with or without the daemon noticing.
        if world.random.one_in(25)
            && let Some(pending) = &self.pending
        {
            let node = pending.node;
            if let Some(conn) = self.sessions.entry(node).or_default().conn.take()
                && world.random.one_in(2)
            {
                world.disconnect(node, conn);
            }
        }
    }

    /// The file that may be truncated at any moment, and its new length.
    pub fn truncation(&self) -> Option<(Ino, u64)> {
        let pending = self.pending.as_ref().filter(|call| call.sent_on.is_some());
        truncation(&pending?.request)
    }

    /// Send the pending call, and take the reply if there is one.
    pub fn go_on(&mut self, world: &mut World) {
        let Some(pending) = &self.pending else { return };
        let node = pending.node;
        let Some(conn) = self.connected(world, node) else {
            return;
        };
        let (seq, slot) = (self.sessions[&node].seq, self.slot());
        let Some(pending) = &mut self.pending else {
            return;
        };
        if pending.sent_on != Some(conn) {
            pending.sent_on = Some(conn);
            pending.sent_at_ns = world.clock_ns;
            let request = pending.request.clone();
            if pending.replacing.is_none() && pending.own && !world.has_power_cuts {
                pending.replacing = Replacing::of(&request, &self.model, world);
            }
            if let Some((ino, size)) = truncation(&request) {
                world.may_be_truncated(ino, size);
            }
            let mut call = call(seq, by_path(seq, request));
            if is_batch_slot(slot) {
                call = in_batch(call);
            }
            pending.replying = replying(conn, &call);
            world.send(node, conn, call);
        }
        let replying = pending.replying;
        match world.take_reply(conn).or_else(|| world.take_reply(replying)) {
            None => {}
            // The daemon has started again, and does not know the connection.
            Some(sent) if sent.reply == Reply::Failed(Errno::ENOTCONN) => {
                self.sessions.entry(node).or_default().conn = None;
            }
            // That to another request of the batch before.
            Some(sent) if sent.seq < seq && replying != conn => {}
            Some(sent) => {
                assert_eq!(sent.seq, seq);
                if let Some(pending) = self.pending.take() {
                    if let (Some(replacing), Reply::Done) = (&pending.replacing, &sent.reply) {
                        replacing.check(world);
                    }
                    self.answered(world, pending, sent);
                }
            }
        }
    }

    /// Every other client sends its requests in batches.
    fn slot(&self) -> u32 {
        if self.number.is_multiple_of(2) { 0 } else { FIRST_BATCH_SLOT }
    }

    fn connected(&mut self, world: &mut World, node: NodeIndex) -> Option<ConnId> {
        let slot = self.slot();
        let session = self.sessions.entry(node).or_default();
        session.conn = session.conn.filter(|conn| world.is_open(*conn));
        if session.conn.is_some() {
            return session.conn;
        }
        let conn = world.connect(node);
        let greeting = call(session.seq, hello(Some(INSTANCE), session.token, slot));
        world.send(node, conn, greeting);
        match world.take_reply(conn)?.reply {
            Reply::Attached { token, .. } => {
                (session.token, session.conn) = (Some(token), Some(conn));
                Some(conn)
            }
            Reply::Failed(Errno::ESTALE) => {
                assert!(world.has_power_cuts, "a session is lost");
                session.token = None;
                None
            }
            Reply::Failed(Errno::ENOSPC | Errno::ENOTCONN) => None,
            other => panic!("{other:?}"),
        }
    }

    /// End all sessions.
    pub fn leave(&mut self, world: &mut World) {
        for node in world.nodes() {
            if self.sessions.contains_key(&node) {
                self.sessions.entry(node).or_default().seq += 1;
                if let Some(conn) = self.connected(world, node) {
                    let bye =
                        call(self.sessions[&node].seq, Request::Session(SessionRequest::Detach));
                    world.send(node, conn, bye);
                }
            }
        }
    }

    fn choose(&mut self, world: &mut World) -> (NodeIndex, Request, bool) {
        self.count += 1;
        let own = !world.random.one_in(3);
        let pick =
            |list: &[Ino], world: &mut World| list[world.random.below(list.len() as u64) as usize];
        let dirs: Vec<Ino> = if own {
            let mut dirs = vec![self.home];
            dirs.extend(self.model.dirs.keys().copied());
            dirs
        } else {
            self.shared.clone()
        };
        let (parent, to) = (pick(&dirs, world), pick(&dirs, world));
        let name = self.some_name(world, own, parent);
        let to_name = self.some_name(world, own, to);
        let at = parent.metadata_node();
        let kinds = if own { 16 } else { 11 };
        if world.random.one_in(8) {
            let request = Request::Name(NameRequest::PutFile {
                parent,
                name,
                set: Box::default(),
                data: vec![self.count as u8; world.random.below(STRIPE_BYTES) as usize],
            });
            return (at, request, own);
        }
        let request = match world.random.below(kinds) {
            0..3 => Request::Name(NameRequest::Mknod {
                parent,
                name,
                new: NewInode::Dir,
                mode: 0o755.into(),
            }),
            3 | 4 if self.open.is_none() && own => Request::Name(NameRequest::Create {
                parent,
                name,
                mode: 0o644.into(),
                exclusive: true,
                handle: HandleId(self.count),
                open: WRITE,
            }),
            3..5 if own => return self.use_file(world),
            3..5 => Request::Name(NameRequest::Mknod {
                parent,
                name,
                new: NewInode::Node(FileKind::File, 0),
                mode: 0o644.into(),
            }),
            5 => Request::Name(NameRequest::Unlink { parent, name }),
            6 => Request::Name(NameRequest::RmDir { parent, name }),
            7..11 => Request::Name(NameRequest::Rename {
                parent,
                name,
                to,
                to_name,
                existing: match world.random.below(4) {
                    0 => OnExisting::Fail,
                    1 => OnExisting::Exchange,
                    _ => OnExisting::Replace,
                },
            }),
            11 => match self.some_file(world) {
                Some(ino) if own => Request::Name(NameRequest::Link { ino, parent, name }),
                _ => Request::Name(NameRequest::Lookup { parent, name }),
            },
            12 => Request::Name(NameRequest::ReadDir {
                ino: parent,
                cookie: 0,
                bytes: 1 << 16,
                attrs: false,
            }),
            13 => Request::Inode(InodeRequest::GetAttr { ino: parent }),
            14 => return self.use_file(world),
            _ => Request::Name(NameRequest::Lookup { parent, name }),
        };
        (at, request, own)
    }

    fn some_name(&self, world: &mut World, own: bool, dir: Ino) -> Name {
        let known = self.model.dirs.get(&dir);
        match known {
            Some(entries) if own && !entries.is_empty() && !world.random.one_in(3) => {
                let chosen = world.random.below(entries.len() as u64) as usize;
                entries.keys().nth(chosen).unwrap().clone()
            }
            _ if own => format!("n{}", world.random.below(1000)).into_bytes(),
            _ => format!("s{}", world.random.below(4)).into_bytes(),
        }
    }

    fn some_file(&self, world: &mut World) -> Option<Ino> {
        let all = self.model.dirs.values().flat_map(BTreeMap::values);
        let files: Vec<Ino> =
            all.filter(|(_, kind)| *kind == FileKind::File).map(|(ino, _)| *ino).collect();
        let chosen = world.random.below(files.len().max(1) as u64) as usize;
        files.get(chosen).copied()
    }

    /// Do something with the open file, or with the length of another.
    fn use_file(&mut self, world: &mut World) -> (NodeIndex, Request, bool) {
        self.count += 1;
        let lost = |open: &Open| world.starts(open.ino.metadata_node()) != open.starts;
        if self.open.as_ref().is_some_and(lost) {
            self.open = None; // its metadata node has lost the handle
        }
        let choice = world.random.below(8);
        let node = NodeIndex(world.random.below(world.hosts.len() as u64) as u16);
        if world.random.one_in(8) {
            let (handle, data_only) = (None, false);
            return (node, Request::File(FileRequest::Sync { handle, data_only }), true);
        }
        if let Some(open) = &self.open {
            let piece = open.pieces.get(&node);
            let piece = piece.filter(|(_, starts)| world.starts(node) == *starts);
            return match (choice, piece) {
                (0, _) => {
                    let (handle, returned) = (open.handle, 0);
                    (
                        open.ino.metadata_node(),
                        Request::File(FileRequest::Close { handle, returned }),
                        true,
                    )
                }
                (1, None) => {
                    let set = SetAttr {
                        size: Some(world.random.below(4 * STRIPE_BYTES)),
                        ..SetAttr::default()
                    };
                    let (ino, handle) = (open.ino, None);
                    (
                        ino.metadata_node(),
                        Request::Inode(InodeRequest::SetAttr { ino, handle, set }),
                        true,
                    )
                }
                (1..4, Some((handle, _))) => {
                    let handle = Some(*handle);
                    let data_only = false;
                    (node, Request::File(FileRequest::Sync { handle, data_only }), true)
                }
                _ if world.layout().position(open.ino, node) >= open.permit.width => {
                    let position = world.layout().position(open.ino, node);
                    let request = FileRequest::RenewCapability { handle: open.handle, position };
                    (open.ino.metadata_node(), Request::File(request), true)
                }
                _ => {
                    let request = Request::File(FileRequest::OpenObject {
                        handle: HandleId(self.count),
                        capability: open.permit,
                        open: OpenMode { descriptor: true, ..WRITE },
                    });
                    (node, request, true)
                }
            };
        }
        let files: Vec<Ino> = self.sizes.keys().copied().collect();
        let Some(ino) = files.get(world.random.below(files.len().max(1) as u64) as usize) else {
            return (
                self.home.metadata_node(),
                Request::Inode(InodeRequest::GetAttr { ino: self.home }),
                true,
            );
        };
        let ino = *ino;
        let request = match choice {
            0..3 => Request::Inode(InodeRequest::SetAttr {
                ino,
                handle: None,
                set: SetAttr {
                    size: Some(world.random.below(12 * STRIPE_BYTES)),
                    ..SetAttr::default()
                },
            }),
            3..5 => Request::File(FileRequest::Open {
                ino,
                handle: HandleId(self.count),
                open: OpenMode { truncate: world.random.one_in(3), ..WRITE },
            }),
            5 => match self.count % 3 {
                0 => Request::Inode(InodeRequest::GetAttr { ino }),
                1 => {
                    let known = files.into_iter().chain(self.model.dirs.keys().copied());
                    let inos = known
                        .filter(|known| known.metadata_node() == ino.metadata_node())
                        .collect();
                    Request::Inode(InodeRequest::GetAttrs { inos })
                }
                _ => Request::Inode(InodeRequest::StatObjects { inos: files }),
            },
            _ => Request::Inode(InodeRequest::GetFile { ino }),
        };
        (ino.metadata_node(), request, true)
    }

    fn answered(&mut self, world: &mut World, pending: Pending, sent: Sent) {
        let failed = match &sent.reply {
            Reply::Failed(errno) => Some(*errno),
            _ => None,
        };
        if failed == Some(Errno::ENOSPC) {
            // It may have been in progress when the daemon of its metadata node died, and have been done in part.
            if let Some((ino, _)) = truncation(&pending.request) {
                self.sizes.remove(&ino);
                self.whole.remove(&ino);
            }
            return;
        }
        // It waited for other nodes until the timeout, and changed nothing.
        if failed == Some(Errno::EAGAIN) && world.clock_ns > pending.sent_at_ns + 20_000_000_000 {
            return;
        }
        let unexpected = [Errno::EPROTO, Errno::EIO, Errno::EAGAIN];
        assert!(
            !failed.is_some_and(|errno| unexpected.contains(&errno)),
            "{:?}: {failed:?}",
            pending.request
        );
        let certain = pending.own && !world.has_power_cuts;
        if failed == Some(Errno::ESTALE) && world.has_power_cuts {
            return;
        }
        self.learn(&pending, &sent);
        if pending.own {
            let answered = Answered { pending: &pending, sent: &sent, is_certain: certain };
            self.compare(world, &answered);
        }
    }

    /// Learn of directories that all clients use.
    fn learn(&mut self, pending: &Pending, sent: &Sent) {
        if let (
            Request::Name(NameRequest::Mknod { new: NewInode::Dir, .. })
            | Request::Name(NameRequest::Lookup { .. }),
            false,
        ) = (&pending.request, pending.own)
        {
            match &sent.reply {
                Reply::Attr(attr) if attr.kind == FileKind::Dir => self.shared.push(attr.ino),
                Reply::Referral { ino, kind: FileKind::Dir } => self.shared.push(*ino),
                _ => {}
            }
        }
        // Other clients do not use their own directories.
        if self.home != Ino::ROOT {
            let home = self.home;
            self.shared.retain(|ino| *ino != home);
        }
        if self.shared.len() > 8 {
            self.shared.remove(1);
        }
    }

    /// Whether attributes are those that the client expects of an inode of its own.
    pub fn is_expected(&self, attr: &Attr) -> bool {
        if self.model.dirs.contains_key(&attr.ino) {
            return attr.nlink == self.model.links_of(attr.ino);
        }
        attr.kind != FileKind::File
            || attr.nlink == self.model.names_of(attr.ino)
                && (attr.provisional.is_some() || self.sizes.get(&attr.ino) == Some(&attr.size))
    }

    pub fn opened(
        &mut self,
        world: &World,
        ino: Ino,
        request: &Request,
        permit: Option<Capability>,
    ) {
        let (Request::Name(NameRequest::Create { handle, .. })
        | Request::File(FileRequest::Open { handle, .. })) = request
        else {
            return;
        };
        self.open = permit.map(|permit| Open {
            ino,
            handle: *handle,
            permit,
            is_new: matches!(request, Request::Name(NameRequest::Create { .. })),
            starts: world.starts(ino.metadata_node()),
            pieces: BTreeMap::new(),
        });
    }

    /// Write somewhere in the part of the open file that is on a node.
    pub fn write(
        &mut self,
        world: &mut World,
        node: NodeIndex,
        ino: Ino,
        handle: HandleId,
        object: ObjectId,
    ) {
        let Some(open) = self.open.as_mut().filter(|open| open.ino == ino) else {
            return;
        };
        if world.starts(ino.metadata_node()) != open.starts {
            return;
        }
        open.pieces.insert(node, (handle, world.starts(node)));
        let layout = Layout::new(world.hosts.len() as u16, STRIPE_BYTES).unwrap();
        let index = world.random.below(8);
        if layout.node_of_stripe(ino, index) != node {
            return;
        }
        let within = world.random.below(STRIPE_BYTES - 1);
        let length = 1 + world.random.below(STRIPE_BYTES - within);
        let offset = index * STRIPE_BYTES + within;
        let piece = layout.extents(ino, offset, length).next().unwrap();
        let data = vec![self.count as u8; length as usize];
        let written = world.write(node, object, piece.object_offset, &data);
        if written && self.model.names_of(ino) > 0 {
            let size = self.sizes.entry(ino).or_default();
            *size = (*size).max(offset + length);
        }
    }
}
