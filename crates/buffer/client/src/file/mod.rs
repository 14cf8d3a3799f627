//! Open files.
//!
//! A file's data lie in data objects, one on each storage node that holds some of them. With a
//! descriptor from a daemon on the same host, reads and writes are system calls on the object and
//! nothing else. What keeps the instance within its capacity is the promise of space
//! ([`FileRequest::ReserveSpace`]) that every write draws from, some megabytes at a time.

mod locks;
mod part;
mod ranges;
mod space;
mod transfer;

use crate::fs::Fs;
use crate::session::lock;
use forebay_protocol::message::FileRequest;
use forebay_protocol::message::OpenMode;
use forebay_protocol::placement::Capability;
use forebay_protocol::space::{BLOCK_BYTES, block_bytes};
use forebay_protocol::{Errno, HandleId, Ino, NodeIndex, Reply, Request};
use part::Part;
pub use space::Removals;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// An open file or directory. It is closed when dropped.
#[derive(Debug)]
pub struct File {
    fs: Fs,
    ino: Ino,
    mode: OpenMode,
    /// The part on the file's home.
    home: Part,
    /// The parts on other nodes, by node, as far as they have been used.
    others: OnceLock<Box<[OnceLock<Part>]>>,
    /// Opens parts on other nodes.
    permit: Mutex<Option<Capability>>,
    /// Itself, to be found by other writers that need what it does not use.
    own: Weak<File>,
    /// Others can find it.
    listed: AtomicBool,
}

impl File {
    pub(crate) fn new(
        fs: Fs,
        ino: Ino,
        handle: HandleId,
        mode: OpenMode,
        descriptor: Option<OwnedFd>,
        permit: Option<Capability>,
    ) -> Arc<File> {
        Arc::new_cyclic(|own| File {
            own: own.clone(),
            fs,
            ino,
            mode,
            home: Part::new(ino.metadata_node(), handle, descriptor),
            others: OnceLock::new(),
            permit: Mutex::new(permit),
            listed: AtomicBool::new(false),
        })
    }

