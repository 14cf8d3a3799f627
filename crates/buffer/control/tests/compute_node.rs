//! A compute node that changes from one replica to another.

use forebay_control::compute_node::{ComputeEffect, ComputeInput, ComputeNode};
use forebay_control::messages::{
    ActivationId, ComputeCommand, ComputeReport, InstanceId, MountPlan, Owner, Report,
    StampedCommand, StateStamp, UnixMillis,
};
use forebay_job_script::AccessMode;

const ACTIVATION: ActivationId = ActivationId(1);

fn stamped(command: ComputeCommand) -> ComputeInput {
    ComputeInput::Command(StampedCommand { last_report: 0, state: StateStamp::default(), command })
}

fn mount(generation: u64) -> ComputeInput {
    stamped(ComputeCommand::Mount(MountPlan {
        activation: ACTIVATION,
        instance: InstanceId(2),
        mode: AccessMode::LoadBalanced,
        generation,
        path: "/jobs/1/ldbalance/".into(),
        owner: Owner { uid: 7, gid: 7 },
        nodes: Vec::new(),
        addresses: vec![format!("10.0.0.{generation}:7511")],
    }))
}

/// A compute node that has mounted the replica of generation 1.
fn mounted_node() -> ComputeNode {
    let mut node = ComputeNode::new("n1".into(), UnixMillis(0));
    assert!(matches!(&node.step(mount(1))[..], [ComputeEffect::Mount(_)]));
    assert_eq!(reports_of_outcome(&mut node, Ok(())), [ComputeReport::Mounted(ACTIVATION, 1)]);
    node
}

fn reports(effects: Vec<ComputeEffect>) -> Vec<ComputeReport> {
    let bodies = effects.into_iter().filter_map(|effect| match effect {
        ComputeEffect::Report(Report::Compute { body, .. }) => Some(body),
        ComputeEffect::Report(_) | ComputeEffect::Mount(_) | ComputeEffect::Unmount(_) => None,
    });
    bodies.collect()
}

fn reports_of_outcome(node: &mut ComputeNode, outcome: Result<(), String>) -> Vec<ComputeReport> {
    reports(node.step(ComputeInput::Mounted(ACTIVATION, outcome)))
}

#[test]
fn late_commands_after_replica_switch_do_not_remount_old_replica() {
    let mut node = mounted_node();
    assert!(
        matches!(&node.step(mount(2))[..], [ComputeEffect::Mount(plan)] if plan.addresses == ["10.0.0.2:7511"])
    );
    assert!(node.step(mount(2)).is_empty());
    assert_eq!(reports_of_outcome(&mut node, Ok(())), [ComputeReport::Mounted(ACTIVATION, 2)]);
    for late in [1, 2] {
        assert_eq!(reports(node.step(mount(late))), [ComputeReport::Mounted(ACTIVATION, 2)]);
    }
}

#[test]
fn failed_replica_switch_keeps_old_mount_which_is_unmounted_at_the_end() {
    let mut node = mounted_node();
    node.step(mount(2));
    assert_eq!(
        reports_of_outcome(&mut node, Err("away".into())),
        [ComputeReport::MountFailed(ACTIVATION, 2, "away".into())]
    );
    assert!(matches!(&node.step(mount(3))[..], [ComputeEffect::Mount(_)]));
    let unmount = stamped(ComputeCommand::Unmount(ACTIVATION));
    assert!(node.step(unmount).is_empty());
    let outcome = ComputeInput::Mounted(ACTIVATION, Err("away".into()));
    assert!(matches!(&node.step(outcome)[..], [ComputeEffect::Unmount(_)]));
}
