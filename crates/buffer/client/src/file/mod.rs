//! Open files.
//!
//! The data of a file lie in data objects, one on each storage node that holds some of it. With a
//! descriptor from a daemon on the same host, reads and writes are system calls on the object and
//! nothing else. Every write uses space that was reserved by [`FileRequest::ReserveSpace`], some
//! megabytes at a time; that keeps the instance within its capacity. A write for which no space is
//! left goes to the storage daemon, which carries it out if the data object has blocks for all of it.

mod delayed_writes;
mod locks;
mod part;
mod parts;
mod pending_read;
mod ranges;
mod read_ahead;
mod transfer;

pub use delayed_writes::DelayedWrites;
pub use read_ahead::{ReadAheadMemory, ReadFiles};

use crate::requester::Requester;
use crate::reservations::PendingReservation;
use crate::session::FileLease;
use forebay_protocol::message::{FileRequest, MAX_DATA, OpenMode};
use forebay_protocol::placement::Capability;
use forebay_protocol::{Errno, HandleId, Ino};
use part::Part;
use parts::Parts;
use read_ahead::ReadAhead;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// An open file or directory. It is closed when dropped.
#[derive(Debug)]
pub struct File {
    requester: Requester,
    mode: OpenMode,
    parts: Arc<Parts>,
    /// Failures of delayed writes of this client that were reported through this file, or happened before
    /// it was opened.
    known_failures: AtomicU64,
    /// `None`: no write is delayed.
    delayed_writes: Option<Arc<DelayedWrites>>,
    /// `None`: nothing is read ahead.
    read_ahead: Option<Arc<ReadAhead>>,
}

impl File {
    pub(crate) fn new(
        requester: Requester,
        ino: Ino,
        handle: HandleId,
        mode: OpenMode,
        descriptor: Option<OwnedFd>,
        capability: Option<Capability>,
    ) -> Arc<File> {
        let attachment = requester.attachment.clone();
        // Data on this host are read directly. A file that is open for writing is not leased.
        let is_near = descriptor.is_some() && attachment.sessions.layout().nodes() == 1;
        let reads_ahead = mode.read && !mode.write && !is_near;
        let read_ahead = (reads_ahead && attachment.read_ahead_memory.is_enabled())
            .then(|| Arc::new(ReadAhead::new(FileLease::new(handle), !mode.keep_access_time.0)));
        if let Some(read_ahead) = &read_ahead {
            attachment.read_files.add(ino, read_ahead);
        }
        let sessions = &attachment.sessions;
        let layout = sessions.layout();
        let is_remote = descriptor.is_none() || layout.nodes() > 1;
        let delays_writes = mode.write && is_remote && sessions.options().delays_writes;
        let parts = Parts::new(attachment.clone(), ino, handle, mode, descriptor, capability);
        Arc::new(File {
            requester,
            mode,
            parts: Arc::new(parts),
            known_failures: AtomicU64::new(attachment.sessions.pending_writes.failures()),
            delayed_writes: delays_writes.then(|| DelayedWrites::new(ino, handle, layout)),
            read_ahead,
        })
    }

    /// The inode.
    pub fn ino(&self) -> Ino {
        self.parts.ino
    }

    /// The mode it was opened with.
    pub fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Reads do not change the access time from now on (`O_NOATIME`): call it before the first one. For a
    /// metadata node on another host the [mode](OpenMode::keep_access_time) has to say so when the file is
    /// opened.
    pub(crate) fn keep_access_time(&self) {
        self.parts.keep_access_time();
        // Data that it gets set no access time.
        if let Some(read_ahead) = &self.read_ahead {
            read_ahead.end_sharing();
        }
    }

    pub(crate) fn keeps_access_time(&self) -> bool {
        self.parts.keeps_access_time()
    }

    pub(crate) fn handle(&self) -> HandleId {
        self.parts.primary.handle
    }

    /// The file was created by this open.
    pub(crate) fn note_new(&self) {
        self.parts.primary.reservation.note_new();
    }

    /// Its first request for space was sent.
    pub(crate) fn expect_space(&self, space: PendingReservation) {
        let reservations = &self.parts.attachment.reservations;
        reservations.expect_space(&self.parts.primary.reservation, space);
    }

    /// The file was prepared. Waits for its space.
    pub(crate) fn take_space(&self, space: PendingReservation) {
        let reservations = &self.parts.attachment.reservations;
        reservations.take_prepared(&self.parts.primary.reservation, space);
    }

