//! Permission for clients to cache names and attributes.
//!
//! The only client of an instance may cache names and attributes for [`CACHE_LIFETIME_NS`]. When a second
//! one wants to attach, replies stop permitting that, and the newcomer has to retry (`EAGAIN`) until
//! all that was cached has expired. So no client ever uses a stale name or attribute, and no
//! callbacks are needed.
//!
//! All clients of a striped instance attach to node 0 before they use any other node, and what
//! another node permits to be cached is valid only as long as node 0 has permitted it, too: it may be
//! changed through yet another node.

use forebay_protocol::Errno;
use forebay_protocol::message::CACHE_LIFETIME_NS;

/// Allowance for a kernel that is slow to note the time of a reply.
const MARGIN_NS: u64 = 200_000_000;
/// Time for which caching is not permitted, for a newcomer that retries.
const RETRY_TIMEOUT_NS: u64 = 5_000_000_000;

/// The permission for a volume's only client.
#[derive(Debug, Default)]
pub struct CacheLease {
    /// Time at which all that a client may be caching has expired.
    cached_until_ns: u64,
    /// Time at which caching is permitted again, after another client wanted to attach.
    denied_until_ns: u64,
}

impl CacheLease {
    /// Whether a reply may permit caching to one of `clients`.
    pub fn is_available(&self, clients: usize, now_ns: u64) -> bool {
        clients == 1 && now_ns >= self.denied_until_ns
    }

    /// A reply permits caching.
    pub fn renew(&mut self, now_ns: u64) {
        self.cached_until_ns = now_ns.saturating_add(CACHE_LIFETIME_NS + MARGIN_NS);
        assert!(self.cached_until_ns > now_ns, "a lease lasts for some time");
    }

    /// Another client wants to attach in addition to `clients`: `EAGAIN` until nothing is cached any more.
    pub fn revoke(&mut self, clients: usize, now_ns: u64) -> Result<(), Errno> {
        if clients == 0 || now_ns >= self.cached_until_ns {
            return Ok(());
        }
        self.denied_until_ns = now_ns.saturating_add(RETRY_TIMEOUT_NS);
        Err(Errno::EAGAIN)
    }
}
