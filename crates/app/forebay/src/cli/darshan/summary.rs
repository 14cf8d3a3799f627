//! The summary of a log.

use super::printable;
use forebay_darshan_log::{Api, FileUse, Log, LogError, Performance, SIZE_BINS};
use forebay_workload::darshan::{JobIo, Phase, read};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek};

/// A module of the log.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ModuleSummary {
    pub name: String,
    pub version: u32,
    /// Bytes in the log.
    pub bytes: u64,
    pub is_partial: bool,
}

/// The I/O through an interface.
#[derive(Clone, Debug, Serialize)]
pub(super) struct InterfaceSummary {
    pub name: String,
    pub files: u64,
    pub opens: u64,
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Darshan's `agg_time_by_slowest`.
    pub slowest_seconds: f64,
    /// Darshan's `agg_perf_by_slowest`.
    #[serde(rename = "GBps")]
    pub gbps: Option<f64>,
    /// The slowest process in files without a shared record.
    pub slowest_rank: Option<u32>,
}

/// Files with something in common.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct FileGroup {
    pub name: String,
    pub files: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// Files with the same striping on Lustre: that of their first component.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Striping {
    /// Targets of a file.
    pub stripe_count: u64,
    pub stripe_bytes: u64,
    pub files: u64,
}

/// Requests of a range of sizes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SizeRange {
    /// Requests are larger than this.
    pub above_bytes: u64,
    pub reads: u64,
    pub writes: u64,
}

/// A phase that is simulated.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PhaseSummary {
    pub access: String,
    pub files: String,
    pub file_count: u64,
    pub processes: u32,
    pub begin_seconds: f64,
    pub end_seconds: f64,
    pub bytes: u64,
    pub operations: u64,
    pub measured_seconds: f64,
    /// The tests of IOR that stand for it.
    pub ior: Vec<String>,
}

/// The document of `darshan show`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LogSummary {
    pub schema: u32,
    pub kind: &'static str,
    pub log: String,
    pub format: String,
    pub library: Option<String>,
    pub program: String,
    pub user_id: i64,
    pub job_id: i64,
    /// Start, seconds since 1970.
    pub start: f64,
    pub run_seconds: f64,
    pub processes: u32,
    pub hosts: Option<u32>,
    pub is_partial: bool,
    pub modules: Vec<ModuleSummary>,
    pub interfaces: Vec<InterfaceSummary>,
    /// Time of the slowest processes in calls of all interfaces.
    pub slowest_seconds: f64,
    /// That time as a share of the run.
    pub io_share: Option<f64>,
    /// Files by the processes that opened them.
    pub sharing: Vec<FileGroup>,
    /// Files by mounted file system.
    pub mounts: Vec<FileGroup>,
    /// Striping on Lustre.
    pub striping: Vec<Striping>,
    /// Requests by size: those of POSIX, or of MPI-IO without POSIX records.
    pub sizes: Vec<SizeRange>,
    /// The files with most bytes.
    pub files: Vec<FileGroup>,
    pub phases: Vec<PhaseSummary>,
    pub warnings: Vec<String>,
}

/// Totals of a file's records.
#[derive(Clone, Copy, Debug, Default)]
struct OneFile {
    bytes_read: u64,
    bytes_written: u64,
    /// Records of single processes.
    processes: u64,
    is_of_all: bool,
}

impl OneFile {
    fn sharing(&self) -> &'static str {
        match (self.is_of_all, self.processes) {
            (true, _) => "all processes",
            (false, 0 | 1) => "one process",
            (false, _) => "some processes",
        }
    }

    fn add_to(&self, group: &mut FileGroup) {
        group.files += 1;
        group.bytes_read = group.bytes_read.saturating_add(self.bytes_read);
        group.bytes_written = group.bytes_written.saturating_add(self.bytes_written);
    }
}

