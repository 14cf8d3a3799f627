//! Requests that write to objects whose checksums are durable. The checksums must be invalidated
//! durably first, which takes as long as the device needs; no other request waits for it.
//!
//! Only requests that are often the first to write to an object wait here. Others that open an
//! object for writing invalidate its checksums synchronously.

mod invalidate;

use crate::driver::ConnId;
use forebay_protocol::{Call, Ino, NodeIndex};
use std::collections::BTreeMap;

/// A call or a message that waits until the checksums of an object are invalid.
#[derive(Debug)]
pub enum PendingCall {
    /// A call of a client.
    Call(ConnId, Call),
    /// A file is resized by its metadata node.
    Resize { from: NodeIndex, task: u64, length: u64 },
}

impl PendingCall {
    /// Whether both are the same message of another node.
    fn is_duplicate(&self, other: &PendingCall) -> bool {
        match (self, other) {
            (
                PendingCall::Resize { from, task, .. },
                PendingCall::Resize { from: other_from, task: other_task, .. },
            ) => (from, task) == (other_from, other_task),
            (PendingCall::Call(..), _) | (_, PendingCall::Call(..)) => false,
        }
    }
}

/// Objects whose checksums are being invalidated, and what waits for that. A connection has one call
/// in flight, and the messages of a node about one task count once, so their number is bounded.
#[derive(Debug, Default)]
pub struct Invalidations(BTreeMap<Ino, Vec<PendingCall>>);

impl Invalidations {
    /// Add what waits. `true`: it is the first, and the invalidation is to be started.
    fn add(&mut self, ino: Ino, call: PendingCall) -> bool {
        let waiting = self.0.entry(ino).or_default();
        let is_first = waiting.is_empty();
        if !waiting.iter().any(|other| other.is_duplicate(&call)) {
            waiting.push(call);
        }
        assert!(!waiting.is_empty(), "an invalidation has a cause");
        is_first
    }

    /// Remove all calls of clients.
    pub fn take_calls(&mut self) -> Vec<(ConnId, u64)> {
        let calls = std::mem::take(&mut self.0).into_values().flatten();
        let calls = calls.filter_map(|call| match call {
            PendingCall::Call(conn, call) => Some((conn, call.seq)),
            PendingCall::Resize { .. } => None,
        });
        calls.collect()
    }

    /// A connection is closed; its call will be repeated on another one.
    pub fn drop_calls_of(&mut self, conn: ConnId) {
        for waiting in self.0.values_mut() {
            waiting.retain(|call| !matches!(call, PendingCall::Call(of, _) if *of == conn));
        }
    }
}
