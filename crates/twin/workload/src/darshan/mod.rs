//! The I/O of a Darshan log as tests of IOR.
//!
//! [`read`] reduces a log to [`Phase`]s, in the order of their begins: writes or reads of files of processes, or of
//! shared files, that overlap in time. A phase consists of [`Part`]s with requests of similar size, each of which is
//! a test of IOR with the processes, the number and the size of requests, and the pattern in the file that the log
//! has. Phases come from the traces of DXT where the log has them, else from the counters.
//!
//! What the reduction keeps and drops is in `docs/darshan.md`; [`JobIo::warnings`] says what it means for a log.

mod activity;
mod collect;
mod part;
mod phase;
mod warnings;

pub use collect::read;
pub use part::Part;
pub use phase::Phase;

/// Files with their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSet {
    /// Number of files.
    pub files: u64,
    /// Sum of their sizes, as far as they were accessed.
    pub bytes: u64,
}

/// What the log measured: the time of the slowest processes, as Darshan adds it up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Time of the slowest process in calls for files of its own, and of the slowest process in each file that all
    /// shared, seconds.
    pub seconds: f64,
    /// Bytes in both directions.
    pub bytes: u64,
}

impl Measured {
    /// Bytes per second; `None` if no time was spent.
    pub fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.bytes as f64 / self.seconds)
    }
}

/// The I/O of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct JobIo {
    /// Processes of the program.
    pub processes: u32,
    /// Hosts in the traces; `None` without traces.
    pub hosts: Option<u32>,
    /// Duration of the run, seconds.
    pub run_seconds: f64,
    /// Whether phases come from traces, if any do.
    pub has_traces: bool,
    /// What the log measured.
    pub measured: Measured,
    /// The phases, by their begins.
    pub phases: Vec<Phase>,
    /// Files that were written.
    pub written: FileSet,
    /// Files that were read and not written.
    pub only_read: FileSet,
    /// What the log does not determine, or the reduction leaves out.
    pub warnings: Vec<String>,
}

impl JobIo {
    /// Nodes and processes per node of the job: as given, else by the hosts of the traces; `None` if neither says
    /// it.
    pub fn distribution(&self, nodes: Option<u32>, ppn: Option<u32>) -> Option<(u32, u32)> {
        match (nodes.or(self.hosts), ppn) {
            (_, Some(ppn)) if nodes.is_none() => Some((self.processes.div_ceil(ppn.max(1)), ppn)),
            (Some(nodes), given) => {
                Some((nodes, given.unwrap_or_else(|| self.processes.div_ceil(nodes.max(1)))))
            }
            (None, Some(_) | None) => None,
        }
    }
}
