//! Flows that carry amounts of bytes over time.

use crate::ends::{Ends, NEVER};
use crate::solver::{Bottleneck, FlowId, FlowSpec, LinkId, Solver};

/// Picoseconds in a second.
const SECOND: f64 = 1e12;

/// Flows that carry bytes and end. Time is in picoseconds, from 0.
///
/// Flows that end at the same time are handled together, as one change of the rates; times of ends are
/// rounded up to a multiple of the resolution. The cost depends on the number of ends, not of bytes.
#[derive(Clone, Debug)]
pub struct Transport {
    solver: Solver,
    now: u64,
    resolution: u64,
    carried: Vec<f64>,
    transfers: Vec<Transfer>,
    /// The time at which each flow ends at its rate.
    ends: Ends,
    ended: Vec<FlowId>,
    active: usize,
}

/// The load of a flow.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    /// Bytes of each flow of the class.
    bytes: f64,
    /// Bytes left at `since`.
    left: f64,
    since: u64,
    /// Rate since then.
    rate: f64,
}

impl Transport {
    /// No links and no flows, at time 0; ends of flows are rounded up to a multiple of `resolution` ps.
    ///
    /// # Panics
    /// If the resolution is 0.
    pub fn new(resolution: u64) -> Self {
        assert!(resolution > 0, "times with a resolution of 0 ps");
        Transport {
            solver: Solver::new(),
            now: 0,
            resolution,
            carried: Vec::new(),
            transfers: Vec::new(),
            ends: Ends::default(),
            ended: Vec::new(),
            active: 0,
        }
    }

    /// Rounds ends of flows up to a multiple of `resolution` ps from now on.
    ///
    /// # Panics
    /// If the resolution is 0.
    pub fn set_resolution(&mut self, resolution: u64) {
        assert!(resolution > 0, "times with a resolution of 0 ps");
        self.resolution = resolution;
    }

    /// The time, ps, to multiples of which ends are rounded up.
    pub fn resolution(&self) -> u64 {
        self.resolution
    }

    /// Adds a link; capacity in bytes per second.
    pub fn add_link(&mut self, capacity: f64) -> LinkId {
        self.carried.push(0.0);
        self.solver.add_link(capacity)
    }

    /// Changes the capacity of a link from now on.
    pub fn set_capacity(&mut self, link: LinkId, capacity: f64) {
        self.solver.set_capacity(link, capacity);
    }

    /// Changes the cap of a flow from now on.
    pub fn set_cap(&mut self, flow: FlowId, cap: f64) {
        self.solver.set_cap(flow, cap);
    }

    /// Starts a flow now, each of whose class carries `bytes`.
    ///
    /// # Panics
    /// If `bytes` is not positive, and as [`Solver::add_flow`].
    pub fn start(&mut self, spec: FlowSpec<'_>, bytes: f64) -> FlowId {
        assert!(bytes > 0.0 && bytes.is_finite(), "a transfer of {bytes} bytes");
        let flow = self.solver.add_flow(spec);
        let transfer = Transfer { bytes, left: bytes, since: self.now, rate: 0.0 };
        match self.transfers.get_mut(flow.index()) {
            Some(place) => *place = transfer,
            None => self.transfers.push(transfer),
        }
        self.active += 1;
        flow
    }

    /// The present time, ps.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Rates and bottlenecks as of the last end.
    pub fn solver(&self) -> &Solver {
        &self.solver
    }

    /// Flows that have not ended.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Bytes that have crossed a link with flows that have ended, and those counted.
    pub fn carried(&self, link: LinkId) -> f64 {
        self.carried[link.index()]
    }

    /// Counts bytes that have crossed a link in another way than by flows.
    pub fn count_carried(&mut self, link: LinkId, bytes: f64) {
        self.carried[link.index()] += bytes;
    }

    /// Brings the rates up to date with all changes.
    pub fn update_rates(&mut self) {
        let now = self.now;
        // The ids are copied: the transfers change while they are read.
        let affected = self.solver.solve().to_vec();
        for flow in affected {
            let rate = self.solver.rate(flow);
            let transfer = &mut self.transfers[flow.index()];
            let passed = (now - transfer.since) as f64 / SECOND;
            transfer.left = (transfer.left - transfer.rate * passed).max(0.0);
            transfer.since = now;
            if rate == transfer.rate && self.ends.of(flow.0) != NEVER {
                continue;
            }
            transfer.rate = rate;
            self.ends.set(flow.0, end_of(transfer, self.resolution));
        }
    }

    /// Goes to the next time at which flows end, and returns them, in the order of their numbers; they
    /// do not exist any more. Empty if none ends until the time `until`, ps, to which it goes then
    /// (unless that is `u64::MAX`, or past).
    pub fn next_ends(&mut self, until: u64) -> &[FlowId] {
        self.update_rates();
        self.ended.clear();
        let first = self.ends.first();
        if first != NEVER && first <= until {
            self.now = first;
            self.ends.flows_at(first, &mut self.ended);
        }
        for &flow in &self.ended {
            self.ends.set(flow.0, NEVER);
            let amount = self.transfers[flow.index()].bytes;
            for (link, share) in self.solver.uses(flow) {
                self.carried[link.index()] += share * amount;
            }
            self.solver.remove_flow(flow);
        }
        self.active -= self.ended.len();
        if self.ended.is_empty() && until != NEVER {
            self.now = self.now.max(until);
        }
        &self.ended
    }

    /// Bytes that each flow of a class, which has not ended, has carried so far.
    pub fn carried_by(&self, flow: FlowId) -> f64 {
        let transfer = &self.transfers[flow.index()];
        let passed = (self.now - transfer.since) as f64 / SECOND;
        (transfer.bytes - transfer.left + transfer.rate * passed).clamp(0.0, transfer.bytes)
    }

    /// The reason why a flow is not faster, as of the last update of the rates.
    pub fn bottleneck(&self, flow: FlowId) -> Bottleneck {
        self.solver.bottleneck(flow)
    }
}

/// Time at which a transfer ends at its rate, ps.
fn end_of(transfer: &Transfer, resolution: u64) -> u64 {
    let takes = (transfer.left / transfer.rate * SECOND).ceil();
    // As a number of 64 bits, also where it is infinite or, without a rate and bytes, no number.
    if takes.is_nan() || takes >= (NEVER / 4) as f64 {
        return NEVER;
    }
    (transfer.since + takes as u64).div_ceil(resolution) * resolution
}
