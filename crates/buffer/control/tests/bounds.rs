//! Requests leave bounded records and replies, whatever they contain.

use crate::harness;
use forebay_control::controller::{
    Cause, Failure, InstanceSpec, Outcome, Request, RequestId, Settings, Setup,
};
use forebay_control::messages::StageId;
use forebay_job_script::{
    Capacity, Direction, InstanceRef, JobScript, Stage, StageKind, StagePath,
};
use forebay_units::Bytes;
use harness::{ADA, ControllerHarness, ROOT, SimStorage};

type TestPool = ControllerHarness<SimStorage>;

const MIB: usize = 1 << 20;

fn test_pool(settings: Settings) -> TestPool {
    ControllerHarness::new(settings, SimStorage::new(1), 1)
}

fn stage(instance: InstanceRef, path: &str) -> Stage {
    let script = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
                  #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/pfs/a\n";
    let mut stage = JobScript::parse(script, None).unwrap().stages.remove(0);
    stage.line = 0;
    stage.destination = StagePath::Pfs(path.to_owned());
    if let StagePath::Buffer(inside) = &mut stage.source {
        inside.instance = instance;
    }
    assert_eq!((stage.direction, stage.kind), (Direction::Out, StageKind::File));
    stage
}

/// A set-up without an instance, which any user may request at any time.
fn setup(token: &str, persistents: Vec<String>) -> Request {
    let setup = Setup { persistents, ..Setup::default() };
    Request::Setup { token: token.into(), owner: ADA, creator: "test".into(), setup }
}

/// Requests with names and paths of a MiB.
fn long_requests() -> Vec<Request> {
    let long = || "x".repeat(MIB);
    let spec = |pool| InstanceSpec::scratch(Capacity::Bytes(Bytes(1)), Vec::new(), pool);
    let create =
        |name: String, spec| Request::CreatePersistent { name, owner: ADA, spec, public: false };
    let begin = |token, what| Request::BeginStage { token, what };
    let mut account = spec(None);
    account.account = Some(long());
    let creator = || Some(long());
    vec![
        setup(&long(), Vec::new()),
        setup("a", vec![long()]),
        Request::Setup { token: "a".into(), owner: ADA, creator: long(), setup: Setup::default() },
        create(long(), spec(None)),
        create("a".into(), spec(Some(long()))),
        create("a".into(), account),
        Request::StageIn { token: long() },
        Request::StageOut { token: long() },
        Request::Activate { token: long(), hosts: Vec::new(), creator: None },
        Request::Activate { token: "7".into(), hosts: vec![long()], creator: None },
        Request::Deactivate { token: long(), creator: None },
        Request::Deactivate { token: "7".into(), creator: creator() },
        Request::Teardown { token: "7".into(), creator: creator(), hurry: true },
        Request::DestroyPersistent { name: long(), hurry: true },
        Request::ExtendPersistent { name: long(), lifetime_ms: None },
        begin(long(), stage(InstanceRef::Job, "/pfs/a")),
        begin("7".into(), stage(InstanceRef::Job, &format!("/{}", long()))),
        begin("7".into(), stage(InstanceRef::Persistent(long()), "/pfs/a")),
        Request::LimitStages { token: long(), instance: InstanceRef::Job, max_concurrent: 1 },
    ]
}

#[test]
fn ten_thousand_refusals_of_requests_with_long_names_leave_bounded_records() {
    let kept = 100;
    let mut pool = test_pool(Settings { max_kept_refusals: kept, ..Settings::default() });
    pool.setup(ADA, "7", "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n").unwrap();
    let (before, _) = pool.stored("requests");
    let requests = long_requests();
    for request in &requests {
        let refused: Failure = pool.request(ADA, request.clone()).unwrap_err();
        assert!(refused.reason.len() < 300, "{} bytes: {request:.100?}", refused.reason.len());
    }
    // Refused because of what it names, after the check of its length.
    let missing = Request::StageIn { token: "missing".into() };
    for request in requests.iter().chain([&missing]).cycle().take(10_000) {
        pool.send_request(ADA, request.clone());
    }
    let (count, bytes) = pool.stored("requests");
    assert!(count <= before + kept + 1, "{count} records");
    assert!(bytes < 100 << 10, "{bytes} bytes");
    // The refusals of a user do not push out those of another one.
    let of_root = pool.send_request(ROOT, missing.clone());
    for _ in 0..2 * kept {
        pool.send_request(ADA, missing.clone());
    }
    assert!(pool.controller.state().requests.get(of_root).is_some());
    pool.restart();
    pool.advance_ms(1000);
    assert!(pool.stored("requests").0 <= before + kept + 2, "also after a restart");
}

#[test]
fn name_of_a_session_that_cannot_exist_counts_as_torn_down() {
    let mut pool = test_pool(Settings::default());
    let teardown = Request::Teardown { token: "x".repeat(100), creator: None, hurry: false };
    pool.request(ADA, teardown).unwrap();
}

