//! Attributes of inodes, which may lie on several nodes.
//!
//! An inode's metadata node has its attributes, except the length of a file that is open for
//! writing: only its data objects have that.

use super::Requester;
use crate::session::SessionReply;
use forebay_policy::layout::Layout;
use forebay_protocol::message::{InodeRequest, NameResult};
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Attr, Errno, Ino, NodeIndex, Request};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The data objects of a file, by node.
type Objects = Vec<(NodeIndex, Option<ObjectInfo>)>;

/// On instances of at most so many nodes all are asked for their objects of a file: that is faster than
/// asking the metadata node first which may have one.
pub(crate) const MAX_QUERIED_NODES: u16 = 8;

/// The nodes that may have parts of a file, each once: its metadata node, and `width` nodes, the first ones
/// of its rounds.
pub(crate) fn nodes_with_parts(
    layout: Layout,
    ino: Ino,
    width: u16,
) -> impl Iterator<Item = NodeIndex> {
    let own = ino.metadata_node();
    layout.first_nodes(ino, width).filter(move |node| *node != own).chain([own])
}

/// The number of first nodes that may have data objects of a file.
fn width_of(attr: &Attr) -> u16 {
    attr.provisional.map_or(u16::MAX, |provisional| provisional.width)
}

impl Requester {
    /// Sends `node` a request whose reply has attributes. Returns them with their time to live: at
    /// most that of a referral, which may name an entry that only this caller may look up.
    pub fn attr_for(
        &self,
        node: NodeIndex,
        request: impl Into<Request>,
    ) -> Result<(Attr, Duration), Errno> {
        let reply = self.request(node, request)?;
        match reply.reply {
            NameResult::Found(attr) => self.complete_with_ttl(attr, reply.ttl),
            NameResult::Referral(ino) => {
                let received = Instant::now();
                let (attr, ttl) = self.attr_of(ino)?;
                Ok((attr, ttl.min(reply.ttl.saturating_sub(received.elapsed()))))
            }
        }
    }

    /// The attributes of an inode, with their time to live.
    pub fn attr_of(&self, ino: Ino) -> Result<(Attr, Duration), Errno> {
        let reply = self.request(ino.metadata_node(), InodeRequest::GetAttr { ino })?;
        self.complete_with_ttl(reply.reply, reply.ttl)
    }

    /// As [`complete`](Requester::complete), for a reply with this time to live.
    pub fn complete_with_ttl(&self, attr: Attr, ttl: Duration) -> Result<(Attr, Duration), Errno> {
        if attr.provisional.is_none() {
            return Ok((attr, ttl));
        }
        let received = Instant::now();
        let attr = self.complete(attr)?;
        Ok((attr, ttl.saturating_sub(received.elapsed())))
    }

    /// Requests from the data objects what the metadata node does not know.
    pub fn complete(&self, mut attr: Attr) -> Result<Attr, Errno> {
        self.complete_all([&mut attr])?;
        Ok(attr)
    }

    /// As [`complete`](Requester::complete), for many inodes with one request to each node.
    pub fn complete_all<'a>(
        &self,
        attrs: impl IntoIterator<Item = &'a mut Attr>,
    ) -> Result<(), Errno> {
        let provisional = attrs.into_iter().filter(|attr| attr.provisional.is_some());
        let provisional: Vec<&mut Attr> = provisional.collect();
        if provisional.is_empty() {
            return Ok(());
        }
        // A listing can have several names of one file.
        let files: BTreeMap<Ino, u16> =
            provisional.iter().map(|attr| (attr.ino, width_of(attr))).collect();
        let objects = self.stat_objects(&files)?;
        for attr in provisional {
            let own = objects.get(&attr.ino).cloned().unwrap_or_default();
            attr.merge_objects(&self.attachment.sessions.layout(), own);
        }
        Ok(())
    }

    /// The data objects of a file that may be open for writing, by node; `None` where there is none.
    pub fn objects_of(&self, ino: Ino) -> Result<Objects, Errno> {
        let nodes = self.attachment.sessions.layout().nodes();
        let mut width = nodes;
        if nodes > MAX_QUERIED_NODES {
            let attr: Attr =
                self.request(ino.metadata_node(), InodeRequest::GetAttr { ino })?.reply;
            width = width_of(&attr);
        }
        let mut objects = self.stat_objects(&BTreeMap::from([(ino, width)]))?;
        Ok(objects.remove(&ino).unwrap_or_default())
    }

    /// The data object of a file on one node, if there is one.
    pub fn object_on(&self, node: NodeIndex, ino: Ino) -> Result<Option<ObjectInfo>, Errno> {
        let request = InodeRequest::StatObjects { inos: vec![ino] };
        let mut found = Err(Errno::EPROTO);
        self.attachment.sessions.call_nodes(None, [(node, request)], |_, reply| {
            let objects: Result<Vec<Option<ObjectInfo>>, Errno> = reply.map(|reply| reply.reply);
            found = objects.and_then(|objects| objects.first().copied().ok_or(Errno::EPROTO));
        });
        found
    }

    /// The data objects of files on their metadata nodes and on the first nodes of their rounds, as many
    /// as given; one request to each node.
    fn stat_objects(&self, files: &BTreeMap<Ino, u16>) -> Result<BTreeMap<Ino, Objects>, Errno> {
        let sessions = &self.attachment.sessions;
        let layout = sessions.layout();
        let mut by_node: BTreeMap<NodeIndex, Vec<Ino>> = BTreeMap::new();
        for (ino, width) in files {
            for node in nodes_with_parts(layout, *ino, *width) {
                by_node.entry(node).or_default().push(*ino);
            }
        }
        let requests = by_node
            .iter()
            .map(|(node, inos)| (*node, InodeRequest::StatObjects { inos: inos.clone() }));
        let mut objects: BTreeMap<Ino, Objects> = BTreeMap::new();
        let mut failed = None;
        sessions.call_nodes(None, requests, |node, reply| match reply {
            Ok(SessionReply { reply: all, .. }) => {
                let all: Vec<Option<ObjectInfo>> = all;
                let inos = by_node.get(&node).map_or(&[][..], Vec::as_slice);
                if all.len() != inos.len() {
                    failed = Some(Errno::EPROTO);
                }
                for (ino, object) in inos.iter().zip(all) {
                    objects.entry(*ino).or_default().push((node, object));
                }
            }
            Err(errno) => failed = Some(errno),
        });
        failed.map_or(Ok(objects), Err)
    }
}
