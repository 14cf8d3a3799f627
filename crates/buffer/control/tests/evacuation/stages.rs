//! Stages of users, and several evacuations at a time.

use crate::harness::{ADA, ROOT};
use crate::pool::*;
use forebay_control::controller::{Cause, EvacuationStep, Request, Settings, StageState};
use forebay_control::storage_node::{MoverOutcome, StorageInput};
use forebay_job_script::{BufferPath, Direction, InstanceRef, Stage, StageKind, StagePath};

fn stage_to_data() -> Stage {
    let instance = InstanceRef::Persistent("data".into());
    Stage {
        direction: Direction::In,
        kind: StageKind::File,
        source: StagePath::Pfs("/pfs/a".into()),
        destination: StagePath::Buffer(BufferPath { instance, path: "a".into() }),
        line: 0,
    }
}

#[test]
fn stages_of_users_and_the_copy_wait_for_each_other() {
    let unshared = Settings { max_nodes_per_stage: 1, ..Settings::default() };
    let mut pool = test_pool_with(unshared, 4);
    create(&mut pool, "data", 3);
    pool.setup(ADA, "7", USER_OF_DATA).unwrap();
    let begin = || Request::BeginStage { token: "7".into(), what: stage_to_data() };
    pool.request(ADA, begin()).unwrap();
    drain(&mut pool, 0);
    pool.advance_ms(2000);
    let (waiting, reason) = step(&pool);
    assert_eq!((waiting, &*reason), (EvacuationStep::Waiting, "data are being staged for `7`"));
    let (id, stage) = pool.controller.state().stages.iter().next().unwrap();
    let ended = MoverOutcome::Completed(Default::default());
    let ended = StorageInput::MoverEnded(id, stage.attempt, ended);
    let mut inputs = Vec::new();
    let node = stage.node.unwrap();
    pool.peers.storage.step(node, ended, &mut inputs);
    inputs.into_iter().for_each(|input| pool.input(input));
    pool.advance_ms(2000);
    assert_eq!(step(&pool).0, EvacuationStep::Copying);
    // While it moves, a stage waits; then a node with the new fragments moves its data.
    pool.request(ADA, begin()).unwrap();
    pool.advance_ms(2000);
    let last = |pool: &TestPool| {
        let stages = pool.controller.state().stages.iter();
        let (_, stage) = stages.filter(|(_, stage)| stage.copy_of.is_none()).last().unwrap();
        stage.clone()
    };
    assert_eq!(last(&pool).state, StageState::Queued);
    finish_copy(&mut pool);
    let stage = last(&pool);
    assert_eq!((stage.state, stage.instance), (StageState::Running, place(&pool, "data").0));
    assert!(place(&pool, "data").1.contains(&stage.node.unwrap().0));
}

#[test]
fn users_neither_see_nor_stop_the_copy() {
    let mut pool = copying();
    let (stage, ..) = running_copy(&pool).unwrap();
    assert!(pool.controller.status().stages.is_empty());
    let stopped = pool.request(ADA, Request::CancelStage { stage });
    assert_eq!(stopped.unwrap_err().cause, Cause::NotFound);
    assert!(running_copy(&pool).is_some());
}

#[test]
fn few_instances_move_at_a_time() {
    let mut pool = test_pool(4);
    for index in 0..8 {
        create(&mut pool, &format!("d{index}"), 1);
    }
    let first: Vec<u32> = (0..8).flat_map(|i| place(&pool, &format!("d{i}")).1).collect();
    for node in [0, 1, 2] {
        drain(&mut pool, node);
    }
    pool.advance_ms(2000);
    let to_move = first.iter().filter(|node| **node < 3).count();
    assert!(to_move > 4, "{first:?}");
    for _ in 0..to_move {
        let all = evacuations(&pool);
        let moving = all.iter().filter(|one| one.step == EvacuationStep::Copying).count();
        assert!(moving <= 4, "{all:?}");
        let waiting = all.iter().find(|one| one.step == EvacuationStep::Waiting);
        if let Some(waiting) = waiting {
            assert_eq!(waiting.reason.as_deref(), Some("other instances move first"));
        }
        assert!(all.iter().all(|one| one.targets.iter().all(|node| node.0 == 3)), "{all:?}");
        finish_copy(&mut pool);
    }
    assert!(evacuations(&pool).is_empty());
    assert_eq!(pool.used_granules(), [0, 0, 0, 8]);
}

/// The copy in a restored database may have become the instance since, with data of users.
#[test]
fn restored_controller_keeps_a_copy_that_may_be_in_use() {
    let mut pool = copying();
    let backup = pool.back_up();
    finish_copy(&mut pool);
    assert!(!place(&pool, "data").1.contains(&0));
    let stored = pool.peers.storage.fragments.clone();
    pool.restore(&backup);
    pool.advance_ms(3000);
    assert!(pool.controller.status().outdated);
    pool.request(ROOT, Request::AcceptRestored).unwrap();
    pool.advance_ms(20_000);
    assert_eq!(pool.peers.storage.fragments, stored, "nothing was removed");
    let unknown: u32 = pool.controller.status().nodes.iter().map(|node| node.unknown).sum();
    assert_eq!(unknown, 3, "an operator decides");
}
