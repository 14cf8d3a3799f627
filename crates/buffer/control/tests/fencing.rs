//! Compute nodes that are presumed dead: storage nodes refuse their mounts before anything is staged
//! out. Compute nodes whose agents start again.

use crate::harness;
use std::collections::{BTreeMap, BTreeSet};

use forebay_control::compute_node::{ComputeInput, ComputeNode};
use forebay_control::controller::{Cause, ControllerInput, Request, Settings, StageState};
use forebay_control::messages::{
    ComputeCommand, ComputeReport, Report, StampedCommand, StorageCommand, UnixMillis,
};
use forebay_control::storage_node::{MoverOutcome, StorageNode};
use forebay_policy::pool::NodeId;
use harness::{ADA, ControllerHarness, SimPeers, SimStorage, step_compute, two_compute_nodes};

/// Two storage nodes and two compute nodes, `nid0` and `nid1`.
struct SimPool {
    storage: SimStorage,
    hosts: BTreeMap<String, ComputeNode>,
    /// Hosts that neither receive nor send messages.
    silent_hosts: BTreeSet<String>,
    /// Generations of the mounts of each host.
    mounts: Vec<(String, u64)>,
    /// The generation of earlier mounts, which the hosts report if an older one is requested.
    least_generation: u64,
}

impl SimPool {
    fn host_step(&mut self, host: &str, input: ComputeInput, inputs: &mut Vec<ControllerInput>) {
        let (mut reports, mut mounts) = (Vec::new(), Vec::new());
        step_compute(self.hosts.get_mut(host).unwrap(), input, &mut reports, &mut mounts);
        self.mounts.extend(mounts.iter().map(|plan| (host.to_owned(), plan.generation)));
        for report in &mut reports {
            if let ControllerInput::Report(Report::Compute {
                body: ComputeReport::Mounted(_, generation),
                ..
            }) = report
            {
                *generation = (*generation).max(self.least_generation);
            }
        }
        inputs.append(&mut reports);
    }
}

impl SimPeers for SimPool {
    fn tick(&mut self, inputs: &mut Vec<ControllerInput>) {
        self.storage.tick(inputs);
        for host in ["nid0", "nid1"] {
            if !self.silent_hosts.contains(host) {
                self.host_step(host, ComputeInput::Tick, inputs);
            }
        }
    }

    fn storage_command(
        &mut self,
        node: NodeId,
        command: StampedCommand<StorageCommand>,
        inputs: &mut Vec<ControllerInput>,
    ) {
        self.storage.command(node, command, inputs);
    }

    fn compute_command(
        &mut self,
        host: String,
        command: StampedCommand<ComputeCommand>,
        inputs: &mut Vec<ControllerInput>,
    ) {
        if !self.silent_hosts.contains(&host) {
            self.host_step(&host, ComputeInput::Command(command), inputs);
        }
    }
}

type TestPool = ControllerHarness<SimPool>;

const JOB: &str = "#DW jobdw capacity=12GiB type=scratch access_mode=striped\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";

fn test_pool() -> TestPool {
    let mut storage = SimStorage::new(2);
    storage.mover_outcome = Some(MoverOutcome::Completed(Default::default()));
    let (silent_hosts, mounts) = (BTreeSet::new(), Vec::new());
    let peers =
        SimPool { storage, hosts: two_compute_nodes(), silent_hosts, mounts, least_generation: 0 };
    let settings =
        Settings { host_dead_after_ms: 10_000, request_timeout_ms: 30_000, ..Settings::default() };
    ControllerHarness::new(settings, peers, 2)
}

/// A job on both hosts, of which one is silent and the job is unmounted.
fn job_with_silent_host() -> TestPool {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    pool.activate(ADA, "7", &["nid0", "nid1"]).unwrap();
    pool.peers.silent_hosts.insert("nid1".into());
    pool
}

fn fenced_nodes(pool: &TestPool) -> BTreeSet<NodeId> {
    let fenced = pool.peers.storage.fenced.iter();
    let of_host = fenced.filter(|(_, hosts)| hosts.iter().all(|fence| fence.host == "nid1"));
    of_host.map(|(node, _)| *node).collect()
}

