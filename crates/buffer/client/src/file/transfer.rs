//! Reading and writing ranges of a file over its data objects.
//!
//! The extents of a range are sent to their nodes without waiting for each other's replies, at most
//! one at a time to a node; extents in objects of this host are read and written meanwhile. Data are
//! transferred directly between the caller's memory and the sockets or objects. On an instance of
//! one node every range is a single extent.

use super::part::Part;
use super::parts::Parts;
use crate::session::{DataConnection, receive_data_reply};
use crate::sessions::MAX_IN_FLIGHT;
use forebay_policy::layout::Extent;
use forebay_protocol::Errno;
use forebay_protocol::message::MAX_DATA;
use std::collections::VecDeque;

/// An extent whose reply is outstanding.
struct InFlight<'a, M> {
    part: &'a Part,
    extent: Extent,
    memory: M,
    /// `None`: the request could not be sent.
    connection: Option<DataConnection>,
}

/// Whether the oldest reply must be received before the request for `extent` is sent.
fn is_window_full<M>(in_flight: &VecDeque<InFlight<'_, M>>, extent: &Extent) -> bool {
    assert!(in_flight.len() <= MAX_IN_FLIGHT);
    in_flight.len() == MAX_IN_FLIGHT
        || in_flight.iter().any(|other| other.extent.node == extent.node)
}

/// The result of a write so far.
struct WriteResult {
    /// The offset of the write.
    offset: u64,
    /// The bytes before the first extent that was not written completely, or its error.
    written: Result<usize, Errno>,
}

impl WriteResult {
    /// Adds the result of an extent. Extents of this host complete before earlier ones that are in
    /// flight.
    fn add(&mut self, extent: Extent, result: Result<usize, Errno>) {
        let before = (extent.offset - self.offset) as usize;
        let complete = match result {
            Ok(count) if count as u64 == extent.length => return,
            Ok(count) => Ok(before + count),
            Err(_) if before > 0 => Ok(before),
            Err(errno) => Err(errno),
        };
        let earlier = match (&self.written, &complete) {
            (Err(_), _) => false,
            (Ok(_), Err(_)) => true,
            (Ok(old), Ok(new)) => new < old,
        };
        if earlier {
            self.written = complete;
        }
    }
}

/// The extents of a range, none longer than a message.
pub fn message_extents(
    parts: &Parts,
    offset: u64,
    length: usize,
) -> impl Iterator<Item = Extent> + use<> {
    let max = MAX_DATA as u64;
    parts.layout.extents(parts.ino, offset, length as u64).flat_map(move |extent| {
        (0..extent.length.div_ceil(max)).map(move |i| Extent {
            node: extent.node,
            object_offset: extent.object_offset + i * max,
            offset: extent.offset + i * max,
            length: (extent.length - i * max).min(max),
        })
    })
}

/// The part and the extent of a range that is transferred at once: it is a single extent, and in an
/// object of this host or not longer than a message.
fn single_extent(
    parts: &Parts,
    offset: u64,
    length: usize,
) -> Result<Option<(&Part, Extent)>, Errno> {
    let (part, extent) = if parts.is_single_object() {
        let node = parts.primary.node;
        (&parts.primary, Extent { node, object_offset: offset, offset, length: length as u64 })
    } else {
        let first = parts.layout.extents(parts.ino, offset, length as u64).next();
        match first.filter(|first| first.length == length as u64) {
            Some(extent) => (parts.part(extent.node)?, extent),
            None => return Ok(None),
        }
    };
    let at_once = part.object.is_some() || length <= MAX_DATA;
    Ok(at_once.then_some((part, extent)))
}

