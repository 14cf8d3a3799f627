//! Attributes of directories, and complete listings, that this process caches under the lease on names and
//! attributes.
//!
//! A kernel drops the attributes of a directory after it has listed it, and caches no listing. This cache
//! answers without a request. Each operation of the mount that changes an inode, and each open file,
//! holds a [`Change`] of it: meanwhile nothing is answered from the cache that contains its attributes or
//! names, and what was read before the end of the change is not cached, except the attributes of a
//! directory that the reply to its only change contains. The listing of a directory of which one entry was
//! created or removed still answers for the other names. Other clients change nothing
//! before the lease is recalled, which clears the cache. A file that is unlinked holds none: it has one
//! name if it is in a cached listing, and the directory of that name changes.

use super::listing::{EntryChange, Listing, Positions};
use crate::fs::DirPage;
use forebay_protocol::{Attr, FileKind, Ino};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of directories of which attributes are cached.
const MAX_DIRECTORIES: usize = 1 << 14;
/// Maximum number of entries in all cached listings together.
const MAX_ENTRIES: usize = 1 << 16;
/// Maximum number of inodes of which it is known that they have no extended attributes.
const MAX_PLAIN: usize = 1 << 16;
/// Maximum number of inodes of which the last change is known.
const MAX_CHANGED: usize = 1 << 16;

/// Number of the beginnings and ends of changes so far.
pub type Moment = u64;

/// Something that was read from storage nodes.
#[derive(Debug)]
struct Known<T> {
    value: T,
    /// Moment before which the request was sent.
    read_at: Moment,
    /// End of the lease under which it was read.
    until: Instant,
}

/// Changes of an inode that are under way.
#[derive(Debug)]
struct Changing {
    count: usize,
    /// Moment of the beginning of the first one.
    began_at: Moment,
    /// Several were under way together, so that the order of their results is not known.
    overlap: bool,
    /// The attributes after the change, and the end of the lease under which they were read.
    result: Option<(Attr, Instant)>,
    /// The listing of the directory before the change, if only an entry changes.
    listing: Option<Known<Listing>>,
    /// The change of the entry, once it was carried out.
    entry: Option<EntryChange>,
}

#[derive(Debug, Default)]
struct State {
    now: Moment,
    /// Inodes that are being changed.
    changing: HashMap<Ino, Changing>,
    /// Changes of unknown inodes that are under way.
    changing_any: usize,
    /// The ends of the last changes of inodes since `cleared_at`.
    changed_at: HashMap<Ino, Moment>,
    /// All inodes may have changed until this moment.
    cleared_at: Moment,
    attributes: HashMap<Ino, Known<Attr>>,
    /// Inodes without extended attributes.
    plain: HashMap<Ino, Known<()>>,
    listings: HashMap<Ino, Known<Listing>>,
    /// Number of entries of the listings.
    entries: usize,
}

impl State {
    fn clear(&mut self) {
        self.now += 1;
        self.cleared_at = self.now;
        self.changed_at.clear();
        self.attributes.clear();
        self.plain.clear();
        self.listings.clear();
        self.entries = 0;
    }

    /// Note that an inode has no extended attributes, if it has none.
    fn note_plain(&mut self, attr: &Attr, read_at: Moment, until: Instant) {
        if attr.extended || !self.is_unchanged(attr.ino, read_at) {
            return;
        }
        if self.plain.len() >= MAX_PLAIN {
            self.plain.clear();
        }
        self.plain.insert(attr.ino, Known { value: (), read_at, until });
    }

    /// Whether an inode has not changed since a request that was sent after `read_at`.
    fn is_unchanged(&self, ino: Ino, read_at: Moment) -> bool {
        self.changing_any == 0
            && self.cleared_at <= read_at
            && !self.changing.contains_key(&ino)
            && self.changed_at.get(&ino).is_none_or(|at| *at <= read_at)
    }

    /// Whether neither a directory nor an inode in it has changed.
    fn is_listing_unchanged(&self, dir: Ino, page: &DirPage, read_at: Moment) -> bool {
        self.is_unchanged(dir, read_at)
            && page.entries.iter().all(|entry| self.is_unchanged(entry.ino, read_at))
    }

    fn take_listing(&mut self, dir: Ino) -> Option<Known<Listing>> {
        let known = self.listings.remove(&dir)?;
        assert!(known.value.page.entries.len() <= self.entries, "each listing is counted");
        self.entries -= known.value.page.entries.len();
        Some(known)
    }

    /// Adds a listing, in place of all others if there are too many entries.
    fn put_listing(&mut self, dir: Ino, known: Known<Listing>) {
        let entries = known.value.page.entries.len();
        if self.entries + entries > MAX_ENTRIES {
            self.listings.clear();
            self.entries = 0;
        }
        self.take_listing(dir);
        self.entries += entries;
        self.listings.insert(dir, known);
    }

