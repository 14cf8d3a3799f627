//! Detection of a storage daemon or a device that hangs: it reports no error, and replies to nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time without a reply of the storage daemon after which it counts as hung.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which one small write to the device may last.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);
/// Longest part of the time between two checks that counts: the rest is time in which this process, or its
/// virtual machine, did not run, and could not receive a reply.
const MAX_COUNTED: Duration = Duration::from_secs(5);
/// Name of the file that is written.
const PROBE_FILE: &str = "probe";
/// Bytes of a write.
const PROBE_BYTES: usize = 4096;

/// Writes to a device from time to time, on a thread of its own, which may hang.
struct DeviceProbe(Arc<Mutex<Option<Instant>>>);

impl DeviceProbe {
    /// Repeats `write`, until the probe is dropped.
    fn start(
        pause: Duration,
        write: impl Fn() -> io::Result<()> + Send + 'static,
    ) -> io::Result<DeviceProbe> {
        let since = Arc::new(Mutex::new(None));
        let weak = Arc::downgrade(&since);
        let run = move || {
            while let Some(since) = weak.upgrade() {
                *since.lock() = Some(Instant::now());
                // A device that reports errors does not hang.
                if let Err(error) = write() {
                    tracing::warn!(%error, "cannot write to the storage node's directory");
                }
                *since.lock() = None;
                drop(since);
                std::thread::sleep(pause);
            }
        };
        std::thread::Builder::new().name("forebay-probe".into()).spawn(run)?;
        Ok(DeviceProbe(since))
    }

    /// Time at which a write began that has not ended.
    fn pending_since(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

fn write_probe(directory: &Path) -> io::Result<()> {
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).mode(0o600);
    let file = file.open(directory.join(PROBE_FILE))?;
    file.write_all_at(&[0; PROBE_BYTES], 0)?;
    file.sync_data()
}

/// Time without something, counted from check to check.
#[derive(Default)]
struct Silence {
    checked: Option<Instant>,
    counted: Duration,
}

impl Silence {
    /// The time counted, at `now`.
    fn at(&mut self, now: Instant) -> Duration {
        let checked = self.checked.replace(now).unwrap_or(now);
        self.counted += now.saturating_duration_since(checked).min(MAX_COUNTED);
        self.counted
    }
}

/// Whether a storage daemon and its device work.
pub(super) struct StoreHealth {
    device: Option<DeviceProbe>,
    /// Time since the daemon has replied.
    unanswered: Silence,
    /// Time since the write began that is pending, and when that was.
    writing: (Option<Instant>, Silence),
    is_hung: bool,
}

impl StoreHealth {
    /// Of a daemon on the device of `directory`.
    pub fn new(directory: &Path) -> StoreHealth {
        let directory = directory.to_owned();
        let device = DeviceProbe::start(WRITE_INTERVAL, move || write_probe(&directory));
        StoreHealth::with_probe(device.ok())
    }

    fn with_probe(device: Option<DeviceProbe>) -> StoreHealth {
        let (unanswered, writing) = (Silence::default(), (None, Silence::default()));
        StoreHealth { device, unanswered, writing, is_hung: false }
    }

    /// Notes that the daemon has replied to a request.
    pub fn record_reply(&mut self) {
        self.unanswered = Silence::default();
    }

    /// The reason why the node cannot serve, if it hangs.
    fn problem(&mut self, now: Instant) -> Option<String> {
        let silence = self.unanswered.at(now);
        let since = self.device.as_ref().and_then(DeviceProbe::pending_since);
        if since != self.writing.0 {
            self.writing = (since, Silence::default());
        }
        let pending = since.map_or(Duration::ZERO, |_| self.writing.1.at(now));
        if silence > REPLY_TIMEOUT {
            return Some(format!("the storage daemon has not replied for {} s", silence.as_secs()));
        }
        let reason = || format!("a write to its device has lasted for {} s", pending.as_secs());
        (pending > WRITE_TIMEOUT).then(reason)
    }

    /// Whether daemon and device work, for calls every few seconds. Changes are logged.
    pub fn is_working(&mut self) -> bool {
        let problem = self.problem(Instant::now());
        match (&problem, self.is_hung) {
            (Some(reason), false) => {
                tracing::error!(reason, "this node hangs: it is offline until it works again");
            }
            (None, true) => tracing::warn!("this node works again"),
            (Some(_), true) | (None, false) => {}
        }
        self.is_hung = problem.is_some();
        !self.is_hung
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::mpsc::channel;

    use super::*;

    fn wait_until(condition: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(Instant::now() < until, "timeout");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn write_that_does_not_end_is_noticed_and_one_that_ends_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let mut health = StoreHealth::new(directory.path());
        wait_until(|| directory.path().join(PROBE_FILE).exists());
        assert!(health.is_working());
        let (unblock, blocked) = channel::<()>();
        let blocked = Mutex::new(blocked);
        let hang = move || {
            let _ = blocked.lock().recv();
            Ok(())
        };
        let device = DeviceProbe::start(Duration::from_secs(100), hang).unwrap();
        wait_until(|| device.pending_since().is_some());
        drop(unblock);
        wait_until(|| device.pending_since().is_none());
    }

    #[test]
    fn daemon_that_does_not_reply_is_hung_until_it_replies() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut health = StoreHealth::with_probe(None);
        let first = |health: &mut StoreHealth, seconds: Range<u32>| {
            seconds
                .into_iter()
                .find_map(|at| health.problem(start + at * second).map(|why| (at, why)))
        };
        let (at, reason) = first(&mut health, 0..100).unwrap();
        assert!(at == 31 && reason.contains("has not replied for 31 s"), "{at} {reason}");
        health.record_reply();
        assert_eq!(first(&mut health, 100..130), None);
        health.record_reply();
        // A write that does not end, while the daemon replies.
        let begun = Arc::new(Mutex::new(Some(start)));
        health.device = Some(DeviceProbe(begun));
        let hung = (130..300).find(|at| {
            health.record_reply();
            health.problem(start + *at * second).is_some()
        });
        assert_eq!(hung, Some(191));
    }

    #[test]
    fn time_in_which_the_process_does_not_run_does_not_count() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut health =
            StoreHealth::with_probe(Some(DeviceProbe(Arc::new(Mutex::new(Some(start))))));
        for at in [0, 1, 2, 3600, 3601, 7200] {
            assert_eq!(health.problem(start + at * second), None, "{at} s");
        }
    }
}
