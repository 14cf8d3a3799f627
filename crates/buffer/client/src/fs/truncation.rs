//! Truncating files: a later sync has to know whether a power failure may have undone it.
//!
//! The client records the boot ids of the nodes that may hold a part of the file before it requests
//! the truncation, and for that it needs sessions with these nodes. On instances of few nodes it
//! records those of all. On others the file's metadata node knows how many first nodes of the file's
//! rounds may have parts, as long as this client has the file open for writing: nobody settles its
//! length then.

use super::{Fs, Opened};
use crate::file::File;
use crate::requester::{MAX_QUERIED_NODES, nodes_with_parts};
use crate::truncations::BootIds;
use forebay_protocol::message::{InodeRequest, OpenMode, SetAttr};
use forebay_protocol::{Attr, Errno, Ino, NodeIndex};
use std::collections::BTreeSet;
use std::time::Duration;

/// A truncation that is about to be requested.
#[derive(Debug)]
struct Truncation {
    ino: Ino,
    /// The number of first nodes of the file's rounds whose boot ids are recorded.
    width: u16,
}

impl Fs {
    /// Changes attributes, through the open file `file` if there is one. Returns them with their time
    /// to live.
    pub(crate) fn set_attr_with_ttl(
        &self,
        ino: Ino,
        file: Option<&File>,
        set: SetAttr,
    ) -> Result<(Attr, Duration), Errno> {
        let Some(size) = set.size else {
            return self.request_set_attr(ino, file, set, None);
        };
        if self.sessions().layout().nodes() <= MAX_QUERIED_NODES {
            let truncation = self.begin_truncation(ino, size, None)?;
            return self.request_set_attr(ino, file, set, Some(truncation));
        }
        let mut opened = None;
        let attr = if file.is_some_and(|file| file.mode().write) {
            Some(self.requester.call(ino.metadata_node(), InodeRequest::GetAttr { ino })?)
        } else {
            // If this fails, the truncation is likely to fail for the same reason.
            let write = OpenMode { write: true, ..OpenMode::default() };
            opened = self.open_provisional(ino, write).ok();
            opened.as_ref().map(|opened| opened.attr)
        };
        let truncation = self.begin_truncation(ino, size, attr.as_ref())?;
        let changed = self.request_set_attr(ino, file, set, Some(truncation));
        drop(opened);
        changed
    }

    /// Truncates the file that was just opened for writing.
    pub(super) fn truncate_opened(&self, opened: &Opened) -> Result<Attr, Errno> {
        let ino = opened.attr.ino;
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        let truncation = self.begin_truncation(ino, 0, Some(&opened.attr))?;
        let changed = self.request_set_attr(ino, Some(&opened.file), set, Some(truncation));
        changed.map(|(attr, _)| attr)
    }

    /// An open request has truncated the file, and the reply had these attributes. `known` has the boot
    /// ids of all nodes at the time of the request.
    pub(super) fn record_truncation_by_open(&self, attr: &Attr, mut known: BootIds) {
        if let Some(provisional) = attr.provisional {
            let layout = self.sessions().layout();
            let nodes = nodes_with_parts(layout, attr.ino, provisional.width);
            let nodes: BTreeSet<NodeIndex> = nodes.collect();
            known.retain(|node, _| nodes.contains(node));
        }
        self.sessions().truncations.record(attr.ino, known);
    }

    /// The length of a file is about to become `size`: writes that failed must not be carried out
    /// after that, and the nodes with parts of it are recorded. `attr`: attributes since this client has
    /// the file open for writing; without them or the number of nodes in them all are recorded.
    fn begin_truncation(
        &self,
        ino: Ino,
        size: u64,
        attr: Option<&Attr>,
    ) -> Result<Truncation, Errno> {
        let sessions = self.sessions();
        let layout = sessions.layout();
        sessions.fence_writes()?;
        let mut width = layout.nodes();
        if let Some(provisional) = attr.and_then(|attr| attr.provisional) {
            // The truncation itself may extend the file to more nodes.
            let extended = layout.width_for(layout.last_position(size));
            width = width.min(provisional.width.max(extended));
        }
        let nodes = nodes_with_parts(layout, ino, width);
        sessions.truncations.record(ino, sessions.boot_ids(nodes));
        Ok(Truncation { ino, width })
    }

    fn request_set_attr(
        &self,
        ino: Ino,
        file: Option<&File>,
        set: SetAttr,
        truncation: Option<Truncation>,
    ) -> Result<(Attr, Duration), Errno> {
        let request = InodeRequest::SetAttr { ino, handle: file.map(File::handle), set };
        let changed = self.requester.request::<Attr>(ino.metadata_node(), request)?;
        if let Some(truncation) = truncation {
            self.end_truncation(&truncation, &changed.reply);
        }
        self.requester.complete_with_ttl(changed.reply, changed.ttl)
    }

    /// The file was truncated, and the reply had these attributes. Nodes to which another client has
    /// extended it meanwhile have unknown boot ids.
    fn end_truncation(&self, truncation: &Truncation, attr: &Attr) {
        let layout = self.sessions().layout();
        let width = attr.provisional.map_or(u16::MAX, |provisional| provisional.width);
        let added = layout.first_nodes(truncation.ino, width).skip(usize::from(truncation.width));
        let added: BootIds = added.map(|node| (node, None)).collect();
        if !added.is_empty() {
            self.sessions().truncations.record(truncation.ino, added);
        }
    }
}
