//! The use of a file by a process, in one form for all interfaces.

use crate::counter_names as names;
use crate::counters::{Api, CounterRecord};

/// Direction of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// From the file to the process.
    Read,
    /// From the process to the file.
    Write,
}

impl Access {
    /// `read` or `write`.
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }
}

/// The least size of each bin of Darshan's histograms, bytes; a bin contains the sizes above that up to the
/// next one. The first begins at 0.
pub const SIZE_BINS: [u64; 10] =
    [0, 100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30];

/// Transfers in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transfers {
    /// Number of calls.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
    /// Calls that begin where the one before ended.
    pub consecutive: u64,
    /// Calls that begin behind the one before.
    pub sequential: u64,
    /// Calls by size ([`SIZE_BINS`]); all 0 for STDIO, which does not count them.
    pub sizes: [u64; 10],
    /// Highest offset of these calls and one; 0 where it is not counted.
    pub extent: u64,
    /// Time in these calls, summed over the processes, seconds.
    pub seconds: f64,
    /// Start of the first call and end of the last one, seconds since the program's start.
    pub span: Option<(f64, f64)>,
}

/// The use of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileUse {
    /// The interface.
    pub api: Api,
    /// Id of the file's name.
    pub id: u64,
    /// The process; `None`: the sum over all processes.
    pub rank: Option<u32>,
    /// Number of opens.
    pub opens: u64,
    /// `fsync` and `fdatasync`, or `MPI_File_sync`.
    pub syncs: u64,
    /// `stat` and the like.
    pub stats: u64,
    /// Memory maps, through which data move without being counted.
    pub maps: u64,
    /// Collective MPI-IO transfers.
    pub collective: u64,
    /// Changes between reading and writing.
    pub switches: u64,
    /// Reads.
    pub read: Transfers,
    /// Writes.
    pub write: Transfers,
    /// The most common sizes of transfers in both directions, with their numbers.
    pub common_sizes: Vec<(u64, u64)>,
    /// Time in opens, closes, seeks and the like, summed over the processes, seconds.
    pub meta_seconds: f64,
    /// Time of the process in all calls for this file; of a shared file that of the slowest process, seconds.
    pub slowest_seconds: f64,
    /// Bytes of a process with many bytes: of a shared file the slowest or the fastest one's.
    pub most_bytes: u64,
}

