//! Bulk connections: data of clients on other hosts, one thread each, past the event loop.

use super::counters::{Counters, Kind};
use crate::objects::{DiskObjects, ObjectId, Objects, seal_of};
use forebay_wire::frame::{self, BadFrame, Direction, Flags, HEADER};
use forebay_wire::layout::{BLOCK, blocks};
use forebay_wire::message::{MAX_DATA, OpenMode};
use forebay_wire::seal::Seal;
use forebay_wire::stream::Stream;
use forebay_wire::{Call, Errno, HandleId, Reply, Request, SessionId};
use rustix::io::ReadWriteFlags;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Largest chunk that is read whole to check part of it, in bytes: that of objects up to 960 MiB.
const MAX_CHUNK_READ: u64 = 1 << 20;

/// A handle that bulk connections may use.
#[derive(Debug)]
pub struct OpenObject {
    object: ObjectId,
    mode: OpenMode,
    file: OnceLock<File>,
    /// Checksums of an object that is only read, as far as they held when it was read first.
    seal: OnceLock<Option<Seal>>,
    grant: AtomicU64,
}

/// Handles of all sessions with bulk connections.
#[derive(Debug, Default)]
pub struct OpenObjects(Mutex<HashMap<(SessionId, HandleId), Arc<OpenObject>>>);

impl OpenObjects {
    fn lock(&self) -> MutexGuard<'_, HashMap<(SessionId, HandleId), Arc<OpenObject>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn open(&self, session: SessionId, handle: HandleId, object: ObjectId, mode: OpenMode) {
        let open = OpenObject {
            object,
            mode,
            file: OnceLock::new(),
            seal: OnceLock::new(),
            grant: AtomicU64::new(0),
        };
        self.lock()
            .entry((session, handle))
            .or_insert_with(|| Arc::new(open));
    }

    pub fn grant(&self, session: SessionId, handle: HandleId, bytes: u64) {
        if let Some(open) = self.lock().get(&(session, handle)) {
            open.grant.store(bytes, Ordering::Release);
        }
    }

    pub fn close(&self, session: SessionId, handle: HandleId) {
        self.lock().remove(&(session, handle));
    }

    fn get(&self, session: SessionId, handle: HandleId) -> Result<Arc<OpenObject>, Errno> {
        self.lock()
            .get(&(session, handle))
            .cloned()
            .ok_or(Errno::EBADF)
    }
}

