//! The groups of the processes that use a mount.
//!
//! Only the kernel knows the groups of a process, and reading them costs as much as a request. So a
//! mount does not send them at first. A daemon whose decision depends on them refuses with
//! `EGROUPS`; the mount then reads them, while the process still waits for its reply, and repeats
//! the request.

use forebay_protocol::Credentials;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which the groups of a user, once needed, are sent with the first request.
const HINT_LIFETIME: Duration = Duration::from_secs(10);
/// Maximum number of users that are remembered.
const MAX_USERS: usize = 1024;

/// Users whose groups were needed, and when.
#[derive(Debug, Default)]
pub struct GroupHints(Mutex<HashMap<u32, Instant>>);

impl GroupHints {
    fn add(&self, uid: u32) {
        let mut users = self.0.lock();
        if users.len() >= MAX_USERS {
            users.clear();
        }
        users.insert(uid, Instant::now());
        assert!(users.len() <= MAX_USERS);
    }

    fn are_groups_needed(&self, uid: u32) -> bool {
        let users = self.0.lock();
        users.get(&uid).is_some_and(|then| then.elapsed() < HINT_LIFETIME)
    }
}

/// A process that waits for a reply.
#[derive(Clone, Debug)]
pub struct CallerProcess {
    /// Its number, or that of the thread.
    pub pid: u32,
    pub group_hints: Arc<GroupHints>,
}

impl CallerProcess {
    /// The caller of its requests.
    pub fn caller(&self, uid: u32, gid: u32) -> Credentials {
        let send_groups = uid != 0 && self.group_hints.are_groups_needed(uid);
        Credentials {
            uid,
            gid,
            groups: send_groups.then(|| supplementary_groups(self.pid)),
            checked: false,
        }
    }

    /// `caller` with its groups, which were needed.
    pub fn with_groups(&self, caller: &Credentials) -> Credentials {
        self.group_hints.add(caller.uid);
        Credentials { groups: Some(supplementary_groups(self.pid)), ..caller.clone() }
    }
}

/// The supplementary groups of a process; none if it is not visible here.
fn supplementary_groups(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let numbers = line.unwrap_or_default().split_ascii_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supplementary_groups_are_those_of_the_kernel() {
        let mut own: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(|gid| gid.as_raw()).collect();
        let mut found = supplementary_groups(std::process::id());
        own.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, own);
        assert!(supplementary_groups(0).is_empty());
    }
}
