//! Clients that change their own files, and know the result of every change.

use crate::support::daemon::{INSTANCE, Sent, by_path, call, hello, in_batch};
use crate::world::World;
use forebay_protocol::message::{
    FIRST_BATCH_SLOT, FileRequest, InodeRequest, NameRequest, NewInode, OnExisting, OpenMode,
    RECOVERY_SLOT, SessionToken, SetAttr, TrailingField, XattrMode, is_batch_slot,
};
use forebay_protocol::space::block_bytes;
use forebay_protocol::{Call, Errno, HandleId, Ino, Reply, Request};
use forebay_store::log::LogSpace;
use forebay_store::node::{ConnId, Input};
use forebay_store::objects::ObjectId;
use std::collections::BTreeMap;

/// A file of a client.
struct File {
    handle: Option<HandleId>,
    object: Option<ObjectId>,
    size: u64,
    /// The contents and the inode, if it was stored whole.
    whole: Option<Vec<u8>>,
    ino: Option<Ino>,
    has_xattr: bool,
}

pub struct Client {
    number: u64,
    /// Without power cuts no change with a reply is lost, so every result is known.
    certain: bool,
    conn: Option<ConnId>,
    /// Abandoned connections, with calls that may still arrive on them.
    stale: Vec<(ConnId, Call)>,
    token: Option<SessionToken>,
    epoch: u64,
    boot: u64,
    seq: u64,
    recovery_seq: u64,
    pending: Option<Request>,
    files: BTreeMap<Vec<u8>, File>,
    /// A file without a name, which gets one or is closed. It has a handle and an inode.
    unnamed: Option<File>,
    count: u64,
}

const MODE: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: true, ..OpenMode::NONE };

impl Client {
    pub fn new(number: u64, certain: bool) -> Client {
        Client {
            number,
            certain,
            conn: None,
            stale: Vec::new(),
            token: None,
            epoch: 0,
            boot: 0,
            seq: 0,
            recovery_seq: 0,
            pending: None,
            files: BTreeMap::new(),
            unnamed: None,
            count: 0,
        }
    }

    pub fn act(&mut self, world: &mut World) {
        if let Some((conn, call)) = self.stale.pop()
            && world.random.one_in(2)
        {
            // A delayed call arrives on its old connection.
            let _ = world.deliver(conn, call);
            world.input(Input::Disconnected(conn));
        }
        let Some(conn) = self.connected(world) else {
            return;
        };
        if self.pending.is_none() {
            self.seq += 1;
            self.pending = Some(self.choose(world));
        }
        let Some(request) = self.pending.clone() else {
            return;
        };
        let mut call = call(self.seq, by_path(self.seq, request.clone()));
        let is_truncation = matches!(request, Request::Inode(InodeRequest::SetAttr { .. }));
        if is_batch_slot(self.slot()) && !is_truncation {
            call = in_batch(call);
        }
        match world.random.below(12) {
            0 => {
                // The call is lost or delayed.
                self.stale.push((conn, call));
                self.conn = None;
            }
            1 => {
                let _ = world.deliver(conn, call); // the reply is lost
                world.input(Input::Disconnected(conn));
                self.conn = None;
            }
            kind => {
                if kind == 2 {
                    let _ = world.deliver(conn, call.clone());
                }
                match world.deliver(conn, call) {
                    Some(sent) => self.answered(world, &request, sent),
                    None => self.conn = None,
                }
            }
        }
    }

    /// Every other client sends its requests in batches.
    fn slot(&self) -> u32 {
        if self.number.is_multiple_of(2) { 0 } else { FIRST_BATCH_SLOT }
    }

