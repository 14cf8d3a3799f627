//! Sessions: threads that receive the requests of the kernel.

use crate::abi::{MIN_READ_BUFFER, opcode};
use crate::device::Device;
use crate::filesystem::Filesystem;
use crate::incoming::Incoming;
use crate::init::{Negotiated, negotiate};
use crate::notify::Notifier;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use zerocopy::IntoBytes;

/// Space in a buffer besides the data of the largest write, in bytes: headers, and names.
const HEADER_BYTES: usize = 4096;
/// Largest value of an extended attribute, in bytes.
const MAX_XATTR_BYTES: usize = 64 << 10;

/// A session that has begun: the kernel waits for its requests to be received.
pub struct Session<F> {
    device: Arc<Device>,
    fs: Arc<F>,
    negotiated: Negotiated,
}

impl<F> fmt::Debug for Session<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("negotiated", &self.negotiated).finish_non_exhaustive()
    }
}

impl<F: Filesystem> Session<F> {
    /// Begins the session of a mount, of which this is the device.
    pub fn new(fs: Arc<F>, device: OwnedFd) -> io::Result<Session<F>> {
        let device = Arc::new(Device::new(device));
        let negotiated = negotiate(&device, &*fs)?;
        Ok(Session { device, fs, negotiated })
    }

    /// Sends notifications.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.device.clone())
    }

    /// Receives requests by so many threads, until the mount has ended.
    pub fn spawn(self, threads: NonZeroUsize) -> io::Result<Threads> {
        let mut devices = vec![self.device.clone()];
        while devices.len() < threads.get() {
            devices.push(Arc::new(self.device.try_clone()?));
        }
        let max_write = self.negotiated.max_write as usize;
        let buffer_bytes = max_write.max(MAX_XATTR_BYTES).max(MIN_READ_BUFFER) + HEADER_BYTES;
        let start = |(index, device): (usize, Arc<Device>)| {
            let fs = self.fs.clone();
            let thread = std::thread::Builder::new().name(format!("fuse-{index}"));
            thread.spawn(move || receive(&device, &fs, buffer_bytes))
        };
        let started = devices.into_iter().enumerate().map(start);
        Ok(Threads(started.collect::<io::Result<_>>()?))
    }
}

/// The threads of a session.
#[derive(Debug)]
pub struct Threads(Vec<JoinHandle<io::Result<()>>>);

impl Threads {
    /// Whether the session has ended.
    pub fn are_finished(&self) -> bool {
        self.0.iter().all(JoinHandle::is_finished)
    }

    /// Waits until the session has ended. Returns the error that ended it, if there was one.
    pub fn join(self) -> io::Result<()> {
        let panicked = |_| Err(io::Error::other("a thread of the session panicked"));
        let results = self.0.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
        results.fold(Ok(()), io::Result::and)
    }
}

/// Receives requests from one device until the connection ends.
fn receive<F: Filesystem>(
    device: &Arc<Device>,
    fs: &Arc<F>,
    buffer_bytes: usize,
) -> io::Result<()> {
    // Numbers of 8 bytes: then the arguments are aligned. Pages that no request reaches take no memory.
    let mut buffer = vec![0u64; buffer_bytes.div_ceil(size_of::<u64>())];
    let buffer = buffer.as_mut_bytes();
    while let Some(length) = device.receive(buffer)? {
        let Some(incoming) = Incoming::parse(&buffer[..length], device) else {
            let message = format!("{length} bytes from the kernel are no request");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        };
        match incoming.header().opcode {
            // The last request.
            opcode::DESTROY => {
                incoming.reply().ok();
                break;
            }
            _ => fs.receive(incoming),
        }
    }
    Ok(())
}
