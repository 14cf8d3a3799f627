//! Calls that the cache of a client joins.
//!
//! The clients of a parallel file system cache: a process's consecutive writes reach the servers as
//! large requests, several at a time, and so do its reads, ahead of the calls. A process therefore moves
//! up to a *window* of its file at once, whatever the length of its calls; these cost their own time one
//! after another. Such calls are simulated as one. Calls that bypass the cache, or that do not continue
//! each other, are not joined.

use super::options::SimOptions;
use crate::results::{Phase, Spread};
use crate::storage::FileSystem;
use forebay_machine_file::machine::{Lustre, Machine, ParallelFileSystem};
use forebay_units::Bytes;
use forebay_workload::ior::{Api, Ior};

/// A test as it is simulated.
#[derive(Clone, Debug)]
pub(crate) struct JoinedTest {
    /// The test with transfers of several calls.
    pub ior: Ior,
    /// Calls of the program in a transfer; the last transfer of a block may have fewer.
    pub calls: u64,
}

impl JoinedTest {
    /// A test on the file system of the options.
    pub fn new(machine: &Machine, ior: &Ior, options: &SimOptions) -> JoinedTest {
        let lustre = match options.file_system {
            FileSystem::BurstBuffer => None,
            FileSystem::Parallel { .. } => lustre_of(machine),
        };
        match lustre {
            Some((_, lustre)) => join(ior, lustre.window.0),
            None => JoinedTest { ior: ior.clone(), calls: 1 },
        }
    }
}

/// The parallel file system of a machine and its parts, if the machine file describes them.
pub(super) fn lustre_of(machine: &Machine) -> Option<(&ParallelFileSystem, &Lustre)> {
    let pfs = machine.pfs.as_ref()?;
    Some((pfs, pfs.lustre.as_ref()?))
}

/// Joins the calls of a test up to `window` bytes.
fn join(ior: &Ior, window: u64) -> JoinedTest {
    let mut ior = ior.clone();
    let is_collective = ior.collective && ior.api == Api::MpiIo && !ior.file_per_process;
    let is_cached = !ior.direct_io && !ior.fsync_per_write && !ior.random_offsets;
    // A deadline or a number of transfers ends a process after any call.
    let is_whole = ior.stonewall.is_none() && ior.max_transfers.is_none();
    if is_collective || !is_cached || !is_whole || ior.transfer.0 == 0 {
        return JoinedTest { ior, calls: 1 };
    }
    if ior.file_per_process
        && let Some(block) = ior.block.0.checked_mul(ior.segments)
    {
        // The segments of a process follow each other in its file.
        (ior.block, ior.segments) = (Bytes(block), 1);
    }
    let in_block = (ior.block.0 / ior.transfer.0).max(1);
    let most = (window / ior.transfer.0).clamp(1, in_block);
    // As few transfers as the window allows, as equal as whole calls allow.
    let calls = in_block.div_ceil(in_block.div_ceil(most));
    ior.transfer = Bytes(ior.transfer.0 * calls);
    JoinedTest { ior, calls }
}

/// The document of a phase, with the numbers and times of the program's calls: `calls` in a transfer of
/// `bytes`.
pub(crate) fn of_calls(phase: Phase, (calls, bytes): (u64, u64)) -> Phase {
    if calls == 1 {
        return phase;
    }
    let operations = phase.bytes / (bytes / calls).max(1);
    let in_transfer = operations as f64 / phase.operations.max(1) as f64;
    let part = |seconds: f64| seconds / calls as f64;
    let Spread { mean, min, p50, p99, max } = phase.operation_seconds;
    Phase {
        operations,
        iops: phase.iops * in_transfer,
        operation_seconds: Spread {
            mean: mean / in_transfer.max(f64::MIN_POSITIVE),
            min: part(min),
            p50: part(p50),
            p99: part(p99),
            max: part(max),
        },
        least_mean_seconds: part(phase.least_mean_seconds),
        ..phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(line: &str) -> (u64, u64, u64) {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let test = join(&Ior::parse(&words).unwrap().remove(0), 32 << 20);
        (test.calls, test.ior.transfer.0, test.ior.segments)
    }

    #[test]
    fn consecutive_calls_are_joined_up_to_the_window_and_the_block() {
        assert_eq!(joined("-w -F -t 4k -b 64m"), (8_192, 32 << 20, 1));
        assert_eq!(joined("-w -t 4k -b 1m -s 8"), (256, 1 << 20, 8));
        assert_eq!(joined("-w -F -t 4m -b 4m -s 64"), (8, 32 << 20, 1));
        assert_eq!(joined("-w -F -t 1m -b 7m"), (7, 7 << 20, 1));
        assert_eq!(joined("-w -F -t 1m -b 35m"), (18, 18 << 20, 1), "then a transfer of 17 calls");
        assert_eq!(joined("-w -F -t 1m -b 37m"), (19, 19 << 20, 1), "a prime number of calls");
        assert_eq!(joined("-w -F -t 47008 -b 4700800000"), (710, 710 * 47_008, 1));
        assert_eq!(joined("-w -F -t 64m -b 64m"), (1, 64 << 20, 1));
    }

    #[test]
    fn calls_past_the_cache_or_without_order_are_not_joined() {
        for line in [
            "-w -z -t 4k -b 1m",
            "-w -Y -t 4k -b 1m",
            "-w -a MPIIO -c -t 4k -b 1m",
            "-w -t 4k -b 4k",
        ] {
            assert_eq!(joined(line).0, 1, "{line}");
        }
    }
}