    /// The attributes at a position in the listing of a directory, `None` if there is no position, with
    /// their time to live at `now`. They are known although other entries have changed.
    fn find(
        &mut self,
        dir: Ino,
        now: Instant,
        position: impl FnOnce(&Positions) -> Option<Option<usize>>,
    ) -> Option<(Option<Attr>, Duration)> {
        let known = self.listings.get_mut(&dir)?;
        let ttl = time_to_live(known.until, now)?;
        let position = position(known.value.positions())?;
        let entry = position.and_then(|position| known.value.page.entries.get(position));
        let (attr, read_at) = (entry.and_then(|entry| entry.attr), known.read_at);
        let names_at = known.value.names_at;
        let is_unchanged = self.is_unchanged(dir, names_at)
            && attr.is_none_or(|attr| self.is_unchanged(attr.ino, read_at));
        is_unchanged.then_some((attr, ttl))
    }

    /// A change begins. `keeps_listing`: at most one entry changes of the directory that it is.
    fn begin(&mut self, ino: Ino, keeps_listing: bool) {
        let names_at = self.listings.get(&ino).map(|known| known.value.names_at);
        let keeps_listing =
            keeps_listing && names_at.is_some_and(|names_at| self.is_unchanged(ino, names_at));
        let listing = self.take_listing(ino).filter(|_| keeps_listing);
        self.now += 1;
        let first = Changing {
            count: 0,
            began_at: self.now,
            overlap: false,
            result: None,
            listing,
            entry: None,
        };
        let changing = self.changing.entry(ino).or_insert(first);
        changing.count += 1;
        changing.overlap |= changing.count > 1;
        self.attributes.remove(&ino);
        self.plain.remove(&ino);
    }

    fn end(&mut self, ino: Ino) {
        self.now += 1;
        let changing = self.changing.get_mut(&ino);
        assert!(changing.is_some(), "a change that ends has begun");
        let mut ended = None;
        if let Some(changing) = changing {
            changing.count -= 1;
            if changing.count == 0 {
                ended = self.changing.remove(&ino);
            }
        }
        self.changed_at.insert(ino, self.now);
        if self.changed_at.len() > MAX_CHANGED {
            self.clear();
        }
        let Some(Changing { began_at, overlap: false, result, listing, entry, .. }) = ended else {
            return;
        };
        if self.cleared_at > began_at {
            return;
        }
        if let Some((attr, until)) = result {
            assert_eq!(attr.ino, ino, "a change has the attributes of its inode");
            self.remember_attributes(&attr, self.now, until);
        }
        if let (Some(mut known), Some(entry)) = (listing, entry)
            && known.value.apply(entry, self.now)
        {
            self.put_listing(ino, known);
        }
    }

    fn remember_attributes(&mut self, attr: &Attr, read_at: Moment, until: Instant) {
        self.note_plain(attr, read_at, until);
        if attr.kind != FileKind::Dir {
            return; // the length of a file may change by mapped memory, and its links by any name
        }
        if !self.is_unchanged(attr.ino, read_at) {
            return;
        }
        if self.attributes.len() >= MAX_DIRECTORIES {
            self.attributes.clear();
        }
        self.attributes.insert(attr.ino, Known { value: *attr, read_at, until });
    }
}

/// The cache of a mount.
#[derive(Debug, Default)]
pub struct AttributeCache(Arc<Mutex<State>>);

/// A change that is under way until this is dropped.
#[derive(Debug)]
pub struct Change {
    state: Arc<Mutex<State>>,
    /// The inodes that change; empty: any.
    inos: Vec<Ino>,
}

impl AttributeCache {
    /// These inodes are about to change.
    pub fn change(&self, inos: impl Into<Vec<Ino>>) -> Change {
        let inos = inos.into();
        assert!(!inos.is_empty(), "a change has an inode");
        let mut state = self.0.lock();
        inos.iter().for_each(|ino| state.begin(*ino, false));
        drop(state);
        Change { state: self.0.clone(), inos }
    }

    /// An entry of a directory, of an inode that is no directory, is about to be created or removed.
    pub fn change_entry(&self, dir: Ino) -> Change {
        self.0.lock().begin(dir, true);
        Change { state: self.0.clone(), inos: vec![dir] }
    }

    /// Inodes whose numbers are not known here are about to change.
    pub fn change_any(&self) -> Change {
        self.0.lock().changing_any += 1;
        Change { state: self.0.clone(), inos: Vec::new() }
    }

    /// The lease is recalled.
    pub fn clear(&self) {
        self.0.lock().clear();
    }

    /// The present moment, for a request that is about to be sent.
    pub fn moment(&self) -> Moment {
        self.0.lock().now
    }

    /// The attributes of a directory with their time to live at `now`, if they are known.
    pub fn attributes(&self, ino: Ino, now: Instant) -> Option<(Attr, Duration)> {
        let state = self.0.lock();
        let known = state.attributes.get(&ino)?;
        let ttl = time_to_live(known.until, now)?;
        state.is_unchanged(ino, known.read_at).then_some((known.value, ttl))
    }

