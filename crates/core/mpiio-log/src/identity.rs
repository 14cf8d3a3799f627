//! The identity of a log: the file, the run of the program, and the process.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// Extension of log files.
pub const EXTENSION: &str = "fblog";
/// Extension of a file next to a log, in which a process says how far it has applied its part.
pub const MARK_EXTENSION: &str = "applied";
/// Most bytes of the target's name in the name of its log.
const MAX_NAME_BYTES: usize = 80;

/// Identity of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The file to which the log belongs; absolute, so that the log can be replayed from elsewhere.
    pub target: PathBuf,
    /// One opening of the file by one run of a program: equal for the ranks that opened it together,
    /// different from every other opening.
    pub run: String,
    /// Rank of the process among those that opened the file.
    pub rank: u32,
    /// Number of processes that opened the file.
    pub ranks: u32,
}

impl Identity {
    /// Name of the log file; `attempt` tells files of equal identity apart.
    pub(crate) fn file_name(&self, attempt: u32) -> String {
        let name = self.target.file_name().unwrap_or_default().to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let name: String =
            name.chars().map(|c| if plain(c) { c } else { '_' }).take(MAX_NAME_BYTES).collect();
        let mut hasher = DefaultHasher::new();
        (&self.target, &self.run).hash(&mut hasher);
        let attempt = if attempt == 0 { String::new() } else { format!("-{attempt}") };
        format!("{name}.{:016x}.{}{attempt}.{EXTENSION}", hasher.finish(), self.rank)
    }
}

/// Whether a path has the extension of log files.
pub(crate) fn is_log_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == EXTENSION)
}

/// Limits of a process's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of segments, rounded down to whole segments; at least one.
    pub bytes: u64,
    /// Most entries.
    pub entries: usize,
    /// Bytes of a segment: a multiple of 4096 between 16 KiB and 1 GiB, equal for all processes of a
    /// log. An encoded view must fit into one.
    pub segment_bytes: u64,
    /// Bytes that are collected in memory before they are written to the log.
    pub buffer_bytes: usize,
}

impl Default for Limits {
    /// 1 GiB in segments of 16 MiB, a million entries, a buffer of 1 MiB.
    fn default() -> Limits {
        Limits { bytes: 1 << 30, entries: 1 << 20, segment_bytes: 16 << 20, buffer_bytes: 1 << 20 }
    }
}

impl Limits {
    pub(crate) fn segments(&self) -> u64 {
        (self.bytes / self.segment_bytes.max(1)).max(1)
    }
}
