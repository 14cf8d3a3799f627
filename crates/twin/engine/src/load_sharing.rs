//! Whether several threads share the work, or one keeps it.

use std::time::Duration;

/// Epochs until the way of sharing that was slower is tried again.
const RETRY_AFTER: u32 = 32;

/// Which way of sharing the work is quicker.
#[derive(Default)]
pub(crate) struct LoadSharing {
    /// Seconds an event in the last epoch in which thread 0 ran all; in which all threads ran.
    alone: Option<f64>,
    together: Option<f64>,
    /// Epochs since the slower way was last tried.
    untried: u32,
}

impl LoadSharing {
    /// Whether to share the next epoch's work, given how the last one went.
    pub(crate) fn shares_next_epoch(&mut self, alone: bool, events: u64, time: Duration) -> bool {
        let cost = time.as_secs_f64() / events.max(1) as f64;
        *(if alone {
            &mut self.alone
        } else {
            &mut self.together
        }) = Some(cost);
        let (Some(apart), Some(together)) = (self.alone, self.together) else {
            return self.together.is_none();
        };
        let share = together < apart;
        self.untried = if share == alone { 0 } else { self.untried + 1 };
        if self.untried > RETRY_AFTER {
            self.untried = 0;
            return !share;
        }
        share
    }
}
