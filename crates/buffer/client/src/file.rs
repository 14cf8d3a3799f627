//! Open files.
//!
//! With a descriptor from a daemon on the same host, reads and writes are system calls on the
//! data object and nothing else. What keeps the instance within its capacity is the promise of
//! space ([`Request::Reserve`]) that every write draws from, some megabytes at a time.

use crate::fs::Fs;
use forebay_wire::layout::{BLOCK, blocks};
use forebay_wire::message::{Allocate, MAX_DATA, OpenMode};
use forebay_wire::{Errno, HandleId, Ino, Reply, Request};
use rustix::fs::SeekFrom;
use rustix::io::ReadWriteFlags;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// An open file or directory. It is closed when dropped.
#[derive(Debug)]
pub struct File {
    fs: Fs,
    ino: Ino,
    handle: HandleId,
    mode: OpenMode,
    local: Option<std::fs::File>,
    /// Bytes that may still be written before asking for more.
    grant: AtomicU64,
    /// Itself, to be found by other writers that need what it does not use.
    own: Weak<File>,
    /// The daemon's start that made the promise; one from before a restart is void.
    grant_epoch: Mutex<u64>,
}

impl File {
    pub(crate) fn new(
        fs: Fs,
        ino: Ino,
        handle: HandleId,
        mode: OpenMode,
        descriptor: Option<OwnedFd>,
    ) -> Arc<File> {
        Arc::new_cyclic(|own| File {
            own: own.clone(),
            fs,
            ino,
            handle,
            mode,
            local: descriptor.map(std::fs::File::from),
            grant: AtomicU64::new(0),
            grant_epoch: Mutex::new(0),
        })
    }

