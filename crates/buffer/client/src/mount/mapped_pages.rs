//! Writes to a file that a program maps into memory, without FUSE passthrough.
//!
//! `write` bypasses the kernel's page cache, which memory maps use. The kernel drops the pages before it
//! sends the write, but a program can touch its map again before the write is done. The page then has the
//! bytes from before the write and, if the program changes another part of it, comes back as a whole: it
//! would undo the write. So while pages of a file may be cached, the mount remembers what each write
//! replaced. Where a page comes back with just these bytes, they are old, and the written ones take their
//! place.
//!
//! The kernel drops the pages again when it has the reply to a write. Hence a page that it reads after that
//! has the written bytes, and what a program then stores in it is newer: reading a page discards what is
//! remembered of it.

use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Weak};

const PAGE_BYTES: u64 = 4096;
/// Written bytes that are remembered of a file: two of the largest requests. The kernel carries out one
/// write to a mapped file after another, so only those of the present one matter. Of a longer one, the
/// first parts are forgotten.
const MAX_BYTES: usize = 2 << 20;
/// Parts of writes that are remembered of a file.
const MAX_PARTS: usize = 2 * MAX_BYTES / PAGE_BYTES as usize;

/// The order of writes to a file and of its mapped pages, and what those writes replaced that a page from before
/// them could undo. `F` is an open file.
#[derive(Debug)]
pub struct MappedPages<F> {
    /// `None`: the kernel has no pages of the file. Held for reading while data are written.
    cached: RwLock<Option<Mutex<Cached<F>>>>,
    /// Held for reading while pages are written, and for writing while a program's data are: a page that
    /// was completed with the bytes of one write must not arrive after the next write.
    turn: RwLock<()>,
}

#[derive(Debug)]
struct Cached<F> {
    /// Open files through which pages were read. When they are closed, no program maps the file.
    maps: Vec<Weak<F>>,
    /// Parts of writes, in their order, by the number of their page.
    pages: BTreeMap<u64, VecDeque<Part>>,
    /// Page of each part, in the order of the writes. Some are gone.
    order: VecDeque<(u64, u64)>,
    /// Bytes of all parts.
    bytes: usize,
    /// Number of the last write.
    last: u64,
}

/// The part of a write in one page.
#[derive(Debug)]
struct Part {
    write: u64,
    /// Offset in the file.
    offset: u64,
    before: Box<[u8]>,
    after: Box<[u8]>,
    is_done: bool,
}

impl<F> Default for MappedPages<F> {
    fn default() -> MappedPages<F> {
        MappedPages { cached: RwLock::new(None), turn: RwLock::new(()) }
    }
}

impl<F> Default for Cached<F> {
    fn default() -> Cached<F> {
        Cached {
            maps: Vec::new(),
            pages: BTreeMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            last: 0,
        }
    }
}

/// Numbers of the pages of a range of bytes.
fn pages(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES)
}

impl<F> Cached<F> {
    fn map(&self) -> Option<Arc<F>> {
        self.maps.iter().find_map(Weak::upgrade)
    }

    fn add_map(&mut self, file: &Arc<F>) {
        let known = self.maps.iter().any(|map| std::ptr::eq(map.as_ptr(), Arc::as_ptr(file)));
        if !known {
            self.maps.retain(|map| map.strong_count() > 0);
            self.maps.push(Arc::downgrade(file));
        }
    }

    /// The kernel reads pages that it does not have.
    fn discard(&mut self, range: &Range<u64>) {
        let numbers: Vec<u64> = self.pages.range(pages(range)).map(|(page, _)| *page).collect();
        for page in numbers {
            self.retain(page, |part| !part.is_done);
        }
    }

    fn retain(&mut self, page: u64, keep: impl Fn(&Part) -> bool) {
        let Some(parts) = self.pages.get_mut(&page) else {
            return;
        };
        let dropped = parts.iter().filter(|part| !keep(part)).map(|part| part.after.len());
        self.bytes -= dropped.sum::<usize>();
        parts.retain(keep);
        if parts.is_empty() {
            self.pages.remove(&page);
        }
    }

