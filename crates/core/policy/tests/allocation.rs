//! Properties of allocations for all pools and requests.

use forebay_job_script::OptimizationStrategy;
use forebay_policy::allocate::{AllocationError, AllocationRequest, Share, Size, allocate};
use forebay_policy::pool::{NodeId, NodeState, StorageNode, bytes_in, granules_for};
use forebay_units::Bytes;
use proptest::prelude::*;

fn node(id: u32, total: u64, used: u64) -> StorageNode {
    StorageNode {
        id: NodeId(id),
        state: NodeState::Online,
        total,
        used,
        instances: 0,
        written: Bytes(0),
    }
}

fn ask(size: Size) -> AllocationRequest {
    AllocationRequest {
        size,
        preference: OptimizationStrategy::Bandwidth,
        equalize: false,
        max_nodes: None,
    }
}

fn shares(list: &[(u32, u64)]) -> Vec<Share> {
    list.iter().map(|(id, granules)| Share { node: NodeId(*id), granules: *granules }).collect()
}

#[test]
fn distinct_nodes_get_granules_before_any_gets_a_second() {
    let pool: Vec<StorageNode> = (0..4).map(|id| node(id, 10, 0)).collect();
    assert_eq!(
        allocate(&pool, &ask(Size::Granules(3))).unwrap(),
        shares(&[(0, 1), (1, 1), (2, 1)])
    );
    assert_eq!(
        allocate(&pool, &ask(Size::Granules(6))).unwrap(),
        shares(&[(0, 2), (1, 2), (2, 1), (3, 1)])
    );
}

#[test]
fn full_nodes_get_no_granules() {
    let pool = [node(0, 10, 9), node(1, 10, 0), node(2, 10, 10)];
    assert_eq!(allocate(&pool, &ask(Size::Granules(9))).unwrap(), shares(&[(0, 1), (1, 8)]));
    assert_eq!(
        allocate(&pool, &ask(Size::Granules(12))),
        Err(AllocationError::Full { wanted: 12, free: 11 })
    );
    assert_eq!(
        allocate(&pool, &ask(Size::Granules(31))),
        Err(AllocationError::LargerThanPool { wanted: 31, total: 30 })
    );
    assert_eq!(allocate(&pool, &ask(Size::Granules(11))).unwrap(), shares(&[(0, 1), (1, 10)]));
}

#[test]
fn interference_prefers_nodes_with_few_instances() {
    let mut pool: Vec<StorageNode> = (0..3).map(|id| node(id, 10, 0)).collect();
    pool[0].instances = 5;
    pool[1].instances = 1;
    let request = AllocationRequest {
        preference: OptimizationStrategy::Interference,
        ..ask(Size::Granules(1))
    };
    assert_eq!(allocate(&pool, &request).unwrap(), shares(&[(2, 1)]));
}

#[test]
fn less_worn_node_is_chosen_between_nodes_that_are_alike() {
    let mut pool: Vec<StorageNode> = (0..3).map(|id| node(id, 10, 0)).collect();
    let chosen = |pool: &[StorageNode], preference| {
        let request = AllocationRequest { preference, ..ask(Size::Granules(1)) };
        allocate(pool, &request).unwrap()[0].node
    };
    let preferences = [OptimizationStrategy::Bandwidth, OptimizationStrategy::Interference];
    (pool[0].written, pool[1].written) = (Bytes(9 << 40), Bytes(7 << 40));
    for preference in preferences {
        assert_eq!(chosen(&pool, preference), NodeId(2), "{preference:?}");
    }
    // A difference of less than 1 TiB does not matter.
    (pool[0].written, pool[1].written) = (Bytes(1 << 39), Bytes(0));
    for preference in preferences {
        assert_eq!(chosen(&pool, preference), NodeId(0), "{preference:?}");
    }
    // Free space and other instances matter more.
    (pool[0].written, pool[1].written) = (Bytes(9 << 40), Bytes(0));
    for node in &mut pool[1..] {
        (node.used, node.instances) = (1, 1);
    }
    for preference in preferences {
        assert_eq!(chosen(&pool, preference), NodeId(0), "{preference:?}");
    }
}

#[test]
fn wear_prefers_nodes_with_fewest_bytes_written() {
    let mut pool: Vec<StorageNode> = (0..3).map(|id| node(id, 10, 0)).collect();
    pool[0].written = Bytes(7 << 40);
    pool[2].written = Bytes(1 << 40);
    let request =
        AllocationRequest { preference: OptimizationStrategy::Wear, ..ask(Size::Granules(2)) };
    assert_eq!(allocate(&pool, &request).unwrap(), shares(&[(1, 1), (2, 1)]));
}

