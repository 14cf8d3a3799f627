//! Capacity quotas of users, groups and accounts.

use crate::harness;
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
    let status = pool.controller.status();
    let mut usage = status.usage.into_iter().chain(status.account_usage);
    usage.find(|row| row.subject == subject).unwrap()
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
    let denied = set_quota(&mut pool, ADA, subject.clone(), Some(100)).unwrap_err();
    assert_eq!(denied.cause, Cause::Denied);
    set_quota(&mut pool, ROOT, subject.clone(), Some(0)).unwrap();
    pool.restart();
    assert_eq!(pool.setup(ADA, "1", &script(1)).unwrap_err().cause, Cause::Full);
    set_quota(&mut pool, ROOT, subject.clone(), None).unwrap();
    pool.setup(ADA, "1", &script(1)).unwrap();
    pool.restart();
    assert_eq!(usage(&pool, subject).quota, None);
}

/// Sets a job of an account up.
fn setup_of_account(
    pool: &mut TestPool,
    owner: Owner,
    job: &str,
    gib: u64,
    account: &str,
) -> Outcome {
    let mut setup = Setup::from_script(&JobScript::parse(&script(gib), None).unwrap());
    setup.instance.as_mut().unwrap().account = Some(account.to_owned());
    let (token, creator) = (job.to_owned(), "test".to_owned());
    pool.request(owner, Request::Setup { token, owner, creator, setup })
}

#[test]
fn users_share_the_quota_of_their_account_across_restarts() {
    let mut pool = test_pool();
    let physics = QuotaSubject::Account("physics".to_owned());
    set_quota(&mut pool, ROOT, physics.clone(), Some(5)).unwrap();
    setup_of_account(&mut pool, ADA, "1", 3, "physics").unwrap();
    pool.restart();
    // A repeated request changes nothing, whatever account it names.
    setup_of_account(&mut pool, ADA, "1", 3, "chemistry").unwrap();
    pool.setup(ADA, "1", &script(3)).unwrap();
    assert_eq!(usage(&pool, physics.clone()).used, Bytes(3 * GIB));
    let refused = setup_of_account(&mut pool, BOB, "2", 3, "physics").unwrap_err();
    assert_eq!(refused.cause, Cause::Full);
    for part in ["account `physics` is 5.00 GiB", "3.00 GiB are allocated"] {
        assert!(refused.reason.contains(part), "{part}: {}", refused.reason);
    }
    setup_of_account(&mut pool, BOB, "3", 2, "physics").unwrap();
    setup_of_account(&mut pool, BOB, "4", 3, "chemistry").unwrap();
    pool.setup(BOB, "5", &script(3)).unwrap();
    let row = usage(&pool, physics.clone());
    assert_eq!((row.instances, row.used, row.quota), (2, Bytes(5 * GIB), Some(Bytes(5 * GIB))));
    assert_eq!(usage(&pool, QuotaSubject::Account("chemistry".to_owned())).used, Bytes(3 * GIB));
    pool.teardown(ADA, "1", false).unwrap();
    setup_of_account(&mut pool, ADA, "6", 3, "physics").unwrap();
    // A changed quota replaces the one before.
    set_quota(&mut pool, ROOT, physics.clone(), Some(9)).unwrap();
    setup_of_account(&mut pool, ADA, "7", 4, "physics").unwrap();
    set_quota(&mut pool, ROOT, physics.clone(), None).unwrap();
    assert_eq!(usage(&pool, physics).quota, None);
}

#[test]
fn names_that_cannot_be_shown_name_no_account() {
    let mut pool = test_pool();
    for name in ["", "a b", "a\u{1b}[2J", &"x".repeat(129)] {
        let refused = setup_of_account(&mut pool, ADA, "1", 1, name).unwrap_err();
        assert_eq!(refused.cause, Cause::Invalid, "{name:?}");
        let subject = QuotaSubject::Account(name.to_owned());
        let refused = set_quota(&mut pool, ROOT, subject, Some(1)).unwrap_err();
        assert_eq!(refused.cause, Cause::Invalid, "{name:?}");
    }
}
