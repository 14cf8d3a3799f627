//! I/O statistics of jobs and persistent instances, which outlive them.

use std::collections::{BTreeMap, BTreeSet};

use forebay_job_script::Direction;
use forebay_units::Bytes;
use serde::{Deserialize, Serialize};

use super::machine::Controller;
use super::objects::Session;
use super::request::Lifetime;
use super::state::State;
use crate::messages::{InstanceId, Owner, PhaseTimes, SessionId, StageProgress, UnixMillis};
use crate::records::{Change, CorruptRecord, StoredRecord, Table};

/// Time after the end of a session in which reports of its hosts may arrive, in milliseconds.
const SETTLING_MS: u64 = 120_000;
/// Hosts whose counters one record distinguishes; further ones are not counted.
const MAX_HOSTS: usize = 65_536;

/// Counters of the mounts of an instance, as their programs' requests reach them: what kernels serve
/// from their caches, and reads by passthrough, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounters {
    /// Bytes that programs asked to read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Operations on names, attributes and open files: all but reads and writes.
    pub metadata: u64,
}

impl IoCounters {
    /// The sum with `other`.
    pub fn plus(self, other: IoCounters) -> IoCounters {
        IoCounters {
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
            metadata: self.metadata.saturating_add(other.metadata),
        }
    }
}

/// Counters of an instance's mounts on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIo {
    /// Time at which the host began to count from zero: it mounts the instance for the first time, or
    /// again some time later.
    pub since: UnixMillis,
    /// The counters.
    pub io: IoCounters,
}

/// Stages of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageUsage {
    /// Stages that are done.
    pub done: u64,
    /// Stages that failed or were cancelled.
    pub failed: u64,
    /// Files and links that were copied, also by stages that failed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time in all phases, in milliseconds. Stages that run at the same time count each.
    pub milliseconds: u64,
}

/// Statistics of a job or of a persistent instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUsage {
    /// Job id or name.
    pub token: String,
    /// Lifetime.
    pub lifetime: Lifetime,
    /// Owner.
    pub owner: Owner,
    /// Its own instance.
    pub instance: Option<InstanceId>,
    /// Bytes that are allocated to the instance.
    pub capacity: Bytes,
    /// Time of its set-up.
    pub created: UnixMillis,
    /// Time at which it was torn down.
    pub ended: Option<UnixMillis>,
    /// Most bytes in use in the instance, or granted to writers, when its storage nodes reported.
    pub peak_used: Bytes,
    /// Requests of programs to mounts of the instance, as far as hosts have reported them.
    pub io: IoCounters,
    /// Stages into the buffer.
    pub staged_in: StageUsage,
    /// Stages out of it.
    pub staged_out: StageUsage,
}

/// A stored record: statistics, and the counters of hosts that are not in their sum yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UsageRow {
    #[serde(flatten)]
    usage: JobUsage,
    /// The last counters of each host.
    hosts: BTreeMap<String, HostIo>,
}

/// The use of instances as drivers have counted it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasuredUse {
    /// Counters of hosts.
    pub io: Vec<(String, InstanceId, HostIo)>,
    /// Bytes in use in instances.
    pub used: Vec<(InstanceId, Bytes)>,
}

impl MeasuredUse {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.io.is_empty() && self.used.is_empty()
    }
}

/// The statistics of all sessions, and of the last ones that ended.
#[derive(Clone, Debug)]
pub(super) struct UsageTable {
    rows: Table<SessionId, UsageRow>,
    of_instance: BTreeMap<InstanceId, SessionId>,
    /// Ended sessions by the time of their end.
    ended: BTreeSet<(UnixMillis, SessionId)>,
    /// Those of whose hosts late reports may arrive.
    settling: BTreeSet<SessionId>,
}

impl Default for UsageTable {
    fn default() -> UsageTable {
        UsageTable {
            rows: Table::new("job_usage"),
            of_instance: BTreeMap::new(),
            ended: BTreeSet::new(),
            settling: BTreeSet::new(),
        }
    }
}

impl UsageTable {
    pub(super) fn restore(&mut self, record: &StoredRecord) -> Result<bool, CorruptRecord> {
        self.rows.restore(record)
    }

    pub(super) fn finish_restore(&mut self) {
        for (id, row) in self.rows.iter() {
            self.of_instance.extend(row.usage.instance.map(|instance| (instance, id)));
            if let Some(ended) = row.usage.ended {
                self.ended.insert((ended, id));
                self.settling.insert(id);
            }
        }
    }