    /// Its inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// How it was opened.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    pub(crate) fn handle(&self) -> HandleId {
        self.handle
    }

    /// The data object itself, if the daemon passed it.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.local.as_ref().map(AsFd::as_fd)
    }

    /// Read at `offset`. Less than asked for only at the end of the file.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if !self.mode.read {
            return Err(Errno::EBADF);
        }
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
                    self.read_remote(&mut into[have..have + length], at)?
                }
            };
            if count == 0 {
                break;
            }
            have += count;
        }
        Ok(have)
    }

    fn read_remote(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let length = into.len() as u32;
        let request = Request::Read {
            handle: self.handle,
            offset,
            length,
        };
        match self.fs.session.bulk(request.clone(), &[], into, false) {
            Err(Errno::EBADF) => {
                self.fs.session.renew()?;
                self.fs
                    .session
                    .bulk(request, &[], into, false)
                    .map(|(_, count)| count)
            }
            other => other.map(|(_, count)| count),
        }
    }

    /// Write all of `data` at `offset`, or fail, possibly after writing a part.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            done += self.write_at(&data[done..], offset + done as u64)?;
        }
        Ok(())
    }

    /// Write at `offset`. Less than asked for only when the instance is nearly full.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize, Errno> {
        self.check_write(offset, data.len())?;
        let mut length = data.len();
        while !self.draw(blocks(offset, length as u64)) {
            let granted = self.reserve(blocks(offset, length as u64))?;
            if granted < blocks(offset, length as u64) {
                let fits = (granted / BLOCK * BLOCK).saturating_sub(offset % BLOCK) as usize;
                if fits == 0 {
                    return Err(Errno::ENOSPC);
                }
                length = length.min(fits);
            }
        }
        let data = &data[..length];
        match &self.local {
            Some(file) => write_local(file, data, offset),
            None => self
                .write_remote(data, offset, false)
                .map(|(count, _)| count),
        }
    }

    /// Write at the end of the file, wherever that is by then. Returns the bytes written.
    pub fn append(&self, data: &[u8]) -> Result<usize, Errno> {
        self.check_write(0, data.len())?;
        // The end may lie anywhere in a block.
        let cost = blocks(BLOCK - 1, data.len() as u64);
        while !self.draw(cost) {
            if self.reserve(cost)? < cost {
                // Too little is left to be sure of an unknown place; a known one may need less.
                let end = self.fs.get_attr(self.ino)?.size;
                return self.write_at(data, end);
            }
        }
        match &self.local {
            Some(file) => Ok(rustix::io::pwritev2(
                file,
                &[IoSlice::new(data)],
                0,
                ReadWriteFlags::APPEND,
            )?),
            None => self.write_remote(data, 0, true).map(|(count, _)| count),
        }
    }

    fn check_write(&self, offset: u64, length: usize) -> Result<(), Errno> {
        if !self.mode.write {
            return Err(Errno::EBADF);
        }
        match offset.checked_add(length as u64) {
            Some(end) if end <= i64::MAX as u64 => Ok(()),
            _ => Err(Errno::EFBIG),
        }
    }

    fn write_remote(&self, data: &[u8], offset: u64, append: bool) -> Result<(usize, u64), Errno> {
        let data = &data[..data.len().min(MAX_DATA)];
        let request = Request::Write {
            handle: self.handle,
            offset,
            append,
        };
        let mut result = self.fs.session.bulk(request.clone(), data, &mut [], append);
        if let Err(errno @ (Errno::EBADF | Errno::EDQUOT)) = result {
            // After a restart of the daemon handle and promise have to be made anew; in either
            // case nothing was written.
            if errno == Errno::EBADF {
                self.fs.session.renew()?;
            }
            self.grant.store(0, Ordering::Release);
            self.reserve(blocks(BLOCK - 1, data.len() as u64))?;
            self.draw(blocks(BLOCK - 1, data.len() as u64));
            result = self.fs.session.bulk(request, data, &mut [], append);
        }
        match result? {
            (Reply::Written { count, offset }, _) => Ok((count as usize, offset)),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Take `cost` bytes from the promise, if it has as many.
    fn draw(&self, cost: u64) -> bool {
        self.grant
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |grant| {
                grant.checked_sub(cost)
            })
            .is_ok()
    }

    /// Have the promise extended to at least `cost` bytes. Returns how far it goes.
    fn reserve(&self, cost: u64) -> Result<u64, Errno> {
        let mut epoch = self
            .grant_epoch
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if *epoch == 0 {
            self.fs
                .writers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(self.own.clone());
        }
        let now = self.grant.load(Ordering::Acquire);
        if now >= cost && *epoch == self.fs.session.epoch() {
            return Ok(now); // another thread was faster
        }
        let left = self.grant.swap(0, Ordering::AcqRel);
        let void = *epoch != self.fs.session.epoch();
        let returned = if void { 0 } else { left };
        let handle = self.handle;
        let want = cost.saturating_sub(returned);
        let mut reply = self.fs.call(Request::Reserve {
            handle,
            returned,
            want,
        });
        let short = match &reply {
            Err(Errno::ENOSPC) => true,
            Ok(Reply::Granted(total)) => *total < cost,
            _ => false,
        };
        if short && self.fs.give_back(self.handle) {
            let returned = match reply {
                Ok(Reply::Granted(total)) => total,
                _ => returned,
            };
            let want = cost.saturating_sub(returned);
            reply = self.fs.call(Request::Reserve {
                handle,
                returned,
                want,
            });
        }
        match reply? {
            Reply::Granted(total) => {
                *epoch = self.fs.session.epoch();
                self.grant.store(total, Ordering::Release);
                Ok(total)
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Make the data durable, and the attributes too unless `data_only`.
    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        self.fs
            .call(Request::Sync {
                handle: Some(self.handle),
                data_only,
            })
            .map(|_| ())
    }

    /// Reserve, free or clear a range.
    pub fn allocate(&self, offset: u64, length: u64, what: Allocate) -> Result<(), Errno> {
        let request = Request::Allocate {
            handle: self.handle,
            offset,
            length,
            what,
        };
        match self.fs.call(request.clone()) {
            Err(Errno::ENOSPC) if self.fs.give_back(HandleId(0)) => self.fs.call(request),
            other => other,
        }
        .map(|_| ())
    }

    /// The next byte at or behind `offset` that is in a hole, or that is not. `ENXIO`: none is.
    pub fn seek(&self, offset: u64, hole: bool) -> Result<u64, Errno> {
        match &self.local {
            Some(file) => {
                let to = if hole {
                    SeekFrom::Hole(offset)
                } else {
                    SeekFrom::Data(offset)
                };
                Ok(rustix::fs::seek(file, to)?)
            }
            // Holes are an optimization: a file may always be taken to have none but its end.
            None => {
                let size = self.fs.get_attr(self.ino)?.size;
                if offset >= size {
                    Err(Errno::ENXIO)
                } else {
                    Ok(if hole { size } else { offset })
                }
            }
        }
    }

    /// Draw the space for `length` bytes that are about to be written at `offset` through the
    /// [`descriptor`](File::descriptor). `ENOSPC`: the instance has no room for all of them.
    pub fn promise(&self, offset: u64, length: u64) -> Result<(), Errno> {
        self.check_write(offset, usize::try_from(length).map_err(|_| Errno::EFBIG)?)?;
        while !self.draw(blocks(offset, length)) {
            if self.reserve(blocks(offset, length))? < blocks(offset, length) {
                return Err(Errno::ENOSPC);
            }
        }
        Ok(())
    }

    /// Copy within the instance; less than asked for at the end of this file. `EXDEV`: the two
    /// cannot be copied between directly.
    pub fn copy_to(
        &self,
        offset: u64,
        to: &File,
        to_offset: u64,
        length: u64,
    ) -> Result<u64, Errno> {
        let (Some(source), Some(target)) = (&self.local, &to.local) else {
            return Err(Errno::EXDEV);
        };
        if !self.mode.read {
            return Err(Errno::EBADF);
        }
        let length = length
            .min(self.fs.get_attr(self.ino)?.size.saturating_sub(offset))
            .min(1 << 30);
        if length == 0 {
            return Ok(0);
        }
        to.promise(to_offset, length)?;
        let (mut from, mut into) = (offset, to_offset);
        let copied = rustix::fs::copy_file_range(
            source,
            Some(&mut from),
            target,
            Some(&mut into),
            length as usize,
        )?;
        Ok(copied as u64)
    }

    fn give_back(&self) {
        let left = self.grant.swap(0, Ordering::AcqRel);
        if left > 0 {
            let _ = self.fs.call(Request::Reserve {
                handle: self.handle,
                returned: 0,
                want: 0,
            });
        }
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

impl Fs {
    /// Return what other writers of this session were promised and have not used. `false`: there
    /// was nothing to return.
    fn give_back(&self, except: HandleId) -> bool {
        let writers: Vec<Arc<File>> = {
            let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
            writers.retain(|writer| writer.strong_count() > 0);
            writers.iter().filter_map(Weak::upgrade).collect()
        };
        let mut any = false;
        for writer in writers {
            if writer.handle != except && writer.grant.load(Ordering::Acquire) > 0 {
                writer.give_back();
                any = true;
            }
        }
        any
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.fs.session.forget(self.handle);
        let returned = self.grant.load(Ordering::Acquire);
        let _ = self.fs.call(Request::Close {
            handle: self.handle,
            returned,
        });
    }
}
