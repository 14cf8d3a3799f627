//! Reading ahead of sequential reads over the network, under a read lease.
//!
//! After some sequential reads the client asks for a lease on the file, and then reads more than was
//! asked for. What it has read is used as long as the lease is valid that it had when it began to read:
//! no client can have changed the file since. All other reads are requests of their own; they are right
//! at any time, so reading ahead may give up whenever it is inconvenient.

use super::File;
use super::pending_read::PendingRead;
use super::transfer;
use crate::session::FileLease;
use forebay_protocol::{Errno, LeaseId};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
/// Time after a refusal until a lease is requested again, at least; and times the duration of the
/// request, for a node that does not answer.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
const REFUSAL_FACTOR: u32 = 10;

/// Files of a client that may have requested a window before it is needed. Each uses a connection to
/// every node that has some of its window.
const MAX_PENDING: u32 = 8;

/// Memory for data read ahead, in bytes, of all files of a client.
#[derive(Debug)]
pub struct ReadAheadMemory {
    free: AtomicU64,
    /// Windows that are requested and not received.
    pending: AtomicU32,
}

impl ReadAheadMemory {
    /// Memory of at most `bytes`.
    pub fn new(bytes: u64) -> ReadAheadMemory {
        ReadAheadMemory { free: AtomicU64::new(bytes), pending: AtomicU32::new(0) }
    }

    /// Whether there is any.
    pub fn is_enabled(&self) -> bool {
        self.free.load(Ordering::Relaxed) >= MAX_WINDOW as u64
    }

    fn take(&self) -> bool {
        let less = |free: u64| free.checked_sub(MAX_WINDOW as u64);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give_back(&self) {
        self.free.fetch_add(MAX_WINDOW as u64, Ordering::Relaxed);
    }

    /// Whether one more window may be requested before it is needed. It must be
    /// [finished](ReadAheadMemory::finish_pending).
    fn begin_pending(&self) -> bool {
        let more = |pending| (pending < MAX_PENDING).then_some(pending + 1);
        self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn finish_pending(&self) {
        let before = self.pending.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a request is finished once");
    }
}

/// Data that were read ahead, and the reads that led to it.
#[derive(Debug, Default)]
struct Window {
    /// The end of the last read.
    next: u64,
    /// Reads in a row that each began where the one before ended.
    sequential: u32,
    /// The lease under which the data were read.
    lease: Option<LeaseId>,
    /// Offset of the data.
    start: u64,
    data: Vec<u8>,
    /// The file ends with the data.
    is_last: bool,
    /// The data behind, if they were requested already.
    pending: Option<PendingRead>,
    /// How much to read ahead the next time, in bytes.
    size: usize,
    /// No lease is requested before.
    refused_until: Option<Instant>,
    /// Whether memory was taken for it.
    has_memory: bool,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.data.len() as u64
    }

    fn contains(&self, offset: u64) -> bool {
        self.lease.is_some()
            && offset >= self.start
            && (offset < self.end() || (self.is_last && offset == self.end()))
    }

    fn clear(&mut self, memory: &ReadAheadMemory) {
        (self.lease, self.is_last) = (None, false);
        self.data.clear();
        self.take_pending(memory);
    }

    fn take_pending(&mut self, memory: &ReadAheadMemory) -> Option<PendingRead> {
        let pending = self.pending.take()?;
        memory.finish_pending();
        Some(pending)
    }

    /// Discards the data, and gives their memory back.
    fn free(&mut self, memory: &ReadAheadMemory) {
        self.clear(memory);
        self.data = Vec::new();
        if std::mem::take(&mut self.has_memory) {
            memory.give_back();
        }
    }

    /// Notes a read, and returns whether it continues a row of sequential ones.
    fn note_read(&mut self, offset: u64, length: usize) -> bool {
        let follows = offset == self.next;
        self.sequential = if follows { self.sequential.saturating_add(1) } else { 0 };
        if !follows {
            self.size = MIN_WINDOW;
        }
        self.next = offset.saturating_add(length as u64);
        self.sequential > MIN_SEQUENTIAL
    }

    /// Copies data from `offset` on. Returns the number of bytes.
    fn copy(&self, into: &mut [u8], offset: u64) -> usize {
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let data = self.data.get(from..).unwrap_or_default();
        let count = data.len().min(into.len());
        into[..count].copy_from_slice(&data[..count]);
        count
    }
}

/// Reading ahead in one open file.
#[derive(Debug)]
pub struct ReadAhead {
    pub lease: Arc<FileLease>,
    window: Mutex<Window>,
}

impl ReadAhead {
    /// Reading ahead with the file's lease.
    pub fn new(lease: Arc<FileLease>) -> ReadAhead {
        ReadAhead { lease, window: Mutex::new(Window { size: MIN_WINDOW, ..Window::default() }) }
    }

    /// Frees what was read ahead; the file is being closed.
    pub fn end(&self, memory: &ReadAheadMemory) {
        self.window.lock().free(memory);
    }

