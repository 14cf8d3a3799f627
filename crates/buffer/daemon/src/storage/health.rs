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

    /// Time since a write began that has not ended.
    fn pending(&self) -> Duration {
        self.0.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }
}

fn write_probe(directory: &Path) -> io::Result<()> {
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).mode(0o600);
    let file = file.open(directory.join(PROBE_FILE))?;
    file.write_all_at(&[0; PROBE_BYTES], 0)?;
    file.sync_data()
}

/// Whether a storage daemon and its device work.
pub(super) struct StoreHealth {
    replied: Instant,
    device: Option<DeviceProbe>,
    is_hung: bool,
}

impl StoreHealth {
    /// Of a daemon on the device of `directory`.
    pub fn new(directory: &Path) -> StoreHealth {
        let directory = directory.to_owned();
        let device = DeviceProbe::start(WRITE_INTERVAL, move || write_probe(&directory));
        StoreHealth { replied: Instant::now(), device: device.ok(), is_hung: false }
    }

    /// Notes that the daemon has replied to a request.
    pub fn record_reply(&mut self) {
        self.replied = Instant::now();
    }

    /// The reason why the node cannot serve, if it hangs.
    fn problem(&self) -> Option<String> {
        let silence = self.replied.elapsed();
        if silence > REPLY_TIMEOUT {
            return Some(format!("the storage daemon has not replied for {} s", silence.as_secs()));
        }
        let pending = self.device.as_ref().map_or(Duration::ZERO, DeviceProbe::pending);
        let reason = || format!("a write to its device has lasted for {} s", pending.as_secs());
        (pending > WRITE_TIMEOUT).then(reason)
    }

    /// Whether daemon and device work. Changes are logged.
    pub fn is_working(&mut self) -> bool {
        let problem = self.problem();
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
        wait_until(|| device.pending() > Duration::from_millis(20));
        drop(unblock);
        wait_until(|| device.pending() <= Duration::from_millis(20));
    }

    #[test]
    fn daemon_that_does_not_reply_is_hung_until_it_replies() {
        let replied = Instant::now().checked_sub(2 * REPLY_TIMEOUT).unwrap();
        let mut health = StoreHealth { replied, device: None, is_hung: false };
        assert!(health.problem().unwrap().contains("has not replied for 60 s"));
        assert!(!health.is_working() && health.is_hung);
        health.record_reply();
        assert!(health.is_working());
        let begun = Arc::new(Mutex::new(Instant::now().checked_sub(2 * WRITE_TIMEOUT)));
        health.device = Some(DeviceProbe(begun));
        assert!(!health.is_working());
    }
}