/// Summarizes a log; `most_files` with most bytes are listed.
pub(super) fn summarize<R: Read + Seek>(
    log: &mut Log<R>,
    name: String,
    most_files: usize,
) -> Result<LogSummary, LogError> {
    let names = log.names()?;
    let mut files: HashMap<u64, OneFile> = HashMap::new();
    let mut interfaces = Vec::new();
    let mut sizes = [[0u64; 2]; 10];
    let mut has_posix = false;
    for api in Api::ALL {
        let mut performance = Performance::default();
        let mut sums = [0u64; 5];
        let mut of_api: HashMap<u64, OneFile> = HashMap::new();
        log.records(api, |record| {
            let file = FileUse::of(record);
            performance.add(&file);
            let (read, write) = (&file.read, &file.write);
            let more = [file.opens, read.operations, write.operations, read.bytes, write.bytes];
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
            let one = of_api.entry(file.id).or_default();
            one.bytes_read = one.bytes_read.saturating_add(read.bytes);
            one.bytes_written = one.bytes_written.saturating_add(write.bytes);
            one.processes += u64::from(file.rank.is_some());
            one.is_of_all |= file.rank.is_none();
            if api == Api::Posix || api == Api::MpiIo && !has_posix {
                for (range, [reads, writes]) in sizes.iter_mut().enumerate() {
                    *reads = reads.saturating_add(read.sizes[range]);
                    *writes = writes.saturating_add(write.sizes[range]);
                }
            }
        })?;
        has_posix |= api == Api::Posix && performance.files() > 0;
        // MPI-IO makes POSIX calls: its files are counted there.
        for (id, one) in of_api {
            if names.get(id).is_none_or(|name| !name.starts_with('<')) {
                files.entry(id).or_insert(one);
            }
        }
        if performance.files() > 0 {
            let [opens, reads, writes, bytes_read, bytes_written] = sums;
            interfaces.push(InterfaceSummary {
                name: api.name().into(),
                files: performance.files(),
                opens,
                reads,
                writes,
                bytes_read,
                bytes_written,
                slowest_seconds: performance.seconds(),
                gbps: performance.rate().map(|rate| rate / 1e9),
                slowest_rank: performance.slowest_rank().map(|(rank, _)| rank),
            });
        }
    }
    let striping = striping(log)?;
    let io = read(log)?;
    let (header, job) = (log.header(), log.job());
    let by = |group: &dyn Fn(u64, &OneFile) -> String| {
        let mut groups = BTreeMap::<String, FileGroup>::new();
        for (id, one) in &files {
            let name = group(*id, one);
            let known =
                groups.entry(name.clone()).or_insert(FileGroup { name, ..FileGroup::default() });
            one.add_to(known);
        }
        groups.into_values().collect::<Vec<_>>()
    };
    let mount = |id: u64, _: &OneFile| match names.get(id).map(|name| (name, job.mount_of(name))) {
        Some((_, Some(mount))) => printable(&format!("{} ({})", mount.path, mount.kind)),
        Some((_, None)) => "unknown file system".into(),
        None => "unknown name".into(),
    };
    let run_seconds = job.run_seconds;
    Ok(LogSummary {
        schema: forebay_machine::results::SCHEMA,
        kind: "darshan show",
        log: name,
        format: header.version.to_string(),
        library: job.metadata("lib_ver").map(printable),
        program: printable(&job.command),
        user_id: job.uid,
        job_id: job.job_id,
        start: job.start,
        run_seconds,
        processes: job.processes,
        hosts: io.hosts,
        is_partial: header.is_partial(),
        modules: header
            .modules
            .iter()
            .map(|region| ModuleSummary {
                name: region.module.to_string(),
                version: region.version,
                bytes: region.bytes,
                is_partial: region.is_partial,
            })
            .collect(),
        interfaces,
        slowest_seconds: io.measured.seconds,
        io_share: (run_seconds > 0.0).then(|| io.measured.seconds / run_seconds),
        sharing: by(&|_, one| one.sharing().into()),
        mounts: by(&mount),
        striping,
        sizes: ranges(sizes),
        files: largest(&files, most_files, |id| match names.get(id) {
            Some(name) => printable(name),
            None => format!("file {id}"),
        }),
        phases: phases(&io, job.processes),
        warnings: io.warnings,
    })
}

/// The striping of the files; a file that several processes opened has several records.
fn striping<R: Read + Seek>(log: &mut Log<R>) -> Result<Vec<Striping>, LogError> {
    let mut of_file: HashMap<u64, (u64, u64)> = HashMap::new();
    log.lustre(|file| {
        if let Some(first) = file.components.first() {
            of_file.insert(file.id, (first.stripe_count, first.stripe_bytes));
        }
    })?;
    let mut counts = BTreeMap::<(u64, u64), u64>::new();
    of_file.into_values().for_each(|striping| *counts.entry(striping).or_default() += 1);
    let row =
        |((stripe_count, stripe_bytes), files)| Striping { stripe_count, stripe_bytes, files };
    Ok(counts.into_iter().map(row).collect())
}

/// The sizes that there are.
fn ranges(sizes: [[u64; 2]; 10]) -> Vec<SizeRange> {
    let all = SIZE_BINS.into_iter().zip(sizes);
    all.filter(|(_, [reads, writes])| reads + writes > 0)
        .map(|(above_bytes, [reads, writes])| SizeRange { above_bytes, reads, writes })
        .collect()
}

/// The files with most bytes.
fn largest(
    files: &HashMap<u64, OneFile>,
    most: usize,
    name: impl Fn(u64) -> String,
) -> Vec<FileGroup> {
    let bytes = |one: &OneFile| one.bytes_read.saturating_add(one.bytes_written);
    let mut all: Vec<(u64, &OneFile)> = files.iter().map(|(id, one)| (*id, one)).collect();
    all.sort_by(|(a, one), (b, other)| bytes(other).cmp(&bytes(one)).then(a.cmp(b)));
    let group = |(id, one): (u64, &OneFile)| FileGroup {
        name: name(id),
        files: 1,
        bytes_read: one.bytes_read,
        bytes_written: one.bytes_written,
    };
    all.into_iter().take(most).map(group).collect()
}

/// The phases; without nodes of their own, as if all processes were on one.
fn phases(io: &JobIo, processes: u32) -> Vec<PhaseSummary> {
    let (nodes, ppn) = io.distribution(None, None).unwrap_or((1, processes));
    let line = |phase: &Phase| {
        let of_part = |part: &forebay_workload::darshan::Part| {
            part.ior_arguments(part.distribution(nodes, ppn)).join(" ")
        };
        phase.parts.iter().map(of_part).collect()
    };
    io.phases
        .iter()
        .map(|phase| PhaseSummary {
            access: phase.access.name().into(),
            files: if phase.is_shared { "shared file" } else { "file per process" }.into(),
            file_count: phase.files,
            processes: phase.processes,
            begin_seconds: phase.begin,
            end_seconds: phase.end,
            bytes: phase.bytes,
            operations: phase.operations,
            measured_seconds: phase.measured_seconds,
            ior: line(phase),
        })
        .collect()
}
