//! Admission control: limits on connections, so that no user, and no unauthenticated peer, can
//! exhaust the connections that others need.

use crate::stream::Stream;
use forebay_protocol::Errno;
use forebay_protocol::identity::PeerIdentity;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limits on a daemon's connections.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Of root and of the daemon's own user: mounts, movers, other daemons.
    pub trusted: usize,
    /// Of all other users together.
    pub users: usize,
    /// Of one of them.
    pub user: usize,
    /// Of unauthenticated peers. A further one takes the place of the oldest. Peers whose proof is
    /// being verified do not count: when all hosts of a cluster connect at once, each has its turn.
    pub unauthenticated: usize,
    /// Of peers whose proof is being verified.
    pub authenticating: usize,
    /// Time for the handshake, from the beginning of the connection; on a Unix socket for the first
    /// message.
    pub handshake_timeout: Duration,
    /// Of connections for data, each with a thread.
    pub workers: usize,
    /// The same of one user that is not trusted.
    pub user_workers: usize,
    /// Requests of one user that is not trusted, per second, over all connections; further ones
    /// wait.
    pub request_rate: f64,
    /// Requests of such a user that may come at once after a pause.
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
            workers: 1024,
            user_workers: 128,
            request_rate: 50.0,
            request_burst: 2000.0,
        }
    }
}

/// The account that a connection is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// Root, or the daemon's own user.
    Trusted,
    /// Another user.
    User(u32),
}

impl From<&PeerIdentity> for Principal {
    fn from(peer: &PeerIdentity) -> Principal {
        if peer.trusted { Principal::Trusted } else { Principal::User(peer.uid) }
    }
}

/// A limit has been reached.
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
    /// Its proof is being verified.
    authenticating: bool,
}

/// The connections of one daemon, by numbers that grow with time.
#[derive(Debug)]
pub struct AdmissionControl {
    limits: ConnectionLimits,
    unauthenticated: BTreeMap<u64, Unauthenticated>,
    /// Of these, those whose proof is being verified.
    authenticating: usize,
    /// Connections on which no whole message has arrived, since when.
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

    /// Adds an unauthenticated connection. Returns the one that has to be closed instead.
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

    /// A whole message has arrived.
    pub fn note_message(&mut self, conn: u64) {
        if !self.silent.is_empty() {
            self.silent.remove(&conn);
        }
    }

    /// A connection's proof is being verified, or no longer.
    pub fn set_authenticating(&mut self, conn: u64, yes: bool) -> Result<(), LimitReached> {
        let max = self.limits.authenticating;
        if yes && self.authenticating >= max {
            return Err(LimitReached(format!(
                "{max} connections are being authenticated; try again"
            )));
        }
        if let Some(entry) = self.unauthenticated.get_mut(&conn)
            && entry.authenticating != yes
        {
            entry.authenticating = yes;
            if yes {
                self.authenticating += 1;
            } else {
                self.authenticating -= 1;
            }
        }
        Ok(())
    }

    fn remove_unauthenticated(&mut self, conn: u64) {
        if let Some(entry) = self.unauthenticated.remove(&conn)
            && entry.authenticating
        {
            self.authenticating -= 1;
        }
        debug_assert!(self.authenticating <= self.unauthenticated.len());
    }

    /// Admits a connection that has been authenticated. If a limit has been reached, it remains
    /// unauthenticated.
    pub fn admit(&mut self, conn: u64, principal: Principal) -> Result<(), LimitReached> {
        let trusted = self.count(Principal::Trusted);
        match principal {
            Principal::Trusted => {
                let max = self.limits.trusted;
                if trusted >= max {
                    return Err(LimitReached(format!(
                        "there are {max} connections of root and daemons; try again"
                    )));
                }
            }
            Principal::User(uid) => {
                let max = self.limits.user;
                if self.count(principal) >= max {
                    return Err(LimitReached(format!(
                        "user {uid} has {max} connections, the maximum for a user; end one"
                    )));
                }
                let max = self.limits.users;
                if self.admitted.len() - trusted >= max {
                    return Err(LimitReached(format!("users have {max} connections; try again")));
                }
            }
        }
        self.remove_unauthenticated(conn);
        if self.admitted.insert(conn, principal).is_none() {
            *self.counts.entry(principal).or_default() += 1;
        }
        debug_assert_eq!(self.counts.values().sum::<usize>(), self.admitted.len());
        Ok(())
    }

