//! Making and opening files.

use super::Fs;
use crate::file::File;
use forebay_protocol::message::{FileRequest, NameRequest};
use forebay_protocol::message::{OpenMode, SetAttr};
use forebay_protocol::{Attr, Errno, HandleId, Ino, NodeIndex, Reply, Request};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a create follows a name that others keep changing.
const TRIES: u32 = 100;

/// A file that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: Arc<File>,
    /// Its attributes.
    pub attr: Attr,
    /// It was made by this request.
    pub created: bool,
    /// How long the attributes may be believed.
    pub(crate) ttl: Duration,
    /// When they were received.
    heard: Instant,
}

/// Where a name led.
enum Found {
    Here(Opened),
    /// To an inode of another home.
    Elsewhere(Ino),
}

impl Fs {
    /// Make and open a file; if it exists open that, or fail if `exclusive`.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        mode: u16,
        exclusive: bool,
        open: OpenMode,
    ) -> Result<Opened, Errno> {
        let handle = self.sessions.new_handle();
        let open = self.by_descriptor(parent.metadata_node(), open)?;
        let request = |open| {
            Request::Name(NameRequest::Create {
                parent,
                name: name.to_vec(),
                mode,
                exclusive,
                handle,
                open,
            })
        };
        let mut tries = 0;
        loop {
            let found = match self.opened(parent.metadata_node(), handle, open, request)? {
                Found::Here(opened) => Ok(opened),
                Found::Elsewhere(ino) => self.open_as(ino, handle, open),
            };
            match found {
                // It went between the two requests; the name may be free by now.
                Err(Errno::ESTALE | Errno::ENOENT) if tries < TRIES => tries += 1,
                other => return self.completed(other?),
            }
        }
    }

    /// Open a file or directory. The attributes are those at that moment.
    pub fn open(&self, ino: Ino, open: OpenMode) -> Result<Opened, Errno> {
        self.completed(self.open_quickly(ino, open)?)
    }

    /// As [`open`](Fs::open), but length, space and times may not be known.
    pub(crate) fn open_quickly(&self, ino: Ino, open: OpenMode) -> Result<Opened, Errno> {
        self.open_as(ino, self.sessions.new_handle(), open)
    }

    /// Have the data objects say what the file's home could not.
    fn completed(&self, opened: Opened) -> Result<Opened, Errno> {
        let attr = self.complete(opened.attr)?;
        let valid = opened.ttl.saturating_sub(opened.heard.elapsed());
        Ok(Opened {
            attr,
            ttl: valid,
            ..opened
        })
    }

    fn open_as(&self, ino: Ino, handle: HandleId, open: OpenMode) -> Result<Opened, Errno> {
        let open = self.by_descriptor(ino.metadata_node(), open)?;
        let request = |open| Request::File(FileRequest::Open { ino, handle, open });
        match self.opened(ino.metadata_node(), handle, open, request)? {
            Found::Here(opened) => Ok(opened),
            Found::Elsewhere(_) => Err(Errno::EPROTO),
        }
    }

    /// A daemon of this host passes data objects, and only so can they be read and written.
    fn by_descriptor(&self, node: NodeIndex, open: OpenMode) -> Result<OpenMode, Errno> {
        let descriptor = open.descriptor || self.sessions.session(node)?.is_local();
        Ok(OpenMode { descriptor, ..open })
    }

    /// Make the request that opens something at `node` in `mode`.
    ///
    /// It cuts the file on its way, if `mode` says so and nothing has to be done before that
    /// ([`before_cut`](Fs::before_cut)). Otherwise a file that was there is cut by a request of its
    /// own, and a new one is not held up by nodes that it has nothing to do with.
    fn opened(
        &self,
        node: NodeIndex,
        handle: HandleId,
        mode: OpenMode,
        request: impl Fn(OpenMode) -> Request,
    ) -> Result<Found, Errno> {
        let truncate = mode.truncate && self.sessions.may_truncate_on_open();
        let boots = truncate.then(|| self.sessions.boot_ids());
        let said = self.request(node, request(OpenMode { truncate, ..mode }))?;
        let heard = Instant::now();
        let (attr, created, permit) = match said.reply {
            Reply::Opened {
                attr,
                created,
                capability: permit,
            } => (attr, created, permit),
            Reply::Referral { ino, .. } => return Ok(Found::Elsewhere(ino)),
            _ => return Err(Errno::EPROTO),
        };
        self.sessions
            .session(node)?
            .remember_file(handle, attr.ino, mode);
        let file = File::new(
            self.clone(),
            attr.ino,
            handle,
            mode,
            said.descriptor,
            permit,
        );
        let mut opened = Opened {
            file,
            attr,
            created,
            ttl: said.ttl,
            heard,
        };
        if created {
            // Nobody can have written to it yet.
            opened.attr.provisional = None;
        } else if let Some(boots) = boots {
            self.sessions.truncations.record(attr.ino, boots);
        } else if mode.truncate {
            let empty = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            opened.attr = self.set_attr(attr.ino, Some(&opened.file), empty)?;
            opened.ttl = Duration::ZERO;
        }
        Ok(Found::Here(opened))
    }

    /// A file is about to be cut shorter: from now on nothing may be carried out that was written
    /// before, and a later sync has to know whether a power cut has undone it.
    pub(super) fn before_truncate(&self, ino: Ino) -> Result<(), Errno> {
        self.sessions.fence_writes()?;
        self.sessions
            .truncations
            .record(ino, self.sessions.boot_ids());
        Ok(())
    }
}
