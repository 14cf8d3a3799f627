//! Writes that complete in the page caches of the servers.
//!
//! All caches fill alike: data come in at the rate without flash; from the background limit on they go
//! to flash at its rate; when the cache is full, they come in only as fast as they go to flash.

/// The page caches of all servers of an instance: amounts in bytes, rates in bytes per second, times in
/// seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageCaches {
    pub limit: f64,
    pub background: f64,
    pub flash: f64,
}

impl PageCaches {
    /// The time after which the last write of `bytes` has completed, and the additional time until all
    /// data are on flash; `without_flash` is the time of the writes if flash were not in the way.
    pub fn times(&self, bytes: f64, without_flash: f64) -> (f64, f64) {
        let rate = bytes / without_flash.max(1e-12);
        let until_background = self.background.min(bytes) / rate;
        let flushed = self.flash * (without_flash - until_background).max(0.0);
        let dirty = bytes - flushed.min(bytes - self.background.min(bytes));
        if dirty <= self.limit {
            return (without_flash, dirty / self.flash);
        }
        (until_background + (bytes - self.limit) / self.flash, self.limit / self.flash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHES: PageCaches = PageCaches { limit: 100.0, background: 40.0, flash: 10.0 };

    /// 80 B at 20 B/s take 4 s; from 2 s on, 20 B go to flash, and 60 B are left for 6 s.
    #[test]
    fn writes_that_fit_the_cache_do_not_wait_for_flash() {
        assert_eq!(CACHES.times(80.0, 4.0), (4.0, 6.0));
        assert_eq!(CACHES.times(30.0, 3.0), (3.0, 3.0));
    }

    /// 300 B at 20 B/s: flash works from 2 s on, and when 200 B are there, 100 B fit.
    #[test]
    fn writes_beyond_the_cache_go_at_the_rate_of_flash() {
        assert_eq!(CACHES.times(300.0, 15.0), (22.0, 10.0));
    }
}
