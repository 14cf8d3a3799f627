//! Requests of users and operators: permissions, refusals and their reasons.

use crate::harness;
use forebay_control::compute_node::{ComputeInput, ComputeNode};
use forebay_control::controller::{
    Answer, Cause, Controller, ControllerInput, InstanceSpec, Outcome, Request, Settings, Setup,
    StageState, StageStatus,
};
use forebay_control::messages::{
    ComputeCommand, FailedFile, Owner, StageFailure, StageProgress, StampedCommand, StorageCommand,
    UnixMillis,
};
use forebay_control::storage_node::MoverOutcome;
use forebay_job_script::{Direction, InstanceRef, JobScript, Stage, StageKind, StagePath};
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use harness::{ADA, ControllerHarness, ROOT, SimPeers, SimStorage, step_compute};

const BOB: Owner = Owner { uid: 1001, gid: 101 };
const EVE_IN_ADAS_GROUP: Owner = Owner { uid: 1002, gid: 100 };

/// Two storage nodes, whose movers fail, and a compute node.
struct SimPool {
    storage: SimStorage,
    host: ComputeNode,
}

impl SimPool {
    fn host_step(&mut self, input: ComputeInput, inputs: &mut Vec<ControllerInput>) {
        step_compute(&mut self.host, input, inputs, &mut Vec::new());
    }
}

impl SimPeers for SimPool {
    fn tick(&mut self, inputs: &mut Vec<ControllerInput>) {
        self.storage.tick(inputs);
        self.host_step(ComputeInput::Tick, inputs);
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
        if host == "nid1" {
            self.host_step(ComputeInput::Command(command), inputs);
        }
    }
}

type TestPool = ControllerHarness<SimPool>;

fn test_pool() -> TestPool {
    test_pool_with(Settings::default())
}

fn test_pool_with(settings: Settings) -> TestPool {
    let mut storage = SimStorage::new(2);
    storage.mover_outcome = Some(MoverOutcome::Failed("/pfs is away".into()));
    let host = ComputeNode::new("nid1".into(), UnixMillis(0));
    ControllerHarness::new(settings, SimPool { storage, host }, 2)
}

fn stage_of(script: &str) -> Stage {
    JobScript::parse(script, None).unwrap().stages.remove(0)
}

fn persistent_spec() -> InstanceSpec {
    let text = "#DW jobdw capacity=2GiB type=scratch access_mode=striped\n";
    Setup::from_script(&JobScript::parse(text, None).unwrap()).instance.unwrap()
}

fn persistent(pool: &mut TestPool, owner: Owner, name: &str, public: bool) -> Outcome {
    let spec = persistent_spec();
    pool.request(owner, Request::CreatePersistent { name: name.into(), owner, spec, public })
}

fn cause(outcome: Outcome) -> Cause {
    outcome.unwrap_err().cause
}

const JOB: &str = "#DW jobdw capacity=3GiB type=scratch access_mode=striped,private\n\
                   #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";

fn token(token: &str) -> String {
    token.into()
}

#[test]
fn requests_of_other_users_for_an_instance_are_denied() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    assert_eq!(cause(pool.teardown(BOB, "7", true)), Cause::Denied);
    assert_eq!(cause(pool.request(BOB, Request::StageIn { token: token("7") })), Cause::Denied);
    assert_eq!(cause(pool.activate(BOB, "7", &["nid1"])), Cause::Denied);
    assert!(pool.controller.mount_variables("7", BOB).is_err());
    assert_eq!(cause(pool.setup(BOB, "7", JOB)), Cause::Denied);
    let setup = Setup::default();
    let request = Request::Setup { token: token("8"), owner: ADA, creator: "x".into(), setup };
    assert_eq!(cause(pool.request(BOB, request)), Cause::Denied, "in the name of another user");
    assert_eq!(
        cause(
            pool.request(
                BOB,
                Request::DrainNode { node: NodeId(0), drained: true, evacuate: false }
            )
        ),
        Cause::Denied
    );
    let paths = pool.controller.mount_variables("7", ADA).unwrap();
    let root = "/var/opt/cray/dws/mounts/batch/7";
    assert_eq!(
        paths,
        [
            ("DW_JOB_STRIPED".to_owned(), format!("{root}/ss/")),
            ("DW_JOB_PRIVATE".to_owned(), format!("{root}/private/")),
        ]
    );
    assert_eq!(pool.controller.status().instances[0].capacity, Bytes(3 << 30));
    pool.teardown(ROOT, "7", false).unwrap();
}