#[test]
fn whole_nodes_requires_empty_nodes() {
    let pool = [node(0, 10, 1), node(1, 8, 0), node(2, 10, 0), node(3, 10, 0)];
    assert_eq!(allocate(&pool, &ask(Size::WholeNodes(2))).unwrap(), shares(&[(2, 10), (3, 10)]));
    let equal = AllocationRequest { equalize: true, ..ask(Size::WholeNodes(3)) };
    assert_eq!(allocate(&pool, &equal), Err(AllocationError::TooFewNodes { wanted: 3, free: 0 }));
    assert_eq!(
        allocate(&pool, &ask(Size::WholeNodes(4))),
        Err(AllocationError::TooFewNodes { wanted: 4, free: 3 })
    );
}

#[test]
fn equalize_enlarges_the_request() {
    let pool: Vec<StorageNode> = (0..4).map(|id| node(id, 10, 0)).collect();
    let equal = |n| AllocationRequest { equalize: true, ..ask(Size::Granules(n)) };
    assert_eq!(allocate(&pool, &equal(6)).unwrap(), shares(&[(0, 2), (1, 2), (2, 2), (3, 2)]));
    let uneven = [node(0, 10, 0), node(1, 1, 0)];
    assert_eq!(allocate(&uneven, &equal(5)).unwrap(), shares(&[(0, 5)]));
    assert_eq!(
        allocate(&uneven, &equal(11)),
        Err(AllocationError::Unequal { wanted: 11, free: 11 })
    );
}

#[test]
fn request_for_all_free_granules_succeeds() {
    let pool = [node(0, 10, 0), node(1, 3, 1)];
    assert_eq!(allocate(&pool, &ask(Size::Granules(12))).unwrap(), shares(&[(0, 10), (1, 2)]));
}

#[test]
fn empty_pools_and_empty_requests_are_refused() {
    assert_eq!(allocate(&[], &ask(Size::Granules(1))), Err(AllocationError::NoNodes));
    assert_eq!(allocate(&[node(0, 1, 0)], &ask(Size::Granules(0))), Err(AllocationError::Nothing));
    let mut drained = node(0, 1, 0);
    drained.state = NodeState::Drained;
    let mut offline = node(1, 1, 0);
    offline.state = NodeState::Offline;
    let one = ask(Size::Granules(1));
    assert_eq!(allocate(std::slice::from_ref(&offline), &one), Err(AllocationError::NoNodes));
    let node = drained.id;
    assert_eq!(allocate(&[offline, drained], &one), Err(AllocationError::Drained { node }));
}

fn pools() -> impl Strategy<Value = Vec<StorageNode>> {
    let state = prop_oneof![
        4 => Just(NodeState::Online), 1 => Just(NodeState::Drained), 1 => Just(NodeState::Offline)
    ];
    let one = (state, 0u64..40, 0u64..44, 0u32..4);
    proptest::collection::vec(one, 0..12).prop_map(|nodes| {
        let numbered = (0u32..).zip(nodes);
        numbered
            .map(|(id, (state, total, used, instances))| StorageNode {
                // A node may have shrunk below what it holds.
                id: NodeId(id),
                state,
                total,
                used,
                instances,
                written: Bytes(0),
            })
            .collect()
    })
}