    /// Whether a connection has not been admitted yet.
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

    /// The connection whose time ends next.
    fn next(&self) -> Option<(u64, Instant)> {
        let unauthenticated = self.unauthenticated.first_key_value();
        let unauthenticated = unauthenticated.map(|(conn, entry)| (*conn, entry.since));
        let silent = self.silent.first_key_value();
        let silent = silent.map(|(conn, since)| (*conn, *since));
        unauthenticated.into_iter().chain(silent).min_by_key(|(conn, _)| *conn)
    }

    /// When the next handshake times out.
    pub fn next_timeout(&self) -> Option<Instant> {
        let (_, since) = self.next()?;
        Some(since + self.limits.handshake_timeout)
    }

    /// A connection whose handshake has timed out; it counts no longer.
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
        assert!(*count > 0, "a principal without connections is not kept");
        *count -= 1;
        if *count == 0 {
            counts.remove(&principal);
        }
    }
}

/// Threads for connections that carry data.
#[derive(Clone, Debug)]
pub struct WorkerPermits {
    limits: ConnectionLimits,
    counts: Arc<Mutex<HashMap<Principal, usize>>>,
}

/// Permission for one of them, until it is dropped.
#[derive(Debug)]
pub struct WorkerPermit {
    permits: WorkerPermits,
    principal: Principal,
}

impl WorkerPermits {
    /// All are free.
    pub fn new(limits: ConnectionLimits) -> WorkerPermits {
        WorkerPermits { limits, counts: Arc::default() }
    }

    /// The number in use.
    pub fn in_use(&self) -> usize {
        self.counts.lock().values().sum()
    }

    fn is_within(&self, counts: &HashMap<Principal, usize>, principal: Principal) -> bool {
        let own = counts.get(&principal).copied().unwrap_or(0);
        let all: usize = counts.values().sum();
        all < self.limits.workers
            && (principal == Principal::Trusted || own < self.limits.user_workers)
    }

    /// Whether there is one for this principal.
    pub fn is_free(&self, principal: Principal) -> bool {
        self.is_within(&self.counts.lock(), principal)
    }

    /// Takes one, if there is one.
    pub fn take(&self, principal: Principal) -> Option<WorkerPermit> {
        let mut counts = self.counts.lock();
        if !self.is_within(&counts, principal) {
            return None;
        }
        *counts.entry(principal).or_default() += 1;
        Some(WorkerPermit { permits: self.clone(), principal })
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        release(&mut self.permits.counts.lock(), self.principal);
    }
}

/// Users whose request budgets are kept before idle ones are evicted.
const MAX_BUDGETS: usize = 1024;

/// A token bucket.
#[derive(Debug)]
struct RequestBudget {
    /// Negative for a user who has requested more, and waits.
    left: f64,
    at: Instant,
}

impl RequestBudget {
    fn refill(&mut self, limits: &ConnectionLimits, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * limits.request_rate).min(limits.request_burst);
        self.at = now;
    }

    /// The delay of a request of this cost.
    fn draw(&mut self, limits: &ConnectionLimits, now: Instant, cost: f64) -> Duration {
        self.refill(limits, now);
        self.left -= cost;
        Duration::try_from_secs_f64(-self.left / limits.request_rate).unwrap_or_default()
    }
}

