//! The first writes of all processes.
//!
//! A client has some requests of a call under way at a time. A server dispatches them in the order in which they
//! reach it, and fetches their data one after another, as fast as its data paths carry them; a client sends what is
//! fetched in the order of the fetches, at its rate; the interface of its node sends some messages at a time; and the
//! flash serves requests in the order in which their data have arrived. So the last requests of several processes
//! may meet at a server, while others are idle.

use super::network::Network;
use super::parts::{Part, way_of_request};
use crate::io::{IoJob, PS_PER_SECOND, ServerRates};
use forebay_units::Bytes;
use forebay_workload::ior::Access;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The first writes of all processes; each part is one request.
pub(super) struct FirstWrites<'a> {
    pub job: &'a IoJob,
    pub parts: &'a [Part],
    /// Times are rounded up to a multiple of it, ps.
    pub resolution: u64,
}

/// A request and the step of its way that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// It reaches its server.
    Arrive,
    /// The server fetches its data.
    Fetch,
    /// The client hands them to the interface of its node.
    Send,
    /// They are on flash.
    Done,
}

/// Clients and servers while the calls are simulated. Times in ps.
struct State<'a> {
    writes: &'a FirstWrites<'a>,
    /// Steps by their times; those at the same time in the order of the requests.
    steps: BinaryHeap<Reverse<(u64, usize, Step)>>,
    /// Requests of each process that it has not sent, the next one last.
    unsent: Vec<Vec<usize>>,
    /// End of the dispatch of all requests so far, by server.
    dispatched: FxHashMap<u32, u64>,
    /// End of the time for which each data path is reserved for fetches.
    fetched: FxHashMap<u32, u64>,
    /// End of the time for which the client of each node sends.
    sent: FxHashMap<u32, u64>,
    /// End of the time for which each data path takes in data.
    taken_in: FxHashMap<u32, u64>,
    /// End of the time for which the flash of each server is busy.
    flash: FxHashMap<u32, f64>,
    /// By bytes of a request: time for which it takes all of a server's flash, and time until it is there.
    times: FxHashMap<u64, (f64, u64)>,
}

impl FirstWrites<'_> {
    /// Durations of the calls that consist of these parts, ps, in the order of the starts, without the latencies of
    /// requests.
    pub fn simulate(&self, parts: &[usize], starts: &[(u64, u32)]) -> Vec<f64> {
        let origin = starts.first().map_or(0, |start| start.0);
        let of_job = (self.job, Access::Write);
        let mut network = Network::new(of_job, (self.parts, parts), self.resolution);
        let mut state = State::new(self, starts.len());
        parts.iter().rev().for_each(|number| {
            state.unsent[self.parts[*number].process].push(*number);
        });
        for (process, (start, _)) in starts.iter().enumerate() {
            for _ in 0..self.job.client.requests_in_flight.max(1) {
                state.send_next(process, start - origin);
            }
        }
        let mut ends = vec![0.0_f64; starts.len()];
        while let Some(arrived) = network.advance(state.next_time()) {
            let now = network.now();
            arrived.into_iter().for_each(|number| state.write(number, now));
            while let Some((number, step)) = state.next_until(now) {
                match step {
                    Step::Arrive => state.dispatch(number, now),
                    Step::Fetch => state.fetch(number, now),
                    Step::Send => network.push(number),
                    Step::Done => {
                        let process = self.parts[number].process;
                        ends[process] = (now - (starts[process].0 - origin)) as f64;
                        state.send_next(process, now);
                    }
                }
            }
        }
        ends
    }
}

impl<'a> State<'a> {
    fn new(writes: &'a FirstWrites<'a>, processes: usize) -> State<'a> {
        State {
            writes,
            steps: BinaryHeap::new(),
            unsent: vec![Vec::new(); processes],
            dispatched: FxHashMap::default(),
            fetched: FxHashMap::default(),
            sent: FxHashMap::default(),
            taken_in: FxHashMap::default(),
            flash: FxHashMap::default(),
            times: FxHashMap::default(),
        }
    }

    /// The time of the next step; `u64::MAX` without one.
    fn next_time(&self) -> u64 {
        self.steps.peek().map_or(u64::MAX, |Reverse((at, ..))| *at)
    }

    /// Takes the next step that is due.
    fn next_until(&mut self, now: u64) -> Option<(usize, Step)> {
        if self.next_time() > now {
            return None;
        }
        self.steps.pop().map(|Reverse((_, number, step))| (number, step))
    }

    fn at(&mut self, at: u64, number: usize, step: Step) {
        self.steps.push(Reverse((at, number, step)));
    }

    /// A process sends the next request of its call, if there is one.
    fn send_next(&mut self, process: usize, now: u64) {
        if let Some(number) = self.unsent[process].pop() {
            let way = way_of_request(self.writes.job, &self.writes.parts[number]);
            self.at(now + way, number, Step::Arrive);
        }
    }

    fn part(&self, number: usize) -> (&'a Part, Bytes) {
        let part = &self.writes.parts[number];
        (part, Bytes(part.bytes as u64))
    }

    /// A request is dispatched; its data are fetched when the data paths are free.
    fn dispatch(&mut self, number: usize, now: u64) {
        let ((part, bytes), job) = (self.part(number), self.writes.job);
        let dispatched = self.dispatched.entry(part.server).or_default();
        *dispatched = now.max(*dispatched) + job.burst_buffer.dispatch.0;
        let mut begins = *dispatched;
        for &path in &job.storage.servers()[part.server as usize].paths {
            let fetched = self.fetched.entry(path).or_default();
            let began = (*fetched).max(*dispatched);
            *fetched = began + job.storage.paths()[path as usize].rate.time_for(bytes).0;
            begins = begins.max(began);
        }
        self.at(begins, number, Step::Fetch);
    }

    /// The client is asked for the data of a request.
    fn fetch(&mut self, number: usize, now: u64) {
        let ((part, bytes), job) = (self.part(number), self.writes.job);
        let client = &job.clients[usize::from(job.client_of_node[part.node as usize])];
        let sent = self.sent.entry(part.node).or_default();
        let began = (*sent).max(now);
        *sent = began + client.write_rate.time_for(bytes).0;
        self.at(began, number, Step::Send);
    }

    /// The data of a request are at its server.
    fn write(&mut self, number: usize, now: u64) {
        let ((part, bytes), job) = (self.part(number), self.writes.job);
        let mut arrived = now;
        for &path in &job.storage.servers()[part.server as usize].paths {
            let time = job.storage.paths()[path as usize].rate.time_for(bytes).0;
            let taken_in = self.taken_in.entry(path).or_default();
            // It takes them in while they arrive.
            *taken_in = (*taken_in).max(now.saturating_sub(time)) + time;
            arrived = arrived.max(*taken_in);
        }
        let (of_flash, on_disk) = *self.times.entry(bytes.0).or_insert_with(|| {
            let rates = ServerRates::of(job, 0, bytes.0, Access::Write);
            (part.bytes * PS_PER_SECOND as f64 / rates.flash, rates.on_disk)
        });
        let flash = self.flash.entry(part.server).or_default();
        let began = flash.max(arrived as f64);
        *flash = began + of_flash;
        self.at(began as u64 + on_disk, number, Step::Done);
    }
}
