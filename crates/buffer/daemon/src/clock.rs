//! The clock of the state machines.

use std::time::{SystemTime, UNIX_EPOCH};

use forebay_control::messages::UnixMillis;

/// Milliseconds since 1970.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