fn requests() -> impl Strategy<Value = AllocationRequest> {
    let size = prop_oneof![
        5 => (1u64..200).prop_map(Size::Granules),
        1 => (1u32..6).prop_map(Size::WholeNodes),
        2 => (1u64..20).prop_map(Size::Copies),
        1 => (1u32..6).prop_map(Size::WholeNodeCopies),
        1 => any::<u64>().prop_map(Size::Granules)
    ];
    let preference = prop_oneof![
        Just(OptimizationStrategy::Bandwidth),
        Just(OptimizationStrategy::Interference),
        Just(OptimizationStrategy::Wear)
    ];
    (size, preference, any::<bool>(), proptest::option::of(1u32..6)).prop_map(
        |(size, preference, equalize, max_nodes)| AllocationRequest {
            size,
            preference,
            equalize,
            max_nodes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shares_never_exceed_free_granules(pool in pools(), request in requests(), turn in 0usize..12) {
        let outcome = allocate(&pool, &request);
        // The order of the list of nodes is irrelevant.
        let mut turned = pool.clone();
        turned.rotate_left(turn.min(pool.len()));
        prop_assert_eq!(&outcome, &allocate(&turned, &request));
        let free: u64 = pool.iter().map(StorageNode::free_granules).sum();
        match outcome {
            Ok(shares) => {
                for pair in shares.windows(2) {
                    prop_assert!(pair[0].node < pair[1].node);
                }
                for share in &shares {
                    let node = &pool[share.node.0 as usize];
                    prop_assert_eq!(node.state, NodeState::Online);
                    prop_assert!(share.granules >= 1 && share.granules <= node.free_granules());
                    if matches!(request.size, Size::WholeNodes(_)) {
                        prop_assert!(node.used == 0 && share.granules == node.total);
                    }
                }
                if let Some(most) = request.max_nodes {
                    prop_assert!(shares.len() <= most as usize);
                }
                let sum: u64 = shares.iter().map(|share| share.granules).sum();
                match request.size {
                    Size::Granules(wanted) if request.equalize => {
                        prop_assert!(sum >= wanted && sum < wanted + shares.len() as u64);
                    }
                    Size::Granules(wanted) => prop_assert_eq!(sum, wanted),
                    Size::WholeNodes(wanted) | Size::WholeNodeCopies(wanted) => {
                        prop_assert_eq!(shares.len(), wanted as usize);
                    }
                    Size::Copies(wanted) => {
                        prop_assert!(!shares.is_empty() && shares.len() as u64 <= wanted);
                        prop_assert!(shares.iter().all(|s| s.granules == wanted));
                    }
                }
                if matches!(request.size, Size::WholeNodeCopies(_)) {
                    prop_assert!(shares.iter().all(|s| s.granules == shares[0].granules));
                }
                if request.equalize {
                    prop_assert!(shares.iter().all(|s| s.granules == shares[0].granules));
                }
                if let (Size::Granules(wanted), false) = (request.size, request.equalize) {
                    let usable = pool.iter().filter(|n| n.free_granules() > 0).count();
                    let most = request.max_nodes.map_or(usize::MAX, |n| n as usize);
                    let expected = (usable.min(most) as u64).min(wanted);
                    prop_assert_eq!(shares.len() as u64, expected, "distinct nodes first");
                }
            }
            Err(AllocationError::Full { wanted, free: reported }) => {
                prop_assert!(reported < wanted && reported <= free);
                prop_assert!(request.max_nodes.is_some() || reported == free);
            }
            Err(_) => {}
        }
    }

    #[test]
    fn released_shares_restore_the_pool(pool in pools(), list in proptest::collection::vec(requests(), 1..20)) {
        let mut state = pool.clone();
        let mut held: Vec<Vec<Share>> = Vec::new();
        for request in list {
            if let Ok(shares) = allocate(&state, &request) {
                for share in &shares {
                    let node = &mut state[share.node.0 as usize];
                    node.used += share.granules;
                    prop_assert!(node.used <= node.total);
                }
                held.push(shares);
            } else if let Some(shares) = held.pop() {
                for share in shares {
                    state[share.node.0 as usize].used -= share.granules;
                }
            }
        }
        for share in held.into_iter().flatten() {
            state[share.node.0 as usize].used -= share.granules;
        }
        prop_assert_eq!(state, pool);
    }

    #[test]
    fn granules_round_up(size in any::<u64>(), granularity in 1u64..(1 << 40)) {
        let count = granules_for(Bytes(size), Bytes(granularity)).unwrap();
        prop_assert!(count >= 1);
        prop_assert!(u128::from(count) * u128::from(granularity) >= u128::from(size));
        prop_assert!(u128::from(count - 1) * u128::from(granularity) < u128::from(size.max(1)));
    }
}

#[test]
fn granule_arithmetic_reports_overflow() {
    assert_eq!(granules_for(Bytes(1), Bytes(0)), None);
    assert_eq!(bytes_in(u64::MAX, Bytes(2)), None);
    assert_eq!(bytes_in(3, Bytes(5)), Some(Bytes(15)));
}

#[test]
fn copies_are_complete_and_as_many_as_granules() {
    let pool: Vec<StorageNode> = (0..4).map(|id| node(id, 10, 0)).collect();
    let copies = |pool: &[StorageNode], granules| allocate(pool, &ask(Size::Copies(granules)));
    assert_eq!(copies(&pool, 1).unwrap(), shares(&[(0, 1)]));
    assert_eq!(copies(&pool, 3).unwrap(), shares(&[(0, 3), (1, 3), (2, 3)]));
    assert_eq!(copies(&pool, 10).unwrap(), shares(&[(0, 10), (1, 10), (2, 10), (3, 10)]));
    let uneven = [node(0, 10, 5), node(1, 10, 0), node(2, 8, 0), node(3, 9, 9)];
    assert_eq!(copies(&uneven, 7).unwrap(), shares(&[(1, 7), (2, 7)]));
    let (wanted, free) = (11, 10);
    assert_eq!(copies(&uneven, 11), Err(AllocationError::NoRoomForCopy { wanted, free }));
    assert_eq!(copies(&uneven, 0), Err(AllocationError::Nothing));
    let whole = |count| allocate(&uneven, &ask(Size::WholeNodeCopies(count)));
    assert_eq!(whole(2).unwrap(), shares(&[(1, 8), (2, 8)]));
    assert!(matches!(whole(3), Err(AllocationError::TooFewNodes { .. })));
}
