//! The thread that seals objects some time after they were written, has the seals last, and checks
//! objects when asked.

use super::mailbox::{Completion, Mailbox};
use crate::node::ConnId;
use crate::objects::{
    ChecksumOutcome, DiskObjects, ObjectId, Objects, RecordChecksumsError, ScrubVerdict,
};
use forebay_protocol::message::ScrubReport;
use forebay_protocol::{Errno, InstanceId, Reply};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an object is left alone before it is sealed: files are often opened again, or removed.
const DELAY: Duration = Duration::from_secs(1);
/// How long an object may wait because others use the device.
const LONGEST: Duration = Duration::from_secs(30);
/// Objects that wait for their seals. Those beyond stay without until they are checked.
const MOST_WAITING: usize = 1 << 18;
/// Objects that are sealed before it is looked who else wants something.
const BATCH: usize = 1024;
/// Damaged objects that one check names.
const MOST_NAMED: usize = 1000;
const QUEUE: usize = 4096;
/// Others may use the device for so many times the interval before seals are made to last all the
/// same.
const PATIENCE: u32 = 10;

/// Something for the sealer.
#[derive(Debug)]
pub enum ChecksumJob {
    /// There are objects among those that were written, and there were none before.
    Look,
    /// Check all objects of an instance, and tell who asked.
    Scrub(InstanceId, ConnId, u64),
}

/// Objects that were written, on their way to the sealer, which looks when it has something to do
/// anyway: waking it for each would cost more than closing a file.
#[derive(Debug, Default)]
pub struct WrittenObjects(Mutex<Inbox>);

#[derive(Debug, Default)]
struct Inbox {
    objects: Vec<(ObjectId, Instant)>,
    /// The sealer waits until it is told.
    asleep: bool,
}

impl WrittenObjects {
    /// Nobody who could write to it has this object open through the handle just closed. `true`: the
    /// sealer has to be told to [look](Job::Look). When too many wait, this one has no checksums
    /// until it is looked at again.
    pub fn push(&self, id: ObjectId) -> bool {
        let mut inbox = self.lock();
        if inbox.objects.len() < MOST_WAITING {
            inbox.objects.push((id, Instant::now()));
        }
        std::mem::take(&mut inbox.asleep)
    }

    /// All of them.
    fn take(&self) -> Vec<(ObjectId, Instant)> {
        std::mem::take(&mut self.lock().objects)
    }

