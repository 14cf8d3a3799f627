//! Names: removing, renaming, making directories.

use crate::errno::status;
use crate::next::intercept;
use crate::runtime::{absolute_at, locate};
use crate::{path, table};
use forebay_protocol::message::OnExisting;
use forebay_protocol::{Errno, FileKind, Ino};
use libc::{c_char, c_int, c_uint, mode_t};

const CWD: c_int = libc::AT_FDCWD;

/// Before the name of an open file changes: while it has the old one, it becomes a file of the
/// kernel, so that it can be shared with other processes later.
fn before_change(directory: c_int, path: &[u8]) {
    if table::is_empty() {
        return;
    }
    let Some(changed) = absolute_at(directory, path) else {
        return;
    };
    for (_, file) in table::all() {
        if file.path() == changed || path::below(file.path(), &changed).is_some() {
            // Otherwise it stays this process's own.
            let _ = file.move_to_kernel();
        }
    }
}

fn do_unlink(directory: c_int, path: *const c_char) -> Option<c_int> {
    // SAFETY: the caller's string.
    let path = unsafe { path::bytes(path) }?;
    before_change(directory, path);
    let place = locate(directory, path)?;
    Some(status(place.with_parent(|parent, name| place.fs.unlink(parent, name))?))
}

fn do_rmdir(directory: c_int, path: *const c_char) -> Option<c_int> {
    // SAFETY: the caller's string.
    let place = locate(directory, unsafe { path::bytes(path) }?)?;
    place.attached.directories.clear();
    Some(status(place.with_parent(|parent, name| place.fs.rmdir(parent, name))?))
}

fn do_unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> Option<c_int> {
    match flags {
        0 => do_unlink(directory, path),
        libc::AT_REMOVEDIR => do_rmdir(directory, path),
        _ => None,
    }
}

/// `remove`: the kernel finds out of what kind a directory is.
fn do_remove(path: *const c_char) -> Option<c_int> {
    // SAFETY: the caller's string.
    let bytes = unsafe { path::bytes(path) }?;
    before_change(CWD, bytes);
    let place = locate(CWD, bytes)?;
    let outcome = place.with_parent(|parent, name| {
        if place.fs.lookup(parent, name)?.kind == FileKind::Dir {
            place.attached.directories.clear();
            return place.fs.rmdir(parent, name);
        }
        place.fs.unlink(parent, name)
    })?;
    Some(status(outcome))
}

fn do_mkdir(directory: c_int, path: *const c_char, mode: mode_t) -> Option<c_int> {
    // SAFETY: the caller's string.
    let place = locate(directory, unsafe { path::bytes(path) }?)?;
    let mode = super::open::create_mode(mode);
    let made = place.with_parent(|parent, name| place.fs.mkdir(parent, name, mode).map(drop))?;
    Some(status(made))
}

fn do_rename(
    (from_directory, from): (c_int, *const c_char),
    (to_directory, to): (c_int, *const c_char),
    existing: OnExisting,
) -> Option<c_int> {
    // SAFETY: the caller's strings.
    let (from, to) = unsafe { (path::bytes(from)?, path::bytes(to)?) };
    before_change(from_directory, from);
    before_change(to_directory, to);
    let (from, to) = (locate(from_directory, from)?, locate(to_directory, to)?);
    if !std::ptr::eq(from.attached, to.attached) {
        return Some(status(Err(Errno::EXDEV)));
    }
    // It may be a directory.
    from.attached.directories.clear();
    let outcome = from.with_parent(|parent, name| {
        let renamed = to.with_parent(|to_parent: Ino, to_name| {
            from.fs.rename((parent, name), (to_parent, to_name), existing)
        });
        renamed.unwrap_or(Err(Errno::ELOOP))
    })?;
    from.attached.directories.clear();
    // A directory behind a symbolic link.
    (outcome != Err(Errno::ELOOP)).then(|| status(outcome))
}

fn do_renameat2(
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    flags: c_uint,
) -> Option<c_int> {
    let existing = match flags {
        0 => OnExisting::Replace,
        libc::RENAME_NOREPLACE => OnExisting::Fail,
        libc::RENAME_EXCHANGE => OnExisting::Exchange,
        _ => return None,
    };
    do_rename(from, to, existing)
}

intercept! {
    fn unlink(path: *const c_char) -> c_int = do_unlink(CWD, path);
    fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int =
        do_unlinkat(directory, path, flags);
    fn rmdir(path: *const c_char) -> c_int = do_rmdir(CWD, path);
    fn remove(path: *const c_char) -> c_int = do_remove(path);
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int = do_mkdir(CWD, path, mode);
    fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int =
        do_mkdir(directory, path, mode);
    fn rename(from: *const c_char, to: *const c_char) -> c_int =
        do_rename((CWD, from), (CWD, to), OnExisting::Replace);
    fn renameat(from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char) -> c_int =
        do_rename((from_directory, from), (to_directory, to), OnExisting::Replace);
    fn renameat2(from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint) -> c_int =
        do_renameat2((from_directory, from), (to_directory, to), flags);
}
