//! Paths as C programs give them.

use std::ffi::{CStr, OsStr, c_char};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forebay_protocol::staging::{PathKind, PathPair};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::errno;

/// Most paths in a list.
const MAX_LIST: usize = 1 << 20;

/// A C string; a null pointer is `INVAL`, an empty string `NOENT`.
///
/// # Safety
/// `text` is null or a C string that is not changed while the path is in use.
pub(crate) unsafe fn given<'a>(text: *const c_char) -> Result<&'a Path, Errno> {
    if text.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: it is not null, and the caller vouches for the rest.
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
        // SAFETY: no null pointer was met, so the array goes at least so far.
        let text = unsafe { *list.add(paths.len()) };
        if text.is_null() {
            return if paths.is_empty() {
                Err(Errno::INVAL)
            } else {
                Ok(paths)
            };
        }
        if paths.len() == MAX_LIST {
            return Err(Errno::TOOBIG);
        }
        // SAFETY: it is a C string of the array that the caller vouches for.
        paths.push(unsafe { given(text) }?);
    }
}

/// The path without symbolic links above its last component, absolute; what is there need not
/// exist, but the directory must.
fn place(path: &Path) -> Result<PathBuf, Errno> {
    let Some(name) = path.file_name() else {
        return fs::canonicalize(path).map_err(|e| errno(&e));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = fs::canonicalize(parent).map_err(|e| errno(&e))?;
    if parent.is_dir() {
        Ok(parent.join(name))
    } else {
        Err(Errno::NOTDIR)
    }
}

/// The path without any symbolic links, absolute; it must exist.
fn existing(path: &Path) -> Result<PathBuf, Errno> {
    fs::canonicalize(path).map_err(|e| errno(&e))
}

fn text(path: PathBuf) -> Result<String, Errno> {
    path.into_os_string()
        .into_string()
        .map_err(|_| Errno::ILSEQ)
}

/// A path in an instance that a stage is asked about: it must exist.
pub(crate) fn asked(kind: PathKind, path: &Path) -> Result<String, Errno> {
    let found = existing(path)?;
    let is_dir = found.is_dir();
    match kind {
        PathKind::File if is_dir => Err(Errno::ISDIR),
        PathKind::Directory if !is_dir => Err(Errno::NOTDIR),
        _ => text(found),
    }
}

/// A path in an instance whose stage is asked about; one that is staged in may not be there yet.
pub(crate) fn staged(kind: PathKind, path: &Path) -> Result<String, Errno> {
    match asked(kind, path) {
        Err(Errno::NOENT) => text(place(path)?),
        outcome => outcome,
    }
}

/// Whether something of that kind is at a path that its caller may read.
fn readable(kind: PathKind, path: &Path) -> Result<(), Errno> {
    let state = fs::metadata(path).map_err(|e| errno(&e))?;
    match kind {
        PathKind::File if state.is_dir() => return Err(Errno::ISDIR),
        PathKind::File if !state.is_file() => return Err(Errno::INVAL),
        PathKind::Directory if !state.is_dir() => return Err(Errno::NOTDIR),
        _ => {}
    }
    let wanted = match kind {
        PathKind::File => Access::READ_OK,
        PathKind::Directory => Access::READ_OK | Access::EXEC_OK,
    };
    accessat(CWD, path, wanted, AtFlags::EACCESS)
}

/// Whether the caller may make something at a path, or write into the directory that is there.
fn writable(kind: PathKind, path: &Path) -> Result<(), Errno> {
    let state = fs::metadata(path);
    let directory = match (kind, &state) {
        (PathKind::Directory, Ok(state)) if state.is_dir() => path,
        (PathKind::Directory, Ok(_)) => return Err(Errno::NOTDIR),
        (PathKind::File, Ok(state)) if state.is_dir() => return Err(Errno::ISDIR),
        _ => path.parent().unwrap_or(Path::new("/")),
    };
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, directory, wanted, AtFlags::EACCESS)
}

/// The ends of a stage in.
pub(crate) fn pair_in(kind: PathKind, inside: &Path, pfs: &Path) -> Result<PathPair, Errno> {
    let (pfs, inside) = (existing(pfs)?, place(inside)?);
    readable(kind, &pfs)?;
    writable(kind, &inside)?;
    Ok(PathPair {
        instance: text(inside)?,
        pfs: text(pfs)?,
    })
}

/// The ends of a stage out.
pub(crate) fn pair_out(kind: PathKind, inside: &Path, pfs: &Path) -> Result<PathPair, Errno> {
    let (inside, pfs) = (existing(inside)?, place(pfs)?);
    readable(kind, &inside)?;
    writable(kind, &pfs)?;
    Ok(PathPair {
        instance: text(inside)?,
        pfs: text(pfs)?,
    })
}