#[test]
fn operator_acts_for_jobs_of_other_users() {
    let mut pool = test_pool_with(Settings { operator: BOB.uid, ..Settings::default() });
    let setup = Setup { instance: None, persistents: Vec::new(), stages: Vec::new() };
    let request = Request::Setup { token: token("7"), owner: ADA, creator: "wlm".into(), setup };
    pool.request(BOB, request).unwrap();
    pool.request(BOB, Request::StageIn { token: token("7") }).unwrap();
    assert!(pool.controller.job_view("7", BOB).is_ok());
    pool.teardown(BOB, "7", false).unwrap();
}

#[test]
fn planned_allocation_is_that_of_the_setup_or_names_the_lack_of_space() {
    let mut pool = test_pool();
    let spec = |script: &str| {
        Setup::from_script(&JobScript::parse(script, None).unwrap()).instance.unwrap()
    };
    let planned = pool.controller.plan_allocation(&spec(JOB)).unwrap();
    assert!(planned.fits_now);
    pool.setup(ADA, "7", JOB).unwrap();
    let status = pool.controller.status();
    assert_eq!(planned.capacity, status.instances[0].capacity);
    assert_eq!(planned.nodes as usize, status.instances[0].nodes.len());
    let all = status.pools[0].quantity * status.pools[0].granularity.0 / (1 << 30);
    let whole = format!("#DW jobdw capacity={all}GiB type=scratch access_mode=striped\n");
    let planned = pool.controller.plan_allocation(&spec(&whole)).unwrap();
    assert!(!planned.fits_now, "another job has a part of the pool");
    let more = whole.replace(&format!("{all}GiB"), &format!("{}GiB", all + 1));
    assert_eq!(pool.controller.plan_allocation(&spec(&more)).unwrap_err().cause, Cause::Full);
}

#[test]
fn persistent_instance_is_shared_by_name_and_outlives_jobs() {
    let mut pool = test_pool();
    persistent(&mut pool, ADA, "dbs", false).unwrap();
    let user = "#DW persistentdw name=dbs\n";
    assert_eq!(cause(pool.setup(BOB, "1", user)), Cause::Denied);
    assert_eq!(cause(pool.setup(EVE_IN_ADAS_GROUP, "2", user)), Cause::Denied);
    let mut spec = persistent_spec();
    spec.group = Some(ADA.gid);
    let name = token("shared");
    let create = Request::CreatePersistent { name, owner: ADA, spec, public: false };
    pool.request(ADA, create).unwrap();
    let shared = "#DW persistentdw name=shared\n";
    pool.setup(EVE_IN_ADAS_GROUP, "2", shared).unwrap();
    assert_eq!(cause(pool.setup(BOB, "1", shared)), Cause::Denied);
    pool.teardown(EVE_IN_ADAS_GROUP, "2", false).unwrap();
    let destroy = Request::DestroyPersistent { name: token("shared"), hurry: true };
    pool.request(ADA, destroy).unwrap();
    pool.setup(ADA, "2", user).unwrap();
    pool.setup(ADA, "3", user).unwrap();
    let path = &pool.controller.mount_variables("3", ADA).unwrap()[0];
    assert_eq!(path.0, "DW_PERSISTENT_STRIPED_dbs");
    assert!(path.1.ends_with("/"));
    let destroy = Request::DestroyPersistent { name: token("dbs"), hurry: true };
    assert_eq!(cause(pool.request(ADA, destroy.clone())), Cause::Busy, "other sessions use it");
    for job in ["2", "3"] {
        pool.teardown(ADA, job, false).unwrap();
    }
    assert_eq!(pool.controller.status().instances.len(), 1);
    assert_eq!(cause(pool.request(BOB, destroy.clone())), Cause::Denied);
    pool.request(ADA, destroy).unwrap();
    assert!(pool.controller.status().instances.is_empty());
    assert_eq!(cause(pool.setup(ADA, "4", user)), Cause::NotFound);
}

