//! Activities and files from a log.

use super::activity::{Activity, Ranks, Tracer};
use super::phase::{leave_out_small_parts, phases};
use super::warnings::Seen;
use super::{FileSet, JobIo, Measured};
use crate::ior::Access;
use forebay_darshan_log::{Api, FileUse, Log, LogError, Performance, TraceApi};
use forebay_units::human;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek};

/// Most activities that traces are divided into; pauses after that do not end one.
const MOST_ACTIVITIES: usize = 1 << 20;
/// Buffer of a C stream, bytes.
pub(super) const STREAM_BUFFER: u64 = 4096;
/// Most phases.
const MOST_PHASES: usize = 1000;

/// Calls of a file: reads and writes.
type Calls = (u64, u64);

/// What is known of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileFacts {
    pub written: u64,
    write_extent: u64,
    pub read: u64,
    read_extent: u64,
    first_rank: Option<u32>,
    is_shared: bool,
}

impl FileFacts {
    /// Whether the reads have more bytes than the file, as far as it was accessed.
    pub(super) fn is_read_repeatedly(&self) -> bool {
        let extent = self.read_extent.max(self.write_extent);
        extent > 0 && self.read > extent + extent / 10
    }
}

/// The parts of a log as they are collected.
pub(super) struct Collector {
    processes: u32,
    activities: Vec<Activity>,
    /// Calls in the traces, by file and process, and by file.
    traced: HashMap<(u64, u32), Calls>,
    traced_files: HashMap<u64, Calls>,
    /// Traces that do not have the calls that the counters have.
    incomplete: HashSet<(u64, Option<u32>)>,
    pub(super) files: HashMap<u64, FileFacts>,
    synced: HashSet<u64>,
    pub(super) performance: Performance,
    pub(super) seen: Seen,
}

/// Reads the I/O of a log.
///
/// # Errors
/// The log is damaged, or a region is too large.
pub fn read<R: Read + Seek>(log: &mut Log<R>) -> Result<JobIo, LogError> {
    let names = log.names()?;
    let is_stream = |name: &str| matches!(name, "<STDIN>" | "<STDOUT>" | "<STDERR>");
    let streams: HashSet<u64> =
        names.iter().filter(|(_, name)| is_stream(name)).map(|(id, _)| id).collect();
    let mut collector = Collector {
        processes: log.job().processes,
        activities: Vec::new(),
        traced: HashMap::new(),
        traced_files: HashMap::new(),
        incomplete: HashSet::new(),
        files: HashMap::new(),
        synced: HashSet::new(),
        performance: Performance::default(),
        seen: Seen::default(),
    };
    let hosts = collector.read_traces(log)?;
    let mut posix = HashSet::new();
    let mut counted = Vec::new();
    collector.seen.left_out_records = log.records(Api::Posix, |record| {
        let file = FileUse::of(record);
        posix.insert(file.id);
        collector.add(&file);
        collector.add_counters(&file, &mut counted);
    })?;
    for api in [Api::MpiIo, Api::Stdio] {
        log.records(api, |record| {
            let file = FileUse::of(record);
            collector.seen.collective |= file.collective > 0;
            let is_known = api == Api::MpiIo && posix.contains(&file.id);
            if is_known || streams.contains(&file.id) {
                return;
            }
            collector.add(&file);
            match api {
                Api::Stdio => collector.add_counters(&with_stream_buffers(file), &mut counted),
                Api::Posix | Api::MpiIo => collector.add_counters(&file, &mut counted),
            }
        })?;
    }
    Ok(collector.finish(log, counted, hosts))
}

/// Streams collect small reads and writes in their buffers.
fn with_stream_buffers(file: FileUse) -> FileUse {
    let buffered = |transfers: forebay_darshan_log::Transfers| forebay_darshan_log::Transfers {
        operations: transfers.operations.min(transfers.bytes.div_ceil(STREAM_BUFFER)),
        // The buffers of a stream follow each other, unless the program seeks, which is not counted apart.
        consecutive: transfers.operations,
        sequential: transfers.operations,
        ..transfers
    };
    FileUse { read: buffered(file.read), write: buffered(file.write), ..file }
}

impl Collector {
    /// The activities of the traces. Returns the number of hosts, if there are traces.
    fn read_traces<R: Read + Seek>(&mut self, log: &mut Log<R>) -> Result<Option<u32>, LogError> {
        let mut hosts = HashSet::new();
        let mut tracer = Tracer::new();
        let mut present = None;
        log.traces(TraceApi::Posix, |file, access, segments| {
            let access = match access {
                forebay_darshan_log::Access::Read => Access::Read,
                forebay_darshan_log::Access::Write => Access::Write,
            };
            let of = (file.id, file.rank, access);
            if present != Some(of) {
                self.activities.extend(tracer.end());
                present = Some(of);
            }
            if !hosts.contains(&file.host) {
                hosts.insert(file.host.clone());
            }
            let calls = (
                if access == Access::Read { segments.len() as u64 } else { 0 },
                if access == Access::Write { segments.len() as u64 } else { 0 },
            );
            for counts in [
                self.traced.entry((file.id, file.rank)).or_default(),
                self.traced_files.entry(file.id).or_default(),
            ] {
                *counts = (counts.0 + calls.0, counts.1 + calls.1);
            }
            for segment in segments {
                let may_end = self.activities.len() < MOST_ACTIVITIES;
                self.activities.extend(tracer.add(of, segment, may_end));
            }
        })?;
        self.activities.extend(tracer.end());
        let hosts = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
        Ok((hosts > 0).then_some(hosts))
    }

