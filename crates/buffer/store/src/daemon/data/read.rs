//! Reads: a request is answered in portions. The client receives one while the next is read.

use super::open_objects::{MAX_CHECKED_BLOCK_BYTES, OpenObject};
use super::{Answered, DataConnection};
use crate::objects::DiskObjects;
use forebay_net::channel::Sender;
use forebay_net::frame::{self, Flags};
use forebay_protocol::message::MAX_DATA;
use forebay_protocol::{Errno, Reply};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Portion of an object without checksums. With smaller ones the client wakes up more often than
/// the overlap is worth.
const PORTION_BYTES: u64 = 512 << 10;

/// Length of the portion at `offset`. Portions of an object with checksums end at block boundaries,
/// so that each can be verified separately.
fn portion_length(
    objects: &DiskObjects,
    open: &OpenObject,
    file: &File,
    offset: u64,
    remaining: usize,
) -> usize {
    let unit = match open.checksums(objects, file) {
        None => PORTION_BYTES,
        Some(checksums) => match checksums.block_range(offset) {
            Some((from, to)) if to - from > MAX_CHECKED_BLOCK_BYTES => MAX_DATA as u64,
            _ => MAX_CHECKED_BLOCK_BYTES,
        },
    };
    remaining.min((unit - offset % unit) as usize)
}

/// Read until `into` is full or the object ends. Returns the number of bytes.
fn read_available(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < into.len() {
        match file.read_at(&mut into[count..], offset + count as u64) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    assert!(count <= into.len());
    Ok(count)
}

/// A reply in transmission.
struct ReadReply<'a> {
    sender: &'a mut Sender,
    seq: u64,
    /// Header and body of the frame, until they are sent.
    head: &'a mut Vec<u8>,
    sent_bytes: u64,
    failed: bool,
    /// No more portions may follow.
    ended: bool,
}

impl ReadReply<'_> {
    /// Send the next portion, which has `expected` bytes unless the object ends before.
    fn send_portion(&mut self, result: Result<&[u8], Errno>, expected: usize) -> io::Result<()> {
        assert!(!self.ended, "a portion behind the end");
        match result {
            Ok(data) => {
                self.sender.send_chunks(self.head, data)?;
                self.head.clear();
                self.sent_bytes += data.len() as u64;
                if data.len() < expected {
                    self.sender.send_chunk(&[], &[])?;
                    self.ended = true;
                }
            }
            Err(errno) => {
                (self.failed, self.ended) = (true, true);
                if self.head.is_empty() {
                    self.sender.send_failure(errno)?;
                } else {
                    let reply = Reply::Failed(errno);
                    self.head.clear();
                    frame::encode_reply(self.head, self.seq, Flags::default(), &reply, 0)?;
                    self.sender.send(self.head, None)?;
                }
            }
        }
        Ok(())
    }
}

impl DataConnection<'_> {
    pub(super) fn read(
        &mut self,
        seq: u64,
        open: Result<&OpenObject, Errno>,
        offset: u64,
        length: usize,
    ) -> io::Result<Answered> {
        let objects = self.context.objects;
        let found = open.and_then(|open| {
            if !open.mode.read {
                return Err(Errno::EBADF);
            }
            let Some(file) = open.open_file(objects)? else {
                return Ok(None);
            };
            let available = file.metadata()?.len().saturating_sub(offset);
            let available = usize::try_from(available).unwrap_or(usize::MAX);
            let length = length.min(available);
            Ok(Some((open, file, length)).filter(|_| length > 0))
        });
        let (open, file, length) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return self.reply(seq, &Reply::Data),
            Err(errno) => return self.reply(seq, &Reply::Failed(errno)),
        };
        assert!(length <= MAX_DATA);
        self.out.clear();
        let flags = Flags::default();
        frame::encode_reply(&mut self.out, seq, flags, &Reply::Data, length)?;
        let head_bytes = self.out.len() as u64;
        let mut reply = ReadReply {
            sender: &mut self.sender,
            seq,
            sent_bytes: head_bytes,
            head: &mut self.out,
            failed: false,
            ended: false,
        };
        let mut done = 0;
        while done < length && !reply.ended {
            let at = offset + done as u64;
            let expected = portion_length(objects, open, file, at, length - done);
            // All portions use the same memory, which stays in the processor's cache.
            let portion = super::first_bytes(&mut self.buffer, expected);
            let result = match read_available(file, portion, at) {
                Ok(count) => {
                    let data = &portion[..count];
                    open.verify_data(objects, file, at, data).map(|()| data)
                }
                Err(error) => Err(error.into()),
            };
            reply.send_portion(result, expected)?;
            done += expected;
        }
        Ok(Answered {
            sent_bytes: reply.sent_bytes,
            read_bytes: reply.sent_bytes - head_bytes,
            failed: reply.failed,
        })
    }
}
