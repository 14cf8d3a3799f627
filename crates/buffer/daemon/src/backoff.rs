//! Pauses between attempts.

use std::time::Duration;

/// Exponential backoff: each pause is twice the one before, up to a maximum.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `first` to `max`.
    pub const fn new(first: Duration, max: Duration) -> Backoff {
        assert!(first.as_nanos() > 0 && first.as_nanos() <= max.as_nanos());
        Backoff { first, max, next: first }
    }

    /// The pause before the next attempt.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    /// An attempt succeeded: the next pause is the first one again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}
