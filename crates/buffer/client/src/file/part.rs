//! The part of an open file that lies on one storage node: a data object.
//!
//! On an instance of one node this is the whole file. Offsets here are those of the object.

use crate::fs::Fs;
use crate::session::{Session, lock};
use crate::unsynced::Unsynced;
use forebay_protocol::message::MAX_DATA;
use forebay_protocol::message::{DataRequest, FileRequest};
use forebay_protocol::space::{BLOCK_BYTES, block_bytes};
use forebay_protocol::writeback::WriteBehind;
use forebay_protocol::{Errno, HandleId, NodeIndex, Reply, Request};
use rustix::io::ReadWriteFlags;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a write is tried whose promise or handle the daemon has forgotten.
const TRIES: u32 = 10;

/// A data object that is open.
#[derive(Debug)]
pub struct Part {
    pub node: NodeIndex,
    pub handle: HandleId,
    /// The object itself, if the daemon passed it.
    pub local: Option<std::fs::File>,
    /// Bytes that may still be written before asking for more.
    grant: AtomicU64,
    /// The daemon's start that made the promise; one from before a restart is void.
    grant_epoch: Mutex<u64>,
    behind: WriteBehind,
    /// Data that were written over the network.
    pub unsynced: Unsynced,
}

impl Part {
    pub fn new(node: NodeIndex, handle: HandleId, descriptor: Option<OwnedFd>) -> Part {
        Part {
            node,
            handle,
            local: descriptor.map(std::fs::File::from),
            grant: AtomicU64::new(0),
            grant_epoch: Mutex::new(0),
            behind: WriteBehind::default(),
            unsynced: Unsynced::default(),
        }
    }

    /// What is promised and not used.
    pub fn reserved(&self) -> u64 {
        self.grant.load(Ordering::Acquire)
    }

