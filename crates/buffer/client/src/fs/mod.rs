//! The operations of an instance's file system, by inode. Each goes to the node that is the home of
//! what it is about: of the directory where a name is given, else of the inode.

mod attributes;
mod caller;
mod open;
mod whole_file;

pub(crate) use caller::{CallerProcess, GroupHints};
pub use open::Opened;

use crate::close_batch::CloseBatch;
use crate::file::{File, Removals};
use crate::session::ClientOptions;
use crate::sessions::{NodeAddresses, Sessions};
use forebay_protocol::message::{DirEntry, NewInode, OnExisting, SetAttr, XattrMode};
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest};
use forebay_protocol::{Attr, Credentials, Errno, Ino, InstanceId, NodeIndex, Reply, Request};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// An attached instance. Clones share the sessions; they end with the last of them and of its
/// files.
#[derive(Clone, Debug)]
pub struct Fs {
    /// Tells of closed files that nobody waits for. Ends before the sessions do.
    pub(crate) close_batch: Option<Arc<CloseBatch>>,
    pub(crate) sessions: Arc<Sessions>,
    caller: Option<Credentials>,
    /// Who can be asked for the caller's groups.
    process: Option<CallerProcess>,
    /// Files being written, whose unused promises of space can be given back when it runs out.
    pub(crate) writers: Arc<Mutex<Vec<Weak<File>>>>,
    pub(crate) removals: Arc<Removals>,
}

/// Some entries of a directory.
#[derive(Debug)]
pub struct DirPage {
    /// The entries; the last one's cookie continues from there.
    pub entries: Vec<DirEntry>,
    /// Nothing follows.
    pub end: bool,
    /// How long all that may be believed.
    pub(crate) ttl: Duration,
}

/// Capacity and use of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in all.
    pub capacity: u64,
    /// Bytes in use.
    pub used: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
}

impl Fs {
    /// Attach to an instance. `nodes` are the addresses of its storage daemons in the order of its
    /// nodes, or the address of any one of them, which then gives those of the others.
    pub fn attach(
        nodes: impl Into<NodeAddresses>,
        instance: InstanceId,
        options: ClientOptions,
    ) -> Result<Fs, Errno> {
        let sessions = Sessions::open(&nodes.into(), instance, options, false)?;
        Ok(Fs {
            close_batch: None,
            sessions: Arc::new(sessions),
            caller: None,
            process: None,
            writers: Arc::default(),
            removals: Arc::default(),
        })
    }

    /// The same sessions, on behalf of someone else. Only root and the daemon's user may do so.
    pub fn on_behalf_of(&self, caller: Credentials) -> Fs {
        Fs {
            caller: Some(caller),
            ..self.clone()
        }
    }

    /// The same sessions, on behalf of a process of user `uid` and group `gid` on this host.
    pub(crate) fn on_behalf_of_process(&self, uid: u32, gid: u32, process: CallerProcess) -> Fs {
        Fs {
            caller: Some(process.caller(uid, gid)),
            process: Some(process),
            ..self.clone()
        }
    }

    pub(crate) fn call(&self, node: NodeIndex, request: Request) -> Result<Reply, Errno> {
        self.request(node, request).map(|said| said.reply)
    }

    /// Other sessions with the same instance, which are told what may be cached.
    pub(crate) fn for_cache(&self) -> Result<Fs, Errno> {
        let sessions = Arc::new(self.sessions.open_for_cache()?);
        Ok(Fs {
            close_batch: CloseBatch::start(&sessions).map(Arc::new),
            sessions,
            caller: self.caller.clone(),
            process: self.process.clone(),
            writers: Arc::default(),
            removals: Arc::default(),
        })
    }

    fn attr(&self, node: NodeIndex, request: Request) -> Result<Attr, Errno> {
        self.attr_for(node, request).map(|(attr, _)| attr)
    }

    fn done(&self, node: NodeIndex, request: Request) -> Result<(), Errno> {
        self.call(node, request).map(|_| ())
    }

