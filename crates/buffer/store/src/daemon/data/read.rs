//! Reading for a client: a request is answered in portions, each read while those before it are
//! under way to the client.

use super::open_objects::{MAX_CHECKED_CHUNK_BYTES, OpenObject};
use super::{DataConnection, put_failure};
use crate::daemon::flights::{ALIGNMENT, Flights, Memory, Ticket};
use crate::objects::DiskObjects;
use forebay_net::chunk;
use forebay_net::frame::{self, Flags};
use forebay_net::stream::Stream;
use forebay_protocol::message::MAX_DATA;
use forebay_protocol::{Errno, Reply};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read from the page cache before they are sent: with fewer, the client wakes up
/// more often than the overlap is worth.
const AT_ONCE: u64 = 512 << 10;

/// What is read at once: the next portion's length at `offset`. Portions end where the sums of an
/// object's chunks do, so that each can be checked by itself.
fn portion(
    objects: &DiskObjects,
    open: &OpenObject,
    file: &File,
    offset: u64,
    left: usize,
) -> usize {
    let most = match open.checksums(objects, file) {
        None => AT_ONCE,
        Some(seal) => match seal.block_range(offset) {
            Some((from, to)) if to - from > MAX_CHECKED_CHUNK_BYTES => MAX_DATA as u64,
            _ => MAX_CHECKED_CHUNK_BYTES,
        },
    };
    left.min((most - offset % most) as usize)
}

/// Read until `into` is full or the object ends.
fn read_all(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut have = 0;
    while have < into.len() {
        match file.read_at(&mut into[have..], offset + have as u64) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// An answer on its way.
struct Answer<'a> {
    stream: &'a Stream,
    seq: u64,
    /// Header and body, until they have left.
    head: Vec<u8>,
    sent: u64,
    failed: bool,
    /// Nothing more may follow.
    ended: bool,
}

impl Answer<'_> {
    /// The next portion: `expected` bytes unless the object ends before.
    fn portion(&mut self, result: Result<&[u8], Errno>, expected: usize) -> io::Result<()> {
        match result {
            Ok(data) => {
                chunk::send_chunks(self.stream, &self.head, data)?;
                self.head.clear();
                self.sent += data.len() as u64;
                if data.len() < expected {
                    chunk::send_chunk(self.stream, &self.head, &[])?;
                    self.head.clear();
                    self.ended = true;
                }
            }
            Err(errno) => {
                (self.failed, self.ended) = (true, true);
                if self.head.is_empty() {
                    chunk::send_failure(self.stream, errno)?;
                } else {
                    put_failure(&mut self.head, self.seq, errno)?;
                    self.stream.send_all(&self.head, &[], None)?;
                    self.head.clear();
                }
            }
        }
        Ok(())
    }
}

impl DataConnection<'_> {
    /// Answer a request to read. Returns the bytes sent, and whether it failed.
    pub(super) fn read(
        &mut self,
        seq: u64,
        open: Result<&OpenObject, Errno>,
        offset: u64,
        length: usize,
    ) -> io::Result<(u64, bool)> {
        let mut answer = Answer {
            stream: self.stream,
            seq,
            head: Vec::with_capacity(128),
            sent: 0,
            failed: false,
            ended: false,
        };
        let found = open.and_then(|open| {
            if !open.mode.read {
                return Err(Errno::EBADF);
            }
            let Some(file) = open.open_file(self.objects)? else {
                return Ok(None);
            };
            let size = file.metadata()?.len();
            let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
            let length = length.min(left);
            Ok(Some((open, file, size, length)).filter(|_| length > 0))
        });
        let (open, file, size, length) = match found {
            Ok(Some(found)) => found,
            none => {
                let reply = none.map_or_else(Reply::Failed, |_| Reply::Data);
                frame::encode_reply(&mut answer.head, seq, Flags::default(), &reply, 0)?;
                self.stream.send_all(&answer.head, &[], None)?;
                let failed = matches!(reply, Reply::Failed(_));
                return Ok((answer.head.len() as u64, failed));
            }
        };
        frame::encode_reply(
            &mut answer.head,
            seq,
            Flags::default(),
            &Reply::Data,
            length,
        )?;
        answer.sent = answer.head.len() as u64;
        let direct = self.reads_directly(open, size, offset, length);
        match direct {
            Some(direct) => self.read_direct(&mut answer, open, (file, direct), offset, length)?,
            None => self.read_cached(&mut answer, open, file, offset, length)?,
        }
        Ok((answer.sent, answer.failed))
    }

    /// Through the page cache, always by the same memory, which stays in the processor's.
    fn read_cached(
        &mut self,
        answer: &mut Answer<'_>,
        open: &OpenObject,
        file: &File,
        offset: u64,
        length: usize,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < length && !answer.ended {
            let at = offset + done as u64;
            let expected = portion(self.objects, open, file, at, length - done);
            let memory = &mut self.memory[..expected];
            let result = match read_all(file, memory, at) {
                Ok(count) => {
                    let data = &memory[..count];
                    open.verify_data(self.objects, file, at, data)
                        .map(|()| data)
                }
                Err(error) => Err(error.into()),
            };
            answer.portion(result, expected)?;
            done += expected;
        }
        Ok(())
    }

    /// Past the page cache, all portions at the same time.
    fn read_direct(
        &mut self,
        answer: &mut Answer<'_>,
        open: &OpenObject,
        (file, direct): (&File, &File),
        offset: u64,
        length: usize,
    ) -> io::Result<()> {
        let counters = self.counters;
        let whole = length.next_multiple_of(ALIGNMENT).min(self.memory.len());
        let memory = &mut self.memory[..whole];
        let engine = self.engine.get_or_insert_with(|| super::engine(self.path));
        engine.scope(|flights| {
            let mut started: VecDeque<(Ticket, u64, usize)> = VecDeque::new();
            let (mut rest, mut done) = (memory, 0);
            while done < length {
                let at = offset + done as u64;
                let expected = portion(self.objects, open, file, at, length - done);
                let (now, later) = rest.split_at_mut(expected.next_multiple_of(ALIGNMENT));
                rest = later;
                let ticket = flights.start(direct, Memory::Into(now), at);
                started.push_back((ticket, at, expected));
                done += expected;
            }
            while let Some((ticket, at, expected)) = started.pop_front() {
                if answer.ended {
                    break;
                }
                let Some(memory) = landed(flights, ticket, file, at, expected) else {
                    answer.portion(Err(Errno::EIO), expected)?;
                    break;
                };
                let result = memory.and_then(|data| {
                    counters.direct_read.add(data.len() as u64);
                    open.verify_data(self.objects, file, at, data)
                        .map(|()| data)
                });
                answer.portion(result, expected)?;
            }
            Ok(())
        })
    }
}

/// What a direct read brought. One that brought less, or failed, is done again through the page
/// cache: that knows where the object ends, and what else may be wrong.
fn landed<'env>(
    flights: &mut Flights<'_, 'env>,
    ticket: Ticket,
    file: &File,
    at: u64,
    expected: usize,
) -> Option<Result<&'env [u8], Errno>> {
    let (Memory::Into(memory), result) = flights.finish(ticket)? else {
        return None;
    };
    let count = match result {
        Ok(count) if count >= expected => expected,
        _ => match read_all(file, &mut memory[..expected], at) {
            Ok(count) => count,
            Err(error) => return Some(Err(error.into())),
        },
    };
    Some(Ok(&memory[..count]))
}
