//! The first reads of all processes.
//!
//! A server's disks serve requests in the order in which they reach it; the interface of its node sends some
//! messages at a time and holds up those behind them, also where these go to other nodes; the link of a client's
//! node gets messages of all servers at the same time; and the client takes a message in when it is whole, one
//! after another.

use super::network::Network;
use super::parts::{Part, way_of_request};
use crate::io::{IoJob, PS_PER_SECOND};
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;

/// The first reads of all processes.
pub(super) struct FirstReads<'a> {
    pub job: &'a IoJob,
    pub parts: &'a [Part],
    /// Rates of the servers, bytes per picosecond.
    pub rates: &'a FxHashMap<u32, f64>,
    /// Times are rounded up to a multiple of it, ps.
    pub resolution: u64,
}

impl FirstReads<'_> {
    /// Durations of the calls that consist of these parts, ps, in the order of the starts, without the latencies of
    /// requests.
    pub fn simulate(&self, parts: &[usize], starts: &[(u64, u32)]) -> Vec<f64> {
        let origin = starts.first().map_or(0, |start| start.0);
        let arrives = |number: &usize| {
            let part = &self.parts[*number];
            (starts[part.process].0 - origin + way_of_request(self.job, part), *number)
        };
        let mut requests: Vec<(u64, usize)> = parts.iter().map(arrives).collect();
        requests.sort_unstable();
        let mut disks: FxHashMap<u32, f64> = FxHashMap::default();
        let mut ready: Vec<(u64, usize)> = Vec::with_capacity(parts.len());
        for (arrives, number) in requests {
            let part = &self.parts[number];
            let free = disks.entry(part.server).or_default();
            let began = free.max(arrives as f64);
            *free = began + part.bytes / self.rates[&part.server];
            // The messages of the first requests are on their way while the others are read.
            let in_time = (part.bytes / part.requests as f64) / self.rates[&part.server];
            ready.push(((began + in_time) as u64, number));
        }
        ready.sort_unstable();
        let of_job = (self.job, Access::Read);
        let mut network = Network::new(of_job, (self.parts, parts), self.resolution);
        let mut ready = ready.into_iter().peekable();
        let mut clients: FxHashMap<u32, f64> = FxHashMap::default();
        let mut ends = vec![0.0_f64; starts.len()];
        while let Some(arrived) = network.advance(ready.peek().map_or(u64::MAX, |next| next.0)) {
            for number in arrived {
                let part = &self.parts[number];
                let client =
                    &self.job.clients[usize::from(self.job.client_of_node[part.node as usize])];
                let takes = part.bytes * PS_PER_SECOND as f64 / client.read_rate.0 as f64;
                let free = clients.entry(part.node).or_default();
                *free = free.max(network.now() as f64) + takes;
                let start = (starts[part.process].0 - origin) as f64;
                ends[part.process] = ends[part.process].max(*free - start);
            }
            while let Some((_, number)) = ready.next_if(|next| next.0 <= network.now()) {
                network.push(number);
            }
        }
        ends
    }
}