/// Index of a counter.
const fn index(names: &[&str], name: &str) -> usize {
    let mut at = 0;
    while at < names.len() {
        if is_same(names[at].as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!("no such counter")
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// A counter of a record by its name, whose index is found by the compiler.
macro_rules! counter {
    ($record:expr, $names:expr, $name:literal) => {{
        const INDEX: usize = index(&$names, $name);
        u64::try_from($record.counters[INDEX]).unwrap_or(0)
    }};
}

/// A time of a record by its name; 0 instead of what is no time.
macro_rules! time {
    ($record:expr, $names:expr, $name:literal) => {{
        const INDEX: usize = index(&$names, $name);
        valid_time($record.times[INDEX])
    }};
}

fn valid_time(seconds: f64) -> f64 {
    if seconds.is_finite() && seconds > 0.0 { seconds } else { 0.0 }
}

/// The first and last time of calls; `None` without calls.
fn span(operations: u64, first: f64, last: f64) -> Option<(f64, f64)> {
    (operations > 0).then_some((first.min(last), last))
}

impl FileUse {
    /// The use that a record counts.
    pub fn of(record: &CounterRecord) -> FileUse {
        let common = match record.api {
            Api::Posix => posix(record),
            Api::MpiIo => mpi_io(record),
            Api::Stdio => stdio(record),
        };
        match record.rank {
            None => common,
            Some(_) => FileUse {
                slowest_seconds: common.meta_seconds + common.read.seconds + common.write.seconds,
                most_bytes: common.read.bytes.saturating_add(common.write.bytes),
                ..common
            },
        }
    }

    /// The transfers in a direction.
    pub fn transfers(&self, access: Access) -> &Transfers {
        match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        }
    }

    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.read.bytes.saturating_add(self.write.bytes)
    }
}

/// The extent of a file up to the highest offset of `operations`.
fn extent(operations: u64, highest: u64) -> u64 {
    if operations > 0 { highest.saturating_add(1) } else { 0 }
}

/// Ten consecutive counters from an index on.
fn bins(record: &CounterRecord, first: usize) -> [u64; 10] {
    std::array::from_fn(|bin| u64::try_from(record.counters[first + bin]).unwrap_or(0))
}

/// The four common sizes and their numbers, which begin at these indices.
fn common_sizes(record: &CounterRecord, first: usize, counts: usize) -> Vec<(u64, u64)> {
    let valid = |value: i64| u64::try_from(value).unwrap_or(0);
    (0..4)
        .map(|at| (valid(record.counters[first + at]), valid(record.counters[counts + at])))
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn posix(record: &CounterRecord) -> FileUse {
    use names::{POSIX, POSIX_TIMES};
    let (reads, writes) = (counter!(record, POSIX, "READS"), counter!(record, POSIX, "WRITES"));
    FileUse {
        api: record.api,
        id: record.id,
        rank: record.rank,
        opens: counter!(record, POSIX, "OPENS"),
        syncs: counter!(record, POSIX, "FSYNCS").saturating_add(counter!(record, POSIX, "FDSYNCS")),
        stats: counter!(record, POSIX, "STATS"),
        maps: counter!(record, POSIX, "MMAPS"),
        collective: 0,
        switches: counter!(record, POSIX, "RW_SWITCHES"),
        read: Transfers {
            operations: reads,
            bytes: counter!(record, POSIX, "BYTES_READ"),
            consecutive: counter!(record, POSIX, "CONSEC_READS"),
            sequential: counter!(record, POSIX, "SEQ_READS"),
            sizes: bins(record, const { index(&POSIX, "SIZE_READ_0_100") }),
            extent: extent(reads, counter!(record, POSIX, "MAX_BYTE_READ")),
            seconds: time!(record, POSIX_TIMES, "READ_TIME"),
            span: span(
                reads,
                time!(record, POSIX_TIMES, "READ_START_TIMESTAMP"),
                time!(record, POSIX_TIMES, "READ_END_TIMESTAMP"),
            ),
        },
        write: Transfers {
            operations: writes,
            bytes: counter!(record, POSIX, "BYTES_WRITTEN"),
            consecutive: counter!(record, POSIX, "CONSEC_WRITES"),
            sequential: counter!(record, POSIX, "SEQ_WRITES"),
            sizes: bins(record, const { index(&POSIX, "SIZE_WRITE_0_100") }),
            extent: extent(writes, counter!(record, POSIX, "MAX_BYTE_WRITTEN")),
            seconds: time!(record, POSIX_TIMES, "WRITE_TIME"),
            span: span(
                writes,
                time!(record, POSIX_TIMES, "WRITE_START_TIMESTAMP"),
                time!(record, POSIX_TIMES, "WRITE_END_TIMESTAMP"),
            ),
        },
        common_sizes: common_sizes(
            record,
            const { index(&POSIX, "ACCESS1_ACCESS") },
            const { index(&POSIX, "ACCESS1_COUNT") },
        ),
        meta_seconds: time!(record, POSIX_TIMES, "META_TIME"),
        slowest_seconds: time!(record, POSIX_TIMES, "SLOWEST_RANK_TIME"),
        most_bytes: counter!(record, POSIX, "SLOWEST_RANK_BYTES").max(counter!(
            record,
            POSIX,
            "FASTEST_RANK_BYTES"
        )),
    }
}

fn mpi_io(record: &CounterRecord) -> FileUse {
    use names::{MPIIO, MPIIO_TIMES};
    let sum = |counters: [u64; 4]| counters.into_iter().fold(0, u64::saturating_add);
    let collective_reads = counter!(record, MPIIO, "COLL_READS").saturating_add(counter!(
        record,
        MPIIO,
        "SPLIT_READS"
    ));
    let collective_writes = counter!(record, MPIIO, "COLL_WRITES").saturating_add(counter!(
        record,
        MPIIO,
        "SPLIT_WRITES"
    ));
    let reads = sum([
        counter!(record, MPIIO, "INDEP_READS"),
        collective_reads,
        counter!(record, MPIIO, "NB_READS"),
        0,
    ]);
    let writes = sum([
        counter!(record, MPIIO, "INDEP_WRITES"),
        collective_writes,
        counter!(record, MPIIO, "NB_WRITES"),
        0,
    ]);
    FileUse {
        api: record.api,
        id: record.id,
        rank: record.rank,
        opens: counter!(record, MPIIO, "INDEP_OPENS").saturating_add(counter!(
            record,
            MPIIO,
            "COLL_OPENS"
        )),
        syncs: counter!(record, MPIIO, "SYNCS"),
        stats: 0,
        maps: 0,
        collective: collective_reads.saturating_add(collective_writes),
        switches: counter!(record, MPIIO, "RW_SWITCHES"),
        read: Transfers {
            operations: reads,
            bytes: counter!(record, MPIIO, "BYTES_READ"),
            sizes: bins(record, const { index(&MPIIO, "SIZE_READ_AGG_0_100") }),
            seconds: time!(record, MPIIO_TIMES, "READ_TIME"),
            span: span(
                reads,
                time!(record, MPIIO_TIMES, "READ_START_TIMESTAMP"),
                time!(record, MPIIO_TIMES, "READ_END_TIMESTAMP"),
            ),
            ..Transfers::default()
        },
        write: Transfers {
            operations: writes,
            bytes: counter!(record, MPIIO, "BYTES_WRITTEN"),
            sizes: bins(record, const { index(&MPIIO, "SIZE_WRITE_AGG_0_100") }),
            seconds: time!(record, MPIIO_TIMES, "WRITE_TIME"),
            span: span(
                writes,
                time!(record, MPIIO_TIMES, "WRITE_START_TIMESTAMP"),
                time!(record, MPIIO_TIMES, "WRITE_END_TIMESTAMP"),
            ),
            ..Transfers::default()
        },
        common_sizes: common_sizes(
            record,
            const { index(&MPIIO, "ACCESS1_ACCESS") },
            const { index(&MPIIO, "ACCESS1_COUNT") },
        ),
        meta_seconds: time!(record, MPIIO_TIMES, "META_TIME"),
        slowest_seconds: time!(record, MPIIO_TIMES, "SLOWEST_RANK_TIME"),
        most_bytes: counter!(record, MPIIO, "SLOWEST_RANK_BYTES").max(counter!(
            record,
            MPIIO,
            "FASTEST_RANK_BYTES"
        )),
    }
}

fn stdio(record: &CounterRecord) -> FileUse {
    use names::{STDIO, STDIO_TIMES};
    let (reads, writes) = (counter!(record, STDIO, "READS"), counter!(record, STDIO, "WRITES"));
    FileUse {
        api: record.api,
        id: record.id,
        rank: record.rank,
        opens: counter!(record, STDIO, "OPENS"),
        syncs: 0,
        stats: 0,
        maps: 0,
        collective: 0,
        switches: 0,
        read: Transfers {
            operations: reads,
            bytes: counter!(record, STDIO, "BYTES_READ"),
            extent: extent(reads, counter!(record, STDIO, "MAX_BYTE_READ")),
            seconds: time!(record, STDIO_TIMES, "READ_TIME"),
            span: span(
                reads,
                time!(record, STDIO_TIMES, "READ_START_TIMESTAMP"),
                time!(record, STDIO_TIMES, "READ_END_TIMESTAMP"),
            ),
            ..Transfers::default()
        },
        write: Transfers {
            operations: writes,
            bytes: counter!(record, STDIO, "BYTES_WRITTEN"),
            extent: extent(writes, counter!(record, STDIO, "MAX_BYTE_WRITTEN")),
            seconds: time!(record, STDIO_TIMES, "WRITE_TIME"),
            span: span(
                writes,
                time!(record, STDIO_TIMES, "WRITE_START_TIMESTAMP"),
                time!(record, STDIO_TIMES, "WRITE_END_TIMESTAMP"),
            ),
            ..Transfers::default()
        },
        common_sizes: Vec::new(),
        meta_seconds: time!(record, STDIO_TIMES, "META_TIME"),
        slowest_seconds: time!(record, STDIO_TIMES, "SLOWEST_RANK_TIME"),
        most_bytes: counter!(record, STDIO, "SLOWEST_RANK_BYTES").max(counter!(
            record,
            STDIO,
            "FASTEST_RANK_BYTES"
        )),
    }
}
