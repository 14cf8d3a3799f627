//! Locks of clients on extents of the objects of a parallel file system, as Lustre's distributed lock
//! manager grants them.
//!
//! A client that writes needs a lock on the extent; one that it holds already costs nothing. Otherwise
//! the locks of others on the extent are called back, and the client gets a lock on as much more of the
//! object as nobody else holds: up to the locks of others, and up to the extents for which the ones
//! called back had been requested. A client that reads calls back the locks of writers; locks of readers
//! are not kept.
//!
//! A client that is called back keeps its lock until the data that it has written under it are on disk.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// A file's object on a server.
pub(crate) type ObjectOfFile = (u64, u32);

/// A lock of a writer, in a map by the first byte of its extent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct WriteLock {
    end: u64,
    /// The extent for which it was requested.
    requested: Range<u64>,
    client: u32,
    /// Time at which all data written under it are on disk, ps.
    flushed: u64,
}

/// The locks of writers, by object. Offsets are those of the file; locks of an object do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtentLocks {
    objects: FxHashMap<ObjectOfFile, BTreeMap<u64, WriteLock>>,
}

impl ExtentLocks {
    /// A client accesses an extent. If locks of others had to be called back, returns the time at which
    /// the data written under them are on disk, ps.
    pub fn enqueue(
        &mut self,
        object: ObjectOfFile,
        client: u32,
        extent: Range<u64>,
        is_write: bool,
    ) -> Option<u64> {
        assert!(!extent.is_empty(), "a lock on no bytes of {object:?}");
        let page = crate::storage::PAGE.0;
        let extent = extent.start / page * page..extent.end.next_multiple_of(page);
        let locks = self.objects.entry(object).or_default();
        let before = locks.range(..=extent.start).next_back();
        let is_held =
            before.is_some_and(|(_, lock)| lock.client == client && lock.end >= extent.end);
        if is_held {
            return None;
        }
        let called_back = call_back(locks, client, &extent);
        let flushed = called_back.iter().map(|lock| lock.flushed).max();
        if is_write {
            grant(locks, client, extent, &called_back);
        }
        flushed
    }

    /// Data that a client has written at `offset`, under a lock that it holds, are on disk at `at`, ps.
    pub fn note_flush(&mut self, object: ObjectOfFile, client: u32, offset: u64, at: u64) {
        let locks = self.objects.get_mut(&object);
        let lock = locks.and_then(|locks| locks.range_mut(..=offset).next_back());
        let Some((_, lock)) = lock.filter(|(_, lock)| lock.client == client && lock.end > offset)
        else {
            unreachable!("client {client} writes at {offset} of {object:?} without a lock")
        };
        lock.flushed = lock.flushed.max(at);
    }
}

/// Takes the locks of other clients on an extent away.
fn call_back(
    locks: &mut BTreeMap<u64, WriteLock>,
    client: u32,
    extent: &Range<u64>,
) -> Vec<WriteLock> {
    let first = locks.range(..=extent.start).next_back().map_or(extent.start, |(start, _)| *start);
    let overlaps = |lock: &(&u64, &WriteLock)| lock.1.end > extent.start && lock.1.client != client;
    let conflicting: Vec<u64> =
        locks.range(first..extent.end).filter(overlaps).map(|(start, _)| *start).collect();
    conflicting.into_iter().filter_map(|start| locks.remove(&start)).collect()
}

