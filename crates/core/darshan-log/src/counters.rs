//! Records of counters: one for each file and process, or one for a file that all processes shared.

use crate::counter_names as names;
use crate::error::LogError;
use crate::fields::{ByteOrder, Fields};
use crate::module::Module;
use crate::region::Region;
use std::io::{Read, Seek};

/// An interface whose calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Api {
    /// POSIX calls.
    Posix,
    /// MPI-IO; the library makes POSIX calls of its own, which are counted there, too.
    MpiIo,
    /// C streams (`fread`, `fprintf`).
    Stdio,
}

impl Api {
    /// All of them.
    pub const ALL: [Api; 3] = [Api::Posix, Api::MpiIo, Api::Stdio];

    /// Its module.
    pub fn module(self) -> Module {
        match self {
            Api::Posix => Module::POSIX,
            Api::MpiIo => Module::MPIIO,
            Api::Stdio => Module::STDIO,
        }
    }

    /// Darshan's name.
    pub fn name(self) -> &'static str {
        match self {
            Api::Posix => "POSIX",
            Api::MpiIo => "MPI-IO",
            Api::Stdio => "STDIO",
        }
    }

    /// Names of the counters, without `POSIX_` etc.
    pub fn counter_names(self) -> &'static [&'static str] {
        match self {
            Api::Posix => &names::POSIX,
            Api::MpiIo => &names::MPIIO,
            Api::Stdio => &names::STDIO,
        }
    }

    /// Names of the times, without `POSIX_F_` etc.
    pub fn time_names(self) -> &'static [&'static str] {
        match self {
            Api::Posix => &names::POSIX_TIMES,
            Api::MpiIo => &names::MPIIO_TIMES,
            Api::Stdio => &names::STDIO_TIMES,
        }
    }
}

/// The counters of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct CounterRecord {
    /// The interface.
    pub api: Api,
    /// Id of the file's name.
    pub id: u64,
    /// The process; `None`: all processes opened the file, and the record is the sum over them.
    pub rank: Option<u32>,
    /// Counters in the order of [`Api::counter_names`]; -1 for those that the version of the record lacks, but 0
    /// for the id `RENAMED_FROM`.
    pub counters: Vec<i64>,
    /// Times in the order of [`Api::time_names`], seconds; -1 for those that the version of the record lacks.
    pub times: Vec<f64>,
}

impl CounterRecord {
    /// A counter by its name without `POSIX_` etc.
    pub fn counter(&self, name: &str) -> Option<i64> {
        let index = self.api.counter_names().iter().position(|known| *known == name)?;
        self.counters.get(index).copied()
    }

    /// A time by its name without `POSIX_F_` etc.
    pub fn time(&self, name: &str) -> Option<f64> {
        let index = self.api.time_names().iter().position(|known| *known == name)?;
        self.times.get(index).copied()
    }
}

/// A record as it is in the log: where its counters and times go in a [`CounterRecord`].
struct Layout {
    /// `None`: a counter that later versions do not have.
    counters: Vec<Option<usize>>,
    times: Vec<usize>,
}

impl Layout {
    /// The layout of a version; `None` if it is not known.
    fn of(api: Api, version: u32) -> Option<Layout> {
        let newest = match api {
            Api::Posix => 4,
            Api::MpiIo => 3,
            Api::Stdio => 2,
        };
        if version == 0 || version > newest {
            return None;
        }
        let missing: &[&str] = match api {
            Api::Posix if version < 4 => {
                &["FILENOS", "DUPS", "RENAME_SOURCES", "RENAME_TARGETS", "RENAMED_FROM"]
            }
            Api::Stdio if version < 2 => &["FDOPENS"],
            Api::Posix | Api::MpiIo | Api::Stdio => &[],
        };
        let missing_times: &[&str] = match api {
            Api::Posix | Api::MpiIo if version < 3 => {
                &["CLOSE_START_TIMESTAMP", "OPEN_END_TIMESTAMP"]
            }
            Api::Posix | Api::MpiIo | Api::Stdio => &[],
        };
        let present = |all: &[&str], missing: &[&str]| -> Vec<usize> {
            (0..all.len()).filter(|index| !missing.contains(&all[*index])).collect()
        };
        let counters = present(api.counter_names(), missing);
        let mut counters: Vec<_> = counters.into_iter().map(Some).collect();
        if api == Api::Posix && version == 1 {
            // fopens, freads, fwrites, fseeks.
            counters.splice(OLD_STREAM_COUNTERS..OLD_STREAM_COUNTERS, [None; 4]);
        }
        Some(Layout { counters, times: present(api.time_names(), missing_times) })
    }

    /// Bytes of a record.
    fn bytes(&self) -> usize {
        16 + 8 * (self.counters.len() + self.times.len())
    }
}

/// Counters before those of streams in POSIX records of version 1.
const OLD_STREAM_COUNTERS: usize = 6;

/// The rank of a record; `None`: shared by all processes.
pub(crate) fn rank<R: Read + Seek>(
    region: &Region<'_, R>,
    rank: i64,
    processes: u32,
) -> Result<Option<u32>, LogError> {
    match u32::try_from(rank) {
        Ok(rank) if rank < processes => Ok(Some(rank)),
        Err(_) if rank == -1 => Ok(None),
        _ => Err(region.error(format!(
            "a record of rank {rank}; the program had the ranks 0 to {}",
            processes - 1
        ))),
    }
}

/// Calls `visit` with each record, and returns the number of those that were left out: POSIX records of
/// version 1 which also count calls of streams and cannot be separated from them.
pub(crate) fn read<R: Read + Seek>(
    region: &mut Region<'_, R>,
    (api, version): (Api, u32),
    order: ByteOrder,
    processes: u32,
    visit: &mut dyn FnMut(&CounterRecord),
) -> Result<u64, LogError> {
    let Some(layout) = Layout::of(api, version) else {
        return Err(
            region.error(format!("version {version} of {} records is not known", api.name()))
        );
    };
    let mut bytes = vec![0; layout.bytes()];
    let mut record = CounterRecord {
        api,
        id: 0,
        rank: None,
        counters: vec![-1; api.counter_names().len()],
        times: vec![-1.0; api.time_names().len()],
    };
    if let Some(id) = api.counter_names().iter().position(|name| *name == "RENAMED_FROM") {
        record.counters[id] = 0;
    }
    let mut left_out = 0;
    while region.read_record(&mut bytes)? {
        let mut fields = Fields::new(&bytes, order);
        record.id = fields.u64();
        record.rank = rank(region, fields.i64(), processes)?;
        let mut stream_calls = None;
        for index in &layout.counters {
            let value = fields.i64();
            match index {
                Some(index) => record.counters[*index] = value,
                None => stream_calls = stream_calls.or(Some(value)),
            }
        }
        for index in &layout.times {
            record.times[*index] = fields.f64();
        }
        if stream_calls.is_some_and(|opens| opens > 0) {
            left_out += 1;
        } else {
            visit(&record);
        }
    }
    Ok(left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of records in darshan-util's readers.
    #[test]
    fn records_of_all_versions_have_their_sizes() {
        let sizes = [
            (Api::Posix, vec![680, 648, 664, 704]),
            (Api::MpiIo, vec![544, 544, 560]),
            (Api::Stdio, vec![240, 248]),
        ];
        for (api, sizes) in sizes {
            let found: Vec<_> =
                (1..).map_while(|version| Some(Layout::of(api, version)?.bytes())).collect();
            assert_eq!(found, sizes, "{}", api.name());
        }
    }
}
