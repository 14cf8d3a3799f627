//! The choice between sharing the work among threads and running it on one.

use std::time::Duration;

/// Epochs until the mode that was slower is tried again.
const RETRY_EPOCHS: u32 = 32;

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
