//! The data of a region.

use crate::error::{LogError, Place};
use crate::header::{Compression, Extent};
use flate2::{Decompress, FlushDecompress, Status};
use std::io::{Read, Seek, SeekFrom};

/// Most bytes of a region when it is decompressed.
const MOST_BYTES: u64 = 4 << 30;

/// Bytes that are read from the file at a time.
const INPUT_BYTES: usize = 64 << 10;

enum Decoder {
    Zlib(Box<Decompress>),
    Bzip2(bzip2::Decompress),
    None,
}

/// Progress of a decoder.
struct Step {
    consumed: usize,
    produced: usize,
    is_end_of_stream: bool,
}

impl Decoder {
    fn new(compression: Compression) -> Decoder {
        match compression {
            Compression::Zlib => Decoder::Zlib(Box::new(Decompress::new(true))),
            Compression::Bzip2 => Decoder::Bzip2(bzip2::Decompress::new(false)),
            Compression::None => Decoder::None,
        }
    }

    fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, String> {
        let moved = |before: u64, after: u64| (after - before) as usize;
        match self {
            Decoder::Zlib(zlib) => {
                let (consumed, produced) = (zlib.total_in(), zlib.total_out());
                let status = zlib.decompress(input, output, FlushDecompress::None);
                let status = status.map_err(|error| format!("no valid zlib data: {error}"))?;
                Ok(Step {
                    consumed: moved(consumed, zlib.total_in()),
                    produced: moved(produced, zlib.total_out()),
                    is_end_of_stream: status == Status::StreamEnd,
                })
            }
            Decoder::Bzip2(bzip2) => {
                let (consumed, produced) = (bzip2.total_in(), bzip2.total_out());
                let status = bzip2.decompress(input, output);
                let status = status.map_err(|error| format!("no valid bzip2 data: {error}"))?;
                Ok(Step {
                    consumed: moved(consumed, bzip2.total_in()),
                    produced: moved(produced, bzip2.total_out()),
                    is_end_of_stream: status == bzip2::Status::StreamEnd,
                })
            }
            Decoder::None => {
                let count = input.len().min(output.len());
                output[..count].copy_from_slice(&input[..count]);
                Ok(Step { consumed: count, produced: count, is_end_of_stream: true })
            }
        }
    }
}

/// Reads the data of a region, which is a sequence of compressed streams: one for each process that wrote
/// a part of it.
pub(crate) struct Region<'a, R> {
    source: &'a mut R,
    place: Place,
    compression: Compression,
    decoder: Decoder,
    input: Box<[u8]>,
    /// The part of `input` that is not decompressed yet.
    begin: usize,
    end: usize,
    /// Bytes of the region that are not in `input` yet.
    rest: Extent,
    is_within_stream: bool,
    produced: u64,
}

impl<'a, R: Read + Seek> Region<'a, R> {
    pub fn new(source: &'a mut R, place: Place, compression: Compression, extent: Extent) -> Self {
        Region {
            source,
            place,
            compression,
            decoder: Decoder::new(compression),
            input: vec![0; INPUT_BYTES].into(),
            begin: 0,
            end: 0,
            rest: extent,
            is_within_stream: false,
            produced: 0,
        }
    }

    /// An error at the present place.
    pub fn error(&self, problem: impl Into<String>) -> LogError {
        let offset = self.rest.offset - (self.end - self.begin) as u64;
        LogError { place: self.place, offset, problem: problem.into() }
    }

    /// Reads more of the file, if there is more and all else is decompressed.
    fn load(&mut self) -> Result<(), LogError> {
        if self.begin < self.end || self.rest.bytes == 0 {
            return Ok(());
        }
        let count = self.rest.bytes.min(INPUT_BYTES as u64) as usize;
        let input = &mut self.input[..count];
        let sought = self.source.seek(SeekFrom::Start(self.rest.offset));
        if let Err(error) = sought.and_then(|_| self.source.read_exact(input)) {
            return Err(self.error(format!("cannot be read: {error}")));
        }
        (self.begin, self.end) = (0, count);
        self.rest.offset += count as u64;
        self.rest.bytes -= count as u64;
        Ok(())
    }

    /// Fills `out`, as far as there are data.
    pub fn read(&mut self, out: &mut [u8]) -> Result<usize, LogError> {
        let mut filled = 0;
        while filled < out.len() {
            self.load()?;
            let input = &self.input[self.begin..self.end];
            if input.is_empty() && !self.is_within_stream {
                break;
            }
            let step = self.decoder.step(input, &mut out[filled..]);
            let step = step.map_err(|problem| self.error(problem))?;
            self.begin += step.consumed;
            filled += step.produced;
            self.produced += step.produced as u64;
            self.is_within_stream = !step.is_end_of_stream;
            if self.produced > MOST_BYTES {
                return Err(self.error(format!("more than {MOST_BYTES} bytes of data: too many")));
            }
            if step.is_end_of_stream {
                if !matches!(self.decoder, Decoder::None) {
                    self.decoder = Decoder::new(self.compression);
                }
            } else if step.consumed == 0 && step.produced == 0 {
                let is_end = self.begin == self.end && self.rest.bytes == 0;
                let problem =
                    if is_end { "ends within compressed data" } else { "no valid compressed data" };
                return Err(self.error(problem));
            }
        }
        Ok(filled)
    }

    /// Fills a record; `false` at the end of the region.
    pub fn read_record(&mut self, record: &mut [u8]) -> Result<bool, LogError> {
        match self.read(record)? {
            0 => Ok(record.is_empty()),
            all if all == record.len() => Ok(true),
            some => {
                let size = record.len();
                Err(self.error(format!("ends within a record: {some} bytes instead of {size}")))
            }
        }
    }

    /// Fills the further parts of a record, before which the region must not end.
    pub fn read_rest(&mut self, record: &mut [u8]) -> Result<(), LogError> {
        match self.read_record(record)? {
            true => Ok(()),
            false => Err(self.error("ends within a record")),
        }
    }
}
