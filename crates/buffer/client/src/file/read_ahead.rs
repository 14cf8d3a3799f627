//! Reading ahead of sequential reads over the network, under a read lease.
//!
//! After some sequential reads the client asks for a lease on the file, and then reads more than was
//! asked for. What it has read is used as long as the lease is valid that it had when it began to read:
//! no client can have changed the file since. All other reads are requests of their own; they are right
//! at any time, so reading ahead may give up whenever it is inconvenient.

mod memory;

pub use memory::ReadAheadMemory;

use super::File;
use super::pending_read::PendingRead;
use super::transfer;
use crate::attachment::Attachment;
use crate::session::FileLease;
use forebay_protocol::message::READ_LEASE_NS;
use forebay_protocol::{Errno, LeaseId};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
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
/// Time without a read after which a file makes room for others: that of a lease, without which its data are
/// useless.
const IDLE_TIME: Duration = Duration::from_nanos(READ_LEASE_NS);
/// Time after a refusal until a lease is requested again, at least; and times the duration of the
/// request, for a node that does not answer.
const REFUSAL_TIME: Duration = Duration::from_millis(100);
const REFUSAL_FACTOR: u32 = 10;

/// Data that were read ahead at once. Takes a unit of memory.
#[derive(Debug, Default)]
struct Chunk {
    /// Offset of the data.
    start: u64,
    data: Vec<u8>,
    /// The file ends with the data.
    is_last: bool,
    /// Number of the last read that used it.
    last_use: u64,
}

impl Chunk {
    fn end(&self) -> u64 {
        self.start + self.data.len() as u64
    }

    fn contains(&self, offset: u64) -> bool {
        offset >= self.start && (offset < self.end() || (self.is_last && offset == self.end()))
    }

    /// Copies data from `offset` on. Returns the number of bytes.
    fn copy(&self, into: &mut [u8], offset: u64) -> usize {
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let data = self.data.get(from..).unwrap_or_default();
        let count = data.len().min(into.len());
        into[..count].copy_from_slice(&data[..count]);
        count
    }

    fn clear(&mut self) {
        self.data.clear();
        self.is_last = false;
    }
}

/// Data that were read ahead, and the reads that led to it.
#[derive(Debug, Default)]
struct Window {
    /// The end of the last read.
    next: u64,
    /// The greatest end of a read.
    furthest: u64,
    /// Reads in a row that each began where the one before ended.
    sequential: u32,
    /// The lease under which the data were read.
    lease: Option<LeaseId>,
    /// All of them are data of this lease, or empty.
    chunks: Vec<Chunk>,
    /// Parts of the file were read again: more than one chunk is kept.
    keeps: bool,
    /// Reads that used data.
    uses: u64,
    /// The data behind those that were read ahead last, if they were requested already.
    pending: Option<PendingRead>,
    /// How much to read ahead the next time, in bytes.
    size: usize,
    /// No lease is requested before.
    refused_until: Option<Instant>,
    /// The time of the last read that it served.
    used_at: Option<Instant>,
}

impl Window {
    fn contains(&self, offset: u64) -> bool {
        self.lease.is_some() && self.chunks.iter().any(|chunk| chunk.contains(offset))
    }

    /// The chunk with the data at `offset`, for a read.
    fn chunk_at(&mut self, offset: u64) -> Option<&Chunk> {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.contains(offset))?;
        self.uses += 1;
        chunk.last_use = self.uses;
        Some(chunk)
    }

    /// The chunk whose data are needed least.
    fn least_used(&self) -> Option<usize> {
        let order = |chunk: &Chunk| (!chunk.data.is_empty(), chunk.last_use);
        let chunks = self.chunks.iter().enumerate();
        chunks.min_by_key(|(_, chunk)| order(chunk)).map(|(index, _)| index)
    }

    fn clear(&mut self, memory: &ReadAheadMemory) {
        self.lease = None;
        self.chunks.iter_mut().for_each(Chunk::clear);
        self.take_pending(memory);
    }

    fn take_pending(&mut self, memory: &ReadAheadMemory) -> Option<PendingRead> {
        let pending = self.pending.take()?;
        memory.finish_pending();
        Some(pending)
    }

    /// Discards the data. Returns the units of memory that were taken for them.
    fn discard(&mut self, memory: &ReadAheadMemory) -> usize {
        self.clear(memory);
        std::mem::take(&mut self.chunks).len()
    }

    /// Notes a read, and returns whether it continues a row of sequential ones.
    fn note_read(&mut self, offset: u64, length: usize) -> bool {
        let follows = offset == self.next;
        self.sequential = if follows { self.sequential.saturating_add(1) } else { 0 };
        if !follows {
            self.size = MIN_WINDOW;
            self.keeps |= offset < self.furthest;
        }
        self.next = offset.saturating_add(length as u64);
        self.furthest = self.furthest.max(self.next);
        self.sequential > MIN_SEQUENTIAL
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
        let read = self.read_under(file, &mut window, into, offset, is_sequential);
        if let Some(Ok(_)) = read {
            // The time at which the data are those of the file.
            let now = file.parts.attachment.sessions.system().now();
            if self.lease.valid(now).is_some_and(|(held, _)| held == lease) {
                window.used_at = Some(now);
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
            let at = offset + done as u64;
            if let Some(chunk) = window.chunk_at(at) {
                let count = chunk.copy(&mut into[done..], at);
                done += count;
                if done == into.len() || (chunk.is_last && at + count as u64 == chunk.end()) {
                    return Some(Ok(done));
                }
                continue;
            }
            if !is_sequential {
                return None;
            }
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
        // What is read again is read again from the beginning.
        let before = if window.keeps { offset % ALIGNMENT } else { 0 };
        let mut chunk = self.take_chunk(file, window);
        chunk.clear();
        chunk.start = offset;
        let received = match pending.and_then(|pending| receive(file, &mut chunk, pending)) {
            Some(received) => Ok(received),
            None => {
                chunk.start = offset - before;
                request(file, &mut chunk, window.size, needed + before as usize)
            }
        };
        let filled = received.map(|(length, count)| {
            chunk.data.truncate(count);
            chunk.is_last = count < length;
            (chunk.end(), chunk.is_last)
        });
        window.uses += 1;
        chunk.last_use = window.uses;
        window.chunks.push(chunk);
        let (next, is_last) = filled?;
        window.size = (window.size * 2).min(MAX_WINDOW);
        let has_next = !is_first && !is_last && next < MAX_OFFSET && !window.contains(next);
        if has_next && memory.begin_pending(file.parts.attachment.sessions.system().now()) {
            let length = window_length(window.size, next, 1);
            window.pending = PendingRead::request(&file.parts, next, length);
            if window.pending.is_none() {
                memory.finish_pending();
            }
        }
        Ok(is_last.then_some(next))
    }
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
fn receive(file: &File, chunk: &mut Chunk, pending: PendingRead) -> Option<(usize, usize)> {
    let (_, length) = pending.range();
    chunk.data.resize(length, 0);
    let count = pending.receive(&file.parts, &mut chunk.data);
    if count.is_none() {
        chunk.data.clear();
    }
    Some((length, count?))
}

/// Requests a window at the start of the chunk, and receives it. Returns its length and the bytes received.
fn request(
    file: &File,
    chunk: &mut Chunk,
    size: usize,
    needed: usize,
) -> Result<(usize, usize), Errno> {
    let length = window_length(size, chunk.start, needed);
    chunk.data.resize(length, 0);
    let read = transfer::read(&file.parts, &mut chunk.data, chunk.start, || file.length());
    if read.is_err() {
        chunk.data.clear();
    }
    Ok((length, read?))
}
