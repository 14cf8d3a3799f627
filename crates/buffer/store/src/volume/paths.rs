//! Paths, resolved as far as they lead through directories of this node.

use super::Volume;
use crate::namespace::Body;
use crate::objects::Objects;
use forebay_protocol::message::{MAX_PATH_BYTES, MAX_PATH_LINKS, PathRequest, PathRest};
use forebay_protocol::{Credentials, Errno, FileKind, Ino, Reply, Request};

/// Maximum number of names that one request resolves, those of links included: other requests wait
/// meanwhile.
const MAX_NAMES: usize = 4096;

/// The result of resolving a path.
#[derive(Debug)]
pub enum Resolved {
    /// The operation on the inode to which the path leads.
    Target(Request),
    /// The path leads to another node.
    Elsewhere(Reply),
    /// A transaction is changing a name on the way.
    Locked,
}

/// Position in a path.
struct Position {
    at: Ino,
    /// The names that follow.
    rest: Vec<u8>,
    /// Bytes of `rest` that are resolved.
    done: usize,
    links: u8,
}

impl Position {
    /// The next name, if there is one. `.` and `..` are names.
    fn next_name(&mut self) -> Option<std::ops::Range<usize>> {
        let slashes = self.rest[self.done..].iter().take_while(|byte| **byte == b'/').count();
        let start = self.done + slashes;
        let length = self.rest[start..].iter().take_while(|byte| **byte != b'/').count();
        self.done = start + length;
        (length > 0).then_some(start..self.done)
    }

    /// Whether no name follows.
    fn is_at_end(&self) -> bool {
        self.rest[self.done..].iter().all(|byte| *byte == b'/')
    }

    /// Continues with the target of a symbolic link in directory `parent`.
    fn follow(&mut self, parent: Ino, target: &[u8]) -> Result<(), Errno> {
        self.count_link()?;
        self.at = if target.first() == Some(&b'/') { Ino::ROOT } else { parent };
        self.rest = [target, &self.rest[self.done..]].join(&b'/');
        self.done = 0;
        if self.rest.len() > MAX_PATH_BYTES { Err(Errno::ENAMETOOLONG) } else { Ok(()) }
    }

    fn count_link(&mut self) -> Result<(), Errno> {
        self.links = self.links.saturating_add(1);
        if self.links > MAX_PATH_LINKS { Err(Errno::ELOOP) } else { Ok(()) }
    }

    /// The reply that the path continues at `from`.
    fn elsewhere(&self, from: Ino, link: Option<Ino>) -> Resolved {
        let path = PathRest { from, names: self.rest[self.done..].to_vec(), links: self.links };
        Resolved::Elsewhere(Reply::PathContinues { path, link })
    }
}

impl<O: Objects> Volume<O> {
    /// Resolve a path on behalf of `user`, who needs permission to search each directory.
    pub fn resolve_path(
        &self,
        user: &Credentials,
        request: &PathRequest,
    ) -> Result<Resolved, Errno> {
        let PathRest { from, names, links } = &request.path;
        if names.len() > MAX_PATH_BYTES {
            return Err(Errno::ENAMETOOLONG);
        }
        let (rest, links) = (names.clone(), *links);
        let mut position = Position { at: *from, rest, done: 0, links };
        let mut resolved = 0;
        while let Some(range) = position.next_name() {
            resolved += 1;
            if resolved > MAX_NAMES {
                return Err(Errno::ENAMETOOLONG);
            }
            let (parent, name) = (position.at, &position.rest[range]);
            if !self.names().owns(parent) {
                // Only an absolute link, or `..`, leads there.
                position.done -= name.len();
                return Ok(position.elsewhere(parent, None));
            }
            if self.tx_locks.has_name(parent, name) {
                return Ok(Resolved::Locked);
            }
            let ino = self.names().lookup(user, parent, name)?;
            let kind = match self.elsewhere(parent, name, ino) {
                Some(Reply::Referral { kind, .. }) => kind,
                Some(_) | None => self.names().find(ino)?.kind(),
            };
            if kind == FileKind::Symlink && (request.follow || !position.is_at_end()) {
                let Some(inode) = self.names().get(ino) else {
                    position.count_link()?;
                    return Ok(position.elsewhere(parent, Some(ino)));
                };
                let Body::Symlink(target) = &inode.body else { return Err(Errno::EIO) };
                position.follow(parent, target)?;
                continue;
            }
            if kind != FileKind::Dir && !position.is_at_end() {
                return Err(Errno::ENOTDIR);
            }
            position.at = ino;
        }
        if !self.names().owns(position.at) {
            return Ok(position.elsewhere(position.at, None));
        }
        let target = request.operation.clone().at(position.at);
        target.map(Resolved::Target).ok_or(Errno::EINVAL)
    }
}
