//! Acting on files with the rights of another user.

use std::ffi::CStr;

use rustix::io::Errno;
use rustix::process::{Gid, Uid};

/// A user, the user's group, and the other groups that the user is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    /// What to return to.
    own: (Uid, Gid, Vec<Gid>),
}

impl Identity {
    /// The identity of user `uid` with group `gid` and the groups that the system's databases
    /// name; `None` if this process is that user, or may act for nobody else.
    pub fn for_user(uid: u32, gid: u32) -> Option<Identity> {
        let own = rustix::process::geteuid();
        if !own.is_root() || uid == 0 {
            return None;
        }
        let own = (
            own,
            rustix::process::getegid(),
            rustix::process::getgroups().unwrap_or_default(),
        );
        Some(Identity {
            uid: Uid::from_raw(uid),
            gid: Gid::from_raw(gid),
            groups: groups_of(uid, gid),
            own,
        })
    }

    /// From now on this thread reaches files with this identity, until the guard is dropped.
    pub(super) fn enter(&self) -> Result<Entered<'_>, Errno> {
        rustix::thread::set_thread_groups(&self.groups)?;
        let entered = Entered(self);
        set(self.uid, self.gid)?;
        Ok(entered)
    }
}

/// Takes the thread's own identity up again when dropped.
pub(super) struct Entered<'a>(&'a Identity);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let (uid, gid, groups) = &self.0.own;
        // Root may always become itself again; otherwise the thread keeps lesser rights.
        let _ = set(*uid, *gid);
        let _ = rustix::thread::set_thread_groups(groups);
    }
}

/// Sets the user and group by which this thread's access to files is judged.
fn set(uid: Uid, gid: Gid) -> Result<(), Errno> {
    // SAFETY: these calls take numbers and touch no memory; they concern this thread alone.
    let (now_uid, now_gid) = unsafe {
        libc::setfsgid(gid.as_raw());
        libc::setfsuid(uid.as_raw());
        // They report no failure; an impossible number changes nothing and tells what holds.
        (libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX))
    };
    if (now_uid, now_gid) == (uid.as_raw() as i32, gid.as_raw() as i32) {
        Ok(())
    } else {
        Err(Errno::PERM)
    }
}

/// The groups of a user, `gid` among them.
fn groups_of(uid: u32, gid: u32) -> Vec<Gid> {
    let alone = vec![Gid::from_raw(gid)];
    let mut text = vec![0; 16 << 10];
    // SAFETY: all zeros are a valid `passwd`: null pointers and numbers.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the pointers are to memory of the lengths given, which outlives the use of `entry`.
    let failed =
        unsafe { libc::getpwuid_r(uid, &mut entry, text.as_mut_ptr(), text.len(), &mut found) };
    if failed != 0 || found.is_null() {
        return alone;
    }
    // SAFETY: the call succeeded, so the name is a C string within `text`.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    let mut groups = vec![0; 256];
    loop {
        let mut count = groups.len() as i32;
        // SAFETY: `groups` has room for `count` numbers; the name is a C string.
        let outcome =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if outcome >= 0 {
            groups.truncate(count);
            return groups.into_iter().map(Gid::from_raw).collect();
        }
        // The system has at most 65,536 groups for a process.
        if count <= groups.len() || count > 65_536 {
            return alone;
        }
        groups.resize(count, 0);
    }
}
