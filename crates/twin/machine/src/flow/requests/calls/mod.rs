//! Calls under way: the clients, and the steps of their requests; the servers are in [`servers`].
//!
//! The servers are those of the packets: dispatch, threads, data paths, locks and flash. A message of data is a flow
//! ([`super::network`]), all others take the time of their way.

mod servers;

use super::network::{Arrival, Network};
use super::request::{Requests, time_of_control, way_of};
use crate::flow::fabric::Resource;
use crate::io::{ExtentLocks, IoJob, Path, Server};
use crate::storage::ServerPlace;
use forebay_units::Bytes;
use forebay_workload::ior::Access;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::ops::Range;

/// The calls of a process as they were simulated.
#[derive(Clone, Debug, Default)]
pub(super) struct CallsOfProcess {
    /// Time from its start to the end of each call, ps.
    pub ends: Vec<u64>,
    /// Bytes of each request, and the time from the start to its end, ps.
    pub moved: Vec<(u64, u64)>,
    /// Waits of its requests, ps.
    pub waits: BTreeMap<Resource, u64>,
}

/// A step of a request's way, or of a process, that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A process begins a call: it sends requests.
    Issue,
    /// A request reaches its server.
    Arrive,
    /// The server has dispatched it.
    Dispatched,
    /// The client is asked for the data of a write.
    Fetch,
    /// A process's data of a write are ready for its node's client.
    Ready,
    /// A node's interface gets the data.
    Send,
    /// All data have reached their node.
    Data,
    /// The server has taken in the data of a write.
    TakenIn,
    /// A write releases the lock of its object.
    ReleaseLock,
    /// Data are on flash.
    Written,
    /// Data are read from flash.
    Read,
    /// The data of a read have left the memory of the server.
    Sent,
    /// The client's call goes on without the request.
    Done,
}

/// A process in its calls.
#[derive(Clone, Debug, Default)]
struct Process {
    /// Its next request, and the end of all.
    next: usize,
    end: usize,
    /// Number of the call under way.
    call: u32,
    in_flight: u32,
    waits_for_node: bool,
    /// End of the time for which the client moves data of the process, where it has a rate of its own, ps.
    moved: u64,
    started: u64,
    result: CallsOfProcess,
}

/// The client of a node.
#[derive(Clone, Debug, Default)]
struct Client {
    /// End of the time for which it moves data, ps.
    busy_until: u64,
    in_flight: u32,
    /// Processes that wait for one of its requests to end.
    waiting: VecDeque<usize>,
}

/// Calls under way. Times in ps.
pub(super) struct Calls<'a> {
    job: &'a IoJob,
    access: Access,
    requests: &'a Requests,
    /// Time from the begin of a call to its first request.
    overhead: u64,
    /// Steps by their times; those at the same time in the order of the requests.
    steps: BinaryHeap<Reverse<(u64, usize, Step)>>,
    processes: Vec<Process>,
    clients: Vec<Client>,
    servers: Vec<Server>,
    paths: Vec<Path>,
    extent_locks: ExtentLocks,
    network: Network<'a>,
}

impl<'a> Calls<'a> {
    /// The calls of all processes, each of which starts at a time, ps. Times of messages are rounded up to a multiple
    /// of `resolution` ps.
    pub fn new(
        (job, access): (&'a IoJob, Access),
        requests: &'a Requests,
        starts: &[(u64, u32)],
        resolution: u64,
    ) -> Calls<'a> {
        let origin = starts.first().map_or(0, |start| start.0);
        let server = |place: &ServerPlace| {
            Server::new(place.node, place.paths.clone(), &job.burst_buffer, job.server_queues)
        };
        let process = |(of, (start, _)): (&Range<usize>, &(u64, u32))| Process {
            next: of.start,
            end: of.end,
            started: start - origin,
            ..Process::default()
        };
        let mut calls = Calls {
            job,
            access,
            requests,
            overhead: job.client.call_overhead.0,
            steps: BinaryHeap::new(),
            processes: requests.of_process.iter().zip(starts).map(process).collect(),
            clients: vec![Client::default(); job.nodes.len()],
            servers: job.storage.servers().iter().map(server).collect(),
            paths: job.storage.paths().iter().map(|path| Path::new(path.rate)).collect(),
            extent_locks: ExtentLocks::default(),
            network: Network::new((job, access), &requests.all, resolution),
        };
        for process in 0..starts.len() {
            calls.at(calls.processes[process].started + calls.overhead, process, Step::Issue);
        }
        calls
    }

    /// Simulates the calls; the result of each process, in the order of the starts.
    pub fn run(mut self) -> Vec<CallsOfProcess> {
        while let Some(arrived) = self.network.advance(self.next_time()) {
            let now = self.network.now();
            for Arrival { number, resource, waited } in arrived {
                self.wait(number, resource, waited);
                let way = way_of(self.job, &self.requests.all[number]);
                self.at(now + way, number, Step::Data);
            }
            while self.next_time() <= now {
                let Some(Reverse((_, number, step))) = self.steps.pop() else { break };
                self.begin(number, step, now);
            }
        }
        for process in &self.processes {
            assert!(process.in_flight == 0, "a request that does not end");
        }
        self.processes.into_iter().map(|process| process.result).collect()
    }

    /// The time of the next step; `u64::MAX` without one.
    fn next_time(&self) -> u64 {
        self.steps.peek().map_or(u64::MAX, |Reverse((at, ..))| *at)
    }

