//! File views: a file type, repeated from a displacement on, whose bytes form a stream.

use crate::datatype::{Datatype, InvalidDatatype};
use crate::encoding::{DecodeError, Decoder, put_datatype, put_number};
use crate::type_map::{NODE_BYTES, TypeMap};
use std::ops::Range;
use std::sync::Arc;

/// A file view of MPI: from byte `displacement` of the file on, copies of the file type follow one
/// another at its extent. The data bytes of all copies are the view's *byte stream*; a write is a
/// range of this stream.
#[derive(Clone, Debug)]
pub struct View {
    displacement: u64,
    filetype: Arc<Datatype>,
    map: Arc<TypeMap>,
    /// Bytes from a copy of the file type to the next.
    extent: u64,
    /// File offsets increase along the stream.
    ordered: bool,
    /// The copies of the file type are one contiguous range.
    dense: bool,
    encoded: Arc<[u8]>,
    /// Place of the file type in `encoded`.
    encoded_type: usize,
    /// Bytes of memory, roughly, of file type and map.
    memory: u64,
}

/// Most bytes of memory, roughly, of the file type of a view that is logged. Programs that read logs
/// refuse others, so that no log makes them use more.
pub const MAX_LOGGED_VIEW: u64 = 256 << 20;

/// A contiguous part of a write in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes; never 0.
    pub length: u64,
    /// Position in the view's stream.
    pub stream: u64,
}

impl Segment {
    /// Offset behind the segment.
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// Refuses a displacement at which a file type begins before the start of the file.
fn check_displacement(displacement: u64, map: &TypeMap) -> Result<(), InvalidDatatype> {
    if map.size() > 0 && i128::from(displacement) + i128::from(map.low()) < 0 {
        return Err(InvalidDatatype::NegativeOffset);
    }
    Ok(())
}

impl PartialEq for View {
    fn eq(&self, other: &View) -> bool {
        self.encoded == other.encoded
    }
}

impl Eq for View {}

impl View {
    /// A view of `filetype` from `displacement` bytes on. MPI demands that the offsets of a file that
    /// is written increase along the stream. Other views are accepted, too: a byte of the file that
    /// occurs twice in a write gets the data of its later position in the stream.
    ///
    /// # Errors
    /// The file type is too large or too deep, contains data but has no positive extent, or begins
    /// before the start of the file.
    pub fn new(displacement: u64, filetype: Datatype) -> Result<View, InvalidDatatype> {
        View::within(u64::MAX, displacement, filetype)
    }

    /// As [`View::new`], with at most `limit` bytes of memory.
    fn within(limit: u64, displacement: u64, filetype: Datatype) -> Result<View, InvalidDatatype> {
        let (map, memory) = TypeMap::new(&filetype, limit)?;
        let extent = filetype.bounds()?.extent();
        if map.size() > 0 && extent <= 0 {
            return Err(InvalidDatatype::BadExtent);
        }
        check_displacement(displacement, &map)?;
        let extent = u64::try_from(extent).map_err(|_| InvalidDatatype::BadExtent)?;
        let tiles = (map.high() - map.low()).unsigned_abs() <= extent;
        let mut encoded = Vec::new();
        put_number(&mut encoded, displacement);
        let encoded_type = encoded.len();
        put_datatype(&mut encoded, &filetype);
        let ordered = map.is_ordered() && tiles;
        let dense = map.size() > 0 && extent == map.size() && map.locate(0).length == map.size();
        let (encoded, filetype, map) = (encoded.into(), Arc::new(filetype), Arc::new(map));
        Ok(View {
            displacement,
            filetype,
            map,
            extent,
            ordered,
            dense,
            encoded,
            encoded_type,
            memory,
        })
    }

    /// The view with this file type from `displacement` on. It shares memory with this one.
    ///
    /// # Errors
    /// The file type begins before the start of the file.
    pub fn at(&self, displacement: u64) -> Result<View, InvalidDatatype> {
        check_displacement(displacement, &self.map)?;
        let mut encoded = Vec::with_capacity(self.encoded.len() + 8);
        put_number(&mut encoded, displacement);
        let encoded_type = encoded.len();
        encoded.extend_from_slice(self.encoded_filetype());
        Ok(View { displacement, encoded: encoded.into(), encoded_type, ..self.clone() })
    }

    /// The file type as bytes: the end of [`View::encoded`].
    pub fn encoded_filetype(&self) -> &[u8] {
        &self.encoded[self.encoded_type..]
    }

    /// Bytes of memory that the view needs, roughly.
    pub fn memory(&self) -> u64 {
        self.memory + self.encoded.len() as u64
    }

    /// Whether a log can contain the view ([`MAX_LOGGED_VIEW`]).
    pub(crate) fn can_be_logged(&self) -> bool {
        self.memory <= MAX_LOGGED_VIEW
    }

    /// The view of all bytes from `displacement` on.
    pub fn bytes(displacement: u64) -> View {
        match View::new(displacement, Datatype::Bytes(1)) {
            Ok(view) => view,
            Err(error) => unreachable!("a byte is a valid file type: {error}"),
        }
    }

    /// The displacement in bytes.
    pub fn displacement(&self) -> u64 {
        self.displacement
    }

    /// The file type.
    pub fn filetype(&self) -> &Datatype {
        &self.filetype
    }

