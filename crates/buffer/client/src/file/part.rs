//! The part of an open file that lies on one storage node: a data object.
//!
//! Offsets here are those of the object. On an instance of one node they are those of the file, too.

use crate::attachment::Attachment;
use crate::reservations::{IfShort, Reservation};
use crate::session::SendCheck;
use crate::unsynced::Unsynced;
use forebay_net::extents::all_have_blocks;
use forebay_net::writeback::WriteBehind;
use forebay_protocol::message::{DataRequest, MAX_DATA};
use forebay_protocol::space::{BLOCK_BYTES, block_bytes};
use forebay_protocol::{Errno, HandleId, NodeIndex};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::ReadWriteFlags;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Maximum number of attempts of a write whose reservation or handle the daemon has forgotten.
const MAX_WRITE_ATTEMPTS: u32 = 10;

/// An open data object.
#[derive(Debug)]
pub struct Part {
    pub node: NodeIndex,
    pub handle: HandleId,
    /// The object itself, if the daemon passed its descriptor.
    pub object: Option<std::fs::File>,
    /// There was no object when this part was opened for reading, so that there is no descriptor of
    /// it on this host.
    pub is_absent: bool,
    pub reservation: Arc<Reservation>,
    write_behind: WriteBehind,
    /// Writes over the network that are not synced.
    pub unsynced: Unsynced,
}

impl Part {
    pub fn new(node: NodeIndex, handle: HandleId, descriptor: Option<OwnedFd>) -> Part {
        Part {
            node,
            handle,
            object: descriptor.map(std::fs::File::from),
            is_absent: false,
            reservation: Reservation::new(node, handle),
            write_behind: WriteBehind::default(),
            unsynced: Unsynced::default(),
        }
    }

    /// Reads of the object through this part do not change its access time (`O_NOATIME`), if this host has
    /// its descriptor and this process may ask for that.
    pub fn keep_access_time(&self) {
        if let Some(object) = &self.object
            && let Ok(flags) = fcntl_getfl(object)
        {
            let _ = fcntl_setfl(object, flags | OFlags::NOATIME);
        }
    }

    /// Bytes reserved and not used.
    pub fn reserved(&self) -> u64 {
        self.reservation.unused()
    }

