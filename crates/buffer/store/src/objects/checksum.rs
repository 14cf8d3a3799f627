//! Checksums of object files: stored when an object has been idle for a while, invalidated when it
//! is opened for writing, verified when the daemon reads or scrubs it.

use super::ChecksumOutcome;
use super::block_checksums::{BlockChecksums, CHECKSUMS_XATTR, ChecksumBuilder};
use super::checksum_validity::{ChecksumValidity, ChecksummedFile, FileState, MAX_CHECKSUMS_BYTES};
use super::io_throttle::{IoThrottle, MIN_THROTTLED_BYTES};
use super::scan::ScanReader;
use forebay_protocol::{Errno as ProtocolErrno, Timestamp};
use rustix::fs::{SeekFrom, XattrFlags, fgetxattr, fremovexattr, fsetxattr, fstat, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// Least time since the last write: longer than the resolution of the kernel's file times, so that
/// every later write changes the modification time.
const MIN_IDLE_TIME: Duration = Duration::from_millis(100);
const READ_BYTES: u64 = 1 << 20;
/// `fcntl` command that selects the signal of a lease break; `uapi/asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;
/// The kernel's boot id. Without it no checksums are stored.
static BOOT_ID: LazyLock<Option<u128>> = LazyLock::new(|| {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
});

/// The boot id of the host; `None` if the kernel has none.
pub fn boot_id() -> Option<u128> {
    *BOOT_ID
}

/// The boot id of the host folded to 64 bits; 0 if the kernel has none.
pub fn boot_hash() -> u64 {
    BOOT_ID.map_or(0, |boot| (boot as u64 ^ (boot >> 64) as u64).max(1))
}

/// Outcome of the verification of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubVerdict {
    /// The data match the checksums.
    Intact,
    /// The object has no valid checksums: it was written, or is being written.
    NotChecksummed,
    /// The block at this offset does not match its checksum.
    Damaged(u64),
}

/// An open object file.
#[derive(Clone, Copy, Debug)]
pub struct ObjectFile<'a>(BorrowedFd<'a>);