#[test]
fn stage_out_without_source_holds_nothing_back_when_it_has_failed_twice_since_the_job_ran() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    let missing = FailedFile { path: "$DW_JOB_STRIPED/a".into(), errno: 2 };
    let missing = StageFailure::new("missing".into(), [missing], StageProgress::default());
    let missing = Some(MoverOutcome::Failed(missing));
    let stage_out = |pool: &mut TestPool| {
        pool.request(ADA, Request::StageOut { token: token("7") }).unwrap_err();
        pool.teardown(ADA, "7", false)
    };
    for outcome in [None, missing.clone(), Some(MoverOutcome::Failed("again away".into()))] {
        pool.activate(ADA, "7", &["nid1"]).unwrap();
        pool.deactivate(ADA, "7").unwrap();
        if outcome.is_some() {
            pool.peers.storage.mover_outcome = outcome;
        }
        assert_eq!(cause(stage_out(&mut pool)), Cause::Busy);
    }
    pool.peers.storage.mover_outcome = missing;
    assert_eq!(cause(stage_out(&mut pool)), Cause::Busy, "this is the first time");
    stage_out(&mut pool).unwrap();
    assert!(pool.controller.status().instances.is_empty());
}

#[test]
fn teardown_without_hurry_keeps_results_until_staged_out() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    pool.request(ADA, Request::StageIn { token: token("7") }).unwrap();
    pool.activate(ADA, "7", &["nid1"]).unwrap();
    assert_eq!(
        cause(pool.request(ADA, Request::StageOut { token: token("7") })),
        Cause::Busy,
        "mounted"
    );
    pool.deactivate(ADA, "7").unwrap();
    let failure = pool.request(ADA, Request::StageOut { token: token("7") }).unwrap_err();
    assert_eq!(failure.cause, Cause::Failed);
    assert_eq!(failure.reason, "stage_out of line 2: /pfs is away");
    let kept = pool.teardown(ADA, "7", false).unwrap_err();
    assert!(kept.reason.contains("1 stage-out(s) are not done (1 failed)"), "{kept}");
    assert_eq!(pool.controller.status().instances.len(), 1);
    pool.teardown(ADA, "7", true).unwrap();
    assert_eq!(pool.controller.status().pools[0].free, 20);
    assert!(pool.peers.storage.nodes.iter().all(|node| node.used_granules() == 0));
}

#[test]
fn allocation_beyond_pool_capacity_is_refused() {
    let mut pool = test_pool();
    let all = "#DW jobdw capacity=20GiB type=scratch access_mode=striped\n";
    pool.setup(ADA, "1", all).unwrap();
    let failure = pool
        .setup(ADA, "2", "#DW jobdw capacity=1MiB type=scratch access_mode=striped\n")
        .unwrap_err();
    assert_eq!(failure.cause, Cause::Full);
    assert!(failure.reason.contains("1 granules requested, 0 free"), "{failure}");
    let sizes = "(a granule is 1.00 GiB, which is 1.00 GiB and 0 B)";
    assert!(failure.reason.ends_with(sizes), "{failure}");
    pool.teardown(ADA, "1", false).unwrap();
    pool.request(ROOT, Request::DrainNode { node: NodeId(0), drained: true, evacuate: false })
        .unwrap();
    assert_eq!(cause(pool.setup(ADA, "3", all)), Cause::Full);
    pool.setup(ADA, "4", "#DW jobdw capacity=2nodes type=scratch access_mode=striped\n")
        .unwrap_err();
    pool.setup(ADA, "5", "#DW jobdw capacity=1node type=scratch access_mode=striped\n").unwrap();
    assert_eq!(pool.controller.status().instances[0].nodes, [NodeId(1)]);
    let other_pool = "#DW jobdw capacity=1GiB type=scratch access_mode=striped pool=slow\n";
    assert!(pool.setup(ADA, "6", other_pool).unwrap_err().reason.contains("the pools are fast"));
    assert_eq!(cause(pool.setup(ADA, "../7", JOB)), Cause::Invalid);
}

#[test]
fn restarted_controller_has_same_state() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    persistent(&mut pool, ADA, "dbs", true).unwrap();
    let before = pool.controller.status();
    pool.restart();
    pool.request(ADA, Request::StageIn { token: token("7") }).unwrap();
    assert_eq!(pool.controller.status(), before);
    assert_eq!(before.instances[0].state, "CA---");
    let damaged = vec![("sessions".to_owned(), 1, b"{".to_vec())];
    let error = Controller::restore(Settings::default(), damaged).unwrap_err();
    assert!(error.to_string().contains("record 1 of table `sessions`"));
}

