//! The choice between sharing the work among threads and running it on one.

use std::time::Duration;

/// Epochs until the mode that was slower is tried again.
const RETRY_EPOCHS: u32 = 32;

/// A shared epoch ends early if it has lasted this long, and
const LEAST_TIME: Duration = Duration::from_millis(20);
/// an event of it this many times as long as when one thread runs alone.
const GIVE_UP: f64 = 4.0;

/// Measures which mode is faster: one thread running all partitions, or all threads sharing them.
#[derive(Default)]
pub(crate) struct LoadSharing {
    /// Seconds per event in the last epoch run by thread 0 alone.
    alone: Option<f64>,
    /// Seconds per event in the last epoch shared by all threads.
    shared: Option<f64>,
    /// Epochs since the slower mode was last tried.
    untried: u32,
}

impl LoadSharing {
    /// Whether sharing is so much slower than one thread alone that the epoch should end: other programs have the
    /// processors, and each barrier waits for its thread's turn.
    pub(crate) fn gives_up(&self, events: u64, time: Duration) -> bool {
        let cost = time.as_secs_f64() / events.max(1) as f64;
        time > LEAST_TIME && self.alone.is_some_and(|alone| cost > GIVE_UP * alone)
    }

    /// Records how the last epoch went and returns whether to share the next one's work.
    pub(crate) fn shares_next_epoch(&mut self, alone: bool, events: u64, time: Duration) -> bool {
        let cost = time.as_secs_f64() / events.max(1) as f64;
        *(if alone { &mut self.alone } else { &mut self.shared }) = Some(cost);
        let (Some(cost_alone), Some(cost_shared)) = (self.alone, self.shared) else {
            return self.shared.is_none();
        };
        let share = cost_shared < cost_alone;
        self.untried = if share == alone { 0 } else { self.untried + 1 };
        if self.untried > RETRY_EPOCHS {
            self.untried = 0;
            return !share;
        }
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_epoch_that_is_much_slower_than_one_thread_ends_early() {
        let ms = Duration::from_millis;
        let mut sharing = LoadSharing::default();
        assert!(!sharing.gives_up(10, ms(1_000)), "there is nothing to compare with");
        assert!(!sharing.shares_next_epoch(false, 1_000, ms(5)));
        sharing.shares_next_epoch(true, 1_000, ms(1));
        assert!(sharing.gives_up(5_000, ms(21)));
        assert!(!sharing.gives_up(5_000, ms(20)), "too short to know");
        assert!(!sharing.gives_up(10_000, ms(40)), "four times as long");
    }
}
