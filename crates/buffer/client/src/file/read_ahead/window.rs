//! The data that an open file has read ahead.

use super::super::pending_read::PendingRead;
use super::memory::ReadAheadMemory;
use super::{MIN_SEQUENTIAL, MIN_WINDOW};
use forebay_protocol::LeaseId;
use std::sync::Arc;
use std::time::Instant;

/// Data that were read ahead at once. Takes a unit of memory.
#[derive(Debug, Default)]
pub struct Chunk {
    /// Offset of the data.
    pub start: u64,
    /// Other open files of the inode may have them, too.
    pub data: Arc<Vec<u8>>,
    /// The file ends with the data.
    pub is_last: bool,
    /// Number of the last read that used it.
    pub last_use: u64,
}

impl Chunk {
    pub fn end(&self) -> u64 {
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

    /// A buffer for new data. Its contents have no meaning.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.is_last = false;
        Arc::try_unwrap(std::mem::take(&mut self.data)).unwrap_or_default()
    }

    fn clear(&mut self) {
        self.is_last = false;
        match Arc::get_mut(&mut self.data) {
            Some(data) => data.clear(),
            None => self.data = Arc::default(),
        }
    }
}

/// Data that were read ahead, and the reads that led to it.
#[derive(Debug, Default)]
pub struct Window {
    /// The end of the last read.
    pub next: u64,
    /// The greatest end of a read.
    pub furthest: u64,
    /// Reads in a row that each began where the one before ended.
    pub sequential: u32,
    /// The lease under which the data were read.
    pub lease: Option<LeaseId>,
    /// All of them are data of this lease, or empty.
    pub chunks: Vec<Chunk>,
    /// Parts of the file were read again: more than one chunk is kept.
    pub keeps: bool,
    /// Reads that used data.
    pub uses: u64,
    /// The data behind those that were read ahead last, if they were requested already.
    pub pending: Option<PendingRead>,
    /// How much to read ahead the next time, in bytes.
    pub size: usize,
    /// No lease is requested before.
    pub refused_until: Option<Instant>,
    /// The time of the last read that it served.
    pub used_at: Option<Instant>,
}

impl Window {
    /// Whether there are data at `offset`, or the file is known to end there.
    pub fn contains(&self, offset: u64) -> bool {
        self.lease.is_some() && self.chunks.iter().any(|chunk| chunk.contains(offset))
    }

    /// The chunk with the data at `offset`, for a read.
    pub fn chunk_at(&mut self, offset: u64) -> Option<&Chunk> {
        let chunk = self.chunks.iter_mut().find(|chunk| chunk.contains(offset))?;
        self.uses += 1;
        chunk.last_use = self.uses;
        Some(chunk)
    }

    /// Adds a chunk, which has just been used.
    pub fn add(&mut self, mut chunk: Chunk) {
        self.uses += 1;
        chunk.last_use = self.uses;
        self.chunks.push(chunk);
    }

    /// Copies data from `offset` on, as far as there are any. Returns the number of bytes, and whether that is
    /// all that was asked for, or all up to the end of the file.
    pub fn copy(&mut self, into: &mut [u8], offset: u64) -> (usize, bool) {
        let mut done = 0;
        loop {
            let at = offset + done as u64;
            let Some(chunk) = self.chunk_at(at) else {
                return (done, false);
            };
            done += chunk.copy(&mut into[done..], at);
            let is_at_end = chunk.is_last && offset + done as u64 == chunk.end();
            if done == into.len() || is_at_end {
                return (done, true);
            }
        }
    }

    /// The chunk whose data are needed least.
    pub fn least_used(&self) -> Option<usize> {
        let order = |chunk: &Chunk| (!chunk.data.is_empty(), chunk.last_use);
        let chunks = self.chunks.iter().enumerate();
        chunks.min_by_key(|(_, chunk)| order(chunk)).map(|(index, _)| index)
    }

    pub fn clear(&mut self, memory: &ReadAheadMemory) {
        self.lease = None;
        self.chunks.iter_mut().for_each(Chunk::clear);
        self.take_pending(memory);
    }

    pub fn take_pending(&mut self, memory: &ReadAheadMemory) -> Option<PendingRead> {
        let pending = self.pending.take()?;
        memory.finish_pending();
        Some(pending)
    }

    /// Discards the data. Returns the units of memory that were taken for them.
    pub fn discard(&mut self, memory: &ReadAheadMemory) -> usize {
        self.clear(memory);
        std::mem::take(&mut self.chunks).len()
    }

    /// Notes a read, and returns whether it continues a row of sequential ones.
    pub fn note_read(&mut self, offset: u64, length: usize) -> bool {
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