#[test]
fn deferred_stage_can_be_released_cancelled_or_left_to_stage_out() {
    let mut pool = test_pool();
    let script = "#DW jobdw capacity=3GiB type=scratch access_mode=striped\n";
    pool.setup(ADA, "9", script).unwrap();
    let token = || token("9");
    pool.activate(ADA, "9", &["nid1"]).unwrap();
    let text = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
                #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";
    let what = stage_of(text);
    let mut defer = |caller| {
        let (token, what) = (token(), what.clone());
        pool.request(caller, Request::DeferStage { token, what })
    };
    assert_eq!(cause(defer(BOB)), Cause::Denied);
    let mut stages = Vec::new();
    for _ in 0..3 {
        let Answer::Stage(stage) = defer(ADA).unwrap() else { panic!("no stage") };
        stages.push(stage);
    }
    let state =
        |pool: &TestPool, stage| pool.controller.state().stages.get(stage).unwrap().state.clone();
    assert_eq!(state(&pool, stages[0]), StageState::Waiting);
    // Released: it fails, as all movers do here, and cannot be released again.
    let release = |stage| Request::ReleaseStage { stage };
    assert_eq!(cause(pool.request(BOB, release(stages[0]))), Cause::Denied);
    pool.request(ADA, release(stages[0])).unwrap();
    let stage = stages[0];
    assert_eq!(cause(pool.request(ADA, Request::AwaitStage { stage })), Cause::Failed);
    assert!(matches!(state(&pool, stages[0]), StageState::Failed(_)));
    assert_eq!(cause(pool.request(ADA, release(stages[0]))), Cause::Invalid);
    // Cancelled.
    let stage = stages[1];
    pool.request(ADA, Request::CancelStage { stage }).unwrap();
    assert_eq!(state(&pool, stage), StageState::Cancelled);
    assert_eq!(cause(pool.request(ADA, release(stage))), Cause::Invalid);
    // Staged out at the end: the third, and the first again.
    pool.deactivate(ADA, "9").unwrap();
    let failure = pool.request(ADA, Request::StageOut { token: token() }).unwrap_err();
    let lines: Vec<&str> = failure.reason.lines().collect();
    assert_eq!(lines, ["stage_out of line 2: /pfs is away"; 2]);
    let limit = |most| Request::LimitStages {
        token: token(),
        instance: InstanceRef::Job,
        max_concurrent: most,
    };
    pool.request(ADA, limit(1)).unwrap();
    assert_eq!(cause(pool.request(ADA, limit(0))), Cause::Invalid);
    assert_eq!(cause(pool.request(BOB, limit(2))), Cause::Denied);
}

#[test]
fn failed_stage_that_was_replaced_is_not_repeated_at_the_end_of_the_job() {
    let mut pool = test_pool();
    pool.setup(ADA, "9", "#DW jobdw capacity=3GiB type=scratch access_mode=striped\n").unwrap();
    pool.activate(ADA, "9", &["nid1"]).unwrap();
    let mut request = |kind: &str, path: &str, destination: &str| {
        let mut what = stage_of(&format!(
            "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
             #DW stage_out type={kind} source=$DW_JOB_STRIPED/{path} destination={destination}\n"
        ));
        what.line = 0;
        let begin = Request::BeginStage { token: token("9"), what };
        let Answer::Stage(stage) = pool.request(ADA, begin).unwrap() else { panic!("no stage") };
        // All movers fail here.
        assert_eq!(cause(pool.request(ADA, Request::AwaitStage { stage })), Cause::Failed);
    };
    request("file", "a", "/pfs/wrong");
    request("file", "a", "/pfs/right");
    request("file", "b", "/pfs/b");
    // Another kind of stage does not take its place.
    request("directory", "b", "/pfs/b");
    pool.deactivate(ADA, "9").unwrap();
    let failure = pool.request(ADA, Request::StageOut { token: token("9") }).unwrap_err();
    assert_eq!(failure.reason.lines().count(), 3, "{failure}");
    let stages = pool.controller.status().stages;
    let states: Vec<bool> =
        stages.iter().map(|stage| matches!(stage.state, StageState::Failed(_))).collect();
    assert_eq!(states, [false, true, true, true]);
}

