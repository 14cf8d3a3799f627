//! Reading and writing files that lie on several nodes.
//!
//! A transfer's pieces are sent to their nodes without waiting for each other's answers, at most
//! one at a time to a node; pieces in objects of this host are read and written meanwhile. Data go
//! straight between the caller's memory and the sockets or objects.

use super::File;
use super::part::Part;
use crate::session::{DataConnection, receive_data_reply};
use crate::sessions::MAX_IN_FLIGHT;
use forebay_policy::layout::Extent;
use forebay_protocol::message::FileRequest;
use forebay_protocol::message::MAX_DATA;
use forebay_protocol::{Errno, Reply, Request};
use std::collections::VecDeque;

/// A piece whose answer is outstanding.
struct Flying<'a, M> {
    part: &'a Part,
    piece: Extent,
    memory: M,
    /// `None`: no connection took it, and it has to be sent again.
    lane: Option<DataConnection>,
}

/// How far a write has come.
struct Outcome {
    /// Where it begins.
    offset: u64,
    /// The bytes up to the first piece that was not written whole, or why there are none.
    written: Result<usize, Errno>,
}

impl Outcome {
    /// What became of a piece. Those in objects of this host are settled ahead of earlier ones that
    /// are under way.
    fn settle(&mut self, piece: Extent, result: Result<usize, Errno>) {
        let before = (piece.offset - self.offset) as usize;
        let good = match result {
            Ok(count) if count as u64 == piece.length => return,
            Ok(count) => Ok(before + count),
            Err(_) if before > 0 => Ok(before),
            Err(errno) => Err(errno),
        };
        let earlier = match (&self.written, &good) {
            (Err(_), _) => false,
            (Ok(_), Err(_)) => true,
            (Ok(old), Ok(new)) => new < old,
        };
        if earlier {
            self.written = good;
        }
    }
}

impl File {
    /// The pieces of a range, none longer than what goes over a socket at once.
    fn pieces(&self, offset: u64, length: usize) -> impl Iterator<Item = Extent> + use<> {
        let most = MAX_DATA as u64;
        let layout = self.fs.sessions.layout();
        layout
            .extents(self.ino, offset, length as u64)
            .flat_map(move |piece| {
                (0..piece.length.div_ceil(most)).map(move |i| Extent {
                    node: piece.node,
                    object_offset: piece.object_offset + i * most,
                    offset: piece.offset + i * most,
                    length: (piece.length - i * most).min(most),
                })
            })
    }

    pub(super) fn read_striped(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let length = usize::try_from((i64::MAX as u64).saturating_sub(offset))
            .map_or(into.len(), |most| most.min(into.len()));
        let into = &mut into[..length];
        let short = match self.single(offset, into.len()) {
            Some(piece) => {
                let part = self.part(piece.node)?;
                let read = || part.read(&self.fs, into, piece.object_offset);
                let count = self.with_part(part, read)?;
                if count == into.len() {
                    return Ok(count);
                }
                vec![(piece, count)]
            }
            None => self.read_pieces(into, offset)?,
        };
        if short.is_empty() {
            return Ok(into.len());
        }
        // Objects end early where the file ends, and before holes. What lies behind the end of an
        // object and before that of the file reads as zeros; but what was written between the
        // first look and that at the length must not.
        let end = self.length()?.saturating_sub(offset);
        let end = usize::try_from(end).map_or(into.len(), |end| end.min(into.len()));
        for (piece, had) in short {
            let at = (piece.offset - offset) as usize;
            let piece_end = (at + piece.length as usize).min(end);
            if at + had >= piece_end {
                continue;
            }
            let rest = &mut into[at + had..piece_end];
            let part = self.part(piece.node)?;
            let object_offset = piece.object_offset + had as u64;
            let count = self.with_part(part, || part.read(&self.fs, rest, object_offset))?;
            rest[count..].fill(0);
        }
        Ok(end)
    }

    /// Read all pieces. Returns those that the objects were too short for, and what they had.
    fn read_pieces(&self, into: &mut [u8], offset: u64) -> Result<Vec<(Extent, usize)>, Errno> {
        let mut short = Vec::new();
        let mut flying: VecDeque<Flying<'_, &mut [u8]>> = VecDeque::new();
        let mut rest = into;
        for piece in self.pieces(offset, rest.len()) {
            let (memory, others) = rest.split_at_mut(piece.length as usize);
            rest = others;
            let part = self.part(piece.node)?;
            if part.local.is_some() {
                let count =
                    self.with_part(part, || part.read(&self.fs, memory, piece.object_offset))?;
                note(&mut short, piece, count);
                continue;
            }
            while must_land(&flying, &piece) {
                if let Some(first) = flying.pop_front() {
                    self.land_read(first, &mut short)?;
                }
            }
            let session = self.fs.sessions.session(piece.node)?;
            let request = part.read_request(memory.len(), piece.object_offset);
            flying.push_back(Flying {
                part,
                piece,
                memory,
                lane: session.send_data_call(request, &[]),
            });
        }
        for first in flying {
            self.land_read(first, &mut short)?;
        }
        Ok(short)
    }