    /// Remembers a write before it is carried out. Returns its number.
    fn begin(&mut self, offset: u64, before: &[u8], after: &[u8]) -> u64 {
        assert_eq!(before.len(), after.len(), "each byte replaces one");
        self.last += 1;
        let end = offset + after.len() as u64;
        for page in pages(&(offset..end)) {
            let start = offset.max(page * PAGE_BYTES);
            let length = (end.min((page + 1) * PAGE_BYTES) - start) as usize;
            let at = (start - offset) as usize;
            self.pages.entry(page).or_default().push_back(Part {
                write: self.last,
                offset: start,
                before: before[at..at + length].into(),
                after: after[at..at + length].into(),
                is_done: false,
            });
            self.order.push_back((self.last, page));
            self.bytes += length;
        }
        self.last
    }

    /// A write has been carried out, up to `end`.
    fn finish(&mut self, write: u64, range: &Range<u64>, end: u64) {
        for page in pages(range) {
            for part in self.pages.get_mut(&page).into_iter().flatten() {
                part.is_done |= part.write == write;
            }
            if end < range.end && end < (page + 1) * PAGE_BYTES {
                self.retain(page, |part| part.write != write || part.offset < end);
                for part in self.pages.get_mut(&page).into_iter().flatten() {
                    if part.write == write {
                        let kept = (end - part.offset) as usize;
                        self.bytes -= part.after.len() - kept;
                        part.before = part.before[..kept].into();
                        part.after = part.after[..kept].into();
                    }
                }
            }
        }
        while self.bytes > MAX_BYTES || self.order.len() > MAX_PARTS {
            let Some((write, page)) = self.order.pop_front() else {
                break;
            };
            self.retain(page, |part| part.write != write);
        }
    }

    /// Pages come back.
    fn complete<'a>(&self, offset: u64, data: &'a [u8]) -> Cow<'a, [u8]> {
        let mut data = Cow::Borrowed(data);
        let range = offset..offset + data.len() as u64;
        for part in self.pages.range(pages(&range)).flat_map(|(_, parts)| parts) {
            for (index, (before, after)) in part.before.iter().zip(&part.after).enumerate() {
                let at = part.offset + index as u64;
                if range.contains(&at) && before != after {
                    let at = (at - offset) as usize;
                    if data[at] == *before {
                        data.to_mut()[at] = *after;
                    }
                }
            }
        }
        data
    }
}

impl<F> MappedPages<F> {
    /// The kernel is about to read `range` into its page cache, through `file`.
    pub fn read_pages(&self, file: &Arc<F>, range: Range<u64>) {
        if let Some(cached) = &*self.cached.read() {
            let mut cached = cached.lock();
            if cached.map().is_some() {
                cached.add_map(file);
                return cached.discard(&range);
            }
        }
        // Writes that nothing is remembered of are done first.
        let mut cached = self.cached.write();
        let mut first = Cached::default();
        first.add_map(file);
        *cached = Some(Mutex::new(first));
    }

    /// A program writes `data` at `offset`, by `write`. `read` reads through an open file; beyond the end
    /// of the file it changes nothing.
    pub fn write<E>(
        &self,
        offset: u64,
        data: &[u8],
        read: impl FnOnce(&F, &mut [u8]) -> Result<usize, E>,
        write: impl FnOnce() -> Result<usize, E>,
    ) -> Result<usize, E> {
        let cached = self.cached.read();
        let Some(cached) = &*cached else {
            return write();
        };
        let Some(map) = cached.lock().map() else {
            return write();
        };
        let _turn = self.turn.write();
        let mut before = vec![0; data.len()];
        read(&map, &mut before)?;
        let number = cached.lock().begin(offset, &before, data);
        let written = write();
        let range = offset..offset + data.len() as u64;
        let end = offset + *written.as_ref().unwrap_or(&0) as u64;
        cached.lock().finish(number, &range, end);
        written
    }

    /// The kernel writes pages by `write`, which is passed the data that are to be written.
    pub fn write_pages<E>(
        &self,
        offset: u64,
        data: &[u8],
        write: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let cached = self.cached.read();
        let Some(cached) = &*cached else {
            return write(data);
        };
        let _turn = self.turn.read();
        let data = cached.lock().complete(offset, data);
        write(&data)
    }
}

#[cfg(test)]
mod tests;
