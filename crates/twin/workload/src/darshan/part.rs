//! Requests of similar size in a phase, as a test of IOR.

use super::activity::Bin;
use crate::ior::{Access, Ior, IorError};
use std::collections::BTreeMap;

/// Requests of similar size of some processes.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Direction.
    pub access: Access,
    /// Whether the processes share a file; else each has one.
    pub is_shared: bool,
    /// Processes.
    pub processes: u32,
    /// Which ones, if the log says it.
    pub ranks: Option<Vec<u32>>,
    /// Requests in the log.
    pub operations: u64,
    /// Bytes in the log.
    pub bytes: u64,
    /// Bytes of a request in the test.
    pub transfer: u64,
    /// Requests of a process that follow each other in the file without a gap.
    pub run: u64,
    /// Such runs of a process; in a shared file those of all processes alternate.
    pub segments: u64,
    /// Whether offsets are random.
    pub is_random: bool,
    /// Whether the files are synced.
    pub is_synced: bool,
}

/// Requests of some processes in one range of sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pub processes: u32,
    pub ranks: Option<Vec<u32>>,
    pub total: Bin,
}

/// What the requests of a phase have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pattern {
    pub access: Access,
    pub is_shared: bool,
    pub is_synced: bool,
}

/// Share of requests that begin behind the one before, below which offsets are random.
const RANDOM_BELOW: f64 = 0.5;

/// Requests of a process below which their order does not matter.
const FEW_REQUESTS: f64 = 4.0;

/// IOR moves data in words of eight bytes.
const WORD: u64 = 8;

impl Part {
    pub(super) fn new(requests: Requests, pattern: Pattern) -> Part {
        let Requests { processes, ranks, total } = requests;
        let most = u32::try_from(total.operations.max(1)).unwrap_or(u32::MAX);
        let processes = processes.clamp(1, most);
        let of_one = (total.operations as f64 / f64::from(processes)).round().max(1.0);
        // The first request of each process begins behind no other.
        let followers = total.operations.saturating_sub(processes.into());
        let is_sequential = total.sequential as f64 >= RANDOM_BELOW * followers as f64;
        let is_random = !is_sequential && of_one >= FEW_REQUESTS;
        let breaks = total.operations.saturating_sub(total.consecutive).max(1);
        let mean_run = total.operations as f64 / breaks as f64;
        let run = match (pattern.is_shared, is_random) {
            (true, false) => mean_run.clamp(1.0, of_one).round(),
            // Random requests are those of one run, in another order.
            (false, _) | (true, true) => of_one,
        };
        let segments = (of_one / run).round().max(1.0);
        let calls = run * segments * f64::from(processes);
        let transfer = (total.bytes as f64 / calls).ceil() as u64;
        Part {
            access: pattern.access,
            is_shared: pattern.is_shared,
            processes,
            ranks,
            operations: total.operations,
            bytes: total.bytes,
            transfer: transfer.max(1).next_multiple_of(WORD),
            run: run as u64,
            segments: segments as u64,
            is_random,
            is_synced: pattern.is_synced && pattern.access == Access::Write,
        }
    }

    /// Bytes that the test moves: those of the log, rounded up to words of IOR.
    pub fn test_bytes(&self) -> u64 {
        let of_one = self.transfer.saturating_mul(self.run).saturating_mul(self.segments);
        of_one.saturating_mul(self.processes.into())
    }

    /// Nodes and processes per node of the test, for a job with `ppn` processes on each of `nodes` nodes whose ranks
    /// are in order: those nodes that have a process of the part.
    pub fn distribution(&self, nodes: u32, ppn: u32) -> (u32, u32) {
        let (nodes, ppn) = (nodes.max(1), ppn.max(1));
        match &self.ranks {
            Some(ranks) if !ranks.is_empty() => {
                let mut of_node = BTreeMap::<u32, u32>::new();
                for rank in ranks {
                    *of_node.entry(rank / ppn).or_default() += 1;
                }
                let most = of_node.values().copied().max().unwrap_or(1);
                let count = of_node.len() as u32;
                // All processes of the part have to find a place.
                (count, most.max(self.processes.div_ceil(count)))
            }
            Some(_) | None => {
                let used = nodes.min(self.processes);
                (used, self.processes.div_ceil(used))
            }
        }
    }

    /// IOR's options for the part on nodes with so many processes each.
    pub fn ior_arguments(&self, (nodes, ppn): (u32, u32)) -> Vec<String> {
        let mut words = vec!["-a".to_owned(), "POSIX".to_owned()];
        let mut add = |word: &str| words.extend(word.split(' ').map(str::to_owned));
        add(match self.access {
            Access::Write => "-w",
            Access::Read => "-r",
        });
        if !self.is_shared {
            add("-F");
        }
        add(&format!("-t {}", self.transfer));
        add(&format!("-b {}", self.transfer.saturating_mul(self.run)));
        if self.segments > 1 {
            add(&format!("-s {}", self.segments));
        }
        if self.is_random && self.run > 1 {
            add("-z");
        }
        if self.is_synced {
            add("-e");
        }
        if u64::from(nodes) * u64::from(ppn) != u64::from(self.processes) {
            add(&format!("-N {}", self.processes));
        }
        words
    }

    /// The test of IOR.
    ///
    /// # Errors
    /// The part is larger than IOR's numbers.
    pub fn test(&self, distribution: (u32, u32)) -> Result<Ior, IorError> {
        let tests = Ior::parse(&self.ior_arguments(distribution))?;
        match tests.into_iter().next() {
            Some(test) => Ok(test),
            None => unreachable!("options without a script are one test"),
        }
    }
}
