//! Reading ahead of sequential reads over the network, under a read lease.
//!
//! After some sequential reads the client asks for a lease on the file, and then reads more than was
//! asked for. What it has read is used as long as the lease is valid that it had when it began to read:
//! no client can have changed the file since. All other reads are requests of their own; they are right
//! at any time, so reading ahead may give up whenever it is inconvenient.

mod memory;
mod same_file;
mod window;

pub use memory::ReadAheadMemory;
pub use same_file::ReadFiles;

use super::File;
use super::pending_read::PendingRead;
use super::transfer;
use crate::attachment::Attachment;
use crate::session::FileLease;
use forebay_protocol::message::READ_LEASE_NS;
use forebay_protocol::{Errno, LeaseId};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use window::{Chunk, Window};

/// Sequential reads after which data are read ahead.
const MIN_SEQUENTIAL: u32 = 2;
/// Longest read that is served from data read ahead, in bytes: larger ones use the network well.
const MAX_READ: usize = 256 << 10;
/// First and largest amount that is read ahead at once, in bytes.
const MIN_WINDOW: usize = 256 << 10;
const MAX_WINDOW: usize = 1 << 20;
/// Reads beyond are not served from data read ahead.
const MAX_OFFSET: u64 = i64::MAX as u64 - 2 * MAX_WINDOW as u64;
/// Windows end at multiples of this, the size of blocks with checksums.
const ALIGNMENT: u64 = 256 << 10;
/// Time without a read after which a file makes room for others: that of a lease, without which its data are
/// useless.
const IDLE_TIME: Duration = Duration::from_nanos(READ_LEASE_NS);
/// Time after a refusal until a lease is requested again, at least; and times the duration of the
/// request, for a node that does not answer.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
const REFUSAL_FACTOR: u32 = 10;
/// Longest wait for a thread that only looks at a window.
const LOOK_TIME: Duration = Duration::from_millis(1);

/// Reading ahead in one open file.
#[derive(Debug)]
pub struct ReadAhead {
    pub lease: Arc<FileLease>,
    window: Mutex<Window>,
    /// The range that the thread which has locked the window is receiving.
    receiving: Mutex<Option<Range<u64>>>,
    /// Other open files of the inode may use the data, and the reverse.
    is_shared: AtomicBool,
}

impl ReadAhead {
    /// Reading ahead with the file's lease. `is_shared`: other open files of the inode may use the data.
    pub fn new(lease: Arc<FileLease>, is_shared: bool) -> ReadAhead {
        ReadAhead {
            lease,
            window: Mutex::new(Window { size: MIN_WINDOW, ..Window::default() }),
            receiving: Mutex::new(None),
            is_shared: AtomicBool::new(is_shared),
        }
    }

    /// Whether it still has a lease.
    fn holds(&self, file: &File, lease: LeaseId) -> bool {
        let now = file.parts.attachment.sessions.system().now();
        self.lease.valid(now).is_some_and(|(held, _)| held == lease)
    }

    /// Other open files do not use the data from now on, nor the reverse.
    pub fn end_sharing(&self) {
        self.is_shared.store(false, Ordering::Relaxed);
    }

