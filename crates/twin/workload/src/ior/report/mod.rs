//! Results as IOR 4.1 prints them: options, one line a phase, best rates, summary.
//!
//! Rates are in MiB/s (2^20 bytes) unless the text says MB (10^6). The layout of lines and columns
//! is IOR's, so that scripts that read its output read this, too; the first line says that it is a
//! simulation, and times of day are simulated seconds from the run's beginning, so that the text is
//! the same whenever it is made.

mod summary;

use super::{Access, AccessPattern, Ior, Reorder};
use std::fmt;

const KIB: f64 = 1024.0;
const MIB: f64 = 1_048_576.0;
const MB: f64 = 1e6;

/// What one phase of one repetition came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseResult {
    /// Writing or reading.
    pub access: Access,
    /// Repetition, from 0.
    pub iteration: u32,
    /// Bytes moved by all tasks.
    pub bytes: u64,
    /// First start of an open to last end of one, in seconds.
    pub open_seconds: f64,
    /// First start of a task's transfers to last end, in seconds; with `-e`, fsync included.
    pub transfer_seconds: f64,
    /// First start of a close to last end of one, in seconds.
    pub close_seconds: f64,
    /// First start of an open to last end of a close, in seconds.
    pub total_seconds: f64,
    /// The least, over the tasks, of a task's mean time a transfer, in seconds.
    pub latency_seconds: f64,
    /// With wear-out: when the deadline was met.
    pub stonewall: Option<StonewallResult>,
}

/// What had been moved when the deadline stopped the tasks, with `stoneWallingWearOut`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StonewallResult {
    /// Seconds from the start of the transfers to the point where all tasks had stopped.
    pub seconds: f64,
    /// Mean number of bytes of a task at that point.
    pub mean_bytes: u64,
}

/// One line of a test's results, in the order in which things happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line {
    /// A phase.
    Phase(PhaseResult),
    /// The removal of the files at the end of a repetition.
    Remove {
        /// Repetition, from 0.
        iteration: u32,
        /// From the barrier before to the barrier after, in seconds.
        seconds: f64,
    },
}

/// One test with its results.
#[derive(Clone, Copy, Debug)]
pub struct TestReport<'a> {
    /// The test.
    pub ior: &'a Ior,
    /// The test fitted to its processes.
    pub layout: &'a AccessPattern,
    /// Simulated time at which it began, in seconds.
    pub started_seconds: f64,
    /// Its results.
    pub lines: &'a [Line],
}

/// All that IOR prints of a run; made into text by [`fmt::Display`].
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// IOR's arguments as given, without the program's name.
    pub arguments: &'a [String],
    /// The simulated machine.
    pub machine: &'a str,
    /// The tests in the order in which they ran.
    pub tests: &'a [TestReport<'a>],
    /// Simulated time at the end, in seconds.
    pub finished_seconds: f64,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "IOR-4.1: MPI Coordinated Test of Parallel I/O (simulated by Forebay)"
        )?;
        pair(f, "Began", clock(0.0))?;
        pair(
            f,
            "Command line",
            ["ior"]
                .into_iter()
                .chain(self.words())
                .collect::<Vec<_>>()
                .join(" "),
        )?;
        pair(f, "Machine", self.machine)?;
        for test in self.tests {
            write!(f, "{test}")?;
        }
        writeln!(f, "\nSummary of all tests:\n{}", summary::header())?;
        for test in self.tests {
            for access in [Access::Write, Access::Read] {
                summary::line(f, test, access)?;
            }
        }
        pair(f, "Finished", clock(self.finished_seconds))
    }
}

impl Report<'_> {
    fn words(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().map(String::as_str)
    }
}

impl fmt::Display for TestReport<'_> {
    /// The part of one test: its options, its results, its best rates.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        pair(f, "TestID", self.ior.id)?;
        pair(f, "StartTime", clock(self.started_seconds))?;
        options(f, self.ior, self.layout)?;
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
        for line in self.lines {
            match line {
                Line::Phase(result) => phase(f, self.ior, result)?,
                Line::Remove { iteration, seconds } => {
                    write!(f, "{:<10}", "remove")?;
                    for width in [11, 11, 12, 11, 11, 11, 11, 11] {
                        write!(f, "{:<width$}", "-")?;
                    }
                    writeln!(f, "{} {iteration:<4}", number(*seconds))?;
                }
            }
        }
        for (access, title) in [
            (Access::Write, "Max Write: "),
            (Access::Read, "Max Read:  "),
        ] {
            let best = self.phases(access).map(rate).fold(0.0, f64::max);
            if self.runs(access) {
                writeln!(
                    f,
                    "{title}{:.2} MiB/sec ({:.2} MB/sec)",
                    best / MIB,
                    best / MB
                )?;
            }
        }
        Ok(())
    }
}

