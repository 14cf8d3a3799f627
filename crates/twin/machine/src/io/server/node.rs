//! One server and the data paths of servers: their resources.

use super::page_cache::PageCache;
use super::ready::{ReadyRequests, ServerQueues};
use crate::io::locks::Locks;
use crate::io::measure::ServerUsage;
use crate::io::ssd::Ssd;
use forebay_machine_file::machine::BurstBuffer;
use forebay_units::{Bytes, Rate};

/// A resource that serves one request after another.
#[derive(Default)]
pub(crate) struct SerialResource {
    /// End of the last reservation, ps.
    free_at: u64,
    /// Sum of all reservations, ps.
    busy: u64,
}

impl SerialResource {
    /// Time spent up to `now`, ps: reservations without their parts in the future, which follow
    /// each other without gaps.
    fn busy_until(&self, now: u64) -> u64 {
        self.busy - self.free_at.saturating_sub(now)
    }
}

impl SerialResource {
    /// Reserves the resource for `duration` from `now` on, as soon as it is free; returns the start.
    pub fn reserve(&mut self, now: u64, duration: u64) -> u64 {
        let start = self.free_at.max(now);
        self.free_at = start + duration;
        self.busy += duration;
        start
    }

    /// Work of `duration` that was under way while its input arrived, until `now`; returns the time
    /// at which it ends: `now`, unless the resource was busy.
    pub fn finish(&mut self, now: u64, duration: u64) -> u64 {
        self.reserve(now.saturating_sub(duration), duration) + duration
    }
}

/// A data path: of one server, or of several behind one node.
pub(crate) struct Path {
    rate: Rate,
    /// From clients, reserved when the data are requested: paces the requests.
    inbound: SerialResource,
    /// The same direction as it is used when the data arrive.
    arriving: SerialResource,
    outbound: SerialResource,
}

impl Path {
    pub fn new(rate: Rate) -> Self {
        Path {
            rate,
            inbound: SerialResource::default(),
            arriving: SerialResource::default(),
            outbound: SerialResource::default(),
        }
    }

    /// Time for `bytes`, ps.
    pub fn time(&self, bytes: u64) -> u64 {
        self.rate.time_for(Bytes(bytes)).0
    }

    /// Reserves it for data that a server requests; returns the start.
    pub fn request(&mut self, now: u64, bytes: u64) -> u64 {
        self.inbound.reserve(now, self.time(bytes))
    }

    /// Takes in data that have arrived; returns the end.
    pub fn take_in(&mut self, now: u64, bytes: u64) -> u64 {
        self.arriving.finish(now, self.time(bytes))
    }

    /// Reserves it for data that a server sends; returns the start.
    pub fn send(&mut self, now: u64, bytes: u64) -> u64 {
        self.outbound.reserve(now, self.time(bytes))
    }

    /// Busy times up to `now`, in and out, ps.
    pub fn busy_until(&self, now: u64) -> (u64, u64) {
        (self.inbound.busy_until(now), self.outbound.busy_until(now))
    }
}

/// One server: a burst-buffer node, or a target or metadata server of the parallel file system.
pub(crate) struct Server {
    /// The machine's number of the node through which it is reached.
    pub node: u32,
    pub dispatch: SerialResource,
    /// Its data paths, by their index in the group.
    pub paths: Vec<u32>,
    pub metadata: SerialResource,
    idle_threads: u32,
    /// A process has at most `requests_in_flight` of them.
    ready: ReadyRequests,
    /// Limits of the jobs' rates, by number of the job.
    limits: Vec<SerialResource>,
    pub locks: Locks,
    pub(super) cache: PageCache,
    pub ssd: Ssd,
    /// Threads in total.
    threads: u32,
}

impl Server {
    /// `paths` are its data paths, by their index in the group.
    pub fn new(node: u32, paths: Vec<u32>, make: &BurstBuffer, order: ServerQueues) -> Self {
        Server {
            node,
            dispatch: SerialResource::default(),
            paths,
            metadata: SerialResource::default(),
            idle_threads: make.threads,
            ready: ReadyRequests::new(order),
            limits: Vec::new(),
            locks: Locks::default(),
            cache: PageCache::new(make),
            ssd: Ssd::new(make),
            threads: make.threads,
        }
    }

    /// The time from which a job with a limited rate may move `bytes` more.
    pub fn permit(&mut self, job: u8, limit: Rate, bytes: u64, now: u64) -> u64 {
        let job = usize::from(job);
        if job >= self.limits.len() {
            self.limits.resize_with(job + 1, SerialResource::default);
        }
        self.limits[job].reserve(now, limit.time_for(Bytes(bytes)).0)
    }

    /// Takes a thread for a request of a job; queues the request and returns false if none is idle.
    pub fn take_thread(&mut self, request: u32, job: u8) -> bool {
        let idle = self.idle_threads > 0;
        if idle {
            self.idle_threads -= 1;
        } else {
            self.ready.push(request, job);
        }
        idle
    }

    /// Releases a thread; returns the queued request that takes it, if any.
    pub fn release_thread(&mut self) -> Option<u32> {
        let next = self.ready.pop();
        if next.is_none() {
            self.idle_threads += 1;
            assert!(self.idle_threads <= self.threads, "a thread released twice");
        }
        next
    }

    /// Busy times up to `now`, ps, without those of its data paths.
    pub fn usage(&self, now: u64) -> ServerUsage {
        ServerUsage {
            dispatch: self.dispatch.busy_until(now),
            metadata: self.metadata.busy_until(now),
            channels: self.ssd.busy_until(now),
            ..ServerUsage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_arrive_together_are_taken_in_at_the_rate_of_the_path() {
        let mut path = SerialResource::default();
        // The data of three requests end to arrive at the same time: one was taken in on the way,
        // each of the others takes 100 more.
        assert_eq!([1_000, 1_000, 1_000].map(|now| path.finish(now, 100)), [1_000, 1_100, 1_200]);
        // A pause: the path is idle again.
        assert_eq!(path.finish(5_000, 100), 5_000);
        assert_eq!(path.busy_until(5_000), 400);
    }
}