/// Reads at `offset`; less than requested only at the end of the file. `file_length` requests its
/// length.
pub fn read(
    parts: &Parts,
    into: &mut [u8],
    offset: u64,
    file_length: impl FnOnce() -> Result<u64, Errno>,
) -> Result<usize, Errno> {
    let max = (i64::MAX as u64).saturating_sub(offset);
    let length = usize::try_from(max).map_or(into.len(), |max| max.min(into.len()));
    let into = &mut into[..length];
    let short = match single_extent(parts, offset, length)? {
        Some((part, extent)) => {
            let count = parts.read_part(part, into, extent.object_offset)?;
            if count == length || parts.is_single_object() {
                return Ok(count);
            }
            vec![(extent, count)]
        }
        None => read_extents(parts, into, offset)?,
    };
    if short.is_empty() {
        return Ok(length);
    }
    if parts.is_single_object() {
        let end = short
            .first()
            .map_or(length as u64, |(extent, count)| extent.offset - offset + *count as u64);
        return Ok(end as usize);
    }
    let end = file_length()?.saturating_sub(offset);
    let end = usize::try_from(end).map_or(length, |end| end.min(length));
    fill_holes(parts, &mut into[..end], offset, short)?;
    Ok(end)
}

/// Completes a read up to the end of the file, where objects were shorter than their extents.
/// Objects are short where the file ends, and before holes, which read as zeros. But data that were
/// written after the first read must be read again.
fn fill_holes(
    parts: &Parts,
    into: &mut [u8],
    offset: u64,
    short: Vec<(Extent, usize)>,
) -> Result<(), Errno> {
    for (extent, count) in short {
        let start = (extent.offset - offset) as usize;
        let end = (start + extent.length as usize).min(into.len());
        if start + count >= end {
            continue;
        }
        let rest = &mut into[start + count..end];
        let part = parts.part(extent.node)?;
        let object_offset = extent.object_offset + count as u64;
        let read = parts.read_part(part, rest, object_offset)?;
        rest[read..].fill(0);
    }
    Ok(())
}

/// Reads all extents of a range. Returns those that the objects were too short for, with the bytes
/// read.
fn read_extents(
    parts: &Parts,
    into: &mut [u8],
    offset: u64,
) -> Result<Vec<(Extent, usize)>, Errno> {
    let mut short = Vec::new();
    let mut in_flight: VecDeque<InFlight<'_, &mut [u8]>> = VecDeque::new();
    let mut rest = into;
    for extent in message_extents(parts, offset, rest.len()) {
        let (memory, others) = rest.split_at_mut(extent.length as usize);
        rest = others;
        let part = parts.part(extent.node)?;
        if part.is_absent || part.object.is_some() {
            let read = parts.read_part(part, memory, extent.object_offset)?;
            add_if_short(&mut short, extent, read);
            continue;
        }
        while is_window_full(&in_flight, &extent) {
            if let Some(first) = in_flight.pop_front() {
                receive_read(parts, first, &mut short)?;
            }
        }
        let session = parts.session(extent.node)?;
        let request = part.read_request(memory.len(), extent.object_offset);
        in_flight.push_back(InFlight {
            part,
            extent,
            memory,
            connection: session.send_data_call(request, &[]),
        });
    }
    assert!(rest.is_empty(), "the extents cover the range");
    for first in in_flight {
        receive_read(parts, first, &mut short)?;
    }
    Ok(short)
}

fn receive_read(
    parts: &Parts,
    in_flight: InFlight<'_, &mut [u8]>,
    short: &mut Vec<(Extent, usize)>,
) -> Result<(), Errno> {
    let InFlight { part, extent, memory, connection } = in_flight;
    let reply = connection.and_then(|connection| receive_data_reply(connection, memory));
    let count = match reply {
        // The slow path, with retries.
        None | Some(Err(Errno::EBADF)) => parts.read_part(part, memory, extent.object_offset)?,
        Some(count) => count?,
    };
    add_if_short(short, extent, count);
    Ok(())
}

fn add_if_short(short: &mut Vec<(Extent, usize)>, extent: Extent, count: usize) {
    assert!(count as u64 <= extent.length);
    if (count as u64) < extent.length {
        short.push((extent, count));
    }
}

/// Writes at `offset`. Returns the bytes up to the first extent that could not be written
/// completely.
pub fn write(parts: &Parts, data: &[u8], offset: u64) -> Result<usize, Errno> {
    let written = write_extents(parts, data, offset)?;
    parts.confirm_write()?;
    Ok(written)
}

