//! The clocks of the state machines.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_control::messages::UnixMillis;

fn millis(since: Duration) -> UnixMillis {
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The time of day: milliseconds since 1970. It jumps when the clock is set.
pub(crate) fn time_of_day() -> UnixMillis {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Milliseconds since 1970 by a clock that is never set: the time of day when this process first
/// asked, and the time that has passed since. Timeouts depend on it.
pub(crate) fn now() -> UnixMillis {
    static START: OnceLock<(Instant, UnixMillis)> = OnceLock::new();
    let (start, time) = START.get_or_init(|| (Instant::now(), time_of_day()));
    time.plus_ms(millis(start.elapsed()).0)
}
