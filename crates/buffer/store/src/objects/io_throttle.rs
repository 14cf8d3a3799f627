//! Stepping aside: work that nobody waits for leaves the device to those who wait for it.

use rustix::fs::{fstat, major, minor};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::Duration;

/// From this length on, in bytes, the work on an object is worth looking who else is there.
pub const MIN_THROTTLED_BYTES: u64 = 8 << 20;
/// How long the device is watched before work begins.
const WATCH: Duration = Duration::from_millis(50);
/// Bytes of work between two looks.
const STRIDE: u64 = 8 << 20;
/// How long work rests after a stride while others use the device.
const REST: Duration = Duration::from_millis(50);
/// The kernel counts in sectors of this size, whatever the device's are.
const SECTOR: u64 = 512;

/// What a block device has done since the host was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Use {
    /// Bytes read and written.
    bytes: u64,
    /// Milliseconds in which it had something to do.
    busy: u64,
}

/// The fields are those of the kernel's `Documentation/block/stat.rst`.
fn parse(text: &str) -> Option<Use> {
    let fields: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
    let [_, _, read, _, _, _, written, _, _, busy, ..] = fields[..] else {
        return None;
    };
    Some(Use {
        bytes: read.saturating_add(written).saturating_mul(SECTOR),
        busy,
    })
}

/// Watches the device that a file lies on. Where there is none, or the kernel does not say what it
/// does, the device counts as free.
#[derive(Debug, Default)]
pub struct IoThrottle {
    device: Option<File>,
    last: Use,
    /// Bytes of work since `last`.
    done: u64,
}

impl IoThrottle {
    /// For work on `file`.
    pub fn for_file(file: impl AsFd) -> IoThrottle {
        let opened = fstat(file).ok().and_then(|stat| {
            let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
            File::open(format!("/sys/dev/block/{major}:{minor}/stat")).ok()
        });
        let mut pace = IoThrottle {
            device: opened,
            ..IoThrottle::default()
        };
        pace.last = pace.look().unwrap_or_default();
        pace
    }

    fn look(&self) -> Option<Use> {
        let mut text = [0; 512];
        let length = self.device.as_ref()?.read_at(&mut text, 0).ok()?;
        parse(std::str::from_utf8(text.get(..length)?).ok()?)
    }

    /// Watch the device for a moment: is it busy half of the time, without our doing anything?
    pub fn is_device_busy(&mut self) -> bool {
        let Some(before) = self.look() else {
            return false;
        };
        sleep(WATCH);
        let Some(after) = self.look() else {
            return false;
        };
        (self.last, self.done) = (after, 0);
        u128::from(after.busy.saturating_sub(before.busy)) * 2 >= WATCH.as_millis()
    }

    /// `bytes` of work are done. Rests now and then while others move at least half as much.
    pub fn account_bytes(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes);
        if self.device.is_none() || self.done < STRIDE {
            return;
        }
        if let Some(now) = self.look() {
            let moved = now.bytes.saturating_sub(self.last.bytes);
            if moved.saturating_sub(self.done) >= self.done / 2 {
                sleep(REST);
            }
            self.last = self.look().unwrap_or(now);
        }
        self.done = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// A device that has done this since the host was started.
    fn device(path: &std::path::Path, used: Use) {
        let sectors = used.bytes / SECTOR;
        let text = format!("1 0 {sectors} 5 2 0 0 9 0 {} 14 0 0 0 0 0 0\n", used.busy);
        std::fs::write(path, text).unwrap();
    }

    fn watched(path: &std::path::Path) -> IoThrottle {
        let mut pace = IoThrottle {
            device: Some(File::open(path).unwrap()),
            ..IoThrottle::default()
        };
        pace.last = pace.look().unwrap();
        pace
    }

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let text = "  9143 11 803634 3014 60317 8213 9437528 41000 0 21604 44015 0 0 0 0 0 0\n";
        let found = parse(text).unwrap();
        assert_eq!(found.bytes, (803_634 + 9_437_528) * 512);
        assert_eq!(found.busy, 21_604);
        assert_eq!(parse("1 2 three"), None);
    }

    #[test]
    fn it_rests_while_others_move_data_and_not_for_its_own() {
        let path = std::env::temp_dir().join(format!("forebay-pace-{}", std::process::id()));
        let used = |bytes| Use { bytes, busy: 0 };
        device(&path, used(0));
        let mut pace = watched(&path);
        let took = |pace: &mut IoThrottle| {
            let begun = Instant::now();
            pace.account_bytes(STRIDE);
            begun.elapsed()
        };
        device(&path, used(STRIDE));
        assert!(took(&mut pace) < REST);
        device(&path, used(4 * STRIDE));
        assert!(took(&mut pace) >= REST);
        assert!(!pace.is_device_busy());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn where_there_is_no_device_nothing_waits() {
        let begun = Instant::now();
        let mut pace = IoThrottle::default();
        pace.account_bytes(1 << 40);
        assert!(!pace.is_device_busy());
        assert!(begun.elapsed() < REST);
    }
}