    /// Reads at `offset` from data read ahead, and reads ahead where the file is read sequentially.
    /// `None`: the read has to be requested.
    pub fn read(&self, file: &File, into: &mut [u8], offset: u64) -> Option<usize> {
        // Another thread may be reading ahead: this one need not wait for it.
        let mut window = self.window.try_lock()?;
        let is_sequential = window.note_read(offset, into.len());
        let is_small = !into.is_empty() && into.len() <= MAX_READ && offset < MAX_OFFSET;
        if !is_small || !(is_sequential || window.contains(offset)) {
            return None;
        }
        let memory = &file.parts.attachment.read_ahead_memory;
        let lease = self.lease_for(file, &mut window)?;
        if window.lease != Some(lease) {
            window.clear(memory);
            window.lease = Some(lease);
        }
        let count = self.read_under(file, &mut window, into, offset, is_sequential);
        // The time at which the data are those of the file.
        let now = file.parts.attachment.sessions.system().now();
        if count.is_none() || self.lease.valid(now).is_none_or(|(held, _)| held != lease) {
            window.clear(memory);
            return None;
        }
        count
    }

    fn lease_for(&self, file: &File, window: &mut Window) -> Option<LeaseId> {
        let sessions = &file.parts.attachment.sessions;
        if let Some(until) = window.refused_until {
            if sessions.system().now() < until {
                return None;
            }
            window.refused_until = None;
        }
        let memory = &file.parts.attachment.read_ahead_memory;
        if !window.has_memory {
            window.has_memory = memory.take();
        }
        let asked_at = sessions.system().now();
        let session = sessions.watched_session(file.parts.primary.node).ok();
        let lease = session
            .filter(|_| window.has_memory)
            .and_then(|session| session.use_lease(&self.lease));
        if lease.is_none() {
            let now = sessions.system().now();
            window.free(memory);
            window.refused_until = Some(now + REFUSAL_TIME.max((now - asked_at) * REFUSAL_FACTOR));
        }
        lease
    }

    /// Copies what has been read ahead, and reads more where that ends. `None`: that failed, or would
    /// not be sequential.
    fn read_under(
        &self,
        file: &File,
        window: &mut Window,
        into: &mut [u8],
        offset: u64,
        is_sequential: bool,
    ) -> Option<usize> {
        let mut done = 0;
        loop {
            let at = offset + done as u64;
            if window.contains(at) {
                done += window.copy(&mut into[done..], at);
            }
            if done == into.len() || (window.is_last && window.contains(offset + done as u64)) {
                return Some(done);
            }
            if !is_sequential {
                return None;
            }
            fill(file, window, offset + done as u64, into.len() - done).ok()?;
        }
    }
}

/// Reads a window at `offset` that has at least `needed` bytes, unless the file ends before; and
/// requests the next one, from the second window on: the storage node sends it while the program uses
/// this one.
fn fill(file: &File, window: &mut Window, offset: u64, needed: usize) -> Result<(), Errno> {
    let memory = &file.parts.attachment.read_ahead_memory;
    let is_first = window.size == MIN_WINDOW;
    let pending = window.take_pending(memory).filter(|pending| {
        let (start, length) = pending.range();
        start == offset && length >= needed
    });
    window.start = offset;
    let (length, count) = match pending.and_then(|pending| receive(file, window, pending)) {
        Some(received) => received,
        None => request(file, window, offset, needed)?,
    };
    window.data.truncate(count);
    window.is_last = count < length;
    window.size = (window.size * 2).min(MAX_WINDOW);
    let next = window.end();
    if !is_first && !window.is_last && next < MAX_OFFSET && memory.begin_pending() {
        let length = window_length(window.size, next, 1);
        window.pending = PendingRead::request(&file.parts, next, length);
        if window.pending.is_none() {
            memory.finish_pending();
        }
    }
    Ok(())
}

/// Length of the window at `offset`: about `size`, and at least `needed`.
fn window_length(size: usize, offset: u64, needed: usize) -> usize {
    let end = (offset + size.max(needed) as u64) / ALIGNMENT * ALIGNMENT;
    let length = (end.max(offset + needed as u64) - offset) as usize;
    assert!(length <= MAX_WINDOW, "a window fits the memory that was taken for it");
    length
}

/// Receives a window that was requested before. Returns its length and the bytes received. `None`: it
/// has to be requested again.
fn receive(file: &File, window: &mut Window, pending: PendingRead) -> Option<(usize, usize)> {
    let (_, length) = pending.range();
    window.data.resize(length, 0);
    let count = pending.receive(&file.parts, &mut window.data);
    if count.is_none() {
        window.data.clear();
    }
    Some((length, count?))
}

/// Requests a window, and receives it. Returns its length and the bytes received.
fn request(
    file: &File,
    window: &mut Window,
    offset: u64,
    needed: usize,
) -> Result<(usize, usize), Errno> {
    let length = window_length(window.size, offset, needed);
    window.data.resize(length, 0);
    let read = transfer::read(&file.parts, &mut window.data, offset, || file.length());
    if read.is_err() {
        window.data.clear();
    }
    Ok((length, read?))
}
