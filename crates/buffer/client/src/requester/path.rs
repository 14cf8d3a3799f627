//! Operations on paths, which storage nodes resolve.

use super::Requester;
use crate::session::SessionReply;
use forebay_protocol::message::{
    MAX_PATH_LINKS, NameRequest, PathOperation, PathRequest, PathRest,
};
use forebay_protocol::{Errno, Ino, NodeIndex, Reply};

/// Maximum number of resolutions of a path that other clients keep changing.
const MAX_RESOLUTIONS: u32 = 100;
/// Maximum number of requests of a resolution: a path cannot change nodes more often.
pub(super) const MAX_HOPS: u32 = 1 << 16;

impl Requester {
    /// Sends the operation on the inode to which a path leads from the directory `from`, with the last request
    /// of the resolution. `follow`: a symbolic link at the end is followed. `operation` makes the operation
    /// for a node. Returns the node and its reply, of which a refusal is one.
    pub fn exchange_at(
        &self,
        (from, path): (Ino, &[u8]),
        follow: bool,
        operation: impl Fn(NodeIndex) -> Result<PathOperation, Errno>,
    ) -> Result<(NodeIndex, SessionReply), Errno> {
        let mut resolutions = 1;
        loop {
            if let Some(replied) = self.resolve_once((from, path), follow, &operation)? {
                return Ok(replied);
            }
            if resolutions == MAX_RESOLUTIONS {
                return Err(Errno::ESTALE);
            }
            resolutions += 1;
        }
    }

    /// `None` if a directory or link on the way was removed between two requests: the path may lead
    /// elsewhere by now.
    fn resolve_once(
        &self,
        (from, path): (Ino, &[u8]),
        follow: bool,
        operation: impl Fn(NodeIndex) -> Result<PathOperation, Errno>,
    ) -> Result<Option<(NodeIndex, SessionReply)>, Errno> {
        let mut path = PathRest { from, names: path.to_vec(), links: 0 };
        for hop in 0..MAX_HOPS {
            let node = path.from.metadata_node();
            let request = PathRequest { path, follow, operation: operation(node)? };
            let reply = self.exchange(node, forebay_protocol::Request::Path(Box::new(request)))?;
            let Reply::PathContinues { path: rest, link } = reply.reply else {
                let is_stale = hop > 0 && reply.reply == Reply::Failed(Errno::ESTALE);
                return Ok((!is_stale).then_some((node, reply)));
            };
            path = match link.map(|link| self.with_link(&rest, link)) {
                Some(Err(Errno::ESTALE)) => return Ok(None),
                Some(path) => path?,
                None => rest,
            };
            if path.links > MAX_PATH_LINKS {
                return Err(Errno::EPROTO);
            }
        }
        Err(Errno::EPROTO)
    }

    /// The rest of a path that begins with a symbolic link on another node than its name.
    fn with_link(&self, rest: &PathRest, link: Ino) -> Result<PathRest, Errno> {
        let request = NameRequest::ReadLink { ino: link };
        let target: Vec<u8> = self.call(link.metadata_node(), request)?;
        let from = if target.first() == Some(&b'/') { Ino::ROOT } else { rest.from };
        Ok(PathRest { from, names: [&target[..], &rest.names].join(&b'/'), links: rest.links })
    }
}
