//! Who may keep connections open: no user, and nobody who does not say who it is, gets so many that
//! others get none.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_wire::stream::Stream;

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
}

impl Limits {
    /// What a daemon allows.
    pub const USUAL: Limits = Limits {
        known: 8192,
        users: 4096,
        user: 256,
        strangers: 256,
    };
}

/// For whom a connection counts; `None` for those who are trusted.
pub type Guest = Option<u32>;

#[derive(Default)]
struct State {
    strangers: BTreeMap<u64, Arc<Stream>>,
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
            *state.counts.entry(guest).or_default() += 1;
            state.known += 1;
            self.guest = Some(guest);
        }
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.doors.lock();
        state.strangers.remove(&self.number);
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
        let (_third, _) = come(&doors);
        let (_fourth, _) = come(&doors);
        let mut descriptors = VecDeque::new();
        assert_eq!(ended.receive(&mut [0], &mut descriptors).unwrap(), 0);
        second.admit(Some(7)).unwrap();
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
