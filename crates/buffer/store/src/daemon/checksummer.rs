//! The thread that computes checksums of objects some time after they were written, makes the
//! checksums valid beyond the next boot, and scrubs instances on request.

use super::mailbox::{LoopEvent, Mailbox};
use super::scrubber::{Scrubbed, scrub_object};
use super::worker::Worker;
use crate::node::ConnId;
use crate::objects::{
    ChecksumOutcome, DiskObjects, FOLDERS, IoThrottle, ObjectId, RecordChecksumsError,
};
use forebay_protocol::message::ScrubReport;
use forebay_protocol::{Errno, InstanceId, Reply};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time from the last close for writing until an object is checksummed: many are opened again or
/// removed soon.
const CHECKSUM_DELAY: Duration = Duration::from_secs(1);
/// Maximum time for which an object is postponed because others use the device or have it open.
const MAX_POSTPONEMENT: Duration = Duration::from_secs(30);
/// Objects that may wait. Further ones get no checksums until they are scrubbed.
const MAX_WAITING: usize = 1 << 18;
/// Objects per turn, before other jobs are looked for.
const MAX_BATCH: usize = 1024;
/// Damaged objects that one scrub lists.
const MAX_DAMAGED_LISTED: usize = 1000;
const QUEUE_CAPACITY: usize = 4096;
/// While others use the device, checksums are recorded only after this many intervals.
const MAX_BUSY_INTERVALS: u32 = 10;

/// A job for the checksummer.
#[derive(Debug)]
pub enum ChecksumJob {
    /// Objects were written, after a time without any.
    Wake,
    /// Scrub all objects of an instance and answer the call.
    Scrub { instance: InstanceId, conn: ConnId, seq: u64 },
}

/// Written objects on their way to the checksummer, which collects them when it is active anyway:
/// waking it for each would cost more than closing a file.
#[derive(Debug, Default)]
pub struct WrittenObjects(Mutex<WrittenInbox>);

#[derive(Debug, Default)]
struct WrittenInbox {
    objects: Vec<(ObjectId, Instant)>,
    /// The checksummer waits for [`ChecksumJob::Wake`].
    asleep: bool,
}

impl WrittenObjects {
    /// A handle for writing to this object was closed. Returns true if the checksummer must be
    /// [woken](ChecksumJob::Wake). If too many objects wait, this one is dropped.
    pub fn push(&self, id: ObjectId) -> bool {
        let mut inbox = self.0.lock();
        if inbox.objects.len() < MAX_WAITING {
            inbox.objects.push((id, Instant::now()));
        }
        std::mem::take(&mut inbox.asleep)
    }

    fn take_all(&self) -> Vec<(ObjectId, Instant)> {
        std::mem::take(&mut self.0.lock().objects)
    }

    /// Whether the checksummer may sleep until it is woken.
    fn may_sleep(&self) -> bool {
        let mut inbox = self.0.lock();
        inbox.asleep = inbox.objects.is_empty();
        inbox.asleep
    }
}

/// Start the thread. It records checksums every `interval`, and when it ends: soon after the queue
/// is disconnected and a stop was requested.
pub fn start_checksummer(
    objects: DiskObjects,
    mailbox: Arc<Mailbox>,
    written: Arc<WrittenObjects>,
    interval: Duration,
) -> io::Result<Worker<ChecksumJob>> {
    Worker::start("forebay-checksum", &mailbox.clone(), QUEUE_CAPACITY, move |jobs| {
        // Checksums are optional: all other threads have priority.
        let _ = rustix::process::setpriority_process(None, 10);
        let checksummer = Checksummer {
            objects,
            mailbox,
            written,
            waiting: WaitingObjects::default(),
            is_supported: true,
            interval,
            last_attempt: Instant::now(),
            last_recorded: Instant::now(),
            can_record: true,
        };
        checksummer.run(&jobs);
    })
}

/// An object in the queue.
#[derive(Clone, Copy)]
struct WaitingObject {
    due: Instant,
    id: ObjectId,
    /// Time at which it was queued first, if it was postponed.
    since: Instant,
}

/// Objects in the order in which they are due; each at most once.
#[derive(Default)]
struct WaitingObjects {
    queue: VecDeque<WaitingObject>,
    /// Objects in the queue; true if one was written since it was queued.
    written_again: HashMap<ObjectId, bool>,
}

impl WaitingObjects {
    /// An object was written `at`, which restarts its delay.
    fn object_written(&mut self, id: ObjectId, at: Instant) {
        match self.written_again.get_mut(&id) {
            Some(again) => *again = true,
            None => self.enqueue(id, at, at),
        }
    }

    /// Queue an object unless it is in the queue.
    fn push(&mut self, id: ObjectId) {
        let now = Instant::now();
        self.enqueue(id, now, now);
    }

    /// Queue an object again that has been waiting `since` then.
    fn postpone(&mut self, id: ObjectId, since: Instant) {
        self.enqueue(id, Instant::now(), since);
    }

    fn enqueue(&mut self, id: ObjectId, from: Instant, since: Instant) {
        if !self.written_again.contains_key(&id) && self.queue.len() < MAX_WAITING {
            self.written_again.insert(id, false);
            let due = from + CHECKSUM_DELAY;
            self.queue.push_back(WaitingObject { due, id, since });
        }
        debug_assert_eq!(self.queue.len(), self.written_again.len());
    }

    /// Time until the next object is due.
    fn next_due(&self) -> Option<Duration> {
        let first = self.queue.front()?;
        Some(first.due.saturating_duration_since(Instant::now()))
    }

