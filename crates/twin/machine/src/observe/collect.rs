//! The observations of a run, from those of its groups.

use super::delays::Delays;
use super::series::{self, TimeSeries};
use super::trace::Trace;
use super::{ObserveOptions, Observed};
use crate::group::Group;
use crate::scenario::Scenario;
use forebay_network::{JobTimeline, Sampler, WaitMatrix};
use std::collections::BTreeMap;

/// Takes the observations out of the groups of a run that ended at `end`, ps.
pub(crate) fn observed(
    options: &ObserveOptions,
    scenario: &Scenario,
    groups: &mut [Group],
    end: u64,
) -> (Option<Delays>, Observed) {
    let delays = options.delays.then(|| delays(scenario, groups));
    let series = options.series.then(|| time_series(scenario, groups, end));
    let trace = (options.trace_one_in > 0).then(|| trace(scenario, groups));
    (delays, Observed { series, trace })
}

fn delays(scenario: &Scenario, groups: &mut [Group]) -> Delays {
    let mut waits = WaitMatrix::default();
    let mut servers: BTreeMap<u32, u128> = BTreeMap::new();
    for group in groups {
        if let Some(of_group) = group.fabric.probe.as_ref().and_then(|p| p.waits.as_ref()) {
            waits.merge(of_group);
        }
        let observer = group.io.as_mut().and_then(|io| io.observer.as_mut());
        servers.extend(observer.and_then(|o| o.waits.take()).unwrap_or_default());
    }
    for (delays, totals) in waits.delays.iter().flatten().zip(waits.totals.iter().flatten()) {
        assert_eq!(delays.iter().sum::<u128>(), *totals, "delays without a cause");
    }
    match &scenario.labels {
        Some(labels) => {
            let named = labels.names.iter().cloned().enumerate().collect();
            Delays::at_links(&waits, named)
        }
        None => Delays::new(&waits, &servers),
    }
}

fn time_series(scenario: &Scenario, groups: &mut [Group], end: u64) -> TimeSeries {
    let mut jobs: Vec<JobTimeline> = Vec::new();
    let mut servers = BTreeMap::new();
    let mut fabrics = Vec::new();
    for group in groups {
        jobs.extend(group.fabric.probe.as_mut().and_then(|p| p.jobs.take()));
        let observer = group.io.as_mut().and_then(|io| io.observer.as_mut());
        servers.extend(observer.and_then(|o| o.servers.take()).unwrap_or_default());
        fabrics.push(&mut group.fabric);
    }
    TimeSeries {
        jobs: series::jobs(&jobs),
        servers: series::servers(servers, &device_rates(scenario)),
        links: series::links(&mut fabrics, end, &scenario.network, &scenario.topology),
    }
}

/// Write and read rates, in bytes per second, of the flash or the disks behind each node with servers.
fn device_rates(scenario: &Scenario) -> BTreeMap<u32, (f64, f64)> {
    let mut rates: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    let Some(job) = scenario.io.first() else { return rates };
    let make = &job.burst_buffer;
    let cards = f64::from(make.cards);
    for server in job.storage.data_servers() {
        let (write, read) = rates.entry(server.node).or_default();
        *write += make.card_write.0 as f64 * cards;
        *read += make.card_read.0 as f64 * cards;
    }
    rates
}

/// The trace of the messages that all groups have kept.
fn trace(scenario: &Scenario, groups: &mut [Group]) -> Trace {
    let mut sampler = Sampler::one_in(1);
    let mut buffers = Vec::new();
    for group in groups {
        let passages = group.fabric.probe.as_mut().and_then(|p| p.trace.take());
        let observer = group.io.as_mut().and_then(|io| io.observer.as_mut());
        let spans = observer.and_then(|o| o.spans.take());
        for of_buffer in
            passages.iter().map(|b| b.sampler()).chain(spans.iter().map(|b| b.sampler()))
        {
            sampler = sampler.least(of_buffer);
        }
        buffers.push((passages, spans));
    }
    let mut trace = Trace::new(sampler);
    for (group, (passages, spans)) in (0..).zip(buffers) {
        let passages = passages.into_iter().flat_map(|buffer| buffer.into_records(sampler));
        passages.for_each(|passage| trace.add_passage(&scenario.topology, group, &passage));
        let spans = spans.into_iter().flat_map(|buffer| buffer.into_records(sampler));
        spans.for_each(|span| trace.add_span(&span));
    }
    trace.arrange();
    trace
}
