//! Admission control: limits on connections and requests, so that neither a user nor an
//! unauthenticated peer can exhaust those that others need.

use crate::stream::Stream;
use crate::user_rates::{Rate, UserRates};
use forebay_protocol::{Errno, PeerIdentity};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time without a request after which a client closes a data connection instead of using it, well
/// before the daemon does: the outcome of a request that meets the close would be unknown.
pub const MAX_IDLE: Duration = Duration::from_secs(120);

/// Limits of a daemon's connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Connections of root and of the daemon's own user: mounts, movers, other daemons.
    pub trusted: usize,
    /// Connections of all other users together.
    pub users: usize,
    /// Connections of one of them.
    pub user: usize,
    /// Connections of unauthenticated peers. A further one replaces the oldest. Peers whose proof is
    /// being verified do not count, so that all hosts of a cluster can connect at once.
    pub unauthenticated: usize,
    /// Connections of peers whose proof is being verified.
    pub authenticating: usize,
    /// Timeout of the handshake; on a Unix socket, of the first message.
    pub handshake_timeout: Duration,
    /// Data connections, each with a thread.
    pub workers: usize,
    /// Data connections of one user that is not trusted.
    pub user_workers: usize,
    /// Time without a request after which a data connection is closed. Clients do not use one that
    /// has been idle for [`MAX_IDLE`].
    pub idle_timeout: Duration,
    /// Requests per second of one user that is not trusted, over all connections. Further ones are
    /// delayed.
    pub request_rate: f64,
    /// Requests of such a user that are not delayed after idle time.
    pub request_burst: f64,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            trusted: 16_384,
            users: 4096,
            user: 512,
            unauthenticated: 512,
            authenticating: 2048,
            handshake_timeout: Duration::from_secs(10),
            workers: 8192,
            user_workers: 128,
            idle_timeout: MAX_IDLE + Duration::from_secs(60),
            request_rate: 50.0,
            request_burst: 2000.0,
        }
    }
}

/// Longest delay of a request. Users whose jobs run on thousands of hosts, which ask at the same time,
/// exceed the rate instead: their other requests must not wait for minutes.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// The account to which a connection is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// Root, or the daemon's own user.
    Trusted,
    /// Another user.
    User(u32),
    /// Another user on a host, whose trusted agent has made the connection: the user's jobs may run on
    /// thousands of hosts.
    UserOnHost(u32, IpAddr),
}

impl Principal {
    /// The user who is not trusted.
    fn uid(self) -> Option<u32> {
        match self {
            Principal::Trusted => None,
            Principal::User(uid) | Principal::UserOnHost(uid, _) => Some(uid),
        }
    }
}

impl From<&PeerIdentity> for Principal {
    fn from(peer: &PeerIdentity) -> Principal {
        if peer.trusted { Principal::Trusted } else { Principal::User(peer.uid) }
    }
}

/// A limit is reached; the text names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached(String);

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LimitReached {}

impl From<LimitReached> for Errno {
    fn from(_: LimitReached) -> Errno {
        Errno::EMFILE
    }
}

#[derive(Debug)]
struct Unauthenticated {
    since: Instant,
    /// The peer's proof is being verified.
    authenticating: bool,
}

/// The connections of one daemon, by increasing numbers.
#[derive(Debug)]
pub struct AdmissionControl {
    limits: ConnectionLimits,
    unauthenticated: BTreeMap<u64, Unauthenticated>,
    /// Number of these that are being authenticated.
    authenticating: usize,
    /// Start of connections on which no whole message has arrived.
    silent: BTreeMap<u64, Instant>,
    admitted: HashMap<u64, Principal>,
    counts: HashMap<Principal, usize>,
}

