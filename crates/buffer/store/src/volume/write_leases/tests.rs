use super::{Conflict, Ended, Granted, Holder, WriteLeases};
use forebay_protocol::message::{
    FIRST_WRITE_LEASE_SLOT as SLOT, MAX_WRITE_LEASES, WRITE_LEASE_RECALL_NS as RECALL_NS,
};
use forebay_protocol::{HandleId, Ino, LeaseId, SessionId};

const FILE: Ino = Ino(2);
const ONE: Holder = (SessionId(1), HandleId(1));
const OTHER: SessionId = SessionId(2);

fn grant(leases: &mut WriteLeases, holder: Holder, now_ns: u64, id: u128) -> Option<LeaseId> {
    leases.grant(FILE, holder, now_ns, || LeaseId(id)).map(|granted| granted.id)
}

fn recall(leases: &mut WriteLeases, session: SessionId, now_ns: u64) -> Option<Conflict> {
    leases.recall(FILE, Some(session), now_ns)
}

fn waits(until_ns: u64, is_first: bool) -> Option<Conflict> {
    Some(Conflict::Waits { until_ns, holder: ONE, id: LeaseId(1), is_first })
}

#[test]
fn lease_is_of_one_handle_and_does_not_expire_by_itself() {
    let mut leases = WriteLeases::default();
    assert_eq!(grant(&mut leases, ONE, 0, 1), Some(LeaseId(1)));
    assert_eq!(grant(&mut leases, (SessionId(1), HandleId(2)), 0, 2), None);
    assert_eq!(grant(&mut leases, ONE, 100 * RECALL_NS, 3), Some(LeaseId(1)));
    assert_eq!(recall(&mut leases, SessionId(1), 0), None, "the holder's own requests");
    assert_eq!(leases.recall(Ino(3), Some(OTHER), 0), None);
    let now_ns = 200 * RECALL_NS;
    assert_eq!(recall(&mut leases, OTHER, now_ns), waits(now_ns + RECALL_NS, true));
}

#[test]
fn recall_ends_in_time_unless_the_holder_extends_it() {
    let mut leases = WriteLeases::default();
    grant(&mut leases, ONE, 0, 1);
    assert_eq!(recall(&mut leases, OTHER, 0), waits(RECALL_NS, true));
    assert_eq!(recall(&mut leases, OTHER, 5), waits(RECALL_NS, false));
    assert_eq!(grant(&mut leases, ONE, 10, 2), None, "it is recalled");
    assert_eq!(recall(&mut leases, OTHER, RECALL_NS), waits(RECALL_NS + 10, false));
    assert!(!leases.is_overdue(FILE, Some(OTHER), RECALL_NS));
    assert_eq!(recall(&mut leases, OTHER, RECALL_NS + 10), Some(Conflict::Overdue));
    assert_eq!(leases.recall(FILE, None, RECALL_NS + 20), Some(Conflict::Overdue), "another node");
    assert!(leases.is_overdue(FILE, None, RECALL_NS + 20));
    assert!(!leases.is_overdue(FILE, Some(ONE.0), RECALL_NS + 20));
    assert!(leases.end_overdue(FILE).is_some());
    assert_eq!(recall(&mut leases, OTHER, RECALL_NS + 20), None);
    assert_eq!(grant(&mut leases, ONE, RECALL_NS + 30, 2), Some(LeaseId(2)));
    assert_eq!(leases.end_overdue(FILE), None, "it is not recalled");
}

#[test]
fn late_return_does_not_end_a_newer_lease() {
    let mut leases = WriteLeases::default();
    grant(&mut leases, ONE, 0, 1);
    assert!(leases.end(FILE, ONE, Some(LeaseId(1))).is_some());
    grant(&mut leases, ONE, 0, 2);
    assert_eq!(leases.end(FILE, ONE, Some(LeaseId(1))), None);
    assert!(leases.contains(FILE));
    assert!(leases.end(FILE, ONE, Some(LeaseId(2))).is_some() && leases.is_empty());
}

#[test]
fn each_lease_of_a_session_has_a_slot_until_it_ends() {
    let mut leases = WriteLeases::default();
    let grant = |leases: &mut WriteLeases, number: u64| {
        let holder = (SessionId(1), HandleId(number));
        leases.grant(Ino(number), holder, 0, || LeaseId(number.into()))
    };
    for number in 0..u64::from(MAX_WRITE_LEASES) {
        let granted = Granted { id: LeaseId(number.into()), new_slot: Some(SLOT + number as u32) };
        assert_eq!(grant(&mut leases, number), Some(granted));
    }
    assert_eq!(grant(&mut leases, u64::from(MAX_WRITE_LEASES)), None, "it has too many");
    let confirmed = grant(&mut leases, 7).unwrap();
    assert_eq!(confirmed.new_slot, None, "it is noted");
    let ended = leases.end(Ino(7), (SessionId(1), HandleId(7)), None).unwrap();
    assert_eq!(ended.slot, SLOT + 7);
    let next = grant(&mut leases, u64::from(MAX_WRITE_LEASES)).unwrap();
    assert_eq!(next.new_slot, Some(SLOT + 7));
}

#[test]
fn lease_from_before_a_restart_is_claimed_by_its_holder_or_ends() {
    let mut leases = WriteLeases::default();
    leases.restore(FILE, ONE, SLOT);
    leases.restore(Ino(3), (SessionId(1), HandleId(3)), SLOT + 1);
    assert_eq!(grant(&mut leases, ONE, 0, 1), None, "it is not claimed");
    let other = (OTHER, HandleId(1));
    assert_eq!(leases.claim(FILE, other, 0, || LeaseId(1)), None);
    assert_eq!(leases.claim(FILE, ONE, 0, || LeaseId(1)), Some(LeaseId(1)));
    assert_eq!(leases.claim(FILE, ONE, 0, || LeaseId(2)), Some(LeaseId(1)), "again");
    assert_eq!(grant(&mut leases, ONE, 0, 3), Some(LeaseId(1)));
    let holder = (SessionId(1), HandleId(3));
    let ended = Ended { holder, slot: SLOT + 1, is_unclaimed: true };
    assert_eq!(leases.object_of(holder), Some(Ino(3)));
    assert_eq!(leases.end_unclaimed(SessionId(1)), [(Ino(3), ended)]);
    assert!(leases.contains(FILE) && leases.object_of(holder).is_none());
}

#[test]
fn recalled_lease_from_before_a_restart_is_claimed_with_the_number_of_the_recall() {
    let mut leases = WriteLeases::default();
    leases.restore(FILE, ONE, SLOT);
    let Some(Conflict::Waits { id, .. }) = recall(&mut leases, OTHER, 0) else {
        panic!("nobody waits");
    };
    assert_eq!(leases.claim(FILE, ONE, 10, || LeaseId(1)), Some(id));
    assert!(!leases.is_overdue(FILE, Some(OTHER), RECALL_NS), "it has more time");
    assert!(leases.is_overdue(FILE, Some(OTHER), RECALL_NS + 10));
    leases.end_overdue(FILE);
    assert_eq!(leases.claim(FILE, ONE, 20, || LeaseId(1)), None, "it has ended");
}
