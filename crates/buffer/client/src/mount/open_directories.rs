//! Directories that the kernel has open, and where their listings end.
//!
//! A new or renamed entry comes after all others. So that a program that renames every entry that it
//! reads reaches the end, a listing omits entries that were added after it began. So its end is known
//! with its last page, and the kernel's question for more takes no request.

use super::convert;
use super::mounted_fs::MountedFs;
use forebay_fuse::{FileHandle, INodeNo, OpenFlags, ReplyOpen, Request};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The present listing of an open directory.
#[derive(Clone, Copy, Debug, Default)]
struct Listing {
    /// The first cookie that it omits; `None` before the first page.
    limit: Option<u64>,
    /// The cookie of its last entry, once that is known.
    last: Option<u64>,
}

/// All open directories of the kernel.
#[derive(Debug, Default)]
pub struct OpenDirectories {
    listings: Mutex<HashMap<u64, Listing>>,
    last_handle: AtomicU64,
}

impl OpenDirectories {
    pub fn add(&self) -> FileHandle {
        let handle = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        let previous = self.listings.lock().insert(handle, Listing::default());
        assert!(previous.is_none(), "handles are unique");
        FileHandle(handle)
    }

    pub fn close(&self, handle: FileHandle) {
        let closed = self.listings.lock().remove(&handle.0);
        debug_assert!(closed.is_some(), "an open directory is closed once");
    }

    /// The first cookie that a listing omits. The first page of a listing, after which the next new
    /// entry would get the cookie `next`, sets it.
    pub fn limit(&self, handle: FileHandle, is_first_page: bool, next: u64) -> u64 {
        let mut listings = self.listings.lock();
        let found = listings.get_mut(&handle.0);
        debug_assert!(found.is_some(), "only open directories are listed");
        let Some(listing) = found else {
            return u64::MAX;
        };
        if is_first_page {
            *listing = Listing::default();
        }
        *listing.limit.get_or_insert(next)
    }

    /// The listing ends with the entry of the cookie `last`.
    pub fn note_end(&self, handle: FileHandle, last: u64) {
        if let Some(listing) = self.listings.lock().get_mut(&handle.0) {
            listing.last = Some(last);
        }
    }

    /// Whether the listing has no entry after the cookie `after`.
    pub fn is_at_end(&self, handle: FileHandle, after: u64) -> bool {
        let listings = self.listings.lock();
        listings.get(&handle.0).is_some_and(|listing| listing.last == Some(after))
    }
}

impl MountedFs {
    pub fn do_open_dir(&self, request: &Request, ino: INodeNo, reply: ReplyOpen) {
        match self.do_access(request, ino, convert::ACCESS_READ) {
            Ok(()) => {
                let handle = self.open_directories.add();
                reply.opened(handle, OpenFlags::empty(), None);
            }
            Err(error) => reply.error(error.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_of_a_listing_is_that_of_its_first_page() {
        let open = OpenDirectories::default();
        let (one, other) = (open.add(), open.add());
        assert_eq!(open.limit(one, true, 20), 20);
        assert_eq!(open.limit(one, false, 30), 20);
        assert_eq!(open.limit(other, true, 30), 30);
        open.note_end(one, 19);
        assert!(open.is_at_end(one, 19) && !open.is_at_end(one, 18) && !open.is_at_end(other, 19));
        // The program has rewound it.
        assert_eq!(open.limit(one, true, 40), 40);
        assert!(!open.is_at_end(one, 19));
        open.close(one);
        assert_eq!(open.limit(other, false, 50), 30);
    }
}
