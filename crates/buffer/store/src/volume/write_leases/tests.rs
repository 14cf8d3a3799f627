use super::{Conflict, Holder, WriteLeases};
use forebay_protocol::message::WRITE_LEASE_RECALL_NS as RECALL_NS;
use forebay_protocol::{HandleId, Ino, LeaseId, SessionId};

const FILE: Ino = Ino(2);
const ONE: Holder = (SessionId(1), HandleId(1));
const OTHER: SessionId = SessionId(2);

fn grant(leases: &mut WriteLeases, holder: Holder, now_ns: u64, id: u128) -> Option<LeaseId> {
    leases.grant(FILE, holder, now_ns, || LeaseId(id))
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
    assert_eq!(leases.recall(FILE, SessionId(1), 0), None, "the holder's own requests");
    assert_eq!(leases.recall(Ino(3), OTHER, 0), None);
    let now_ns = 200 * RECALL_NS;
    assert_eq!(leases.recall(FILE, OTHER, now_ns), waits(now_ns + RECALL_NS, true));
}

#[test]
fn recall_ends_in_time_unless_the_holder_extends_it() {
    let mut leases = WriteLeases::default();
    grant(&mut leases, ONE, 0, 1);
    assert_eq!(leases.recall(FILE, OTHER, 0), waits(RECALL_NS, true));
    assert_eq!(leases.recall(FILE, OTHER, 5), waits(RECALL_NS, false));
    assert_eq!(grant(&mut leases, ONE, 10, 2), None, "it is recalled");
    assert_eq!(leases.recall(FILE, OTHER, RECALL_NS), waits(RECALL_NS + 10, false));
    assert_eq!(leases.recall(FILE, OTHER, RECALL_NS + 10), Some(Conflict::Overdue));
    assert_eq!(leases.recall(FILE, OTHER, RECALL_NS + 20), Some(Conflict::Overdue));
    assert!(leases.end(FILE, ONE, None));
    assert_eq!(leases.recall(FILE, OTHER, RECALL_NS + 20), None);
    assert_eq!(grant(&mut leases, ONE, RECALL_NS + 30, 2), Some(LeaseId(2)));
}

#[test]
fn late_return_does_not_end_a_newer_lease() {
    let mut leases = WriteLeases::default();
    grant(&mut leases, ONE, 0, 1);
    assert!(leases.end(FILE, ONE, Some(LeaseId(1))));
    grant(&mut leases, ONE, 0, 2);
    assert!(!leases.end(FILE, ONE, Some(LeaseId(1))));
    assert!(leases.contains(FILE));
    assert!(leases.end(FILE, ONE, Some(LeaseId(2))) && leases.is_empty());
}