/// The latest stages of `forebay stage` are remembered, but not all.
#[test]
fn persistent_instance_forgets_oldest_ended_stages() {
    let mut pool =
        test_pool_with(Settings { max_stages: 20, max_kept_stages: 8, ..Settings::default() });
    persistent(&mut pool, ADA, "data", false).unwrap();
    let text = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
                #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";
    let mut what = stage_of(text);
    what.line = 0;
    let mut last = None;
    for _ in 0..30 {
        let (token, what) = (token("data"), what.clone());
        let Answer::Stage(stage) = pool.request(ADA, Request::BeginStage { token, what }).unwrap()
        else {
            panic!("no stage")
        };
        let failure = pool.request(ADA, Request::AwaitStage { stage }).unwrap_err();
        assert_eq!(failure.reason, "stage_out of $DW_JOB_STRIPED/a: /pfs is away");
        last = Some(stage);
    }
    assert!(pool.controller.state().stages.get(last.unwrap()).is_some());
    let stages = pool.controller.status().stages.len();
    assert!((2..=8).contains(&stages), "{stages}");
}

#[test]
fn activation_names_hosts_without_agent() {
    let mut pool = test_pool();
    pool.setup(ADA, "7", JOB).unwrap();
    pool.advance_ms(61_000);
    let failure = pool.activate(ADA, "7", &["nid1", "nid9"]).unwrap_err();
    assert_eq!(failure.cause, Cause::NotFound);
    assert!(failure.reason.contains("no agent of `nid9` has reported"), "{failure}");
    // Nothing was changed, and the other host can be used.
    assert!(pool.controller.status().sessions[0].hosts.is_empty());
    pool.activate(ADA, "7", &["nid1"]).unwrap();
}

/// A controller that has just started waits for agents to connect, but not forever.
#[test]
fn activation_with_unknown_host_fails_after_60s_and_names_it_once() {
    let mut pool = test_pool();
    let two_modes = "#DW jobdw capacity=3GiB type=scratch access_mode=striped,private\n";
    pool.setup(ADA, "7", two_modes).unwrap();
    let start = pool.now;
    let failure = pool.activate(ADA, "7", &["nid1", "nid9"]).unwrap_err();
    assert!((50_000..70_000).contains(&(pool.now - start)), "{failure}");
    assert_eq!(failure.cause, Cause::NotFound);
    assert!(
        failure.reason.contains("no agent of `nid9` has"),
        "named once, not for each activation: {failure}"
    );
    pool.activate(ADA, "7", &["nid1"]).unwrap();
}

#[test]
fn session_limit_per_user_exempts_root_and_repeated_setups() {
    let mut pool = test_pool_with(Settings { max_user_sessions: 2, ..Settings::default() });
    let job = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n";
    pool.setup(ADA, "1", job).unwrap();
    pool.setup(ADA, "2", job).unwrap();
    let third = pool.setup(ADA, "3", job).unwrap_err();
    assert_eq!(third.cause, Cause::Full);
    assert!(third.reason.contains("user 1000 has 2 sessions"), "{third}");
    pool.setup(ADA, "2", job).unwrap();
    pool.setup(BOB, "3", job).unwrap();
    for token in ["4", "5", "6"] {
        pool.setup(ROOT, token, job).unwrap();
    }
}

#[test]
fn job_runs_for_last_creator_only() {
    let mut pool = test_pool();
    let set_up_by = |pool: &mut TestPool, creator: &str| pool.setup_by(ADA, "7", JOB, creator);
    let run_by = |pool: &mut TestPool, creator: &str| {
        pool.request(
            ADA,
            Request::Activate {
                token: token("7"),
                hosts: vec!["nid1".into()],
                creator: Some(creator.into()),
            },
        )
    };
    set_up_by(&mut pool, "first").unwrap();
    // The last client to set it up runs it.
    set_up_by(&mut pool, "second").unwrap();
    assert_eq!(cause(run_by(&mut pool, "first")), Cause::Busy);
    run_by(&mut pool, "second").unwrap();
    let third = set_up_by(&mut pool, "third").unwrap_err();
    assert_eq!(third.cause, Cause::Busy);
    assert!(third.reason.contains("mounted on nid1"), "{third}");
    // The running client repeats its requests.
    set_up_by(&mut pool, "second").unwrap();
    run_by(&mut pool, "second").unwrap();
    pool.deactivate(ADA, "7").unwrap();
    set_up_by(&mut pool, "third").unwrap();
    run_by(&mut pool, "third").unwrap();
    // The first creator is kept.
    assert_eq!(pool.controller.status().sessions[0].creator, "first");
}

