//! Who may keep connections open: no user, and nobody who does not say who it is, gets so many that
//! others get none.

use crate::node::ConnId;
use forebay_protocol::Errno;
use forebay_protocol::identity::PeerIdentity;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many connections there may be.
#[derive(Clone, Debug)]
pub struct DoorLimits {
    /// Of root and of the daemon's own user: mounts, movers, other daemons.
    pub trusted: usize,
    /// Of all other users together.
    pub users: usize,
    /// Of one of them. Further ones are refused with `EMFILE`.
    pub user: usize,
    /// Of those who have not said yet who they are, on TCP. A further one takes the place of the
    /// oldest. Those whose proof is being looked at are not among them: when all hosts of a cluster
    /// come at once, each has its turn.
    pub strangers: usize,
    /// How long they have for it, from the beginning of the connection; and all others for their
    /// first message.
    pub greeting: Duration,
    /// For bulk data, each with a thread. Further ones are refused with `EAGAIN`.
    pub bulk: usize,
    /// The same of one user that is not trusted.
    pub bulk_user: usize,
}

impl Default for DoorLimits {
    fn default() -> DoorLimits {
        DoorLimits {
            trusted: 16_384,
            users: 4096,
            user: 512,
            strangers: 512,
            greeting: Duration::from_secs(10),
            bulk: 1024,
            bulk_user: 128,
        }
    }
}

/// For whom a connection counts; `None` for those who are trusted.
pub type Guest = Option<u32>;

/// For whom a connection of `peer` counts.
pub fn guest(peer: &PeerIdentity) -> Guest {
    (!peer.trusted).then_some(peer.uid)
}

#[derive(Debug)]
struct Stranger {
    since: Instant,
    /// Its proof is being looked at.
    proving: bool,
}

/// The connections of the event loop.
#[derive(Debug)]
pub struct Doors {
    limits: DoorLimits,
    /// Those that nobody answers for. Numbers grow with time.
    strangers: BTreeMap<ConnId, Stranger>,
    /// How many of them have given no proof.
    silent: usize,
    /// Those that have not said anything whole yet, since when.
    mute: BTreeMap<ConnId, Instant>,
    guests: HashMap<ConnId, Guest>,
    counts: HashMap<Guest, usize>,
}

impl Doors {
    pub fn new(limits: DoorLimits) -> Doors {
        Doors {
            limits,
            strangers: BTreeMap::new(),
            silent: 0,
            mute: BTreeMap::new(),
            guests: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Someone came. Returns the connection that has to go instead.
    pub fn arrive(&mut self, conn: ConnId, now: Instant) -> Option<ConnId> {
        let stranger = Stranger {
            since: now,
            proving: false,
        };
        self.strangers.insert(conn, stranger);
        self.mute.insert(conn, now);
        self.silent += 1;
        if self.silent <= self.limits.strangers {
            return None;
        }
        let mut silent = self.strangers.iter().filter(|(_, s)| !s.proving);
        let oldest = silent.next().map(|(conn, _)| *conn)?;
        self.mute.remove(&oldest);
        self.remove_stranger(oldest);
        Some(oldest)
    }

    /// A whole message has come.
    pub fn spoke(&mut self, conn: ConnId) {
        if !self.mute.is_empty() {
            self.mute.remove(&conn);
        }
    }

    /// A stranger's proof is being looked at, or has been.
    pub fn proving(&mut self, conn: ConnId, proving: bool) {
        if let Some(stranger) = self.strangers.get_mut(&conn)
            && stranger.proving != proving
        {
            stranger.proving = proving;
            if proving {
                self.silent -= 1;
            } else {
                self.silent += 1;
            }
        }
    }

    fn remove_stranger(&mut self, conn: ConnId) {
        if let Some(stranger) = self.strangers.remove(&conn)
            && !stranger.proving
        {
            self.silent -= 1;
        }
    }

    /// It is known now who came. `EMFILE` if that is one too many; it remains a stranger then.
    pub fn admit(&mut self, conn: ConnId, guest: Guest) -> Result<(), Errno> {
        let trusted = self.count(None);
        let full = match guest {
            None => trusted >= self.limits.trusted,
            Some(_) => {
                self.count(guest) >= self.limits.user
                    || self.guests.len() - trusted >= self.limits.users
            }
        };
        if full {
            return Err(Errno::EMFILE);
        }
        self.remove_stranger(conn);
        if self.guests.insert(conn, guest).is_none() {
            *self.counts.entry(guest).or_default() += 1;
        }
        Ok(())
    }

    /// Is it not known yet who that is?
    pub fn is_stranger(&self, conn: ConnId) -> bool {
        self.strangers.contains_key(&conn)
    }

    /// For whom a connection counts that was admitted.
    pub fn guest(&self, conn: ConnId) -> Option<Guest> {
        self.guests.get(&conn).copied()
    }

    /// A connection has gone.
    pub fn left(&mut self, conn: ConnId) {
        self.mute.remove(&conn);
        self.remove_stranger(conn);
        if let Some(guest) = self.guests.remove(&conn) {
            release(&mut self.counts, guest);
        }
    }

    /// Whose time ends next: that of the oldest of those who have to say something.
    fn next(&self) -> Option<(ConnId, Instant)> {
        let stranger = self.strangers.first_key_value();
        let stranger = stranger.map(|(conn, stranger)| (*conn, stranger.since));
        let mute = self.mute.first_key_value();
        let mute = mute.map(|(conn, since)| (*conn, *since));
        stranger
            .into_iter()
            .chain(mute)
            .min_by_key(|(conn, _)| *conn)
    }

    /// When that is.
    pub fn due(&self) -> Option<Instant> {
        let (_, since) = self.next()?;
        Some(since + self.limits.greeting)
    }

    /// A connection whose time has ended.
    pub fn overdue(&mut self, now: Instant) -> Option<ConnId> {
        if self.due()? > now {
            return None;
        }
        let (conn, _) = self.next()?;
        self.mute.remove(&conn);
        self.remove_stranger(conn);
        Some(conn)
    }

    fn count(&self, guest: Guest) -> usize {
        self.counts.get(&guest).copied().unwrap_or(0)
    }
}

fn release(counts: &mut HashMap<Guest, usize>, guest: Guest) {
    if let Some(count) = counts.get_mut(&guest) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&guest);
        }
    }
}

