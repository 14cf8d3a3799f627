//! The FUSE device: the kernel's requests, and the replies to them.

use crate::abi::{BackingMap, OutHeader};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, read, writev};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, Updater, ioctl, opcode};
use std::ffi::c_void;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Path of the device.
pub const PATH: &str = "/dev/fuse";
/// Group of the `ioctl` requests, `FUSE_DEV_IOC_MAGIC`.
const IOCTL_GROUP: u8 = 229;
/// The errors that the kernel accepts in a reply: above 0, below `ERESTARTSYS`.
const ERRORS: std::ops::Range<i32> = 1..512;

/// An open device of one connection.
#[derive(Debug)]
pub struct Device(OwnedFd);

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens the device, without a connection.
pub fn open() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(PATH, flags, Mode::empty())?)
}

impl Device {
    /// The device of a connection.
    pub fn new(device: OwnedFd) -> Device {
        Device(device)
    }

    /// Another device of this connection. Requests that one of them has received, and the replies to
    /// them, contend with others less.
    pub fn try_clone(&self) -> io::Result<Device> {
        let new = open()?;
        let mut connected = self.0.as_raw_fd() as u32;
        const CLONE: Opcode = opcode::read::<u32>(IOCTL_GROUP, 0);
        // SAFETY: this request (`FUSE_DEV_IOC_CLONE`) reads the number of a descriptor, a `u32`.
        unsafe { ioctl(&new, Updater::<CLONE, u32>::new(&mut connected))? };
        Ok(Device(new))
    }

    /// Receives a request. `None`: the connection has ended. Returns the number of bytes.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match read(&self.0, &mut *buffer) {
                Ok(count) => return Ok(Some(count)),
                // `NOENT`: the process has been interrupted before the request was received.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends a reply with the data of `parts`, or an error.
    pub fn reply(&self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        match self.send(unique, -reported(error), parts) {
            // The kernel waits for the reply no longer.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => tracing::error!(%errno, error, "the kernel refuses a reply"),
        }
    }

    /// Sends a notification.
    pub fn notify(&self, code: i32, parts: [&[u8]; 2]) -> Result<(), Errno> {
        self.send(0, code, parts)
    }

    fn send(&self, unique: u64, error: i32, parts: [&[u8]; 2]) -> Result<(), Errno> {
        let length = size_of::<OutHeader>() + parts[0].len() + parts[1].len();
        let header = OutHeader { len: length as u32, error, unique };
        let [first, second] = parts;
        let slices = [header.as_bytes(), first, second].map(IoSlice::new);
        loop {
            match writev(&self.0, &slices) {
                Ok(count) => {
                    debug_assert_eq!(count, length, "the kernel takes a message as a whole");
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Registers a file, which the kernel then accesses directly for opens that name it.
    pub fn register(self: &Arc<Device>, file: BorrowedFd<'_>) -> io::Result<BackingId> {
        let map = BackingMap { fd: file.as_raw_fd(), ..BackingMap::default() };
        // SAFETY: the request and its argument belong together, see `Register`.
        let id = unsafe { ioctl(&self.0, Register(map))? };
        Ok(BackingId { device: self.clone(), id })
    }
}

/// The error that the kernel gets for `error`.
pub fn reported(error: i32) -> i32 {
    if error == 0 || ERRORS.contains(&error) { error } else { libc::EIO }
}

/// A file that is registered with the kernel, for as long as this exists and opens use it.
#[derive(Debug)]
pub struct BackingId {
    device: Arc<Device>,
    id: i32,
}

impl BackingId {
    /// The number by which replies name it.
    pub(crate) fn number(&self) -> i32 {
        self.id
    }
}

impl Drop for BackingId {
    fn drop(&mut self) {
        const CLOSE: Opcode = opcode::write::<u32>(IOCTL_GROUP, 2);
        // SAFETY: this request (`FUSE_DEV_IOC_BACKING_CLOSE`) reads a `u32`.
        let closed = unsafe {
            let number = Setter::<CLOSE, u32>::new(self.id as u32);
            ioctl(&self.device.0, number)
        };
        if let Err(errno) = closed {
            // A connection that has ended has no registered files any more.
            tracing::debug!(%errno, "cannot withdraw a file from the kernel");
        }
    }
}

/// The request that registers a file (`FUSE_DEV_IOC_BACKING_OPEN`).
struct Register(BackingMap);

// SAFETY: the request reads a `BackingMap`, and returns a number.
unsafe impl Ioctl for Register {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        opcode::write::<BackingMap>(IOCTL_GROUP, 1)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(id: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(id)
    }
}