    /// May the sealer sleep until it is told?
    fn may_sleep(&self) -> bool {
        let mut inbox = self.lock();
        inbox.asleep = inbox.objects.is_empty();
        inbox.asleep
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Start the thread, which makes seals last once an `interval`, if it can, and when it ends: soon
/// after the sender is dropped and `wake` says stop.
pub fn start_checksummer(
    objects: DiskObjects,
    wake: Arc<Mailbox>,
    written: Arc<WrittenObjects>,
    interval: Duration,
) -> io::Result<(SyncSender<ChecksumJob>, JoinHandle<()>)> {
    let (sender, jobs) = sync_channel(QUEUE);
    let thread = std::thread::Builder::new()
        .name("forebay-seal".into())
        .spawn(move || {
            // Whoever else wants the processor comes first. Without it nothing is wrong.
            let _ = rustix::process::setpriority_process(None, 10);
            let waiting = Waiting::default();
            Sealer {
                objects,
                wake,
                written,
                waiting,
                can: true,
                interval,
                looked: Instant::now(),
                lasting: Instant::now(),
                can_last: true,
            }
            .run(&jobs);
        })?;
    Ok((sender, thread))
}

/// When an object is to be sealed.
#[derive(Clone, Copy)]
struct Turn {
    due: Instant,
    id: ObjectId,
    /// When it came into the queue: the first time, if it was put off since.
    since: Instant,
}

/// Objects in the order in which their time comes; each at most once.
#[derive(Default)]
struct Waiting {
    queue: VecDeque<Turn>,
    /// Those in the queue, and whether they were written since they were put there.
    again: HashMap<ObjectId, bool>,
}

impl Waiting {
    /// An object was written `then`: its time begins anew.
    fn written(&mut self, id: ObjectId, then: Instant) {
        match self.again.get_mut(&id) {
            Some(again) => *again = true,
            None => self.enter(id, then, then),
        }
    }

    /// An object has no seal; it may be waiting already.
    fn push(&mut self, id: ObjectId) {
        self.put_off(id, Instant::now());
    }

    /// As [`push`](Waiting::push), for one that has waited `since` then.
    fn put_off(&mut self, id: ObjectId, since: Instant) {
        self.enter(id, Instant::now(), since);
    }

    fn enter(&mut self, id: ObjectId, from: Instant, since: Instant) {
        if !self.again.contains_key(&id) && self.queue.len() < MOST_WAITING {
            self.again.insert(id, false);
            let due = from + DELAY;
            self.queue.push_back(Turn { due, id, since });
        }
    }

    fn due(&self) -> Option<Duration> {
        let first = self.queue.front()?;
        Some(first.due.saturating_duration_since(Instant::now()))
    }

    /// The next one whose time has come; one that was written again waits again.
    fn pop(&mut self) -> Option<Turn> {
        while self.due()?.is_zero() {
            let turn = self.queue.pop_front()?;
            if self.again.remove(&turn.id) == Some(true) {
                self.push(turn.id);
            } else {
                return Some(turn);
            }
        }
        None
    }
}

struct Sealer {
    objects: DiskObjects,
    wake: Arc<Mailbox>,
    written: Arc<WrittenObjects>,
    waiting: Waiting,
    /// The file system keeps attributes.
    can: bool,
    interval: Duration,
    /// When it was last thought of making seals last, and when all did.
    looked: Instant,
    lasting: Instant,
    /// The device has not failed to make data durable.
    can_last: bool,
}

impl Sealer {
    fn run(mut self, jobs: &Receiver<ChecksumJob>) {
        loop {
            let look = self.interval.saturating_sub(self.looked.elapsed());
            let due = match self.waiting.due() {
                None if self.written.may_sleep() => look,
                due => due.unwrap_or_default().min(look),
            };
            let job = jobs.recv_timeout(due);
            for (id, then) in self.written.take() {
                self.waiting.written(id, then);
            }
            match job {
                Ok(ChecksumJob::Look) => {}
                Ok(ChecksumJob::Scrub(instance, conn, seq)) => {
                    let reply = self.scrub(instance).unwrap_or_else(Reply::Failed);
                    self.wake.post_completion(Completion {
                        replies: vec![(conn, seq, reply)],
                        sequence: 0,
                        failed: false,
                    });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.make_last();
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.make_last_if_due();
            let turns: Vec<Turn> = std::iter::from_fn(|| self.waiting.pop())
                .take(BATCH)
                .collect();
            if self.can {
                self.seal(&turns);
            }
        }
    }

    /// Makes seals last now and then, when nobody else uses the device, or has for long.
    fn make_last_if_due(&mut self) {
        if self.looked.elapsed() < self.interval {
            return;
        }
        self.looked = Instant::now();
        if !self.objects.has_unrecorded_checksums() {
            self.lasting = self.looked;
            return;
        }
        let patient = self.lasting.elapsed() < self.interval * PATIENCE;
        if patient && self.objects.is_device_busy() {
            return;
        }
        self.make_last();
    }

    fn make_last(&mut self) {
        if !self.can_last || !self.objects.has_unrecorded_checksums() {
            return;
        }
        match self.objects.record_checksums_durable() {
            Ok(()) => self.lasting = Instant::now(),
            Err(RecordChecksumsError::SyncData(error)) => {
                tracing::error!(%error, "data cannot be made durable: checksums taken since the last \
                    time hold for this start of the host only");
                self.can_last = false;
            }
            Err(RecordChecksumsError::WriteWatermarks(error)) => tracing::warn!(
                %error,
                "it cannot be recorded that checksums hold when the host is started again"
            ),
        }
    }

    fn seal(&mut self, turns: &[Turn]) {
        for turn in turns {
            let patient = turn.since.elapsed() < LONGEST;
            let sealed = self
                .objects
                .store_checksums(turn.id, patient, &self.wake.stop);
            self.sealed(turn, sealed);
        }
    }

    /// What came of sealing an object.
    fn sealed(&mut self, turn: &Turn, sealed: Result<ChecksumOutcome, Errno>) {
        let id = turn.id;
        match sealed {
            Ok(ChecksumOutcome::Stored) => {}
            Ok(ChecksumOutcome::RecentlyWritten) => self.waiting.push(id),
            // It is closed before long; if not, whoever closes it says so.
            Ok(ChecksumOutcome::HasWriters) if turn.since.elapsed() > LONGEST => {}
            Ok(ChecksumOutcome::DeviceBusy | ChecksumOutcome::HasWriters) => {
                self.waiting.put_off(id, turn.since)
            }
            Ok(ChecksumOutcome::Unsupported) => {
                tracing::warn!(
                    "the file system keeps no attributes: data have no checksums at rest"
                );
                self.can = false;
            }
            // Removed meanwhile.
            Err(Errno::ENOENT) => {}
            Err(_) if self.wake.stop.load(Ordering::Acquire) => {}
            Err(error) => tracing::warn!(%error, ino = %id.ino, "an object could not be sealed"),
        }
    }

    fn scrub(&mut self, instance: InstanceId) -> Result<Reply, Errno> {
        let mut found = ScrubReport::default();
        for (ino, _) in self.objects.list_objects(instance)? {
            let id = ObjectId { instance, ino };
            let (verdict, size) = match self.objects.scrub_object(id, &self.wake.stop) {
                Ok(found) => found,
                Err(Errno::ENOENT) => continue, // removed meanwhile
                Err(error) if self.wake.stop.load(Ordering::Acquire) => return Err(error),
                // What cannot be read is as bad as what reads wrong.
                Err(error) => {
                    tracing::error!(%error, %instance, %ino, "data at rest cannot be read");
                    (ScrubVerdict::Damaged(0), 0)
                }
            };
            match verdict {
                ScrubVerdict::Intact => {
                    found.intact += 1;
                    found.bytes += size;
                }
                ScrubVerdict::NotChecksummed => {
                    match self.objects.store_checksums(id, false, &self.wake.stop) {
                        Ok(ChecksumOutcome::Stored) => found.checksummed += 1,
                        Err(Errno::ENOENT) => {}
                        Ok(
                            ChecksumOutcome::RecentlyWritten
                            | ChecksumOutcome::DeviceBusy
                            | ChecksumOutcome::HasWriters
                            | ChecksumOutcome::Unsupported,
                        )
                        | Err(_) => {
                            found.not_checksummed += 1;
                            self.waiting.push(id);
                        }
                    }
                }
                ScrubVerdict::Damaged(offset) => {
                    tracing::error!(%instance, %ino, offset, "data at rest are damaged");
                    if found.damaged.len() < MOST_NAMED {
                        found.damaged.push((ino, offset));
                    }
                }
            }
        }
        Ok(Reply::ScrubReport(found))
    }
}