    pub(super) fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.rows.take_changes(changes);
    }

    /// A session begins.
    pub(super) fn begin(&mut self, id: SessionId, session: &Session) {
        let usage = JobUsage {
            token: session.token.clone(),
            lifetime: session.lifetime,
            owner: session.owner,
            instance: None,
            capacity: Bytes(0),
            created: session.created,
            ended: None,
            peak_used: Bytes(0),
            io: IoCounters::default(),
            staged_in: StageUsage::default(),
            staged_out: StageUsage::default(),
        };
        self.rows.insert_new(id, UsageRow { usage, hosts: BTreeMap::new() });
    }

    /// A session is removed. Of ended sessions, `max_kept` are remembered.
    fn end(&mut self, id: SessionId, now: UnixMillis, max_kept: usize) {
        if let Some(row) = self.rows.get_mut(id) {
            row.usage.ended = Some(now);
            self.ended.insert((now, id));
            self.settling.insert(id);
        }
        while self.ended.len() > max_kept
            && let Some((_, oldest)) = self.ended.pop_first()
        {
            self.settling.remove(&oldest);
            let row = self.rows.remove(oldest);
            if let Some(instance) = row.and_then(|row| row.usage.instance) {
                self.of_instance.remove(&instance);
            }
        }
    }

    /// Adds the counters of the hosts of sessions that ended some time ago to their sums.
    pub(super) fn settle(&mut self, now: UnixMillis) {
        let rows = &mut self.rows;
        self.settling.retain(|id| {
            let ended = rows.get(*id).and_then(|row| row.usage.ended);
            if ended.is_some_and(|ended| now.ms_since(ended) < SETTLING_MS) {
                return true;
            }
            let has_hosts = rows.get(*id).is_some_and(|row| !row.hosts.is_empty());
            if has_hosts && let Some(row) = rows.get_mut(*id) {
                let hosts = std::mem::take(&mut row.hosts);
                let hosts = hosts.into_values().map(|host| host.io);
                row.usage.io = hosts.fold(row.usage.io, IoCounters::plus);
            }
            false
        });
    }

    fn record_io(&mut self, id: SessionId, host: String, new: HostIo) {
        let Some(row) = self.rows.get(id) else {
            return;
        };
        let is_settled = row.usage.ended.is_some() && !self.settling.contains(&id);
        let last = row.hosts.get(&host).copied();
        let is_full = last.is_none() && row.hosts.len() >= MAX_HOSTS;
        // What the host has counted before was reported before.
        let is_old = last.is_some_and(|last| last == new || new.since < last.since);
        if is_settled || is_full || is_old || new.io == IoCounters::default() {
            return;
        }
        if let Some(row) = self.rows.get_mut(id) {
            if let Some(last) = last.filter(|last| last.since < new.since) {
                row.usage.io = row.usage.io.plus(last.io);
            }
            row.hosts.insert(host, new);
        }
    }

    fn record_used(&mut self, id: SessionId, used: Bytes) {
        let is_peak = self.rows.get(id).is_some_and(|row| row.usage.peak_used < used);
        if is_peak && let Some(row) = self.rows.get_mut(id) {
            row.usage.peak_used = used;
        }
    }

    fn record_stage(
        &mut self,
        id: SessionId,
        direction: Direction,
        moved: &StageProgress,
        is_done: bool,
    ) {
        let Some(row) = self.rows.get_mut(id) else {
            return;
        };
        let stages = match direction {
            Direction::In => &mut row.usage.staged_in,
            Direction::Out => &mut row.usage.staged_out,
        };
        let PhaseTimes { copying, syncing, reading_back, finishing } = moved.times;
        let milliseconds = (copying + syncing + reading_back + finishing).as_millis();
        *stages = StageUsage {
            done: stages.done + u64::from(is_done),
            failed: stages.failed + u64::from(!is_done),
            files: stages.files.saturating_add(moved.files),
            bytes: stages.bytes.saturating_add(moved.bytes),
            milliseconds: stages
                .milliseconds
                .saturating_add(u64::try_from(milliseconds).unwrap_or(u64::MAX)),
        };
    }
}

impl State {
    /// The session of an instance, also of one that has ended.
    fn usage_of(&self, instance: InstanceId) -> Option<SessionId> {
        let known = self.usage.of_instance.get(&instance).copied();
        self.storage.session_of(instance).or(known)
    }
}

impl Controller {
    /// Records what drivers have counted.
    pub(super) fn record_use(&mut self, measured: MeasuredUse) {
        for (host, instance, io) in measured.io {
            if let Some(id) = self.state.usage_of(instance) {
                self.state.usage.record_io(id, host, io);
            }
        }
        for (instance, used) in measured.used {
            if let Some(id) = self.state.usage_of(instance) {
                self.state.usage.record_used(id, used);
            }
        }
    }

    /// Records the end of an attempt of a stage.
    pub(super) fn record_stage_use(
        &mut self,
        session: SessionId,
        direction: Direction,
        moved: &StageProgress,
        is_done: bool,
    ) {
        self.state.usage.record_stage(session, direction, moved, is_done);
    }

    /// Notes the instance of a session that ends, and the end.
    pub(super) fn end_usage(&mut self, id: SessionId) {
        self.state.usage.end(id, self.date(), self.settings.max_kept_usage);
    }

    /// Notes the instance of a session, which may have been created again under another id.
    pub(super) fn note_usage_instance(&mut self, id: SessionId) {
        let Some(instance) = self.state.sessions.get(id).and_then(|session| session.instance)
        else {
            return;
        };
        let capacity = self.state.storage.instance(instance).map(|row| row.capacity);
        let usage = &mut self.state.usage;
        let known = usage.rows.get(id).and_then(|row| row.usage.instance);
        if known == Some(instance) || capacity.is_none() {
            return;
        }
        if let Some(row) = usage.rows.get_mut(id) {
            row.usage.instance = Some(instance);
            row.usage.capacity = capacity.unwrap_or_default();
            usage.of_instance.insert(instance, id);
        }
    }

    /// Statistics of the jobs and persistent instances of this name, or of all, by the time of their
    /// set-up. A name may have been used several times.
    pub fn job_usage(&self, token: Option<&str>) -> Vec<JobUsage> {
        let rows = self.state.usage.rows.iter().map(|(_, row)| row);
        let wanted = rows.filter(|row| token.is_none_or(|token| row.usage.token == token));
        let sum = |row: &UsageRow| {
            let io = row.hosts.values().fold(row.usage.io, |sum, host| sum.plus(host.io));
            JobUsage { io, ..row.usage.clone() }
        };
        wanted.map(sum).collect()
    }
}
