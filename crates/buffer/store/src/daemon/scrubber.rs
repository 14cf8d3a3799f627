//! Comparing data at rest with their checksums: the thread that does it for all objects from time to time,
//! and what it has in common with scrubs on request.

use super::mailbox::Mailbox;
use super::worker::Worker;
use crate::objects::{
    ChecksumOutcome, DiskObjects, FOLDERS, IoThrottle, ObjectId, Objects, ScrubVerdict,
};
use forebay_metrics::Counter;
use forebay_protocol::Errno;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime};

/// Longest time between two looks at the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// Bytes that opening an object counts for: small objects take time, too.
const OPEN_BYTES: u64 = 64 << 10;

/// Regular comparison of all data at rest with their checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Time from the end of one scrub of all objects to the begin of the next; `None`: they are scrubbed on
    /// request only.
    pub interval: Option<Duration>,
    /// Most bytes per second, at least 1 MiB. Less while others use the device.
    pub bytes_per_second: u64,
}

impl Default for ScrubOptions {
    fn default() -> ScrubOptions {
        ScrubOptions { interval: Some(Duration::from_secs(7 * 86_400)), bytes_per_second: 32 << 20 }
    }
}

/// Counters of the regular scrub.
#[derive(Debug, Default)]
pub struct ScrubCounters {
    completed: Counter,
    intact: Counter,
    not_checksummed: Counter,
    bytes: Counter,
}

/// The work of the regular scrub since the start of the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubProgress {
    /// Scrubs of all objects.
    pub completed: u64,
    /// Objects that match their checksums.
    pub intact: u64,
    /// Objects without valid checksums because they are written.
    pub not_checksummed: u64,
    /// Bytes compared.
    pub bytes: u64,
}

impl ScrubCounters {
    /// The present values.
    pub fn progress(&self) -> ScrubProgress {
        ScrubProgress {
            completed: self.completed.get(),
            intact: self.intact.get(),
            not_checksummed: self.not_checksummed.get(),
            bytes: self.bytes.get(),
        }
    }
}

/// Outcome of the scrub of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    /// It matches its checksums.
    Intact { bytes: u64 },
    /// It had none, and has some now.
    Checksummed,
    /// It has none, because it is or was just written.
    NotChecksummed,
    /// It does not match, or cannot be read.
    Damaged { offset: u64 },
    /// There is no such object any more.
    Removed,
}

/// Compare an object with its checksums, or store some if it has none. Fails only if stopped.
pub fn scrub_object(
    objects: &DiskObjects,
    id: ObjectId,
    throttle: &mut IoThrottle,
    stop: &AtomicBool,
) -> Result<Scrubbed, Errno> {
    let is_stopped = || stop.load(Ordering::Acquire);
    let (verdict, bytes) = match objects.scrub_object(id, throttle, stop) {
        Ok(scrubbed) => scrubbed,
        Err(Errno::ENOENT) => return Ok(Scrubbed::Removed),
        Err(error) if is_stopped() => return Err(error),
        Err(error) => {
            objects.note_unreadable(id, error);
            return Ok(Scrubbed::Damaged { offset: 0 });
        }
    };
    let outcome = match verdict {
        ScrubVerdict::Damaged(offset) => {
            objects.note_mismatch(id, offset);
            return Ok(Scrubbed::Damaged { offset });
        }
        ScrubVerdict::Intact => Scrubbed::Intact { bytes },
        ScrubVerdict::NotChecksummed => match objects.store_checksums(id, false, stop) {
            Ok(ChecksumOutcome::Stored) => Scrubbed::Checksummed,
            Err(Errno::ENOENT) => Scrubbed::Removed,
            Err(error) if is_stopped() => return Err(error),
            Ok(
                ChecksumOutcome::RecentlyWritten
                | ChecksumOutcome::HasWriters
                | ChecksumOutcome::DeviceBusy
                | ChecksumOutcome::Unsupported,
            )
            | Err(_) => Scrubbed::NotChecksummed,
        },
    };
    objects.damaged().clear(id);
    Ok(outcome)
}

