//! The bytes in files and directories, and their durability.

use std::ffi::OsString;

use forebay_stage::ItemKind;
use forebay_stage::end::{DirHandle, FileKind};
use rustix::io::Errno;

use crate::place::{Place, is_directory};

/// Maximum depth of a directory tree.
pub(crate) const MAX_DEPTH: usize = 512;

/// The bytes of all files at a place; 0 if there is nothing. `stop` ends the walk.
pub(crate) fn bytes_at(place: &Place, stop: &dyn Fn() -> bool) -> Result<u64, Errno> {
    match place.kind() {
        Ok(ItemKind::File) => place.file_size(),
        Ok(ItemKind::Directory) => bytes_below(&*place.open_dir()?, MAX_DEPTH, stop),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// Makes the files at a place durable where `syncfs` does not: on FUSE, such as the mount of an
/// instance.
pub(crate) fn sync(place: &Place) -> Result<(), Errno> {
    match place.kind()? {
        ItemKind::Directory => sync_below(&*place.open_dir()?, MAX_DEPTH),
        ItemKind::File => match place.parent()? {
            Some((dir, name)) if is_fuse(&*dir)? => dir.open(&name, None)?.fdatasync(),
            Some(_) | None => Ok(()),
        },
    }
}

fn is_fuse(dir: &dyn DirHandle) -> Result<bool, Errno> {
    let Some(descriptor) = dir.descriptor() else { return Ok(false) };
    Ok(rustix::fs::fstatfs(descriptor)?.f_type == libc::FUSE_SUPER_MAGIC)
}

fn sync_below(dir: &dyn DirHandle, depth: usize) -> Result<(), Errno> {
    let depth = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    if !is_fuse(dir)? {
        return Ok(());
    }
    let (mut files, mut directories): (Vec<OsString>, Vec<OsString>) = (Vec::new(), Vec::new());
    dir.read_dir(&mut |name, stat| {
        match stat.map(|stat| stat.kind) {
            Ok(kind) if is_directory(kind) => directories.push(name.to_owned()),
            Ok(FileKind::File) => files.push(name.to_owned()),
            Ok(_) | Err(_) => {}
        }
        true
    })?;
    for name in files {
        dir.open(&name, None)?.fdatasync()?;
    }
    for name in directories {
        sync_below(&*dir.open_dir(&name)?, depth)?;
    }
    rustix::fs::fsync(dir.descriptor().ok_or(Errno::BADF)?)
}

fn bytes_below(dir: &dyn DirHandle, depth: usize, stop: &dyn Fn() -> bool) -> Result<u64, Errno> {
    let depth = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let (mut bytes, mut directories): (u64, Vec<OsString>) = (0, Vec::new());
    dir.read_dir(&mut |name, stat| {
        if let Ok(stat) = stat {
            if is_directory(stat.kind) {
                directories.push(name.to_owned());
            } else if stat.kind == FileKind::File {
                bytes = bytes.saturating_add(stat.size);
            }
        }
        !stop()
    })?;
    if stop() {
        return Err(Errno::CANCELED);
    }
    for name in directories {
        match dir.open_dir(&name) {
            Ok(dir) => bytes = bytes.saturating_add(bytes_below(&*dir, depth, stop)?),
            // Removed meanwhile.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}
