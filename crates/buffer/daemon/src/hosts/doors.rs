//! Who may keep connections open: no user, and nobody who does not say who it is, gets so many that
//! others get none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_net::stream::Stream;

use super::server::hang_up;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In all, of those who are known.
    pub known: usize,
    /// Of all who are not root or what root has started.
    pub users: usize,
    /// Of one of those users.
    pub user: usize,
    /// Of those who have not said yet who they are. A further one takes the place of the oldest.
    pub strangers: usize,
    /// Of those whose proof is being looked at, besides: when all hosts of a cluster come at once,
    /// each has its turn.
    pub proving: usize,
    /// What one of those users may ask for in a second, over all connections; who asks for more
    /// waits. In units of a request.
    pub rate: f64,
    /// What may be asked for at once after a while without asking.
    pub burst: f64,
}

impl Limits {
    /// What a daemon allows.
    pub const USUAL: Limits = Limits {
        known: 8192,
        users: 4096,
        user: 256,
        strangers: 512,
        proving: 2048,
        rate: 50.0,
        burst: 2000.0,
    };
}

/// For whom a connection counts; `None` for those who are trusted.
pub type Guest = Option<u32>;

/// Users whose asking is remembered before those who have not asked for a while are forgotten.
const MANY: usize = 1024;

/// How much a user may ask for.
struct Budget {
    /// Below nothing for who has asked for more, and waits.
    left: f64,
    at: Instant,
}

impl Budget {
    fn refill(&mut self, limits: &Limits, now: Instant) {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * limits.rate).min(limits.burst);
        self.at = now;
    }

    /// How long to wait before something is done that costs so much.
    fn draw(&mut self, limits: &Limits, now: Instant, cost: f64) -> Duration {
        self.refill(limits, now);
        self.left -= cost;
        Duration::try_from_secs_f64(-self.left / limits.rate).unwrap_or_default()
    }
}

#[derive(Default)]
struct State {
    budgets: HashMap<u32, Budget>,
    strangers: BTreeMap<u64, Arc<Stream>>,
    proving: BTreeSet<u64>,
    counts: HashMap<Guest, usize>,
    known: usize,
    next: u64,
}

/// The connections of one daemon.
#[derive(Clone)]
pub struct Doors {
    limits: Limits,
    state: Arc<Mutex<State>>,
}

/// One connection's place among them, until it is dropped.
pub struct Ticket {
    doors: Doors,
    number: u64,
    guest: Option<Guest>,
}

