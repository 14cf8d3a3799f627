//! The operations of an instance's file system, by inode. Each request goes to the metadata node of
//! its directory if it names an entry, otherwise to that of its inode.

mod directory;
mod inline_file;
mod many;
mod open;
mod prepare;
mod truncation;

pub use directory::DirPage;
pub use many::{NewFile, Results};
pub use open::Opened;
pub(crate) use prepare::Preparing;

use crate::attachment::Attachment;
use crate::file::File;
use crate::requester::{CallerProcess, Requester};
use crate::session::{ClientOptions, ReplyCaches};
use crate::sessions::{NodeAddresses, Sessions};
use forebay_protocol::message::{
    CreateMode, InodeRequest, NameRequest, NewInode, OnExisting, SetAttr, StatFs, XattrMode,
};
use forebay_protocol::{Attr, Credentials, Errno, Ino, InstanceId, NodeIndex, Request};
use std::sync::Arc;

/// Space of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Capacity and use, summed over all nodes.
    pub total: StatFs,
    /// Bytes that can be added as one file, wherever its first stripe is: files are spread evenly over the
    /// nodes, so the node with the least free space limits them.
    pub available: u64,
}

/// An attached instance. Clones share the sessions, which end with the last clone and its files.
#[derive(Clone, Debug)]
pub struct Fs {
    pub(crate) requester: Requester,
}

impl Fs {
    /// Attaches to an instance. `nodes` are the addresses of its storage daemons in the order of its
    /// nodes, or the address of any one of them, which then provides those of the others.
    pub fn attach(
        nodes: impl Into<NodeAddresses>,
        instance: InstanceId,
        options: ClientOptions,
    ) -> Result<Fs, Errno> {
        let batch_closes = options.batch_closes;
        let sessions = Sessions::open(&nodes.into(), instance, options, ReplyCaches::None)?;
        Ok(Fs {
            requester: Requester {
                attachment: Arc::new(Attachment::new(sessions, batch_closes)),
                caller: None,
                process: None,
            },
        })
    }

    /// The same sessions, on behalf of another user. Only root and the user of the daemon may use
    /// that.
    pub fn on_behalf_of(&self, caller: Credentials) -> Fs {
        Fs { requester: Requester { caller: Some(caller), ..self.requester.clone() } }
    }

    /// Number of storage nodes of the instance.
    pub fn storage_nodes(&self) -> u16 {
        self.sessions().layout().nodes()
    }

    /// The same sessions, on behalf of a process of user `uid` and group `gid` on this host.
    pub(crate) fn on_behalf_of_process(&self, uid: u32, gid: u32, process: CallerProcess) -> Fs {
        Fs {
            requester: Requester {
                attachment: self.requester.attachment.clone(),
                caller: Some(process.caller(uid, gid)),
                process: Some(process),
            },
        }
    }

    /// New sessions with the same instance, whose replies have a time to live for a cache, and that delay
    /// [small writes](ClientOptions::delays_writes) or not.
    pub(crate) fn open_for_cache(
        &self,
        caches: ReplyCaches,
        delays_writes: bool,
    ) -> Result<Fs, Errno> {
        let sessions = self.sessions().open_for_cache(caches, delays_writes)?;
        Ok(Fs {
            requester: Requester {
                attachment: Arc::new(Attachment::new(sessions, true)),
                ..self.requester.clone()
            },
        })
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.requester.attachment.sessions
    }

    fn attr(&self, node: NodeIndex, request: impl Into<Request>) -> Result<Attr, Errno> {
        let (attr, _) = self.requester.attr_for(node, request)?;
        Ok(attr)
    }

