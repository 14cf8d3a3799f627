//! The text of a report.

use super::super::access_pattern::{Access, AccessPattern};
use super::super::spec::{Ior, Reorder};
use super::format::{KIB, MB, MIB, binary_size, number, ratio};
use super::result::{PhaseResult, Report};
use super::summary;
use std::fmt;

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "IOR-4.1: MPI Coordinated Test of Parallel I/O (simulated by Forebay)")?;
        pair(f, "Began", clock(0.0))?;
        pair(f, "Command line", format_args!("ior {}", self.arguments.join(" ")))?;
        pair(f, "Machine", self.machine)?;
        pair(f, "TestID", self.ior.id)?;
        pair(f, "StartTime", clock(0.0))?;
        write_options(f, self.ior, self.pattern)?;
        writeln!(f, "\nResults: \n")?;
        writeln!(
            f,
            "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    \
             wr/rd(s)   close(s)   total(s)   iter"
        )?;
        writeln!(
            f,
            "------    ---------  ----       ----------  ---------- ---------  --------   \
             --------   --------   --------   ----"
        )?;
        for phase in self.phases {
            write_phase(f, self.ior, phase)?;
        }
        for (access, runs, title) in [
            (Access::Write, self.ior.write, "Max Write: "),
            (Access::Read, self.ior.read, "Max Read:  "),
        ] {
            let best = self.phases(access).map(PhaseResult::rate).fold(0.0, f64::max);
            if runs {
                writeln!(f, "{title}{:.2} MiB/sec ({:.2} MB/sec)", best / MIB, best / MB)?;
            }
        }
        writeln!(f, "\nSummary of all tests:\n{}", summary::header())?;
        for access in [Access::Write, Access::Read] {
            summary::write_line(f, self, access)?;
        }
        pair(f, "Finished", clock(self.finished_seconds))
    }
}

fn pair(f: &mut fmt::Formatter<'_>, key: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{key:<20}: {value}")
}

fn clock(seconds: f64) -> String {
    format!("{seconds:.6} s (simulated time)")
}

fn write_options(f: &mut fmt::Formatter<'_>, ior: &Ior, pattern: &AccessPattern) -> fmt::Result {
    writeln!(f, "\nOptions: ")?;
    pair(f, "api", ior.api.name())?;
    pair(f, "apiVersion", "")?;
    pair(f, "test filename", &ior.test_file)?;
    let access = if ior.file_per_process { "file-per-process" } else { "single-shared-file" };
    pair(f, "access", access)?;
    pair(f, "type", if ior.collective { "collective" } else { "independent" })?;
    pair(f, "segments", ior.segments)?;
    pair(f, "ordering in a file", if ior.random_offsets { "random" } else { "sequential" })?;
    let order = match ior.reorder {
        Reorder::Own => "no tasks offsets",
        Reorder::Constant => "constant task offset",
        Reorder::Random | Reorder::Shuffle => "random task offset",
    };
    pair(f, "ordering inter file", order)?;
    if ior.reorder != Reorder::Own {
        pair(f, "task offset", ior.node_offset)?;
    }
    if matches!(ior.reorder, Reorder::Random | Reorder::Shuffle) {
        pair(f, "reorder random seed", ior.reorder_seed.unwrap_or(0))?;
    }
    pair(f, "nodes", pattern.nodes())?;
    pair(f, "tasks", pattern.tasks())?;
    pair(f, "clients per node", pattern.processes_per_node())?;
    pair(f, "memoryBuffer", "CPU")?;
    pair(f, "dataAccess", "CPU")?;
    pair(f, "GPUDirect", 0)?;
    pair(f, "repetitions", ior.repetitions)?;
    pair(f, "xfersize", binary_size(pattern.transfer_bytes()))?;
    pair(f, "blocksize", binary_size(ior.block.0))?;
    pair(f, "aggregate filesize", binary_size(pattern.total_bytes()))?;
    if ior.verbosity > 0 {
        pair(f, "verbose", ior.verbosity)?;
    }
    if let Some(stonewall) = ior.stonewall {
        pair(f, "stonewallingTime", stonewall.seconds)?;
        pair(f, "stoneWallingWearOut", u8::from(stonewall.wear_out))?;
    }
    Ok(())
}

fn write_phase(f: &mut fmt::Formatter<'_>, ior: &Ior, result: &PhaseResult) -> fmt::Result {
    let operations = (result.bytes / ior.transfer.0.max(1)) as f64;
    writeln!(
        f,
        "{:<10}{} {} {}  {} {} {} {} {} {} {:<4}",
        result.access.name(),
        number(result.rate() / MIB),
        number(ratio(operations, result.transfer_seconds)),
        number(result.latency_seconds),
        number(ior.block.0 as f64 / KIB),
        number(ior.transfer.0 as f64 / KIB),
        number(result.open_seconds),
        number(result.transfer_seconds),
        number(result.close_seconds),
        number(result.total_seconds),
        result.iteration,
    )
}