#[derive(Debug)]
struct Shared {
    control: AdmissionControl,
    /// Of connections that have not been admitted.
    streams: BTreeMap<u64, Arc<Stream>>,
    budgets: HashMap<u32, RequestBudget>,
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
        SharedAdmission(Arc::new(Mutex::new(Shared {
            control: AdmissionControl::new(limits),
            streams: BTreeMap::new(),
            budgets: HashMap::new(),
            next: 0,
        })))
    }

    /// Adds a connection that may have to be closed before it is authenticated.
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
    /// The peer's proof is going to be verified.
    pub fn set_authenticating(&self) -> Result<(), LimitReached> {
        let mut shared = self.admission.0.lock();
        shared.control.set_authenticating(self.conn, true)
    }

    /// The peer has been authenticated.
    pub fn admit(&self, principal: Principal) -> Result<(), LimitReached> {
        let mut shared = self.admission.0.lock();
        if shared.control.principal(self.conn).is_none() {
            shared.control.admit(self.conn, principal)?;
            shared.streams.remove(&self.conn);
        }
        Ok(())
    }

    /// The delay of a request, so that no user exhausts the daemon. A simple request costs 1.
    pub fn request_delay(&self, cost: f64) -> Duration {
        let mut shared = self.admission.0.lock();
        let Some(Principal::User(uid)) = shared.control.principal(self.conn) else {
            return Duration::ZERO;
        };
        let now = Instant::now();
        let Shared { control, budgets, .. } = &mut *shared;
        let limits = &control.limits;
        if budgets.len() >= MAX_BUDGETS {
            budgets.retain(|_, budget| {
                budget.refill(limits, now);
                budget.left < limits.request_burst
            });
        }
        let new = || RequestBudget { left: limits.request_burst, at: now };
        budgets.entry(uid).or_insert_with(new).draw(limits, now, cost)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut shared = self.admission.0.lock();
        shared.control.remove(self.conn);
        shared.streams.remove(&self.conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::os::unix::net::UnixStream;

    fn small() -> ConnectionLimits {
        ConnectionLimits {
            trusted: 3,
            users: 4,
            user: 3,
            unauthenticated: 2,
            authenticating: 4,
            workers: 3,
            user_workers: 2,
            request_rate: 10.0,
            request_burst: 20.0,
            ..ConnectionLimits::default()
        }
    }

    fn connect(admission: &SharedAdmission) -> (ConnectionPermit, Stream) {
        let (near, far) = UnixStream::pair().unwrap();
        (admission.add(&Arc::new(Stream::Unix(near))), Stream::Unix(far))
    }

    #[test]
    fn oldest_unauthenticated_connection_is_replaced_and_handshakes_time_out() {
        let mut control = AdmissionControl::new(small());
        let begun = Instant::now();
        let later = |seconds| begun + Duration::from_secs(seconds);
        let user = Principal::User(7);
        assert_eq!(control.add(1, later(0)), None);
        assert_eq!(control.add(2, later(1)), None);
        assert_eq!(control.add(3, later(2)), Some(1));
        control.admit(3, user).unwrap();
        assert!(!control.is_unauthenticated(3) && control.is_unauthenticated(2));
        control.note_message(2);
        assert_eq!(control.take_timed_out(later(10)), None);
        assert_eq!(control.take_timed_out(later(11)), Some(2));
        assert_eq!(control.take_timed_out(later(11)), None);
        assert_eq!(control.take_timed_out(later(12)), Some(3), "no message has arrived");
        assert_eq!(control.next_timeout(), None);
        assert_eq!(control.add(4, later(13)), None);
        control.note_message(4);
        control.admit(4, user).unwrap();
        assert_eq!(control.next_timeout(), None, "admitted connections may idle");
    }

    #[test]
    fn connections_being_verified_are_not_replaced() {
        let mut control = AdmissionControl::new(small());
        let now = Instant::now();
        for conn in 1..5 {
            assert_eq!(control.add(conn, now), None);
            control.set_authenticating(conn, true).unwrap();
        }
        assert_eq!(control.add(5, now), None);
        assert_eq!(control.add(6, now), None);
        let full = control.set_authenticating(6, true).unwrap_err();
        assert!(full.to_string().contains("4 connections"), "{full}");
        assert_eq!(control.add(7, now), Some(5));
        // Its proof was refused.
        control.set_authenticating(1, false).unwrap();
        assert_eq!(control.add(8, now), Some(1));
        control.remove(2);
        control.admit(6, Principal::Trusted).unwrap();
        assert_eq!(control.add(9, now), Some(7));
        assert_eq!(control.take_timed_out(now + Duration::from_secs(11)), Some(3));
    }

    #[test]
    fn user_at_its_limit_is_refused_and_others_are_admitted() {
        let mut control = AdmissionControl::new(small());
        let user = Principal::User;
        for conn in 0..3 {
            control.admit(conn, user(7)).unwrap();
        }
        let refused = control.admit(3, user(7)).unwrap_err();
        assert!(refused.to_string().contains("user 7 has 3 connections"));
        assert_eq!(Errno::from(refused), Errno::EMFILE);
        control.admit(4, user(8)).unwrap();
        assert!(control.admit(5, user(9)).is_err(), "users have all of theirs");
        control.admit(6, Principal::Trusted).unwrap();
        control.remove(0);
        control.remove(0);
        control.admit(7, user(7)).unwrap();
        assert!(control.admit(8, user(9)).is_err());
        assert_eq!(control.principal(7), Some(user(7)));
        control.admit(9, Principal::Trusted).unwrap();
        control.admit(10, Principal::Trusted).unwrap();
        assert!(control.admit(11, Principal::Trusted).is_err());
    }

    #[test]
    fn worker_permit_is_free_again_when_dropped() {
        let permits = WorkerPermits::new(small());
        let user = Principal::User;
        let first = permits.take(user(7)).unwrap();
        let _second = permits.take(user(7)).unwrap();
        assert!(permits.take(user(7)).is_none() && !permits.is_free(user(7)));
        let _root = permits.take(Principal::Trusted).unwrap();
        assert!(permits.take(user(8)).is_none(), "three in all");
        drop(first);
        assert_eq!(permits.in_use(), 2);
        assert!(permits.is_free(user(7)) && permits.is_free(user(8)));
    }

    #[test]
    fn socket_of_the_oldest_unauthenticated_connection_is_shut_down() {
        let admission = SharedAdmission::new(small());
        let (_first, closed) = connect(&admission);
        let (second, _there) = connect(&admission);
        second.admit(Principal::User(7)).unwrap();
        // One whose proof is being verified does not count.
        let (verifying, _there) = connect(&admission);
        verifying.set_authenticating().unwrap();
        let (_third, _there) = connect(&admission);
        let (_fourth, _there) = connect(&admission);
        let mut descriptors = VecDeque::new();
        assert_eq!(closed.receive(&mut [0], &mut descriptors).unwrap(), 0);
        second.admit(Principal::User(7)).unwrap();
    }

    #[test]
    fn requests_beyond_the_rate_are_delayed() {
        let begun = Instant::now();
        let limits = small();
        let mut budget = RequestBudget { left: limits.request_burst, at: begun };
        let delays: Vec<u128> =
            (0..22).map(|_| budget.draw(&limits, begun, 1.0).as_millis()).collect();
        assert_eq!(delays[19..], [0, 100, 200]);
        let later = begun + Duration::from_secs(1);
        assert_eq!(budget.draw(&limits, later, 8.0), Duration::ZERO);
        assert_eq!(budget.draw(&limits, later, 5.0).as_millis(), 500);
        // Other users and root are not delayed.
        let admission = SharedAdmission::new(limits);
        let admit = |principal| {
            let (permit, _) = connect(&admission);
            permit.admit(principal).unwrap();
            permit
        };
        let one = admit(Principal::User(7));
        let other = admit(Principal::User(8));
        let root = admit(Principal::Trusted);
        assert_eq!(one.request_delay(20.0), Duration::ZERO);
        assert!(one.request_delay(20.0) > Duration::from_secs(1));
        assert_eq!(other.request_delay(1.0), Duration::ZERO);
        assert_eq!(root.request_delay(1e9), Duration::ZERO);
    }
}