    /// The next due object. One that was written again is queued again instead.
    fn pop_due(&mut self) -> Option<WaitingObject> {
        assert_eq!(self.queue.len(), self.written_again.len());
        while self.next_due()?.is_zero() {
            let next = self.queue.pop_front()?;
            if self.written_again.remove(&next.id) == Some(true) {
                self.push(next.id);
            } else {
                return Some(next);
            }
        }
        None
    }
}

struct Checksummer {
    objects: DiskObjects,
    mailbox: Arc<Mailbox>,
    written: Arc<WrittenObjects>,
    waiting: WaitingObjects,
    /// The file system has extended attributes.
    is_supported: bool,
    interval: Duration,
    /// Time at which recording was last considered.
    last_attempt: Instant,
    /// Time at which all checksums were last recorded.
    last_recorded: Instant,
    /// The device has not failed to sync data.
    can_record: bool,
}

impl Checksummer {
    fn run(mut self, jobs: &Receiver<ChecksumJob>) {
        loop {
            let attempt_in = self.interval.saturating_sub(self.last_attempt.elapsed());
            let timeout = match self.waiting.next_due() {
                None if self.written.may_sleep() => attempt_in,
                due => due.unwrap_or_default().min(attempt_in),
            };
            let job = jobs.recv_timeout(timeout);
            for (id, at) in self.written.take_all() {
                self.waiting.object_written(id, at);
            }
            match job {
                Ok(ChecksumJob::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Ok(ChecksumJob::Scrub { instance, conn, seq }) => {
                    let outcome = self.scrub_instance(instance).map(Reply::ScrubReport);
                    let reply = outcome.unwrap_or_else(Reply::Failed);
                    self.mailbox.post(LoopEvent::Reply { conn, seq, reply });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.record_checksums();
                    return;
                }
            }
            self.record_checksums_if_due();
            let batch: Vec<WaitingObject> =
                std::iter::from_fn(|| self.waiting.pop_due()).take(MAX_BATCH).collect();
            if self.is_supported {
                for object in batch {
                    self.checksum_object(object);
                }
            }
        }
    }

    /// Record checksums every interval, but seldom while others use the device.
    fn record_checksums_if_due(&mut self) {
        if self.last_attempt.elapsed() < self.interval {
            return;
        }
        self.last_attempt = Instant::now();
        if !self.objects.has_unrecorded_checksums() {
            self.last_recorded = self.last_attempt;
            return;
        }
        let may_yield = self.last_recorded.elapsed() < self.interval * MAX_BUSY_INTERVALS;
        if may_yield && self.objects.is_device_busy() {
            return;
        }
        self.record_checksums();
    }

    fn record_checksums(&mut self) {
        if !self.can_record || !self.objects.has_unrecorded_checksums() {
            return;
        }
        match self.objects.record_checksums_durable() {
            Ok(()) => self.last_recorded = Instant::now(),
            Err(RecordChecksumsError::SyncData(error)) => {
                tracing::error!(%error, "data sync failed: checksums stored since the last sync \
                    are valid in this boot only");
                self.can_record = false;
            }
            Err(RecordChecksumsError::WriteWatermarks(error)) => {
                tracing::warn!(%error, "cannot record checksums as valid beyond this boot")
            }
        }
    }

    fn checksum_object(&mut self, object: WaitingObject) {
        let id = object.id;
        let has_expired = object.since.elapsed() >= MAX_POSTPONEMENT;
        let stop = self.mailbox.stop_flag();
        let outcome = self.objects.store_checksums(id, !has_expired, stop);
        match outcome {
            Ok(ChecksumOutcome::Stored) => {}
            Ok(ChecksumOutcome::RecentlyWritten) => self.waiting.push(id),
            // Closing it for writing queues it again.
            Ok(ChecksumOutcome::HasWriters) if has_expired => {}
            Ok(ChecksumOutcome::DeviceBusy | ChecksumOutcome::HasWriters) => {
                self.waiting.postpone(id, object.since);
            }
            Ok(ChecksumOutcome::Unsupported) => {
                tracing::warn!(
                    "no checksums of data at rest: the file system lacks extended attributes"
                );
                self.is_supported = false;
            }
            // Removed meanwhile.
            Err(Errno::ENOENT) => {}
            Err(_) if self.mailbox.is_stop_requested() => {}
            Err(error) => tracing::warn!(
                %error, instance = %id.instance, ino = %id.ino,
                "cannot checksum object"
            ),
        }
    }

    fn scrub_instance(&mut self, instance: InstanceId) -> Result<ScrubReport, Errno> {
        let mut report = ScrubReport::default();
        let mut throttle = IoThrottle::default();
        for folder in 0..FOLDERS {
            for ino in self.objects.list_folder(instance, folder)? {
                let id = ObjectId { instance, ino };
                let stop = self.mailbox.stop_flag();
                match scrub_object(&self.objects, id, &mut throttle, stop)? {
                    Scrubbed::Removed => {}
                    Scrubbed::Intact { bytes } => {
                        report.intact += 1;
                        report.bytes += bytes;
                    }
                    Scrubbed::Checksummed => report.checksummed += 1,
                    Scrubbed::NotChecksummed => {
                        report.not_checksummed += 1;
                        self.waiting.push(id);
                    }
                    Scrubbed::Damaged { offset } => {
                        if report.damaged.len() < MAX_DAMAGED_LISTED {
                            report.damaged.push((ino, offset));
                        }
                    }
                }
            }
        }
        Ok(report)
    }
}