    /// An open file that nobody else has, in the name of another caller.
    pub(crate) fn on_behalf_of(mut file: Arc<File>, requester: Requester) -> Arc<File> {
        let own = Arc::get_mut(&mut file);
        assert!(own.is_some(), "a prepared file is used once");
        if let Some(own) = own {
            own.requester = requester;
        }
        file
    }

    /// The data object that is the whole file, if the instance lies on one node whose daemon passed
    /// its descriptor.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        let object = self.parts.primary.object.as_ref();
        object.filter(|_| self.parts.is_single_object()).map(AsFd::as_fd)
    }

    /// Reads at `offset`. Returns less than requested only at the end of the file.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if self.mode.read
            && let Some(read_ahead) = &self.read_ahead
        {
            self.finish_writes();
            if let Some(read) = read_ahead.read(self, into, offset) {
                return read;
            }
        }
        self.read_through(into, offset)
    }

    /// As [`read_at`](File::read_at), but the data come from the storage node during the call, and nothing is
    /// read ahead.
    pub fn read_through(&self, into: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if !self.mode.read {
            return Err(Errno::EBADF);
        }
        self.finish_writes();
        transfer::read(&self.parts, into, offset, || self.length())
    }

    /// Writes all of `data` at `offset`, or fails, possibly after writing some of it.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < data.len() {
            done += self.write_at(&data[done..], offset + done as u64)?;
        }
        Ok(())
    }

    /// Writes at `offset`. Returns less than requested only if the instance is nearly full, or a
    /// storage node fails; later bytes may then have been written on other nodes.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize, Errno> {
        self.check_write(offset, data.len() as u64)?;
        let Some(delayed) = &self.delayed_writes else {
            return self.write_through(data, offset);
        };
        self.report_failure()?;
        if delayed.write(self, data, offset) {
            return Ok(data.len());
        }
        self.write_through(data, offset).map_err(delayed_writes::reported)
    }

    /// As [`write_at`](File::write_at), but the data are on the storage node when it returns, also if
    /// the client [delays writes](crate::ClientOptions::delays_writes).
    pub fn write_through(&self, data: &[u8], offset: u64) -> Result<usize, Errno> {
        self.check_write(offset, data.len() as u64)?;
        self.finish_writes();
        self.check_delayed()?;
        transfer::write(&self.parts, data, offset)
    }

    /// Waits until the storage node has all writes of this client to this inode. Fails, once, if one of them
    /// failed that was reported as carried out, through any open file of this client with this inode.
    pub fn flush(&self) -> Result<(), Errno> {
        self.finish_writes();
        self.report_failure()
    }

    /// As [`flush`](File::flush), but later calls fail, too: for a process that closes a file which others may
    /// have open.
    pub fn check_writes(&self) -> Result<(), Errno> {
        self.finish_writes();
        let pending = &self.parts.attachment.sessions.pending_writes;
        pending.check_failure(self.parts.ino, &self.known_failures)
    }

    /// As [`flush`](File::flush), but leaves errors to later calls.
    pub fn finish_writes(&self) {
        self.parts.attachment.sessions.pending_writes.finish_file(self.parts.ino);
    }

    /// Waits until the storage node has the delayed writes through this file, or until the deadline.
    /// Allocates no memory.
    pub fn finish_writes_before(&self, deadline: Instant) {
        if let Some(delayed) = &self.delayed_writes {
            delayed.finish_within(deadline.saturating_duration_since(Instant::now()));
        }
    }

    fn report_failure(&self) -> Result<(), Errno> {
        let pending = &self.parts.attachment.sessions.pending_writes;
        pending.report_failure(self.parts.ino, &self.known_failures)
    }

    /// Writes at the current end of the file. Returns the bytes written.
    ///
    /// Appends do not overlap, and leave no holes between them. On an instance of several nodes
    /// that holds among appends, and unless the file's metadata node restarts meanwhile; a
    /// concurrent write elsewhere that extends the file may lie at the same offset.
    pub fn append(&self, data: &[u8]) -> Result<usize, Errno> {
        self.check_write(0, data.len() as u64)?;
        self.flush()?;
        if !self.parts.is_single_object() {
            let slots = &self.parts.attachment.sessions.append_slots;
            slots.acquire(|_| ());
            let appended = self.append_locked(data);
            slots.release(());
            return appended;
        }
        let (primary, attachment) = (&self.parts.primary, &self.parts.attachment);
        if primary.try_reserve_for_append(attachment, data.len())? {
            return primary.append(attachment, data);
        }
        // The object may have blocks after its end.
        let appended = primary.append_over_blocks(attachment, data)?;
        if appended > 0 {
            return Ok(appended);
        }
        match primary.reserve_for_append(attachment, data.len() as u64) {
            Err(Errno::ENOSPC) => self.append_at_end(data),
            reserved => reserved.and_then(|()| primary.append(attachment, data)),
        }
    }

    /// Appends to the only object: a write at a known offset may need less space. It must not be
    /// carried out over blocks that another append has filled meanwhile.
    fn append_at_end(&self, data: &[u8]) -> Result<usize, Errno> {
        let (primary, attachment) = (&self.parts.primary, &self.parts.attachment);
        let end = self.length()?;
        let length = data.len().min(MAX_DATA);
        let length = primary.reserve_for_write(attachment, length, end)?;
        primary.write(attachment, &data[..length], end)
    }

    /// Appends under the append lock of the file's metadata node.
    fn append_locked(&self, data: &[u8]) -> Result<usize, Errno> {
        let Part { node, handle, .. } = self.parts.primary;
        let sessions = &self.parts.attachment.sessions;
        self.requester.call::<()>(node, FileRequest::AppendLock { handle })?;
        let written = self.length().and_then(|end| self.write_at(data, end));
        if written.is_err() {
            // The failed write must not overwrite what is appended next.
            sessions.try_fence_writes();
        }
        // If the metadata node is unreachable, the lock is lost with it.
        let _ = self.requester.call::<()>(node, FileRequest::AppendUnlock { handle });
        written
    }

    fn length(&self) -> Result<u64, Errno> {
        let (attr, _) = self.requester.attr_of(self.parts.ino)?;
        Ok(attr.size)
    }

    fn check_write(&self, offset: u64, length: u64) -> Result<(), Errno> {
        if !self.mode.write {
            return Err(Errno::EBADF);
        }
        self.check_delayed()?;
        match offset.checked_add(length) {
            Some(end) if end <= i64::MAX as u64 => Ok(()),
            _ => Err(Errno::EFBIG),
        }
    }
}

