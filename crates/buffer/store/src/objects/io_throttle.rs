//! Throttling of background I/O while other processes use the device.

use forebay_net::user_rates::{Rate, TokenBucket};
use rustix::fs::{fstat, major, minor};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Objects of fewer bytes are not throttled: observing the device would cost more.
pub const MIN_THROTTLED_BYTES: u64 = 8 << 20;
/// Time for which the device is observed before work begins.
const OBSERVATION_TIME: Duration = Duration::from_millis(50);
/// Bytes of work between two samples of the device's counters.
const STRIDE_BYTES: u64 = 8 << 20;
/// Pause after a stride while others use the device.
const STRIDE_PAUSE: Duration = Duration::from_millis(50);
/// Least bytes per second of work whose rate is limited.
pub const MIN_RATE: u64 = 1 << 20;
/// Longest pause because of the rate: that of the largest read at the least rate.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Unit of the kernel's counters, whatever the device's sector size is.
const SECTOR_BYTES: u64 = 512;

/// Counters of a block device since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DeviceStats {
    /// Bytes read and written.
    bytes: u64,
    /// Time with requests in flight.
    busy_ms: u64,
}

/// Parse a block device's `stat` file; see the kernel's `Documentation/block/stat.rst`.
fn parse_stats(text: &str) -> Option<DeviceStats> {
    let fields: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
    let [_, _, read, _, _, _, written, _, _, busy_ms, ..] = fields[..] else {
        return None;
    };
    Some(DeviceStats { bytes: read.saturating_add(written).saturating_mul(SECTOR_BYTES), busy_ms })
}

/// Throttles work on one file by the load of its device. A file without a device, or whose device
/// has no counters, is not throttled.
#[derive(Debug, Default)]
pub struct IoThrottle {
    stat_file: Option<File>,
    last: DeviceStats,
    /// Bytes of own work since `last`.
    worked: u64,
    /// Rate of the work, if it is limited.
    pace: Option<TokenBucket>,
}

impl IoThrottle {
    /// For work on `file`.
    pub fn for_file(file: impl AsFd) -> IoThrottle {
        let stat_file = fstat(file).ok().and_then(|stat| {
            let (major, minor) = (major(stat.st_dev), minor(stat.st_dev));
            File::open(format!("/sys/dev/block/{major}:{minor}/stat")).ok()
        });
        let mut throttle = IoThrottle { stat_file, ..IoThrottle::default() };
        throttle.last = throttle.sample().unwrap_or_default();
        throttle
    }

    /// As [`for_file`](IoThrottle::for_file), with at most this many bytes per second.
    pub fn with_rate(file: impl AsFd, bytes_per_second: u64) -> IoThrottle {
        let per_second = bytes_per_second.max(MIN_RATE) as f64;
        let rate = Rate { per_second, burst: STRIDE_BYTES as f64, longest_delay: LONGEST_PAUSE };
        let pace = Some(TokenBucket::new(rate, Instant::now()));
        IoThrottle { pace, ..IoThrottle::for_file(file) }
    }

    fn sample(&self) -> Option<DeviceStats> {
        let mut text = [0; 512];
        let length = self.stat_file.as_ref()?.read_at(&mut text, 0).ok()?;
        parse_stats(std::str::from_utf8(text.get(..length)?).ok()?)
    }

    /// Observe the device for a moment. Returns whether others keep it busy half of the time.
    pub fn is_device_busy(&mut self) -> bool {
        let Some(before) = self.sample() else {
            return false;
        };
        sleep(OBSERVATION_TIME);
        let Some(after) = self.sample() else {
            return false;
        };
        (self.last, self.worked) = (after, 0);
        let busy_ms = after.busy_ms.saturating_sub(before.busy_ms);
        u128::from(busy_ms) * 2 >= OBSERVATION_TIME.as_millis()
    }

    /// Account for `bytes` of own work. Pauses after each stride during which others moved at
    /// least half as many bytes, and as long as the rate demands.
    pub fn account_bytes(&mut self, bytes: u64) {
        if let Some(pace) = &mut self.pace {
            sleep(pace.take(bytes as f64, Instant::now()));
        }
        self.worked = self.worked.saturating_add(bytes);
        if self.stat_file.is_none() || self.worked < STRIDE_BYTES {
            return;
        }
        if let Some(now) = self.sample() {
            let moved = now.bytes.saturating_sub(self.last.bytes);
            if moved.saturating_sub(self.worked) >= self.worked / 2 {
                sleep(STRIDE_PAUSE);
            }
            self.last = self.sample().unwrap_or(now);
        }
        self.worked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_stats(path: &std::path::Path, stats: DeviceStats) {
        let sectors = stats.bytes / SECTOR_BYTES;
        let busy_ms = stats.busy_ms;
        let text = format!("1 0 {sectors} 5 2 0 0 9 0 {busy_ms} 14 0 0 0 0 0 0\n");
        std::fs::write(path, text).unwrap();
    }

    fn throttle_by(path: &std::path::Path) -> IoThrottle {
        let mut throttle =
            IoThrottle { stat_file: Some(File::open(path).unwrap()), ..IoThrottle::default() };
        throttle.last = throttle.sample().unwrap();
        throttle
    }

    #[test]
    fn kernel_counters_are_parsed() {
        let text = "  9143 11 803634 3014 60317 8213 9437528 41000 0 21604 44015 0 0 0 0 0 0\n";
        let stats = parse_stats(text).unwrap();
        assert_eq!(stats.bytes, (803_634 + 9_437_528) * 512);
        assert_eq!(stats.busy_ms, 21_604);
        assert_eq!(parse_stats("1 2 three"), None);
    }

    #[test]
    fn work_pauses_for_traffic_of_others_only() {
        let path = std::env::temp_dir().join(format!("forebay-throttle-{}", std::process::id()));
        let stats = |bytes| DeviceStats { bytes, busy_ms: 0 };
        write_stats(&path, stats(0));
        let mut throttle = throttle_by(&path);
        let time_stride = |throttle: &mut IoThrottle| {
            let begun = Instant::now();
            throttle.account_bytes(STRIDE_BYTES);
            begun.elapsed()
        };
        write_stats(&path, stats(STRIDE_BYTES));
        assert!(time_stride(&mut throttle) < STRIDE_PAUSE);
        write_stats(&path, stats(4 * STRIDE_BYTES));
        assert!(time_stride(&mut throttle) >= STRIDE_PAUSE);
        assert!(!throttle.is_device_busy());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn limited_work_takes_the_time_of_its_rate() {
        let mut throttle = IoThrottle::with_rate(File::open("/dev/null").unwrap(), 4 * MIN_RATE);
        let begun = Instant::now();
        for _ in 0..10 {
            throttle.account_bytes(1 << 20);
        }
        // The first stride is not delayed.
        assert!(begun.elapsed() >= Duration::from_millis(500), "{:?}", begun.elapsed());
    }

    #[test]
    fn without_device_counters_nothing_is_throttled() {
        let begun = Instant::now();
        let mut throttle = IoThrottle::default();
        throttle.account_bytes(1 << 40);
        assert!(!throttle.is_device_busy());
        assert!(begun.elapsed() < STRIDE_PAUSE);
    }
}
