//! Starts of runs: the locks that they need, and the flows that they become.

use super::{PhaseTransfers, Under};
use crate::flow::extent_waits::Callbacks;
use crate::flow::fabric::{Fabric, Owner, Path, Resource};
use crate::flow::objects::Writer;
use crate::flow::phase_links::Demand;
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
        let at_objects = run.bytes as f64 * PS_PER_SECOND as f64 / left.max(1.0);
        let alone = self.rate_alone(node, &run, waited);
        let only_call = self.first_calls.durations.get(rank as usize);
        let in_turn =
            only_call.map_or(alone, |time| run.bytes as f64 * PS_PER_SECOND as f64 / time);
        let cap = alone.min(in_turn).min(at_objects);
        let extents = self.extents.as_ref().filter(|_| at_objects < alone);
        let capped_by = extents.zip(last).map(|(extents, last)| extents.limit_of(last));
        let spec = FlowSpec { count: 1, weight: self.weight, cap, path: &path };
        let flow = fabric.links.transport.start(spec, run.bytes as f64);
        let transfer = (self.job.pattern.transfer_bytes() as f64, self.lone[node as usize]);
        for (at, (key, _)) in run.objects.iter().enumerate().take(waits.len()) {
            let callbacks = callbacks.get(at).copied();
            self.add_writer(*key, Writer { flow, node, cap, transfer, callbacks }, fabric);
        }
        fabric.set_owner(flow, Owner { job: self.job.number.into(), rank });
        let is_first = self.result.ranks[rank as usize].transfers == 0;
        let delay = if is_first { self.first_calls.delay } else { 0 };
        let began = fabric.links.transport.now().saturating_sub(delay);
        self.count_under_way += 1;
        self.under_way[rank as usize] = Some(Under { run, demand, flow, began, capped_by });
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