    fn land_read(
        &self,
        flying: Flying<'_, &mut [u8]>,
        short: &mut Vec<(Extent, usize)>,
    ) -> Result<(), Errno> {
        let Flying {
            part,
            piece,
            memory,
            lane,
        } = flying;
        let answer = lane.and_then(|lane| receive_data_reply(lane, memory));
        let count = match answer {
            Some((Reply::Data, count)) => count,
            Some((Reply::Failed(errno), _)) if errno != Errno::EBADF => return Err(errno),
            // The slow way, which tries again.
            _ => self.with_part(part, || part.read(&self.fs, memory, piece.object_offset))?,
        };
        note(short, piece, count);
        Ok(())
    }

    /// Write the pieces; returns the bytes up to the first that could not be written whole.
    pub(super) fn write_striped(&self, data: &[u8], offset: u64) -> Result<usize, Errno> {
        self.list();
        if let Some(piece) = self.single(offset, data.len()) {
            let (part, length) = self.claim(piece, data.len())?;
            let at = piece.object_offset;
            return self.with_part(part, || part.write(&self.fs, &data[..length], at));
        }
        let mut outcome = Outcome {
            offset,
            written: Ok(data.len()),
        };
        let mut flying: VecDeque<Flying<'_, &[u8]>> = VecDeque::new();
        for piece in self.pieces(offset, data.len()) {
            let at = (piece.offset - offset) as usize;
            let memory = &data[at..at + piece.length as usize];
            let (part, claimed) = match self.claim(piece, memory.len()) {
                Ok(claimed) => claimed,
                Err(errno) => {
                    outcome.settle(piece, Err(errno));
                    break;
                }
            };
            let memory = &memory[..claimed];
            if part.local.is_some() {
                let write = || part.write(&self.fs, memory, piece.object_offset);
                let result = self.with_part(part, write);
                outcome.settle(piece, result);
                if result != Ok(piece.length as usize) {
                    break;
                }
                continue;
            }
            while must_land(&flying, &piece) {
                if let Some(first) = flying.pop_front() {
                    let (piece, result) = self.land_write(first);
                    outcome.settle(piece, result);
                }
            }
            let lane = self.fs.sessions.session(piece.node).map(|session| {
                session.send_data_call(part.write_request(piece.object_offset, false), memory)
            });
            flying.push_back(Flying {
                part,
                piece,
                memory,
                lane: lane.ok().flatten(),
            });
            if (claimed as u64) < piece.length {
                break; // what follows would leave a gap
            }
        }
        for first in flying {
            let (piece, result) = self.land_write(first);
            outcome.settle(piece, result);
        }
        outcome.written
    }

    /// Have room for `length` bytes of a piece, or fewer. Returns its part of the file, and how many.
    fn claim(&self, piece: Extent, length: usize) -> Result<(&Part, usize), Errno> {
        let part = self.part(piece.node)?;
        let claim = || part.reserve_for_write(&self.fs, length, piece.object_offset);
        Ok((part, self.with_part(part, claim)?))
    }

    fn land_write(&self, flying: Flying<'_, &[u8]>) -> (Extent, Result<usize, Errno>) {
        let Flying {
            part,
            piece,
            memory,
            lane,
        } = flying;
        let answer = lane.and_then(|lane| receive_data_reply(lane, &mut []));
        let result = match answer {
            Some((Reply::Written { count, .. }, _)) => Ok(count as usize),
            Some((Reply::Failed(errno), _)) if !matches!(errno, Errno::EBADF | Errno::EDQUOT) => {
                Err(errno)
            }
            // The slow way, which tries again.
            _ => self.with_part(part, || part.write(&self.fs, memory, piece.object_offset)),
        };
        (piece, result)
    }

    /// The piece that the range is, if it is only one.
    fn single(&self, offset: u64, length: usize) -> Option<Extent> {
        let layout = self.fs.sessions.layout();
        let piece = layout.extents(self.ino, offset, length as u64).next()?;
        (piece.length == length as u64 && length <= MAX_DATA).then_some(piece)
    }

    /// Append under the lock that the file's home keeps for that.
    pub(super) fn append_striped(&self, data: &[u8]) -> Result<usize, Errno> {
        let handle = self.home.handle;
        let node = self.home.node;
        let _turn = self.fs.sessions.acquire_append_slot();
        self.fs
            .call(node, Request::File(FileRequest::AppendLock { handle }))?;
        let written = self.length().and_then(|end| {
            self.check_write(end, data.len())?;
            self.write_striped(data, end)
        });
        if written.is_err() {
            // It must not come to lie over what is appended next.
            self.fs.sessions.try_fence_writes();
        }
        // If home is not there to be told, the lock is gone with it.
        let _ = self
            .fs
            .call(node, Request::File(FileRequest::AppendUnlock { handle }));
        written
    }
}

fn note(short: &mut Vec<(Extent, usize)>, piece: Extent, count: usize) {
    if (count as u64) < piece.length {
        short.push((piece, count));
    }
}

/// Must the oldest answer be waited for before `piece` is sent?
fn must_land<M>(flying: &VecDeque<Flying<'_, M>>, piece: &Extent) -> bool {
    flying.len() >= MAX_IN_FLIGHT || flying.iter().any(|other| other.piece.node == piece.node)
}
