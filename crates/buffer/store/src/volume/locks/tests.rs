//! The table is compared with a model that stores the owners of every byte.

use super::table::{LockGrant, LockResult, LockTable, SessionOwner};
use forebay_protocol::lock::{FileLock, HeldLock};
use forebay_protocol::{HandleId, Ino, LockOwner, SessionId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const BYTES: u64 = 12;

#[derive(Clone, Debug)]
enum Act {
    Lock {
        owner: SessionOwner,
        ino: Ino,
        range: (u64, u64),
        exclusive: bool,
        handle: u64,
        waits: bool,
    },
    Unlock(SessionOwner, Ino, (u64, u64)),
    Close(SessionId, Ino, u64),
    /// Cancel one of the waits.
    Cancel(prop::sample::Index),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let kinds = prop_oneof![
        3 => (1u64..3).prop_map(LockOwner::Fcntl),
        1 => (1u64..3).prop_map(LockOwner::Flock),
    ];
    let owner = ((1u64..4).prop_map(SessionId), kinds);
    let ino = (1u64..3).prop_map(Ino);
    let range = (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let lock = (owner.clone(), ino.clone(), range.clone(), any::<bool>(), 0u64..2, any::<bool>());
    let act = prop_oneof![
        6 => lock.prop_map(|(owner, ino, range, exclusive, handle, waits)| Act::Lock {
            owner, ino, range, exclusive, handle, waits,
        }),
        3 => (owner, ino.clone(), range).prop_map(|(owner, ino, range)| Act::Unlock(owner, ino, range)),
        1 => ((1u64..4).prop_map(SessionId), ino, 0u64..2).prop_map(|(s, i, h)| Act::Close(s, i, h)),
        1 => any::<prop::sample::Index>().prop_map(Act::Cancel),
    ];
    prop::collection::vec(act, 0..60)
}

/// The locks on each byte of each file: exclusive or not, and by which handle.
type Bytes = BTreeMap<(Ino, u64, SessionOwner), (bool, u64)>;

#[derive(Clone, Debug)]
struct Wanted {
    owner: SessionOwner,
    ino: Ino,
    range: (u64, u64),
    exclusive: bool,
    handle: u64,
}

#[derive(Default)]
struct Model {
    bytes: Bytes,
    waits: BTreeMap<u64, Wanted>,
}

impl Model {
    /// The owners of conflicting locks.
    fn conflicts(&self, wanted: &Wanted) -> BTreeSet<SessionOwner> {
        let (start, end) = wanted.range;
        let others = self.bytes.iter().filter(|((ino, at, owner), (exclusive, _))| {
            *ino == wanted.ino
                && (start..=end).contains(at)
                && *owner != wanted.owner
                && owner.1.is_same_family(wanted.owner.1)
                && (*exclusive || wanted.exclusive)
        });
        others.map(|((_, _, owner), _)| *owner).collect()
    }

    fn take(&mut self, wanted: &Wanted) {
        for at in wanted.range.0..=wanted.range.1 {
            let place = (wanted.ino, at, wanted.owner);
            self.bytes.insert(place, (wanted.exclusive, wanted.handle));
        }
    }

    /// Whether an owner of `from` waits for `to`, perhaps through other owners.
    fn waits_for(&self, from: &BTreeSet<SessionOwner>, to: SessionOwner) -> bool {
        let mut reached = from.clone();
        loop {
            let next = self.waits.values().filter(|wanted| reached.contains(&wanted.owner));
            let next: BTreeSet<SessionOwner> =
                next.flat_map(|wanted| self.conflicts(wanted)).collect();
            let before = reached.len();
            reached.extend(next);
            if reached.len() == before {
                return reached.contains(&to);
            }
        }
    }
}

fn held(wanted: &Wanted) -> HeldLock {
    HeldLock {
        lock: FileLock {
            owner: wanted.owner.1,
            start: wanted.range.0,
            end: wanted.range.1,
            exclusive: wanted.exclusive,
            pid: 0,
        },
        handle: HandleId(wanted.handle),
    }
}

/// No locks conflict, and no lock waits without a conflict.
fn check(table: &LockTable, model: &Model) {
    for ((ino, at, owner), (exclusive, handle)) in &model.bytes {
        let mine = Wanted {
            owner: *owner,
            ino: *ino,
            range: (*at, *at),
            exclusive: *exclusive,
            handle: *handle,
        };
        assert!(model.conflicts(&mine).is_empty(), "{mine:?}");
    }
    for wanted in model.waits.values() {
        assert!(!model.conflicts(wanted).is_empty(), "{wanted:?} waits without a conflict");
    }
    let kinds = [LockOwner::Fcntl(1), LockOwner::Flock(1)];
    let owners = (1..5).flat_map(|session| kinds.map(|owner| (SessionId(session), owner)));
    for owner in owners {
        for (ino, at) in (1..3).flat_map(|ino| (0..BYTES).map(move |at| (Ino(ino), at))) {
            let probe = Wanted { owner, ino, range: (at, at), exclusive: true, handle: 0 };
            let found = table.conflict(owner.0, ino, held(&probe).lock);
            assert_eq!(found.is_some(), !model.conflicts(&probe).is_empty(), "{probe:?}");
        }
    }
}

proptest! {
    #[test]
    fn table_agrees_with_bytewise_model(acts in acts()) {
        let (mut table, mut model) = (LockTable::default(), Model::default());
        for (ticket, act) in (0u64..).zip(acts) {
            let mut touched = None;
            match act {
                Act::Lock { owner, ino, range, exclusive, handle, waits } => {
                    let wanted = Wanted { owner, ino, range, exclusive, handle };
                    let conflicts = model.conflicts(&wanted);
                    let answer = table.lock(owner.0, ino, held(&wanted), waits.then_some(ticket), false);
                    if conflicts.is_empty() {
                        prop_assert_eq!(answer, LockResult::Granted);
                        model.take(&wanted);
                        touched = Some(ino);
                    } else if !waits {
                        let LockResult::Conflict(session, lock) = answer else {
                            return Err(TestCaseError::fail(format!("{answer:?}")));
                        };
                        prop_assert!(conflicts.contains(&(session, lock.owner)));
                    } else if model.waits_for(&conflicts, owner) {
                        prop_assert_eq!(answer, LockResult::Deadlock);
                    } else {
                        prop_assert_eq!(answer, LockResult::Waits);
                        let again = table.lock(owner.0, ino, held(&wanted), Some(ticket), false);
                        prop_assert_eq!(again, LockResult::Waits);
                        model.waits.insert(ticket, wanted);
                    }
                }
                Act::Unlock(owner, ino, range) => {
                    table.unlock(owner, ino, range.0, range.1);
                    for at in range.0..=range.1 {
                        model.bytes.remove(&(ino, at, owner));
                    }
                    touched = Some(ino);
                }
                Act::Close(session, ino, handle) => {
                    table.close(session, ino, HandleId(handle));
                    model.bytes.retain(|(of, _, owner), (_, by)| {
                        !(*of == ino && owner.0 == session && *by == handle)
                    });
                    model.waits.retain(|_, wanted| {
                        !(wanted.ino == ino && wanted.owner.0 == session && wanted.handle == handle)
                    });
                    touched = Some(ino);
                }
                Act::Cancel(which) => {
                    let tickets: Vec<_> = model.waits.iter().map(|(t, w)| (*t, w.owner.0)).collect();
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
                    let wanted = model.waits.remove(&grant.ticket).unwrap();
                    prop_assert_eq!((wanted.owner.0, wanted.ino), (grant.session, ino));
                    prop_assert!(model.conflicts(&wanted).is_empty());
                    model.take(&wanted);
                }
            }
            check(&table, &model);
        }
        // Nothing is left after all handles are closed.
        for session in (1..4).map(SessionId) {
            for (ino, handle) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                table.close(session, Ino(ino), HandleId(handle));
            }
        }
        prop_assert!(table.is_empty());
    }
}

#[test]
fn lock_held_back_for_reclaim_is_granted_in_the_end() {
    let mut table = LockTable::default();
    let wanted = |session| Wanted {
        owner: (SessionId(session), LockOwner::Fcntl(1)),
        ino: Ino(1),
        range: (0, 5),
        exclusive: true,
        handle: 0,
    };
    let ask = |table: &mut LockTable, session, ticket, hold_back| {
        table.lock(SessionId(session), Ino(1), held(&wanted(session)), ticket, hold_back)
    };
    assert!(matches!(ask(&mut table, 1, None, true), LockResult::Conflict(..)));
    assert_eq!(ask(&mut table, 1, Some(7), true), LockResult::Waits);
    assert_eq!(ask(&mut table, 3, Some(8), true), LockResult::Waits);
    assert!(table.is_held_back());
    // Its holder reclaims it, and releases it.
    assert_eq!(ask(&mut table, 2, None, false), LockResult::Granted);
    assert_eq!(table.grant_all(), []);
    assert!(!table.is_held_back());
    table.unlock((SessionId(2), LockOwner::Fcntl(1)), Ino(1), 0, 5);
    let mut grants = Vec::new();
    table.grant(Ino(1), &mut grants);
    let first = LockGrant { session: SessionId(1), ticket: 7 };
    assert_eq!(grants, [first]);
}

#[test]
fn session_is_limited_in_ranges_and_waits() {
    let mut table = LockTable::default();
    let wanted = |at| Wanted {
        owner: (SessionId(1), LockOwner::Fcntl(1)),
        ino: Ino(at / 8 + 1),
        range: (at, at),
        exclusive: at % 2 == 0,
        handle: 0,
    };
    let full = (0u64..1 << 20).find(|at| {
        let wanted = wanted(*at);
        table.lock(SessionId(1), wanted.ino, held(&wanted), None, false) == LockResult::Full
    });
    assert_eq!(full, Some(1 << 16));
    let other = Wanted { owner: (SessionId(2), LockOwner::Fcntl(1)), ..wanted(0) };
    let waits = (0u64..1 << 20).find(|ticket| {
        table.lock(SessionId(2), other.ino, held(&other), Some(*ticket), false) == LockResult::Full
    });
    assert_eq!(waits, Some(1 << 12));
}

#[test]
fn closed_handle_cancels_its_wait_only_though_another_owner_has_the_same_ticket() {
    let mut table = LockTable::default();
    let wanted = |session, owner, ino, handle| Wanted {
        owner: (SessionId(session), LockOwner::Fcntl(owner)),
        ino: Ino(ino),
        range: (0, 5),
        exclusive: true,
        handle,
    };
    let lock = |table: &mut LockTable, wanted: Wanted, ticket| {
        table.lock(wanted.owner.0, wanted.ino, held(&wanted), ticket, false)
    };
    for ino in [1, 2] {
        let holder = wanted(9, 1, ino, ino);
        assert_eq!(lock(&mut table, holder, None), LockResult::Granted);
        let waiting = wanted(1, ino, ino, ino);
        assert_eq!(lock(&mut table, waiting, Some(7)), LockResult::Waits);
    }
    for ino in [2, 1] {
        assert!(table.close(SessionId(1), Ino(ino), HandleId(ino)));
        assert!(table.close(SessionId(9), Ino(ino), HandleId(ino)));
    }
    assert!(table.is_empty());
}