/// Start the thread, unless there is no interval. It ends when its queue is disconnected and a stop was
/// requested.
pub fn start_scrubber(
    objects: &DiskObjects,
    mailbox: &Arc<Mailbox>,
    options: &ScrubOptions,
    counters: Arc<ScrubCounters>,
) -> io::Result<Option<Worker<()>>> {
    let Some(interval) = options.interval else {
        return Ok(None);
    };
    let scrubber = Scrubber {
        objects: objects.clone(),
        mailbox: mailbox.clone(),
        interval,
        bytes_per_second: options.bytes_per_second,
        counters,
    };
    let worker = Worker::start("forebay-scrub", mailbox, 1, move |stopped| {
        let _ = rustix::process::setpriority_process(None, 10);
        scrubber.run(&stopped);
    })?;
    Ok(Some(worker))
}

struct Scrubber {
    objects: DiskObjects,
    mailbox: Arc<Mailbox>,
    interval: Duration,
    bytes_per_second: u64,
    counters: Arc<ScrubCounters>,
}

/// The time of day in seconds since 1970. Scrubs are too seldom for a clock that ends with the process.
fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Time until the next scrub. After a clock was set back it is one interval at most.
fn time_until_due(last_s: u64, now_s: u64, interval: Duration) -> Duration {
    interval.saturating_sub(Duration::from_secs(now_s.saturating_sub(last_s)))
}

impl Scrubber {
    fn run(self, stopped: &Receiver<()>) {
        let mut last_s = self.objects.last_scrubbed().unwrap_or_else(|| {
            // Nothing is older than the directory.
            self.note_scrubbed()
        });
        loop {
            let due_in = time_until_due(last_s, now_s(), self.interval);
            match stopped.recv_timeout(due_in.min(CLOCK_INTERVAL)) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if due_in > CLOCK_INTERVAL {
                continue;
            }
            match self.scrub_all() {
                Ok(()) => {
                    self.counters.completed.increment();
                    last_s = self.note_scrubbed();
                }
                Err(_) if self.mailbox.is_stop_requested() => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot list the objects to scrub");
                    last_s = now_s();
                }
            }
        }
    }

    fn note_scrubbed(&self) -> u64 {
        let now_s = now_s();
        if let Err(error) = self.objects.note_scrubbed(now_s) {
            tracing::warn!(%error, "cannot record the time of a scrub: a restart repeats it");
        }
        now_s
    }

    fn scrub_all(&self) -> Result<(), Errno> {
        let mut throttle = self.objects.scrub_throttle(self.bytes_per_second);
        for instance in self.objects.list_instances()? {
            for folder in 0..FOLDERS {
                let inos = match self.objects.list_folder(instance, folder) {
                    Err(Errno::ENOENT) => break, // the instance was removed meanwhile
                    inos => inos?,
                };
                for ino in inos {
                    self.scrub_one(ObjectId { instance, ino }, &mut throttle)?;
                }
            }
        }
        Ok(())
    }

    fn scrub_one(&self, id: ObjectId, throttle: &mut IoThrottle) -> Result<(), Errno> {
        if self.mailbox.is_stop_requested() {
            return Err(Errno::EINTR);
        }
        throttle.account_bytes(OPEN_BYTES);
        match scrub_object(&self.objects, id, throttle, self.mailbox.stop_flag())? {
            Scrubbed::Intact { bytes } => {
                self.counters.intact.increment();
                self.counters.bytes.add(bytes);
            }
            Scrubbed::NotChecksummed => self.counters.not_checksummed.increment(),
            Scrubbed::Checksummed | Scrubbed::Damaged { .. } | Scrubbed::Removed => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrub_is_due_an_interval_after_the_last_one_whatever_the_clock_does() {
        let day = Duration::from_secs(86_400);
        assert_eq!(time_until_due(1000, 1000, day), day);
        assert_eq!(time_until_due(1000, 1000 + 86_400, day), Duration::ZERO);
        assert_eq!(time_until_due(1000, 5_000_000, day), Duration::ZERO);
        assert_eq!(time_until_due(5_000_000, 1000, day), day, "the clock was set back");
    }
}
