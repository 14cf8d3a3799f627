//! Capacity quotas of users and groups.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod harness;

use forebay_control::controller::{
    Cause, Outcome, QuotaSubject, Request, Settings, Setup, UsageStatus,
};
use forebay_control::messages::Owner;
use forebay_job_script::JobScript;
use forebay_units::Bytes;
use harness::{ADA, ControllerHarness, ROOT, SimStorage};

const BOB: Owner = Owner { uid: 1001, gid: 100 };
const GIB: u64 = 1 << 30;

type TestPool = ControllerHarness<SimStorage>;

fn test_pool() -> TestPool {
    ControllerHarness::new(Settings::default(), SimStorage::new(2), 2)
}

fn script(gib: u64) -> String {
    format!("#DW jobdw capacity={gib}GiB type=scratch access_mode=striped\n")
}

fn set_quota(
    pool: &mut TestPool,
    caller: Owner,
    subject: QuotaSubject,
    gib: Option<u64>,
) -> Outcome {
    let quota = gib.map(|gib| Bytes(gib * GIB));
    pool.request(caller, Request::SetQuota { subject, quota })
}

fn usage(pool: &TestPool, subject: QuotaSubject) -> UsageStatus {
    let usage = pool.controller.status().usage;
    *usage.iter().find(|row| row.subject == subject).unwrap()
}

#[test]
fn allocations_beyond_the_quota_of_the_user_are_refused_with_the_numbers() {
    let mut pool = test_pool();
    set_quota(&mut pool, ROOT, QuotaSubject::User(ADA.uid), Some(5)).unwrap();
    pool.setup(ADA, "1", &script(3)).unwrap();
    let refused = pool.setup(ADA, "2", &script(3)).unwrap_err();
    assert_eq!(refused.cause, Cause::Full);
    for part in ["user 1000 is 5.00 GiB", "3.00 GiB are allocated", "3.00 GiB more"] {
        assert!(refused.reason.contains(part), "{part}: {}", refused.reason);
    }
    assert!(pool.controller.state().sessions.by_token("2").is_none(), "nothing was changed");
    // What fits is granted, and what ends is free again.
    pool.setup(ADA, "3", &script(2)).unwrap();
    pool.teardown(ADA, "1", false).unwrap();
    pool.setup(ADA, "4", &script(3)).unwrap();
    // Others are not concerned.
    pool.setup(BOB, "5", &script(8)).unwrap();
}

#[test]
fn persistent_instances_count_and_a_group_shares_its_quota() {
    let mut pool = test_pool();
    set_quota(&mut pool, ROOT, QuotaSubject::Group(100), Some(6)).unwrap();
    let spec = Setup::from_script(&JobScript::parse(&script(4), None).unwrap()).instance.unwrap();
    let name = "data".to_owned();
    let create = Request::CreatePersistent { name, owner: ADA, spec, public: false };
    pool.request(ADA, create).unwrap();
    let refused = pool.setup(BOB, "1", &script(3)).unwrap_err();
    assert!(refused.reason.contains("group 100"), "{}", refused.reason);
    pool.setup(BOB, "2", &script(2)).unwrap();
    let group = usage(&pool, QuotaSubject::Group(100));
    assert_eq!((group.instances, group.used), (2, Bytes(6 * GIB)));
    assert_eq!(group.quota, Some(Bytes(6 * GIB)));
    let ada = usage(&pool, QuotaSubject::User(ADA.uid));
    assert_eq!((ada.instances, ada.used, ada.quota), (1, Bytes(4 * GIB), None));
}

#[test]
fn quotas_are_set_by_operators_and_survive_a_restart() {
    let mut pool = test_pool();
    let subject = QuotaSubject::User(ADA.uid);
    let denied = set_quota(&mut pool, ADA, subject, Some(100)).unwrap_err();
    assert_eq!(denied.cause, Cause::Denied);
    set_quota(&mut pool, ROOT, subject, Some(0)).unwrap();
    pool.restart();
    assert_eq!(pool.setup(ADA, "1", &script(1)).unwrap_err().cause, Cause::Full);
    set_quota(&mut pool, ROOT, subject, None).unwrap();
    pool.setup(ADA, "1", &script(1)).unwrap();
    pool.restart();
    assert_eq!(usage(&pool, subject).quota, None);
}
