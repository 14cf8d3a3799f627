//! Waiting for replies that may take long, and noticing that the daemon does not reply at all.

use super::Session;
use crate::system::Connection;
use forebay_protocol::message::PROBE_SLOT;
use std::io;
use std::time::{Duration, Instant};

/// Time without a reply after which the daemon is asked whether it works.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Least time for a reply.
const MIN_REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Questions whether the daemon replies.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Number of the last one.
    seq: u64,
    /// Time of the last one, if the daemon answered.
    answered: Option<Instant>,
}

impl Session {
    /// Time within which a working daemon replies to a request, unless that may take long.
    pub(super) fn reply_timeout(&self) -> Duration {
        self.options.timeout.max(MIN_REPLY_TIMEOUT)
    }

    /// Waits for the reply to a call that may take any time, as long as the daemon answers others.
    /// Fails with `TimedOut` if it has not done so for the timeout of the session.
    pub(super) fn await_slow_reply(&self, connection: &Connection) -> io::Result<()> {
        let interval = PROBE_INTERVAL.min(self.reply_timeout());
        let mut silent_since = Instant::now();
        while !connection.await_input(interval)? {
            if self.is_responding(interval) {
                silent_since = Instant::now();
            } else if silent_since.elapsed() >= self.reply_timeout() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Whether the daemon has replied to this session within `interval`, or does so now.
    fn is_responding(&self, interval: Duration) -> bool {
        let is_recent = |at: Option<Instant>| at.is_some_and(|at| at.elapsed() < interval);
        if is_recent(*self.last_contact.lock()) {
            return true;
        }
        // The calls that wait at the same time ask once.
        let mut probe = self.probe.lock();
        if is_recent(probe.answered) {
            return true;
        }
        probe.seq += 1;
        let asked = Instant::now();
        // The daemon replies to the request that attaches the connection.
        let answered = self.connect(PROBE_SLOT, probe.seq, false).is_ok();
        if answered {
            probe.answered = Some(asked);
        } else {
            tracing::warn!(address = %self.address, "the storage daemon does not reply");
        }
        answered
    }
}