impl File {
    /// `EIO` if another client may have opened or truncated the file before delayed writes through it.
    fn check_delayed(&self) -> Result<(), Errno> {
        self.delayed_writes.as_ref().map_or(Ok(()), |delayed| delayed.check())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let attachment = &self.parts.attachment;
        let (sessions, handle) = (&attachment.sessions, self.handle());
        if let Some(delayed) = &self.delayed_writes {
            delayed.close();
            for session in delayed.leased_nodes().iter().map(|node| sessions.session(*node)) {
                session.into_iter().for_each(|session| session.forget_write_lease(delayed));
            }
        }
        if let Some(read_ahead) = &self.read_ahead {
            attachment.read_files.remove(self.ino(), read_ahead);
            read_ahead.end(&attachment.read_ahead_memory);
            if let Ok(session) = sessions.session(self.parts.primary.node) {
                session.forget_lease(&read_ahead.lease);
            }
        }
        attachment.reservations.end(&self.parts.primary.reservation);
        let close = |part: &Part| {
            if let Ok(session) = sessions.session(part.node) {
                session.forget_handle(handle);
            }
            let returned = part.reserved();
            (part.node, FileRequest::Close { handle, returned })
        };
        // The metadata node last: after the last writer's close there, it requests from the other nodes
        // the lengths of their objects.
        sessions.call_nodes::<()>(None, self.parts.open_others().map(close), |_, _| {});
        let primary = &self.parts.primary;
        let session = sessions.session(primary.node);
        let locked =
            session.is_ok_and(|session| session.forget_locks_of_handle(self.ino(), handle));
        let (node, request) = close(primary);
        // Others may be waiting for the locks, or for the reserved space. A kernel reports a close only
        // after the program has continued.
        let has_space = !matches!(request, FileRequest::Close { returned: 0, .. });
        let urgent = locked || (has_space && !sessions.has_single_cache());
        if let Some(batch) = attachment.close_batch.as_ref().filter(|_| !urgent)
            && self.parts.is_single_object()
            && batch.push(node, handle)
        {
            return;
        }
        let _ = self.requester.call::<()>(node, request);
    }
}