/// A persistent instance counts as written although its own session never is.
#[test]
fn destroy_without_hurry_keeps_persistent_data_to_be_staged_out() {
    let mut pool = test_pool();
    persistent(&mut pool, ADA, "data", false).unwrap();
    let text = "#DW persistentdw name=data\n\
                #DW stage_out type=file source=$DW_PERSISTENT_STRIPED_data/a destination=/pfs/a\n";
    let what = stage_of(text);
    let stage = Request::BeginStage { token: token("data"), what };
    let Answer::Stage(stage) = pool.request(ADA, stage).unwrap() else { panic!("no stage") };
    pool.request(ADA, Request::AwaitStage { stage }).unwrap_err();
    let destroy = |hurry| Request::DestroyPersistent { name: token("data"), hurry };
    let kept = pool.request(ADA, destroy(false)).unwrap_err();
    assert!(kept.reason.contains("1 stage-out(s) are not done (1 failed)"), "{kept}");
    assert!(kept.reason.contains(": $DW_PERSISTENT_STRIPED_data/a; "), "{kept}");
    assert!(kept.reason.contains("give --hurry"), "{kept}");
    pool.request(ADA, destroy(true)).unwrap();
}

/// As of a mistyped path of `forebay stage`.
#[test]
fn stage_out_whose_source_does_not_exist_does_not_keep_a_persistent_instance() {
    let mut pool = test_pool();
    persistent(&mut pool, ADA, "data", false).unwrap();
    let missing = FailedFile { path: "$DW_JOB_STRIPED/nothere".into(), errno: 2 };
    let missing = StageFailure::new("missing".into(), [missing], StageProgress::default());
    pool.peers.storage.mover_outcome = Some(MoverOutcome::Failed(missing));
    let (kind, instance) = (StageKind::File, InstanceRef::Job);
    let what = Stage::new(Direction::Out, kind, instance, "/pfs/a", "nothere").unwrap();
    let stage = Request::BeginStage { token: token("data"), what };
    let Answer::Stage(stage) = pool.request(ADA, stage).unwrap() else { panic!("no stage") };
    pool.request(ADA, Request::AwaitStage { stage }).unwrap_err();
    let destroy = Request::DestroyPersistent { name: token("data"), hurry: false };
    pool.request(ADA, destroy).unwrap();
}

/// Of two runs that have set up the same job, only the later one may end it.
#[test]
fn deactivate_and_teardown_by_earlier_creator_are_refused() {
    let mut pool = test_pool();
    let set_up_by = |pool: &mut TestPool, creator: &str| {
        pool.setup_by(ADA, "7", JOB, creator).unwrap();
    };
    let end = |creator: &str, hurry| Request::Teardown {
        token: token("7"),
        creator: Some(creator.into()),
        hurry,
    };
    let leave =
        |creator: &str| Request::Deactivate { token: token("7"), creator: Some(creator.into()) };
    set_up_by(&mut pool, "first");
    set_up_by(&mut pool, "second");
    let run = Request::Activate {
        token: token("7"),
        hosts: vec!["nid1".into()],
        creator: Some("second".into()),
    };
    pool.request(ADA, run).unwrap();
    for request in [leave("first"), end("first", true), end("first", false)] {
        let refused = pool.request(ADA, request).unwrap_err();
        assert_eq!(refused.cause, Cause::Busy);
        assert!(refused.reason.contains("another run has taken"), "{refused}");
    }
    assert!(pool.controller.job_view("7", ADA).unwrap().mounted);
    assert_eq!(cause(pool.request(BOB, leave("second"))), Cause::Denied);
    pool.request(ADA, leave("second")).unwrap();
    assert_eq!(
        cause(pool.request(ADA, end("second", false))),
        Cause::Busy,
        "its results are not staged out"
    );
    pool.request(ADA, end("second", true)).unwrap();
    assert!(pool.controller.status().sessions.is_empty());
    // Repeated after it was done.
    pool.request(ADA, end("second", true)).unwrap();
}

