//! The clocks of this host.

use crate::node::Now;
use forebay_protocol::Timestamp;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Wall clock, and a monotonic clock that begins with the daemon.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Start the monotonic clock.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The monotonic time of an instant, in nanoseconds.
    pub fn steady_ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_nanos() as u64
    }

    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now {
            wall: Timestamp { secs: wall.as_secs() as i64, nanos: wall.subsec_nanos() },
            steady_ns: self.steady_ns(Instant::now()),
        }
    }
}