    fn connected(&mut self, world: &mut World) -> Option<ConnId> {
        if let Some(conn) = self.conn {
            return Some(conn);
        }
        let conn = world.connect();
        let request = hello(Some(INSTANCE), self.token, self.slot());
        let seq = self.seq.max(1);
        let sent = world.deliver(conn, call(seq, request))?;
        match sent.reply {
            Reply::Attached { token, epoch, boot, .. } => {
                if self.boot != boot {
                    // The client's next sync of each file fails.
                    let files = self.files.values().chain(&self.unnamed);
                    for object in files.filter_map(|file| file.object) {
                        world.lost.remove(&object.ino);
                    }
                    self.boot = boot;
                }
                if self.epoch != epoch {
                    self.restarted(world, token);
                }
                (self.token, self.epoch, self.conn) = (Some(token), epoch, Some(conn));
                Some(conn)
            }
            Reply::Failed(Errno::ESTALE) => {
                // The session has expired, or was lost with unsynced changes.
                *self = Client { count: self.count, ..Client::new(self.number, false) };
                None
            }
            Reply::Failed(Errno::ENOSPC | Errno::EAGAIN) => None,
            other => panic!("{other:?}"),
        }
    }

    /// The daemon has lost handles and grants: open the files again, on the recovery slot, since the
    /// number of the pending call may be used on the usual one.
    fn restarted(&mut self, world: &mut World, token: SessionToken) {
        let conn = world.connect();
        self.recovery_seq += 1;
        let (seq, request) = (self.recovery_seq, hello(Some(INSTANCE), Some(token), RECOVERY_SLOT));
        let _ = world.deliver(conn, call(seq, request));
        for file in self.files.values_mut().chain(&mut self.unnamed) {
            let (Some(handle), Some(object)) = (file.handle, file.object) else {
                continue;
            };
            let request = Request::File(FileRequest::Open { ino: object.ino, handle, open: MODE });
            self.recovery_seq += 1;
            let _ = world.deliver(conn, call(self.recovery_seq, request));
        }
        world.input(Input::Disconnected(conn));
    }

    fn choose(&mut self, world: &mut World) -> Request {
        self.count += 1;
        let parent = Ino::ROOT;
        let fresh = format!("{}-{}", self.number, self.count).into_bytes();
        let picked = {
            let length = self.files.len() as u64;
            let index = if length == 0 { 0 } else { world.random.below(length) as usize };
            self.files.iter().nth(index).map(|(name, file)| (name.clone(), file))
        };
        let handle = HandleId(self.count);
        let create = Request::Name(NameRequest::Create {
            parent,
            name: fresh.clone(),
            mode: 0o644.into(),
            exclusive: true,
            handle,
            open: MODE,
        });
        let put = |name| {
            Request::Name(NameRequest::PutFile {
                parent,
                name,
                set: Box::new(SetAttr {
                    mode: Some(0o600 + (self.count % 64) as u16),
                    ..SetAttr::default()
                }),
                data: vec![self.count as u8; (self.count * 977 % 20_000) as usize],
            })
        };
        if world.random.one_in(8) {
            return self.choose_unnamed(world, fresh);
        }
        let Some((name, file)) = picked else {
            return create;
        };
        let handle_of = file.handle;
        match (world.random.below(18), handle_of) {
            (0..3, _) => create,
            (3, _) => Request::Name(NameRequest::Unlink { parent, name }),
            (4 | 5, _) => Request::Name(NameRequest::Rename {
                parent,
                name,
                to: parent,
                to_name: fresh,
                existing: OnExisting::Fail,
            }),
            (6, Some(handle)) => {
                Request::File(FileRequest::Sync { handle: Some(handle), data_only: false })
            }
            (7 | 8, Some(handle)) => Request::File(FileRequest::ReserveSpace {
                handle,
                returned: 0,
                want: world.random.below(64 << 10),
                lent: TrailingField(0),
            }),
            (9, Some(handle)) if world.random.one_in(4) => {
                Request::File(FileRequest::Close { handle, returned: 0 })
            }
            (10, _) => Request::Name(NameRequest::Mknod {
                parent,
                name: fresh,
                new: NewInode::Dir,
                mode: 0o700.into(),
            }),
            (11, Some(handle)) => {
                let size = Some(world.random.below(file.size.max(1)));
                let set = SetAttr { size, ..SetAttr::default() };
                match file.object {
                    Some(object) => Request::Inode(InodeRequest::SetAttr {
                        ino: object.ino,
                        handle: Some(handle),
                        set,
                    }),
                    None => create,
                }
            }
            (12, _) => put(fresh),
            (13, _) => put(name),
            (14, _) => Request::File(FileRequest::Sync { handle: None, data_only: false }),
            (15, _) if file.whole.is_some() && file.ino.is_some() => {
                Request::Inode(InodeRequest::GetFile { ino: file.ino.unwrap_or(parent) })
            }
            (16, _) if file.ino.is_some() => Request::Inode(InodeRequest::SetXattr {
                ino: file.ino.unwrap_or(parent),
                name: b"user.a".to_vec(),
                value: vec![1; world.random.below(900) as usize],
                mode: XattrMode::Any,
            }),
            (17, _) if file.has_xattr && file.ino.is_some() => {
                let (ino, name) = (file.ino.unwrap_or(parent), b"user.a".to_vec());
                Request::Inode(InodeRequest::RemoveXattr { ino, name })
            }
            _ => Request::Name(NameRequest::Lookup { parent, name }),
        }
    }

