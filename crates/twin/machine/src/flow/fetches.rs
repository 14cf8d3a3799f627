//! Times at which the data of writes are at their servers, without waits for the network.
//!
//! A server fetches the data of requests in the order in which they arrive, as fast as its data paths carry them;
//! a client sends what is fetched in the order of the fetches, at its rate, when it has moved the data of the process.

use super::extent_waits::WriteRequest;
use super::runs::{Run, Runs};
use crate::io::IoJob;
use forebay_machine_file::machine::Client;
use forebay_units::Bytes;
use rustc_hash::FxHashMap;

/// Servers and clients that are busy with the data of earlier requests.
#[derive(Clone, Debug)]
pub(super) struct Fetches {
    /// End of the dispatch of all requests so far, by server, ps.
    dispatched: Vec<u64>,
    /// End of the time for which each data path is reserved, ps.
    fetched: Vec<u64>,
    /// End of the time for which the client moves the data of a process, by rank, ps; of processes with a rate of
    /// their own.
    moved: FxHashMap<u32, u64>,
    /// End of the time for which the client of each node sends, ps.
    sent: Vec<u64>,
}

/// A request before its data are sent.
struct Fetch {
    at: u64,
    rank: u32,
    request: WriteRequest,
    bytes: Bytes,
}

impl Fetches {
    pub fn new(job: &IoJob) -> Fetches {
        Fetches {
            dispatched: vec![0; job.storage.servers().len()],
            fetched: vec![0; job.storage.paths().len()],
            moved: FxHashMap::default(),
            sent: vec![0; job.nodes.len()],
        }
    }

    /// The requests of runs, each of which starts at a time, ps.
    pub fn requests(
        &mut self,
        job: &IoJob,
        runs: &Runs<'_>,
        started: &[(u64, u32, Run)],
    ) -> Vec<WriteRequest> {
        let mut fetches = Vec::new();
        for (of_run, (at, rank, run)) in (0..).zip(started) {
            let node = runs.pattern.node_of(*rank);
            for piece in job.pieces(run.offset, run.bytes) {
                let key = runs.object_at(*rank, piece.offset);
                let place = run.objects.binary_search_by_key(&key, |(key, _)| *key);
                let Ok(of_object) = place else { unreachable!("an object of the run: {key:?}") };
                let request = WriteRequest {
                    at: 0,
                    object: (key.0, key.1),
                    node,
                    extent: piece.offset..piece.offset + piece.bytes,
                    of: (of_run, of_object as u32),
                };
                let bytes = Bytes(piece.bytes);
                let at = self.fetch(job, (*at, key.1), bytes);
                fetches.push(Fetch { at, rank: *rank, request, bytes });
            }
        }
        fetches.sort_by_key(|fetch| fetch.at);
        let mut has_process_rates = false;
        for fetch in &mut fetches {
            let client = client_of(job, fetch.request.node);
            let Some(rate) = client.process.write else { continue };
            has_process_rates = true;
            let moved = self.moved.entry(fetch.rank).or_default();
            *moved = fetch.at.max(*moved) + rate.time_for(fetch.bytes).0;
            fetch.at = *moved;
        }
        if has_process_rates {
            fetches.sort_by_key(|fetch| fetch.at);
        }
        let send = |Fetch { at, request, bytes, .. }: Fetch| {
            let client = client_of(job, request.node);
            let sent = &mut self.sent[request.node as usize];
            let began = at.max(*sent);
            *sent = began + client.write_rate.time_for(bytes).0;
            // The client hands the data to the interface of its node, whose link is faster.
            WriteRequest { at: began + job.node_link.time_for(bytes).0, ..request }
        };
        fetches.into_iter().map(send).collect()
    }

    /// The time at which a server fetches the data of a request that reaches it at the time `at`, ps.
    fn fetch(&mut self, job: &IoJob, (at, server): (u64, u32), bytes: Bytes) -> u64 {
        let dispatched = &mut self.dispatched[server as usize];
        *dispatched = at.max(*dispatched) + job.burst_buffer.dispatch.0;
        let mut begins = *dispatched;
        for &path in &job.storage.servers()[server as usize].paths {
            let rate = job.storage.paths()[path as usize].rate;
            let fetched = &mut self.fetched[path as usize];
            let began = (*fetched).max(*dispatched);
            *fetched = began + rate.time_for(bytes).0;
            begins = begins.max(began);
        }
        begins
    }
}

/// The client of a node of the job.
fn client_of(job: &IoJob, node: u32) -> &Client {
    &job.clients[usize::from(job.client_of_node[node as usize])]
}