    /// Reads at `offset`. Returns less than requested only at the end of the object.
    pub fn read(&self, at: &Attachment, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut done = 0;
        while done < into.len() {
            let position = offset + done as u64;
            let count = match &self.object {
                Some(object) => match object.read_at(&mut into[done..], position) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    other => other?,
                },
                None => {
                    let length = (into.len() - done).min(MAX_DATA);
                    self.read_remote(at, &mut into[done..done + length], position)?
                }
            };
            if count == 0 {
                break;
            }
            done += count;
        }
        assert!(done <= into.len());
        Ok(done)
    }

    pub fn read_request(&self, length: usize, offset: u64) -> DataRequest {
        debug_assert!(length <= MAX_DATA);
        DataRequest::Read { handle: self.handle, offset, length: length as u32 }
    }

    fn read_remote(&self, at: &Attachment, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.call(at, self.read_request(into.len(), offset), &[], into, false)
    }

    /// Makes a data request, again over new connections if those there are do not know the handle.
    fn call(
        &self,
        at: &Attachment,
        request: DataRequest,
        data: &[u8],
        into: &mut [u8],
        once: bool,
    ) -> Result<usize, Errno> {
        let session = at.sessions.session(self.node)?;
        match session.data_call(request.clone(), data, into, once) {
            Err(Errno::EBADF) => {
                session.reset_data_connections()?;
                session.data_call(request, data, into, once)
            }
            other => other,
        }
    }

    /// Writes at `offset`, within reserved space.
    pub fn write(&self, at: &Attachment, data: &[u8], offset: u64) -> Result<usize, Errno> {
        let Some(object) = &self.object else {
            return self.write_remote(at, data, offset, false);
        };
        self.fence_sent_writes(at)?;
        let count = write_object(object, data, offset)?;
        self.write_behind.record_write(object, offset, count as u64);
        Ok(count)
    }

    /// Appends to the object, within reserved space. Returns the bytes written.
    pub fn append(&self, at: &Attachment, data: &[u8]) -> Result<usize, Errno> {
        self.note_write(at)?;
        match &self.object {
            Some(object) => {
                self.fence_sent_writes(at)?;
                Ok(rustix::io::pwritev2(object, &[IoSlice::new(data)], 0, ReadWriteFlags::APPEND)?)
            }
            None => self.write_remote(at, data, 0, true),
        }
    }

    /// Writes at `offset` without reserved space, over blocks that the object has. Returns the bytes
    /// written: fewer than `data`, perhaps none, if the object lacks blocks.
    ///
    /// The storage daemon writes, also to an object of this host: it knows that nobody frees the blocks
    /// meanwhile.
    pub fn write_over_blocks(
        &self,
        at: &Attachment,
        data: &[u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        let mut done = 0;
        while done < data.len() {
            let position = offset + done as u64;
            let message = &data[done..(done + MAX_DATA).min(data.len())];
            let range = position..position + message.len() as u64;
            if let Some(object) = &self.object
                && !all_have_blocks(object, range)?
            {
                break; // the daemon would refuse it
            }
            match self.send_without_space(at, message, position, false)? {
                0 => break,
                count => done += count,
            }
        }
        assert!(done <= data.len());
        Ok(done)
    }

    /// As [`write_over_blocks`](Part::write_over_blocks), at the end of the object.
    pub fn append_over_blocks(&self, at: &Attachment, data: &[u8]) -> Result<usize, Errno> {
        self.note_write(at)?;
        let data = &data[..data.len().min(MAX_DATA)];
        if let Some(object) = &self.object {
            let end = object.metadata()?.len();
            if !all_have_blocks(object, end..end + data.len() as u64)? {
                return Ok(0); // the daemon would refuse it
            }
        }
        self.send_without_space(at, data, 0, true)
    }

    /// Sends a write for which no space is reserved. Returns the bytes written; 0: it needs space.
    fn send_without_space(
        &self,
        at: &Attachment,
        data: &[u8],
        offset: u64,
        append: bool,
    ) -> Result<usize, Errno> {
        match self.call(at, self.write_request(offset, append), data, &mut [], append) {
            // A daemon of the release before this one may not know that a handle of this host writes over
            // data connections. If it does not know the handle at all, the next request tells.
            Err(Errno::EDQUOT | Errno::EBADF) => Ok(0),
            Ok(count) if count > data.len() => Err(Errno::EPROTO),
            other => other,
        }
    }

    /// Writes to the object itself must not be undone by one that was sent to the daemon, and failed.
    fn fence_sent_writes(&self, at: &Attachment) -> Result<(), Errno> {
        at.sessions.session(self.node)?.fence_writes()
    }

    pub fn write_request(&self, offset: u64, append: bool) -> DataRequest {
        DataRequest::Write { handle: self.handle, offset, append }
    }

    fn write_remote(
        &self,
        at: &Attachment,
        data: &[u8],
        offset: u64,
        append: bool,
    ) -> Result<usize, Errno> {
        self.write_remote_if(at, data, offset, append, &|| Ok(()))
    }

    /// Writes over the network at `offset`, within reserved space, unless the `check` fails of the connection
    /// over which the data are sent. Returns the bytes written.
    pub fn write_if(
        &self,
        at: &Attachment,
        data: &[u8],
        offset: u64,
        check: SendCheck<'_>,
    ) -> Result<usize, Errno> {
        assert!(self.object.is_none(), "objects of this host are written directly");
        self.write_remote_if(at, data, offset, false, check)
    }

    fn write_remote_if(
        &self,
        at: &Attachment,
        data: &[u8],
        offset: u64,
        append: bool,
        check: SendCheck<'_>,
    ) -> Result<usize, Errno> {
        let data = &data[..data.len().min(MAX_DATA)];
        let request = self.write_request(offset, append);
        let session = at.sessions.session(self.node)?;
        let mut result = session.data_call_if(request.clone(), data, &mut [], append, check);
        let position = if append { BLOCK_BYTES - 1 } else { offset };
        let mut attempts = 1;
        while let Err(errno @ (Errno::EBADF | Errno::EDQUOT)) = result
            && attempts <= MAX_WRITE_ATTEMPTS
        {
            // The daemon has restarted and forgotten the handle or the reservation. In either case
            // nothing was written. It may restart again meanwhile.
            attempts += 1;
            if errno == Errno::EBADF {
                session.reset_data_connections()?;
            }
            self.reservation.void();
            self.reserve_all(at, position, data.len() as u64)?;
            result = session.data_call_if(request.clone(), data, &mut [], append, check);
        }
        result.and_then(|count| if count <= data.len() { Ok(count) } else { Err(Errno::EPROTO) })
    }

    /// Reserves the space for a write of `length` bytes at `offset`, if the storage node need not be asked
    /// for it.
    pub fn reserve_at_hand(
        &self,
        at: &Attachment,
        length: usize,
        offset: u64,
    ) -> Result<bool, Errno> {
        self.note_write(at)?;
        Ok(self.reservation.take(block_bytes(offset, length as u64)))
    }

    /// Reserves the space for a write of `length` bytes at `offset`. `false`: the node has no space for all
    /// of it at the moment.
    pub fn try_reserve(&self, at: &Attachment, length: usize, offset: u64) -> Result<bool, Errno> {
        self.note_write(at)?;
        self.reserve(at, block_bytes(offset, length as u64), IfShort::Fail)
    }

    /// As [`try_reserve`](Part::try_reserve), for an append, whose offset may be anywhere in a block.
    pub fn try_reserve_for_append(&self, at: &Attachment, length: usize) -> Result<bool, Errno> {
        self.try_reserve(at, length, BLOCK_BYTES - 1)
    }

    /// Reserves the space for a write of `length` bytes at `offset`, and waits for space that becomes free
    /// soon. Returns the bytes that may be written: fewer, but some, if the node is nearly full;
    /// `ENOSPC` if it is full.
    pub fn reserve_for_write(
        &self,
        at: &Attachment,
        length: usize,
        offset: u64,
    ) -> Result<usize, Errno> {
        self.note_write(at)?;
        at.reservations.note_write(&self.reservation);
        at.reservations.list(&self.reservation);
        let mut granted = length;
        loop {
            let wanted = block_bytes(offset, granted as u64);
            if self.reservation.take(wanted) {
                assert!(granted <= length);
                return Ok(granted);
            }
            let total = at.reservations.extend(&self.reservation, wanted, IfShort::Wait)?;
            if total < wanted {
                let whole_blocks = total / BLOCK_BYTES * BLOCK_BYTES;
                let fits = whole_blocks.saturating_sub(offset % BLOCK_BYTES) as usize;
                if fits == 0 {
                    return Err(Errno::ENOSPC);
                }
                granted = granted.min(fits);
            }
        }
    }

    /// Reserves the space for an append of `length` bytes, whose offset may be anywhere in a block.
    pub fn reserve_for_append(&self, at: &Attachment, length: u64) -> Result<(), Errno> {
        self.reserve_all(at, BLOCK_BYTES - 1, length)
    }

    /// Reserves the space for all of a write of `length` bytes at `offset`, or fails with `ENOSPC`.
    pub fn reserve_all(&self, at: &Attachment, offset: u64, length: u64) -> Result<(), Errno> {
        match self.reserve(at, block_bytes(offset, length), IfShort::Wait)? {
            true => Ok(()),
            false => Err(Errno::ENOSPC),
        }
    }

    /// Reserves space. `false`: the node has less.
    fn reserve(&self, at: &Attachment, wanted: u64, if_short: IfShort) -> Result<bool, Errno> {
        at.reservations.note_write(&self.reservation);
        at.reservations.list(&self.reservation);
        while !self.reservation.take(wanted) {
            match at.reservations.extend(&self.reservation, wanted, if_short) {
                Err(Errno::ENOSPC) => return Ok(false),
                total if total? < wanted => return Ok(false),
                _ => {}
            }
        }
        Ok(true)
    }

    /// A write is about to start. A write to the object itself needs no note: this host is the
    /// object's host, and does not survive a power failure that loses the write.
    fn note_write(&self, at: &Attachment) -> Result<(), Errno> {
        if self.object.is_none() {
            let boot_id = at.sessions.session(self.node)?.boot_id();
            self.unsynced.record_change(boot_id);
        }
        Ok(())
    }
}

fn write_object(object: &std::fs::File, data: &[u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < data.len() {
        match object.write_at(&data[done..], offset + done as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if done > 0 => return Ok(done),
            other => done += other?,
        }
    }
    assert_eq!(done, data.len());
    Ok(done)
}
