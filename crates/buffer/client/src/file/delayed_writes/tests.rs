use super::*;

const NODE: NodeIndex = NodeIndex(0);
const ID: LeaseId = LeaseId(1);

/// Delayed writes under a lease that was confirmed at `confirmed_at`.
fn leased(confirmed_at: Instant, pending: &[u8]) -> Arc<DelayedWrites> {
    let writes = DelayedWrites::new(Ino(2), HandleId(1), Layout::SINGLE_NODE);
    writes.leased(NODE, ID, confirmed_at);
    let mut state = writes.state.lock();
    state.queue.extend_from_slice(pending);
    state.delayed = pending.len() as u64;
    drop(state);
    writes
}

fn may_delay(writes: &DelayedWrites, offset: u64, at: Instant) -> bool {
    writes.state.lock().may_delay(offset, writes.extents(offset, 4), at)
}

#[test]
fn writes_are_lost_under_another_lease_than_that_under_which_they_were_delayed() {
    let now = Instant::now();
    for (pending, id, is_lost) in
        [(b"data".as_slice(), ID, false), (b"data", LeaseId(2), true), (b"", LeaseId(2), false)]
    {
        let writes = leased(now, pending);
        writes.end_lease(NODE);
        writes.leased(NODE, id, now);
        assert_eq!(writes.check().is_err(), is_lost);
        assert_eq!(may_delay(&writes, pending.len() as u64, now), !is_lost);
    }
}

#[test]
fn claimed_lease_has_a_new_number() {
    let now = Instant::now();
    let writes = leased(now, b"data");
    assert!(writes.await_lease(NODE));
    writes.end_lease(NODE);
    writes.claimed(NODE, LeaseId(2));
    assert!(!may_delay(&writes, 4, now), "it is not confirmed");
    writes.leased(NODE, LeaseId(2), now);
    assert!(writes.check().is_ok() && may_delay(&writes, 4, now));
    writes.lose();
    assert!(!may_delay(&writes, 4, now) && !writes.await_lease(NODE));
}

#[test]
fn nothing_is_delayed_without_a_recent_confirmation() {
    let confirmed = Instant::now();
    let writes = leased(confirmed, b"data");
    assert!(may_delay(&writes, 4, confirmed));
    assert!(!may_delay(&writes, 4, confirmed + MAX_SILENCE));
    assert!(!may_delay(&writes, 5, confirmed), "it is not adjacent");
    writes.end_lease(NODE);
    assert!(!may_delay(&writes, 4, confirmed));
}

#[test]
fn write_to_two_data_objects_needs_the_leases_of_both() {
    let now = Instant::now();
    let layout = Layout::new(3, 4).unwrap();
    let writes = DelayedWrites::new(Ino(2), HandleId(1), layout);
    let nodes: Vec<NodeIndex> = writes.extents(2, 4).map(|extent| extent.node).collect();
    writes.leased(nodes[0], ID, now);
    assert!(may_delay(&writes, 0, now) && !may_delay(&writes, 2, now));
    writes.leased(nodes[1], LeaseId(2), now);
    assert!(may_delay(&writes, 2, now));
}

#[test]
fn writes_are_pending_on_the_nodes_of_their_data_objects() {
    let writes = DelayedWrites::new(Ino(2), HandleId(1), Layout::new(3, 4).unwrap());
    let mut state = writes.state.lock();
    (state.in_flight, state.start, state.delayed) = (2..4, 4, 6);
    state.queue.extend_from_slice(b"data");
    let nodes: Vec<NodeIndex> = writes.extents(0, 12).map(|extent| extent.node).collect();
    let pending = nodes.iter().map(|node| writes.is_pending_on(&state, *node));
    assert_eq!(pending.collect::<Vec<bool>>(), [true, true, false]);
    drop(state);
    assert!(writes.finish_on_within(nodes[2], Duration::ZERO));
    assert!(!writes.finish_on_within(nodes[1], Duration::ZERO));
}
