//! Traces of DXT: each transfer.

use crate::counters::rank;
use crate::error::LogError;
use crate::fields::{ByteOrder, Fields, text};
use crate::file_use::Access;
use crate::module::Module;
use crate::region::Region;
use std::io::{Read, Seek};

/// An interface whose transfers are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceApi {
    /// POSIX reads and writes.
    Posix,
    /// MPI-IO reads and writes.
    MpiIo,
}

impl TraceApi {
    /// Its module.
    pub fn module(self) -> Module {
        match self {
            TraceApi::Posix => Module::DXT_POSIX,
            TraceApi::MpiIo => Module::DXT_MPIIO,
        }
    }

    /// Whether segments have thread ids; `None` if the version is not known.
    fn has_threads(self, version: u32) -> Option<bool> {
        match (self, version) {
            (TraceApi::Posix, 1) | (TraceApi::MpiIo, 1 | 2) => Some(false),
            (TraceApi::Posix, 2) | (TraceApi::MpiIo, 3) => Some(true),
            _ => None,
        }
    }
}

/// The file and the process of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedFile {
    /// Id of the file's name.
    pub id: u64,
    /// The process.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Number of writes.
    pub writes: u64,
    /// Number of reads.
    pub reads: u64,
}

/// A transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Offset in the file; `None` if it was not recorded, as with MPI-IO in version 1.
    pub offset: Option<u64>,
    /// Bytes.
    pub bytes: u64,
    /// Start, seconds since the program's start.
    pub start: f64,
    /// End, seconds since the program's start.
    pub end: f64,
}

const HEAD_BYTES: usize = 104;
const HOST_BYTES: usize = 64;
/// Segments that are handed over at a time.
const SEGMENTS: u64 = 2048;

/// Calls `visit` with the segments of each file and process, in their order and at most 2,048 at a time: first
/// the writes, then the reads. A file without segments has one call without any.
pub(crate) fn read<R: Read + Seek>(
    region: &mut Region<'_, R>,
    (api, version): (TraceApi, u32),
    order: ByteOrder,
    processes: u32,
    visit: &mut dyn FnMut(&TracedFile, Access, &[Segment]),
) -> Result<(), LogError> {
    let Some(has_threads) = api.has_threads(version) else {
        return Err(region.error(format!("version {version} of traces is not known")));
    };
    let segment_bytes = if has_threads { 40 } else { 32 };
    let has_offsets = (api, version) != (TraceApi::MpiIo, 1);
    let mut head = [0; HEAD_BYTES];
    let mut bytes = Vec::new();
    let mut segments = Vec::new();
    while region.read_record(&mut head)? {
        let mut fields = Fields::new(&head, order);
        let (id, number) = (fields.u64(), fields.i64());
        let _is_shared = fields.i64();
        let host = text(fields.take(HOST_BYTES));
        let counts = (u64::try_from(fields.i64()), u64::try_from(fields.i64()));
        let (Ok(writes), Ok(reads)) = counts else {
            return Err(region.error("a negative number of segments"));
        };
        let Some(rank) = rank(region, number, processes)? else {
            return Err(region.error("segments of all ranks together; each has its own"));
        };
        let file = TracedFile { id, rank, host, writes, reads };
        if writes == 0 && reads == 0 {
            visit(&file, Access::Write, &[]);
        }
        for (access, count) in [(Access::Write, writes), (Access::Read, reads)] {
            let mut left = count;
            while left > 0 {
                let count = left.min(SEGMENTS);
                bytes.resize(count as usize * segment_bytes, 0);
                region.read_rest(&mut bytes)?;
                segments.clear();
                segments.extend(bytes.chunks_exact(segment_bytes).map(|segment| {
                    let mut fields = Fields::new(segment, order);
                    let (offset, length) = (fields.i64(), fields.i64());
                    Segment {
                        offset: u64::try_from(offset).ok().filter(|_| has_offsets),
                        bytes: length.try_into().unwrap_or(0),
                        start: fields.f64(),
                        end: fields.f64(),
                    }
                }));
                visit(&file, access, &segments);
                left -= count;
            }
        }
    }
    Ok(())
}