    /// Attributes were requested after `read_at`, and are valid until `until`.
    pub fn remember_attributes(&self, attr: &Attr, read_at: Moment, until: Instant) {
        self.0.lock().remember_attributes(attr, read_at, until);
    }

    /// The reply to a change of an entry contains the attributes of its directory, valid until `until`.
    /// They are known from the end of the change, unless another one of the directory, or a recall, comes
    /// before it.
    pub fn note_changed_directory(&self, attr: &Attr, until: Instant) {
        if let Some(changing) = self.0.lock().changing.get_mut(&attr.ino) {
            changing.result = Some((*attr, until));
        }
    }

    /// Whether an inode is known to have no extended attributes.
    pub fn is_plain(&self, ino: Ino, now: Instant) -> bool {
        let state = self.0.lock();
        let known = state.plain.get(&ino);
        known.is_some_and(|known| known.until > now && state.is_unchanged(ino, known.read_at))
    }

    /// All entries of a directory with their time to live at `now`, if they are known.
    pub fn listing(&self, dir: Ino, now: Instant) -> Option<(Arc<DirPage>, Duration)> {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let known = state.listings.get(&dir)?;
        let (page, read_at) = (known.value.page.clone(), known.read_at);
        let ttl = time_to_live(known.until, now)?;
        if known.value.is_changed {
            return None;
        }
        if known.value.unchanged_at != Some(state.now) {
            if !state.is_listing_unchanged(dir, &page, read_at) {
                return None;
            }
            let (now, known) = (state.now, state.listings.get_mut(&dir)?);
            (known.read_at, known.value.unchanged_at) = (now, Some(now));
            known.value.names_at = now;
        }
        (state.changing_any == 0).then_some((page, ttl))
    }

    /// The entry of a directory, or `None` if it has none of that name, with the time to live of either at
    /// `now`, if that is known.
    pub fn entry(&self, dir: Ino, name: &[u8], now: Instant) -> Option<(Option<Attr>, Duration)> {
        self.0.lock().find(dir, now, |positions| positions.of_name(name))
    }

    /// The attributes of an inode in a directory with their time to live at `now`, if they are known.
    pub fn listed_attributes(&self, dir: Ino, ino: Ino, now: Instant) -> Option<(Attr, Duration)> {
        let find = |positions: &Positions| Some(positions.of_inode(ino));
        let (attr, ttl) = self.0.lock().find(dir, now, find)?;
        attr.map(|attr| (attr, ttl))
    }

    /// Whether an inode changes, or is open.
    pub fn is_changing(&self, ino: Ino) -> bool {
        self.0.lock().changing.contains_key(&ino)
    }

    /// A directory was read after `read_at`, from its beginning; what was read is valid until `until`.
    /// `false`: it cannot be cached. Inodes in it that change meanwhile are not answered from the cache.
    pub fn remember_listing(
        &self,
        dir: Ino,
        page: &Arc<DirPage>,
        read_at: Moment,
        until: Instant,
    ) -> bool {
        let mut state = self.0.lock();
        for attr in page.entries.iter().filter_map(|entry| entry.attr.as_ref()) {
            state.note_plain(attr, read_at, until);
        }
        if !is_complete(page) || page.entries.len() > MAX_ENTRIES {
            return false;
        }
        if !state.is_unchanged(dir, read_at) {
            return false;
        }
        // Without a change in between, what was valid is valid.
        let is_unchanged = state.is_listing_unchanged(dir, page, read_at);
        let read_at = if is_unchanged { state.now } else { read_at };
        let unchanged_at = is_unchanged.then_some(state.now);
        let value = Listing::new(page.clone(), unchanged_at, read_at);
        state.put_listing(dir, Known { value, read_at, until });
        true
    }
}

/// Whether a page has all entries with attributes that change by known changes only: those of a file
/// with several links change also when another name is removed.
fn is_complete(page: &DirPage) -> bool {
    let has_one_name = |attr: &Attr| attr.kind == FileKind::Dir || attr.nlink == 1;
    page.end && page.entries.iter().all(|entry| entry.attr.as_ref().is_some_and(has_one_name))
}

fn time_to_live(until: Instant, now: Instant) -> Option<Duration> {
    until.checked_duration_since(now).filter(|ttl| !ttl.is_zero())
}

impl Change {
    /// The entry was created, if it did not exist.
    pub fn created(&self, name: &[u8]) {
        self.note(EntryChange::Created(name.to_owned()));
    }

    /// The entry was removed.
    pub fn removed(&self, name: &[u8]) {
        self.note(EntryChange::Removed(name.to_owned()));
    }

    fn note(&self, change: EntryChange) {
        let [dir] = self.inos[..] else {
            unreachable!("a change of an entry is one of its directory");
        };
        if let Some(changing) = self.state.lock().changing.get_mut(&dir) {
            changing.entry = Some(change);
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if self.inos.is_empty() {
            state.changing_any -= 1;
            state.clear();
        }
        self.inos.iter().for_each(|ino| state.end(*ino));
    }
}

#[cfg(test)]
mod tests;
