//! On whose behalf requests are made.
//!
//! Which groups a process is in only the kernel knows, and finding out costs as much as a request.
//! So a mount does not tell: a daemon whose decision depends on it says so, and is told then, while
//! the process still waits for its answer.

use super::Fs;
use crate::session::{SessionReply, lock};
use forebay_protocol::{Credentials, Errno, NodeIndex, Reply, Request};
use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long after its groups mattered a user's groups are told without being asked for.
const EAGER: Duration = Duration::from_secs(10);
/// Users that are remembered.
const USERS: usize = 1024;

/// Users whose groups have mattered.
#[derive(Debug, Default)]
pub struct GroupHints(Mutex<HashMap<u32, Instant>>);

impl GroupHints {
    fn note(&self, uid: u32) {
        let mut users = lock(&self.0);
        if users.len() >= USERS {
            users.clear();
        }
        users.insert(uid, Instant::now());
    }

    fn lately(&self, uid: u32) -> bool {
        let users = lock(&self.0);
        users.get(&uid).is_some_and(|then| then.elapsed() < EAGER)
    }
}

/// A process that waits for the answer.
#[derive(Clone, Debug)]
pub struct CallerProcess {
    /// Its number, or that of the thread.
    pub pid: u32,
    /// What is known from before.
    pub group_hints: Arc<GroupHints>,
}

impl CallerProcess {
    /// Whose requests the process makes.
    pub fn caller(&self, uid: u32, gid: u32) -> Credentials {
        let told = uid != 0 && self.group_hints.lately(uid);
        Credentials {
            uid,
            gid,
            groups: told.then(|| groups_of(self.pid)),
            checked: false,
        }
    }
}

/// Groups of a process besides its first. None of one that cannot be seen from here.
fn groups_of(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let numbers = line.unwrap_or_default().split_ascii_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

impl Fs {
    /// Make a request of `node`; its refusal is an answer, too.
    pub(crate) fn exchange(
        &self,
        node: NodeIndex,
        request: Request,
    ) -> Result<SessionReply, Errno> {
        let (caller, process) = match (&self.caller, &self.process) {
            (Some(caller), Some(process)) if caller.groups.is_none() => (caller, process),
            (caller, _) => return self.sessions.exchange(node, caller.as_ref(), request),
        };
        let said = self
            .sessions
            .exchange(node, Some(caller), request.clone())?;
        if said.reply != Reply::Failed(Errno::EGROUPS) {
            return Ok(said);
        }
        process.group_hints.note(caller.uid);
        let caller = Credentials {
            groups: Some(groups_of(process.pid)),
            ..caller.clone()
        };
        self.sessions.exchange(node, Some(&caller), request)
    }

    /// Make a request of `node`.
    pub(crate) fn request(&self, node: NodeIndex, request: Request) -> Result<SessionReply, Errno> {
        let said = self.exchange(node, request)?;
        match said.reply {
            Reply::Failed(errno) => Err(errno),
            _ => Ok(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_groups_are_those_that_the_kernel_says() {
        let mut own: Vec<u32> = rustix::process::getgroups()
            .unwrap()
            .into_iter()
            .map(|gid| gid.as_raw())
            .collect();
        let mut found = groups_of(std::process::id());
        own.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, own);
        assert!(groups_of(0).is_empty());
    }
}
