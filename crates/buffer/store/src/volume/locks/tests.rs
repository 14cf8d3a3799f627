//! The table beside a model that knows of every byte who has it.

use super::table::{LockGrant, LockResult, LockTable, SessionOwner};
use forebay_protocol::lock::{FileLock, HeldLock};
use forebay_protocol::{HandleId, Ino, LockOwner, SessionId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const BYTES: u64 = 12;

#[derive(Clone, Debug)]
enum Act {
    Lock {
        who: SessionOwner,
        ino: Ino,
        range: (u64, u64),
        exclusive: bool,
        handle: u64,
        waits: bool,
    },
    Unlock(SessionOwner, Ino, (u64, u64)),
    Close(SessionId, Ino, u64),
    /// One of the waits there are.
    Cancel(prop::sample::Index),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let kinds = prop_oneof![
        3 => (1u64..3).prop_map(LockOwner::Fcntl),
        1 => (1u64..3).prop_map(LockOwner::Flock),
    ];
    let who = ((1u64..4).prop_map(SessionId), kinds);
    let ino = (1u64..3).prop_map(Ino);
    let range = (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let lock = (
        who.clone(),
        ino.clone(),
        range.clone(),
        any::<bool>(),
        0u64..2,
        any::<bool>(),
    );
    let act = prop_oneof![
        6 => lock.prop_map(|(who, ino, range, exclusive, handle, waits)| Act::Lock {
            who, ino, range, exclusive, handle, waits,
        }),
        3 => (who, ino.clone(), range).prop_map(|(who, ino, range)| Act::Unlock(who, ino, range)),
        1 => ((1u64..4).prop_map(SessionId), ino, 0u64..2).prop_map(|(s, i, h)| Act::Close(s, i, h)),
        1 => any::<prop::sample::Index>().prop_map(Act::Cancel),
    ];
    prop::collection::vec(act, 0..60)
}

/// Who has each byte of each file, how, and by which handle.
type Bytes = BTreeMap<(Ino, u64, SessionOwner), (bool, u64)>;

#[derive(Clone, Debug)]
struct Wish {
    who: SessionOwner,
    ino: Ino,
    range: (u64, u64),
    exclusive: bool,
    handle: u64,
}

#[derive(Default)]
struct Model {
    bytes: Bytes,
    waits: BTreeMap<u64, Wish>,
}

impl Model {
    /// Who is in the way.
    fn against(&self, wish: &Wish) -> BTreeSet<SessionOwner> {
        let (start, end) = wish.range;
        let others = self
            .bytes
            .iter()
            .filter(|((ino, at, who), (exclusive, _))| {
                *ino == wish.ino
                    && (start..=end).contains(at)
                    && *who != wish.who
                    && who.1.is_same_family(wish.who.1)
                    && (*exclusive || wish.exclusive)
            });
        others.map(|((_, _, who), _)| *who).collect()
    }

    fn take(&mut self, wish: &Wish) {
        for at in wish.range.0..=wish.range.1 {
            let place = (wish.ino, at, wish.who);
            self.bytes.insert(place, (wish.exclusive, wish.handle));
        }
    }

    /// Does `from` wait for `to`, perhaps by way of others?
    fn waits_for(&self, from: &BTreeSet<SessionOwner>, to: SessionOwner) -> bool {
        let mut reached = from.clone();
        loop {
            let next = self
                .waits
                .values()
                .filter(|wish| reached.contains(&wish.who));
            let next: BTreeSet<SessionOwner> = next.flat_map(|wish| self.against(wish)).collect();
            let before = reached.len();
            reached.extend(next);
            if reached.len() == before {
                return reached.contains(&to);
            }
        }
    }
}

fn held(wish: &Wish) -> HeldLock {
    HeldLock {
        lock: FileLock {
            owner: wish.who.1,
            start: wish.range.0,
            end: wish.range.1,
            exclusive: wish.exclusive,
            pid: 0,
        },
        handle: HandleId(wish.handle),
    }
}

/// Nobody shares what is exclusive, and nobody waits for what is free.
fn check(table: &LockTable, model: &Model) {
    for ((ino, at, who), (exclusive, handle)) in &model.bytes {
        let mine = Wish {
            who: *who,
            ino: *ino,
            range: (*at, *at),
            exclusive: *exclusive,
            handle: *handle,
        };
        assert!(model.against(&mine).is_empty(), "{mine:?}");
    }
    for wish in model.waits.values() {
        assert!(!model.against(wish).is_empty(), "{wish:?} waits for nobody");
    }
    let kinds = [LockOwner::Fcntl(1), LockOwner::Flock(1)];
    let owners = (1..5).flat_map(|session| kinds.map(|owner| (SessionId(session), owner)));
    for who in owners {
        for (ino, at) in (1..3).flat_map(|ino| (0..BYTES).map(move |at| (Ino(ino), at))) {
            let probe = Wish {
                who,
                ino,
                range: (at, at),
                exclusive: true,
                handle: 0,
            };
            let found = table.conflict(who.0, ino, held(&probe).lock);
            assert_eq!(
                found.is_some(),
                !model.against(&probe).is_empty(),
                "{probe:?}"
            );
        }
    }
}

proptest! {
    #[test]
    fn the_table_gives_what_the_model_says(acts in acts()) {
        let (mut table, mut model) = (LockTable::default(), Model::default());
        for (ticket, act) in (0u64..).zip(acts) {
            let mut touched = None;
            match act {
                Act::Lock { who, ino, range, exclusive, handle, waits } => {
                    let wish = Wish { who, ino, range, exclusive, handle };
                    let against = model.against(&wish);
                    let answer = table.lock(who.0, ino, held(&wish), waits.then_some(ticket), false);
                    if against.is_empty() {
                        prop_assert_eq!(answer, LockResult::Granted);
                        model.take(&wish);
                        touched = Some(ino);
                    } else if !waits {
                        let LockResult::Conflict(session, lock) = answer else {
                            return Err(TestCaseError::fail(format!("{answer:?}")));
                        };
                        prop_assert!(against.contains(&(session, lock.owner)));
                    } else if model.waits_for(&against, who) {
                        prop_assert_eq!(answer, LockResult::Deadlock);
                    } else {
                        prop_assert_eq!(answer, LockResult::Waits);
                        let again = table.lock(who.0, ino, held(&wish), Some(ticket), false);
                        prop_assert_eq!(again, LockResult::Waits);
                        model.waits.insert(ticket, wish);
                    }
                }
                Act::Unlock(who, ino, range) => {
                    table.unlock(who, ino, range.0, range.1);
                    for at in range.0..=range.1 {
                        model.bytes.remove(&(ino, at, who));
                    }
                    touched = Some(ino);
                }
                Act::Close(session, ino, handle) => {
                    table.close(session, ino, HandleId(handle));
                    model.bytes.retain(|(of, _, who), (_, by)| {
                        !(*of == ino && who.0 == session && *by == handle)
                    });
                    model.waits.retain(|_, wish| {
                        !(wish.ino == ino && wish.who.0 == session && wish.handle == handle)
                    });
                    touched = Some(ino);
                }
                Act::Cancel(which) => {
                    let tickets: Vec<_> = model.waits.iter().map(|(t, w)| (*t, w.who.0)).collect();
                    if !tickets.is_empty() {
                        let (ticket, session) = tickets[which.index(tickets.len())];
                        prop_assert!(table.cancel(session, ticket));
                        prop_assert!(!table.cancel(session, ticket));
                        model.waits.remove(&ticket);
                    }
                }
            }
            if let Some(ino) = touched {
                let mut grants: Vec<LockGrant> = Vec::new();
                table.grant(ino, &mut grants);
                for grant in grants {
                    let wish = model.waits.remove(&grant.ticket).unwrap();
                    prop_assert_eq!((wish.who.0, wish.ino), (grant.session, ino));
                    prop_assert!(model.against(&wish).is_empty());
                    model.take(&wish);
                }
            }
            check(&table, &model);
        }
        // Nothing is left of those who have gone.
        for session in (1..4).map(SessionId) {
            for (ino, handle) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                table.close(session, Ino(ino), HandleId(handle));
            }
        }
        prop_assert!(table.is_empty());
    }
}

#[test]
fn what_is_held_back_is_given_in_the_end() {
    let mut table = LockTable::default();
    let wish = |session| Wish {
        who: (SessionId(session), LockOwner::Fcntl(1)),
        ino: Ino(1),
        range: (0, 5),
        exclusive: true,
        handle: 0,
    };
    let ask = |table: &mut LockTable, session, ticket, hold_back| {
        table.lock(
            SessionId(session),
            Ino(1),
            held(&wish(session)),
            ticket,
            hold_back,
        )
    };
    assert!(matches!(
        ask(&mut table, 1, None, true),
        LockResult::Conflict(..)
    ));
    assert_eq!(ask(&mut table, 1, Some(7), true), LockResult::Waits);
    assert_eq!(ask(&mut table, 3, Some(8), true), LockResult::Waits);
    assert!(table.is_held_back());
    // Its holder comes back, and gives it up again.
    assert_eq!(ask(&mut table, 2, None, false), LockResult::Granted);
    assert_eq!(table.grant_all(), []);
    assert!(!table.is_held_back());
    table.unlock((SessionId(2), LockOwner::Fcntl(1)), Ino(1), 0, 5);
    let mut grants = Vec::new();
    table.grant(Ino(1), &mut grants);
    let first = LockGrant {
        session: SessionId(1),
        ticket: 7,
    };
    assert_eq!(grants, [first]);
}

#[test]
fn a_session_has_its_limits() {
    let mut table = LockTable::default();
    let wish = |at| Wish {
        who: (SessionId(1), LockOwner::Fcntl(1)),
        ino: Ino(at / 8 + 1),
        range: (at, at),
        exclusive: at % 2 == 0,
        handle: 0,
    };
    let full = (0u64..1 << 20).find(|at| {
        let wish = wish(*at);
        table.lock(SessionId(1), wish.ino, held(&wish), None, false) == LockResult::Full
    });
    assert_eq!(full, Some(1 << 16));
    let other = Wish {
        who: (SessionId(2), LockOwner::Fcntl(1)),
        ..wish(0)
    };
    let waits = (0u64..1 << 20).find(|ticket| {
        table.lock(SessionId(2), other.ino, held(&other), Some(*ticket), false) == LockResult::Full
    });
    assert_eq!(waits, Some(1 << 12));
}
