//! The content of a frame, computed from the last two statuses.

use crate::stage_meter::StageMeter;
use forebay_control::controller::{
    InstanceStatus, Lifetime, PoolStatus, SessionStatus, StageState, StageStatus,
};
use forebay_control::messages::{InstanceId, StageId};
use forebay_daemon::activity::HostActivity;
use forebay_daemon::activity::Status;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The order of instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Most operations per second first.
    #[default]
    Operations,
    /// Most bytes used first.
    Used,
    /// By name.
    Name,
}

impl Sort {
    pub fn next(self) -> Sort {
        match self {
            Sort::Operations => Sort::Used,
            Sort::Used => Sort::Name,
            Sort::Name => Sort::Operations,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Sort::Operations => "operations",
            Sort::Used => "used",
            Sort::Name => "name",
        }
    }
}

/// The last status, the report before the last of each host, and the rates of stages.
#[derive(Debug, Default)]
pub struct History {
    before: Vec<HostActivity>,
    now: Status,
    meters: BTreeMap<StageId, StageMeter>,
}

/// The activity of a host's storage daemon.
#[derive(Debug)]
pub struct Store {
    pub host: String,
    pub rates: Option<Rates>,
    pub sessions: Option<u64>,
}

/// Rates per second between two statuses, and latencies.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub requests: f64,
    pub mean: Option<Duration>,
    pub quantile_99: Option<Duration>,
    pub received: f64,
    pub sent: f64,
    pub records: f64,
    pub syncs: f64,
    pub sync: Option<Duration>,
}

/// An instance and the activity of its mounts.
#[derive(Debug)]
pub struct Instance {
    pub status: InstanceStatus,
    pub session: Option<SessionStatus>,
    pub used: Option<u64>,
    /// Operations per second and their mean latency.
    pub operations: Option<(f64, Option<Duration>)>,
    /// Bytes written per second.
    pub written: f64,
}

/// A stage, its rate in bytes per second and its remaining time.
#[derive(Debug)]
pub struct Stage {
    pub status: StageStatus,
    pub rate: Option<f64>,
    pub left: Option<Duration>,
}

/// The content of a frame.
#[derive(Debug)]
pub struct Frame {
    pub name: String,
    pub process: Option<u32>,
    pub problem: Option<String>,
    pub sort: Sort,
    pub pools: Vec<PoolStatus>,
    pub nodes: Vec<forebay_control::controller::NodeStatus>,
    pub stores: Vec<Store>,
    pub instances: Vec<Instance>,
    pub sessions: (usize, usize),
    pub stages: Vec<Stage>,
    /// Whether a process reports activity, and so uses the pool.
    pub live: bool,
}

/// Whether two reports are of one process: a host may run a storage daemon and an agent.
fn is_same_source(a: &HostActivity, b: &HostActivity) -> bool {
    a.host == b.host && a.store.is_some() == b.store.is_some()
}

impl History {
    /// Adds a status.
    pub fn add(&mut self, status: Status, at: Instant) {
        for stage in &status.stages {
            let meter = self.meters.entry(stage.id).or_default();
            meter.add(at, stage.progress);
        }
        let known = |id: &StageId| status.stages.iter().any(|stage| stage.id == *id);
        self.meters.retain(|id, _| known(id));
        // Hosts report at different times: a host's rates are those between its last two reports.
        for host in &self.now.activity {
            let newer = status.activity.iter().find(|newer| is_same_source(newer, host));
            if newer.is_none_or(|newer| newer.at != host.at) {
                self.before.retain(|before| !is_same_source(before, host));
                self.before.extend(newer.map(|_| host.clone()));
            }
        }
        self.now = status;
    }

    fn earlier(&self, host: &HostActivity) -> Option<(&HostActivity, f64)> {
        let earlier = self.before.iter().find(|earlier| is_same_source(earlier, host))?;
        let seconds = host.at.ms_since(earlier.at) as f64 / 1000.0;
        (seconds > 0.0).then_some((earlier, seconds))
    }

