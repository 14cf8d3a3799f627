//! Idempotency keys for requests to the controller.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_control::controller::RequestId;

/// The idempotency keys of one client: they count up from a random number, so that those of
/// different clients differ.
#[derive(Debug)]
pub(crate) struct RequestIds {
    first: u128,
    used: AtomicU64,
}

impl RequestIds {
    /// Keys that no other client uses.
    pub fn new() -> io::Result<RequestIds> {
        let first = u128::from_le_bytes(forebay_net::random::random_bytes()?);
        Ok(RequestIds { first, used: AtomicU64::new(0) })
    }

    /// A key that was not used before.
    pub fn next_id(&self) -> RequestId {
        let used = self.used.fetch_add(1, Ordering::Relaxed);
        RequestId(self.first.wrapping_add(used.into()))
    }
}