    /// Attributes of an entry.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let (found, _) = self.lookup_with_ttl(parent, name)?;
        found.ok_or(Errno::ENOENT)
    }

    /// Attributes of an inode.
    pub fn get_attr(&self, ino: Ino) -> Result<Attr, Errno> {
        let (attr, _) = self.requester.attr_of(ino)?;
        Ok(attr)
    }

    /// Checks whether the caller may access an inode in all ways of `mask`: 4 to read, 2 to write,
    /// 1 to execute or search it.
    pub fn access(&self, ino: Ino, mask: u16) -> Result<(), Errno> {
        self.requester.call(ino.metadata_node(), InodeRequest::Access { ino, mask })
    }

    /// Changes attributes, through the open file `file` if there is one.
    pub fn set_attr(&self, ino: Ino, file: Option<&File>, set: SetAttr) -> Result<Attr, Errno> {
        let (attr, _) = self.set_attr_with_ttl(ino, file, set)?;
        Ok(attr)
    }

    /// Target of a symbolic link.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        self.requester.call(ino.metadata_node(), NameRequest::ReadLink { ino })
    }

    /// Creates a directory, symbolic link, pipe, socket or device, or a file without opening it.
    pub fn make_inode(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewInode,
        mode: impl Into<CreateMode>,
    ) -> Result<Attr, Errno> {
        let (name, mode) = (name.to_vec(), mode.into());
        let request = NameRequest::Mknod { parent, name, new, mode };
        self.attr(parent.metadata_node(), request)
    }

    /// Creates a directory.
    pub fn mkdir(
        &self,
        parent: Ino,
        name: &[u8],
        mode: impl Into<CreateMode>,
    ) -> Result<Attr, Errno> {
        self.make_inode(parent, name, NewInode::Dir, mode)
    }

    /// Removes an entry that is not a directory.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        self.requester.call::<()>(parent.metadata_node(), NameRequest::Unlink { parent, name })?;
        self.requester.attachment.reservations.record_removal();
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        self.requester.call(parent.metadata_node(), NameRequest::RmDir { parent, name })
    }

    /// Renames an entry.
    pub fn rename(
        &self,
        (parent, name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        existing: OnExisting,
    ) -> Result<(), Errno> {
        let (name, to_name) = (name.to_vec(), to_name.to_vec());
        let request = NameRequest::Rename { parent, name, to, to_name, existing };
        self.requester.call::<()>(parent.metadata_node(), request)?;
        self.requester.attachment.reservations.record_removal();
        Ok(())
    }

    /// Creates a hard link.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let name = name.to_vec();
        self.attr(parent.metadata_node(), NameRequest::Link { ino, parent, name })
    }

    /// Sets an extended attribute.
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Errno> {
        let (name, value) = (name.to_vec(), value.to_vec());
        let request = InodeRequest::SetXattr { ino, name, value, mode };
        self.requester.call(ino.metadata_node(), request)
    }

    /// Value of an extended attribute; `ENODATA` if there is none.
    pub fn get_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let name = name.to_vec();
        self.requester.call(ino.metadata_node(), InodeRequest::GetXattr { ino, name })
    }

    /// Names of extended attributes.
    pub fn list_xattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Errno> {
        self.requester.call(ino.metadata_node(), InodeRequest::ListXattr { ino })
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), Errno> {
        let name = name.to_vec();
        self.requester.call(ino.metadata_node(), InodeRequest::RemoveXattr { ino, name })
    }

    /// Writes all changes of names and attributes so far to stable storage.
    pub fn sync(&self) -> Result<(), Errno> {
        self.sessions().sync(self.requester.caller.as_ref())
    }

    /// Capacity and use, summed over all nodes.
    pub fn statfs(&self) -> Result<StatFs, Errno> {
        Ok(self.space()?.total)
    }

    /// Capacity and use, and what one file can still take.
    pub fn space(&self) -> Result<Space, Errno> {
        let caller = self.requester.caller.as_ref();
        let layout = self.sessions().layout();
        if layout.nodes() > 1 && self.requester.attachment.reservations.take_removals() {
            // If that fails, the space is shown as it is.
            let _ = self.sessions().sync_removals(caller);
        }
        let mut total = StatFs::default();
        let mut least_free = u64::MAX;
        self.sessions().call_all_nodes(caller, InodeRequest::StatFs, |node: StatFs| {
            total.capacity = total.capacity.saturating_add(node.capacity);
            total.used = total.used.saturating_add(node.used);
            total.inodes = total.inodes.saturating_add(node.inodes);
            total.inodes_used = total.inodes_used.saturating_add(node.inodes_used);
            let free = node.capacity.saturating_sub(node.used);
            least_free = least_free.min(node.share.0.map_or(free, |share| share.free));
        })?;
        let available = match u64::from(layout.nodes()) {
            1 => least_free,
            // A file of that length has as many stripes on each node.
            nodes => (least_free - least_free % layout.stripe_bytes()).saturating_mul(nodes),
        };
        Ok(Space { total, available })
    }
}
