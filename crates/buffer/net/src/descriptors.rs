//! Numbers of descriptors that this library opens within another program.
//!
//! A program expects that `open` returns the lowest free number, and may close or replace any number
//! below that. A library loaded into it therefore keeps its own descriptors out of the way.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// The lowest number; 0: any.
static FLOOR: AtomicI32 = AtomicI32::new(0);

/// From now on connections, and descriptors received over them, get numbers of at least `floor`.
pub fn keep_descriptors_above(floor: RawFd) {
    assert!(floor >= 0, "descriptors are not negative");
    FLOOR.store(floor, Ordering::Relaxed);
}

/// The same open file under a permitted number.
pub(crate) fn relocate(fd: OwnedFd) -> OwnedFd {
    let floor = FLOOR.load(Ordering::Relaxed);
    if floor == 0 {
        return fd;
    }
    // Without a free number the present one has to do.
    rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), floor).unwrap_or(fd)
}