impl OpenObject {
    /// The object; `None` if the file has no data yet.
    fn file(&self, objects: &DiskObjects) -> Result<Option<&File>, Errno> {
        if let Some(file) = self.file.get() {
            return Ok(Some(file));
        }
        match objects.open(self.object, self.mode) {
            Ok(fd) => Ok(Some(self.file.get_or_init(|| File::from(fd)))),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn read(&self, objects: &DiskObjects, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        if !self.mode.read {
            return Err(Errno::EBADF);
        }
        let Some(file) = self.file(objects)? else {
            return Ok(0);
        };
        let mut have = 0;
        while have < into.len() {
            match file.read_at(&mut into[have..], offset + have as u64) {
                Ok(0) => break,
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.check(file, offset, &into[..have])?;
        Ok(have)
    }

    /// Compare what was read with the object's checksums, if it has some that hold.
    fn check(&self, file: &File, offset: u64, data: &[u8]) -> Result<(), Errno> {
        if self.mode.write {
            return Ok(());
        }
        let seal = self.seal.get_or_init(|| seal_of(file).unwrap_or_default());
        let damage = seal.as_ref().and_then(|seal| {
            let inner = seal.first_damage(offset, data);
            inner.or_else(|| damaged_end(file, seal, offset, data.len() as u64))
        });
        // Someone may have begun to write since, and broken the seal.
        if let Some(offset) = damage
            && seal_of(file)? == *seal
        {
            let ObjectId { instance, ino } = self.object;
            tracing::error!(%instance, %ino, offset, "data at rest are damaged");
            return Err(Errno::EIO);
        }
        Ok(())
    }

    fn write(
        &self,
        objects: &DiskObjects,
        offset: u64,
        append: bool,
        data: &[u8],
    ) -> Result<Reply, Errno> {
        if !self.mode.write {
            return Err(Errno::EBADF);
        }
        // An append may straddle one block more than it would at a known place.
        let cost = if append {
            blocks(BLOCK - 1, data.len() as u64)
        } else {
            offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
            blocks(offset, data.len() as u64)
        };
        let paid = self
            .grant
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |grant| {
                grant.checked_sub(cost)
            });
        if paid.is_err() {
            return Err(Errno::EDQUOT); // the client has to reserve first
        }
        let file = self.file(objects)?.ok_or(Errno::EIO)?;
        if append {
            let parts = [IoSlice::new(data)];
            let count = rustix::io::pwritev2(file, &parts, 0, ReadWriteFlags::APPEND)?;
            let end = file.metadata()?.len();
            return Ok(Reply::Written {
                count: count as u32,
                offset: end - count as u64,
            });
        }
        file.write_all_at(data, offset)?;
        Ok(Reply::Written {
            count: data.len() as u32,
            offset,
        })
    }
}

/// Damage in the first or last chunk of what was read, if only part of the chunk was; chunks of very
/// large objects are not read for that.
fn damaged_end(file: &File, seal: &Seal, offset: u64, length: u64) -> Option<u64> {
    let end = offset.checked_add(length)?;
    let first = seal.chunk_of(offset);
    let last = seal.chunk_of(end.saturating_sub(1));
    let parts = first.into_iter().chain(last.filter(|_| last != first));
    for (from, to) in parts.filter(|(from, to)| *from < offset || *to > end) {
        if length > 0 && to - from <= MAX_CHUNK_READ {
            let mut chunk = vec![0; (to - from) as usize];
            if file.read_exact_at(&mut chunk, from).is_err()
                || seal.first_damage(from, &chunk).is_some()
            {
                return Some(from);
            }
        }
    }
    None
}

/// Serve a bulk connection until the peer closes it. `received` has arrived already.
pub fn serve(
    stream: &Stream,
    received: &[u8],
    session: SessionId,
    opens: &OpenObjects,
    objects: &DiskObjects,
    counters: &Counters,
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut input = Input {
        stream,
        pending: received.to_vec(),
        taken: 0,
    };
    let mut data = vec![0; MAX_DATA];
    let mut body = Vec::new();
    let mut out = Vec::new();
    loop {
        let mut head = [0; HEADER];
        if !input.read(&mut head)? {
            return Ok(());
        }
        let begun = Instant::now();
        let header = frame::parse_header(&head)?;
        if header.direction != Direction::Call {
            return Err(BadFrame::Kind.into());
        }
        body.resize(header.body, 0);
        if !input.read(&mut body)? || !input.read(&mut data[..header.payload])? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let call: Call = frame::open(&head, &header, &body, &data[..header.payload])?;
        let received = HEADER + header.body + header.payload;
        counters.received.add(received as u64);
        let kind = Kind::of(&call.request);
        let mut payload = 0;
        let reply = match call.request {
            Request::Read {
                handle,
                offset,
                length,
            } => {
                let length = (length as usize).min(MAX_DATA);
                opens
                    .get(session, handle)
                    .and_then(|open| open.read(objects, offset, &mut data[..length]))
                    .map(|count| {
                        payload = count;
                        Reply::Data
                    })
            }
            Request::Write {
                handle,
                offset,
                append,
            } => opens
                .get(session, handle)
                .and_then(|open| open.write(objects, offset, append, &data[..header.payload])),
            _ => Err(Errno::EOPNOTSUPP),
        };
        let reply = reply.unwrap_or_else(Reply::Failed);
        out.clear();
        frame::put_reply(
            &mut out,
            call.seq,
            Flags::default(),
            &reply,
            &data[..payload],
        )?;
        stream.send_all(&out, &data[..payload], None)?;
        counters.sent.add((out.len() + payload) as u64);
        counters.answered(kind, begun.elapsed(), matches!(reply, Reply::Failed(_)));
    }
}

struct Input<'a> {
    stream: &'a Stream,
    pending: Vec<u8>,
    taken: usize,
}

impl Input<'_> {
    /// Fill `into`. `false`: the peer closed before its first byte.
    fn read(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let ready = (self.pending.len() - self.taken).min(into.len());
        into[..ready].copy_from_slice(&self.pending[self.taken..self.taken + ready]);
        self.taken += ready;
        let mut have = ready;
        while have < into.len() {
            match self
                .stream
                .receive(&mut into[have..], &mut VecDeque::new())?
            {
                0 if have == 0 => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => have += count,
            }
        }
        Ok(true)
    }
}
