//! The variables of NetCDF files in logs.

use super::{Found, find};
use crate::console::print_stdout;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_mpiio_log::{LoggedRun, NetcdfFile, ScanError, file_start};
use forebay_units::human::bytes;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

/// Bytes of a file that are searched for a header.
const MAX_HEADER_BYTES: u64 = 4 << 20;

pub(super) fn variables(directories: &[PathBuf]) -> Result<(), Failure> {
    let mut scanned = Vec::new();
    for Found { path, contents, .. } in find(directories)? {
        match contents {
            Ok(log) => scanned.push(log),
            Err(ScanError::Blank) => {}
            Err(error) => return Err(Failure::Failed(format!("{}: {error}", path.display()))),
        }
    }
    let runs = LoggedRun::group(scanned);
    if runs.is_empty() {
        return print_stdout("no logs\n");
    }
    for run in &runs {
        print_stdout(&format!("{}\n", run.target().display()))?;
        let table = variables_of(run)?;
        print_stdout(&table)?;
    }
    Ok(())
}

/// The variables of a run's file, and the part of them in each write.
fn variables_of(run: &LoggedRun) -> Result<String, Failure> {
    let target = run.target();
    let mut start = Vec::new();
    match File::open(target) {
        Ok(file) => file
            .take(MAX_HEADER_BYTES)
            .read_to_end(&mut start)
            .map(drop)
            .map_err(|error| Failure::io("read", target, error))?,
        // Only the log has the header.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Failure::io("open", target, error)),
    }
    let start = file_start(start, run.entries(), run.reader());
    let start = start.map_err(|error| Failure::Failed(format!("cannot read a log: {error}")))?;
    let Some(file) = NetcdfFile::parse(&start) else {
        let format = if start.starts_with(b"\x89HDF") { "HDF5" } else { "no NetCDF" };
        return Ok(format!("  {format} header: variables are derived from CDF-1, 2 and 5 only\n"));
    };
    let mut table = Table::new([
        Column::number("rank", 0),
        Column::text("variable", 0),
        Column::text("type", 0),
        Column::text("shape", 0),
        Column::text("start", 0),
        Column::text("count", 0),
        Column::number("data", 0),
        Column::text("", 0),
    ]);
    for entry in run.entries() {
        for part in file.subarrays(entry) {
            let variable = &file.variables[part.variable];
            let mut shape: Vec<_> = variable.shape.iter().map(u64::to_string).collect();
            if variable.is_record {
                shape.insert(0, "unlimited".to_owned());
            }
            table.push([
                entry.order.rank.to_string(),
                variable.name.clone(),
                variable.datatype.to_owned(),
                shape.join("x"),
                joined(&part.start),
                joined(&part.count),
                bytes(part.bytes),
                if part.is_whole { "" } else { "part of it" }.to_owned(),
            ]);
        }
    }
    Ok(table.to_string())
}

fn joined(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}
