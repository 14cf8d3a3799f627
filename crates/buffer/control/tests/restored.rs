//! A storage node with another directory than its own, and a controller that was restored from a
//! backup: good data stays until an operator decides.

use crate::harness;
use std::collections::BTreeSet;

use forebay_control::controller::{
    Answer, Cause, ControllerEffect, ControllerInput, Failure, Request, RequestEnvelope, RequestId,
    Settings, StageState,
};
use forebay_control::messages::{FragmentId, Owner, UnixMillis};
use forebay_control::storage_node::StorageNode;
use forebay_policy::pool::NodeId;
use harness::{ADA, ControllerHarness, ROOT, SimStorage};

type TestPool = ControllerHarness<SimStorage>;

/// Longer than the time after which a silent node is offline.
const OFFLINE_MS: u64 = 11_000;
const JOB: &str = "#DW jobdw capacity=6GiB type=scratch access_mode=striped\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";

fn test_pool() -> TestPool {
    ControllerHarness::new(Settings::default(), SimStorage::new(3), 3)
}

/// The node comes up with an empty directory. Returns its own one.
fn swap_disk(pool: &mut TestPool, node: u32, disk: StorageNode) -> StorageNode {
    std::mem::replace(&mut pool.peers.nodes[node as usize], disk)
}

fn empty_disk(pool: &TestPool, node: u32) -> StorageNode {
    StorageNode::restore(NodeId(node), 10, UnixMillis(pool.now), Vec::new()).unwrap()
}

#[test]
fn node_with_an_empty_directory_is_rejected_until_its_own_is_back() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    let empty = empty_disk(&pool, 1);
    let own = swap_disk(&mut pool, 1, empty);
    pool.advance_ms(OFFLINE_MS);
    let status = pool.controller.status();
    assert!(status.nodes[1].wrong_disk && !status.nodes[1].online);
    assert!(status.instances[0].intact, "{:?}", status.instances[0].broken);
    // Also for a controller that has just started.
    pool.restart();
    pool.advance_ms(OFFLINE_MS);
    assert!(pool.controller.status().nodes[1].wrong_disk);
    assert!(pool.controller.status().instances[0].intact);
    swap_disk(&mut pool, 1, own);
    pool.advance_ms(OFFLINE_MS);
    let status = pool.controller.status();
    assert!(!status.nodes[1].wrong_disk && status.nodes[1].online);
    assert!(status.instances[0].intact);
    pool.teardown(ADA, "7", true).unwrap();
    assert_eq!(pool.used_granules(), [0, 0, 0]);
    assert!(pool.peers.fragments.is_empty());
}

#[test]
fn new_disk_is_used_when_the_operator_has_given_the_old_one_up() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    let empty = empty_disk(&pool, 1);
    swap_disk(&mut pool, 1, empty);
    pool.advance_ms(OFFLINE_MS);
    let forget = Request::ForgetNode { node: NodeId(1), allow_data_loss: true };
    pool.request(ROOT, forget).unwrap();
    pool.advance_ms(OFFLINE_MS);
    let node = &pool.controller.status().nodes[1];
    assert!(!node.forgotten && !node.wrong_disk && node.online);
    pool.teardown(ADA, "7", true).unwrap();
    pool.setup(ADA, "8", JOB).unwrap();
    assert_eq!(pool.used_granules(), [2, 2, 2]);
}

#[test]
fn node_without_fragments_may_get_a_new_disk() {
    let mut pool = test_pool();
    pool.advance_ms(1000);
    let empty = empty_disk(&pool, 1);
    swap_disk(&mut pool, 1, empty);
    pool.setup(ADA, "7", JOB).unwrap();
    assert!(pool.used_granules()[1] > 0 && pool.controller.status().instances[0].intact);
}

#[test]
fn fragment_that_a_node_misses_makes_its_instance_whole_when_it_is_back() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    // A directory of the same identity without the fragment, as an older copy of it would be.
    let older = StorageNode::restore(NodeId(1), 10, UnixMillis(0), Vec::new()).unwrap();
    let own = swap_disk(&mut pool, 1, older);
    // Its reports become newer than those from before.
    pool.advance_ms(OFFLINE_MS);
    assert!(!pool.controller.status().instances[0].intact);
    swap_disk(&mut pool, 1, own);
    pool.advance_ms(2 * OFFLINE_MS);
    assert!(pool.controller.status().instances[0].intact);
}

