//! Opening files.

use crate::errno::set;
use crate::file::OpenFile;
use crate::fork::share_files;
use crate::next::intercept;
use crate::runtime::{Place, locate};
use crate::{path, table};
use forebay_client::Opened;
use forebay_protocol::message::{CreateMode, OpenMode};
use forebay_protocol::{Errno, FileKind, Ino};
use libc::{c_char, c_int, mode_t};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Opens that the kernel carries out.
/// `O_TMPFILE` includes `O_DIRECTORY`.
const KERNEL_FLAGS: c_int = libc::O_PATH | libc::O_TMPFILE | libc::O_ASYNC;

/// Beginnings of the names of descriptors.
const DESCRIPTOR_NAMES: [&[u8]; 3] = [b"/dev/fd/", b"/dev/std", b"/proc/"];

/// A descriptor, or -1 with `errno`. `None`: the kernel opens it.
pub fn open_file(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> Option<c_int> {
    if flags & KERNEL_FLAGS != 0 {
        return None;
    }
    // SAFETY: the caller's string.
    let path = unsafe { path::bytes(path) }?;
    if DESCRIPTOR_NAMES.iter().any(|names| path.starts_with(names)) {
        // Under its name another open file would be made of a descriptor.
        share_files();
        return None;
    }
    let place = locate(directory, path)?;
    match open_place(&place, flags, mode)? {
        Ok(opened) => Some(add_descriptor(place, opened, flags)),
        Err(errno) => {
            set(errno);
            Some(-1)
        }
    }
}

/// Opens the file at a place. `None`: it is for the kernel, which also finds the exact error.
fn open_place(place: &Place, flags: c_int, mode: mode_t) -> Option<Result<Opened, Errno>> {
    let access = flags & libc::O_ACCMODE;
    let open = OpenMode {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        truncate: flags & libc::O_TRUNC != 0,
        descriptor: false,
        ..OpenMode::NONE
    };
    if access == libc::O_ACCMODE || (open.truncate && !open.write) {
        return None;
    }
    let outcome = place.with_parent(|parent, name| {
        if flags & libc::O_CREAT != 0 {
            let mode = create_mode(mode);
            let exclusive = flags & libc::O_EXCL != 0;
            return place.fs.create(parent, name, mode, exclusive, open);
        }
        open_existing(place, parent, name, open)
    })?;
    match outcome {
        Ok(opened) if opened.attr.kind != FileKind::File => None,
        // Symbolic links, directories, devices and pipes; a file that changes just now.
        Err(Errno::ELOOP | Errno::EISDIR | Errno::ENXIO | Errno::EOPNOTSUPP | Errno::ESTALE) => {
            None
        }
        other => Some(other),
    }
}

fn open_existing(place: &Place, parent: Ino, name: &[u8], open: OpenMode) -> Result<Opened, Errno> {
    let attr = place.fs.lookup(parent, name)?;
    match attr.kind {
        FileKind::File => match place.fs.open(attr.ino, open) {
            // It was removed since the lookup.
            Err(Errno::ESTALE) => Err(Errno::ENOENT),
            other => other,
        },
        FileKind::Dir
        | FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice => Err(Errno::EOPNOTSUPP),
    }
}

fn add_descriptor(place: Place, opened: Opened, flags: c_int) -> c_int {
    let Place { attached, fs, absolute, .. } = place;
    let fd = match attached.new_descriptor(flags & libc::O_CLOEXEC != 0) {
        Ok(fd) => fd,
        Err(errno) => {
            set(errno);
            return -1;
        }
    };
    let file = OpenFile::new(opened.file, fs, attached, absolute, flags);
    if !table::insert(fd, Arc::clone(&file)) || crate::runtime::is_own_descriptor(fd) {
        table::remove(fd);
        // SAFETY: closes the number that was just made.
        unsafe { libc::close(fd) };
        set(Errno::EMFILE);
        return -1;
    }
    if fd <= libc::STDERR_FILENO || file.is_inode_moved() {
        // The C library's own functions use these numbers. Otherwise they get EBADF.
        let _ = file.move_to_kernel();
    }
    fd
}

/// The process's mask of permissions, if it is known.
static MASK: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = u32::MAX;

/// The process's mask of permissions.
fn umask_now() -> mode_t {
    let known = MASK.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let mask = line.and_then(|text| mode_t::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022);
    MASK.store(mask, Ordering::Relaxed);
    mask
}

/// The mode of a file or directory that the process creates with these bits.
pub fn create_mode(bits: mode_t) -> CreateMode {
    CreateMode { bits: (bits & 0o7777) as u16, umask: (umask_now() & 0o777) as u16 }
}

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

// In the C library these have a variable number of arguments. The calling conventions of Linux pass
// the third and fourth one in the same registers either way; `mode` is undefined, and not used,
// without `O_CREAT`.
intercept! {
    fn umask(mask: mode_t) -> mode_t = {
        MASK.store(mask & 0o777, Ordering::Relaxed);
        None
    };
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        open_file(libc::AT_FDCWD, path, flags, mode);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        open_file(libc::AT_FDCWD, path, flags, mode);
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        open_file(directory, path, flags, mode);
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        open_file(directory, path, flags, mode);
    fn creat(path: *const c_char, mode: mode_t) -> c_int =
        open_file(libc::AT_FDCWD, path, CREAT, mode);
    fn creat64(path: *const c_char, mode: mode_t) -> c_int =
        open_file(libc::AT_FDCWD, path, CREAT, mode);
    fn __open_2(path: *const c_char, flags: c_int) -> c_int =
        open_file(libc::AT_FDCWD, path, flags, 0);
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int =
        open_file(libc::AT_FDCWD, path, flags, 0);
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int =
        open_file(directory, path, flags, 0);
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int =
        open_file(directory, path, flags, 0);
}