    /// A file is created without a name, gets one, or is closed without one.
    fn choose_unnamed(&self, world: &mut World, fresh: Vec<u8>) -> Request {
        let parent = Ino::ROOT;
        match self.unnamed.as_ref().map(|file| (file.handle, file.ino)) {
            Some((Some(handle), _)) if world.random.one_in(4) => {
                Request::File(FileRequest::Close { handle, returned: 0 })
            }
            Some((_, Some(ino))) => Request::Name(NameRequest::Link { ino, parent, name: fresh }),
            _ => Request::Name(NameRequest::CreateUnnamed {
                parent,
                mode: 0o600.into(),
                linkable: true,
                handle: HandleId(self.count),
                open: MODE,
            }),
        }
    }

    fn answered(&mut self, world: &mut World, request: &Request, sent: Sent) {
        assert_eq!(sent.seq, self.seq);
        self.pending = None;
        let failed = match &sent.reply {
            Reply::Failed(errno) => Some(*errno),
            _ => None,
        };
        if failed == Some(Errno::ESTALE) && !self.certain {
            self.conn = None;
            return;
        }
        if self.certain {
            // No other client changes this client's names: calls fail only for lack of space.
            let frees = match request {
                Request::Name(NameRequest::Unlink { .. })
                | Request::Inode(InodeRequest::RemoveXattr { .. }) => {
                    world.log_space() > LogSpace::Exhausted
                }
                Request::Name(NameRequest::Lookup { .. })
                | Request::File(FileRequest::Sync { .. })
                | Request::Inode(InodeRequest::GetFile { .. }) => true,
                _ => false,
            };
            let needs_device = matches!(
                request,
                Request::File(FileRequest::Sync { .. })
                    | Request::Name(NameRequest::PutFile { .. })
            );
            let allowed = failed.is_none_or(|errno| match errno {
                Errno::ENOSPC => !frees,
                Errno::EIO => world.has_object_faults && needs_device,
                _ => false,
            });
            assert!(allowed, "{request:?} was answered {:?}", sent.reply);
        }
        if let Request::File(FileRequest::Sync { handle: Some(handle), .. }) = request
            && let Some(object) = self.file_of(*handle).and_then(|file| file.object)
            && world.lost.remove(&object.ino)
        {
            assert_eq!(failed, Some(Errno::EIO), "file {} has lost data", object.ino);
        }
        if failed.is_some() {
            return;
        }
        match request {
            Request::Name(NameRequest::Create { name, handle, .. }) => {
                assert!(matches!(sent.reply, Reply::Opened { created: true, .. }));
                let file = File {
                    handle: Some(*handle),
                    object: sent.object,
                    size: 0,
                    whole: None,
                    ino: None,
                    has_xattr: false,
                };
                self.files.insert(name.clone(), file);
            }
            Request::Name(NameRequest::CreateUnnamed { handle, .. }) => {
                let Reply::Opened { attr, created: true, .. } = sent.reply else {
                    panic!("{:?}", sent.reply);
                };
                assert!(attr.nlink == 0 || !self.certain, "{attr:?}");
                self.unnamed = Some(File {
                    handle: Some(*handle),
                    object: sent.object,
                    size: 0,
                    whole: None,
                    ino: Some(attr.ino),
                    has_xattr: false,
                });
            }
            Request::Name(NameRequest::Link { name, .. }) => {
                if let Some(file) = self.unnamed.take() {
                    self.files.insert(name.clone(), File { ino: None, ..file });
                }
            }
            Request::Name(NameRequest::Unlink { name, .. }) => {
                self.files.remove(name);
            }
            Request::Name(NameRequest::PutFile { name, data, set, .. }) => {
                let Reply::Attr(attr) = sent.reply else {
                    panic!("{:?}", sent.reply);
                };
                // A request that is repeated after a power cut may find its data lost.
                let length = data.len() as u64;
                assert!(attr.size == length || (!self.certain && attr.size == 0));
                assert_eq!(Some(attr.mode), set.mode);
                if self.certain && self.files.contains_key(name) && length > 0 {
                    let object = ObjectId { instance: INSTANCE, ino: attr.ino };
                    let durable = world.daemon.objects.durable_contents(object);
                    assert_eq!(durable.as_ref(), Some(data), "file {} replaced one", attr.ino);
                }
                let file = File {
                    handle: None,
                    object: None,
                    size: length,
                    whole: Some(data.clone()),
                    ino: Some(attr.ino),
                    has_xattr: false,
                };
                self.files.insert(name.clone(), file);
            }
            Request::Inode(InodeRequest::GetFile { ino }) => {
                let file = self.files.values().find(|file| file.ino == Some(*ino));
                if let (Some(file), Reply::FileContents { data, .. }, true) =
                    (file, &sent.reply, self.certain && !world.incomplete.contains(ino))
                {
                    assert_eq!(file.whole.as_ref(), Some(data), "file {ino}");
                }
            }
            Request::Inode(
                InodeRequest::SetXattr { ino, .. } | InodeRequest::RemoveXattr { ino, .. },
            ) => {
                let has_xattr = matches!(request, Request::Inode(InodeRequest::SetXattr { .. }));
                for file in self.files.values_mut().filter(|file| file.ino == Some(*ino)) {
                    file.has_xattr = has_xattr;
                }
            }
            Request::Name(NameRequest::Rename { name, to_name, .. }) => {
                if let Some(file) = self.files.remove(name) {
                    self.files.insert(to_name.clone(), file);
                }
            }
            Request::File(FileRequest::Close { handle, .. }) => {
                self.unnamed.take_if(|file| file.handle == Some(*handle));
                if let Some(file) = self.file_of(*handle) {
                    file.handle = None;
                }
            }
            Request::File(FileRequest::ReserveSpace { handle, .. }) => {
                if let Reply::SpaceGranted(granted) = sent.reply {
                    self.write(world, *handle, granted);
                }
            }
            Request::Inode(InodeRequest::SetAttr { handle: Some(handle), set, .. }) => {
                if let (Some(file), Some(size)) = (self.file_of(*handle), set.size) {
                    file.size = size;
                }
            }
            _ => {}
        }
    }

    fn file_of(&mut self, handle: HandleId) -> Option<&mut File> {
        self.files.values_mut().find(|file| file.handle == Some(handle))
    }

    /// Write after the end, within the grant, as a client with a descriptor does.
    fn write(&mut self, world: &mut World, handle: HandleId, granted: u64) {
        let Some(file) = self.file_of(handle) else {
            return;
        };
        let Some(object) = file.object else { return };
        let length = world.random.below(granted.max(1));
        if block_bytes(file.size, length) <= granted && length > 0 {
            let data = vec![handle.0 as u8; length as usize];
            if world.write(object, file.size, &data) {
                file.size += length;
            }
        }
    }
}
