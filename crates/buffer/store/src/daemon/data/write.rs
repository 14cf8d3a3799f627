//! Writes: chunks are verified and written while later ones arrive.
//!
//! An interrupted request leaves the chunks that were written. It is acknowledged only after all
//! its chunks were verified and written; a client without an acknowledgement sends all of them
//! again.

use super::open_objects::OpenObject;
use super::{DataConnection, DataInput};
use forebay_net::chunk::{self, Chunk};
use forebay_net::frame::FrameError;
use forebay_protocol::{Errno, Reply};
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

/// Receive the next chunk of a request into the front of `into`. Fails if it must not be written
/// any more.
fn receive_data(input: &mut DataInput<'_>, into: &mut [u8]) -> io::Result<usize> {
    let chunk = input.receiver.receive_chunk(into)?;
    // Data that arrived before the connection was shut down can still be received. If the client
    // has closed it, the client has reported a failed write, and others may have continued.
    if input.fence.is_shut_down() || input.receiver.stream().is_peer_gone()? {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    match chunk {
        Chunk::Data(count) => Ok(count),
        // Only the sender of a read reply may end a payload early.
        Chunk::End | Chunk::Failed(_) => Err(FrameError::Kind.into()),
    }
}

impl DataConnection<'_> {
    /// Carry out a write request whose `length` bytes of data follow.
    pub(super) fn write(
        &mut self,
        input: &mut DataInput<'_>,
        open: Result<&OpenObject, Errno>,
        offset: u64,
        append: bool,
        length: usize,
    ) -> io::Result<Result<Reply, Errno>> {
        let context = self.context;
        let target = open.and_then(|open| {
            open.consume_grant(offset, append, length)?;
            let file = open.open_file(context.objects)?.ok_or(Errno::EIO)?;
            let active = open.begin_write(context.fence)?;
            Ok((open, file, active))
        });
        let (target, _active) = match target {
            Ok((open, file, active)) => (Ok((open, file)), Some(active)),
            Err(errno) => (Err(errno), None),
        };
        if append {
            return self.append(input, target.map(|(_, file)| file), length);
        }
        let outcome = self.write_chunks(input, target, offset, length)?;
        Ok(outcome.map(|()| Reply::Written { count: length as u32, offset }))
    }

    /// Append with one system call after all data have arrived: a repeated request must not append
    /// a part twice.
    fn append(
        &mut self,
        input: &mut DataInput<'_>,
        file: Result<&File, Errno>,
        length: usize,
    ) -> io::Result<Result<Reply, Errno>> {
        let data = super::first_bytes(&mut self.buffer, length);
        let mut received = 0;
        while received < length {
            received += receive_data(input, &mut data[received..])?;
        }
        assert_eq!(received, length);
        Ok(file.and_then(|file| {
            let parts = [IoSlice::new(data)];
            let count = rustix::io::pwritev2(file, &parts, 0, ReadWriteFlags::APPEND)?;
            let end = file.metadata()?.len();
            Ok(Reply::Written { count: count as u32, offset: end - count as u64 })
        }))
    }

    /// Write each chunk when it arrives. After an error the remaining chunks are still received.
    fn write_chunks(
        &mut self,
        input: &mut DataInput<'_>,
        target: Result<(&OpenObject, &File), Errno>,
        offset: u64,
        length: usize,
    ) -> io::Result<Result<(), Errno>> {
        let mut outcome = target.map(|_| ());
        let mut done = 0;
        while done < length {
            // All chunks use the same memory, which stays in the processor's cache.
            let chunk_bytes = (length - done).min(chunk::MAX_CHUNK_BYTES);
            let chunk = super::first_bytes(&mut self.buffer, chunk_bytes);
            let count = receive_data(input, chunk)?;
            if let (Ok((_, file)), Ok(())) = (target, outcome) {
                let written = file.write_all_at(&chunk[..count], offset + done as u64);
                outcome = written.map_err(Errno::from);
            }
            done += count;
        }
        assert_eq!(done, length, "chunks exceed the announced length");
        if let (Ok((open, file)), Ok(())) = (target, outcome) {
            open.write_behind.record_write(file, offset, length as u64);
        }
        Ok(outcome)
    }
}
