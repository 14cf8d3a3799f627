//! Files on several storage nodes that programs have read through this mount.
//!
//! The metadata node of a file learns that it was read after it is closed. A program that reads a file and
//! then asks when it was read is told by the node that the data came from.

use super::mounted_fs::MountedFs;
use super::open_files::OpenFile;
use forebay_protocol::{Attr, FileKind, Ino, NodeIndex, Timestamp};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Files that are remembered. Of others the metadata node knows.
const MAX_FILES: usize = 4096;

/// What is known of the first read of a file since it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstRead {
    /// Data came from this node.
    From(NodeIndex),
    /// The time by the clock of that node.
    At(Timestamp),
}

/// The files that were read.
#[derive(Debug, Default)]
pub struct RecentReads {
    files: Mutex<BTreeMap<Ino, FirstRead>>,
}

impl RecentReads {
    fn insert(&self, ino: Ino, read: FirstRead) {
        let mut files = self.files.lock();
        files.insert(ino, read);
        if files.len() > MAX_FILES {
            files.pop_first();
        }
    }

    fn get(&self, ino: Ino) -> Option<FirstRead> {
        self.files.lock().get(&ino).copied()
    }

    fn remove(&self, ino: Ino) {
        self.files.lock().remove(&ino);
    }
}

/// Whether a read at this time was after all that the attributes tell of.
fn is_newer(at: Timestamp, attr: &Attr) -> bool {
    at > attr.atime.max(attr.mtime).max(attr.ctime)
}

/// Whether the next read of a file with these attributes changes its access time: it is the first since the
/// file changed.
pub fn is_read_to_be_shown(attr: &Attr) -> bool {
    attr.provisional.is_some() || attr.atime <= attr.mtime.max(attr.ctime)
}

impl MountedFs {
    /// Data at `offset` of a file were read.
    pub(super) fn note_read(&self, open: &OpenFile, offset: u64) {
        let layout = self.fs.sessions().layout();
        if layout.nodes() == 1
            || open.file.keeps_access_time()
            || open.shared.was_read.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let ino = open.file.ino();
        self.recent_reads.insert(ino, FirstRead::From(layout.node_of_offset(ino, offset)));
    }

    /// Sets the time of the last read of a file that was read through this mount.
    pub(super) fn show_read(&self, attr: &mut Attr) {
        if attr.kind != FileKind::File || self.fs.storage_nodes() == 1 {
            return;
        }
        if let Some(FirstRead::From(node)) = self.recent_reads.get(attr.ino) {
            match self.fs.requester.object_on(node, attr.ino) {
                Ok(Some(object)) => {
                    self.recent_reads.insert(attr.ino, FirstRead::At(object.atime));
                }
                Ok(None) | Err(_) => self.recent_reads.remove(attr.ino),
            }
        }
        self.show_known_read(attr);
    }

    /// The same without a request, for listings.
    pub(super) fn show_known_read(&self, attr: &mut Attr) {
        if attr.kind != FileKind::File || self.fs.storage_nodes() == 1 {
            return;
        }
        let Some(FirstRead::At(at)) = self.recent_reads.get(attr.ino) else {
            return;
        };
        match is_newer(at, attr) {
            true => attr.atime = at,
            // The metadata node knows of the read, or the file was changed since.
            false => self.recent_reads.remove(attr.ino),
        }
    }
}