    /// The window, unless another thread is receiving data: this one need not wait for it.
    fn lock_window(&self) -> Option<MutexGuard<'_, Window>> {
        let window = self.window.try_lock();
        if window.is_some() || self.receiving.lock().is_some() {
            return window;
        }
        self.window.try_lock_for(LOOK_TIME)
    }

    /// Frees what was read ahead; the file is being closed.
    pub fn end(&self, memory: &ReadAheadMemory) {
        self.free(&mut self.window.lock(), memory);
    }

    /// Discards the data, and gives their memory back.
    fn free(&self, window: &mut Window, memory: &ReadAheadMemory) {
        memory.give_back(self, window.discard(memory));
    }

    /// The window, if it is idle at `now`.
    fn lock_idle(&self, now: Instant) -> Option<MutexGuard<'_, Window>> {
        let window = self.window.try_lock()?;
        window.used_at.is_none_or(|used_at| now - used_at > IDLE_TIME).then_some(window)
    }

    /// Discards the data if the window is idle. Returns the units of memory that are free.
    fn discard_idle(&self, memory: &ReadAheadMemory, now: Instant) -> usize {
        self.lock_idle(now).map_or(0, |mut window| window.discard(memory))
    }

    /// Gives up one of several units of memory. Returns the units that are free.
    fn give_up_one(&self) -> usize {
        let window = self.window.try_lock().filter(|window| window.chunks.len() > 1);
        let Some(mut window) = window else {
            return 0;
        };
        let removed = window.least_used().map(|index| window.chunks.swap_remove(index));
        usize::from(removed.is_some())
    }

    /// Abandons the request for the data behind if the window is idle.
    fn abandon_idle_request(&self, memory: &ReadAheadMemory, now: Instant) {
        if let Some(mut window) = self.lock_idle(now) {
            drop(window.take_pending(memory));
        }
    }

    /// Reads at `offset` from data read ahead, and reads ahead where the file is read sequentially.
    /// `None`: the read has to be requested. An error: that was tried for the timeout of the session.
    pub fn read(
        self: &Arc<Self>,
        file: &File,
        into: &mut [u8],
        offset: u64,
    ) -> Option<Result<usize, Errno>> {
        let mut window = self.lock_window()?;
        let is_sequential = window.note_read(offset, into.len());
        let is_small = !into.is_empty() && into.len() <= MAX_READ && offset < MAX_OFFSET;
        if !is_small {
            return None;
        }
        if !is_sequential && !window.contains(offset) {
            drop(window);
            return self.read_from_others(file, into, offset).map(Ok);
        }
        let memory = &file.parts.attachment.read_ahead_memory;
        let lease = self.lease_for(file, &mut window)?;
        if window.lease != Some(lease) {
            window.clear(memory);
            window.lease = Some(lease);
        }
        let read = self.read_under(file, &mut window, into, offset, is_sequential);
        if let Some(Ok(_)) = read {
            // The time at which the data are those of the file.
            if self.holds(file, lease) {
                window.used_at = Some(file.parts.attachment.sessions.system().now());
                return read;
            }
        }
        window.clear(memory);
        read.filter(Result::is_err)
    }

    fn lease_for(self: &Arc<Self>, file: &File, window: &mut Window) -> Option<LeaseId> {
        let sessions = &file.parts.attachment.sessions;
        if let Some(until) = window.refused_until {
            if sessions.system().now() < until {
                return None;
            }
            window.refused_until = None;
        }
        let memory = &file.parts.attachment.read_ahead_memory;
        let asked_at = sessions.system().now();
        if window.chunks.is_empty() && memory.take(self, true, asked_at) {
            window.chunks.push(Chunk::default());
        }
        let session = sessions.watched_session(file.parts.primary.node).ok();
        let lease = session
            .filter(|_| !window.chunks.is_empty())
            .and_then(|session| session.use_lease(&self.lease));
        if lease.is_none() {
            let now = sessions.system().now();
            self.free(window, memory);
            window.refused_until = Some(now + REFUSAL_TIME.max((now - asked_at) * REFUSAL_FACTOR));
        }
        lease
    }

    /// Copies what has been read ahead, and reads more where that ends. `None`: that failed, or would
    /// not be sequential. An error: the storage node has not replied for the timeout of the session.
    fn read_under(
        self: &Arc<Self>,
        file: &File,
        window: &mut Window,
        into: &mut [u8],
        offset: u64,
        is_sequential: bool,
    ) -> Option<Result<usize, Errno>> {
        let sessions = &file.parts.attachment.sessions;
        let mut done = 0;
        loop {
            let (count, is_complete) = window.copy(&mut into[done..], offset + done as u64);
            done += count;
            if is_complete {
                return Some(Ok(done));
            }
            if !is_sequential {
                return None;
            }
            let at = offset + done as u64;
            let began = sessions.system().now();
            match self.fill(file, window, at, into.len() - done) {
                Ok(Some(file_end)) if file_end <= at => return Some(Ok(done)),
                Ok(_) => {}
                Err(errno) => {
                    let took = sessions.system().now() - began;
                    return (took >= sessions.options().timeout).then_some(Err(errno));
                }
            }
        }
    }

    /// A chunk for new data: an empty one, or a new one if parts of the file are read again, or the one that is
    /// needed least.
    fn take_chunk(self: &Arc<Self>, file: &File, window: &mut Window) -> Chunk {
        let Attachment { read_ahead_memory: memory, sessions, .. } = &*file.parts.attachment;
        let index = window.least_used();
        let is_new = window.keeps
            && index.is_some_and(|index| !window.chunks[index].data.is_empty())
            && memory.take(self, false, sessions.system().now());
        let chunk = index.filter(|_| !is_new).map(|index| window.chunks.swap_remove(index));
        chunk.unwrap_or_default()
    }

    /// Reads a window at `offset` that has at least `needed` bytes, unless the file ends before; and
    /// requests the next one, from the second window on: the storage node sends it while the program uses
    /// this one. Returns the end of the file, if it was reached.
    fn fill(
        self: &Arc<Self>,
        file: &File,
        window: &mut Window,
        offset: u64,
        needed: usize,
    ) -> Result<Option<u64>, Errno> {
        let memory = &file.parts.attachment.read_ahead_memory;
        let is_first = window.size == MIN_WINDOW;
        let pending = window.take_pending(memory).filter(|pending| {
            let (start, length) = pending.range();
            start == offset && length >= needed
        });
        let mut chunk = self.take_chunk(file, window);
        let filled = match pending.and_then(|pending| self.receive(file, &mut chunk, pending)) {
            Some(()) => Ok(()),
            None if self.get_from_others(file, &mut chunk, (offset, needed)) => Ok(()),
            None => {
                // What is read again is read again from the beginning.
                let before = if window.keeps { offset % ALIGNMENT } else { 0 };
                let needed = needed + before as usize;
                self.request(file, &mut chunk, (offset - before, window.size), needed)
            }
        };
        let (next, is_last) = (chunk.end(), chunk.is_last);
        window.add(chunk);
        filled?;
        window.size = (window.size * 2).min(MAX_WINDOW);
        let has_next = !is_first && !is_last && next < MAX_OFFSET;
        let is_known = |window: &Window| window.contains(next) || self.others_have(file, next);
        if has_next
            && !is_known(window)
            && memory.begin_pending(file.parts.attachment.sessions.system().now())
        {
            let length = window_length(window.size, next, 1);
            window.pending = PendingRead::request(&file.parts, next, length);
            if window.pending.is_none() {
                memory.finish_pending();
            }
        }
        Ok(is_last.then_some(next))
    }

    /// Receives a window that was requested before. `None`: it has to be requested again.
    fn receive(&self, file: &File, chunk: &mut Chunk, pending: PendingRead) -> Option<()> {
        let (start, length) = pending.range();
        self.receive_into(chunk, (start, length), |data| {
            pending.receive(&file.parts, data).ok_or(())
        })
        .ok()
    }

    /// Requests a window of about `size` bytes at `start`, with `needed` bytes at least, and receives it.
    fn request(
        &self,
        file: &File,
        chunk: &mut Chunk,
        (start, size): (u64, usize),
        needed: usize,
    ) -> Result<(), Errno> {
        let length = window_length(size, start, needed);
        self.receive_into(chunk, (start, length), |data| {
            transfer::read(&file.parts, data, start, || file.length())
        })
    }

    /// Fills a chunk by `read`, which returns the number of bytes: fewer only at the end of the file. The chunk is
    /// empty if that fails.
    fn receive_into<E>(
        &self,
        chunk: &mut Chunk,
        (start, length): (u64, usize),
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let mut data = chunk.take_buffer();
        data.resize(length, 0);
        *self.receiving.lock() = Some(start..start + length as u64);
        let received = read(&mut data);
        *self.receiving.lock() = None;
        data.truncate(*received.as_ref().unwrap_or(&0));
        let is_last = received.is_ok() && data.len() < length;
        *chunk = Chunk { start, data: Arc::new(data), is_last, last_use: chunk.last_use };
        received.map(|_| ())
    }
}

/// Length of the window at `offset`: about `size`, and at least `needed`.
fn window_length(size: usize, offset: u64, needed: usize) -> usize {
    let end = (offset + size.max(needed) as u64) / ALIGNMENT * ALIGNMENT;
    let length = (end.max(offset + needed as u64) - offset) as usize;
    assert!(length <= MAX_WINDOW, "a window fits the memory that was taken for it");
    length
}