impl AdmissionControl {
    /// Without connections.
    pub fn new(limits: ConnectionLimits) -> AdmissionControl {
        AdmissionControl {
            limits,
            unauthenticated: BTreeMap::new(),
            authenticating: 0,
            silent: BTreeMap::new(),
            admitted: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Adds an unauthenticated connection. Returns a connection to close, if there are too many.
    pub fn add(&mut self, conn: u64, now: Instant) -> Option<u64> {
        let entry = Unauthenticated { since: now, authenticating: false };
        let known = self.unauthenticated.insert(conn, entry);
        assert!(known.is_none(), "connection numbers are not reused");
        self.silent.insert(conn, now);
        if self.unauthenticated.len() - self.authenticating <= self.limits.unauthenticated {
            return None;
        }
        let mut waiting = self.unauthenticated.iter().filter(|(_, c)| !c.authenticating);
        let oldest = waiting.next().map(|(conn, _)| *conn)?;
        self.remove(oldest);
        Some(oldest)
    }

    /// Records that a whole message has arrived.
    pub fn note_message(&mut self, conn: u64) {
        if !self.silent.is_empty() {
            self.silent.remove(&conn);
        }
    }

    /// Records that a peer's proof is being verified.
    pub fn set_authenticating(&mut self, conn: u64) -> Result<(), LimitReached> {
        let max = self.limits.authenticating;
        if self.authenticating >= max {
            return Err(LimitReached(format!(
                "{max} connections are being authenticated; try again"
            )));
        }
        if let Some(entry) = self.unauthenticated.get_mut(&conn)
            && !std::mem::replace(&mut entry.authenticating, true)
        {
            self.authenticating += 1;
        }
        Ok(())
    }

    fn remove_unauthenticated(&mut self, conn: u64) {
        if let Some(entry) = self.unauthenticated.remove(&conn)
            && entry.authenticating
        {
            self.authenticating -= 1;
        }
        assert!(self.authenticating <= self.unauthenticated.len());
    }

    /// Admits an authenticated connection. If a limit is reached, the connection remains
    /// unauthenticated.
    pub fn admit(&mut self, conn: u64, principal: Principal) -> Result<(), LimitReached> {
        let ConnectionLimits { trusted, users, user, .. } = self.limits;
        let of_daemons = self.count(Principal::Trusted);
        let own = self.count(principal);
        let reached = match principal {
            Principal::Trusted if own >= trusted => {
                format!("there are {trusted} connections of root and daemons; try again")
            }
            Principal::User(uid) if own >= user => {
                format!("user {uid} has {user} connections, the maximum for a user; end one")
            }
            Principal::UserOnHost(uid, host) if own >= user => {
                format!("user {uid} has {user} connections from {host}, the maximum; end one")
            }
            Principal::User(_) | Principal::UserOnHost(..)
                if self.admitted.len() - of_daemons >= users =>
            {
                format!("users have {users} connections; try again")
            }
            Principal::Trusted | Principal::User(_) | Principal::UserOnHost(..) => String::new(),
        };
        if !reached.is_empty() {
            return Err(LimitReached(reached));
        }
        self.remove_unauthenticated(conn);
        if self.admitted.insert(conn, principal).is_none() {
            *self.counts.entry(principal).or_default() += 1;
        }
        debug_assert_eq!(self.counts.values().sum::<usize>(), self.admitted.len());
        Ok(())
    }

    /// Whether a connection is not admitted.
    pub fn is_unauthenticated(&self, conn: u64) -> bool {
        self.unauthenticated.contains_key(&conn)
    }

    /// The account of an admitted connection.
    pub fn principal(&self, conn: u64) -> Option<Principal> {
        self.admitted.get(&conn).copied()
    }

    /// Removes a closed connection.
    pub fn remove(&mut self, conn: u64) {
        self.silent.remove(&conn);
        self.remove_unauthenticated(conn);
        if let Some(principal) = self.admitted.remove(&conn) {
            release(&mut self.counts, principal);
        }
    }

    /// The connection with the next timeout.
    fn next(&self) -> Option<(u64, Instant)> {
        let unauthenticated = self.unauthenticated.first_key_value();
        let unauthenticated = unauthenticated.map(|(conn, entry)| (*conn, entry.since));
        let silent = self.silent.first_key_value();
        let silent = silent.map(|(conn, since)| (*conn, *since));
        unauthenticated.into_iter().chain(silent).min_by_key(|(conn, _)| *conn)
    }

    /// Time of the next handshake timeout.
    pub fn next_timeout(&self) -> Option<Instant> {
        let (_, since) = self.next()?;
        Some(since + self.limits.handshake_timeout)
    }

    /// Removes a connection whose handshake has timed out.
    pub fn take_timed_out(&mut self, now: Instant) -> Option<u64> {
        if self.next_timeout()? > now {
            return None;
        }
        let (conn, _) = self.next()?;
        self.silent.remove(&conn);
        self.remove_unauthenticated(conn);
        Some(conn)
    }

    fn count(&self, principal: Principal) -> usize {
        self.counts.get(&principal).copied().unwrap_or(0)
    }
}

fn release(counts: &mut HashMap<Principal, usize>, principal: Principal) {
    if let Some(count) = counts.get_mut(&principal) {
        assert!(*count > 0, "principals without connections are removed");
        *count -= 1;
        if *count == 0 {
            counts.remove(&principal);
        }
    }
}

/// Limits the threads of data connections.
#[derive(Clone, Debug)]
pub struct WorkerPermits {
    limits: ConnectionLimits,
    counts: Arc<Mutex<HashMap<Principal, usize>>>,
}

/// Permission for one thread, until it is dropped.
#[derive(Debug)]
pub struct WorkerPermit {
    permits: WorkerPermits,
    principal: Principal,
}

impl WorkerPermits {
    /// With all permits free.
    pub fn new(limits: ConnectionLimits) -> WorkerPermits {
        WorkerPermits { limits, counts: Arc::default() }
    }

    /// Number of permits in use.
    pub fn in_use(&self) -> usize {
        self.counts.lock().values().sum()
    }

    fn is_within(&self, counts: &HashMap<Principal, usize>, principal: Principal) -> bool {
        let own = counts.get(&principal).copied().unwrap_or(0);
        let all: usize = counts.values().sum();
        all < self.limits.workers
            && (principal == Principal::Trusted || own < self.limits.user_workers)
    }

    /// Whether a permit is free for this principal.
    pub fn is_free(&self, principal: Principal) -> bool {
        self.is_within(&self.counts.lock(), principal)
    }

    /// Takes a permit, if one is free.
    pub fn take(&self, principal: Principal) -> Option<WorkerPermit> {
        let mut counts = self.counts.lock();
        if !self.is_within(&counts, principal) {
            return None;
        }
        *counts.entry(principal).or_default() += 1;
        assert!(counts.values().sum::<usize>() <= self.limits.workers);
        Some(WorkerPermit { permits: self.clone(), principal })
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        release(&mut self.permits.counts.lock(), self.principal);
    }
}

#[derive(Debug)]
struct Shared {
    control: AdmissionControl,
    /// Connections that are not admitted.
    streams: BTreeMap<u64, Arc<Stream>>,
    rates: UserRates,
    next: u64,
}

/// [`AdmissionControl`] of a daemon that has a thread for each connection.
#[derive(Clone, Debug)]
pub struct SharedAdmission(Arc<Mutex<Shared>>);

/// One connection of such a daemon, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    admission: SharedAdmission,
    conn: u64,
}

impl SharedAdmission {
    /// Without connections.
    pub fn new(limits: ConnectionLimits) -> SharedAdmission {
        let rate = Rate {
            per_second: limits.request_rate,
            burst: limits.request_burst,
            longest_delay: LONGEST_DELAY,
        };
        SharedAdmission(Arc::new(Mutex::new(Shared {
            control: AdmissionControl::new(limits),
            streams: BTreeMap::new(),
            rates: UserRates::new(rate),
            next: 0,
        })))
    }

