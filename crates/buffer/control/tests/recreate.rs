//! A storage node goes offline while an instance is created on it and others.

use crate::harness;
use std::collections::BTreeSet;

use forebay_control::controller::{QuotaSubject, Settings};
use forebay_control::messages::FragmentPlan;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use harness::{ADA, ControllerHarness, SimStorage};

const NODES: u32 = 3;

#[test]
fn setup_with_offline_node_recreates_all_fragments_with_consistent_placement() {
    let mut pool = ControllerHarness::new(Settings::default(), SimStorage::new(NODES), NODES);
    pool.advance_ms(1000);

    // One of three nodes never receives the command to create its fragment.
    pool.peers.silent.insert(2);
    let script = "#DW jobdw capacity=6GiB type=scratch access_mode=striped\n\
                  #DW stage_in type=file source=/pfs/a destination=$DW_JOB_STRIPED/a\n";
    pool.setup(ADA, "7", script).unwrap();

    let created: Vec<&(NodeId, FragmentPlan)> = pool.peers.fragments.values().collect();
    let plans = || created.iter().map(|(_, plan)| plan);
    let nodes: BTreeSet<u32> = created.iter().map(|(node, _)| node.0).collect();
    assert_eq!((created.len(), nodes), (2, BTreeSet::from([0, 1])));
    assert_eq!(plans().map(|plan| plan.granules).sum::<u64>(), 6);
    let nodes = created.iter().map(|(node, _)| node.0);
    let peers: Vec<String> = nodes.map(|node| format!("bb{node}:7511")).collect();
    let instance = created[0].1.instance;
    for (position, plan) in plans().enumerate() {
        assert_eq!(plan.instance, instance);
        assert_eq!(usize::from(plan.place.node.0), position);
        assert_eq!((plan.place.nodes, &plan.place.peers), (2, &peers));
    }
    let state = pool.controller.state();
    let session = state.sessions.by_token("7").unwrap().1;
    assert_eq!(session.instance, Some(instance));
    let staged = state.stages.iter().map(|(_, stage)| stage.instance);
    assert!(staged.eq([instance]));

    // The first attempt, whose removal one node has not confirmed, does not count for a quota.
    let usage = pool.controller.status().usage;
    let own = usage.iter().find(|row| row.subject == QuotaSubject::User(ADA.uid)).unwrap();
    assert_eq!((own.instances, own.used), (1, Bytes(6 << 30)));

    // The returning node removes what is no longer needed.
    pool.peers.silent.clear();
    pool.advance_ms(2000);
    let storage = &pool.controller.state().storage;
    assert_eq!(storage.instances().count(), 1);
    assert_eq!(storage.fragments().count(), 2);
}
