//! The summary of all tests: one line for each kind of phase of each test.

use super::super::access_pattern::Access;
use super::super::spec::Reorder;
use super::format::{MIB, ratio};
use super::result::{PhaseResult, Report};
use std::fmt::{self, Write};

/// The titles of the columns.
pub(super) fn header() -> String {
    let mut line = format!("{:<9}", "Operation");
    let titles = "Max(MiB) Min(MiB) Mean(MiB) StdDev Max(OPs) Min(OPs) Mean(OPs) StdDev Mean(s) \
                  Stonewall(s)";
    for title in titles.split(' ') {
        let _ = write!(line, " {title:>10}");
    }
    let _ = write!(
        line,
        " {:>13} Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt {:>8} {:>8} {:>9} \
         {:>5} RefNum",
        "Stonewall(MiB)", " blksiz", "xsize", "aggs(MiB)", "API"
    );
    line
}

/// Distribution of a value over the repetitions.
struct Spread {
    max: f64,
    min: f64,
    mean: f64,
    deviation: f64,
}

impl Spread {
    fn of_values(values: &[f64]) -> Spread {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / count;
        Spread {
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            mean,
            deviation: variance.sqrt(),
        }
    }
}

/// Writes the line of one kind of phase; nothing if none was run.
pub(super) fn write_line(
    f: &mut fmt::Formatter<'_>,
    report: &Report<'_>,
    access: Access,
) -> fmt::Result {
    let phases: Vec<&PhaseResult> = report.phases(access).collect();
    let Some(first) = phases.first() else {
        return Ok(());
    };
    let (ior, pattern) = (report.ior, report.pattern);
    let rates: Vec<f64> = phases.iter().map(|p| p.rate() / MIB).collect();
    let transfer = ior.transfer.0.max(1) as f64;
    let operations: Vec<f64> =
        phases.iter().map(|p| ratio(p.bytes as f64 / transfer, p.total_seconds)).collect();
    write!(f, "{:<9} ", access.name())?;
    for spread in [Spread::of_values(&rates), Spread::of_values(&operations)] {
        for value in [spread.max, spread.min, spread.mean, spread.deviation] {
            write!(f, "{value:>10.2} ")?;
        }
    }
    let times: Vec<f64> = phases.iter().map(|p| p.total_seconds).collect();
    write!(f, "{:>10.5} ", Spread::of_values(&times).mean)?;
    write!(f, "{:>10} {:>13} ", "NA", "NA")?;
    let (constant, random) = match ior.reorder {
        Reorder::Own => (0, 0),
        Reorder::Constant => (1, 0),
        Reorder::Random => (0, 1),
        Reorder::Shuffle => (0, 2),
    };
    writeln!(
        f,
        "{:>5} {:>6} {:>3} {:>4} {:>3} {constant:>5} {:>8} {random:>9} {:>4} {:>6} {:>8} {:>8} \
         {:>9.1} {:>3} {:>6}",
        ior.id,
        pattern.tasks(),
        pattern.processes_per_node(),
        ior.repetitions,
        u8::from(ior.file_per_process),
        ior.node_offset,
        ior.reorder_seed.unwrap_or(0),
        ior.segments,
        ior.block.0,
        ior.transfer.0,
        first.bytes as f64 / MIB,
        ior.api.name(),
        ior.reference_number,
    )
}
