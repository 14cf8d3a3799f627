//! The event loop's access to the log: batches of records, durability, checkpoints.

use super::checkpointer::start_checkpointer;
use super::counters::StoreCounters;
use super::data::OpenObjects;
use super::mailbox::Mailbox;
use super::syncer::{OpenedData, SyncJob, Syncer};
use super::worker::Worker;
use crate::driver::ObjectSync;
use crate::log::spare_segment::spare_segment_bytes;
use crate::log::{Log, LogSpace};
use crate::node::ConnId;
use crate::objects::DiskObjects;
use crate::storage::DiskStorage;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Metadata that are freed, in bytes of memory, to write a checkpoint before a segment is full.
const MIN_FREED_BYTES: u64 = 16 << 20;
/// Time between checkpoints because metadata take less memory.
const SHRINK_INTERVAL: Duration = Duration::from_secs(10);

/// The log, the syncer and the checkpointer.
pub struct LogWriter {
    log: Log<DiskStorage>,
    segment_size: u64,
    counters: Arc<StoreCounters>,
    syncer: Syncer,
    checkpointer: Worker<u64>,
    /// The last record whose sync was requested without a call that waits for it.
    sync_requested: u64,
    /// The last segment start that the checkpointer was given.
    checkpoint_requested: u64,
    /// Most memory that metadata took since a checkpoint was requested because it took less.
    metadata_peak: u64,
    /// Checkpoints to write because metadata take less memory, and when the last was requested.
    shrinks_due: u32,
    shrunk_at: Option<Instant>,
}

impl LogWriter {
    /// Start the threads.
    pub fn start(
        log: Log<DiskStorage>,
        storage: DiskStorage,
        segment_size: u64,
        (objects, opens): (DiskObjects, Arc<OpenObjects>),
        counters: &Arc<StoreCounters>,
        mailbox: &Arc<Mailbox>,
    ) -> io::Result<LogWriter> {
        let data = OpenedData { objects, opens };
        let syncer = Syncer::start(counters.clone(), data, storage.clone(), mailbox.clone())?;
        Ok(LogWriter {
            log,
            segment_size,
            counters: counters.clone(),
            syncer,
            checkpointer: start_checkpointer(storage, segment_size, counters.clone(), mailbox)?,
            sync_requested: 0,
            checkpoint_requested: 0,
            metadata_peak: 0,
            shrinks_due: 0,
            shrunk_at: None,
        })
    }

    /// Ensure headroom for the next batch. A new segment is announced to the checkpointer.
    pub fn ensure_space(&mut self) -> io::Result<LogSpace> {
        let space = self.log.ensure_headroom()?;
        let start = self.log.segment_start_sequence();
        assert!(start >= self.checkpoint_requested);
        if start > self.checkpoint_requested && self.checkpointer.try_submit(start).is_ok() {
            self.checkpoint_requested = start;
        }
        Ok(space)
    }

    /// Metadata take `bytes` of memory. When they take much less than before, a checkpoint is due:
    /// the log, and the memory of this process, shrink with it.
    pub fn note_metadata(&mut self, bytes: u64) -> io::Result<()> {
        self.metadata_peak = self.metadata_peak.max(bytes);
        let freed = self.metadata_peak - bytes;
        let is_much = freed >= MIN_FREED_BYTES && freed >= self.metadata_peak / 4;
        if is_much {
            self.metadata_peak = bytes;
            // The second replaces the older checkpoint.
            self.shrinks_due = 2;
        }
        let is_due = self.shrunk_at.is_none_or(|at| at.elapsed() >= SHRINK_INTERVAL);
        if self.shrinks_due > 0 && is_due {
            // An attempt that fails, because the disk is full, is repeated as rarely as others.
            self.shrunk_at = Some(Instant::now());
            if self.log.close_segment()? {
                self.shrinks_due -= 1;
                self.ensure_space()?;
            }
        }
        Ok(())
    }

    /// Whether a checkpoint is to be written because metadata take less memory.
    pub fn shrink_is_due(&self) -> bool {
        self.shrinks_due > 0 && self.log.has_records()
    }

    /// Log a change of the log's space.
    pub fn report_space(&self, space: LogSpace) {
        let needed_bytes = spare_segment_bytes(self.segment_size);
        match space {
            LogSpace::Normal => tracing::info!("the log has space again: all changes accepted"),
            LogSpace::ReserveOnly => tracing::warn!(
                needed_bytes,
                "disk full: changes that do not free space are refused until the log's disk has \
                 enough free bytes"
            ),
            LogSpace::Exhausted => tracing::warn!(
                needed_bytes,
                "disk full and log reserve used up: all changes are refused until the log's disk \
                 has enough free bytes"
            ),
        }
    }

    pub fn write_records(&mut self, records: Vec<Vec<u8>>) -> io::Result<()> {
        for record in records {
            self.log.append(&record)?;
            self.counters.records.increment();
            self.counters.record_bytes.add(record.len() as u64);
        }
        self.log.flush()
    }

    /// Whether there are records whose sync was not requested.
    pub fn is_dirty(&self) -> bool {
        debug_assert!(self.sync_requested <= self.log.last_sequence());
        self.log.last_sequence() > self.sync_requested
    }

    /// Have all flushed records synced.
    pub fn request_sync(&mut self) {
        if self.is_dirty() {
            self.sync_requested = self.log.last_sequence();
            self.submit(None, None, 0);
        }
    }

    /// Have an object, the first `put_count` objects that were put, and the log synced, and then
    /// the call answered. Returns false if everything is durable already.
    pub fn request_sync_for(
        &mut self,
        caller: (ConnId, u64),
        object: Option<ObjectSync>,
        put_count: u64,
    ) -> bool {
        let is_log_durable = self.log.last_sequence() <= self.log.durable_sequence();
        if object.is_none() && put_count == 0 && is_log_durable {
            return false;
        }
        self.submit(Some(caller), object, put_count);
        true
    }

    fn submit(&self, caller: Option<(ConnId, u64)>, object: Option<ObjectSync>, put_count: u64) {
        // The queue holds more jobs than there can be callers, so this does not block.
        self.syncer.submit(SyncJob {
            caller,
            object,
            put_count,
            segment: self.log.current_segment().to_owned(),
            sequence: self.log.last_sequence(),
        });
    }

    /// The syncer made records durable.
    pub fn mark_durable(&mut self, sequence: u64) -> io::Result<()> {
        self.log.mark_durable(sequence)
    }

    /// Make all flushed records durable. Blocks for the device.
    pub fn sync(&mut self) -> io::Result<()> {
        self.log.sync()
    }

    /// Stop the threads. Returns the log.
    pub fn shut_down(self) -> Log<DiskStorage> {
        self.syncer.shut_down();
        self.checkpointer.shut_down();
        self.log
    }
}
