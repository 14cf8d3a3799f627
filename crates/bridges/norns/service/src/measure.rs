//! The bytes in files and directories.

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
