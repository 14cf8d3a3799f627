//! Creating and opening files.

use super::Fs;
use crate::file::File;
use crate::reservations::SpaceRequest;
use crate::session::{OpenedBy, SessionReply};
use crate::truncations::BootIds;
use forebay_protocol::message::{
    CreateMode, FileRequest, NameRequest, NameResult, OpenMode, PathOperation,
};
use forebay_protocol::{Attr, Errno, HandleId, Ino, NodeIndex, Request};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
        mode: impl Into<CreateMode>,
        exclusive: bool,
        open: OpenMode,
    ) -> Result<Opened, Errno> {
        let create_mode = mode.into();
        let handle = self.sessions().new_handle();
        let open = self.with_descriptor(parent.metadata_node(), open)?;
        let request = |open| {
            let (name, mode) = (name.to_vec(), create_mode);
            NameRequest::Create { parent, name, mode, exclusive, handle, open }
        };
        let reservations = &self.requester.attachment.reservations;
        let mut space = open.write.then(|| reservations.space_of_new_file(handle)).flatten();
        let node = parent.metadata_node();
        let mut creates = 1;
        loop {
            // The file may have delayed writes, which a truncation must not overtake.
            let mode = (open, self.sessions().pending_writes.is_empty());
            let (result, ttl) = self.send_open(node, handle, mode, request, space.take())?;
            let received = Instant::now();
            let opened = match result {
                NameResult::Found(opened) => {
                    if opened.created && open.write {
                        opened.file.note_new();
                    }
                    Ok(opened)
                }
                // The entry may be cached for as long as the node of its directory permits.
                NameResult::Referral(ino) => {
                    let mut opened = self.open_with_handle(ino, handle, open);
                    if let Ok(opened) = &mut opened {
                        opened.ttl = opened.ttl.min(ttl.saturating_sub(received.elapsed()));
                    }
                    opened
                }
            };
            match opened {
                // Removed between the two requests; the name may be free by now.
                Err(Errno::ESTALE | Errno::ENOENT) if creates < MAX_CREATES => creates += 1,
                other => return self.complete_opened(other?),
            }
        }
    }

    /// Creates a regular file without a name, as in the directory `parent`, and opens it. It ends when
    /// it is closed, unless it is `linkable` and [gets a name](Fs::link) before.
    pub fn create_unnamed(
        &self,
        parent: Ino,
        mode: impl Into<CreateMode>,
        linkable: bool,
        open: OpenMode,
    ) -> Result<Opened, Errno> {
        let (mode, handle) = (mode.into(), self.sessions().new_handle());
        let open = self.with_descriptor(parent.metadata_node(), open)?;
        let request = |open| NameRequest::CreateUnnamed { parent, mode, linkable, handle, open };
        match self.send_open(parent.metadata_node(), handle, (open, true), request, None)? {
            (NameResult::Found(opened), _) => self.complete_opened(opened),
            (NameResult::Referral(_), _) => Err(Errno::EPROTO),
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
        match self.send_open(ino.metadata_node(), handle, (open, true), request, None)? {
            (NameResult::Found(opened), _) => Ok(opened),
            (NameResult::Referral(_), _) => Err(Errno::EPROTO),
        }
    }

    /// A daemon on this host transfers data by the descriptors of its objects only.
    fn with_descriptor(&self, node: NodeIndex, open: OpenMode) -> Result<OpenMode, Errno> {
        let descriptor = open.descriptor || self.sessions().session(node)?.is_local();
        Ok(OpenMode { descriptor, ..open })
    }

    /// Opens the file at a path from the root.
    pub(crate) fn open_at(&self, path: &[u8], open: OpenMode) -> Result<Opened, Errno> {
        let handle = self.sessions().new_handle();
        let (sent, boot_ids) = self.mode_to_send(open);
        let (node, reply) = self.requester.exchange_at((Ino::ROOT, path), true, |node| {
            let open = self.with_descriptor(node, sent)?;
            Ok(PathOperation::File(FileRequest::Open { ino: Ino::ROOT, handle, open }))
        })?;
        match self.take_opened((node, handle, open), boot_ids, reply)? {
            NameResult::Found(opened) => self.complete_opened(opened),
            NameResult::Referral(_) => Err(Errno::EPROTO),
        }
    }

    /// Creates and opens `name` in the directory at a path from the root, or opens it if it exists.
    pub(crate) fn create_at(
        &self,
        (dir, name): (&[u8], &[u8]),
        mode: CreateMode,
        open: OpenMode,
    ) -> Result<Opened, Errno> {
        let handle = self.sessions().new_handle();
        let mut creates = 1;
        loop {
            let (sent, boot_ids) = self.mode_to_send(open);
            let (node, reply) = self.requester.exchange_at((Ino::ROOT, dir), true, |node| {
                let (parent, name, exclusive) = (Ino::ROOT, name.to_vec(), false);
                let open = self.with_descriptor(node, sent)?;
                let create = NameRequest::Create { parent, name, mode, exclusive, handle, open };
                Ok(PathOperation::Name(create))
            })?;
            let opened = match self.take_opened((node, handle, open), boot_ids, reply)? {
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

    /// Sends `node` the request that opens a file in `mode`, and that for the space of the file, if it is
    /// likely to be created. `may_truncate`: the request may truncate the file, if `mode` says so. Returns the
    /// result of the first, with the time to live of the reply.
    fn send_open<R: Into<Request>>(
        &self,
        node: NodeIndex,
        handle: HandleId,
        (mode, may_truncate): (OpenMode, bool),
        request: impl Fn(OpenMode) -> R,
        space: Option<SpaceRequest>,
    ) -> Result<(NameResult<Opened>, Duration), Errno> {
        let (sent, boot_ids) = if may_truncate {
            self.mode_to_send(mode)
        } else {
            (OpenMode { truncate: false, ..mode }, None)
        };
        let request = request(sent).into();
        let (reply, early) = self.requester.exchange_and_reserve(node, request, space);
        let reply = reply?;
        let ttl = reply.ttl;
        let result = self.take_opened((node, handle, mode), boot_ids, reply);
        if let Some(early) = early {
            match &result {
                Ok(NameResult::Found(opened)) if opened.created => opened.file.expect_space(early),
                _ => self.requester.attachment.reservations.abandon(early),
            }
        }
        Ok((result?, ttl))
    }

    /// The mode to send with a request that opens a file in `mode`, and the boot ids if that
    /// truncates the file.
    ///
    /// The request truncates the file, if `mode` says so and nothing has to be done before that
    /// (`truncation.rs`). Otherwise an existing file is truncated by a second request, and a new one
    /// does not wait for nodes that have no part of it.
    fn mode_to_send(&self, mode: OpenMode) -> (OpenMode, Option<BootIds>) {
        let sessions = self.sessions();
        let truncate = mode.truncate && sessions.may_truncate_on_open();
        (OpenMode { truncate, ..mode }, truncate.then(|| sessions.boot_ids(sessions.nodes())))
    }

    /// The file that `node` opened in `mode`. `boot_ids`: the request truncated it.
    pub(super) fn take_opened(
        &self,
        (node, handle, mode): (NodeIndex, HandleId, OpenMode),
        boot_ids: Option<BootIds>,
        reply: SessionReply,
    ) -> Result<NameResult<Opened>, Errno> {
        let sessions = self.sessions();
        let reply = reply.into_result().inspect_err(|error| {
            // The daemon has opened it, but this process has no number for the descriptor.
            if *error == Errno::EMFILE {
                let close = FileRequest::Close { handle, returned: 0 };
                let _ = self.requester.call::<()>(node, close);
            }
        })?;
        let (attr, created, capability) = match reply.reply {
            NameResult::Found(opened) => opened,
            NameResult::Referral(ino) => return Ok(NameResult::Referral(ino)),
        };
        let session = sessions.session(node)?;
        let mode = OpenMode { descriptor: mode.descriptor || session.is_local(), ..mode };
        session.remember_handle(handle, OpenedBy::Ino(attr.ino), mode);
        let file =
            File::new(self.requester.clone(), attr.ino, handle, mode, reply.descriptor, capability);
        let mut opened = Opened { file, attr, created, ttl: reply.ttl };
        if created {
            // No client can have written to it yet.
            opened.attr.provisional = None;
        } else if let Some(boot_ids) = boot_ids {
            self.record_truncation_by_open(&attr, boot_ids);
        } else if mode.truncate {
            opened.attr = self.truncate_opened(&opened)?;
            opened.ttl = Duration::ZERO;
        }
        Ok(NameResult::Found(opened))
    }
}
