//! Seals on object files: made when nobody has written for a while, broken by whoever opens the
//! object to write, checked when the daemon reads.

use super::checksum_validity::{
    ChecksumValidity, ChecksummedFile, FileState, MAX_CHECKSUMS_BYTES, StoreOutcome,
};
use super::io_throttle::{self, IoThrottle};
use crate::objects::block_checksums::{BlockChecksums, CHECKSUMS_XATTR, ChecksumBuilder};
use forebay_protocol::{Errno as WireErrno, Timestamp};
use rustix::fs::{SeekFrom, XattrFlags, fgetxattr, fremovexattr, fsetxattr, fstat, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// How long an object must have been left alone: longer than the kernel's clock for times of change
/// stands still, so that every later write shows.
const REST: Duration = Duration::from_millis(100);
const READ: usize = 1 << 20;
/// Which signal tells of a lease; the kernel's `uapi/asm-generic/fcntl.h`.
const F_SETSIG: libc::c_int = 10;
/// Which start of the host this is, as the kernel names it. Where it does not, nothing is sealed.
static BOOT: LazyLock<Option<u128>> = LazyLock::new(|| {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
});

/// Which start of the host this is.
pub fn boot_id() -> Option<u128> {
    *BOOT
}

/// Which start of the host this is, in short; 0 if the kernel does not say.
pub fn boot_hash() -> u64 {
    BOOT.map_or(0, |boot| (boot as u64 ^ (boot >> 64) as u64).max(1))
}

/// What sealing an object came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumOutcome {
    /// It has a seal that holds now, or has nothing to seal.
    Stored,
    /// It was written to a moment ago, or meanwhile.
    RecentlyWritten,
    /// Someone may write to it.
    HasWriters,
    /// Others use the device, and nobody waits for the seal.
    DeviceBusy,
    /// The file system keeps no attributes, or the kernel does not tell its starts apart.
    Unsupported,
}

/// What checking an object came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubVerdict {
    /// It is what was sealed.
    Intact,
    /// It has no seal that holds: it was written to since, or is being written to.
    NotChecksummed,
    /// The chunk at this offset is not what was sealed.
    Damaged(u64),
}

/// An object's file.
#[derive(Clone, Copy, Debug)]
pub struct ObjectFile<'a>(BorrowedFd<'a>);