    /// Adds a connection, which is closed if many others connect before it is authenticated.
    pub fn add(&self, stream: &Arc<Stream>) -> ConnectionPermit {
        let mut shared = self.0.lock();
        let conn = shared.next;
        shared.next += 1;
        shared.streams.insert(conn, stream.clone());
        if let Some(oldest) = shared.control.add(conn, Instant::now())
            && let Some(oldest) = shared.streams.remove(&oldest)
        {
            oldest.shut_down();
        }
        ConnectionPermit { admission: self.clone(), conn }
    }
}

impl ConnectionPermit {
    /// Records that the peer's proof is being verified.
    pub fn set_authenticating(&self) -> Result<(), LimitReached> {
        let mut shared = self.admission.0.lock();
        shared.control.set_authenticating(self.conn)
    }

    /// Admits the authenticated peer.
    pub fn admit(&self, principal: Principal) -> Result<(), LimitReached> {
        let mut shared = self.admission.0.lock();
        if shared.control.principal(self.conn).is_none() {
            shared.control.admit(self.conn, principal)?;
            shared.streams.remove(&self.conn);
        }
        Ok(())
    }

    /// Delay of a request that arrives now, so that no user exhausts the daemon. A simple request
    /// costs 1.
    pub fn request_delay(&self, now: Instant, cost: f64) -> Duration {
        let mut shared = self.admission.0.lock();
        let principal = shared.control.principal(self.conn);
        let Some(uid) = principal.and_then(Principal::uid) else {
            return Duration::ZERO;
        };
        shared.rates.take(uid, cost, now)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut shared = self.admission.0.lock();
        shared.control.remove(self.conn);
        shared.streams.remove(&self.conn);
    }
}