    /// Adds what is known of a file.
    fn add(&mut self, file: &FileUse) {
        self.performance.add(file);
        let facts = self.files.entry(file.id).or_default();
        facts.written = facts.written.saturating_add(file.write.bytes);
        facts.read = facts.read.saturating_add(file.read.bytes);
        facts.write_extent = facts.write_extent.max(file.write.extent);
        facts.read_extent = facts.read_extent.max(file.read.extent);
        if file.bytes() > 0 {
            match (file.rank, facts.first_rank) {
                (None, _) => facts.is_shared = true,
                (Some(rank), Some(first)) => facts.is_shared |= rank != first,
                (Some(rank), None) => facts.first_rank = Some(rank),
            }
        }
        if file.syncs > 0 {
            self.synced.insert(file.id);
        }
        if file.maps > 0 {
            self.seen.mapped_files.insert(file.id);
        }
        if file.api == Api::Stdio {
            self.seen.stream_bytes = self.seen.stream_bytes.saturating_add(file.bytes());
        }
        self.seen.meta_seconds += file.meta_seconds;
        self.seen.io_seconds += file.meta_seconds + file.read.seconds + file.write.seconds;
    }

    /// Adds the activities of counters, unless traces have the same calls.
    fn add_counters(&mut self, file: &FileUse, counted: &mut Vec<Activity>) {
        let calls = (file.read.operations, file.write.operations);
        let traced = match file.rank {
            Some(rank) => self.traced.get(&(file.id, rank)),
            None => self.traced_files.get(&file.id),
        };
        if file.api == Api::Posix && traced == Some(&calls) {
            return;
        }
        if traced.is_some() {
            self.incomplete.insert((file.id, file.rank));
        }
        let both = [Access::Write, Access::Read];
        let found = both
            .into_iter()
            .filter_map(|access| Activity::of_counters(file, access, self.processes));
        let before = counted.len();
        counted.extend(found);
        if counted.len() > before && !self.traced.is_empty() {
            self.seen.untraced_files.insert(file.id);
        }
    }

    fn finish<R: Read + Seek>(
        mut self,
        log: &Log<R>,
        counted: Vec<Activity>,
        hosts: Option<u32>,
    ) -> JobIo {
        let incomplete = std::mem::take(&mut self.incomplete);
        let mut activities = std::mem::take(&mut self.activities);
        activities.retain(|activity| match activity.ranks {
            Ranks::One(rank) => {
                !incomplete.contains(&(activity.file, Some(rank)))
                    && !incomplete.contains(&(activity.file, None))
            }
            Ranks::Some(_) => true,
        });
        activities.retain(|activity| activity.total().bytes > 0);
        let has_traces = !activities.is_empty();
        for activity in &mut activities {
            activity.is_synced = self.synced.contains(&activity.file);
        }
        let is_counted = !counted.is_empty();
        activities.extend(counted);
        let mut shared: HashSet<u64> =
            self.files.iter().filter(|(_, facts)| facts.is_shared).map(|(id, _)| *id).collect();
        // A record of all processes may be the work of one.
        for activity in activities.iter().filter(|one| one.ranks == Ranks::Some(1)) {
            shared.remove(&activity.file);
        }
        let mut phases = phases(activities, &shared);
        leave_out_small_parts(&mut phases);
        let all_phases = phases.len();
        phases.sort_by_key(|phase| Reverse(phase.bytes));
        phases.truncate(MOST_PHASES);
        phases.sort_by(|a, b| a.begin.total_cmp(&b.begin).then(a.end.total_cmp(&b.end)));
        let (written, only_read) = self.file_sets();
        let mut warnings = self.warnings(log, &phases, (has_traces, is_counted));
        if all_phases > MOST_PHASES {
            let left_out = all_phases - MOST_PHASES;
            warnings.push(format!(
                "{} with the fewest bytes are left out",
                human::counted(left_out as u64, "phase")
            ));
        }
        JobIo {
            processes: self.processes,
            hosts,
            run_seconds: log.job().run_seconds,
            has_traces,
            measured: Measured {
                seconds: self.performance.seconds(),
                bytes: self.performance.bytes(),
            },
            phases,
            written,
            only_read,
            warnings,
        }
    }

    /// Files that were written, and those that were only read.
    fn file_sets(&self) -> (FileSet, FileSet) {
        let (mut written, mut only_read) = (FileSet::default(), FileSet::default());
        let size = |bytes: u64, extent: u64| if extent > 0 { bytes.min(extent) } else { bytes };
        for facts in self.files.values() {
            let (set, bytes) = match (facts.written, facts.read) {
                (0, 0) => continue,
                (0, read) => (&mut only_read, size(read, facts.read_extent)),
                (bytes, _) => (&mut written, size(bytes, facts.write_extent)),
            };
            set.files += 1;
            set.bytes = set.bytes.saturating_add(bytes);
        }
        (written, only_read)
    }
}