#[test]
fn every_storage_node_refuses_the_mount_of_a_silent_host_before_it_counts_as_ended() {
    let mut pool = job_with_silent_host();
    pool.deactivate(ADA, "7").unwrap();
    assert_eq!(fenced_nodes(&pool), BTreeSet::from([NodeId(0), NodeId(1)]));
    pool.request(ADA, Request::StageOut { token: "7".into() }).unwrap();
}

#[test]
fn nothing_is_staged_out_while_a_storage_node_has_not_confirmed() {
    let mut pool = job_with_silent_host();
    // It can be reached by the host, and not by the controller.
    pool.peers.storage.silent.insert(1);
    let failure = pool.deactivate(ADA, "7").unwrap_err();
    assert_eq!(failure.cause, Cause::TimedOut);
    assert!(failure.reason.contains("`nid1`"), "{}", failure.reason);
    assert!(failure.reason.contains("`bb1`"), "{}", failure.reason);
    pool.advance_ms(60_000);
    let refused = pool.request(ADA, Request::StageOut { token: "7".into() }).unwrap_err();
    assert_eq!(refused.cause, Cause::Busy, "{}", refused.reason);
    // The controller remembers what it waits for.
    pool.restart();
    pool.advance_ms(60_000);
    assert_eq!(fenced_nodes(&pool), BTreeSet::from([NodeId(0)]));
    pool.peers.storage.silent.clear();
    pool.deactivate(ADA, "7").unwrap();
    assert_eq!(fenced_nodes(&pool), BTreeSet::from([NodeId(0), NodeId(1)]));
    pool.request(ADA, Request::StageOut { token: "7".into() }).unwrap();
    let stages = pool.controller.status().stages;
    assert!(stages.iter().all(|stage| stage.state == StageState::Done), "{stages:?}");
}

#[test]
fn host_that_reports_again_mounts_with_a_generation_that_is_accepted() {
    let mut pool = job_with_silent_host();
    pool.deactivate(ADA, "7").unwrap();
    let fences: Vec<u64> = pool.peers.storage.fenced[0].1.iter().map(|f| f.generation).collect();
    pool.peers.silent_hosts.clear();
    pool.advance_ms(2000);
    pool.activate(ADA, "7", &["nid0", "nid1"]).unwrap();
    let generations = |host: &str| -> Vec<u64> {
        let mounts = pool.peers.mounts.iter().filter(|(of, _)| of == host);
        mounts.map(|(_, generation)| *generation).collect()
    };
    assert_eq!(generations("nid0"), [0, 0]);
    assert_eq!(generations("nid1"), [0, fences[0]]);
}

#[test]
fn agent_whose_clock_is_behind_that_of_the_one_before_mounts_again() {
    let start_agent = |pool: &mut TestPool, ms: u64| {
        let agent = ComputeNode::new("nid1".into(), UnixMillis(ms));
        pool.peers.hosts.insert("nid1".into(), agent);
    };
    for controller_restarts in [false, true] {
        let mut pool = test_pool();
        start_agent(&mut pool, 3_600_000);
        pool.setup(ADA, "7", JOB).unwrap();
        pool.activate(ADA, "7", &["nid0", "nid1"]).unwrap();
        for restarts in 1..4 {
            start_agent(&mut pool, 5_000 - restarts);
            if controller_restarts {
                pool.restart();
            }
            pool.advance_ms(5_000);
            let mounts = pool.peers.mounts.iter().filter(|(host, _)| host == "nid1");
            assert_eq!(mounts.count() as u64, 1 + restarts, "{controller_restarts}");
        }
        pool.deactivate(ADA, "7").unwrap();
        assert!(pool.controller.status().activations.is_empty());
    }
}

#[test]
fn other_jobs_of_a_silent_host_mount_a_shared_instance_again() {
    let mut pool = shared_instance();
    pool.peers.silent_hosts.insert("nid1".into());
    pool.deactivate(ADA, "8").unwrap();
    let generation = pool.peers.storage.fenced[0].1[0].generation;
    pool.peers.silent_hosts.clear();
    pool.advance_ms(5000);
    assert_eq!(pool.peers.mounts.last(), Some(&("nid1".to_owned(), generation)));
    pool.deactivate(ADA, "9").unwrap();
}