impl TestReport<'_> {
    fn phases(&self, access: Access) -> impl Iterator<Item = &PhaseResult> {
        self.lines.iter().filter_map(move |line| match line {
            Line::Phase(result) if result.access == access => Some(result),
            _ => None,
        })
    }

    fn runs(&self, access: Access) -> bool {
        match access {
            Access::Write => self.ior.write,
            Access::Read => self.ior.read,
        }
    }
}

fn pair(f: &mut fmt::Formatter<'_>, key: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{key:<20}: {value}")
}

fn clock(seconds: f64) -> String {
    format!("{seconds:.6} s (simulated time)")
}

fn options(f: &mut fmt::Formatter<'_>, ior: &Ior, layout: &AccessPattern) -> fmt::Result {
    writeln!(f, "\nOptions: ")?;
    pair(f, "api", ior.api.name())?;
    pair(f, "apiVersion", "")?;
    pair(f, "test filename", &ior.test_file)?;
    let access = if ior.file_per_process {
        "file-per-process"
    } else {
        "single-shared-file"
    };
    pair(f, "access", access)?;
    pair(
        f,
        "type",
        if ior.collective {
            "collective"
        } else {
            "independent"
        },
    )?;
    pair(f, "segments", ior.segments)?;
    pair(
        f,
        "ordering in a file",
        if ior.random_offsets {
            "random"
        } else {
            "sequential"
        },
    )?;
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
    pair(f, "nodes", layout.nodes())?;
    pair(f, "tasks", layout.tasks())?;
    pair(f, "clients per node", layout.processes_per_node())?;
    pair(f, "memoryBuffer", "CPU")?;
    pair(f, "dataAccess", "CPU")?;
    pair(f, "GPUDirect", 0)?;
    pair(f, "repetitions", ior.repetitions)?;
    pair(f, "xfersize", human(layout.transfer_bytes()))?;
    pair(f, "blocksize", human(ior.block.0))?;
    pair(f, "aggregate filesize", human(layout.total_bytes()))?;
    if ior.verbosity > 0 {
        pair(f, "verbose", ior.verbosity)?;
    }
    if let Some(stonewall) = ior.stonewall {
        pair(f, "stonewallingTime", stonewall.seconds)?;
        pair(f, "stoneWallingWearOut", u8::from(stonewall.wear_out))?;
    }
    Ok(())
}

fn phase(f: &mut fmt::Formatter<'_>, ior: &Ior, result: &PhaseResult) -> fmt::Result {
    let operations = (result.bytes / ior.transfer.0.max(1)) as f64;
    writeln!(
        f,
        "{:<10}{} {} {}  {} {} {} {} {} {} {:<4}",
        result.access.name(),
        number(rate(result) / MIB),
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

/// Bytes a second of a phase.
fn rate(result: &PhaseResult) -> f64 {
    ratio(result.bytes as f64, result.total_seconds)
}

/// A quotient, 0 for nothing in no time.
fn ratio(amount: f64, seconds: f64) -> f64 {
    if amount == 0.0 { 0.0 } else { amount / seconds }
}

/// A number in ten columns: six digits behind the point below 1, two below 3600, else none.
fn number(value: f64) -> String {
    let precision = match value {
        v if v < 0.0 => return format!("{:<10}", "   -"),
        v if v < 1.0 => 6,
        v if v < 3600.0 => 2,
        _ => 0,
    };
    format!("{value:<10.precision$}")
}

/// A number of bytes: from 1 MiB on in binary units, whole or with two digits.
fn human(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB")];
    match units.iter().find(|(shift, _)| bytes >> shift > 0) {
        None => format!("{bytes} bytes"),
        Some((shift, unit)) if bytes.is_multiple_of(1 << shift) => {
            format!("{} {unit}", bytes >> shift)
        }
        Some((shift, unit)) => format!("{:.2} {unit}", bytes as f64 / (1_u64 << shift) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_ten_columns() {
        assert_eq!(number(0.0123), "0.012300  ");
        assert_eq!(number(1.0), "1.00      ");
        assert_eq!(number(3599.994), "3599.99   ");
        assert_eq!(number(1_234_567.8), "1234568   ");
        assert_eq!(number(-1.0), "   -      ");
    }

    #[test]
    fn bytes_for_people() {
        assert_eq!(human(47_008), "47008 bytes");
        assert_eq!(human(1 << 20), "1 MiB");
        assert_eq!(human(3 << 19), "1.50 MiB");
        assert_eq!(human(9_920_000 << 20), "9.46 TiB");
        assert_eq!(human(64 << 30), "64 GiB");
    }
}
