//! Writes: chunks are verified and written while later ones arrive.
//!
//! An interrupted request leaves the chunks that were written. It is acknowledged only after all
//! its chunks were verified and written; a client without an acknowledgement sends all of them
//! again.
//!
//! A write needs space that was granted to its handle. Without that it is carried out only if the object
//! has blocks for all of it: in a full instance clients send such writes, and no others.

use super::open_objects::OpenObject;
use super::{DataConnection, DataInput};
use crate::objects::{DiskObjects, require_blocks};
use forebay_net::chunk::{self, Chunk};
use forebay_net::frame::FrameError;
use forebay_protocol::{Errno, Reply};
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

/// The space that a write uses.
#[derive(Clone, Copy, Debug)]
enum Space {
    /// It was granted.
    Granted,
    /// That of blocks which the object has: none may be added.
    OfBlocks,
}

/// The object of a write.
#[derive(Clone, Copy, Debug)]
struct Target<'a> {
    open: &'a OpenObject,
    file: &'a File,
    space: Space,
}

impl Target<'_> {
    /// Write all of `data`.
    fn write(&self, objects: &DiskObjects, data: &[u8], offset: u64) -> Result<(), Errno> {
        match self.space {
            Space::Granted => Ok(self.file.write_all_at(data, offset)?),
            Space::OfBlocks => objects.write_over_blocks(self.open.object, self.file, data, offset),
        }
    }
}

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
            let granted = open.consume_grant(offset, append, length);
            let space = match granted {
                Err(Errno::EDQUOT) => Space::OfBlocks,
                granted => granted.map(|()| Space::Granted)?,
            };
            let file = open.open_file(context.objects)?;
            let active = open.begin_write(context.fence)?;
            let target = match space {
                Space::Granted => Target { open, file: file.ok_or(Errno::EIO)?, space },
                Space::OfBlocks => Target { open, file: file.ok_or(Errno::EDQUOT)?, space },
            };
            if !append && matches!(space, Space::OfBlocks) {
                // Each chunk checks that again. Nothing is written if there is no space for all.
                require_blocks(target.file, offset..offset + length as u64)?;
            }
            Ok((target, active))
        });
        let (target, _active) = match target {
            Ok((target, active)) => (Ok(target), Some(active)),
            Err(errno) => (Err(errno), None),
        };
        if append {
            return self.append(input, target, length);
        }
        let outcome = self.write_chunks(input, target, offset, length)?;
        Ok(outcome.map(|()| Reply::Written { count: length as u32, offset }))
    }

    /// Append with one system call after all data have arrived: a repeated request must not append
    /// a part twice.
    fn append(
        &mut self,
        input: &mut DataInput<'_>,
        target: Result<Target<'_>, Errno>,
        length: usize,
    ) -> io::Result<Result<Reply, Errno>> {
        let objects = self.context.objects;
        let data = super::first_bytes(&mut self.buffer, length);
        let mut received = 0;
        while received < length {
            received += receive_data(input, &mut data[received..])?;
        }
        assert_eq!(received, length);
        Ok(target.and_then(|Target { open, file, space }| {
            let count = match space {
                Space::Granted => {
                    let parts = [IoSlice::new(data)];
                    rustix::io::pwritev2(file, &parts, 0, ReadWriteFlags::APPEND)?
                }
                Space::OfBlocks => objects.append_over_blocks(open.object, file, data)?,
            };
            let end = file.metadata()?.len();
            Ok(Reply::Written { count: count as u32, offset: end - count as u64 })
        }))
    }

    /// Write each chunk when it arrives. After an error the remaining chunks are still received.
    fn write_chunks(
        &mut self,
        input: &mut DataInput<'_>,
        target: Result<Target<'_>, Errno>,
        offset: u64,
        length: usize,
    ) -> io::Result<Result<(), Errno>> {
        let objects = self.context.objects;
        let mut outcome = target.map(|_| ());
        let mut done = 0;
        while done < length {
            // All chunks use the same memory, which stays in the processor's cache.
            let chunk_bytes = (length - done).min(chunk::MAX_CHUNK_BYTES);
            let chunk = super::first_bytes(&mut self.buffer, chunk_bytes);
            let count = receive_data(input, chunk)?;
            if let (Ok(target), Ok(())) = (target, outcome) {
                outcome = target.write(objects, &chunk[..count], offset + done as u64);
            }
            done += count;
        }
        assert_eq!(done, length, "chunks exceed the announced length");
        if let (Ok(Target { open, file, .. }), Ok(())) = (target, outcome) {
            open.write_behind.record_write(file, offset, length as u64);
        }
        Ok(outcome)
    }
}
