//! Attributes of inodes, which may lie on several nodes.
//!
//! An inode's metadata node has its attributes, except the length of a file that is open for
//! writing: only its data objects have that.

use super::Requester;
use crate::session::SessionReply;
use forebay_protocol::message::{InodeRequest, NameResult};
use forebay_protocol::placement::ObjectInfo;
use forebay_protocol::{Attr, Errno, Ino, NodeIndex, Request};
use std::time::{Duration, Instant};

/// For each node, the data objects of some files, in the order of the files.
type Objects = Vec<(NodeIndex, Vec<Option<ObjectInfo>>)>;

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
        let inos: Vec<Ino> = provisional.iter().map(|attr| attr.ino).collect();
        let objects = self.stat_objects(&inos)?;
        for (index, attr) in provisional.into_iter().enumerate() {
            let own = objects.iter().map(|(node, all)| (*node, all.get(index).copied().flatten()));
            attr.merge_objects(&self.attachment.sessions.layout(), own);
        }
        Ok(())
    }

    /// The data objects of files on all nodes; `None` where there is none.
    pub fn stat_objects(&self, inos: &[Ino]) -> Result<Objects, Errno> {
        let sessions = &self.attachment.sessions;
        let requests =
            sessions.nodes().map(|node| (node, InodeRequest::StatObjects { inos: inos.to_vec() }));
        let mut objects = Vec::with_capacity(usize::from(sessions.layout().nodes()));
        let mut failed = None;
        sessions.call_nodes(None, requests, |node, reply| match reply {
            Ok(SessionReply { reply: all, .. }) if Vec::len(&all) == inos.len() => {
                objects.push((node, all));
            }
            Ok(_) => failed = Some(Errno::EPROTO),
            Err(errno) => failed = Some(errno),
        });
        failed.map_or(Ok(objects), Err)
    }
}