fn write_extents(parts: &Parts, data: &[u8], offset: u64) -> Result<usize, Errno> {
    if let Some((part, extent)) = single_extent(parts, offset, data.len())? {
        let at = extent.object_offset;
        let length = match begin_write(parts, part, data, at)? {
            Begun::Reserved(length) => length,
            Begun::Written(count) => return Ok(count),
        };
        let write = || part.write(&parts.attachment, &data[..length], at);
        return parts.with_part(part, write);
    }
    let mut result = WriteResult { offset, written: Ok(data.len()) };
    let mut in_flight: VecDeque<InFlight<'_, &[u8]>> = VecDeque::new();
    for extent in message_extents(parts, offset, data.len()) {
        let start = (extent.offset - offset) as usize;
        let memory = &data[start..start + extent.length as usize];
        let begun = parts.part(extent.node).and_then(|part| {
            let begun = begin_write(parts, part, memory, extent.object_offset)?;
            Ok((part, begun))
        });
        let (part, memory) = match begun {
            Ok((part, Begun::Reserved(length))) => (part, &memory[..length]),
            Ok((_, Begun::Written(count))) => {
                result.add(extent, Ok(count));
                if (count as u64) < extent.length {
                    break;
                }
                continue;
            }
            Err(errno) => {
                result.add(extent, Err(errno));
                break;
            }
        };
        if part.object.is_some() {
            let write = || part.write(&parts.attachment, memory, extent.object_offset);
            let written = parts.with_part(part, write);
            result.add(extent, written);
            if written != Ok(extent.length as usize) {
                break;
            }
            continue;
        }
        while is_window_full(&in_flight, &extent) {
            if let Some(first) = in_flight.pop_front() {
                let (extent, written) = receive_write(parts, first);
                result.add(extent, written);
            }
        }
        let request = part.write_request(extent.object_offset, false);
        let session = parts.session(extent.node);
        in_flight.push_back(InFlight {
            part,
            extent,
            memory,
            connection: session.ok().and_then(|session| session.send_data_call(request, memory)),
        });
        if (memory.len() as u64) < extent.length {
            break; // more would leave a gap
        }
    }
    for first in in_flight {
        let (extent, written) = receive_write(parts, first);
        result.add(extent, written);
    }
    result.written.inspect(|written| assert!(*written <= data.len()))
}

/// How a write to a part goes on.
enum Begun {
    /// As many bytes may be written: the space for them is reserved.
    Reserved(usize),
    /// As many bytes are written, over blocks that the object has.
    Written(usize),
}

/// Reserves the space for a write of `data` to a part, or for some of them. If there is not enough, but
/// the object has blocks for the write, it is carried out without.
fn begin_write(parts: &Parts, part: &Part, data: &[u8], at: u64) -> Result<Begun, Errno> {
    let attachment = &parts.attachment;
    if parts.with_part(part, || part.try_reserve(attachment, data.len(), at))? {
        return Ok(Begun::Reserved(data.len()));
    }
    let written = parts.with_part(part, || part.write_over_blocks(attachment, data, at))?;
    if written > 0 {
        // It was too little for this write, but may be enough for another client.
        attachment.reservations.give_back(&part.reservation);
        return Ok(Begun::Written(written));
    }
    let reserve = || part.reserve_for_write(attachment, data.len(), at);
    parts.with_part(part, reserve).map(Begun::Reserved)
}

fn receive_write(parts: &Parts, in_flight: InFlight<'_, &[u8]>) -> (Extent, Result<usize, Errno>) {
    let InFlight { part, extent, memory, connection } = in_flight;
    let reply = connection.and_then(|connection| receive_data_reply(connection, &mut []));
    let result = match reply {
        // The slow path, with retries.
        None | Some(Err(Errno::EBADF | Errno::EDQUOT)) => {
            let write = || part.write(&parts.attachment, memory, extent.object_offset);
            parts.with_part(part, write)
        }
        Some(Ok(count)) if count > memory.len() => Err(Errno::EPROTO),
        Some(result) => result,
    };
    (extent, result)
}
