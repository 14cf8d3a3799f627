use super::{DENIAL_NS, Holder, LEASE_EXPIRY_NS, ReadLeases};
use forebay_protocol::{HandleId, Ino, LeaseId, SessionId};

const FILE: Ino = Ino(2);
const ONE: Holder = (SessionId(1), HandleId(1));
const TWO: Holder = (SessionId(2), HandleId(1));

fn grant(leases: &mut ReadLeases, holder: Holder, now_ns: u64, id: u128) -> Option<LeaseId> {
    leases.grant(FILE, holder, now_ns, || LeaseId(id))
}

#[test]
fn renewed_lease_keeps_its_number_and_expired_one_does_not() {
    let mut leases = ReadLeases::default();
    assert_eq!(grant(&mut leases, ONE, 0, 1), Some(LeaseId(1)));
    assert_eq!(grant(&mut leases, ONE, LEASE_EXPIRY_NS - 1, 2), Some(LeaseId(1)));
    let expired_ns = 2 * LEASE_EXPIRY_NS - 1;
    assert_eq!(grant(&mut leases, ONE, expired_ns, 3), Some(LeaseId(3)));
    assert_eq!(grant(&mut leases, TWO, expired_ns, 4), Some(LeaseId(4)));
}

#[test]
fn conflict_recalls_each_lease_once_and_lasts_until_all_are_returned() {
    let mut leases = ReadLeases::default();
    assert_eq!(leases.recall(FILE, 0), None);
    grant(&mut leases, ONE, 0, 1);
    grant(&mut leases, TWO, 10, 2);
    let conflict = leases.recall(FILE, 20).expect("two leases");
    assert_eq!(conflict.until_ns, 10 + LEASE_EXPIRY_NS);
    assert_eq!(conflict.recalls, [(ONE, LeaseId(1)), (TWO, LeaseId(2))]);
    assert_eq!(leases.recall(FILE, 30).expect("two leases").recalls, []);
    // Neither renewed nor granted while a request waits.
    assert_eq!(grant(&mut leases, ONE, 30, 3), None);
    assert!(!leases.end(FILE, ONE, Some(LeaseId(1))));
    assert!(leases.recall(FILE, 30).is_some());
    assert!(leases.end(FILE, TWO, Some(LeaseId(2))));
    assert_eq!(leases.recall(FILE, 30), None);
    assert_eq!(grant(&mut leases, ONE, 30, 4), Some(LeaseId(4)));
}

#[test]
fn lease_of_a_silent_holder_expires() {
    let mut leases = ReadLeases::default();
    grant(&mut leases, ONE, 0, 1);
    assert!(leases.recall(FILE, LEASE_EXPIRY_NS - 1).is_some());
    assert_eq!(leases.recall(FILE, LEASE_EXPIRY_NS), None);
}

#[test]
fn late_return_does_not_end_a_newer_lease() {
    let mut leases = ReadLeases::default();
    grant(&mut leases, ONE, 0, 1);
    grant(&mut leases, ONE, LEASE_EXPIRY_NS, 2);
    assert!(!leases.end(FILE, ONE, Some(LeaseId(1))));
    assert!(leases.recall(FILE, LEASE_EXPIRY_NS).is_some());
    assert!(leases.end(FILE, ONE, None), "the handle is closed");
}

#[test]
fn request_that_is_not_repeated_does_not_deny_leases_for_ever() {
    let mut leases = ReadLeases::default();
    grant(&mut leases, ONE, 0, 1);
    leases.recall(FILE, 0);
    assert!(leases.end(FILE, ONE, None));
    assert_eq!(grant(&mut leases, TWO, DENIAL_NS - 1, 2), None);
    assert!(!leases.forget_unused(DENIAL_NS));
    assert_eq!(grant(&mut leases, TWO, DENIAL_NS, 2), Some(LeaseId(2)));
}

#[test]
fn leases_from_before_a_start_count_until_they_have_expired() {
    let mut leases = ReadLeases::forgotten(100);
    assert_eq!(leases.forgotten_until_ns(), 100 + LEASE_EXPIRY_NS);
    assert!(leases.forget_unused(99 + LEASE_EXPIRY_NS));
    assert!(!leases.forget_unused(100 + LEASE_EXPIRY_NS));
}
