//! Callers, identified by the kernel.

use std::sync::Arc;

use forebay_net::auth;
use forebay_net::stream::Stream;
use forebay_stage::{CannotActForUser, Identity};
use serde::{Deserialize, Serialize};

/// Maximum number of ancestors of a process that are looked at.
const MAX_ANCESTORS: usize = 64;

/// A process, distinguished from later ones with the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub pid: i32,
    /// In clock ticks since the start of the host; `None` if the process is unknown.
    pub started: Option<u64>,
}

impl ProcessId {
    /// The process that has this number now.
    pub fn now(pid: i32) -> ProcessId {
        ProcessId { pid, started: stat_of(pid).map(|(_, started)| started) }
    }

    /// Whether `other` is this process, as far as that is known.
    pub fn is(&self, other: &ProcessId) -> bool {
        self.pid == other.pid && (self.started.is_none() || self.started == other.started)
    }
}

/// The parent and the start time of a process.
fn stat_of(pid: i32) -> Option<(i32, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

/// A process and its ancestors.
fn lineage(pid: i32) -> Vec<ProcessId> {
    let mut found = Vec::new();
    let mut next = pid;
    while let Some((parent, started)) = stat_of(next).filter(|_| found.len() < MAX_ANCESTORS) {
        found.push(ProcessId { pid: next, started: Some(started) });
        next = parent;
    }
    found
}

/// The caller at the other end of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub user: User,
    /// Root, or the service's own user.
    pub trusted: bool,
    /// The process and its ancestors.
    pub lineage: Vec<ProcessId>,
}

/// A user with groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Caller {
    /// The peer of a connection.
    pub fn of(stream: &Stream) -> std::io::Result<Caller> {
        let peer = auth::unix_peer(stream)?;
        let process = rustix::net::sockopt::socket_peercred(stream)?.pid;
        Ok(Caller {
            user: User { uid: peer.uid, gid: peer.gid, groups: peer.groups },
            trusted: peer.trusted,
            lineage: lineage(process.as_raw_nonzero().get()),
        })
    }
}

impl User {
    /// The identity with which files are accessed; `None` for that of the service.
    ///
    /// # Errors
    /// The service is neither root's nor this user's.
    pub fn identity(&self) -> Result<Option<Arc<Identity>>, CannotActForUser> {
        let identity = Identity::with_groups(self.uid, self.gid, &self.groups)?;
        Ok(identity.map(Arc::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lineage_starts_with_the_process_and_contains_its_parent() {
        let own = std::process::id() as i32;
        let parent = std::os::unix::process::parent_id() as i32;
        let found = lineage(own);
        assert_eq!(found.first().map(|process| process.pid), Some(own));
        assert!(found.iter().any(|process| process.pid == parent), "{found:?}");
        assert!(ProcessId::now(own).is(&found[0]));
        let earlier = ProcessId { pid: own, started: Some(1) };
        assert!(!earlier.is(&found[0]), "an earlier process with the same number");
    }
}
