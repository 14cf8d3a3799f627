//! The variables of a NetCDF file, and the subarrays of them that logged writes contain.
//!
//! A log under MPI-IO sees offsets, not variables. Programs of NetCDF's classic formats write the
//! header, which says where each variable is, through the same file, so that it is in the file or in
//! the log.

mod header;

pub use header::Variable;

use crate::entry::Entry;
use crate::gather::gather;
use crate::plan::{Alignment, DataSource, plan};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Most bytes of a header.
const MAX_HEADER_BYTES: usize = 4 << 20;

/// The start of a file as it will be when the entries are in it: at most 4 MiB. `file` is the start
/// of the file as it is.
///
/// # Errors
/// A log cannot be read.
pub fn file_start(
    mut file: Vec<u8>,
    entries: &[Entry],
    source: &impl DataSource,
) -> io::Result<Vec<u8>> {
    file.truncate(MAX_HEADER_BYTES);
    let mut data = Vec::new();
    for write in plan(entries, 0..MAX_HEADER_BYTES as u64, Alignment::default()) {
        let (start, end) = (write.offset as usize, (write.offset + write.length) as usize);
        gather(source, &[write], &mut data)?;
        file.resize(file.len().max(end), 0);
        file[start..end].copy_from_slice(&data);
    }
    Ok(file)
}

/// The variables of a NetCDF file of a classic format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetcdfFile {
    /// The variables in the order of the header.
    pub variables: Vec<Variable>,
    /// Offset of the first record.
    records: u64,
    /// Bytes of the records of all variables at one step of the unlimited dimension.
    record_bytes: u64,
}

/// The part of a variable that a write contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subarray {
    /// Number of the variable.
    pub variable: usize,
    /// First index in each dimension, with the record dimension.
    pub start: Vec<u64>,
    /// Number of indices in each dimension.
    pub count: Vec<u64>,
    /// Bytes of the variable that the write contains.
    pub bytes: u64,
    /// The write contains the whole box; else the box only encloses what it contains.
    pub is_whole: bool,
}

/// A range of the bytes of a variable, or of one of its records.
struct Part {
    variable: usize,
    record: Option<u64>,
    bytes: Range<u64>,
}

/// Bounds of the parts of a variable.
struct Bounds {
    /// First and last index in each dimension.
    indices: Vec<(u64, u64)>,
    bytes: u64,
}

impl NetcdfFile {
    /// The file that begins with `bytes`; `None` if that is no complete header of CDF-1, 2 or 5.
    pub fn parse(bytes: &[u8]) -> Option<NetcdfFile> {
        let variables = header::parse(bytes)?;
        let records: Vec<_> = variables.iter().filter(|variable| variable.is_record).collect();
        let record_bytes = match &records[..] {
            // A single record variable is not padded.
            [only] => only.bytes,
            all => all.iter().try_fold(0, |sum: u64, variable| {
                sum.checked_add(variable.bytes.checked_next_multiple_of(4)?)
            })?,
        };
        let records = records.iter().map(|variable| variable.begin).min().unwrap_or(u64::MAX);
        Some(NetcdfFile { records, record_bytes, variables })
    }

    /// The subarrays that a write contains, in the order of the variables. Bytes of the header and
    /// of padding belong to none.
    pub fn subarrays(&self, entry: &Entry) -> Vec<Subarray> {
        let mut found: BTreeMap<usize, Bounds> = BTreeMap::new();
        for segment in entry.view.segments(entry.position, entry.length) {
            let mut at = segment.offset;
            while at < segment.end() {
                let (part, end) = self.part(at, segment.end());
                assert!(end > at, "each step passes a part or a gap");
                at = end;
                if let Some(part) = part {
                    let variable = &self.variables[part.variable];
                    let bounds = found.entry(part.variable);
                    bounds
                        .and_modify(|bounds| bounds.add(variable, &part))
                        .or_insert_with(|| Bounds::new(variable, &part));
                }
            }
        }
        let subarray = |(number, bounds): (usize, Bounds)| {
            let element_bytes = self.variables[number].element_bytes;
            bounds.subarray(number, element_bytes)
        };
        found.into_iter().map(subarray).collect()
    }

    /// The part of a variable at offset `at`, as far as `end`, and its end; `None` in a gap.
    fn part(&self, at: u64, end: u64) -> (Option<Part>, u64) {
        let is_record = at >= self.records && self.record_bytes > 0;
        let record = is_record.then(|| (at - self.records) / self.record_bytes);
        let base = record.map_or(0, |record| record * self.record_bytes);
        let mut next = base.saturating_add(self.record_bytes).saturating_add(self.records);
        for (number, variable) in self.variables.iter().enumerate() {
            let start = base.saturating_add(variable.begin);
            if variable.is_record != is_record || variable.bytes == 0 {
                continue;
            }
            if start > at {
                next = next.min(start);
            } else if at - start < variable.bytes {
                let to = end.min(start.saturating_add(variable.bytes));
                let part = Part { variable: number, record, bytes: at - start..to - start };
                return (Some(part), to);
            }
        }
        (None, end.min(next.max(at + 1)))
    }
}

/// The indices in each dimension that a part touches.
fn indices(variable: &Variable, part: &Part) -> Vec<(u64, u64)> {
    let mut indices: Vec<_> = part.record.map(|record| (record, record)).into_iter().collect();
    let mut first = part.bytes.start / variable.element_bytes;
    let mut last = (part.bytes.end - 1) / variable.element_bytes;
    let mut below: u64 = variable.shape.iter().product();
    let mut is_one = true;
    for length in &variable.shape {
        below /= length;
        let (from, to) = (first / below, last / below);
        // Below a dimension with several indices the part goes through all of them.
        indices.push(if is_one { (from, to) } else { (0, length - 1) });
        is_one = is_one && from == to;
        (first, last) = (first % below, last % below);
    }
    indices
}

impl Bounds {
    fn new(variable: &Variable, part: &Part) -> Bounds {
        Bounds { indices: indices(variable, part), bytes: part.bytes.end - part.bytes.start }
    }

    fn add(&mut self, variable: &Variable, part: &Part) {
        for (all, new) in self.indices.iter_mut().zip(indices(variable, part)) {
            *all = (all.0.min(new.0), all.1.max(new.1));
        }
        self.bytes += part.bytes.end - part.bytes.start;
    }

    fn subarray(self, variable: usize, element_bytes: u64) -> Subarray {
        let start = self.indices.iter().map(|(first, _)| *first).collect();
        let count: Vec<u64> = self.indices.iter().map(|(first, last)| last - first + 1).collect();
        let volume = count.iter().try_fold(element_bytes, |all, count| all.checked_mul(*count));
        let is_whole = volume == Some(self.bytes);
        Subarray { variable, start, count, bytes: self.bytes, is_whole }
    }
}