impl Doors {
    /// Nobody is here yet.
    pub fn new(limits: Limits) -> Doors {
        Doors {
            limits,
            state: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Someone came, and may have to go again before it is known who that was.
    pub fn enter(&self, stream: &Arc<Stream>) -> Ticket {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.strangers.insert(number, stream.clone());
        if state.strangers.len() > self.limits.strangers
            && let Some((_, oldest)) = state.strangers.pop_first()
        {
            tracing::warn!("too many connections that do not say whose they are: one is closed");
            hang_up(&oldest);
        }
        Ticket {
            doors: self.clone(),
            number,
            guest: None,
        }
    }
}

impl Ticket {
    /// A proof has come and is going to be looked at. Fails, with the reason, if too many are.
    pub fn proving(&mut self) -> Result<(), String> {
        let limits = self.doors.limits;
        let mut state = self.doors.lock();
        if state.proving.len() >= limits.proving {
            let most = limits.proving;
            return Err(format!("{most} others are proving who they are; try again"));
        }
        state.strangers.remove(&self.number);
        state.proving.insert(self.number);
        Ok(())
    }

    /// It is known now for whom the connection is. Fails, with the reason, if that is one too many.
    pub fn admit(&mut self, guest: Guest) -> Result<(), String> {
        let limits = self.doors.limits;
        let mut state = self.doors.lock();
        let of = |guest| state.counts.get(&guest).copied().unwrap_or(0);
        if state.known >= limits.known {
            return Err(format!("there are {} connections; try again", limits.known));
        }
        if let Some(uid) = guest {
            if of(guest) >= limits.user {
                let most = limits.user;
                return Err(format!(
                    "user {uid} has {most} connections, the most a user may have; end one"
                ));
            }
            if state.known - of(None) >= limits.users {
                let most = limits.users;
                return Err(format!("users have {most} connections; try again"));
            }
        }
        if self.guest.is_none() {
            state.strangers.remove(&self.number);
            state.proving.remove(&self.number);
            *state.counts.entry(guest).or_default() += 1;
            state.known += 1;
            self.guest = Some(guest);
        }
        Ok(())
    }
}

impl Ticket {
    /// How long whoever asks must wait, so that no user keeps the daemon from all others. A
    /// request costs 1.
    pub fn pace(&self, cost: f64) -> Duration {
        let Some(Some(uid)) = self.guest else {
            return Duration::ZERO;
        };
        let (limits, now) = (self.doors.limits, Instant::now());
        let mut state = self.doors.lock();
        if state.budgets.len() >= MANY {
            state.budgets.retain(|_, budget| {
                budget.refill(&limits, now);
                budget.left < limits.burst
            });
        }
        let new = || Budget {
            left: limits.burst,
            at: now,
        };
        let budget = state.budgets.entry(uid).or_insert_with(new);
        budget.draw(&limits, now, cost)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.doors.lock();
        state.strangers.remove(&self.number);
        state.proving.remove(&self.number);
        if let Some(guest) = self.guest {
            state.known -= 1;
            if let Some(count) = state.counts.get_mut(&guest) {
                *count -= 1;
                if *count == 0 {
                    state.counts.remove(&guest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::os::unix::net::UnixStream;

    const SMALL: Limits = Limits {
        known: 4,
        users: 3,
        user: 2,
        strangers: 2,
        proving: 1,
        rate: 10.0,
        burst: 20.0,
    };

    fn come(doors: &Doors) -> (Ticket, Stream) {
        let (near, far) = UnixStream::pair().unwrap();
        (
            doors.enter(&Arc::new(Stream::Unix(near))),
            Stream::Unix(far),
        )
    }

    #[test]
    fn the_oldest_stranger_makes_room() {
        let doors = Doors::new(SMALL);
        let (_first, ended) = come(&doors);
        let (mut second, _there) = come(&doors);
        second.admit(Some(7)).unwrap();
        // One whose proof is being looked at is not among them, but not all can be.
        let (mut proving, _there) = come(&doors);
        proving.proving().unwrap();
        let (mut third, _) = come(&doors);
        assert!(third.proving().unwrap_err().contains("1 others"));
        let (_fourth, _) = come(&doors);
        let mut descriptors = VecDeque::new();
        assert_eq!(ended.receive(&mut [0], &mut descriptors).unwrap(), 0);
        second.admit(Some(7)).unwrap();
    }

    #[test]
    fn who_asks_too_much_waits() {
        let begun = Instant::now();
        let mut budget = Budget {
            left: SMALL.burst,
            at: begun,
        };
        let waits: Vec<u128> = (0..22)
            .map(|_| budget.draw(&SMALL, begun, 1.0).as_millis())
            .collect();
        assert_eq!(waits[19..], [0, 100, 200]);
        let later = begun + Duration::from_secs(1);
        assert_eq!(budget.draw(&SMALL, later, 8.0), Duration::ZERO);
        assert_eq!(budget.draw(&SMALL, later, 5.0).as_millis(), 500);
        // Others, and root, are not concerned.
        let doors = Doors::new(SMALL);
        let enter = |guest| {
            let (mut ticket, _) = come(&doors);
            ticket.admit(guest).unwrap();
            ticket
        };
        let (one, other, root) = (enter(Some(7)), enter(Some(8)), enter(None));
        assert_eq!(one.pace(20.0), Duration::ZERO);
        assert!(one.pace(20.0) > Duration::from_secs(1));
        assert_eq!(other.pace(1.0), Duration::ZERO);
        assert_eq!(root.pace(1e9), Duration::ZERO);
    }

    #[test]
    fn nobody_takes_all() {
        let doors = Doors::new(SMALL);
        let enter = |guest| {
            let (mut ticket, _) = come(&doors);
            ticket.admit(guest).map(|()| ticket)
        };
        let first = enter(Some(7)).unwrap();
        let _second = enter(Some(7)).unwrap();
        let reason = enter(Some(7)).err().unwrap();
        assert!(reason.contains("user 7 has 2 connections"), "{reason}");
        let _third = enter(Some(8)).unwrap();
        assert!(enter(Some(9)).is_err(), "users have all of theirs");
        let _root = enter(None).unwrap();
        drop(first);
        let _fourth = enter(Some(9)).unwrap();
        assert!(enter(None).is_err(), "there are four");
    }
}