/// Makes a request and returns the immediate reply.
fn reply(pool: &mut TestPool, caller: Owner, request: Request) -> Option<Result<Answer, Failure>> {
    let envelope = RequestEnvelope { id: RequestId(u128::from(pool.now) << 32), caller, request };
    let input = ControllerInput::Request(Box::new(envelope));
    let effects = pool.controller.step(UnixMillis(pool.now), input);
    pool.now += 1;
    effects.into_iter().find_map(|effect| match effect {
        ControllerEffect::Reply(_, outcome) => Some(outcome),
        ControllerEffect::Persist(_)
        | ControllerEffect::SendToStorageNode(..)
        | ControllerEffect::SendToComputeNode(..) => None,
    })
}

fn fragments(pool: &TestPool) -> BTreeSet<FragmentId> {
    pool.peers.fragments.keys().copied().collect()
}

#[test]
fn controller_restored_from_a_backup_removes_nothing_and_waits_for_the_operator() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    let backup = pool.back_up();
    let before = fragments(&pool);
    pool.setup(ADA, "8", JOB).unwrap();
    let all = fragments(&pool);
    assert_eq!(all.len(), 6);
    pool.restore(&backup);
    // Before the nodes have told what they have obeyed, it is not known whether this is lost.
    let early = reply(&mut pool, ROOT, Request::AcceptRestored).unwrap().unwrap_err();
    assert_eq!(early.cause, Cause::Busy, "{early}");
    assert!(early.reason.contains("not reported since"), "{early}");
    pool.advance_ms(OFFLINE_MS);
    assert!(pool.controller.status().outdated);
    assert_eq!(fragments(&pool), all);
    let teardown = Request::Teardown { token: "7".into(), creator: None, hurry: true };
    let refused = reply(&mut pool, ADA, teardown).unwrap().unwrap_err();
    assert_eq!(refused.cause, Cause::Busy);
    assert!(refused.reason.contains("forebay accept-restored"), "{refused}");
    // A restart makes no difference.
    pool.restart();
    pool.advance_ms(OFFLINE_MS);
    assert!(pool.controller.status().outdated);
    let denied = reply(&mut pool, ADA, Request::AcceptRestored).unwrap().unwrap_err();
    assert_eq!(denied.cause, Cause::Denied);

    pool.request(ROOT, Request::AcceptRestored).unwrap();
    pool.advance_ms(OFFLINE_MS);
    let status = pool.controller.status();
    assert!(!status.outdated);
    assert_eq!(status.nodes.iter().map(|node| node.unknown).collect::<Vec<_>>(), [1, 1, 1]);
    assert_eq!(fragments(&pool), all, "what the lost state knew is kept");
    let failed = |state: &StageState| matches!(state, StageState::Failed(_));
    assert!(status.stages.iter().all(|stage| failed(&stage.state)), "{:?}", status.stages);
    // Ids continue above those of the lost state.
    pool.setup(ADA, "9", JOB).unwrap();
    assert_eq!(fragments(&pool).intersection(&all).count(), 6);
    assert_eq!(fragments(&pool).len(), 9);
    let again = pool.request(ROOT, Request::AcceptRestored).unwrap_err();
    assert!(again.reason.contains("nothing to accept"), "{again}");

    for node in 0..3 {
        pool.request(ROOT, Request::DiscardUnknown { node: NodeId(node) }).unwrap();
    }
    pool.advance_ms(OFFLINE_MS);
    let left = fragments(&pool);
    assert!(left.is_superset(&before) && left.len() == 6, "{left:?}");
    assert!(pool.controller.status().nodes.iter().all(|node| node.unknown == 0));
}

#[test]
fn restored_controller_is_recognised_after_it_has_accepted_requests() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    let backup = pool.back_up();
    pool.setup(ADA, "8", JOB).unwrap();
    let all = fragments(&pool);
    pool.restore(&backup);
    // Its nodes are silent at first, and its state grows beyond the one that they have obeyed.
    pool.peers.silent.extend([0, 1, 2]);
    for token in ["9", "10", "11"] {
        let script = forebay_job_script::JobScript::parse(JOB, None).unwrap();
        let setup = forebay_control::controller::Setup::from_script(&script);
        let (owner, creator) = (ADA, "test".to_owned());
        pool.send_request(ADA, Request::Setup { token: token.into(), owner, creator, setup });
    }
    pool.advance_ms(1000);
    // It starts once more before a node has reported.
    pool.restart();
    pool.advance_ms(1000);
    pool.peers.silent.clear();
    pool.advance_ms(OFFLINE_MS);
    assert!(pool.controller.status().outdated);
    assert_eq!(fragments(&pool), all, "no command was obeyed");
}
