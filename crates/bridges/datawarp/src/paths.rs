//! Path arguments of C programs.

use std::ffi::{CStr, OsStr, c_char};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forebay_protocol::staging::{PathKind, PathPair};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::errno;

/// Maximum number of paths in a list.
const MAX_LIST: usize = 1 << 20;

/// A C string; a null pointer is `INVAL`, an empty string `NOENT`.
///
/// # Safety
/// `text` is null or a C string that is not changed while the path is in use.
pub(crate) unsafe fn given<'a>(text: *const c_char) -> Result<&'a Path, Errno> {
    if text.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: it is not null, and the caller guarantees the rest.
    let text = unsafe { CStr::from_ptr(text) };
    match text.to_bytes() {
        [] => Err(Errno::NOENT),
        bytes => Ok(Path::new(OsStr::from_bytes(bytes))),
    }
}

/// An array of C strings that ends with a null pointer.
///
/// # Safety
/// `list` is null or such an array; it and its strings are not changed while they are in use.
pub(crate) unsafe fn given_list<'a>(list: *const *const c_char) -> Result<Vec<&'a Path>, Errno> {
    if list.is_null() {
        return Err(Errno::INVAL);
    }
    let mut paths = Vec::new();
    loop {
        // SAFETY: no null pointer was found before, so the array has this element.
        let text = unsafe { *list.add(paths.len()) };
        if text.is_null() {
            return if paths.is_empty() { Err(Errno::INVAL) } else { Ok(paths) };
        }
        if paths.len() == MAX_LIST {
            return Err(Errno::TOOBIG);
        }
        // SAFETY: it is a C string of the array that the caller guarantees.
        paths.push(unsafe { given(text) }?);
    }
}

/// The absolute path, without symbolic links except in the last component, which need not exist.
fn resolve_parent(path: &Path) -> Result<PathBuf, Errno> {
    let Some(name) = path.file_name() else {
        return fs::canonicalize(path).map_err(|e| errno(&e));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = fs::canonicalize(parent).map_err(|e| errno(&e))?;
    if parent.is_dir() { Ok(parent.join(name)) } else { Err(Errno::NOTDIR) }
}

/// The absolute path without symbolic links; it must exist.
fn resolve(path: &Path) -> Result<PathBuf, Errno> {
    fs::canonicalize(path).map_err(|e| errno(&e))
}

fn text(path: PathBuf) -> Result<String, Errno> {
    path.into_os_string().into_string().map_err(|_| Errno::ILSEQ)
}

/// A path in an instance; it must exist.
pub(crate) fn instance_path(kind: PathKind, path: &Path) -> Result<String, Errno> {
    let found = resolve(path)?;
    match (kind, found.is_dir()) {
        (PathKind::File, true) => Err(Errno::ISDIR),
        (PathKind::Directory, false) => Err(Errno::NOTDIR),
        (PathKind::File, false) | (PathKind::Directory, true) => text(found),
    }
}

/// The path of a stage in an instance; it need not exist before it is staged in.
pub(crate) fn stage_path(kind: PathKind, path: &Path) -> Result<String, Errno> {
    match instance_path(kind, path) {
        Err(Errno::NOENT) => text(resolve_parent(path)?),
        outcome => outcome,
    }
}

/// Checks that the path exists with that kind, and that the caller may read it.
fn check_readable(kind: PathKind, path: &Path) -> Result<(), Errno> {
    let state = fs::metadata(path).map_err(|e| errno(&e))?;
    let wanted = match kind {
        PathKind::File if state.is_dir() => return Err(Errno::ISDIR),
        PathKind::File if !state.is_file() => return Err(Errno::INVAL),
        PathKind::File => Access::READ_OK,
        PathKind::Directory if !state.is_dir() => return Err(Errno::NOTDIR),
        PathKind::Directory => Access::READ_OK | Access::EXEC_OK,
    };
    accessat(CWD, path, wanted, AtFlags::EACCESS)
}

/// Checks that the caller may create the path, or write into the existing directory.
fn check_writable(kind: PathKind, path: &Path) -> Result<(), Errno> {
    let is_dir = fs::metadata(path).ok().map(|state| state.is_dir());
    let directory = match (kind, is_dir) {
        (PathKind::Directory, Some(true)) => path,
        (PathKind::Directory, Some(false)) => return Err(Errno::NOTDIR),
        (PathKind::File, Some(true)) => return Err(Errno::ISDIR),
        (PathKind::File, Some(false)) | (PathKind::File | PathKind::Directory, None) => {
            path.parent().unwrap_or(Path::new("/"))
        }
    };
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, directory, wanted, AtFlags::EACCESS)
}

/// The paths of a stage in.
pub(crate) fn pair_in(kind: PathKind, inside: &Path, pfs: &Path) -> Result<PathPair, Errno> {
    let (pfs, inside) = (resolve(pfs)?, resolve_parent(inside)?);
    check_readable(kind, &pfs)?;
    check_writable(kind, &inside)?;
    Ok(PathPair { instance: text(inside)?, pfs: text(pfs)? })
}

/// The paths of a stage out.
pub(crate) fn pair_out(kind: PathKind, inside: &Path, pfs: &Path) -> Result<PathPair, Errno> {
    let (inside, pfs) = (resolve(inside)?, resolve_parent(pfs)?);
    check_readable(kind, &inside)?;
    check_writable(kind, &pfs)?;
    Ok(PathPair { instance: text(inside)?, pfs: text(pfs)? })
}
