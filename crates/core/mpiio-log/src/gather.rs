//! Reads of logged data in the order of the file, with few system calls.

use crate::entry::Place;
use crate::merge::Piece;
use crate::plan::{DataSource, MergedWrite};
use std::collections::HashMap;
use std::io;

/// Gap between pieces in a log up to which they are read together, in bytes.
const READ_GAP: u64 = 4096;
/// Most bytes that are read together: they stay in the processor's cache until they are copied.
pub(crate) const READ_BYTES: u64 = 512 << 10;
/// Bytes from which on a piece is read alone, to its place.
pub(crate) const ALONE: u64 = 16 << 10;

/// A piece of data and its place in the result.
#[derive(Clone, Copy, Debug)]
struct Move {
    /// Offset in the log.
    from: u64,
    length: u64,
    /// Offset in the result.
    to: usize,
}

impl Move {
    /// Offset behind the piece in the log.
    fn end(&self) -> u64 {
        self.from + self.length
    }
}

/// Reads the data of several writes, one after another, into `buffer`, whose contents are replaced.
/// Pieces that are near each other in a log are read together.
///
/// # Errors
/// A log cannot be read.
pub fn gather(
    source: &impl DataSource,
    writes: &[MergedWrite],
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    let total: u64 = writes.iter().map(|write| write.length).sum();
    let total = usize::try_from(total).map_err(|_| io::ErrorKind::OutOfMemory)?;
    buffer.resize(total, 0);
    let mut to = 0;
    let placed = writes.iter().flat_map(|write| &write.pieces).map(|piece| {
        to += piece.length as usize;
        (piece, to - piece.length as usize)
    });
    let logs = moves_by_log(placed);
    assert_eq!(to, total, "pieces fill their writes");
    read_moves(source, logs, buffer)
}

/// Reads pieces to their places in `buffer`, which contains the bytes of the file from `start` on.
/// Pieces that are near each other in a log are read together.
///
/// # Errors
/// A log cannot be read.
///
/// # Panics
/// If a piece is not within the buffer.
pub fn read_pieces(
    source: &impl DataSource,
    pieces: &[Piece],
    start: u64,
    buffer: &mut [u8],
) -> io::Result<()> {
    let placed = pieces.iter().map(|piece| (piece, (piece.offset - start) as usize));
    read_moves(source, moves_by_log(placed), buffer)
}

/// Reads the pieces of each log to their places.
fn read_moves(
    source: &impl DataSource,
    logs: Vec<(u32, Vec<Move>)>,
    buffer: &mut [u8],
) -> io::Result<()> {
    let mut scratch = Vec::new();
    for (log, mut moves) in logs {
        // A write of a process is in the log in the order of the file, so that long parts are sorted,
        // which this sort finds.
        moves.sort_by_key(|piece| piece.from);
        let mut rest = &moves[..];
        while !rest.is_empty() {
            let (run, others) = rest.split_at(near(rest));
            rest = others;
            read_run(source, log, run, &mut scratch, buffer)?;
        }
    }
    Ok(())
}

/// The pieces of each log, which are given with their places.
fn moves_by_log<'a>(pieces: impl Iterator<Item = (&'a Piece, usize)>) -> Vec<(u32, Vec<Move>)> {
    let mut logs: Vec<(u32, Vec<Move>)> = Vec::new();
    let mut indices: HashMap<u32, usize> = HashMap::new();
    let mut last = None;
    for (piece, to) in pieces {
        let log = piece.place.log;
        let index = match last {
            Some((of, index)) if of == log => index,
            Some(_) | None => *indices.entry(log).or_insert_with(|| {
                logs.push((log, Vec::new()));
                logs.len() - 1
            }),
        };
        last = Some((log, index));
        logs[index].1.push(Move { from: piece.place.offset, length: piece.length, to });
    }
    logs
}

/// Number of the first pieces that are read together; at least one.
fn near(moves: &[Move]) -> usize {
    let first = moves[0];
    let mut end = first.end();
    let joined = moves[1..].iter().take_while(|next| {
        let joined = next.length < ALONE
            && first.length < ALONE
            && next.from <= end.saturating_add(READ_GAP)
            && next.end() - first.from <= READ_BYTES;
        if joined {
            end = end.max(next.end());
        }
        joined
    });
    1 + joined.count()
}

/// Reads pieces that are near each other.
fn read_run(
    source: &impl DataSource,
    log: u32,
    run: &[Move],
    scratch: &mut Vec<u8>,
    buffer: &mut [u8],
) -> io::Result<()> {
    let start = run[0].from;
    let place = Place { log, offset: start };
    if let [alone] = run {
        return source.read_at(place, &mut buffer[alone.to..alone.to + alone.length as usize]);
    }
    let end = run.iter().map(Move::end).max().unwrap_or(start);
    scratch.resize((end - start) as usize, 0);
    source.read_at(place, scratch)?;
    for piece in run {
        let (at, length) = ((piece.from - start) as usize, piece.length as usize);
        buffer[piece.to..piece.to + length].copy_from_slice(&scratch[at..at + length]);
    }
    Ok(())
}
