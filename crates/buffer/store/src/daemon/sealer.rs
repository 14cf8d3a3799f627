//! The thread that seals objects some time after they were written, and checks them when asked.

use super::wake::{Done, Wake};
use crate::objects::{DiskObjects, ObjectId, Objects, Sealed, Verdict};
use crate::shard::ConnId;
use forebay_wire::message::Scrubbed;
use forebay_wire::{Errno, InstanceId, Reply};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an object is left alone before it is sealed: files are often opened again, or removed.
const DELAY: Duration = Duration::from_secs(1);
/// Objects that wait for their seals. Those beyond stay without until they are checked.
const MOST_WAITING: usize = 1 << 16;
/// Damaged objects that one check names.
const MOST_NAMED: usize = 1000;
const QUEUE: usize = 4096;

/// Something for the sealer.
#[derive(Debug)]
pub enum Job {
    /// Nobody who could write to it has this object open through the handle just closed.
    Written(ObjectId),
    /// Check all objects of an instance, and tell who asked.
    Scrub(InstanceId, ConnId, u64),
}

/// Start the thread. It ends soon after the sender is dropped and `wake` says stop.
pub fn start_sealer(
    objects: DiskObjects,
    wake: Arc<Wake>,
) -> io::Result<(SyncSender<Job>, JoinHandle<()>)> {
    let (sender, jobs) = sync_channel(QUEUE);
    let thread = std::thread::Builder::new()
        .name("forebay-seal".into())
        .spawn(move || {
            let waiting = Waiting::default();
            Sealer {
                objects,
                wake,
                waiting,
                can: true,
            }
            .run(&jobs);
        })?;
    Ok((sender, thread))
}

/// Objects in the order in which their time comes; each at most once.
#[derive(Default)]
struct Waiting {
    queue: VecDeque<(Instant, ObjectId)>,
    /// Those in the queue, and whether they were written since they were put there.
    again: HashMap<ObjectId, bool>,
}

impl Waiting {
    /// An object was written: its time begins anew.
    fn written(&mut self, id: ObjectId) {
        match self.again.get_mut(&id) {
            Some(again) => *again = true,
            None => self.push(id),
        }
    }

    /// An object has no seal; it may be waiting already.
    fn push(&mut self, id: ObjectId) {
        if !self.again.contains_key(&id) && self.queue.len() < MOST_WAITING {
            self.again.insert(id, false);
            self.queue.push_back((Instant::now() + DELAY, id));
        }
    }

    fn due(&self) -> Option<Duration> {
        let (due, _) = self.queue.front()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// The next one whose time has come; one that was written again waits again.
    fn pop(&mut self) -> Option<ObjectId> {
        while self.due()?.is_zero() {
            let (_, id) = self.queue.pop_front()?;
            if self.again.remove(&id) == Some(true) {
                self.push(id);
            } else {
                return Some(id);
            }
        }
        None
    }
}

struct Sealer {
    objects: DiskObjects,
    wake: Arc<Wake>,
    waiting: Waiting,
    /// The file system keeps attributes.
    can: bool,
}

impl Sealer {
    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let job = match self.waiting.due() {
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => jobs.recv_timeout(due),
            };
            match job {
                Ok(Job::Written(id)) => self.waiting.written(id),
                Ok(Job::Scrub(instance, conn, seq)) => {
                    let reply = self.scrub(instance).unwrap_or_else(Reply::Failed);
                    self.wake.done(Done {
                        replies: vec![(conn, seq, reply)],
                        sequence: 0,
                        failed: false,
                    });
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(id) = self.waiting.pop()
                && self.can
            {
                self.seal(id);
            }
        }
    }

    fn seal(&mut self, id: ObjectId) {
        match self.objects.seal(id, &self.wake.stop) {
            Ok(Sealed::Yes) => {}
            Ok(Sealed::TooSoon) => self.waiting.push(id),
            Ok(Sealed::Cannot) => {
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
        let mut found = Scrubbed::default();
        for (ino, _) in self.objects.list(instance)? {
            let id = ObjectId { instance, ino };
            let (verdict, size) = match self.objects.check(id, &self.wake.stop) {
                Ok(found) => found,
                Err(Errno::ENOENT) => continue, // removed meanwhile
                Err(error) if self.wake.stop.load(Ordering::Acquire) => return Err(error),
                // What cannot be read is as bad as what reads wrong.
                Err(error) => {
                    tracing::error!(%error, %instance, %ino, "data at rest cannot be read");
                    (Verdict::Damaged(0), 0)
                }
            };
            match verdict {
                Verdict::Whole => {
                    found.whole += 1;
                    found.bytes += size;
                }
                Verdict::Unsealed => match self.objects.seal(id, &self.wake.stop) {
                    Ok(Sealed::Yes) => found.sealed += 1,
                    Err(Errno::ENOENT) => {}
                    Ok(Sealed::TooSoon | Sealed::Cannot) | Err(_) => {
                        found.unsealed += 1;
                        self.waiting.push(id);
                    }
                },
                Verdict::Damaged(offset) => {
                    tracing::error!(%instance, %ino, offset, "data at rest are damaged");
                    if found.damaged.len() < MOST_NAMED {
                        found.damaged.push((ino, offset));
                    }
                }
            }
        }
        Ok(Reply::Scrubbed(found))
    }
}
