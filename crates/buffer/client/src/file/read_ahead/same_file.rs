//! Data that open files of one inode share: the processes of a host that read one file need it from the storage
//! nodes once.
//!
//! Data under the valid lease of one open file are those of the file at that moment, so that another one may use
//! them at once, or keep them under its own lease, if it has that already.

use super::window::Chunk;
use super::{File, ReadAhead};
use crate::file::pending_read::PendingRead;
use forebay_protocol::Ino;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Longest wait for data that another open file is about to receive.
const RECEIVE_TIME: Duration = Duration::from_millis(100);
/// Open files of an inode that are asked for data.
const MAX_ASKED: usize = 64;

/// The open files of a client that may read ahead.
#[derive(Debug, Default)]
pub struct ReadFiles(Mutex<HashMap<Ino, Vec<Weak<ReadAhead>>>>);

impl ReadFiles {
    /// A file was opened.
    pub fn add(&self, ino: Ino, file: &Arc<ReadAhead>) {
        self.0.lock().entry(ino).or_default().push(Arc::downgrade(file));
    }

    /// It is being closed.
    pub fn remove(&self, ino: Ino, file: &ReadAhead) {
        let mut files = self.0.lock();
        let Some(of_inode) = files.get_mut(&ino) else {
            return;
        };
        of_inode.retain(|other| !std::ptr::eq(other.as_ptr(), file));
        if of_inode.is_empty() {
            files.remove(&ino);
        }
    }

    /// Other open files of the inode.
    fn others(&self, ino: Ino, file: &ReadAhead) -> Vec<Arc<ReadAhead>> {
        let files = self.0.lock();
        let of_inode = files.get(&ino).filter(|of_inode| of_inode.len() > 1);
        let others = of_inode.into_iter().flatten();
        let others = others.filter(|other| !std::ptr::eq(other.as_ptr(), file));
        others.take(MAX_ASKED).filter_map(Weak::upgrade).collect()
    }
}

impl ReadAhead {
    /// Other open files of the inode that share their data.
    fn others(&self, file: &File) -> Vec<Arc<ReadAhead>> {
        if !self.is_shared.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut others = file.parts.attachment.read_files.others(file.ino(), self);
        others.retain(|other| other.is_shared.load(Ordering::Relaxed));
        others
    }

    fn is_receiving(&self, offset: u64) -> bool {
        self.receiving.lock().as_ref().is_some_and(|range| range.contains(&offset))
    }

    /// Reads at `offset` from data of other open files. `None`: none of them has all.
    pub(super) fn read_from_others(
        &self,
        file: &File,
        into: &mut [u8],
        offset: u64,
    ) -> Option<usize> {
        self.others(file).iter().find_map(|other| {
            let mut window = other.window.try_lock()?;
            let lease = window.lease?;
            let (count, is_complete) = window.copy(into, offset);
            (is_complete && other.holds(file, lease)).then_some(count)
        })
    }

    /// Gets data at `offset` from another open file: those that it has, or those that it has requested, if they are
    /// `needed` bytes at least. Called under a lease. `false`: there are none, and the chunk is empty.
    pub(super) fn get_from_others(
        &self,
        file: &File,
        chunk: &mut Chunk,
        (offset, needed): (u64, usize),
    ) -> bool {
        let memory = &file.parts.attachment.read_ahead_memory;
        for other in self.others(file) {
            let window = match other.is_receiving(offset) {
                true => other.window.try_lock_for(RECEIVE_TIME),
                false => other.window.try_lock(),
            };
            let Some(mut window) = window else {
                continue;
            };
            let Some(lease) = window.lease else {
                continue;
            };
            if let Some(found) = window.chunk_at(offset) {
                let found = Chunk { data: found.data.clone(), ..*found };
                if other.holds(file, lease) {
                    *chunk = found;
                    return true;
                }
                continue;
            }
            let fits = |(start, length)| start == offset && length >= needed;
            if window.pending.as_ref().is_some_and(|pending| fits(pending.range()))
                && let Some(pending) = window.take_pending(memory)
            {
                drop(window);
                let is_received = self.receive(file, chunk, pending).is_some();
                if is_received && other.holds(file, lease) {
                    return true;
                }
                *chunk = Chunk::default();
            }
        }
        false
    }

    /// Whether another open file has the data at `offset`, or has requested them.
    pub(super) fn others_have(&self, file: &File, offset: u64) -> bool {
        self.others(file).iter().any(|other| {
            let is_pending = |pending: &PendingRead| pending.range().0 == offset;
            other.is_receiving(offset)
                || other.window.try_lock().is_some_and(|window| {
                    window.contains(offset) || window.pending.as_ref().is_some_and(is_pending)
                })
        })
    }
}
