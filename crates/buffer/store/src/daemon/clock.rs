//! The clocks of this host.

use crate::node::Now;
use forebay_protocol::Timestamp;
use std::time::{Instant, SystemTime};

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
        Now { wall: Timestamp::from(SystemTime::now()), steady_ns: self.steady_ns(Instant::now()) }
    }
}