/// A persistent instance that two jobs on one host have mounted.
fn shared_instance() -> TestPool {
    let mut pool = test_pool();
    let spec = forebay_control::controller::Setup::from_script(
        &forebay_job_script::JobScript::parse(JOB, None).unwrap(),
    );
    let spec = spec.instance.unwrap();
    let name = "data".to_owned();
    let create = Request::CreatePersistent { name, owner: ADA, spec, public: false };
    pool.request(ADA, create).unwrap();
    for job in ["8", "9"] {
        pool.setup(ADA, job, "#DW persistentdw name=data\n").unwrap();
        pool.activate(ADA, job, &["nid1"]).unwrap();
    }
    pool
}

#[test]
fn teardown_of_a_job_waits_until_a_persistent_instance_refuses_its_silent_host() {
    let mut pool = shared_instance();
    pool.peers.silent_hosts.insert("nid1".into());
    pool.peers.storage.silent.insert(1);
    let failure = pool.teardown(ADA, "8", true).unwrap_err();
    assert_eq!(failure.cause, Cause::TimedOut, "{}", failure.reason);
    pool.peers.storage.silent.clear();
    pool.teardown(ADA, "8", true).unwrap();
    assert_eq!(fenced_nodes(&pool), BTreeSet::from([NodeId(0), NodeId(1)]));
    // What is written to a job's own instance is given up with it.
    let mut pool = job_with_silent_host();
    pool.peers.storage.silent.clear();
    pool.teardown(ADA, "7", true).unwrap();
    assert!(fenced_nodes(&pool).is_empty());
}

#[test]
fn newer_mount_than_requested_counts() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    // The host's agent has a mount that the controller has forgotten with its latest state.
    pool.peers.least_generation = 5;
    pool.activate(ADA, "7", &["nid1"]).unwrap();
    pool.deactivate(ADA, "7").unwrap();
}

#[test]
fn fences_are_restored_from_the_records_of_a_storage_node() {
    let mut pool = job_with_silent_host();
    pool.deactivate(ADA, "7").unwrap();
    let fences = StorageNode::fences_in(&pool.peers.storage.rows(NodeId(1))).unwrap();
    assert_eq!(fences.len(), 1);
    assert_eq!(fences[0].1, pool.peers.storage.fenced[0].1);
    pool.teardown(ADA, "7", true).unwrap();
    let fences = StorageNode::fences_in(&pool.peers.storage.rows(NodeId(1))).unwrap();
    assert!(fences.is_empty(), "{fences:?}");
}

#[test]
fn unmount_that_began_before_a_restart_with_an_earlier_clock_does_not_wait_for_that_time() {
    let mut pool = job_with_silent_host();
    let unmount = Request::Deactivate { token: "7".into(), creator: None };
    let unmount = pool.send_request(ADA, unmount);
    pool.advance_ms(2000);
    // The clock was ahead by an hour, and was set right before the restart.
    pool.now -= 3_600_000;
    pool.restart();
    pool.advance_ms(20_000);
    let record = pool.controller.state().requests.get(unmount).unwrap();
    assert!(matches!(record.outcome(), Some(Ok(_))), "{record:?}");
}

#[test]
fn request_of_a_time_to_come_has_no_more_time_than_others() {
    let mut pool = job_with_silent_host();
    pool.peers.storage.silent.extend([0, 1]);
    let unmount = Request::Deactivate { token: "7".into(), creator: None };
    let unmount = pool.send_request(ADA, unmount);
    pool.now -= 3_600_000;
    pool.restart();
    pool.advance_ms(25_000);
    let outcome = |pool: &TestPool| {
        let record = pool.controller.state().requests.get(unmount).unwrap();
        record.outcome().cloned()
    };
    assert_eq!(outcome(&pool), None);
    pool.advance_ms(10_000);
    assert_eq!(outcome(&pool).unwrap().unwrap_err().cause, Cause::TimedOut);
}