#[test]
fn refused_pfs_paths_are_named_with_line_and_reason() {
    let pfs_roots = vec!["/lus/a".into(), "/lus/b".into()];
    let mut pool = test_pool_with(Settings { pfs_roots, ..Settings::default() });
    let job = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n";
    pool.setup(ADA, "7", job).unwrap();
    let mut refused = |path: &str, line| {
        let out = "#DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";
        let mut what = stage_of(&format!("{job}{out}"));
        (what.destination, what.line) = (StagePath::Pfs(path.into()), line);
        let outcome = pool.request(ADA, Request::BeginStage { token: token("7"), what });
        outcome.err().map(|failure| failure.to_string()).unwrap_or_default()
    };
    let reason = refused("/lus/c/in", 3);
    assert!(reason.starts_with("line 3: `/lus/c/in` is not below a"), "{reason}");
    assert!(reason.ends_with("/lus/a, /lus/b"), "{reason}");
    let reason = refused("/lus/a/../a/in", 0);
    assert!(reason.starts_with("`/lus/a/../a/in` contains `..`"), "{reason}");
    assert!(refused("in", 0).contains("`in` is not an absolute path"));
    assert_eq!(refused("/lus/a/in", 3), "");
}

/// A pool of one node with two jobs that have requested five stages each of an instance. The first job
/// has this limit.
fn pool_with_stages(
    limit: Option<u32>,
    max_stages_per_node: usize,
) -> ControllerHarness<SimStorage> {
    let settings = Settings { max_stages_per_node, ..Settings::default() };
    let mut pool = ControllerHarness::new(settings, SimStorage::new(1), 1);
    let text = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n";
    let spec = Setup::from_script(&JobScript::parse(text, None).unwrap()).instance.unwrap();
    let name = "data".to_owned();
    let create = Request::CreatePersistent { name: name.clone(), owner: ADA, spec, public: false };
    pool.request(ADA, create).unwrap();
    let instance = InstanceRef::Persistent(name);
    for job in ["one", "other"] {
        pool.setup(ADA, job, "#DW persistentdw name=data\n").unwrap();
    }
    if let Some(max_concurrent) = limit {
        let (token, instance) = (token("one"), instance.clone());
        pool.request(ADA, Request::LimitStages { token, instance, max_concurrent }).unwrap();
    }
    for job in ["one", "other"] {
        for number in 0..5 {
            let path = format!("{job}{number}");
            let (direction, kind) = (Direction::In, StageKind::File);
            let what = Stage::new(direction, kind, instance.clone(), "/pfs/a", &path).unwrap();
            pool.request(ADA, Request::BeginStage { token: token(job), what }).unwrap();
        }
    }
    pool
}

/// Numbers of running stages of both jobs.
fn running_stages(pool: &ControllerHarness<SimStorage>) -> [usize; 2] {
    let stages = pool.controller.status().stages;
    ["one", "other"].map(|job| {
        let running = |stage: &&StageStatus| stage.state == StageState::Running;
        stages.iter().filter(|stage| stage.token == job).filter(running).count()
    })
}

#[test]
fn concurrent_stages_stay_within_session_and_node_limits() {
    let running = |limit, max| running_stages(&pool_with_stages(limit, max));
    assert_eq!(running(None, 4), [4, 0]);
    assert_eq!(running(Some(9), 2), [2, 0]);
    assert_eq!(running(None, 0), [0, 0]);
}

#[test]
fn stage_limit_of_one_session_does_not_apply_to_others() {
    let running = |limit, max| running_stages(&pool_with_stages(limit, max));
    assert_eq!(running(Some(3), 4), [3, 1]);
    assert_eq!(running(Some(1), 9), [1, 5]);
}

/// The directory of a stage does not respond.
#[test]
fn stages_without_progress_do_not_keep_movers_from_others_up_to_a_limit() {
    let mut pool = pool_with_stages(Some(2), 2);
    assert_eq!(running_stages(&pool), [2, 0]);
    let stalled = |pool: &ControllerHarness<SimStorage>| {
        pool.controller.status().stages.iter().filter(|stage| stage.stalled).count()
    };
    pool.advance_ms(50_000);
    assert_eq!((running_stages(&pool), stalled(&pool)), ([2, 0], 0));
    pool.advance_ms(15_000);
    assert_eq!((running_stages(&pool), stalled(&pool)), ([2, 2], 2));
    pool.advance_ms(65_000);
    assert_eq!((running_stages(&pool), stalled(&pool)), ([2, 4], 4));
    // Of six stalled movers none is counted, and the fifth stage is the last.
    pool.advance_ms(300_000);
    assert_eq!((running_stages(&pool), stalled(&pool)), ([2, 5], 7));
}