/// Grants a lock on an extent, extended on both sides; locks of the same client become part of it.
fn grant(
    locks: &mut BTreeMap<u64, WriteLock>,
    client: u32,
    requested: Range<u64>,
    called_back: &[WriteLock],
) {
    let (mut start, mut end) = (0, u64::MAX);
    for limit in called_back.iter().map(|lock| &lock.requested) {
        if limit.end <= requested.start {
            start = start.max(limit.end);
        } else if limit.start >= requested.end {
            end = end.min(limit.start);
        }
    }
    let below = locks.range(..requested.end).rev().find(|(_, lock)| lock.client != client);
    start = below.map_or(start, |(_, lock)| start.max(lock.end));
    let above = locks.range(requested.end..).find(|(_, lock)| lock.client != client);
    end = above.map_or(end, |(other, _)| end.min(*other));
    assert!(start <= requested.start && end >= requested.end, "a lock that others hold");
    // Own locks that reach beyond stay whole.
    let own: Vec<u64> = locks
        .range(..end)
        .rev()
        .take_while(|(_, lock)| lock.end > start && lock.client == client)
        .map(|(own, _)| *own)
        .collect();
    let mut flushed = 0;
    for own in own {
        let Some(lock) = locks.remove(&own) else { unreachable!("a lock that was found") };
        (start, end) = (start.min(own), end.max(lock.end));
        flushed = flushed.max(lock.flushed);
    }
    locks.insert(start, WriteLock { end, requested, client, flushed });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const OBJECT: ObjectOfFile = (1, 0);

    fn write(locks: &mut ExtentLocks, client: u32, mib: Range<u64>) -> bool {
        locks.enqueue(OBJECT, client, mib.start * MIB..mib.end * MIB, true).is_some()
    }

    #[test]
    fn lone_writer_gets_the_whole_object_with_its_first_lock() {
        let mut locks = ExtentLocks::default();
        assert!(!write(&mut locks, 7, 3..4));
        assert!((0..100).all(|mib| !write(&mut locks, 7, mib..mib + 1)));
    }

    /// Each of three clients writes a part of 100 MiB. The first has the object; the second calls it back
    /// and gets what follows the first's request; the third likewise. The second then calls the third
    /// back once and gets the space up to its request, and from then on each has its part.
    #[test]
    fn writers_of_separate_parts_need_few_callbacks() {
        let mut locks = ExtentLocks::default();
        let mut calls = [0; 3];
        for step in 0..100 {
            for client in 0..3 {
                let at = u64::from(client) * 100 + step;
                calls[client as usize] += u32::from(write(&mut locks, client, at..at + 1));
            }
        }
        assert_eq!(calls, [0, 2, 1], "client 0 keeps what is before the others' requests");
    }

    #[test]
    fn writers_in_turn_call_each_other_back_with_each_write() {
        let mut locks = ExtentLocks::default();
        let calls = (0..100).filter(|&mib| write(&mut locks, mib as u32 % 2, mib..mib + 1)).count();
        assert_eq!(calls, 99);
    }

    #[test]
    fn reader_calls_back_a_writer_once_and_readers_share() {
        let mut locks = ExtentLocks::default();
        write(&mut locks, 1, 0..1);
        let mut read = |client| locks.enqueue(OBJECT, client, 0..MIB, false);
        assert_eq!(read(1), None, "its own data");
        assert_eq!(read(2), Some(0));
        assert_eq!(read(3), None);
    }

    #[test]
    fn writes_to_one_page_conflict_although_their_bytes_do_not() {
        let mut locks = ExtentLocks::default();
        locks.enqueue(OBJECT, 1, 0..100, true);
        assert!(locks.enqueue(OBJECT, 2, 100..200, true).is_some());
        assert!(locks.enqueue(OBJECT, 1, 200..300, true).is_some());
    }

    #[test]
    fn lock_that_is_called_back_is_held_until_its_data_are_on_disk() {
        let mut locks = ExtentLocks::default();
        let mut write = |client, mib: u64, flushed| {
            let extent = mib * MIB..(mib + 1) * MIB;
            let waits = locks.enqueue(OBJECT, client, extent, true);
            locks.note_flush(OBJECT, client, mib * MIB, flushed);
            waits
        };
        assert_eq!(write(1, 0, 700), None);
        assert_eq!(write(1, 5, 500), None);
        assert_eq!(write(2, 8, 900), Some(700), "the write that ends last");
        assert_eq!(write(1, 0, 950), None, "before the extent of client 2");
        assert_eq!(write(1, 1, 200), Some(900));
        assert_eq!(write(2, 3, 990), Some(950), "its lock of before is part of the new one");
    }

    proptest! {
        #[test]
        fn locks_never_overlap_and_cover_the_last_write(
            writes in prop::collection::vec((0u32..5, 0u64..60, 1u64..8), 1..120)
        ) {
            let mut locks = ExtentLocks::default();
            for (client, at, length) in writes {
                write(&mut locks, client, at..at + length);
                let all = &locks.objects[&OBJECT];
                let mut last = 0;
                for (start, lock) in all {
                    prop_assert!(*start >= last && lock.end > *start);
                    last = lock.end;
                }
                let before = locks.objects.clone();
                prop_assert!(!write(&mut locks, client, at..at + length));
                prop_assert_eq!(&before, &locks.objects);
            }
        }
    }
}
