//! Backoff between attempts.

use crate::system::System;
use std::time::{Duration, Instant};

/// Schedule of repeated attempts: delays double from the first to the maximum, until the timeout.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    timeout: Duration,
}

impl Backoff {
    /// Delays from `first` to `max`. Attempts end `timeout` after the first one.
    pub const fn new(first: Duration, max: Duration, timeout: Duration) -> Backoff {
        assert!(!first.is_zero(), "a delay can double");
        assert!(first.as_nanos() <= max.as_nanos());
        Backoff { first, max, timeout }
    }

    /// The same delays, with another timeout.
    pub const fn with_timeout(self, timeout: Duration) -> Backoff {
        Backoff { timeout, ..self }
    }

    /// The first attempt starts now.
    pub fn start(self, system: &dyn System) -> Retries<'_> {
        self.start_at(system.now(), system)
    }

    /// The first attempt started at `started`.
    pub fn start_at(self, started: Instant, system: &dyn System) -> Retries<'_> {
        Retries { backoff: self, system, started, delay: self.first }
    }
}

/// Attempts with a backoff between them.
#[derive(Debug)]
pub struct Retries<'a> {
    backoff: Backoff,
    system: &'a dyn System,
    started: Instant,
    delay: Duration,
}

impl Retries<'_> {
    /// The delay before the next attempt; `None` if the timeout has elapsed.
    pub fn next_delay(&mut self) -> Option<Duration> {
        let is_over = self.system.now() - self.started >= self.backoff.timeout;
        let delay = (!is_over).then_some(self.delay);
        self.delay = (self.delay * 2).min(self.backoff.max);
        delay
    }

    /// Sleeps until the next attempt. Returns `false` at once if the timeout has elapsed.
    pub fn wait(&mut self) -> bool {
        self.next_delay().inspect(|delay| self.system.sleep(*delay)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Os;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let [first, max] = [1, 3].map(Duration::from_millis);
        let mut retries = Backoff::new(first, max, Duration::from_secs(60)).start(&Os);
        let mut delays = Vec::new();
        for _ in 0..3 {
            delays.push(retries.delay.as_millis());
            assert!(retries.wait());
        }
        assert_eq!(delays, [1, 2, 3]);
        assert!(retries.started.elapsed() >= Duration::from_millis(6));
    }

    #[test]
    fn attempts_end_after_the_timeout() {
        let delay = Duration::from_millis(1);
        let mut retries = Backoff::new(delay, delay, Duration::ZERO).start(&Os);
        assert!(!retries.wait());
    }
}
