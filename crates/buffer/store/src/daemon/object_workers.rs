//! Threads that work on objects for the event loop.

use super::blocking_io::{BlockingJob, FetchJob, start_blocking_workers};
use super::checksummer::{ChecksumJob, WrittenObjects, start_checksummer};
use super::mailbox::Mailbox;
use super::replacement_syncer::ReplacementSyncer;
use super::scrubber::{ScrubCounters, ScrubOptions, start_scrubber};
use super::worker::{OverflowWorker, Worker, start_thread};
use crate::node::ConnId;
use crate::objects::{DiskObjects, FreeingQueue, ObjectId, RemovalQueue};
use forebay_protocol::message::MAX_INLINE_FILE_BYTES;
use forebay_protocol::{Errno, InstanceId, Reply};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The threads that read, checksum, scrub, sync and remove objects.
pub struct ObjectWorkers {
    objects: DiskObjects,
    mailbox: Arc<Mailbox>,
    blocking: OverflowWorker<BlockingJob>,
    replacements: ReplacementSyncer,
    checksummer: Worker<ChecksumJob>,
    written: Arc<WrittenObjects>,
    scrubber: Option<Worker<()>>,
    removal: RemovalWorker,
}

impl ObjectWorkers {
    /// Start the threads.
    pub fn start(
        objects: DiskObjects,
        mailbox: Arc<Mailbox>,
        checksum_interval: Duration,
        (scrub, scrub_counters): (&ScrubOptions, Arc<ScrubCounters>),
    ) -> io::Result<ObjectWorkers> {
        let blocking = OverflowWorker::new(start_blocking_workers(&objects, &mailbox)?);
        let synced = objects.clone();
        let replacements = ReplacementSyncer::start(mailbox.clone(), move |object| {
            synced.sync_object(object, false)?;
            synced.sync_folder(object)
        })?;
        let written = Arc::<WrittenObjects>::default();
        let checksummer = start_checksummer(
            objects.clone(),
            mailbox.clone(),
            written.clone(),
            checksum_interval,
        )?;
        let scrubber = start_scrubber(&objects, &mailbox, scrub, scrub_counters)?;
        let removal = RemovalWorker::start(&objects, &mailbox)?;
        Ok(ObjectWorkers {
            objects,
            mailbox,
            blocking,
            replacements,
            checksummer,
            written,
            scrubber,
            removal,
        })
    }

    /// Read a small object. Returns the reply if the data are cached; otherwise a thread reads the
    /// object and answers.
    pub fn fetch(&mut self, job: FetchJob) -> Option<Reply> {
        let cached = self.objects.fetch_object(job.object, MAX_INLINE_FILE_BYTES, false);
        if cached != Err(Errno::EAGAIN) {
            return Some(job.reply(cached));
        }
        self.blocking.submit(BlockingJob::Fetch(job));
        None
    }

    /// Invalidate the checksums of an object durably.
    pub fn invalidate_checksums(&mut self, object: ObjectId) {
        self.blocking.submit(BlockingJob::InvalidateChecksums(object));
    }

    /// Make an object durable that is to replace another one.
    pub fn sync_object(&self, object: ObjectId) {
        self.replacements.submit(object);
    }

    /// Pass operations on that wait for a thread. Each one that ends posts an event, so to be called
    /// after events were taken.
    pub fn submit_waiting(&mut self) {
        self.blocking.submit_waiting();
    }

    /// A handle for writing to this object was closed. It gets checksums when it has been idle.
    pub fn object_written(&self, object: ObjectId) {
        if self.written.push(object) {
            // A full queue wakes the thread, too.
            let _ = self.checksummer.try_submit(ChecksumJob::Wake);
        }
    }

    /// Begin to scrub an instance and answer the call at the end. Returns false if too many scrubs
    /// are pending.
    pub fn start_scrub(&self, instance: InstanceId, conn: ConnId, seq: u64) -> bool {
        let job = ChecksumJob::Scrub { instance, conn, seq };
        self.checksummer.try_submit(job).is_ok()
    }

    /// Stop the threads that may post events. A stop must have been requested, which
    /// interrupts the checksummer.
    pub fn shut_down(self) -> RemovalWorker {
        debug_assert!(self.mailbox.is_stop_requested());
        self.blocking.shut_down();
        self.replacements.shut_down();
        self.checksummer.shut_down();
        if let Some(scrubber) = self.scrubber {
            scrubber.shut_down();
        }
        self.removal
    }
}

/// The threads that remove the objects of removed instances, and free the blocks of removed objects.
pub struct RemovalWorker {
    removals: Arc<RemovalQueue>,
    remover: JoinHandle<()>,
    freeing: Arc<FreeingQueue>,
    freer: JoinHandle<()>,
}

impl RemovalWorker {
    fn start(objects: &DiskObjects, mailbox: &Arc<Mailbox>) -> io::Result<RemovalWorker> {
        let (removals, freeing) = (objects.removal_queue(), objects.freeing_queue());
        let queue = removals.clone();
        let remover = start_thread("forebay-remove".into(), mailbox, move || queue.run_worker())?;
        let queue = freeing.clone();
        let freer = start_thread("forebay-free".into(), mailbox, move || queue.run_worker())?;
        freeing.accept();
        Ok(RemovalWorker { removals, remover, freeing, freer })
    }

    /// Stop the threads; they may finish small removals first.
    pub fn shut_down(self) {
        self.removals.stop_worker();
        self.freeing.stop_worker();
        let _ = self.remover.join();
        let _ = self.freer.join();
    }
}