    /// Its inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// How it was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    pub(crate) fn handle(&self) -> HandleId {
        self.home.handle
    }

    /// The data object that is the whole file, if the instance lives on one node whose daemon
    /// passed it.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if self.fs.sessions.striped() {
            return None;
        }
        self.home.local.as_ref().map(AsFd::as_fd)
    }

    /// Where the part on `node`, which is not home, is kept when it is open.
    fn place(&self, node: NodeIndex) -> Result<&OnceLock<Part>, Errno> {
        let nodes = usize::from(self.fs.sessions.layout().nodes());
        let others = self
            .others
            .get_or_init(|| (0..nodes).map(|_| OnceLock::new()).collect());
        others.get(usize::from(node.0)).ok_or(Errno::ESTALE)
    }

    /// The part on `node`, opened now if it is not yet.
    fn part(&self, node: NodeIndex) -> Result<&Part, Errno> {
        if node == self.home.node {
            return Ok(&self.home);
        }
        let place = self.place(node)?;
        if let Some(part) = place.get() {
            return Ok(part);
        }
        // Opening twice with the same handle opens nothing further, so who is first does not matter.
        let part = self.open_part(node)?;
        Ok(place.get_or_init(|| part))
    }

    /// Open the parts on these nodes at the same time. They must come in the order of the nodes.
    /// What fails here is tried again, and says why, when the part is used.
    fn open_parts(&self, nodes: impl Iterator<Item = NodeIndex>) -> Result<(), Errno> {
        let closed = |node: &NodeIndex| {
            *node != self.home.node && self.place(*node).is_ok_and(|place| place.get().is_none())
        };
        let nodes: Vec<NodeIndex> = nodes.filter(closed).collect();
        if nodes.len() < 2 {
            return Ok(());
        }
        let permit = self.permit(false)?;
        let requests = nodes.iter().map(|node| (*node, self.open_request(permit)));
        self.fs.sessions.call_nodes(None, requests, |node, said| {
            if let (Ok(said), Ok(place)) = (said, self.place(node)) {
                place.get_or_init(|| self.opened_part(node, permit, said.descriptor));
            }
        });
        Ok(())
    }

    fn open_request(&self, permit: Capability) -> Request {
        Request::File(FileRequest::OpenObject {
            handle: self.home.handle,
            capability: permit,
            open: self.part_mode(),
        })
    }

    fn part_mode(&self) -> OpenMode {
        OpenMode {
            truncate: false,
            descriptor: true,
            ..self.mode
        }
    }

    fn opened_part(
        &self,
        node: NodeIndex,
        permit: Capability,
        descriptor: Option<OwnedFd>,
    ) -> Part {
        let handle = self.home.handle;
        if let Ok(session) = self.fs.sessions.session(node) {
            session.remember_object(handle, permit, self.part_mode());
        }
        Part::new(node, handle, descriptor)
    }

    /// Open the data object on `node`, which is not home; also when that node has forgotten it.
    fn open_part(&self, node: NodeIndex) -> Result<Part, Errno> {
        let mut permit = self.permit(false)?;
        let session = self.fs.sessions.session(node)?;
        let mut said = session.call(None, self.open_request(permit));
        if let Err(Errno::EKEYREJECTED) = said {
            permit = self.permit(true)?;
            said = session.call(None, self.open_request(permit));
        }
        Ok(self.opened_part(node, permit, said?.descriptor))
    }

    /// What opens parts on other nodes. `fresh`: the one there is has expired.
    fn permit(&self, fresh: bool) -> Result<Capability, Errno> {
        let mut permit = lock(&self.permit);
        if let Some(permit) = *permit
            && !fresh
        {
            return Ok(permit);
        }
        let handle = self.home.handle;
        let session = self.fs.sessions.session(self.home.node)?;
        match session
            .call(None, Request::File(FileRequest::RenewCapability { handle }))?
            .reply
        {
            Reply::Capability(new) => Ok(*permit.insert(new)),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Do what needs the handle of `part`, once more if the part's node has forgotten it.
    fn with_part<T>(
        &self,
        part: &Part,
        mut act: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match act() {
            Err(Errno::EBADF | Errno::ESTALE) if part.node != self.home.node => {
                self.open_part(part.node)?;
                act()
            }
            other => other,
        }
    }

    /// The parts that have been opened.
    fn parts(&self) -> impl Iterator<Item = &Part> {
        let others = self.others.get().into_iter().flatten();
        others.filter_map(OnceLock::get).chain([&self.home])
    }

    /// Read at `offset`. Less than asked for only at the end of the file.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if !self.mode.read {
            return Err(Errno::EBADF);
        }
        if self.fs.sessions.striped() {
            return self.read_striped(into, offset);
        }
        self.home.read(&self.fs, into, offset)
    }

    /// Write all of `data` at `offset`, or fail, possibly after writing a part.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            done += self.write_at(&data[done..], offset + done as u64)?;
        }
        Ok(())
    }

    /// Write at `offset`. Less than asked for only when the instance is nearly full, or a storage
    /// node fails on the way; of what lies behind, parts on other nodes may have been written then.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize, Errno> {
        self.check_write(offset, data.len())?;
        if self.fs.sessions.striped() {
            return self.write_striped(data, offset);
        }
        self.list();
        let length = self.home.reserve_for_write(&self.fs, data.len(), offset)?;
        self.home.write(&self.fs, &data[..length], offset)
    }

    /// Write at the end of the file, wherever that is by then. Returns the bytes written.
    ///
    /// Appends do not overlap, and leave no holes between them. On an instance of several nodes
    /// that holds among appends, and unless the file's home is started again meanwhile; a write
    /// elsewhere that extends the file at the same time may lie in the same place.
    pub fn append(&self, data: &[u8]) -> Result<usize, Errno> {
        self.check_write(0, data.len())?;
        if self.fs.sessions.striped() {
            return self.append_striped(data);
        }
        self.list();
        // The end may lie anywhere in a block.
        let cost = block_bytes(BLOCK_BYTES - 1, data.len() as u64);
        while !self.home.take_reserved(cost) {
            if self.home.extend_reservation(&self.fs, cost)? < cost {
                // Too little is left to be sure of an unknown place; a known one may need less.
                return self.write_at(data, self.length()?);
            }
        }
        self.home.append(&self.fs, data)
    }

    fn length(&self) -> Result<u64, Errno> {
        Ok(self.fs.get_attr(self.ino)?.size)
    }

    fn check_write(&self, offset: u64, length: usize) -> Result<(), Errno> {
        if !self.mode.write {
            return Err(Errno::EBADF);
        }
        match offset.checked_add(length as u64) {
            Some(end) if end <= i64::MAX as u64 => Ok(()),
            _ => Err(Errno::EFBIG),
        }
    }

    /// Let other writers find what this one is promised.
    fn list(&self) {
        if !self.listed.load(Ordering::Relaxed) && !self.listed.swap(true, Ordering::AcqRel) {
            lock(&self.fs.writers).push(self.own.clone());
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Home last: when a file's last writer closes it there, home asks the others for lengths.
        let (fs, handle) = (&self.fs, self.home.handle);
        let close = |part: &Part| {
            if let Ok(session) = fs.sessions.session(part.node) {
                session.forget_handle(handle);
            }
            let returned = part.reserved();
            (
                part.node,
                Request::File(FileRequest::Close { handle, returned }),
            )
        };
        let others = self.parts().filter(|part| part.node != self.home.node);
        fs.sessions.call_nodes(None, others.map(close), |_, _| {});
        let session = fs.sessions.session(self.home.node);
        let locked = session.is_ok_and(|session| session.forget_locks_of_handle(self.ino, handle));
        let (node, request) = close(&self.home);
        // Others may be waiting for locks, or for the space that this one was promised.
        let urgent = locked
            || !matches!(
                request,
                Request::File(FileRequest::Close { returned: 0, .. })
            );
        if let Some(closes) = fs.close_batch.as_ref().filter(|_| !urgent)
            && !fs.sessions.striped()
            && closes.push(node, handle)
        {
            return;
        }
        let _ = fs.call(node, request);
    }
}
