//! The data objects of an open file, one on each storage node that holds some of it.

use super::part::Part;
use crate::attachment::Attachment;
use crate::session::{OpenedBy, Session, SessionReply};
use forebay_policy::layout::Layout;
use forebay_protocol::message::{FileRequest, OpenMode, TrailingField};
use forebay_protocol::placement::{Capability, ObjectInfo};
use forebay_protocol::{Errno, HandleId, Ino, NodeIndex};
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The result of opening a data object.
type OpenResult = Result<SessionReply<Option<ObjectInfo>>, Errno>;

/// The parts of an open file.
#[derive(Debug)]
pub struct Parts {
    pub attachment: Arc<Attachment>,
    pub ino: Ino,
    pub layout: Layout,
    mode: OpenMode,
    /// The part on the file's metadata node; always open.
    pub primary: Part,
    /// Parts on other nodes by node, opened when first used.
    others: OnceLock<Box<[OnceLock<Part>]>>,
    /// Opens parts on other nodes.
    capability: Mutex<Option<Capability>>,
    /// Reads do not change the access time.
    keeps_access_time: AtomicBool,
}

impl Parts {
    pub fn new(
        attachment: Arc<Attachment>,
        ino: Ino,
        handle: HandleId,
        mode: OpenMode,
        descriptor: Option<OwnedFd>,
        capability: Option<Capability>,
    ) -> Parts {
        Parts {
            layout: attachment.sessions.layout(),
            attachment,
            ino,
            mode,
            primary: Part::new(ino.metadata_node(), handle, descriptor),
            others: OnceLock::new(),
            capability: Mutex::new(capability),
            keeps_access_time: AtomicBool::new(false),
        }
    }

    /// Reads do not change the access time from now on, where [`Part::keep_access_time`] can ensure that.
    pub fn keep_access_time(&self) {
        self.keeps_access_time.store(true, Ordering::Relaxed);
        self.primary.keep_access_time();
    }

    pub fn keeps_access_time(&self) -> bool {
        self.keeps_access_time.load(Ordering::Relaxed)
    }

    /// Whether one data object is the whole file, byte for byte.
    pub fn is_single_object(&self) -> bool {
        self.layout.nodes() == 1
    }

    pub fn session(&self, node: NodeIndex) -> Result<&Session, Errno> {
        self.attachment.sessions.session(node)
    }

    fn other(&self, node: NodeIndex) -> Result<&OnceLock<Part>, Errno> {
        assert_ne!(node, self.primary.node);
        let nodes = usize::from(self.layout.nodes());
        let others = self.others.get_or_init(|| (0..nodes).map(|_| OnceLock::new()).collect());
        others.get(usize::from(node.0)).ok_or(Errno::ESTALE)
    }

    /// The part on `node`, opened now if necessary.
    pub fn part(&self, node: NodeIndex) -> Result<&Part, Errno> {
        if node == self.primary.node {
            return Ok(&self.primary);
        }
        let other = self.other(node)?;
        if let Some(part) = other.get() {
            return Ok(part);
        }
        // Opening is idempotent with the same handle, so concurrent opens do no harm.
        let part = self.open_part(node)?;
        Ok(other.get_or_init(|| part))
    }

    /// Opens the parts on these nodes, in ascending order, concurrently. A part that fails to open
    /// is opened again, and its error reported, when it is used.
    pub fn open_parts(&self, nodes: impl Iterator<Item = NodeIndex>) -> Result<(), Errno> {
        let is_closed = |node: &NodeIndex| {
            *node != self.primary.node && self.other(*node).is_ok_and(|part| part.get().is_none())
        };
        let nodes: Vec<NodeIndex> = nodes.filter(is_closed).collect();
        if nodes.len() < 2 {
            return Ok(());
        }
        let position = nodes.iter().map(|node| self.layout.position(self.ino, *node)).max();
        let capability = self.capability(position.unwrap_or(0), false)?;
        let requests = nodes.iter().map(|node| (*node, self.open_request(capability)));
        let sessions = &self.attachment.sessions;
        sessions.call_nodes(None, requests, |node, reply: OpenResult| {
            if let (Ok(reply), Ok(other)) = (reply, self.other(node)) {
                other.get_or_init(|| self.opened_part(node, capability, reply));
            }
        });
        Ok(())
    }