    /// Read at `offset`. Less than asked for only at the end of the object.
    pub fn read(&self, fs: &Fs, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut have = 0;
        while have < into.len() {
            let at = offset + have as u64;
            let count = match &self.local {
                Some(file) => match file.read_at(&mut into[have..], at) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    other => other?,
                },
                None => {
                    let length = (into.len() - have).min(MAX_DATA);
                    self.read_remote(fs, &mut into[have..have + length], at)?
                }
            };
            if count == 0 {
                break;
            }
            have += count;
        }
        Ok(have)
    }

    pub fn read_request(&self, length: usize, offset: u64) -> Request {
        Request::Data(DataRequest::Read {
            handle: self.handle,
            offset,
            length: length as u32,
        })
    }

    fn read_remote(&self, fs: &Fs, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let request = self.read_request(into.len(), offset);
        let session = fs.sessions.session(self.node)?;
        match session.data_call(request.clone(), &[], into, false) {
            Err(Errno::EBADF) => {
                session.reset_data_connections()?;
                session.data_call(request, &[], into, false)
            }
            other => other,
        }
        .map(|(_, count)| count)
    }

    /// Write at `offset` what [`claim`](Part::claim) has found room for.
    pub fn write(&self, fs: &Fs, data: &[u8], offset: u64) -> Result<usize, Errno> {
        match &self.local {
            Some(file) => {
                let count = write_local(file, data, offset)?;
                self.behind.record_write(file, offset, count as u64);
                Ok(count)
            }
            None => self
                .write_remote(fs, data, offset, false)
                .map(|(count, _)| count),
        }
    }

    /// Append to the object. Returns the bytes written.
    pub fn append(&self, fs: &Fs, data: &[u8]) -> Result<usize, Errno> {
        self.note(fs)?;
        match &self.local {
            Some(file) => Ok(rustix::io::pwritev2(
                file,
                &[IoSlice::new(data)],
                0,
                ReadWriteFlags::APPEND,
            )?),
            None => self.write_remote(fs, data, 0, true).map(|(count, _)| count),
        }
    }

    pub fn write_request(&self, offset: u64, append: bool) -> Request {
        Request::Data(DataRequest::Write {
            handle: self.handle,
            offset,
            append,
        })
    }

    fn write_remote(
        &self,
        fs: &Fs,
        data: &[u8],
        offset: u64,
        append: bool,
    ) -> Result<(usize, u64), Errno> {
        let data = &data[..data.len().min(MAX_DATA)];
        let request = self.write_request(offset, append);
        let session = fs.sessions.session(self.node)?;
        let mut result = session.data_call(request.clone(), data, &mut [], append);
        let at = if append { BLOCK_BYTES - 1 } else { offset };
        let cost = block_bytes(at, data.len() as u64);
        let mut tries = 0;
        while let Err(errno @ (Errno::EBADF | Errno::EDQUOT)) = result
            && tries < TRIES
        {
            // After a restart of the daemon handle and promise have to be made anew; in either
            // case nothing was written. It may be restarted again meanwhile.
            tries += 1;
            if errno == Errno::EBADF {
                session.reset_data_connections()?;
            }
            self.grant.store(0, Ordering::Release);
            if self.extend_reservation(fs, cost)? < cost {
                return Err(Errno::ENOSPC);
            }
            self.take_reserved(cost);
            result = session.data_call(request.clone(), data, &mut [], append);
        }
        match result? {
            (Reply::Written { count, offset }, _) => Ok((count as usize, offset)),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Take from the promise what a write of `length` bytes at `offset` needs, having it extended
    /// if need be. Returns the bytes that may be written: fewer, but some, when the node is nearly
    /// full; `ENOSPC` when it is.
    pub fn reserve_for_write(&self, fs: &Fs, length: usize, offset: u64) -> Result<usize, Errno> {
        self.note(fs)?;
        let mut length = length;
        while !self.take_reserved(block_bytes(offset, length as u64)) {
            let cost = block_bytes(offset, length as u64);
            let granted = self.extend_reservation(fs, cost)?;
            if granted < cost {
                let fits = (granted / BLOCK_BYTES * BLOCK_BYTES)
                    .saturating_sub(offset % BLOCK_BYTES) as usize;
                if fits == 0 {
                    return Err(Errno::ENOSPC);
                }
                length = length.min(fits);
            }
        }
        Ok(length)
    }

    /// Take `cost` bytes from the promise, if it has as many: something is about to be written.
    pub fn take_reserved(&self, cost: u64) -> bool {
        self.grant
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |grant| {
                grant.checked_sub(cost)
            })
            .is_ok()
    }

    /// Have the promise extended to at least `cost` bytes. Returns how far it goes.
    pub fn extend_reservation(&self, fs: &Fs, cost: u64) -> Result<u64, Errno> {
        let mut epoch = lock(&self.grant_epoch);
        let session = fs.sessions.session(self.node)?;
        let now = self.grant.load(Ordering::Acquire);
        if now >= cost && *epoch == session.epoch() {
            return Ok(now); // another thread was faster
        }
        let left = self.grant.swap(0, Ordering::AcqRel);
        let returned = if *epoch == session.epoch() { left } else { 0 };
        let mut reply = self.ask(session, returned, cost.saturating_sub(returned));
        let again = |reply: Result<u64, Errno>| {
            let returned = reply.unwrap_or(returned);
            self.ask(session, returned, cost.saturating_sub(returned))
        };
        if is_short(&reply, cost) && fs.return_reservations(self.node, self.handle) {
            reply = again(reply);
        }
        if is_short(&reply, cost) && fs.may_flush_removals() {
            fs.flush_removals(|| {
                reply = again(reply);
                !is_short(&reply, cost)
            });
        }
        let total = reply?;
        *epoch = session.epoch();
        self.grant.store(total, Ordering::Release);
        Ok(total)
    }

    fn ask(&self, session: &Session, returned: u64, want: u64) -> Result<u64, Errno> {
        let request = Request::File(FileRequest::ReserveSpace {
            handle: self.handle,
            returned,
            want,
        });
        match session.call(None, request)?.reply {
            Reply::SpaceGranted(total) => Ok(total),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Something is about to be written. Who writes to the object itself is on its host, and does
    /// not outlive a power cut.
    fn note(&self, fs: &Fs) -> Result<(), Errno> {
        if self.local.is_none() {
            self.unsynced
                .record_change(fs.sessions.session(self.node)?.boot_id());
        }
        Ok(())
    }

    /// Return what is promised and not used.
    pub fn return_reservation(&self, fs: &Fs) {
        if self.grant.swap(0, Ordering::AcqRel) > 0
            && let Ok(session) = fs.sessions.session(self.node)
        {
            let _ = self.ask(session, 0, 0);
        }
    }
}

/// Is less promised than `cost`, because there is no more?
fn is_short(reply: &Result<u64, Errno>, cost: u64) -> bool {
    match reply {
        Err(errno) => *errno == Errno::ENOSPC,
        Ok(total) => *total < cost,
    }
}

fn write_local(file: &std::fs::File, data: &[u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < data.len() {
        match file.write_at(&data[done..], offset + done as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if done > 0 => return Ok(done),
            other => done += other?,
        }
    }
    Ok(done)
}