    /// Whether file offsets increase along the stream.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// The view as bytes.
    pub fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// The view that [`View::encoded`] returned as `bytes`, from a log.
    ///
    /// # Errors
    /// The bytes are no valid view, or one that a log cannot contain ([`MAX_LOGGED_VIEW`]).
    pub fn decode(bytes: &[u8]) -> Result<View, DecodeError> {
        let mut decoder = Decoder::limited(bytes, MAX_LOGGED_VIEW / NODE_BYTES);
        let displacement = decoder.number()?;
        let filetype = decoder.datatype()?;
        decoder.finish()?;
        Ok(View::within(MAX_LOGGED_VIEW, displacement, filetype)?)
    }

    /// Whether `length` bytes from stream position `position` on exist and lie below the largest
    /// file offset, 2^63 - 1.
    pub fn contains(&self, position: u64, length: u64) -> bool {
        if length == 0 {
            return true;
        }
        let Some(last) = position.checked_add(length - 1) else { return false };
        if self.map.size() == 0 {
            return false;
        }
        let copies = i128::from(last / self.map.size()) * i128::from(self.extent);
        let end = i128::from(self.displacement) + copies + i128::from(self.map.high());
        end <= i128::from(i64::MAX)
    }

    /// The contiguous parts of the `length` stream bytes from `position` on, in the order of the
    /// stream, adjacent ones joined.
    ///
    /// # Panics
    /// If the view does not contain these bytes ([`View::contains`]).
    pub fn segments(&self, position: u64, length: u64) -> Segments<'_> {
        assert!(self.contains(position, length), "a write behind the view's end");
        Segments { view: self, position, end: position + length, ahead: None, hint: 0 }
    }

    /// A range of the file that contains these stream bytes: the smallest one if the view is ordered
    /// or the bytes are part of one copy of the file type. Empty without bytes.
    pub fn hull(&self, position: u64, length: u64) -> Range<u64> {
        let Some(last) = length.checked_sub(1) else { return 0..0 };
        assert!(self.contains(position, length), "a write behind the view's end");
        if self.ordered {
            return self.locate(position).offset..self.locate(position + last).offset + 1;
        }
        let size = self.map.size();
        if length >= size {
            // Whole copies: their bounds are reached, or exceeded by less than a copy.
            let (first, last) = (position / size, (position + last) / size);
            let base = i128::from(self.displacement);
            let low = base + i128::from(first * self.extent) + i128::from(self.map.low());
            let high = base + i128::from(last * self.extent) + i128::from(self.map.high());
            return low.max(0) as u64..high as u64;
        }
        let segments = self.segments(position, length);
        let join = |hull: Range<u64>, segment: Segment| {
            hull.start.min(segment.offset)..hull.end.max(segment.end())
        };
        let first = self.locate(position);
        segments.fold(first.offset..first.offset + 1, join)
    }

    /// Number of stream bytes that lie below file offset `offset`.
    ///
    /// # Panics
    /// If the view is not ordered.
    pub fn stream_position(&self, offset: u64) -> u64 {
        assert!(self.ordered, "positions follow offsets only in an ordered view");
        let size = self.map.size();
        let low = i128::from(self.displacement) + i128::from(self.map.low());
        let into = i128::from(offset) - low;
        if size == 0 || into <= 0 {
            return 0;
        }
        let copies = (into / i128::from(self.extent)) as u64;
        let rest = (into % i128::from(self.extent)) as i64;
        copies.saturating_mul(size).saturating_add(self.map.bytes_below(self.map.low() + rest))
    }

    /// The rest of the run that contains a stream byte.
    fn locate(&self, position: u64) -> Segment {
        self.locate_near(position, &mut 0)
    }

    /// As [`View::locate`], with the hint of [`TypeMap::locate_near`].
    fn locate_near(&self, position: u64, hint: &mut usize) -> Segment {
        if self.dense {
            let first = i128::from(self.displacement) + i128::from(self.map.low());
            let offset = (first + i128::from(position)) as u64;
            assert!(offset < 1 << 63, "offsets were checked");
            return Segment { offset, length: (1 << 63) - offset, stream: position };
        }
        let copy = position / self.map.size();
        let run = self.map.locate_near(position % self.map.size(), hint);
        let base = self.displacement + copy * self.extent;
        let offset = base.checked_add_signed(run.at);
        let offset = offset.unwrap_or_else(|| unreachable!("offsets were checked"));
        Segment { offset, length: run.length, stream: position }
    }
}

/// Iterator over the contiguous parts of a write; see [`View::segments`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    view: &'a View,
    /// Position behind `ahead`.
    position: u64,
    end: u64,
    /// The next run, to which adjacent ones are joined.
    ahead: Option<Segment>,
    /// Where the last run was found ([`TypeMap::locate_near`]).
    hint: usize,
}

impl Segments<'_> {
    /// The next run of the file type, as far as it is part of the write.
    fn run(&mut self) -> Option<Segment> {
        let left = self.end - self.position;
        if left == 0 {
            return None;
        }
        let mut run = self.view.locate_near(self.position, &mut self.hint);
        run.length = run.length.min(left);
        self.position += run.length;
        Some(run)
    }
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let mut segment = self.ahead.take().or_else(|| self.run())?;
        while let Some(run) = self.run() {
            if run.offset != segment.end() {
                self.ahead = Some(run);
                break;
            }
            segment.length += run.length;
        }
        Some(segment)
    }
}