impl<'a> ObjectFile<'a> {
    /// Open for reading, if it is to be asked who else has it open.
    pub fn new(file: &'a impl AsFd) -> ObjectFile<'a> {
        ObjectFile(file.as_fd())
    }
}

impl ChecksummedFile for ObjectFile<'_> {
    fn read_attribute(
        &self,
        into: &mut [u8; MAX_CHECKSUMS_BYTES],
    ) -> Result<Option<usize>, WireErrno> {
        match fgetxattr(self.0, CHECKSUMS_XATTR, into) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn set_attribute(&self, bytes: &[u8]) -> Result<(), WireErrno> {
        Ok(fsetxattr(
            self.0,
            CHECKSUMS_XATTR,
            bytes,
            XattrFlags::empty(),
        )?)
    }

    fn remove_attribute(&self) -> Result<(), WireErrno> {
        match fremovexattr(self.0, CHECKSUMS_XATTR) {
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            other => Ok(other?),
        }
    }

    fn sync_file(&self) -> Result<(), WireErrno> {
        Ok(rustix::fs::fsync(self.0)?)
    }

    fn file_state(&self) -> Result<FileState, WireErrno> {
        let stat = fstat(self.0)?;
        let time = |secs, nanos| Timestamp {
            secs,
            nanos: nanos as u32,
        };
        Ok(FileState {
            size: stat.st_size as u64,
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        })
    }

    /// The kernel grants a lease for reading only on a file that nobody has open to write to
    /// (`fcntl(2)`, `F_SETLEASE`). It is given back at once; who opens the file to write meanwhile
    /// waits that long.
    fn has_writers(&self) -> Result<Option<bool>, WireErrno> {
        let file = self.0.as_raw_fd();
        let set = |command, value: libc::c_int| {
            // SAFETY: these commands take a number, and the descriptor is open.
            match unsafe { libc::fcntl(file, command, value) } {
                -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
                _ => Ok(()),
            }
        };
        // Who opens it to write has this process sent a signal: one that does nothing.
        if set(F_SETSIG, libc::SIGURG).is_err() {
            return Ok(None);
        }
        match set(libc::F_SETLEASE, libc::F_RDLCK) {
            Ok(()) => {
                set(libc::F_SETLEASE, libc::F_UNLCK).map_err(WireErrno)?;
                Ok(Some(false))
            }
            Err(libc::EAGAIN) => Ok(Some(true)),
            // Not the owner, or a file system without leases.
            Err(_) => Ok(None),
        }
    }
}

/// Looks at an object that is to be sealed; `Err` if it is not to be, or not yet.
fn look(
    file: &File,
    lasting: &ChecksumValidity,
) -> Result<Result<FileState, ChecksumOutcome>, WireErrno> {
    if !lasting.can_store() {
        return Ok(Err(ChecksumOutcome::Unsupported));
    }
    let object = ObjectFile::new(file);
    let before = object.file_state()?;
    if before.size == 0 {
        return Ok(Err(ChecksumOutcome::Stored));
    }
    if let Some(seal) = lasting.valid_checksums(&object)? {
        // One that was put when nobody could tell who might write, or by an older daemon, can be
        // put again so that it lasts: it holds now.
        if seal.epoch().generation > 0 || object.has_writers()? != Some(false) {
            return Ok(Err(ChecksumOutcome::Stored));
        }
        return Ok(Err(sealed(lasting.store_checksums(&object, seal, before)?)));
    }
    // One that is not believed must not come back after a power cut.
    lasting.invalidate(&object)?;
    if object.has_writers()? == Some(true) {
        return Ok(Err(ChecksumOutcome::HasWriters));
    }
    let state = object.file_state()?;
    let mtime = state.mtime;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let written = Duration::new(u64::try_from(mtime.secs).unwrap_or(0), mtime.nanos);
    // A time of change that lies ahead was set by someone, and tells nothing.
    if now.is_ok_and(|now| now.saturating_sub(written) < REST) {
        return Ok(Err(ChecksumOutcome::RecentlyWritten));
    }
    Ok(Ok(state))
}

fn sealed(put: StoreOutcome) -> ChecksumOutcome {
    match put {
        StoreOutcome::Stored => ChecksumOutcome::Stored,
        StoreOutcome::FileChanged => ChecksumOutcome::RecentlyWritten,
        StoreOutcome::HasWriters => ChecksumOutcome::HasWriters,
    }
}

/// Seal an object that nobody writes to any more. Its data need not be durable: a seal that is not
/// recorded to last ends with the start of the host. A large object is sealed at a moderate pace
/// while others use the device, or not at all if `yields`.
pub fn store_checksums(
    file: &File,
    lasting: &ChecksumValidity,
    yields: bool,
    stop: &AtomicBool,
) -> io::Result<ChecksumOutcome> {
    let state = match look(file, lasting)? {
        Ok(state) => state,
        Err(sealed) => return Ok(sealed),
    };
    // Looking who else uses the device pays for a large object alone.
    let mut pace = match state.size >= io_throttle::MIN_THROTTLED_BYTES {
        true => IoThrottle::for_file(file),
        false => IoThrottle::default(),
    };
    if yields && pace.is_device_busy() {
        return Ok(ChecksumOutcome::DeviceBusy);
    }
    let maker = ChecksumBuilder::new(state.size, state.mtime);
    let Some(seal) = sums(file, maker, state.size, &mut pace, stop)? else {
        return Ok(ChecksumOutcome::RecentlyWritten);
    };
    match lasting.store_checksums(&ObjectFile::new(file), seal, state) {
        Ok(put) => Ok(sealed(put)),
        Err(WireErrno::EOPNOTSUPP) => Ok(ChecksumOutcome::Unsupported),
        Err(error) => Err(error.into()),
    }
}

/// Seal an object that was just made of `data`, and that nobody else has opened.
pub fn store_checksums_of_new_object(
    file: &File,
    lasting: &ChecksumValidity,
    data: &[u8],
    mtime: Timestamp,
) -> Result<(), WireErrno> {
    if !lasting.can_store() {
        return Ok(());
    }
    let mut maker = ChecksumBuilder::new(data.len() as u64, mtime);
    maker.add_bytes(data);
    let seal = maker.finish();
    seal.map_or(Ok(()), |seal| {
        lasting.store_checksums_of_new_object(&ObjectFile::new(file), seal)
    })
}

/// Read all of an object and compare it with its seal.
pub fn scrub_file(
    file: &File,
    lasting: &ChecksumValidity,
    stop: &AtomicBool,
) -> io::Result<ScrubVerdict> {
    let object = ObjectFile::new(file);
    let Some(seal) = lasting.valid_checksums(&object)? else {
        return Ok(ScrubVerdict::NotChecksummed);
    };
    let state = object.file_state()?;
    let maker = ChecksumBuilder::new(state.size, state.mtime);
    let found = sums(file, maker, state.size, &mut IoThrottle::default(), stop)?;
    // Whoever writes meanwhile breaks the seal before the first byte.
    if lasting.valid_checksums(&object)?.is_none() {
        return Ok(ScrubVerdict::NotChecksummed);
    }
    Ok(match found {
        None => ScrubVerdict::NotChecksummed,
        Some(found) => match seal.first_difference(&found) {
            None => ScrubVerdict::Intact,
            Some(offset) => ScrubVerdict::Damaged(offset),
        },
    })
}

/// The sums of `size` bytes; holes are not read. `None` if the object got shorter meanwhile.
fn sums(
    file: &File,
    mut maker: ChecksumBuilder,
    size: u64,
    pace: &mut IoThrottle,
    stop: &AtomicBool,
) -> io::Result<Option<BlockChecksums>> {
    let mut buffer = vec![0; READ.min(size as usize)];
    let mut at = 0;
    while at < size {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(size),
            Err(Errno::NXIO) => size,
            Err(error) => return Err(error.into()),
        };
        maker.add_zeros(data - at);
        at = data;
        if at == size {
            break;
        }
        let end = seek(file, SeekFrom::Hole(at))?.min(size);
        while at < end {
            if stop.load(Ordering::Acquire) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let length = buffer.len().min((end - at) as usize);
            match file.read_at(&mut buffer[..length], at) {
                Ok(0) => return Ok(None),
                Ok(count) => {
                    maker.add_bytes(&buffer[..count]);
                    at += count as u64;
                    pace.account_bytes(count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(maker.finish())
}
