//! Writing a log.

use crate::append_error::AppendError;
use crate::checksum::crc32c;
use crate::entry::{Entry, Order, Place};
use crate::format::{Geometry, HEAD_BYTES, Head, Kind, MAX_PART, MAX_SEGMENTS, SlotState, padded};
use crate::identity::Limits;
use crate::plan::DataSource;
use crate::record_batch::RecordBatch;
use crate::segment_views::SegmentViews;
use crate::segments::{MIN_PART, Segments, allocate, capacity};
use crate::tail::Tail;
use crate::view::View;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sequence number of a record; the first is 1.
pub type Sequence = u64;

/// The log of one process for one open file.
///
/// Data is acknowledged when it is in memory or in the log, and durable after [`LogWriter::sync`].
/// A failed write of the buffer loses nothing: the data can still be read through the writer and
/// applied to the file.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    tail: Tail,
    geometry: Geometry,
    slot: u32,
    rank: u32,
    max_entries: usize,
    segments: Segments,
    /// The place of the next record.
    at: Option<Position>,
    views: SegmentViews,
    entries: Vec<Entry>,
    epoch: u64,
    /// Sequence number of the next record.
    next: Sequence,
    durable: Sequence,
    state: SlotState,
    /// The name of the file is durable.
    named: bool,
}

/// The place of the next record.
#[derive(Clone, Copy, Debug)]
struct Position {
    offset: u64,
    /// End of the segment.
    end: u64,
}

impl LogWriter {
    /// Begins to write a slot of a log, whose header exists.
    pub(crate) fn start(
        path: PathBuf,
        file: File,
        geometry: Geometry,
        slot: u32,
        rank: u32,
        limits: Limits,
    ) -> io::Result<LogWriter> {
        let mut writer = LogWriter {
            path,
            tail: Tail::new(file, limits.buffer_bytes),
            geometry,
            slot,
            rank,
            max_entries: limits.entries,
            segments: Segments::new(
                limits.segments().min(MAX_SEGMENTS / u64::from(geometry.slots)),
            ),
            at: None,
            views: SegmentViews::default(),
            entries: Vec::new(),
            epoch: 0,
            next: 1,
            durable: 0,
            state: SlotState { rank, ..SlotState::default() },
            named: false,
        };
        writer.write_state(writer.state)?;
        Ok(writer)
    }

    /// Path of the log file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The logged writes that were not released, in the order of their sequence numbers.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The logged writes behind a sequence number.
    pub fn entries_after(&self, sequence: Sequence) -> &[Entry] {
        let from = self.entries.partition_point(|entry| entry.order.sequence <= sequence);
        &self.entries[from..]
    }

    /// Sequence number of the last record; 0 in an empty log.
    pub fn last_sequence(&self) -> Sequence {
        self.next - 1
    }

    /// Sequence number of the last record that is durable.
    pub fn durable_sequence(&self) -> Sequence {
        self.durable
    }

    /// Most entries that the log holds.
    pub fn max_entries(&self) -> u64 {
        self.max_entries as u64
    }

    /// Bytes of segments in use.
    pub fn used_bytes(&self) -> u64 {
        self.segments.used() * self.geometry.segment_bytes
    }

    /// Sets the epoch of the following writes ([`Order`]).
    ///
    /// # Panics
    /// If the epoch decreases.
    pub fn set_epoch(&mut self, epoch: u64) {
        assert!(epoch >= self.epoch, "epochs increase");
        self.epoch = epoch;
    }

