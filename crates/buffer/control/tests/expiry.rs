//! Expiry of persistent instances.

use crate::harness;
use forebay_control::controller::{
    Answer, Cause, ExpiryStep, InstanceSpec, Outcome, Request, SessionStatus, Settings,
};
use forebay_control::messages::{Owner, UnixMillis};
use forebay_job_script::{Access, AccessMode, Capacity, JobScript};
use forebay_units::Bytes;
use harness::{ADA, ControllerHarness, ROOT, SimStorage};

const BOB: Owner = Owner { uid: 1001, gid: 100 };

type TestPool = ControllerHarness<SimStorage>;

/// A pool whose persistent instances live for 100 s at most, with warnings 20 s before, and 50 s of
/// grace.
fn test_pool() -> TestPool {
    let settings = Settings {
        persistent_lifetime_ms: Some(100_000),
        persistent_warning_ms: 20_000,
        persistent_grace_ms: 50_000,
        ..Settings::default()
    };
    ControllerHarness::new(settings, SimStorage::new(2), 2)
}

fn create(pool: &mut TestPool, caller: Owner, name: &str, seconds: Option<u64>) -> Outcome {
    let access = vec![Access { mode: AccessMode::Striped, modifiers: Default::default() }];
    let capacity = Capacity::Bytes(Bytes(1 << 30));
    let spec = InstanceSpec {
        lifetime_ms: seconds.map(|seconds| seconds * 1000),
        ..InstanceSpec::scratch(capacity, access, None)
    };
    pool.request(
        caller,
        Request::CreatePersistent { name: name.into(), owner: caller, spec, public: true },
    )
}

fn extend(pool: &mut TestPool, caller: Owner, name: &str, seconds: Option<u64>) -> Outcome {
    let lifetime_ms = seconds.map(|seconds| seconds * 1000);
    pool.request(caller, Request::ExtendPersistent { name: name.into(), lifetime_ms })
}

fn step(pool: &TestPool, name: &str) -> Option<ExpiryStep> {
    let status = pool.controller.status();
    let instance = status.instances.iter().find(|instance| instance.label == name)?;
    Some(instance.expiry.map_or(ExpiryStep::None, |expiry| expiry.step))
}

fn session(pool: &TestPool, name: &str) -> Option<SessionStatus> {
    let status = pool.controller.status();
    status.sessions.iter().find(|session| session.token == name).cloned()
}

fn actions(pool: &mut TestPool) -> Vec<&'static str> {
    pool.controller.take_notices().into_iter().map(|notice| notice.action).collect()
}

const USES: &str = "#DW persistentdw name=p\n";

#[test]
fn unused_instance_is_announced_closed_and_removed_after_the_grace_period() {
    let mut pool = test_pool();
    create(&mut pool, ADA, "p", None).unwrap();
    pool.advance_ms(70_000);
    assert_eq!((step(&pool, "p"), actions(&mut pool)), (Some(ExpiryStep::None), vec![]));
    pool.advance_ms(15_000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::Warned));
    assert_eq!(actions(&mut pool), ["expiry_warning"], "once");
    pool.setup(BOB, "1", USES).unwrap();
    pool.teardown(BOB, "1", false).unwrap();
    pool.advance_ms(20_000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::Expired));
    assert_eq!(actions(&mut pool), ["expired"]);
    let refused = pool.setup(BOB, "2", USES).unwrap_err();
    assert_eq!(refused.cause, Cause::Denied);
    assert!(refused.reason.contains("forebay extend-persistent p"), "{}", refused.reason);
    pool.restart();
    pool.advance_ms(30_000);
    assert_eq!((step(&pool, "p"), actions(&mut pool)), (Some(ExpiryStep::Expired), vec![]));
    pool.advance_ms(30_000);
    assert_eq!((step(&pool, "p"), actions(&mut pool)), (None, vec!["remove_expired"]));
    assert!(session(&pool, "p").is_none());
    assert_eq!(pool.used_granules(), [0, 0]);
}

#[test]
fn instance_in_use_is_kept_until_its_last_job_has_ended() {
    let mut pool = test_pool();
    create(&mut pool, ADA, "p", Some(50)).unwrap();
    pool.setup(BOB, "1", USES).unwrap();
    pool.advance_ms(500_000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::Kept));
    let notices = pool.controller.take_notices();
    let kept = notices.last().unwrap();
    assert_eq!(kept.action, "remove_expired");
    assert!(kept.outcome.contains("1 other session(s) use the instance"), "{}", kept.outcome);
    assert_eq!(notices.len(), 3, "the reason is announced once: {notices:?}");
    pool.teardown(BOB, "1", false).unwrap();
    pool.advance_ms(5000);
    assert_eq!(step(&pool, "p"), None);
    assert_eq!(actions(&mut pool), ["remove_expired"]);
}

