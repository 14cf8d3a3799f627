//! Accessing files with the permissions of another user.

use std::cell::Cell;
use std::fmt;

use nix::unistd::User;
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::CapabilitySet;

/// A user with its group and supplementary groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    /// The identity of this process, to return to.
    own: (Uid, Gid, Vec<Gid>),
}

impl Identity {
    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// The identity of user `uid` with group `gid` and the groups of the user database. `None` if it
    /// is that of this process.
    ///
    /// # Errors
    /// This process is neither root's nor that user's.
    pub fn for_user(uid: u32, gid: u32) -> Result<Option<Identity>, CannotActForUser> {
        Identity::new(rustix::process::geteuid(), uid, gid, || groups_of(uid, gid))
    }

    /// As [`for_user`](Identity::for_user), with these supplementary groups.
    ///
    /// # Errors
    /// As for [`for_user`](Identity::for_user).
    pub fn with_groups(
        uid: u32,
        gid: u32,
        groups: &[u32],
    ) -> Result<Option<Identity>, CannotActForUser> {
        let groups = || groups.iter().map(|group| Gid::from_raw(*group)).collect();
        Identity::new(rustix::process::geteuid(), uid, gid, groups)
    }

    fn new(
        own: Uid,
        uid: u32,
        gid: u32,
        groups: impl FnOnce() -> Vec<Gid>,
    ) -> Result<Option<Identity>, CannotActForUser> {
        if own.as_raw() == uid {
            return Ok(None);
        }
        if !own.is_root() {
            return Err(CannotActForUser { own: own.as_raw(), user: uid });
        }
        let own =
            (own, rustix::process::getegid(), rustix::process::getgroups().unwrap_or_default());
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(Some(Identity { uid, gid, groups: groups(), own }))
    }

    /// This thread accesses files with this identity until the guard is dropped. It is bound by
    /// quotas and by blocks that are reserved for root, from now on.
    pub(super) fn enter(&self) -> Result<Entered<'_>, Errno> {
        IS_BOUND_BY_QUOTAS.with(|bound| {
            if !bound.get() {
                bound.set(true);
                return drop_quota_exemption();
            }
            Ok(())
        })?;
        rustix::thread::set_thread_groups(&self.groups)?;
        let entered = Entered(self);
        set_fs_ids(self.uid, self.gid)?;
        Ok(entered)
    }
}

/// A process that is not root's is asked to access files for another user. It would do so with its
/// own permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CannotActForUser {
    own: u32,
    user: u32,
}

impl fmt::Display for CannotActForUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CannotActForUser { own, user } = self;
        write!(
            f,
            "this process runs as user {own} and cannot access files as user {user}: run it as root"
        )
    }
}

impl std::error::Error for CannotActForUser {}

impl From<CannotActForUser> for Errno {
    fn from(_: CannotActForUser) -> Errno {
        Errno::PERM
    }
}

/// Restores the identity of the thread when dropped.
pub(super) struct Entered<'a>(&'a Identity);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let (uid, gid, groups) = &self.0.own;
        // Root may always restore itself. Otherwise the thread keeps the lesser permissions.
        let restored = set_fs_ids(*uid, *gid);
        debug_assert_eq!(restored, Ok(()));
        let _ = rustix::thread::set_thread_groups(groups);
    }
}

thread_local! {
    /// [`drop_quota_exemption`] has been called in this thread.
    static IS_BOUND_BY_QUOTAS: Cell<bool> = const { Cell::new(false) };
}

/// Takes `CAP_SYS_RESOURCE` from this thread, which is not among the capabilities that depend on
/// the user whose permissions apply: a file system ignores quotas for a thread that has it.
fn drop_quota_exemption() -> Result<(), Errno> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    rustix::thread::set_capabilities(None, sets)
}

/// Sets the user and group whose permissions apply to this thread's file accesses.
fn set_fs_ids(uid: Uid, gid: Gid) -> Result<(), Errno> {
    // SAFETY: these calls take numbers, access no memory, and affect this thread only.
    let (now_uid, now_gid) = unsafe {
        libc::setfsgid(gid.as_raw());
        libc::setfsuid(uid.as_raw());
        // They report no errors; with an invalid number they return the current one.
        (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
    };
    if (now_uid, now_gid) == (uid.as_raw() as i32, gid.as_raw() as i32) {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

/// The groups of a user, including `gid`; only `gid` if the user is unknown.
fn groups_of(uid: u32, gid: u32) -> Vec<Gid> {
    let user = User::from_uid(nix::unistd::Uid::from_raw(uid));
    let name = user.ok().flatten().and_then(|user| std::ffi::CString::new(user.name).ok());
    let groups = name
        .and_then(|name| nix::unistd::getgrouplist(&name, nix::unistd::Gid::from_raw(gid)).ok());
    match groups {
        Some(groups) => groups.into_iter().map(|group| Gid::from_raw(group.as_raw())).collect(),
        None => vec![Gid::from_raw(gid)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identity that a process of user `own` gets for `uid`.
    fn for_user(own: u32, uid: u32) -> Result<Option<Identity>, CannotActForUser> {
        Identity::new(Uid::from_raw(own), uid, uid, Vec::new)
    }

    #[test]
    fn only_root_acts_for_other_users() {
        assert_eq!(for_user(1000, 1000), Ok(None));
        assert_eq!(for_user(0, 0), Ok(None));
        assert_eq!(for_user(0, 1000).unwrap().unwrap().uid(), 1000);
        for other in [0, 1001] {
            let refused = for_user(1000, other).unwrap_err();
            let expected = format!("runs as user 1000 and cannot access files as user {other}");
            assert!(refused.to_string().contains(&expected), "{refused}");
        }
    }
}