    fn at(&mut self, at: u64, number: usize, step: Step) {
        self.steps.push(Reverse((at, number, step)));
    }

    /// Counts a wait of a request.
    fn wait(&mut self, number: usize, resource: Resource, waited: u64) {
        if waited > 0 {
            let process = self.requests.all[number].process as usize;
            *self.processes[process].result.waits.entry(resource).or_default() += waited;
        }
    }

    fn begin(&mut self, number: usize, step: Step, now: u64) {
        match step {
            Step::Issue => self.begin_call(number, now),
            Step::Arrive => self.dispatch(number, now),
            Step::Dispatched => {
                let server = self.requests.all[number].server as usize;
                if self.servers[server].take_thread(number as u32, self.job.number) {
                    self.start(number, now);
                }
            }
            Step::Fetch => {
                let ready = self.reserve_process(number, now, now);
                self.at(ready, number, Step::Ready);
            }
            Step::Ready => self.move_data(number, now),
            Step::Send => self.network.push(number),
            Step::Data => match self.access {
                Access::Write => self.take_in(number, now),
                Access::Read => {
                    let at = self.reserve_client(number, now);
                    let at = self.reserve_process(number, at, now);
                    self.at(at, number, Step::Done);
                }
            },
            Step::TakenIn => self.lock(number, now),
            Step::ReleaseLock => self.end_lock(number, now),
            Step::Written => {
                let way = way_of(self.job, &self.requests.all[number]);
                self.at(now + way, number, Step::Done);
                self.release_thread(number, now);
            }
            Step::Read => self.send(number, now),
            Step::Sent => self.release_thread(number, now),
            Step::Done => self.complete(number, now),
        }
    }

    /// A process begins its next call.
    fn begin_call(&mut self, process: usize, now: u64) {
        let of_process = &mut self.processes[process];
        of_process.call = self.requests.all[of_process.next].call;
        self.issue(process, now);
    }

    /// A process sends as many requests as its call and its node may have under way.
    fn issue(&mut self, process: usize, now: u64) {
        let job = self.job;
        let mut sent = 0;
        loop {
            let of_process = &mut self.processes[process];
            let number = of_process.next;
            let is_of_call =
                number < of_process.end && self.requests.all[number].call == of_process.call;
            if !is_of_call || of_process.in_flight >= job.client.requests_in_flight.max(1) {
                return;
            }
            let request = &self.requests.all[number];
            let kind = job.client_of_node[request.node as usize];
            let client = &mut self.clients[request.node as usize];
            if client.in_flight >= job.clients[usize::from(kind)].requests_per_node.max(1) {
                if !of_process.waits_for_node {
                    of_process.waits_for_node = true;
                    client.waiting.push_back(process);
                }
                return;
            }
            client.in_flight += 1;
            of_process.in_flight += 1;
            of_process.next += 1;
            let way = way_of(job, request) + sent * time_of_control(job);
            sent += 1;
            self.at(now + way, number, Step::Arrive);
        }
    }

    /// The data of a write are ready for the client of their node.
    fn move_data(&mut self, number: usize, now: u64) {
        let at = self.reserve_client(number, now);
        self.at(at, number, Step::Send);
    }

    /// Reserves the client's work for one process, whose data of a request are at its node at the time `from`; returns
    /// its end.
    fn reserve_process(&mut self, number: usize, from: u64, now: u64) -> u64 {
        let request = &self.requests.all[number];
        let client = &self.job.clients[usize::from(self.job.client_of_node[request.node as usize])];
        let rate = match self.access {
            Access::Write => client.process.write,
            Access::Read => client.process.read,
        };
        let Some(rate) = rate else { return from };
        let moved = &mut self.processes[request.process as usize].moved;
        let begins = from.max(*moved);
        *moved = begins + rate.time_for(Bytes(request.extent.bytes)).0;
        let ends = *moved;
        self.wait(number, Resource::Client, begins - now);
        ends
    }

    /// Reserves the client of a request's node for its data; returns the begin.
    fn reserve_client(&mut self, number: usize, now: u64) -> u64 {
        let request = &self.requests.all[number];
        let client = &self.job.clients[usize::from(self.job.client_of_node[request.node as usize])];
        let rate = match self.access {
            Access::Write => client.write_rate,
            Access::Read => client.read_rate,
        };
        let busy_until = &mut self.clients[request.node as usize].busy_until;
        let begins = now.max(*busy_until);
        *busy_until = begins + rate.time_for(Bytes(request.extent.bytes)).0;
        self.wait(number, Resource::Client, begins - now);
        begins
    }

    /// A request has ended for its client.
    fn complete(&mut self, number: usize, now: u64) {
        let request = &self.requests.all[number];
        let process = request.process as usize;
        let client = &mut self.clients[request.node as usize];
        client.in_flight -= 1;
        let waiting = client.waiting.pop_front();
        let of_process = &mut self.processes[process];
        of_process.in_flight -= 1;
        let since = now - of_process.started;
        of_process.result.moved.push((since, request.extent.bytes));
        let (next, call, in_flight) = (of_process.next, of_process.call, of_process.in_flight);
        let goes_on = next < of_process.end && self.requests.all[next].call == call;
        if goes_on {
            self.issue(process, now);
        } else if in_flight == 0 {
            of_process.result.ends.push(since);
            if next < of_process.end {
                self.at(now + self.overhead, process, Step::Issue);
            }
        }
        if let Some(waiting) = waiting {
            self.processes[waiting].waits_for_node = false;
            self.issue(waiting, now);
        }
    }
}