    fn rates(&self, host: &HostActivity) -> Option<Rates> {
        let (earlier, seconds) = self.earlier(host)?;
        let (now, before) = (host.store.as_ref()?, earlier.store.as_ref()?);
        let requests = now.total_latency().since(&before.total_latency());
        let syncs = now.syncs.since(&before.syncs);
        // A restarted daemon counts from zero.
        let rate = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64 / seconds;
        Some(Rates {
            requests: requests.count() as f64 / seconds,
            mean: requests.mean(),
            quantile_99: requests.quantile(0.99),
            received: rate(now.received, before.received),
            sent: rate(now.sent, before.sent),
            records: rate(now.records, before.records),
            syncs: syncs.count() as f64 / seconds,
            sync: syncs.mean(),
        })
    }

    /// Activity of an instance's mounts: operations per second, their mean latency, bytes written
    /// per second.
    fn mounts(&self, id: InstanceId) -> Option<(f64, Option<Duration>, f64)> {
        let mut seen = None;
        for host in &self.now.activity {
            let (Some(now), Some((earlier, seconds))) = (host.mounts.get(&id), self.earlier(host))
            else {
                continue;
            };
            let before = earlier.mounts.get(&id).cloned().unwrap_or_default();
            let operations = now.all_operations().since(&before.all_operations());
            let written = now.written.checked_sub(before.written).unwrap_or(now.written);
            let (count, time, bytes) = seen.unwrap_or((0.0, 0.0, 0.0));
            seen = Some((
                count + operations.count() as f64 / seconds,
                time + operations.total_seconds() / seconds,
                bytes + written as f64 / seconds,
            ));
        }
        seen.map(|(count, time, bytes)| {
            let mean = (count > 0.0).then(|| Duration::from_secs_f64(time / count));
            (count, mean, bytes)
        })
    }

    /// The frame for the last status.
    pub fn frame(&self, name: &str, sort: Sort) -> Frame {
        let now = &self.now;
        let store = |host: &HostActivity| {
            let store = host.store.as_ref()?;
            Some(Store {
                host: host.host.clone(),
                rates: self.rates(host),
                sessions: store.gauges.as_ref().map(|present| present.sessions),
            })
        };
        let count = |lifetime| now.sessions.iter().filter(|s| s.lifetime == lifetime).count();
        Frame {
            name: name.to_owned(),
            process: now.process,
            problem: None,
            sort,
            pools: now.pools.clone(),
            nodes: now.nodes.clone(),
            stores: now.activity.iter().filter_map(store).collect(),
            instances: self.instances(sort),
            sessions: (count(Lifetime::Job), count(Lifetime::Persistent)),
            stages: self.stages(),
            live: !now.activity.is_empty(),
        }
    }

    fn instances(&self, sort: Sort) -> Vec<Instance> {
        let instance = |status: &InstanceStatus| {
            let mounts = self.mounts(status.id);
            let sessions = self.now.sessions.iter();
            Instance {
                status: status.clone(),
                session: sessions.clone().find(|s| s.id == status.session).cloned(),
                used: self.now.instance_usage(status.id).map(|(bytes, _)| bytes),
                operations: mounts.map(|(count, mean, _)| (count, mean)),
                written: mounts.map_or(0.0, |(_, _, bytes)| bytes),
            }
        };
        let mut all: Vec<Instance> = self.now.instances.iter().map(instance).collect();
        let operations = |i: &Instance| i.operations.map_or(0.0, |(count, _)| count);
        all.sort_by(|a, b| match sort {
            Sort::Operations => operations(b).total_cmp(&operations(a)),
            Sort::Used => b.used.cmp(&a.used),
            Sort::Name => a.status.label.cmp(&b.status.label),
        });
        all
    }

    /// Running stages first.
    fn stages(&self) -> Vec<Stage> {
        let stage = |status: &StageStatus| {
            let meter = self.meters.get(&status.id);
            let running = status.state == StageState::Running;
            let meter = meter.filter(|_| running);
            Stage {
                status: status.clone(),
                rate: meter.and_then(StageMeter::rate),
                left: meter.and_then(StageMeter::time_left),
            }
        };
        let mut all: Vec<Stage> = self.now.stages.iter().map(stage).collect();
        all.sort_by_key(|stage| match stage.status.state {
            StageState::Running | StageState::Cancelling => 0,
            StageState::Queued | StageState::Waiting => 1,
            StageState::Failed(_) => 2,
            StageState::Done | StageState::Cancelled => 3,
        });
        all
    }
}
