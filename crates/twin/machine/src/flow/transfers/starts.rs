//! Starts of runs: the locks that they need, and the flows that they become.

use super::{PhaseTransfers, Under};
use crate::flow::extent_waits::Callbacks;
use crate::flow::fabric::{Fabric, Owner, Path, Resource};
use crate::flow::objects::Writer;
use crate::flow::phase_links::Demand;
use crate::flow::requests::{PhaseCalls, all_calls, delay_of_first_calls};
use crate::flow::runs::{ObjectKey, Run};
use crate::io::PS_PER_SECOND;
use forebay_flow::FlowSpec;

/// A run that is about to start.
pub(super) struct Prepared {
    pub rank: u32,
    pub run: Run,
    pub demand: Demand,
    /// Waits for locks on extents of each of its objects, where clients lock these.
    pub callbacks: Vec<Callbacks>,
}

impl PhaseTransfers<'_> {
    /// Prepares the first runs of all processes, which start at these times, ps. The demand of all is known to
    /// each of them: adaptive routing does not keep to paths that it chose before the others began.
    pub fn prepare(&mut self, starts: &[u64], fabric: &mut Fabric) {
        // Runs that start nearly together are one change of the rates, as those that end together.
        let resolution = fabric.links.transport.resolution();
        let mut order: Vec<(u64, u32)> = starts.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let of_phase = (self.job, &self.runs);
        let by_requests = self.by_requests && self.result.is_complete;
        let all = by_requests.then(|| all_calls(of_phase, &order, &self.lone));
        let all_calls = all.flatten();
        self.result.by_requests = all_calls.is_some();
        if all_calls.is_some() {
            // Their times have the waits for locks in them.
            (self.objects, self.extents) = (None, None);
        }
        let prepared = self.prepare_runs(&order, fabric);
        self.calls = match all_calls {
            Some(calls) => calls,
            None if self.result.is_complete => {
                let of_phase = (self.job, &self.runs);
                let links = (&self.links, self.lone.as_slice());
                let delay = delay_of_first_calls(of_phase, &order, links, fabric);
                let delay = (delay as f64 * self.scale) as u64;
                PhaseCalls { delay, of_ranks: Vec::new() }
            }
            None => PhaseCalls::default(),
        };
        for (start, calls) in starts.iter().zip(&self.calls.of_ranks) {
            for (since, bytes) in &calls.moved {
                self.result.timeline.add(start + since, 0, *bytes);
            }
        }
        let delay = self.calls.delay;
        let rounded = order.iter().map(|(at, _)| (at + delay).next_multiple_of(resolution));
        self.waiting = rounded.zip(prepared).collect();
    }

    /// Grants the locks on extents that runs need, each of which starts at a time, ps; the waits of each at its
    /// objects, none where clients do not lock extents.
    pub(super) fn grant_locks(&mut self, runs: &[(u64, u32, Run)]) -> Vec<Vec<Callbacks>> {
        let Some(extents) = &mut self.extents else { return vec![Vec::new(); runs.len()] };
        let requests = self.fetches.requests(self.job, &self.runs, runs);
        let each = |(_, _, run): &(u64, u32, Run)| vec![Callbacks::default(); run.objects.len()];
        let mut found: Vec<Vec<Callbacks>> = runs.iter().map(each).collect();
        extents.grant(requests, |(run, object), (waited, until)| {
            let callbacks = &mut found[run as usize][object as usize];
            callbacks.waited += waited as f64;
            callbacks.requests += 1.0;
            callbacks.until = callbacks.until.max(until);
        });
        found
    }

    pub(super) fn start_run(&mut self, prepared: Prepared, fabric: &mut Fabric) {
        let Prepared { rank, run, demand, callbacks } = prepared;
        let node = self.job.pattern.node_of(rank);
        let mut path = self.links.path(node, &run, fabric);
        let waits = self.enter_objects(&run, (node, &callbacks), &mut path, fabric);
        let waited = waits.iter().copied().fold(0.0, f64::max);
        // It does not end before its last request is on disk.
        let last = callbacks.iter().max_by_key(|callbacks| callbacks.until);
        let left = last.map_or(0, |last| last.until).saturating_sub(fabric.now()) as f64;
        let at_objects = run.bytes as f64 * PS_PER_SECOND as f64 / (left.max(1.0) * self.scale);
        let alone = self.rate_alone(node, &run, waited);
        let first = self.result.ranks[rank as usize].transfers;
        let calls_of_run = first..first + run.transfers;
        let of_calls = self.call_times.map(|times| times.relative_rate(rank, calls_of_run.clone()));
        let (cap, capped_by) = match self.calls.of_ranks.get(rank as usize) {
            Some(calls) => {
                let time = calls.time_of(calls_of_run);
                (run.bytes as f64 * PS_PER_SECOND as f64 / time, calls.limit)
            }
            None => {
                let extents = self.extents.as_ref().filter(|_| at_objects < alone);
                let capped_by = extents.zip(last).map(|(extents, last)| extents.limit_of(last));
                (alone.min(at_objects), capped_by)
            }
        };
        path.iter_mut().for_each(|(_, share)| *share *= self.scale);
        let (path, counted) = match self.calls.of_ranks.is_empty() {
            true => (path, Path::new()),
            false => (Path::new(), path),
        };
        let weight = self.weight * of_calls.unwrap_or(1.0);
        let spec = FlowSpec { count: 1, weight, cap, path: &path };
        let flow = fabric.links.transport.start(spec, run.bytes as f64);
        let transfer = (self.job.pattern.transfer_bytes() as f64, self.lone[node as usize]);
        for (at, (key, _)) in run.objects.iter().enumerate().take(waits.len()) {
            let callbacks = callbacks.get(at).copied();
            let scale = self.scale;
            let writer = Writer { flow, node, cap, transfer, scale, callbacks };
            self.add_writer(*key, writer, fabric);
        }
        fabric.set_owner(flow, Owner { job: self.job.number.into(), rank });
        let delay = if first == 0 { self.calls.delay } else { 0 };
        let began = fabric.links.transport.now().saturating_sub(delay);
        self.count_under_way += 1;
        self.under_way[rank as usize] =
            Some(Under { run, demand, flow, began, counted, capped_by });
    }

    /// Adds the locks of a run's objects to its path; returns the wait for each hand-over, ps.
    fn enter_objects(
        &mut self,
        run: &Run,
        (node, callbacks): (u32, &[Callbacks]),
        path: &mut Path,
        fabric: &mut Fabric,
    ) -> Vec<f64> {
        let Some(objects) = &mut self.objects else { return Vec::new() };
        let mut waits = Vec::with_capacity(run.objects.len());
        for (at, &(key, share)) in run.objects.iter().enumerate() {
            let (link, wait) = objects.enter(key, (node, callbacks.get(at).copied()), |rate| {
                fabric.links.add(Resource::Lock, "the lock of an object".into(), rate)
            });
            path.push((link, share));
            waits.push(wait);
        }
        waits
    }

    fn add_writer(&mut self, key: ObjectKey, writer: Writer, fabric: &mut Fabric) {
        if let Some(objects) = &mut self.objects {
            objects.add(key, writer, &mut fabric.links.transport);
        }
    }
}