    /// Attributes of an entry.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let (found, _) = self.lookup_for(parent, name)?;
        found.ok_or(Errno::ENOENT)
    }

    /// Attributes of an inode.
    pub fn get_attr(&self, ino: Ino) -> Result<Attr, Errno> {
        self.attr_of(ino).map(|(attr, _)| attr)
    }

    /// May the caller access an inode in all the ways that the bits of `mask` say: 4 to read, 2 to
    /// write, 1 to execute it or to search it for names?
    pub fn access(&self, ino: Ino, mask: u16) -> Result<(), Errno> {
        self.done(
            ino.metadata_node(),
            Request::Inode(InodeRequest::Access { ino, mask }),
        )
    }

    /// Change attributes. `file`: the open file through which it is done, if any.
    pub fn set_attr(&self, ino: Ino, file: Option<&File>, set: SetAttr) -> Result<Attr, Errno> {
        let handle = file.map(File::handle);
        if set.size.is_some() {
            self.before_truncate(ino)?;
        }
        self.attr(
            ino.metadata_node(),
            Request::Inode(InodeRequest::SetAttr { ino, handle, set }),
        )
    }

    /// Target of a symbolic link.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        self.bytes(
            ino.metadata_node(),
            Request::Name(NameRequest::ReadLink { ino }),
        )
    }

    fn bytes(&self, node: NodeIndex, request: Request) -> Result<Vec<u8>, Errno> {
        match self.call(node, request)? {
            Reply::Bytes(bytes) => Ok(bytes),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Make a directory, symbolic link, pipe, socket or device, or a file without opening it.
    pub fn make_inode(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewInode,
        mode: u16,
    ) -> Result<Attr, Errno> {
        let name = name.to_vec();
        let request = Request::Name(NameRequest::Mknod {
            parent,
            name,
            new,
            mode,
        });
        self.attr(parent.metadata_node(), request)
    }

    /// Make a directory.
    pub fn mkdir(&self, parent: Ino, name: &[u8], mode: u16) -> Result<Attr, Errno> {
        self.make_inode(parent, name, NewInode::Dir, mode)
    }

    /// Remove a name of something that is not a directory.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        self.done(
            parent.metadata_node(),
            Request::Name(NameRequest::Unlink { parent, name }),
        )?;
        self.removals.record();
        Ok(())
    }

    /// Remove an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        self.done(
            parent.metadata_node(),
            Request::Name(NameRequest::RmDir { parent, name }),
        )
    }

    /// Change a name.
    pub fn rename(
        &self,
        (parent, name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        existing: OnExisting,
    ) -> Result<(), Errno> {
        let (name, to_name) = (name.to_vec(), to_name.to_vec());
        let request = Request::Name(NameRequest::Rename {
            parent,
            name,
            to,
            to_name,
            existing,
        });
        self.done(parent.metadata_node(), request)?;
        self.removals.record();
        Ok(())
    }

    /// Give a file a further name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let name = name.to_vec();
        self.attr(
            parent.metadata_node(),
            Request::Name(NameRequest::Link { ino, parent, name }),
        )
    }

    /// Set an extended attribute.
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Errno> {
        let (name, value) = (name.to_vec(), value.to_vec());
        let request = Request::Inode(InodeRequest::SetXattr {
            ino,
            name,
            value,
            mode,
        });
        self.done(ino.metadata_node(), request)
    }

    /// Value of an extended attribute; `ENODATA` if there is none.
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let name = name.to_vec();
        self.bytes(
            ino.metadata_node(),
            Request::Inode(InodeRequest::GetXattr { ino, name }),
        )
    }

    /// Names of extended attributes.
    pub fn list_xattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        match self.call(
            ino.metadata_node(),
            Request::Inode(InodeRequest::ListXattr { ino }),
        )? {
            Reply::Names(names) => Ok(names),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Remove an extended attribute.
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        self.done(
            ino.metadata_node(),
            Request::Inode(InodeRequest::RemoveXattr { ino, name }),
        )
    }

    /// Make all changes of names and attributes so far durable.
    pub fn sync(&self) -> Result<(), Errno> {
        let request = Request::File(FileRequest::Sync {
            handle: None,
            data_only: false,
        });
        self.ask_all(&request, |_| Ok(()))
    }

    /// Capacity and use, of all nodes together.
    pub fn statfs(&self) -> Result<StatFs, Errno> {
        let mut total = StatFs::default();
        self.ask_all(&Request::Inode(InodeRequest::StatFs), |reply| match reply {
            Reply::StatFs {
                capacity,
                used,
                inodes,
                inodes_used,
            } => {
                total.capacity = total.capacity.saturating_add(capacity);
                total.used = total.used.saturating_add(used);
                total.inodes = total.inodes.saturating_add(inodes);
                total.inodes_used = total.inodes_used.saturating_add(inodes_used);
                Ok(())
            }
            _ => Err(Errno::EPROTO),
        })?;
        Ok(total)
    }

    /// Ask the same of all nodes.
    fn ask_all(
        &self,
        request: &Request,
        mut take: impl FnMut(Reply) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut result = Ok(());
        let requests = self.sessions.nodes().map(|node| (node, request.clone()));
        self.sessions
            .call_nodes(self.caller.as_ref(), requests, |_, said| {
                let taken = said.and_then(|said| take(said.reply));
                result = result.and(taken);
            });
        result
    }
}