/// Threads for bulk connections.
#[derive(Clone, Debug)]
pub struct Seats {
    limits: DoorLimits,
    counts: Arc<Mutex<HashMap<Guest, usize>>>,
}

/// One of them; free again when it is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Seats,
    guest: Guest,
}

impl Seats {
    pub fn new(limits: DoorLimits) -> Seats {
        Seats {
            limits,
            counts: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Guest, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.lock().values().sum()
    }

    fn room(&self, counts: &HashMap<Guest, usize>, guest: Guest) -> bool {
        let own = counts.get(&guest).copied().unwrap_or(0);
        let in_all: usize = counts.values().sum();
        in_all < self.limits.bulk && (guest.is_none() || own < self.limits.bulk_user)
    }

    /// Is there one for this guest?
    pub fn is_free(&self, guest: Guest) -> bool {
        self.room(&self.lock(), guest)
    }

    /// Take one, if there is one.
    pub fn take(&self, guest: Guest) -> Option<Seat> {
        let mut counts = self.lock();
        if !self.room(&counts, guest) {
            return None;
        }
        *counts.entry(guest).or_default() += 1;
        Some(Seat {
            seats: self.clone(),
            guest,
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        release(&mut self.seats.lock(), self.guest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> DoorLimits {
        DoorLimits {
            trusted: 3,
            users: 4,
            user: 3,
            strangers: 2,
            bulk: 3,
            bulk_user: 2,
            ..DoorLimits::default()
        }
    }

    #[test]
    fn the_oldest_stranger_makes_room_and_time_ends() {
        let mut doors = Doors::new(small());
        let begun = Instant::now();
        let later = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(doors.arrive(ConnId(1), later(0)), None);
        assert_eq!(doors.arrive(ConnId(2), later(1)), None);
        assert_eq!(doors.arrive(ConnId(3), later(2)), Some(ConnId(1)));
        doors.admit(ConnId(3), Some(7)).unwrap();
        assert!(!doors.is_stranger(ConnId(3)) && doors.is_stranger(ConnId(2)));
        doors.spoke(ConnId(2));
        assert_eq!(doors.overdue(later(10)), None);
        assert_eq!(doors.overdue(later(11)), Some(ConnId(2)));
        assert_eq!(doors.overdue(later(11)), None);
        assert_eq!(
            doors.overdue(later(12)),
            Some(ConnId(3)),
            "nothing was said"
        );
        assert_eq!(doors.due(), None);
        assert_eq!(doors.arrive(ConnId(4), later(13)), None);
        doors.spoke(ConnId(4));
        doors.admit(ConnId(4), Some(7)).unwrap();
        assert_eq!(doors.due(), None, "who is known has all the time");
    }

    #[test]
    fn whose_proof_is_looked_at_has_a_turn() {
        let mut doors = Doors::new(small());
        let now = Instant::now();
        for conn in 1..5 {
            assert_eq!(doors.arrive(ConnId(conn), now), None);
            doors.proving(ConnId(conn), true);
        }
        assert_eq!(doors.arrive(ConnId(5), now), None);
        assert_eq!(doors.arrive(ConnId(6), now), None);
        assert_eq!(doors.arrive(ConnId(7), now), Some(ConnId(5)));
        // The proof was not good.
        doors.proving(ConnId(1), false);
        assert_eq!(doors.arrive(ConnId(8), now), Some(ConnId(1)));
        doors.left(ConnId(2));
        doors.admit(ConnId(6), None).unwrap();
        assert_eq!(doors.arrive(ConnId(9), now), Some(ConnId(7)));
        assert_eq!(
            doors.overdue(now + Duration::from_secs(11)),
            Some(ConnId(3))
        );
    }

    #[test]
    fn nobody_takes_all() {
        let mut doors = Doors::new(small());
        for conn in 0..3 {
            doors.admit(ConnId(conn), Some(7)).unwrap();
        }
        assert_eq!(doors.admit(ConnId(3), Some(7)), Err(Errno::EMFILE));
        doors.admit(ConnId(4), Some(8)).unwrap();
        assert_eq!(doors.admit(ConnId(5), Some(9)), Err(Errno::EMFILE));
        // All that users may have is taken, and root gets in.
        doors.admit(ConnId(6), None).unwrap();
        doors.left(ConnId(0));
        doors.left(ConnId(0));
        doors.admit(ConnId(7), Some(7)).unwrap();
        assert_eq!(doors.admit(ConnId(8), Some(9)), Err(Errno::EMFILE));
        assert_eq!(doors.guest(ConnId(7)), Some(Some(7)));
    }

    #[test]
    fn a_seat_is_free_again_when_it_is_left() {
        let seats = Seats::new(small());
        let first = seats.take(Some(7)).unwrap();
        let _second = seats.take(Some(7)).unwrap();
        assert!(seats.take(Some(7)).is_none() && !seats.is_free(Some(7)));
        let _root = seats.take(None).unwrap();
        assert!(seats.take(Some(8)).is_none(), "three in all");
        drop(first);
        assert_eq!(seats.taken(), 2);
        assert!(seats.is_free(Some(7)) && seats.is_free(Some(8)));
    }
}