#[test]
fn extension_reopens_an_expired_instance_and_is_limited_for_users() {
    let mut pool = test_pool();
    create(&mut pool, ADA, "p", Some(10)).unwrap();
    pool.advance_ms(40_000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::Expired));
    assert_eq!(extend(&mut pool, BOB, "p", Some(50)).unwrap_err().cause, Cause::Denied);
    assert_eq!(extend(&mut pool, ADA, "p", Some(101)).unwrap_err().cause, Cause::Invalid);
    assert_eq!(extend(&mut pool, ADA, "q", None).unwrap_err().cause, Cause::NotFound);
    extend(&mut pool, ADA, "p", Some(90)).unwrap();
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::None));
    pool.setup(BOB, "1", USES).unwrap();
    pool.teardown(BOB, "1", false).unwrap();
    pool.advance_ms(60_000);
    assert!(session(&pool, "p").is_some(), "the earlier grace period is void");
    // An operator may let it live for ever.
    extend(&mut pool, ROOT, "p", None).unwrap();
    pool.advance_ms(1_000_000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::None));
}

#[test]
fn users_cannot_request_more_than_the_pool_allows() {
    let mut pool = test_pool();
    let refused = create(&mut pool, ADA, "p", Some(101)).unwrap_err();
    assert!(refused.reason.contains("live for at most"), "{}", refused.reason);
    assert!(session(&pool, "p").is_none(), "nothing was changed");
    create(&mut pool, ROOT, "p", Some(1000)).unwrap();
    pool.advance_ms(900_000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::None));
}

#[test]
fn clock_that_is_set_forward_removes_nothing_without_a_grace_period() {
    let mut pool = test_pool();
    create(&mut pool, ADA, "p", None).unwrap();
    pool.skip_ms(10_000_000_000);
    pool.advance_ms(45_000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::Expired));
    extend(&mut pool, ADA, "p", None).unwrap();
    pool.advance_ms(60_000);
    assert!(session(&pool, "p").is_some());
}

#[test]
fn data_that_wait_for_their_stage_out_are_never_removed() {
    let mut pool = test_pool();
    create(&mut pool, ADA, "p", Some(10)).unwrap();
    let script = "#DW jobdw capacity=1GiB type=scratch access_mode=striped\n\
                  #DW stage_out type=file source=$DW_JOB_STRIPED/a destination=/lus/a\n";
    let what = JobScript::parse(script, None).unwrap().stages.remove(0);
    let defer = Request::DeferStage { token: "p".into(), what };
    let Ok(Answer::Stage(stage)) = pool.request(ADA, defer) else { panic!("it is accepted") };
    pool.advance_ms(1_000_000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::Kept));
    let notices = pool.controller.take_notices();
    assert!(notices.last().unwrap().outcome.contains("1 stage-out(s) are not done"), "{notices:?}");
    assert_eq!(pool.used_granules().iter().sum::<u64>(), 1, "the data are there");
    // The owner decides that they are not needed.
    pool.request(ADA, Request::CancelStage { stage }).unwrap();
    pool.advance_ms(5000);
    assert_eq!(step(&pool, "p"), None);
}

/// The time of day may be set at any time; the time of steps only passes.
#[test]
fn instance_expires_by_the_time_of_day_and_its_grace_period_passes() {
    let mut pool = test_pool();
    create(&mut pool, ADA, "p", None).unwrap();
    pool.controller.set_time_of_day(UnixMillis(pool.now + 200_000));
    pool.advance_ms(5000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::Expired));
    pool.controller.set_time_of_day(UnixMillis(pool.now + 10_000_000_000));
    pool.advance_ms(40_000);
    assert_eq!(step(&pool, "p"), Some(ExpiryStep::Expired), "the grace period has not passed");
    pool.advance_ms(10_000);
    assert_eq!(step(&pool, "p"), None);
    pool.controller.set_time_of_day(UnixMillis(pool.now));
    create(&mut pool, ADA, "q", None).unwrap();
    pool.advance_ms(1_000_000);
    assert_eq!(step(&pool, "q"), Some(ExpiryStep::None), "the time of day stands still");
}
