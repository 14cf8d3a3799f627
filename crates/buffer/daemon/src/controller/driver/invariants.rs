//! Invariants of the controller's connections.

use std::collections::BTreeMap;

use super::Driver;
use crate::controller::port::ConnectionId;

impl Driver {
    /// Panics if peers, requests in flight and connections contradict each other. Costs time in
    /// proportion to their number.
    pub(super) fn check_invariants(&self) {
        for (peer, id) in &self.peers {
            let connection = self.connections.get(id);
            let own = connection.and_then(|connection| connection.peer.as_ref());
            assert_eq!(own, Some(peer), "a peer is registered with its connection");
        }
        for peer in self.activity.keys() {
            assert!(self.peers.contains_key(peer), "only connected peers have reported activity");
        }
        let mut in_flight: BTreeMap<ConnectionId, usize> = BTreeMap::new();
        for id in self.pending.values() {
            *in_flight.entry(*id).or_default() += 1;
        }
        for (id, connection) in &self.connections {
            let counted = in_flight.remove(id).unwrap_or(0);
            assert_eq!(connection.requests_in_flight, counted, "requests in flight are counted");
            assert!(counted <= super::MAX_REQUESTS_IN_FLIGHT, "requests in flight are limited");
        }
        assert!(in_flight.is_empty(), "requests in flight have connections");
    }
}