#[test]
fn reason_of_a_failure_is_cut_between_characters() {
    for letter in ["x", "é", "の", "🌊"] {
        let failure = Failure::new(Cause::Failed, letter.repeat(5000));
        assert!(failure.reason.len() <= Failure::MAX_REASON_BYTES);
        assert!(failure.reason.len() > Failure::MAX_REASON_BYTES - 10);
        assert!(failure.reason.ends_with(&format!("{letter} …")), "{}", failure.reason);
    }
    assert_eq!(Failure::new(Cause::Failed, "x".repeat(4096)).reason, "x".repeat(4096));
}

#[test]
fn refusal_of_a_stage_request_is_remembered_for_an_hour_and_not_for_a_day() {
    let mut pool = test_pool(Settings::default());
    let refused = pool.send_request(ADA, Request::StageIn { token: "missing".into() });
    let is_known =
        |pool: &TestPool, id: RequestId| pool.controller.state().requests.get(id).is_some();
    pool.skip_ms(3_500_000);
    pool.advance_ms(1000);
    assert!(is_known(&pool, refused));
    pool.skip_ms(200_000);
    pool.advance_ms(1000);
    assert!(!is_known(&pool, refused));
}

#[test]
fn reply_to_a_request_that_waited_long_is_remembered_for_an_hour_after_it() {
    let mut pool = test_pool(Settings::default());
    let job = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
               #DW stage_in type=file source=/pfs/a destination=$DW_JOB_STRIPED/a\n";
    pool.setup(ADA, "7", job).unwrap();
    let id = pool.send_request(ADA, Request::StageIn { token: "7".into() });
    let outcome = |pool: &TestPool| -> Option<Option<Outcome>> {
        let record = pool.controller.state().requests.get(id)?;
        Some(record.outcome().cloned())
    };
    for _ in 0..3 {
        pool.skip_ms(3_600_000);
        pool.advance_ms(1000);
        assert_eq!(outcome(&pool), Some(None), "it waits");
    }
    pool.request(ADA, Request::CancelStage { stage: first_stage(&pool) }).unwrap();
    assert!(matches!(outcome(&pool), Some(Some(Err(_)))), "{:?}", outcome(&pool));
    pool.skip_ms(3_500_000);
    pool.advance_ms(1000);
    assert!(outcome(&pool).is_some());
    pool.skip_ms(200_000);
    pool.advance_ms(1000);
    assert_eq!(outcome(&pool), None);
}

fn first_stage(pool: &TestPool) -> StageId {
    pool.controller.status().stages[0].id
}

#[test]
fn set_ups_and_stages_of_a_user_are_limited_in_bytes() {
    let settings = Settings { max_user_session_bytes: 1 << 20, ..Settings::default() };
    let mut pool = test_pool(settings);
    pool.setup(ADA, "7", "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n").unwrap();
    let begin = |number: usize| Request::BeginStage {
        token: "7".into(),
        what: {
            let mut stage = stage(InstanceRef::Job, &format!("/{number}/{}", "x".repeat(4000)));
            if let StagePath::Buffer(inside) = &mut stage.source {
                inside.path = number.to_string();
            }
            stage
        },
    };
    let mut accepted = 0;
    let full = loop {
        match pool.request(ADA, begin(accepted)) {
            Ok(_) => accepted += 1,
            Err(failure) => break failure,
        }
    };
    assert_eq!(full.cause, Cause::Full, "{full}");
    assert!((200..260).contains(&accepted), "{accepted} stages of 4 KB");
    let persistents = setup("8", Vec::new());
    let token = |number: usize| setup(&format!("s{number}"), Vec::new());
    let mut sessions = 0;
    while pool.request(ADA, token(sessions)).is_ok() {
        sessions += 1;
    }
    assert!(sessions < 10, "{sessions}");
    pool.restart();
    pool.advance_ms(1000);
    assert_eq!(pool.request(ADA, persistents.clone()).unwrap_err().cause, Cause::Full);
    pool.teardown(ADA, "7", true).unwrap();
    pool.request(ADA, persistents).unwrap();
}

#[test]
fn requests_of_a_user_that_wait_are_limited() {
    let settings = Settings { max_user_waiting_requests: 10, ..Settings::default() };
    let mut pool = test_pool(settings);
    let job = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
               #DW stage_in type=file source=/pfs/a destination=$DW_JOB_STRIPED/a\n";
    pool.setup(ADA, "7", job).unwrap();
    pool.send_request(ADA, Request::StageIn { token: "7".into() });
    let stage = first_stage(&pool);
    for _ in 1..10 {
        pool.send_request(ADA, Request::AwaitStage { stage });
    }
    let busy = pool.request(ADA, Request::AwaitStage { stage }).unwrap_err();
    assert_eq!(busy.cause, Cause::Busy, "{busy}");
    pool.request(ROOT, Request::CancelStage { stage }).unwrap();
    let cancelled = pool.request(ADA, Request::AwaitStage { stage }).unwrap_err();
    assert_eq!(cancelled.cause, Cause::Failed, "{cancelled}");
}
