//! Calls that wait because their users exceed a rate.

use crate::node::ConnId;
use forebay_protocol::Call;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// Delayed calls in the order in which they are due. A connection has one call in progress, so there are
/// never more of them than connections.
#[derive(Debug, Default)]
pub struct DelayedCalls {
    calls: BTreeMap<(Instant, ConnId), Call>,
    due: HashMap<ConnId, Instant>,
}

impl DelayedCalls {
    /// Delay a call until `due`.
    pub fn insert(&mut self, conn: ConnId, call: Call, due: Instant) {
        let other = self.due.insert(conn, due);
        assert!(other.is_none(), "a connection has one call in progress");
        self.calls.insert((due, conn), call);
        assert_eq!(self.calls.len(), self.due.len());
    }

    /// Drop the call of a connection that is closed.
    pub fn remove(&mut self, conn: ConnId) {
        if let Some(due) = self.due.remove(&conn) {
            self.calls.remove(&(due, conn));
        }
    }

    /// Time at which the next call is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.calls.first_key_value().map(|((due, _), _)| *due)
    }

    /// The next call that is due.
    pub fn take_due(&mut self, now: Instant) -> Option<(ConnId, Call)> {
        let entry = self.calls.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, conn), call) = entry.remove_entry();
        self.due.remove(&conn);
        Some((conn, call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::message::InodeRequest;
    use std::time::Duration;

    #[test]
    fn calls_are_due_in_order_and_those_of_closed_connections_are_dropped() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let call = |seq| Call::new(seq, InodeRequest::StatFs);
        let mut delayed = DelayedCalls::default();
        for (conn, seconds) in [(1, 3), (2, 1), (3, 1), (4, 2)] {
            delayed.insert(ConnId(conn), call(conn), at(seconds));
        }
        assert_eq!(delayed.next_due(), Some(at(1)));
        assert_eq!(delayed.take_due(start), None);
        delayed.remove(ConnId(3));
        delayed.remove(ConnId(9));
        assert_eq!(delayed.take_due(at(2)), Some((ConnId(2), call(2))));
        assert_eq!(delayed.take_due(at(2)), Some((ConnId(4), call(4))));
        assert_eq!(delayed.take_due(at(2)), None);
        // Its connection has the next call.
        delayed.insert(ConnId(2), call(5), at(9));
        assert_eq!(delayed.take_due(at(9)), Some((ConnId(1), call(1))));
        assert_eq!(delayed.take_due(at(9)), Some((ConnId(2), call(5))));
        assert_eq!(delayed.next_due(), None);
    }
}
