//! Waits of writes to a shared file for the locks of other clients on extents of its objects.
//!
//! On a parallel file system a client that needs a lock calls back those of others, and keeps them waiting
//! until the data that it wrote under its own are on disk. How many requests wait follows from their order at
//! each object, which does not depend on rates: a client sends the data of its processes in the order of their
//! calls, all clients at the same time, so that their requests alternate at an object, and nearly each of
//! them can call back the lock of the one before. The locks are therefore those of the packets' servers
//! ([`ExtentLocks`]), for all requests of runs when these are prepared; requests arrive at the rate of the
//! clients.

use super::fabric::Resource;
use crate::io::{ExtentLocks, ObjectOfFile};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// Times of requests at an object, ps.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallbackTimes {
    /// Messages to the clients whose locks are called back, and from them.
    pub messages: u64,
    /// Until a request that does not wait at the disks is on them.
    pub on_disk: u64,
    /// For which a request takes all disks of the object's target.
    pub disks: u64,
}

/// A request of a write.
#[derive(Clone, Debug)]
pub(super) struct WriteRequest {
    /// Time at which its data are at the object's server, ps.
    pub at: u64,
    pub object: ObjectOfFile,
    pub node: u32,
    /// Bytes of the file.
    pub extent: Range<u64>,
    /// Number of the object among those of its run, and of the run.
    pub of: (u32, u32),
}

/// Waits of a run's requests to one object.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Callbacks {
    /// Time of all call-backs, ps.
    pub waited: f64,
    pub requests: f64,
    /// Time at which the last one is on disk, ps.
    pub until: u64,
}

/// An object as its requests find it, ps.
#[derive(Clone, Copy, Debug, Default)]
struct Busy {
    /// Its requests ask for their locks one after another: end of the last call-back.
    locks_until: u64,
    /// Time at which the disks have done what they were asked for.
    disks_until: u64,
}

/// The locks of writers on the objects of shared files.
#[derive(Clone, Debug)]
pub(super) struct ExtentWaits {
    times: CallbackTimes,
    locks: ExtentLocks,
    objects: FxHashMap<ObjectOfFile, Busy>,
}

impl ExtentWaits {
    pub fn new(times: CallbackTimes) -> Self {
        ExtentWaits { times, locks: ExtentLocks::default(), objects: FxHashMap::default() }
    }

    /// The resource that keeps requests with these waits from being on disk earlier: an object's requests ask for
    /// their locks one after another, and its disks serve them one after another; the slower of the two.
    pub fn limit_of(&self, callbacks: &Callbacks) -> Resource {
        match callbacks.waited > callbacks.requests * self.times.disks as f64 {
            true => Resource::Lock,
            false => Resource::Ssd,
        }
    }

    /// Grants the locks of requests in the order of their arrival; those that arrive together in the given
    /// order. `count` gets the run and object of each, the time that its call-back takes, and that at which its
    /// data are on disk, ps.
    pub fn grant(
        &mut self,
        mut requests: Vec<WriteRequest>,
        mut count: impl FnMut((u32, u32), (u64, u64)),
    ) {
        requests.sort_by_key(|request| request.at);
        let CallbackTimes { messages, on_disk, disks } = self.times;
        for WriteRequest { at, object, node, extent, of } in requests {
            let busy = self.objects.entry(object).or_default();
            let asked = at.max(busy.locks_until);
            let offset = extent.start;
            let called_back = self.locks.enqueue(object, node, extent, true);
            let callback = called_back.map_or(0, |flushed| {
                let to_clients = messages / 2;
                to_clients.max(flushed.saturating_sub(asked)) + (messages - to_clients)
            });
            busy.locks_until = asked + callback;
            // The disks work on several requests at a time: one that does not wait takes longer than its share.
            busy.disks_until = busy.disks_until.max(busy.locks_until) + disks;
            let done = busy.disks_until.max(busy.locks_until + on_disk);
            self.locks.note_flush(object, node, offset, done);
            count(of, (callback, done));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: CallbackTimes =
        CallbackTimes { messages: 40_000_000, on_disk: 1_020_000_000, disks: 250_000_000 };

    fn waits(locks: &mut ExtentWaits, requests: &[(u64, u32, u64)]) -> Vec<u64> {
        let request = |&(at, node, mib): &(u64, u32, u64)| WriteRequest {
            at,
            object: (1, 0),
            node,
            extent: mib << 20..(mib + 1) << 20,
            of: (0, 0),
        };
        let mut found = Vec::new();
        locks.grant(requests.iter().map(request).collect(), |_, (waited, _)| found.push(waited));
        found
    }

    /// Nodes 1, 2 and 3 write parts of their own at the same time: each calls back the lock of the one before,
    /// whose data are on disk 1,020 us after it has asked, of which the message to it takes 20.
    #[test]
    fn each_of_several_writers_waits_until_the_write_before_is_on_disk() {
        let mut locks = ExtentWaits::new(TIMES);
        let first = waits(&mut locks, &[(0, 1, 0), (0, 2, 100), (0, 3, 200)]);
        assert_eq!(first, [0, 1_040_000_000, 1_040_000_000]);
        // Much later: node 1 gets what is before node 3's lock. Node 2 calls this back, whose data are on disk, and
        // leaves it what follows the part of node 3.
        let later = [(90_000_000_000, 1, 1), (90_000_000_000, 2, 101), (90_000_000_000, 3, 201)];
        assert_eq!(waits(&mut locks, &later), [0, 40_000_000, 0]);
    }

    /// Requests of one node do not wait; one of another node waits for the disks, which are busy with 8 requests
    /// for 2 ms.
    #[test]
    fn writer_waits_for_all_that_the_disks_have_to_do() {
        let mut locks = ExtentWaits::new(TIMES);
        let mut requests: Vec<(u64, u32, u64)> = (0..8).map(|mib| (0, 1, mib)).collect();
        requests.push((0, 2, 100));
        let found = waits(&mut locks, &requests);
        assert_eq!(found[..8], [0; 8]);
        assert_eq!(found[8], 2_020_000_000);
        let of = |requests: &[u64]| Callbacks {
            waited: requests.iter().sum::<u64>() as f64,
            requests: requests.len() as f64,
            until: 0,
        };
        assert_eq!(locks.limit_of(&of(&found[..8])), Resource::Ssd);
        assert_eq!(locks.limit_of(&of(&found[8..])), Resource::Lock);
    }

    /// A message each way is enough if the data are on disk.
    #[test]
    fn lock_whose_data_are_on_disk_is_called_back_by_messages() {
        let mut locks = ExtentWaits::new(TIMES);
        assert_eq!(waits(&mut locks, &[(0, 1, 0), (5_000_000_000, 2, 100)]), [0, 40_000_000]);
    }
}
