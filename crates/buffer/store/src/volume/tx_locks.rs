//! Locks of transactions, and of tasks that alter a file on all nodes.

use crate::namespace::{Inode, Namespace, TxLock};
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest};
use forebay_protocol::peer::TxId;
use forebay_protocol::{Ino, Request};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxLockOwner {
    /// A transaction, coordinated by this node or by another one.
    Transaction(TxId),
    /// A task of this volume that resizes a file or sets its times.
    Task(u64),
}

#[derive(Debug, Default)]
pub struct TxLocks(BTreeMap<TxLock, TxLockOwner>);

impl TxLocks {
    /// Take a lock. A conflict must have been ruled out for transactions; a task takes the lock from
    /// an earlier one.
    pub fn take(&mut self, lock: TxLock, owner: TxLockOwner) {
        self.0.insert(lock, owner);
    }

    /// Release all locks of an owner.
    pub fn release(&mut self, owner: TxLockOwner) {
        self.0.retain(|_, holder| *holder != owner);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn owners(&self) -> impl Iterator<Item = TxLockOwner> {
        self.0.values().copied()
    }

    /// Whether a lock is held by another owner than the transaction `tx`.
    pub fn conflicts(&self, lock: &TxLock, tx: TxId) -> bool {
        let own = TxLockOwner::Transaction(tx);
        self.0.get(lock).is_some_and(|holder| *holder != own)
    }

    /// Whether any name in a directory is locked by another owner than the transaction `tx`.
    pub fn any_name_conflicts(&self, dir: Ino, tx: TxId) -> bool {
        let own = TxLockOwner::Transaction(tx);
        self.names_in(dir).any(|holder| holder != own)
    }

    /// The holders of the locks on names in a directory.
    fn names_in(&self, dir: Ino) -> impl Iterator<Item = TxLockOwner> {
        let first = TxLock::Name(dir, Vec::new());
        self.0
            .range(first..)
            .take_while(move |(lock, _)| matches!(lock, TxLock::Name(of, _) if *of == dir))
            .map(|(_, holder)| *holder)
    }

    pub fn has_name(&self, dir: Ino, name: &[u8]) -> bool {
        self.0.contains_key(&TxLock::Name(dir, name.to_vec()))
    }

    pub fn has_inode(&self, ino: Ino) -> bool {
        self.0.contains_key(&TxLock::Inode(ino))
    }

    /// Whether a transaction changes the link count of an inode.
    pub fn is_in_transaction(&self, ino: Ino) -> bool {
        let holder = self.0.get(&TxLock::Inode(ino));
        matches!(holder, Some(TxLockOwner::Transaction(_)))
    }

    /// Whether the inode that an entry names is locked, or a name in it, if it is a directory.
    fn has_child(&self, names: &Namespace, dir: Ino, name: &[u8]) -> bool {
        let directory = names.get(dir).and_then(|inode| inode.dir());
        let child = directory.and_then(|directory| directory.get(name));
        child.is_some_and(|ino| self.has_inode(ino) || self.names_in(ino).next().is_some())
    }

    /// Whether a request must wait for the end of a transaction or a task.
    pub fn block(&self, names: &Namespace, request: &Request) -> bool {
        match request {
            Request::Name(request) => self.block_name_request(names, request),
            Request::Inode(InodeRequest::SetAttr { ino, .. }) => self.has_inode(*ino),
            Request::File(FileRequest::Open { ino, open, .. }) => {
                let changes_mode = || names.get(*ino).is_some_and(Inode::has_set_id);
                (open.truncate || (open.write && changes_mode())) && self.has_inode(*ino)
            }
            Request::Inode(_)
            | Request::File(_)
            | Request::Lock(_)
            | Request::Session(_)
            | Request::Admin(_)
            | Request::Data(_)
            | Request::Path(_)
            | Request::Peer(_)
            | Request::Delegated(_)
            | Request::Batch(_) => false,
        }
    }

    fn block_name_request(&self, names: &Namespace, request: &NameRequest) -> bool {
        let is_changing = |dir: Ino, name: &[u8]| {
            self.has_name(dir, name) || self.has_inode(dir) || self.has_child(names, dir, name)
        };
        match request {
            NameRequest::Lookup { parent, name } => self.has_name(*parent, name),
            NameRequest::Mknod { parent, name, .. } => {
                self.has_name(*parent, name) || self.has_inode(*parent)
            }
            NameRequest::Create { parent, name, .. }
            | NameRequest::PutFile { parent, name, .. }
            | NameRequest::Unlink { parent, name }
            | NameRequest::RmDir { parent, name } => is_changing(*parent, name),
            NameRequest::Rename { parent, name, to, to_name, .. } => {
                is_changing(*parent, name) || is_changing(*to, to_name)
            }
            NameRequest::Link { ino, parent, name } => {
                self.has_name(*parent, name) || self.has_inode(*parent) || self.has_inode(*ino)
            }
            NameRequest::CreateUnnamed { parent, .. } => self.has_inode(*parent),
            NameRequest::ReadLink { .. } | NameRequest::ReadDir { .. } => false,
        }
    }
}