    /// Opens the data object on `node` again, for example after that node has forgotten it.
    pub fn open_part(&self, node: NodeIndex) -> Result<Part, Errno> {
        let position = self.layout.position(self.ino, node);
        let mut capability = self.capability(position, false)?;
        let session = self.session(node)?;
        let open = |capability| -> OpenResult {
            session.exchange(None, self.open_request(capability).into())?.into_result()
        };
        let mut reply = open(capability);
        if let Err(Errno::EKEYREJECTED) = reply {
            capability = self.capability(position, true)?;
            reply = open(capability);
        }
        Ok(self.opened_part(node, capability, reply?))
    }

    fn open_request(&self, capability: Capability) -> FileRequest {
        let open = self.part_mode();
        FileRequest::OpenObject { handle: self.primary.handle, capability, open }
    }

    fn part_mode(&self) -> OpenMode {
        let keep_access_time = TrailingField(self.keeps_access_time());
        OpenMode { truncate: false, descriptor: true, keep_access_time, ..self.mode }
    }

    fn opened_part(
        &self,
        node: NodeIndex,
        capability: Capability,
        opened: SessionReply<Option<ObjectInfo>>,
    ) -> Part {
        let handle = self.primary.handle;
        let mut is_local = false;
        if let Ok(session) = self.session(node) {
            session.remember_handle(handle, OpenedBy::Capability(capability), self.part_mode());
            is_local = session.is_local();
        }
        let is_absent = is_local && opened.descriptor.is_none() && opened.reply.is_none();
        let mut part = Part::new(node, handle, opened.descriptor);
        if self.keeps_access_time() {
            part.keep_access_time();
        }
        part.is_absent = is_absent;
        part
    }

    /// Reads from the object of a part; from one that was absent when it was opened, if there is one
    /// now. Returns less than requested only at the end of the object.
    pub fn read_part(&self, part: &Part, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if !part.is_absent {
            return self.with_part(part, || part.read(&self.attachment, into, offset));
        }
        let part = self.open_part(part.node)?;
        if part.is_absent { Ok(0) } else { part.read(&self.attachment, into, offset) }
    }

    /// The capability that opens parts on other nodes up to this position. `renew`: the present one has
    /// expired.
    fn capability(&self, position: u16, renew: bool) -> Result<Capability, Errno> {
        let mut capability = self.capability.lock();
        if let Some(capability) = *capability
            && !renew
            && (!capability.write || position < capability.width)
        {
            return Ok(capability);
        }
        let handle = self.primary.handle;
        let session = self.session(self.primary.node)?;
        Ok(*capability.insert(session.call(FileRequest::RenewCapability { handle, position })?))
    }

    /// Fails if the file's metadata node may have recorded the length without the bytes that were
    /// just written on other nodes. The node does that when the lease of a silent client has
    /// expired; a client that reaches it again opens its files again first, so that their length is
    /// determined anew.
    pub fn confirm_write(&self) -> Result<(), Errno> {
        if self.is_single_object() || self.session(self.primary.node)?.is_lease_current() {
            return Ok(());
        }
        self.capability(0, true).map(drop).map_err(|errno| {
            tracing::error!(%errno, ino = %self.ino, node = self.primary.node.0,
                "write failed: the file's metadata node has not replied for the time of a lease");
            Errno::EIO
        })
    }

    /// Runs `act`, which needs the handle of `part`, once more if the part's node has forgotten it.
    #[inline]
    pub fn with_part<T>(
        &self,
        part: &Part,
        mut act: impl FnMut() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match act() {
            Err(Errno::EBADF | Errno::ESTALE) if part.node != self.primary.node => {
                self.open_part(part.node)?;
                act()
            }
            other => other,
        }
    }

    /// The open parts on other nodes than the file's metadata node, in ascending order.
    pub fn open_others(&self) -> impl Iterator<Item = &Part> {
        self.others.get().into_iter().flatten().filter_map(OnceLock::get)
    }

    /// All open parts.
    pub fn open_all(&self) -> impl Iterator<Item = &Part> {
        self.open_others().chain([&self.primary])
    }
}
