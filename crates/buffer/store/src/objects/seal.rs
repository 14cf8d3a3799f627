//! Seals on object files: made when nobody has written for a while, broken by whoever opens the
//! object to write, checked when the daemon reads.

use super::pace::{self, Pace};
use forebay_wire::Timestamp;
use forebay_wire::seal::{Maker, Seal, XATTR};
use rustix::fs::{SeekFrom, XattrFlags, fgetxattr, fremovexattr, fsetxattr, fstat, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// How long an object must have been left alone: longer than the kernel's clock for times of change
/// stands still, so that every later write shows.
const REST: Duration = Duration::from_millis(100);
const READ: usize = 1 << 20;
/// Which start of the host this is, as the kernel names it. Where it does not, nothing is sealed.
static BOOT: LazyLock<Option<u128>> = LazyLock::new(|| {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
});

/// Which start of the host this is, in short; 0 if the kernel does not say.
pub fn boot() -> u64 {
    BOOT.map_or(0, |boot| (boot as u64 ^ (boot >> 64) as u64).max(1))
}

/// What sealing an object came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealed {
    /// It has a seal that holds now, or has nothing to seal.
    Yes,
    /// It was written to a moment ago, or meanwhile.
    TooSoon,
    /// Others use the device, and nobody waits for the seal.
    Busy,
    /// The file system keeps no attributes, or the kernel does not tell its starts apart.
    Cannot,
}

/// What checking an object came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is what was sealed.
    Whole,
    /// It has no seal that holds: it was written to since, or is being written to.
    Unsealed,
    /// The chunk at this offset is not what was sealed.
    Damaged(u64),
}

fn size_and_mtime(file: impl AsFd) -> Result<(u64, Timestamp), Errno> {
    let stat = fstat(file)?;
    let mtime = Timestamp {
        secs: stat.st_mtime,
        nanos: stat.st_mtime_nsec as u32,
    };
    Ok((stat.st_size as u64, mtime))
}

/// The seal of an open object, if it holds.
pub fn seal_of(file: impl AsFd) -> Result<Option<Seal>, Errno> {
    let mut bytes = [0; 4096];
    let length = match fgetxattr(&file, XATTR, &mut bytes) {
        Ok(length) => length,
        Err(Errno::NODATA | Errno::NOTSUP) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(boot) = *BOOT else {
        return Ok(None);
    };
    let seal = Seal::decode(bytes.get(..length).unwrap_or_default());
    let (size, mtime) = size_and_mtime(&file)?;
    Ok(seal.filter(|seal| seal.holds_for(boot, size, mtime)))
}

/// Someone will write to the object.
pub fn break_seal(file: impl AsFd) -> Result<(), Errno> {
    match fremovexattr(file, XATTR) {
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
        other => other,
    }
}

/// Put a seal on an object.
pub fn put(file: impl AsFd, seal: &Seal) -> Result<(), Errno> {
    fsetxattr(file, XATTR, &seal.encode(), XattrFlags::empty())
}

/// An object that is to be sealed if it still is like this when its sums have been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rested {
    boot: u128,
    size: u64,
    mtime: Timestamp,
}

impl Rested {
    /// Whether looking who else uses the device pays for this object alone.
    fn is_large(&self) -> bool {
        self.size >= pace::LARGE
    }
}

/// Looks at an object that is to be sealed; `Err` if it is not to be, or not yet.
fn look(file: &File) -> io::Result<Result<Rested, Sealed>> {
    let Some(boot) = *BOOT else {
        return Ok(Err(Sealed::Cannot));
    };
    let (size, mtime) = size_and_mtime(file)?;
    if size == 0 || seal_of(file)?.is_some() {
        return Ok(Err(Sealed::Yes));
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let written = Duration::new(u64::try_from(mtime.secs).unwrap_or(0), mtime.nanos);
    // A time of change that lies ahead was set by someone, and tells nothing.
    if now.is_ok_and(|now| now.saturating_sub(written) < REST) {
        return Ok(Err(Sealed::TooSoon));
    }
    Ok(Ok(Rested { boot, size, mtime }))
}

/// Seal an object that nobody writes to any more. Its data need not be durable: a power cut that
/// takes them ends the start of the host for which the seal holds. A large object is sealed at a
/// moderate pace while others use the device, or not at all if `yields`.
pub fn seal(file: &File, yields: bool, stop: &AtomicBool) -> io::Result<Sealed> {
    let rested = match look(file)? {
        Ok(rested) => rested,
        Err(sealed) => return Ok(sealed),
    };
    let mut pace = match rested.is_large() {
        true => Pace::of(file),
        false => Pace::default(),
    };
    if yields && pace.others_are_busy() {
        return Ok(Sealed::Busy);
    }
    let Rested { boot, size, mtime } = rested;
    let maker = Maker::new(boot, size, mtime);
    let Some(seal) = sums(file, maker, size, &mut pace, stop)? else {
        return Ok(Sealed::TooSoon);
    };
    if size_and_mtime(file)? != (size, mtime) {
        return Ok(Sealed::TooSoon);
    }
    match put(file, &seal) {
        Ok(()) => Ok(Sealed::Yes),
        Err(Errno::NOTSUP) => Ok(Sealed::Cannot),
        Err(error) => Err(error.into()),
    }
}

/// Seal an object that was just made of `data`, and that nobody else has opened.
pub fn put_on_whole(file: &File, data: &[u8], mtime: Timestamp) -> Result<(), Errno> {
    let Some(boot) = *BOOT else { return Ok(()) };
    let mut maker = Maker::new(boot, data.len() as u64, mtime);
    maker.add(data);
    maker.finish().map_or(Ok(()), |seal| put(file, &seal))
}

/// Read all of an object and compare it with its seal.
pub fn check(file: &File, stop: &AtomicBool) -> io::Result<Verdict> {
    let (Some(boot), Some(seal)) = (*BOOT, seal_of(file)?) else {
        return Ok(Verdict::Unsealed);
    };
    let (size, mtime) = size_and_mtime(file)?;
    let maker = Maker::new(boot, size, mtime);
    let found = sums(file, maker, size, &mut Pace::default(), stop)?;
    // Whoever writes meanwhile breaks the seal before the first byte.
    if seal_of(file)?.is_none() {
        return Ok(Verdict::Unsealed);
    }
    Ok(match found {
        None => Verdict::Unsealed,
        Some(found) => match seal.first_difference(&found) {
            None => Verdict::Whole,
            Some(offset) => Verdict::Damaged(offset),
        },
    })
}

/// The sums of `size` bytes; holes are not read. `None` if the object got shorter meanwhile.
fn sums(
    file: &File,
    mut maker: Maker,
    size: u64,
    pace: &mut Pace,
    stop: &AtomicBool,
) -> io::Result<Option<Seal>> {
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
                    maker.add(&buffer[..count]);
                    at += count as u64;
                    pace.worked(count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(maker.finish())
}
