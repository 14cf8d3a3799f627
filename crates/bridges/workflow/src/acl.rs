//! Access control lists (POSIX.1e) of persistent data.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use forebay_workflow_script::Principal;
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use rustix::io::Errno;

use crate::directories::Account;

const ACCESS: &str = "system.posix_acl_access";
/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
/// `ACL_UNDEFINED_ID`.
const NO_ID: u32 = u32::MAX;
const READ: u16 = 4;
const EXECUTE: u16 = 1;

/// Tags of entries, from `linux/posix_acl.h`.
mod tag {
    pub const USER_OBJ: u16 = 0x01;
    pub const USER: u16 = 0x02;
    pub const GROUP_OBJ: u16 = 0x04;
    pub const GROUP: u16 = 0x08;
    pub const MASK: u16 = 0x10;
    pub const OTHER: u16 = 0x20;
}

/// An entry: tag, permission bits, user or group.
type Entry = (u16, u16, u32);

fn decode(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (version, entries) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || !entries.len().is_multiple_of(8) {
        return None;
    }
    let entry = |bytes: &[u8]| {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        (half(0), half(2), u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
    };
    Some(entries.chunks_exact(8).map(entry).collect())
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (tag, bits, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// The list of a file that has only permission bits.
fn from_mode(mode: u32) -> Vec<Entry> {
    let bits = |shift: u32| u16::try_from(mode >> shift & 7).unwrap_or(0);
    vec![
        (tag::USER_OBJ, bits(6), NO_ID),
        (tag::GROUP_OBJ, bits(3), NO_ID),
        (tag::OTHER, bits(0), NO_ID),
    ]
}

/// The list in which a user or group has `bits`, or no entry if there are none.
fn with_entry(mut entries: Vec<Entry>, (tag, id): (u16, u32), bits: u16) -> Vec<Entry> {
    entries.retain(|entry| (entry.0, entry.2) != (tag, id) && entry.0 != tag::MASK);
    if bits != 0 {
        entries.push((tag, bits, id));
    }
    let is_named = |entry: &&Entry| matches!(entry.0, tag::USER | tag::GROUP);
    if entries.iter().any(|entry| is_named(&entry)) {
        let in_class = entries.iter().filter(|entry| is_named(entry) || entry.0 == tag::GROUP_OBJ);
        let mask = in_class.fold(0, |mask, entry| mask | entry.1);
        entries.push((tag::MASK, mask, NO_ID));
    }
    entries.sort_by_key(|entry| (entry.0, entry.2));
    entries
}

/// Lets a user or group read a file, or a directory with everything below it, or no longer.
/// Symbolic links are not followed.
///
/// # Errors
/// The file system has no access control lists, or this process may not change them.
pub fn set_reader(path: &Path, entry: (bool, u32), allow: bool) -> Result<(), String> {
    let entry = (if entry.0 { tag::GROUP } else { tag::USER }, entry.1);
    let mut waiting = vec![path.to_owned()];
    while let Some(here) = waiting.pop() {
        let failed = |error: std::io::Error| format!("{}: {error}", here.display());
        let found = fs::symlink_metadata(&here).map_err(failed)?;
        if found.is_symlink() {
            continue;
        }
        if found.is_dir() {
            for below in fs::read_dir(&here).map_err(failed)? {
                waiting.push(below.map_err(failed)?.path());
            }
        }
        let mut bytes = [0; 4096];
        let entries = match lgetxattr(&here, ACCESS, &mut bytes) {
            Ok(length) => decode(bytes.get(..length).unwrap_or_default()),
            Err(Errno::NODATA) => None,
            Err(errno) => return Err(failed(errno.into())),
        };
        let entries = entries.unwrap_or_else(|| from_mode(found.mode()));
        let is_executable = found.is_dir() || found.mode() & 0o100 != 0;
        let bits = if is_executable { READ | EXECUTE } else { READ };
        let list = with_entry(entries, entry, if allow { bits } else { 0 });
        lsetxattr(&here, ACCESS, &encode(&list), XattrFlags::empty())
            .map_err(|errno| failed(errno.into()))?;
    }
    Ok(())
}

/// The number of a user or group, and whether it is a group.
///
/// # Errors
/// It is not known on this node.
pub fn find(principal: &Principal) -> Result<(bool, u32), String> {
    let unknown = || format!("{principal} is not known on this node");
    match principal {
        Principal::User(name) => {
            let user = nix::unistd::User::from_name(name).ok().flatten().ok_or_else(unknown)?;
            Ok((false, user.uid.as_raw()))
        }
        Principal::Group(name) => {
            let group = nix::unistd::Group::from_name(name).ok().flatten().ok_or_else(unknown)?;
            Ok((true, group.gid.as_raw()))
        }
    }
}

/// As [`set_reader`], in a process of the owner: the owner could replace files by links meanwhile.
pub fn set_reader_as(
    owner: &Account,
    path: &Path,
    principal: &Principal,
    allow: bool,
) -> Result<(), String> {
    let (is_group, id) = find(principal)?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .arg("set-reader")
        .arg(path)
        .arg(if is_group { format!("group:{id}") } else { id.to_string() })
        .arg(if allow { OsStr::new("allow") } else { OsStr::new("deny") })
        .uid(owner.uid)
        .gid(owner.gid)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(text.trim().trim_start_matches("error: ").to_owned())
}

/// Whether a file has an entry for a user; for tests.
#[cfg(test)]
fn has_entry(path: &Path, id: u32) -> bool {
    let mut bytes = [0; 4096];
    let length = rustix::fs::getxattr(path, ACCESS, &mut bytes).unwrap_or(0);
    decode(&bytes[..length]).is_some_and(|entries| entries.iter().any(|entry| entry.2 == id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_gets_an_entry_and_the_mask_and_loses_both() {
        let entries = with_entry(from_mode(0o600), (tag::USER, 7), READ);
        let expected: Vec<Entry> = vec![
            (tag::USER_OBJ, 6, NO_ID),
            (tag::USER, 4, 7),
            (tag::GROUP_OBJ, 0, NO_ID),
            (tag::MASK, 4, NO_ID),
            (tag::OTHER, 0, NO_ID),
        ];
        assert_eq!(entries, expected);
        assert_eq!(decode(&encode(&entries)), Some(entries.clone()));
        assert_eq!(with_entry(entries, (tag::USER, 7), 0), from_mode(0o600));
    }

    #[test]
    fn whole_tree_becomes_readable_and_links_are_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let (tree, outside) = (home.path().join("tree"), home.path().join("outside"));
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("file"), "").unwrap();
        fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("link")).unwrap();
        set_reader(&tree, (false, 4321), true).unwrap();
        assert!(has_entry(&tree, 4321) && has_entry(&tree.join("file"), 4321));
        assert!(!has_entry(&outside, 4321));
        set_reader(&tree, (false, 4321), false).unwrap();
        assert!(!has_entry(&tree, 4321) && !has_entry(&tree.join("file"), 4321));
    }
}
