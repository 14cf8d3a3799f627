//! Inode numbers of clients that are not trusted. A number alone is no permission, or everything
//! below a directory that a user may not search could be opened by guessing: such a client presents
//! a tag with it, which it got when it reached the inode by names.

use super::Node;
use crate::driver::{ConnId, Effect};
use crate::objects::Objects;
use forebay_protocol::message::InodeRequest;
use forebay_protocol::{Call, Errno, Ino, InodeTag, InstanceId, Reply, Request};

/// The tags of one user in one instance.
struct Tags<'a> {
    key: &'a [u8; 32],
    instance: InstanceId,
    uid: u32,
}

impl Tags<'_> {
    fn tag(&self, ino: Ino) -> InodeTag {
        InodeTag::new(self.key, self.instance, self.uid, ino)
    }

    /// Whether the client may use an inode with the tag that it presents.
    fn permit(&self, ino: Ino, presented: Option<&InodeTag>) -> bool {
        ino == Ino::ROOT || presented == Some(&self.tag(ino))
    }
}

impl<O: Objects + Clone> Node<O> {
    /// Set the secret of the tags of instances on this node alone. It must be the same after a
    /// restart, or clients that are not trusted have to look up all names again.
    pub fn set_tag_key(&mut self, key: [u8; 32]) {
        self.tag_key = key;
    }

    /// The tags of a connection's user; `None` if the peer is trusted, or has no instance.
    fn tags(&self, conn: ConnId) -> Option<Tags<'_>> {
        let connection = self.connections.get(conn).ok()?;
        if connection.peer.trusted {
            return None;
        }
        let (session, _) = connection.session?;
        let instance = self.context.sessions.get(session).ok()?.state.instance?;
        let placement = &self.volume(instance)?.spec.placement;
        // An inode that one node refers to is used on another.
        let key = if placement.is_distributed() { &placement.secret } else { &self.tag_key };
        Some(Tags { key, instance, uid: connection.peer.uid })
    }

    /// `ESTALE` if a client that is not trusted uses an inode number without its tag. Such numbers are
    /// removed from a request for the attributes of a listing.
    pub(super) fn check_inodes(&self, conn: ConnId, call: &mut Call) -> Result<(), Errno> {
        let Some(tags) = self.tags(conn) else {
            return Ok(());
        };
        if let Request::Inode(InodeRequest::GetAttrs { inos }) = &mut call.request {
            let mut presented = call.tags.iter();
            inos.retain(|ino| tags.permit(*ino, presented.next()));
            call.tags = inos.iter().map(|ino| tags.tag(*ino)).collect();
            return Ok(());
        }
        let mut presented = call.tags.iter();
        let all = call.request.inodes().into_iter().all(|ino| tags.permit(ino, presented.next()));
        if all { Ok(()) } else { Err(Errno::ESTALE) }
    }

    /// Add tags to the replies of this step.
    pub(super) fn tag_replies(&mut self) {
        let mut effects = std::mem::take(&mut self.context.effects);
        for effect in &mut effects {
            match effect {
                Effect::Reply { conn, reply, .. } => self.tag_reply(*conn, reply),
                Effect::FetchObject { conn, attr, tag, .. } => {
                    *tag = self.tags(*conn).map(|tags| tags.tag(attr.ino));
                }
                _ => {}
            }
        }
        self.context.effects = effects;
    }

    fn tag_reply(&self, conn: ConnId, reply: &mut Reply) {
        let Some(tags) = self.tags(conn) else {
            return;
        };
        let inos = reply.reached_inodes().into_iter().filter(|ino| *ino != Ino::ROOT);
        let tags = inos.map(|ino| (ino, tags.tag(ino))).collect();
        let plain = std::mem::replace(reply, Reply::Done);
        *reply = plain.with_tags(tags);
    }
}