impl<'a> ObjectFile<'a> {
    /// [`has_writers`](ChecksummedFile::has_writers) requires a read-only descriptor.
    pub fn new(file: &'a impl AsFd) -> ObjectFile<'a> {
        ObjectFile(file.as_fd())
    }
}

impl ChecksummedFile for ObjectFile<'_> {
    fn read_attribute(
        &self,
        into: &mut [u8; MAX_CHECKSUMS_BYTES],
    ) -> Result<Option<usize>, ProtocolErrno> {
        match fgetxattr(self.0, CHECKSUMS_XATTR, into) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set_attribute(&self, bytes: &[u8]) -> Result<(), ProtocolErrno> {
        let flags = XattrFlags::empty();
        Ok(fsetxattr(self.0, CHECKSUMS_XATTR, bytes, flags)?)
    }

    fn remove_attribute(&self) -> Result<(), ProtocolErrno> {
        match fremovexattr(self.0, CHECKSUMS_XATTR) {
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync_file(&self) -> Result<(), ProtocolErrno> {
        Ok(rustix::fs::fsync(self.0)?)
    }

    fn file_state(&self) -> Result<FileState, ProtocolErrno> {
        let stat = fstat(self.0)?;
        let time = |secs, nanos| Timestamp { secs, nanos: nanos as u32 };
        Ok(FileState {
            size: stat.st_size as u64,
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        })
    }

    /// The kernel grants a read lease only on a file that is not open for writing (`fcntl(2)`,
    /// `F_SETLEASE`). The lease is released at once; an open for writing meanwhile waits that long.
    fn has_writers(&self) -> Result<Option<bool>, ProtocolErrno> {
        let file = self.0.as_raw_fd();
        let control = |command, value: libc::c_int| {
            // SAFETY: these commands take an integer argument, and the descriptor is open.
            match unsafe { libc::fcntl(file, command, value) } {
                -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
                _ => Ok(()),
            }
        };
        // A lease break sends this process a signal; select one that is ignored by default.
        if control(F_SETSIG, libc::SIGURG).is_err() {
            return Ok(None);
        }
        match control(libc::F_SETLEASE, libc::F_RDLCK) {
            Ok(()) => {
                control(libc::F_SETLEASE, libc::F_UNLCK).map_err(ProtocolErrno)?;
                Ok(Some(false))
            }
            Err(libc::EAGAIN) => Ok(Some(true)),
            // Not the owner, or a file system without leases.
            Err(_) => Ok(None),
        }
    }
}

/// State of an object whose checksums can be computed now; otherwise the outcome of the attempt.
fn check_idle(
    file: &File,
    validity: &ChecksumValidity,
) -> Result<Result<FileState, ChecksumOutcome>, ProtocolErrno> {
    if !validity.can_store() {
        return Ok(Err(ChecksumOutcome::Unsupported));
    }
    let object = ObjectFile::new(file);
    let before = object.file_state()?;
    if before.size == 0 {
        return Ok(Err(ChecksumOutcome::Stored));
    }
    if let Some(checksums) = validity.valid_checksums(&object)? {
        // Checksums without a generation end with this boot. They are valid now, so they can be
        // stored again with a generation once the kernel confirms that there are no writers.
        if checksums.epoch().generation > 0 || object.has_writers()? != Some(false) {
            return Ok(Err(ChecksumOutcome::Stored));
        }
        return validity.store_checksums(&object, checksums, before).map(Err);
    }
    // Invalid checksums must not become valid again after a power failure.
    validity.invalidate(&object)?;
    if object.has_writers()? == Some(true) {
        return Ok(Err(ChecksumOutcome::HasWriters));
    }
    let state = object.file_state()?;
    let mtime = state.mtime;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let written = Duration::new(u64::try_from(mtime.secs).unwrap_or(0), mtime.nanos);
    // A modification time in the future was set explicitly and says nothing about writes.
    if now.is_ok_and(|now| now.saturating_sub(written) < MIN_IDLE_TIME) {
        return Ok(Err(ChecksumOutcome::RecentlyWritten));
    }
    Ok(Ok(state))
}

/// Compute and store the checksums of an idle object. Its data need not be durable: checksums whose
/// generation is not recorded end with the boot. Large objects are throttled while others use the
/// device, or skipped if the caller `yields`. Setting `stop` interrupts the computation.
pub fn store_checksums(
    file: &File,
    validity: &ChecksumValidity,
    yields: bool,
    stop: &AtomicBool,
) -> io::Result<ChecksumOutcome> {
    let state = match check_idle(file, validity)? {
        Ok(state) => state,
        Err(outcome) => return Ok(outcome),
    };
    let mut throttle = if state.size >= MIN_THROTTLED_BYTES {
        IoThrottle::for_file(file)
    } else {
        IoThrottle::default()
    };
    if yields && throttle.is_device_busy() {
        return Ok(ChecksumOutcome::DeviceBusy);
    }
    let builder = ChecksumBuilder::new(state.size, state.mtime);
    let reader = ScanReader::new(file, read_bytes(state.size), false);
    let Some(checksums) = compute_checksums(file, reader, builder, &mut throttle, stop)? else {
        return Ok(ChecksumOutcome::RecentlyWritten);
    };
    match validity.store_checksums(&ObjectFile::new(file), checksums, state) {
        Err(ProtocolErrno::EOPNOTSUPP) => Ok(ChecksumOutcome::Unsupported),
        stored => Ok(stored?),
    }
}

/// Store the checksums of an object that was just created from `data` and is not open
/// elsewhere.
pub fn store_checksums_of_new_object(
    file: &File,
    validity: &ChecksumValidity,
    data: &[u8],
    mtime: Timestamp,
) -> Result<(), ProtocolErrno> {
    if !validity.can_store() {
        return Ok(());
    }
    let mut builder = ChecksumBuilder::new(data.len() as u64, mtime);
    builder.add_bytes(data);
    let object = ObjectFile::new(file);
    builder
        .finish()
        .map_or(Ok(()), |checksums| validity.store_checksums_of_new_object(&object, checksums))
}

/// Read an object completely from its device and compare it with its checksums.
pub fn scrub_file(
    file: &File,
    validity: &ChecksumValidity,
    throttle: &mut IoThrottle,
    stop: &AtomicBool,
) -> io::Result<ScrubVerdict> {
    let object = ObjectFile::new(file);
    let Some(checksums) = validity.valid_checksums(&object)? else {
        return Ok(ScrubVerdict::NotChecksummed);
    };
    let state = object.file_state()?;
    let builder = ChecksumBuilder::new(state.size, state.mtime);
    let reader = ScanReader::new(file, read_bytes(state.size), true);
    let computed = compute_checksums(file, reader, builder, throttle, stop)?;
    // A concurrent writer invalidated the checksums before its first byte.
    if validity.valid_checksums(&object)?.is_none() {
        return Ok(ScrubVerdict::NotChecksummed);
    }
    Ok(match computed {
        None => ScrubVerdict::NotChecksummed,
        Some(computed) => match checksums.first_difference(&computed) {
            None => ScrubVerdict::Intact,
            Some(offset) => ScrubVerdict::Damaged(offset),
        },
    })
}

/// Bytes of a read of an object with `size` bytes.
fn read_bytes(size: u64) -> usize {
    const LEAST: u64 = 4096;
    size.clamp(LEAST, READ_BYTES).next_multiple_of(LEAST) as usize
}

/// Compute the checksums of the builder's bytes without reading holes. `None` if the object was
/// truncated meanwhile.
fn compute_checksums(
    file: &File,
    mut reader: ScanReader<'_>,
    mut builder: ChecksumBuilder,
    throttle: &mut IoThrottle,
    stop: &AtomicBool,
) -> io::Result<Option<BlockChecksums>> {
    let size = builder.size();
    let mut at = 0;
    while at < size {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(size),
            Err(Errno::NXIO) => size,
            Err(error) => return Err(error.into()),
        };
        builder.add_zeros(data - at);
        at = data;
        if at == size {
            break;
        }
        let end = seek(file, SeekFrom::Hole(at))?.min(size);
        while at < end {
            if stop.load(Ordering::Acquire) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let portion = reader.read(at, end)?;
            if portion.is_empty() {
                return Ok(None);
            }
            builder.add_bytes(portion);
            at += portion.len() as u64;
            assert!(at <= end);
            throttle.account_bytes(portion.len() as u64);
        }
    }
    let checksums = builder.finish();
    assert!(checksums.is_some(), "data and holes cover all bytes");
    Ok(checksums)
}