    /// Logs `data` as the bytes from `position` on in the stream of `view`. Returns the sequence
    /// number of the last record; a write longer than 256 KiB, or than the rest of a segment, has
    /// several, and several entries.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub fn append(
        &mut self,
        view: &Arc<View>,
        position: u64,
        data: &[u8],
    ) -> Result<Sequence, AppendError> {
        if data.is_empty() {
            return Ok(self.last_sequence());
        }
        if !view.contains(position, data.len() as u64) {
            return Err(AppendError::BehindView);
        }
        self.reserve(view, data.len() as u64)?;
        let (mut position, mut rest) = (position, data);
        while !rest.is_empty() {
            let mut usable = self.usable(view);
            if usable < MIN_PART.min(rest.len() as u64) {
                self.begin_segment()?;
                usable = self.usable(view);
            }
            let number = self.define(view)?;
            let logged = self.put_data(view, number, position, rest)?;
            position += logged as u64;
            rest = &rest[logged..];
        }
        Ok(self.last_sequence())
    }

    /// Bytes of data that fit into the current segment behind the definition of `view`.
    fn usable(&mut self, view: &Arc<View>) -> u64 {
        let Some(at) = self.at else { return 0 };
        let definition = match self.views.number(view) {
            Some(_) => 0,
            None => padded((HEAD_BYTES + view.encoded().len()) as u64),
        };
        (at.end - at.offset).saturating_sub(definition + HEAD_BYTES as u64)
    }

    /// Ensures space for a write of `length` bytes.
    fn reserve(&mut self, view: &Arc<View>, length: u64) -> Result<(), AppendError> {
        let head = HEAD_BYTES as u64;
        let definition = padded(head + view.encoded().len() as u64);
        let fresh = (self.geometry.segment_bytes - padded(head))
            .checked_sub(definition + head)
            .filter(|fresh| *fresh >= MIN_PART && view.can_be_logged());
        let Some(fresh) = fresh else {
            let limit = self.geometry.segment_bytes - 3 * head - MIN_PART - 8;
            return Err(AppendError::ViewTooLarge { bytes: view.encoded().len(), limit });
        };
        let usable = self.usable(view);
        let first = if usable >= length.min(MAX_PART) {
            capacity(usable + head).max(length.min(MAX_PART))
        } else {
            capacity(usable + head)
        };
        let segments = length.saturating_sub(first).div_ceil(capacity(fresh + head));
        let records = length.div_ceil(MAX_PART) + segments + 1;
        if self.entries.len() as u64 + records - 1 > self.max_entries as u64 {
            return Err(AppendError::Full);
        }
        let (file, geometry, slot) = (self.tail.file(), self.geometry, self.slot);
        let reserved =
            self.segments.reserve(segments, |index| allocate(file, geometry, slot, index))?;
        if reserved { Ok(()) } else { Err(AppendError::Full) }
    }

    /// Begins a segment, which was reserved.
    fn begin_segment(&mut self) -> Result<(), AppendError> {
        let index = self.segments.next();
        let index = index.unwrap_or_else(|| unreachable!("a segment was reserved"));
        let offset = self.geometry.segment_offset(self.slot, index);
        self.tail.move_to(offset)?;
        self.segments.take(self.next);
        self.at = Some(Position { offset, end: offset + self.geometry.segment_bytes });
        self.views = SegmentViews::default();
        self.put(Kind::Segment, self.slot, index, &[])?;
        Ok(())
    }

    /// The number of a view in the current segment, which defines it if necessary.
    fn define(&mut self, view: &Arc<View>) -> Result<u32, AppendError> {
        if let Some(number) = self.views.number(view) {
            return Ok(number);
        }
        let number = self.views.next();
        self.put(Kind::View, number, 0, view.encoded())?;
        self.views.define(view);
        Ok(number)
    }

    /// The head of the `index`th of the next records.
    fn head(&self, index: usize, kind: Kind, view: u32, position: u64, payload: &[u8]) -> Head {
        Head {
            kind,
            sequence: self.next + index as u64,
            durable: self.durable,
            epoch: self.epoch,
            view,
            position,
            length: payload.len() as u32,
            payload_sum: crc32c(payload),
        }
    }

    /// Appends a record to the current segment.
    fn put(&mut self, kind: Kind, view: u32, position: u64, payload: &[u8]) -> io::Result<()> {
        let mut batch = RecordBatch::new();
        let head = self.head(0, kind, view, position, payload);
        batch.push(&head, self.geometry.salt, payload);
        self.put_all(&batch)
    }

    /// Appends records with the first bytes of `data`, as many as fit into the current segment and
    /// into one request. Returns the number of these bytes.
    fn put_data(
        &mut self,
        view: &Arc<View>,
        number: u32,
        position: u64,
        data: &[u8],
    ) -> io::Result<usize> {
        let at = self.position();
        let (mut batch, mut rest) = (RecordBatch::new(), data);
        while !rest.is_empty() && !batch.is_full() {
            let room = (at.end - at.offset - batch.bytes()).saturating_sub(HEAD_BYTES as u64);
            if batch.count() > 0 && room < MIN_PART.min(rest.len() as u64) {
                break;
            }
            let (payload, others) = rest.split_at(rest.len().min(room.min(MAX_PART) as usize));
            let position = position + (data.len() - rest.len()) as u64;
            let head = self.head(batch.count(), Kind::Write, number, position, payload);
            batch.push(&head, self.geometry.salt, payload);
            rest = others;
        }
        let first = self.next;
        self.put_all(&batch)?;
        let (mut position, mut offset) = (position, at.offset + HEAD_BYTES as u64);
        for (sequence, length) in (first..).zip(batch.lengths()) {
            let order = Order { epoch: self.epoch, rank: self.rank, sequence };
            let place = Place { log: self.rank, offset };
            self.entries.push(Entry { order, view: Arc::clone(view), position, length, place });
            position += length;
            offset += padded(HEAD_BYTES as u64 + length);
        }
        Ok(data.len() - rest.len())
    }

    /// Appends records to the current segment: all, or none if writing fails.
    fn put_all(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let at = self.position();
        let offset = at.offset + batch.bytes();
        assert!(offset <= at.end, "records exceed their segment");
        self.tail.append(&batch.parts())?;
        self.at = Some(Position { offset, ..at });
        self.next += batch.count() as u64;
        Ok(())
    }

    /// The place of the next record.
    fn position(&self) -> Position {
        self.at.unwrap_or_else(|| unreachable!("a segment was begun"))
    }

    /// Writes the buffer to the log, so that other processes can read all entries.
    ///
    /// # Errors
    /// The log cannot be written. Nothing is lost: the data stays readable through this writer.
    pub fn flush(&mut self) -> io::Result<()> {
        self.tail.flush()
    }

    /// Makes all entries durable and returns the sequence number of the last one.
    ///
    /// # Errors
    /// The entries may not be durable; apply them to the file, and sync that.
    pub fn sync(&mut self) -> io::Result<Sequence> {
        self.tail.flush()?;
        self.tail.file().sync_data()?;
        if !self.named {
            sync_parent(&self.path)?;
            self.named = true;
        }
        self.durable = self.last_sequence();
        // Once the kernel has written it, damage of these entries is told from an incomplete end.
        // A failure leaves only that undone.
        let _ = self.write_state(SlotState { durable: self.durable, ..self.state });
        Ok(self.durable)
    }

    /// Ends the current segment, so that all records so far can be released while later ones follow.
    /// Returns the sequence number of the last one.
    pub fn seal(&mut self) -> Sequence {
        self.at = None;
        self.views = SegmentViews::default();
        self.last_sequence()
    }

    /// Releases the entries up to `through`, because they are in the file: they will not be replayed,
    /// and their space is used again. If some of them were synced, or the file is to be synced
    /// later, the caller has made the file durable before.
    ///
    /// # Errors
    /// The log cannot be written; the entries stay.
    ///
    /// # Panics
    /// If `through` was never logged.
    pub fn release(&mut self, through: Sequence) -> io::Result<()> {
        assert!(through < self.next, "a record that was never logged");
        if through <= self.state.applied {
            return Ok(());
        }
        let was_durable = self.durable > self.state.applied;
        self.write_state(SlotState { applied: through, ..self.state })?;
        if was_durable {
            self.tail.file().sync_data()?;
        }
        let released = self.entries.partition_point(|entry| entry.order.sequence <= through);
        self.entries.drain(..released);
        if through == self.last_sequence() {
            self.tail.clear();
            self.seal();
        }
        self.segments.release(through, self.last_sequence());
        Ok(())
    }

    /// Releases all entries after a flush ([`LogWriter::release`]).
    ///
    /// # Errors
    /// The log cannot be written; the entries stay.
    pub fn reset(&mut self) -> io::Result<()> {
        self.release(self.last_sequence())
    }

    /// As [`LogWriter::reset`], after a flush of the logs of all processes that opened the file: what
    /// any of them wrote in epochs below `epoch` is in the file. If the processes are killed when
    /// only some have released their entries, those of the others are not applied again, over later
    /// writes.
    ///
    /// # Errors
    /// As [`LogWriter::release`].
    pub fn reset_together(&mut self, epoch: u64) -> io::Result<()> {
        let applied_epoch = self.state.applied_epoch;
        self.state.applied_epoch = applied_epoch.max(epoch);
        self.reset().inspect_err(|_| self.state.applied_epoch = applied_epoch)
    }

    /// Notes durably that what all processes wrote in epochs below `epoch` is in the file, which the
    /// caller has made durable: a replay of the logs of all processes does not apply it again. The
    /// entries stay.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn note_applied_below(&mut self, epoch: u64) -> io::Result<()> {
        let applied_epoch = self.state.applied_epoch.max(epoch);
        self.write_state(SlotState { applied_epoch, ..self.state })?;
        self.tail.file().sync_data()
    }

    /// Closes a log whose entries will be applied later, for example by the storage nodes after the
    /// job. All entries are durable then, and a damaged one is always noticed.
    ///
    /// # Errors
    /// The entries may not be durable.
    pub fn close(mut self) -> io::Result<()> {
        self.complete()
    }

    /// As [`LogWriter::close`], of a log that may still be released: because that of another process
    /// cannot be closed, for instance.
    ///
    /// # Errors
    /// As those of [`LogWriter::close`]; nothing is lost.
    pub fn complete(&mut self) -> io::Result<()> {
        let closed = self.sync()?;
        self.write_state(SlotState { closed, ..self.state })?;
        self.tail.file().sync_data()
    }

    /// Removes the log, because its entries are in the file, or not wanted. Of a shared log, one
    /// process removes the file when the others have released their entries.
    ///
    /// # Errors
    /// The log cannot be written or removed.
    pub fn discard(mut self) -> io::Result<()> {
        let is_blank = self.last_sequence() == 0;
        self.reset()?;
        std::fs::remove_file(&self.path)?;
        // The kernel may have written entries that were never synced, and the log without its state: after
        // a power failure they must not come back, over what is written to the file from now on.
        if is_blank { Ok(()) } else { sync_parent(&self.path) }
    }

    fn write_state(&mut self, state: SlotState) -> io::Result<()> {
        let state = SlotState { counter: self.state.counter + 1, ..state };
        let offset = self.geometry.state_offset(self.slot, state.counter);
        self.tail.file().write_all_at(&state.encode(), offset)?;
        self.state = state;
        Ok(())
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        // The entries can be replayed; a failure leaves those that were written before.
        let _ = self.tail.flush();
    }
}

impl DataSource for LogWriter {
    fn read_at(&self, place: Place, buffer: &mut [u8]) -> io::Result<()> {
        if place.log != self.rank {
            let text = format!("log {} is not that of rank {}", place.log, self.rank);
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        self.tail.read_at(place.offset, buffer)
    }
}

/// Makes the name of a file durable.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
