//! Bytes, rates and times as types, with decimal and binary prefixes.
//!
//! Parsing is exact integer arithmetic (`"18.75 GB/s".parse::<Rate>()`), and `Display` gives text
//! that parses back to the same value. [`human`] rounds for people.

mod display;
pub mod human;
mod parse;

use parse::PS_PER_SECOND;
pub use parse::UnitError;

use serde::{Deserialize, Serialize};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

impl Bytes {
    /// Zero bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` binary kilobytes of 1,024 bytes; saturates.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 10))
    }

    /// `n` binary megabytes of 1,048,576 bytes; saturates.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(1 << 20))
    }
}

impl Rate {
    /// Time to move `bytes` at this rate, rounded up to a whole picosecond. A rate of zero
    /// and spans beyond 2^64 ps (213 days) give [`Time::MAX`].
    pub fn time_for(self, bytes: Bytes) -> Time {
        if self.0 == 0 {
            return if bytes.0 == 0 { Time::ZERO } else { Time::MAX };
        }
        let ps = (u128::from(bytes.0) * u128::from(PS_PER_SECOND)).div_ceil(u128::from(self.0));
        Time(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// Bytes moved in `time` at this rate, rounded down; saturates.
    pub fn bytes_in(self, time: Time) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(time.0) / u128::from(PS_PER_SECOND);
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// The rate of `n` such links in parallel; saturates.
    pub fn times(self, n: u64) -> Rate {
        Rate(self.0.saturating_mul(n))
    }
}

impl Time {
    /// The start of simulated time, or a span of zero.
    pub const ZERO: Time = Time(0);
    /// The longest time: 2^64 − 1 ps, about 213 days.
    pub const MAX: Time = Time(u64::MAX);

    /// `n` nanoseconds; saturates.
    pub const fn from_ns(n: u64) -> Time {
        Time(n.saturating_mul(1_000))
    }

    /// `n` microseconds; saturates.
    pub const fn from_us(n: u64) -> Time {
        Time(n.saturating_mul(1_000_000))
    }

    /// `n` seconds; saturates.
    pub const fn from_seconds(n: u64) -> Time {
        Time(n.saturating_mul(PS_PER_SECOND))
    }

    /// In seconds, for reports.
    pub fn as_seconds(self) -> f64 {
        self.0 as f64 / PS_PER_SECOND as f64
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

/// Defines a quantity: exact text, sums and differences, multiples. Overflow is the programmer's
/// error: it panics in debug builds as for plain integers.
macro_rules! quantity {
    ($(#[$doc:meta])* $unit:ident, $table:expr) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $unit(pub u64);

        impl std::str::FromStr for $unit {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<$unit, UnitError> {
                $table.parse(text).map($unit)
            }
        }
        impl std::fmt::Display for $unit {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&display::shortest(&$table, self.0))
            }
        }
        impl Add for $unit {
            type Output = $unit;
            fn add(self, other: $unit) -> $unit {
                $unit(self.0 + other.0)
            }
        }
        impl Sub for $unit {
            type Output = $unit;
            fn sub(self, other: $unit) -> $unit {
                $unit(self.0 - other.0)
            }
        }
        impl AddAssign for $unit {
            fn add_assign(&mut self, other: $unit) {
                self.0 += other.0;
            }
        }
        impl Sum for $unit {
            fn sum<I: Iterator<Item = $unit>>(items: I) -> $unit {
                $unit(items.map(|x| x.0).sum())
            }
        }
    };
}

quantity! {
    /// A number of bytes.
    Bytes, parse::BYTES
}
quantity! {
    /// A data rate in bytes per second.
    Rate, parse::RATE
}
quantity! {
    /// A point in simulated time, or a span of it, in picoseconds.
    Time, parse::TIME
}
