//! Kinds of I/O: the published rows that are like a run, and how far the twin was off at them.

use super::accuracy::{self, Simulated};
use super::cases::{self, Case, Check};
use super::status::Status;
use forebay_console::Failure;
use forebay_machine::results::PublishedKind;
use forebay_machine::study::FileSystem;
use forebay_units::Bytes;
use forebay_units::human::counted;
use forebay_workload::ior::{Api, Ior};

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
        // Only MPI-IO has collective transfers; `-c` is without effect elsewhere.
        let is_collective = test.collective && test.api == Api::MpiIo;
        let files = match (test.file_per_process, is_collective) {
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
            for check in case.check.iter().filter(|check| check.measure.is_rate()) {
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

/// `errors -56% to +5%`, and `error +5%` of a single one.
fn errors_text(range: [f64; 2]) -> String {
    let [least, most] = range.map(|error| format!("{error:+.0}%"));
    match least == most {
        true => format!("error {least}"),
        false => format!("errors {least} to {most}"),
    }
}

/// What the published rows of a kind say of a prediction, in one line.
pub fn note(kind: &PublishedKind) -> String {
    let name = format!("{}, {}, {}, {}", kind.access, kind.files, kind.transfers, kind.file_system);
    let fitted = match kind.fitted {
        0 => String::new(),
        count => format!("; {} more to which a number was fitted", counted(count as u64, "row")),
    };
    match kind.error_percent {
        Some(errors) => format!(
            "published rows of this kind ({name}): {} of {} within the measured range or the \
             accepted difference, {}{fitted}",
            kind.hold,
            kind.rows.len(),
            errors_text(errors)
        ),
        None => format!(
            "published rows of this kind ({name}): none{fitted}; how far off such rates are is not known"
        ),
    }
}
