//! Time of a queue of jobs, in milliseconds. Traces last longer than the 213 days of picoseconds in 64 bits.

use serde::{Deserialize, Serialize};

/// A point in simulated time, or a span of it, in milliseconds. Sums saturate.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The start of a trace, or no time.
    pub const ZERO: Millis = Millis(0);
    /// Later than everything.
    pub const NEVER: Millis = Millis(u64::MAX);

    /// Whole seconds.
    pub const fn from_seconds(seconds: u64) -> Millis {
        Millis(seconds.saturating_mul(1000))
    }

    /// Seconds rounded up to a millisecond; `None` if they are negative, not a number, or more than 10^15.
    pub fn of_seconds(seconds: f64) -> Option<Millis> {
        let fits = (0.0..=1e15).contains(&seconds);
        fits.then(|| Millis((seconds * 1000.0).ceil() as u64))
    }

    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// The later time.
    pub const fn plus(self, span: Millis) -> Millis {
        Millis(self.0.saturating_add(span.0))
    }

    /// The time from `earlier` to this one, zero if it is not later.
    pub const fn since(self, earlier: Millis) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}
