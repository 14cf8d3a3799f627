//! The use of instances, which hosts report with their counters, for the controller's records.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use forebay_control::controller::{ControllerInput, HostIo, MeasuredUse};
use forebay_control::messages::InstanceId;
use forebay_units::Bytes;

use super::Driver;
use crate::activity::HostActivity;

/// Time between records of all hosts. The end of a mount is recorded with the next tick, together with
/// those of the job's other hosts.
const RECORD_INTERVAL: Duration = Duration::from_secs(10);

/// The measured use that is in the controller's records, or waits for the next one.
#[derive(Debug, Default)]
pub(super) struct ReportedUse {
    io: BTreeMap<String, BTreeMap<InstanceId, HostIo>>,
    /// The most bytes in use in each instance.
    used: BTreeMap<InstanceId, u64>,
    /// Counters of mounts that have ended, for the next record.
    ended: MeasuredUse,
    /// Time of the last record of all hosts.
    recorded: Option<Instant>,
}

impl ReportedUse {
    /// Counters of a host's mounts that the controller does not know; if `only_ended`, of those that
    /// have ended.
    fn new_io(&mut self, host: &HostActivity, only_ended: bool) -> MeasuredUse {
        // A storage node has no mounts; the agent of its host reports under the same name.
        if host.io.is_empty() && host.store.is_some() {
            return MeasuredUse::default();
        }
        let known = self.io.entry(host.host.clone()).or_default();
        known.retain(|instance, _| host.io.contains_key(instance));
        let is_ended = |instance| !host.mounts.contains_key(instance);
        let wanted = host.io.iter().filter(|(id, _)| !only_ended || is_ended(*id));
        let mut measured = MeasuredUse::default();
        for (instance, io) in wanted {
            if known.insert(*instance, *io) != Some(*io) {
                measured.io.push((host.host.clone(), *instance, *io));
            }
        }
        measured
    }

    /// Instances that use more than ever before, on all hosts that report.
    fn new_peaks<'a>(
        &mut self,
        hosts: impl Iterator<Item = &'a HostActivity>,
    ) -> Vec<(InstanceId, Bytes)> {
        let mut used: BTreeMap<InstanceId, u64> = BTreeMap::new();
        let gauges = hosts.filter_map(|host| host.store.as_ref()?.gauges.as_ref());
        for instance in gauges.flat_map(|gauges| &gauges.instances) {
            let sum = used.entry(instance.spec.id).or_default();
            *sum = sum.saturating_add(instance.used);
        }
        self.used.retain(|instance, _| used.contains_key(instance));
        let mut peaks = Vec::new();
        for (instance, used) in used {
            let told = self.used.entry(instance).or_default();
            if used > *told {
                *told = used;
                peaks.push((instance, Bytes(used)));
            }
        }
        peaks
    }
}

impl Driver {
    /// Records what is new in all hosts' counters, if it is time, or of mounts that have ended.
    pub(super) fn record_use(&mut self) {
        if self.told.recorded.is_none_or(|at| at.elapsed() >= RECORD_INTERVAL) {
            self.record_all_use();
        } else {
            let ended = std::mem::take(&mut self.told.ended);
            self.tell(ended);
        }
    }

    /// Records what is new in all hosts' counters.
    pub(super) fn record_all_use(&mut self) {
        self.told.recorded = Some(Instant::now());
        let mut measured = std::mem::take(&mut self.told.ended);
        for host in self.activity.values() {
            measured.io.append(&mut self.told.new_io(host, false).io);
        }
        measured.used.append(&mut self.told.new_peaks(self.activity.values()));
        self.tell(measured);
    }

    /// Notes the counters of mounts that have ended since a host's last report, for the next record.
    pub(super) fn note_ended_mounts(&mut self, host: &HostActivity) {
        let mut measured = self.told.new_io(host, true);
        let known = &self.told.ended.io;
        let is_first = |(_, instance, _): &(String, InstanceId, HostIo)| {
            known.iter().all(|(_, other, _)| other != instance)
        };
        if measured.io.iter().any(is_first) {
            // The space may be free before the next record.
            let mut peaks = self.told.new_peaks(self.activity.values());
            self.told.ended.used.append(&mut peaks);
        }
        self.told.ended.io.append(&mut measured.io);
    }

    /// Records the last counters of a host that is not connected any more.
    pub(super) fn record_host_io(&mut self, host: &HostActivity) {
        // Older counters of this host come first.
        let mut measured = std::mem::take(&mut self.told.ended);
        measured.io.append(&mut self.told.new_io(host, false).io);
        self.told.io.remove(&host.host);
        self.tell(measured);
    }

    fn tell(&mut self, measured: MeasuredUse) {
        if !measured.is_empty() {
            self.step(ControllerInput::Use(measured));
        }
    }
}
