//! Kinds of I/O: the published rows that are like a run, and how far the twin was off at them.

use super::accuracy::{self, Simulated};
use super::cases::{self, Case, Check, Measure};
use super::status::Status;
use forebay_console::Failure;
use forebay_machine::results::PublishedKind;
use forebay_machine::study::FileSystem;
use forebay_units::Bytes;
use forebay_units::human::counted;
use forebay_workload::ior::Ior;

/// Sizes of transfers in bytes between which kinds change. The published rows have 4 KiB and 47,008 bytes, 512 KiB,
/// and 1 MiB and more.
const SIZES: [u64; 2] = [64 << 10, 1 << 20];

/// A kind of I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    is_write: bool,
    files: &'static str,
    /// The number of [`SIZES`] that a transfer reaches.
    size: usize,
    is_parallel: bool,
}

impl Kind {
    /// The kinds of the phases of a test with transfers of a size.
    pub fn of(test: &Ior, transfer: Bytes, file_system: &FileSystem) -> Vec<Kind> {
        let files = match (test.file_per_process, test.collective) {
            (true, _) => "file per process",
            (false, false) => "shared file",
            (false, true) => "shared file with collective transfers",
        };
        let size = SIZES.iter().filter(|size| transfer.0 >= **size).count();
        let is_parallel = matches!(file_system, FileSystem::Parallel { .. });
        let phases = [(test.write, true), (test.read, false)].into_iter();
        let phases = phases.filter(|(is_done, _)| *is_done);
        phases.map(|(_, is_write)| Kind { is_write, files, size, is_parallel }).collect()
    }

    fn transfers(self) -> String {
        let [least, most] = SIZES.map(Bytes);
        match self.size {
            0 => format!("transfers below {least}"),
            1 => format!("transfers from {least} to below {most}"),
            _ => format!("transfers of {most} and more"),
        }
    }

    fn access(self) -> &'static str {
        if self.is_write { "write" } else { "read" }
    }

    /// The published rows of this kind.
    ///
    /// # Errors
    /// [`Failure::Failed`] if an embedded file is wrong.
    pub fn published(self) -> Result<PublishedKind, Failure> {
        let simulated = accuracy::all()?;
        let mut found = PublishedKind {
            access: self.access().into(),
            files: self.files.into(),
            transfers: self.transfers(),
            file_system: if self.is_parallel { "parallel file system" } else { "burst buffer" }
                .into(),
            rows: Vec::new(),
            hold: 0,
            error_percent: None,
            fitted: 0,
        };
        for case in &cases::all()? {
            for check in case.check.iter().filter(|check| is_rate(check.measure)) {
                if self.is_of(case, check)? {
                    add(&mut found, simulated_row(&simulated, &check.row)?);
                }
            }
        }
        Ok(found)
    }

    /// Whether the rate of a check is of this kind.
    fn is_of(self, case: &Case, check: &Check) -> Result<bool, Failure> {
        // Runs of a case whose rate is compared differ in their nodes only.
        let Some(run) = case.runs().into_iter().next() else { return Ok(false) };
        let tests = Ior::parse(&run.ior).map_err(|e| Failure::Failed(e.to_string()))?;
        let kinds = tests.iter().flat_map(|test| Kind::of(test, test.transfer, &run.file_system));
        let of_check = kinds.filter(|kind| kind.access() == check.measure.access());
        Ok(of_check.into_iter().any(|kind| kind == self))
    }
}

/// Whether a measure is a rate, whose error is that of a run.
fn is_rate(measure: Measure) -> bool {
    match measure {
        Measure::WriteRate
        | Measure::ReadRate
        | Measure::WriteRatePerNode
        | Measure::AcknowledgedWriteRatePerNode
        | Measure::WriteIops
        | Measure::ReadIops => true,
        Measure::WriteSaturation
        | Measure::ReadSaturation
        | Measure::WriteGain
        | Measure::ReadGain
        | Measure::Limit => false,
    }
}

fn simulated_row<'a>(all: &'a [Simulated], row: &str) -> Result<&'a Simulated, Failure> {
    let found = all.iter().find(|one| one.row == row);
    found.ok_or_else(|| Failure::Failed(format!("validation/accuracy.csv has no row {row}")))
}

