//! Writing for a client: chunks are checked and written while those behind them are under way.
//!
//! What an unfinished request has written stays: nothing is acknowledged before all its chunks have
//! been checked and written, and a client that got no answer sends all of them again.

use super::open_objects::OpenObject;
use super::{DataConnection, DataInput};
use crate::daemon::flights::{Memory, is_aligned};
use forebay_net::chunk::{self, Chunk};
use forebay_net::frame::FrameError;
use forebay_protocol::{Errno, Reply};
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

/// The next chunk of a request, at the front of `into`; an error if it may not be written any more.
fn next_chunk(input: &mut DataInput<'_>, into: &mut [u8]) -> io::Result<usize> {
    let chunk = chunk::receive_chunk(input, into)?;
    // A cut connection still has what had arrived by then. So has one that the client has closed:
    // it has told its user that the write failed, and others may have been told to go on.
    if input.end.is_shut_down() || input.stream.is_peer_gone()? {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    match chunk {
        Chunk::Data(count) => Ok(count),
        // Who writes knows beforehand how much.
        Chunk::End | Chunk::Failed(_) => Err(FrameError::Kind.into()),
    }
}

impl DataConnection<'_> {
    /// Carry out a request to write the `length` bytes that follow.
    pub(super) fn write(
        &mut self,
        input: &mut DataInput<'_>,
        open: Result<&OpenObject, Errno>,
        offset: u64,
        append: bool,
        length: usize,
    ) -> io::Result<Result<Reply, Errno>> {
        let target = open.and_then(|open| {
            open.consume_grant(offset, append, length)?;
            let file = open.open_file(self.objects)?.ok_or(Errno::EIO)?;
            let writing = open.begin_write(self.end)?;
            Ok((open, file, writing))
        });
        let (target, _writing) = match target {
            Ok((open, file, writing)) => (Ok((open, file)), Some(writing)),
            Err(errno) => (Err(errno), None),
        };
        if append {
            return self.append(input, target.map(|(_, file)| file), length);
        }
        let direct = target.ok().and_then(|(open, file)| {
            self.writes_directly(open, file, offset, length)
                .map(|direct| (open, file, direct))
        });
        let outcome = match direct {
            Some((open, file, direct)) => {
                self.write_direct(input, open, (file, direct), offset, length)?
            }
            None => self.write_cached(input, target, offset, length)?,
        };
        Ok(outcome.map(|()| Reply::Written {
            count: length as u32,
            offset,
        }))
    }

    /// Appends are written at once, when all has come: they must not be repeated in part.
    fn append(
        &mut self,
        input: &mut DataInput<'_>,
        file: Result<&File, Errno>,
        length: usize,
    ) -> io::Result<Result<Reply, Errno>> {
        let memory = &mut self.memory[..length];
        let mut have = 0;
        while have < length {
            have += next_chunk(input, &mut memory[have..])?;
        }
        Ok(file.and_then(|file| {
            let parts = [IoSlice::new(memory)];
            let count = rustix::io::pwritev2(file, &parts, 0, ReadWriteFlags::APPEND)?;
            let end = file.metadata()?.len();
            Ok(Reply::Written {
                count: count as u32,
                offset: end - count as u64,
            })
        }))
    }

    /// Through the page cache, always by the same memory, which stays in the processor's. What
    /// follows an error is received all the same.
    fn write_cached(
        &mut self,
        input: &mut DataInput<'_>,
        target: Result<(&OpenObject, &File), Errno>,
        offset: u64,
        length: usize,
    ) -> io::Result<Result<(), Errno>> {
        let mut outcome = target.map(|_| ());
        let mut done = 0;
        while done < length {
            let most = (length - done).min(chunk::MAX_CHUNK_BYTES);
            let memory = &mut self.memory[..most];
            let count = next_chunk(input, memory)?;
            if let (Ok((_, file)), Ok(())) = (target, outcome) {
                let written = file.write_all_at(&memory[..count], offset + done as u64);
                outcome = written.map_err(Errno::from);
            }
            done += count;
        }
        if let (Ok((open, file)), Ok(())) = (target, outcome) {
            open.behind.record_write(file, offset, length as u64);
        }
        Ok(outcome)
    }

    /// Past the page cache: each chunk is given to the device as it has come.
    fn write_direct(
        &mut self,
        input: &mut DataInput<'_>,
        open: &OpenObject,
        (file, direct): (&File, &File),
        offset: u64,
        length: usize,
    ) -> io::Result<Result<(), Errno>> {
        let (counters, opens) = (self.counters, self.opens);
        let engine = self.engine.get_or_insert_with(|| super::engine(self.path));
        let memory = &mut self.memory[..length];
        engine.scope(|flights| {
            let mut started = Vec::new();
            let (mut rest, mut done) = (memory, 0);
            let mut outcome = Ok(());
            while done < length {
                let count = next_chunk(input, rest)?;
                let (now, later) = rest.split_at_mut(count);
                (rest, done) = (later, done + count);
                let at = offset + (done - count) as u64;
                let aligned = is_aligned(at)
                    && is_aligned(count as u64)
                    && is_aligned(now.as_ptr().addr() as u64);
                if aligned {
                    started.push((flights.start(direct, Memory::From(now), at), at));
                } else if outcome.is_ok() {
                    outcome = file.write_all_at(now, at).map_err(Errno::from);
                }
            }
            for (ticket, at) in started {
                let Some((Memory::From(data), result)) = flights.finish(ticket) else {
                    outcome = Err(Errno::EIO);
                    continue;
                };
                // Somebody who maps the object may have brought back to the page cache what was
                // there before, and would later write it over this: see `mod.rs`.
                let whole = result.is_ok_and(|count| count == data.len());
                if whole && !opens.may_be_mapped(open.object) {
                    counters.direct_written.add(data.len() as u64);
                } else if outcome.is_ok() {
                    outcome = file.write_all_at(data, at).map_err(Errno::from);
                }
            }
            Ok(outcome)
        })
    }
}
