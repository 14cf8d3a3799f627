//! Creating and opening files.

use super::Fs;
use crate::file::File;
use crate::session::OpenedBy;
use forebay_protocol::message::{FileRequest, NameRequest, NameResult, OpenMode, SetAttr};
use forebay_protocol::{Attr, Errno, HandleId, Ino, NodeIndex, Request};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of times that a create follows a name that other clients keep changing.
const MAX_CREATES: u32 = 100;

/// A file that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: Arc<File>,
    /// Its attributes.
    pub attr: Attr,
    /// Whether this request created it.
    pub created: bool,
    /// Time to live of the attributes.
    pub(crate) ttl: Duration,
}

impl Fs {
    /// Creates and opens a file. If it exists it is opened, or the request fails if `exclusive`.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        mode: u16,
        exclusive: bool,
        open: OpenMode,
    ) -> Result<Opened, Errno> {
        let handle = self.sessions().new_handle();
        let open = self.with_descriptor(parent.metadata_node(), open)?;
        let request = |open| {
            let name = name.to_vec();
            NameRequest::Create { parent, name, mode, exclusive, handle, open }
        };
        let mut creates = 1;
        loop {
            let opened = match self.send_open(parent.metadata_node(), handle, open, request)? {
                NameResult::Found(opened) => Ok(opened),
                NameResult::Referral(ino) => self.open_with_handle(ino, handle, open),
            };
            match opened {
                // Removed between the two requests; the name may be free by now.
                Err(Errno::ESTALE | Errno::ENOENT) if creates < MAX_CREATES => creates += 1,
                other => return self.complete_opened(other?),
            }
        }
    }

    /// Opens a file or directory. The attributes are those at that moment.
    pub fn open(&self, ino: Ino, open: OpenMode) -> Result<Opened, Errno> {
        self.complete_opened(self.open_provisional(ino, open)?)
    }

    /// As [`open`](Fs::open), but length, space and times may be outdated.
    pub(crate) fn open_provisional(&self, ino: Ino, open: OpenMode) -> Result<Opened, Errno> {
        self.open_with_handle(ino, self.sessions().new_handle(), open)
    }

    /// Requests from the data objects the attributes that the metadata node does not know.
    fn complete_opened(&self, opened: Opened) -> Result<Opened, Errno> {
        let (attr, ttl) = self.requester.complete_with_ttl(opened.attr, opened.ttl)?;
        Ok(Opened { attr, ttl, ..opened })
    }

    fn open_with_handle(
        &self,
        ino: Ino,
        handle: HandleId,
        open: OpenMode,
    ) -> Result<Opened, Errno> {
        let open = self.with_descriptor(ino.metadata_node(), open)?;
        let request = |open| FileRequest::Open { ino, handle, open };
        match self.send_open(ino.metadata_node(), handle, open, request)? {
            NameResult::Found(opened) => Ok(opened),
            NameResult::Referral(_) => Err(Errno::EPROTO),
        }
    }

    /// A daemon on this host transfers data by the descriptors of its objects only.
    fn with_descriptor(&self, node: NodeIndex, open: OpenMode) -> Result<OpenMode, Errno> {
        let descriptor = open.descriptor || self.sessions().session(node)?.is_local();
        Ok(OpenMode { descriptor, ..open })
    }

    /// Sends `node` the request that opens a file in `mode`.
    ///
    /// The request truncates the file, if `mode` says so and nothing has to be done before that
    /// ([`before_truncate`](Fs::before_truncate)). Otherwise an existing file is truncated by a
    /// second request, and a new one does not wait for nodes that have no part of it.
    fn send_open<R: Into<Request>>(
        &self,
        node: NodeIndex,
        handle: HandleId,
        mode: OpenMode,
        request: impl Fn(OpenMode) -> R,
    ) -> Result<NameResult<Opened>, Errno> {
        let sessions = self.sessions();
        let truncate = mode.truncate && sessions.may_truncate_on_open();
        let boot_ids = truncate.then(|| sessions.boot_ids());
        let request = request(OpenMode { truncate, ..mode });
        let reply = self.requester.request(node, request)?;
        let (attr, created, capability) = match reply.reply {
            NameResult::Found(opened) => opened,
            NameResult::Referral(ino) => return Ok(NameResult::Referral(ino)),
        };
        sessions.session(node)?.remember_handle(handle, OpenedBy::Ino(attr.ino), mode);
        let file =
            File::new(self.requester.clone(), attr.ino, handle, mode, reply.descriptor, capability);
        let mut opened = Opened { file, attr, created, ttl: reply.ttl };
        if created {
            // No client can have written to it yet.
            opened.attr.provisional = None;
        } else if let Some(boot_ids) = boot_ids {
            sessions.truncations.record(attr.ino, boot_ids);
        } else if mode.truncate {
            let empty = SetAttr { size: Some(0), ..SetAttr::default() };
            opened.attr = self.set_attr(attr.ino, Some(&opened.file), empty)?;
            opened.ttl = Duration::ZERO;
        }
        Ok(NameResult::Found(opened))
    }
}