/// Adds a row to those of its kind.
fn add(kind: &mut PublishedKind, row: &Simulated) {
    if row.status == Status::Calibrated.name() {
        kind.fitted += 1;
        return;
    }
    kind.rows.push(row.row.clone());
    kind.hold += usize::from(row.holds);
    if let Some(error) = row.error_percent {
        let [least, most] = kind.error_percent.unwrap_or([error; 2]);
        kind.error_percent = Some([least.min(error), most.max(error)]);
    }
}

/// The published rows of the kinds of a test's phases.
///
/// # Errors
/// [`Failure::Failed`] if an embedded file is wrong.
pub fn published_like(
    test: &Ior,
    transfer: Bytes,
    file_system: &FileSystem,
) -> Result<Vec<PublishedKind>, Failure> {
    Kind::of(test, transfer, file_system).into_iter().map(Kind::published).collect()
}

/// What the published rows of a kind say of a prediction, in one line.
pub fn note(kind: &PublishedKind) -> String {
    let name = format!("{}, {}, {}, {}", kind.access, kind.files, kind.transfers, kind.file_system);
    let fitted = match kind.fitted {
        0 => String::new(),
        count => format!("; {} more to which a number was fitted", counted(count as u64, "row")),
    };
    match kind.error_percent {
        Some([least, most]) => format!(
            "published rows of this kind ({name}): {} of {} hold, errors {least:+.0}% to {most:+.0}%{fitted}",
            kind.hold,
            kind.rows.len()
        ),
        None => format!(
            "published rows of this kind ({name}): none{fitted}; how far off such rates are is not known"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str, file_system: FileSystem) -> PublishedKind {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let test = Ior::parse(&words).unwrap().remove(0);
        published_like(&test, test.transfer, &file_system).unwrap().remove(0)
    }

    /// IO500 with 10, 300 and 1,024 nodes; the hand-over of locks was fitted to the last one's writes.
    #[test]
    fn small_transfers_to_a_shared_file_are_those_of_io500() {
        let found = kind("-w -t 47008 -b 47008 -s 200", FileSystem::BurstBuffer);
        assert_eq!(found.rows, ["io500-dw-300-hard-write", "io500-dw-10-hard-write"]);
        assert_eq!((found.hold, found.fitted), (0, 1));
        assert_eq!(found.error_percent, Some([-37.9, 302.7]));
        assert_eq!(
            note(&found),
            "published rows of this kind (write, shared file, transfers below 64 KiB, burst buffer): 0 of 2 hold, \
             errors -38% to +303%; 1 row more to which a number was fitted"
        );
        let reads = kind("-r -t 4k -b 1m", FileSystem::BurstBuffer);
        assert_eq!((reads.rows.len(), reads.hold, reads.fitted), (3, 0, 0));
    }

    #[test]
    fn files_transfers_and_file_system_tell_kinds_apart() {
        let pfs = FileSystem::Parallel { stripe_count: None, stripe: None };
        let shared = kind("-w -t 32m -b 32m", pfs);
        assert_eq!(shared.rows, ["cori-daily-lustre-vpic-write", "cori-knl-lustre-vpic-write"]);
        let collective = kind("-a MPIIO -c -w -t 4m -b 4m", pfs);
        assert!(collective.rows.contains(&"cori-knl-lustre-shared-write".to_string()));
        assert!(!collective.rows.iter().any(|row| row.contains("vpic")), "{collective:?}");
        let own = kind("-F -w -t 1m -b 4m", FileSystem::BurstBuffer);
        assert!(own.rows.contains(&"trinity-cap-write".to_string()), "{own:?}");
        assert!(!own.rows.iter().any(|row| row.contains("lustre")), "{own:?}");
    }

    #[test]
    fn kind_without_rows_says_that_nothing_is_known() {
        let pfs = FileSystem::Parallel { stripe_count: None, stripe: None };
        let found = kind("-F -w -t 64k -b 1m", pfs);
        assert!(found.rows.is_empty() && found.error_percent.is_none());
        assert!(note(&found).ends_with("none; how far off such rates are is not known"));
    }
}
