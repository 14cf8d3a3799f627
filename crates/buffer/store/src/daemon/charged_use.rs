//! The use of a storage daemon that is charged to its users, whose rates are limited.

use super::counters::StoreCounters;
use super::data::Fence;
use forebay_net::stream::Stream;
use forebay_net::user_rates::{Rate, UserRates};
use forebay_protocol::message::{
    BatchRequest, FileRequest, LockRequest, NameRequest, PathOperation,
};
use forebay_protocol::{Reply, Request};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The burst of a user after idle time, as a time at the full rate.
const BURST: Duration = Duration::from_secs(1);
/// Interval at which a delayed data connection looks whether it was closed.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Limits of the rates of each user who is not trusted, and of each user for whom the mounts of jobs make
/// requests. Requests beyond a rate are delayed.
#[derive(Clone, Debug, PartialEq)]
pub struct UserRateLimits {
    /// Requests per second; `None`: no limit.
    pub requests: Option<u64>,
    /// Bytes of contents read and written per second over connections; `None`: no limit.
    pub bytes: Option<u64>,
    /// Longest delay of a request. It must be shorter than the time for which clients wait for a reply.
    pub longest_delay: Duration,
}

impl Default for UserRateLimits {
    fn default() -> UserRateLimits {
        UserRateLimits { requests: None, bytes: None, longest_delay: Duration::from_secs(30) }
    }
}

/// The use of all users.
#[derive(Debug)]
pub struct ChargedUse {
    requests: Option<Mutex<UserRates>>,
    bytes: Option<Mutex<UserRates>>,
    counters: Arc<StoreCounters>,
}

impl ChargedUse {
    /// `None` if nothing is limited.
    pub fn new(limits: &UserRateLimits, counters: &Arc<StoreCounters>) -> Option<ChargedUse> {
        let rates = |per_second: Option<u64>| {
            let per_second = per_second? as f64;
            let burst = per_second * BURST.as_secs_f64();
            Some(Mutex::new(UserRates::new(Rate {
                per_second,
                burst,
                longest_delay: limits.longest_delay,
            })))
        };
        let (requests, bytes) = (rates(limits.requests), rates(limits.bytes));
        let is_limited = requests.is_some() || bytes.is_some();
        is_limited.then(|| ChargedUse { requests, bytes, counters: counters.clone() })
    }

    /// Charges `requests` that came together, with `bytes` of contents. Returns the time for which they are to
    /// be delayed.
    pub fn take(&self, uid: u32, requests: usize, bytes: u64, now: Instant) -> Option<Duration> {
        let delay = |rates: &Option<Mutex<UserRates>>, cost: f64| {
            rates.as_ref().map_or(Duration::ZERO, |rates| rates.lock().take(uid, cost, now))
        };
        let delay = delay(&self.requests, requests as f64).max(match bytes {
            0 => Duration::ZERO,
            bytes => delay(&self.bytes, bytes as f64),
        });
        if delay.is_zero() {
            return None;
        }
        tracing::debug!(uid, ?delay, "a request is delayed: its user exceeds a rate");
        self.counters.delayed_requests.increment();
        self.counters.delay_us.add(delay.as_micros() as u64);
        Some(delay)
    }

    /// Charges a request that is carried out at once.
    pub fn charge_urgent(&self, uid: u32, now: Instant) {
        if let Some(rates) = &self.requests {
            rates.lock().take(uid, 1.0, now);
        }
    }

    /// Charges contents that were read by a request which was carried out.
    pub fn charge_read(&self, uid: u32, bytes: u64, now: Instant) {
        if let Some(rates) = &self.bytes {
            rates.lock().take(uid, bytes as f64, now);
        }
    }

    /// Gives back what was charged for contents that were not read.
    fn give_back(&self, uid: u32, bytes: u64) {
        if let Some(rates) = &self.bytes {
            rates.lock().give_back(uid, bytes as f64);
        }
    }
}

/// A data connection whose use is charged to a user.
#[derive(Clone, Debug)]
pub struct ChargedConnection {
    pub rates: Arc<ChargedUse>,
    pub uid: u32,
}

impl ChargedConnection {
    /// Charges a request, and waits until it may be carried out. `false`: the connection was shut down
    /// or closed meanwhile.
    pub fn take(&self, bytes: u64, fence: &Fence, stream: &Stream) -> io::Result<bool> {
        let now = Instant::now();
        let Some(delay) = self.rates.take(self.uid, 1, bytes, now) else {
            return Ok(true);
        };
        let due = now + delay;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if fence.is_shut_down() || stream.is_peer_gone()? {
                return Ok(false);
            }
            if left.is_zero() {
                return Ok(true);
            }
            std::thread::sleep(left.min(CHECK_INTERVAL));
        }
    }

    /// Corrects the charge of a read that returned less than it asked for.
    pub fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.rates.give_back(self.uid, bytes);
        }
    }
}

/// The number of requests, and the bytes of contents, that a request is charged for in advance; `None` if it
/// is not charged at all.
pub fn charge_of(request: &Request) -> Option<(usize, u64)> {
    let put_bytes = |request: &NameRequest| match request {
        NameRequest::PutFile { data, .. } => data.len() as u64,
        _ => 0,
    };
    let put_bytes_at = |operation: &PathOperation| match operation {
        PathOperation::Name(request) => put_bytes(request),
        PathOperation::Inode(_) | PathOperation::File(_) => 0,
    };
    match request {
        Request::Session(_) | Request::Admin(_) | Request::Peer(_) => None,
        Request::Name(request) => Some((1, put_bytes(request))),
        Request::Delegated(delegated) => Some((1, put_bytes(&delegated.request))),
        Request::Path(path) => Some((1, put_bytes_at(&path.operation))),
        Request::Batch(requests) => {
            let bytes = requests.iter().map(|request| match request {
                BatchRequest::Name(request) => put_bytes(request),
                BatchRequest::Inode(_) => 0,
                BatchRequest::Path(path) => put_bytes_at(&path.operation),
            });
            Some((requests.len(), bytes.sum()))
        }
        // Data connections charge contents themselves.
        Request::Inode(_) | Request::File(_) | Request::Lock(_) | Request::Data(_) => Some((1, 0)),
    }
}

/// Whether a request is carried out at once although its user exceeds a rate, so that the next ones are
/// delayed: others may wait for it, or leases end without it, or it frees something.
pub fn is_urgent(request: &Request) -> bool {
    match request {
        Request::Lock(request) => {
            !matches!(request, LockRequest::Acquire { .. } | LockRequest::Test { .. })
        }
        Request::File(request) => matches!(
            request,
            FileRequest::Close { .. }
                | FileRequest::CloseAll { .. }
                | FileRequest::AppendUnlock { .. }
                | FileRequest::RenewCapability { .. }
        ),
        _ => false,
    }
}

/// Contents of a file in a reply.
pub fn read_bytes(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::FileContents { data, .. } => Some(data.len() as u64),
        Reply::Tagged { reply, .. }
        | Reply::WithDirectory { reply, .. }
        | Reply::Delegating { reply, .. } => read_bytes(reply),
        _ => None,
    }
}
