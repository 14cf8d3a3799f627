//! Entries: the logged writes as they are kept in memory.

use crate::encoding::{DecodeError, Decoder, put_number};
use crate::view::View;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The order of writes to a file: a later write replaces an earlier one where they overlap.
///
/// Epochs count the collective `MPI_File_sync` and open of a file, so that a write that MPI orders
/// behind another rank's write has a larger epoch. Within an epoch MPI leaves the order of ranks
/// open; it is that of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    /// Epoch of the write.
    pub epoch: u64,
    /// Rank of the process.
    pub rank: u32,
    /// Sequence number in the process's log.
    pub sequence: u64,
}

/// The place of data: a byte of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the log; a [`LogWriter`](crate::LogWriter) gives its rank.
    pub log: u32,
    /// Byte offset in the log file.
    pub offset: u64,
}

/// A logged write: a range of a view's byte stream, whose data is contiguous in the log. Its size in
/// memory does not depend on the number of pieces that it has in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Order among the writes to the file.
    pub order: Order,
    /// The view through which the process wrote.
    pub view: Arc<View>,
    /// Position of the first byte in the view's stream.
    pub position: u64,
    /// Bytes.
    pub length: u64,
    /// Place of the first byte.
    pub place: Place,
}

impl Entry {
    /// A range of the file that contains the write.
    pub fn hull(&self) -> Range<u64> {
        self.view.hull(self.position, self.length)
    }
}

/// Encodes entries for other ranks; each view and each file type is contained once.
pub fn encode_entries(entries: &[Entry]) -> Vec<u8> {
    let mut views: Vec<&View> = Vec::new();
    let mut numbers: HashMap<&[u8], u64> = HashMap::new();
    let mut body = Vec::new();
    for entry in entries {
        let number = *numbers.entry(entry.view.encoded()).or_insert_with(|| {
            views.push(&entry.view);
            views.len() as u64 - 1
        });
        let (order, place) = (entry.order, entry.place);
        for value in [
            number,
            order.epoch,
            u64::from(order.rank),
            order.sequence,
            entry.position,
            entry.length,
            u64::from(place.log),
            place.offset,
        ] {
            put_number(&mut body, value);
        }
    }
    let mut bytes = Vec::new();
    put_number(&mut bytes, views.len() as u64);
    // A view begins with the number of the first one with its file type; that one's own number is
    // followed by the file type.
    let mut filetypes: HashMap<&[u8], u64> = HashMap::new();
    for (number, view) in (0..).zip(views) {
        let filetype = view.encoded_filetype();
        let first = *filetypes.entry(filetype).or_insert(number);
        put_number(&mut bytes, first);
        put_number(&mut bytes, view.displacement());
        if first == number {
            put_number(&mut bytes, filetype.len() as u64);
            bytes.extend_from_slice(filetype);
        }
    }
    put_number(&mut bytes, entries.len() as u64);
    bytes.extend_from_slice(&body);
    bytes
}

/// The entries that [`encode_entries`] encoded.
///
/// # Errors
/// The bytes are no valid entries.
pub fn decode_entries(bytes: &[u8]) -> Result<Vec<Entry>, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let count = decoder.count(2)?;
    let mut views = Vec::with_capacity(count);
    for _ in 0..count {
        views.push(Arc::new(decode_view(&mut decoder, &views)?));
    }
    let count = decoder.count(8)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        entries.push(decode_entry(&mut decoder, &views)?);
    }
    decoder.finish()?;
    Ok(entries)
}

fn decode_view(decoder: &mut Decoder<'_>, before: &[Arc<View>]) -> Result<View, DecodeError> {
    let first = usize::try_from(decoder.number()?).map_err(|_| DecodeError::Malformed)?;
    let displacement = decoder.number()?;
    if let Some(view) = before.get(first) {
        return Ok(view.at(displacement)?);
    }
    if first != before.len() {
        return Err(DecodeError::Malformed);
    }
    let length = decoder.count(1)?;
    let mut filetype = Decoder::new(decoder.bytes(length)?);
    let view = View::new(displacement, filetype.datatype()?)?;
    filetype.finish()?;
    Ok(view)
}

fn decode_entry(decoder: &mut Decoder<'_>, views: &[Arc<View>]) -> Result<Entry, DecodeError> {
    let rank = |number: u64| u32::try_from(number).map_err(|_| DecodeError::Malformed);
    let number = usize::try_from(decoder.number()?).map_err(|_| DecodeError::Malformed)?;
    let view = Arc::clone(views.get(number).ok_or(DecodeError::Malformed)?);
    let order = Order {
        epoch: decoder.number()?,
        rank: rank(decoder.number()?)?,
        sequence: decoder.number()?,
    };
    let (position, length) = (decoder.number()?, decoder.number()?);
    if length == 0 || !view.contains(position, length) {
        return Err(DecodeError::Malformed);
    }
    let place = Place { log: rank(decoder.number()?)?, offset: decoder.number()? };
    Ok(Entry { order, view, position, length, place })
}
