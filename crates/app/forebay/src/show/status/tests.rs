use super::*;
use forebay_control::controller::{ControlStatus, NodeStatus, PoolStatus};
use forebay_control::messages::{InstanceId, Owner, SessionId, StageId, StageProgress};
use forebay_daemon::activity::HostActivity;
use forebay_job_script::AccessMode;
use forebay_job_script::Direction;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;

fn example() -> Status {
    let owner = Owner { uid: 4_000_000, gid: 0 };
    let session = |id, token: &str, lifetime| SessionStatus {
        id: SessionId(id),
        state: "CA---".into(),
        token: token.into(),
        lifetime,
        written: true,
        ending: false,
        creator: "test".into(),
        runner: "test".into(),
        owner,
        created: UnixMillis(0),
        hosts: Vec::new(),
        mounted: false,
        waits_for: None,
    };
    let instance = |id, label: &str, session, state: &str| InstanceStatus {
        id: InstanceId(id),
        state: state.into(),
        session: SessionId(session),
        label: label.into(),
        pool: "embedded".into(),
        capacity: Bytes(256 << 20),
        nodes: vec![NodeId(0)],
        intact: true,
        broken: None,
        public: false,
        modes: vec![AccessMode::Striped, AccessMode::Private],
        expiry: None,
        mount_generation: None,
        replaces: None,
        created: UnixMillis(1000),
    };
    let stage = |id, state, direction, bytes| StageStatus {
        id: StageId(id),
        token: "42".into(),
        direction,
        line: 3 + id as u32,
        state,
        progress: StageProgress {
            files: 1,
            files_total: 3,
            bytes,
            bytes_total: 3 << 20,
            all_found: id > 0,
            ..StageProgress::default()
        },
        stalled: false,
        nodes: Vec::new(),
    };
    ControlStatus {
        usage: Vec::new(),
        pools: vec![PoolStatus {
            name: "embedded".into(),
            granularity: Bytes(16 << 20),
            quantity: 64,
            free: 32,
        }],
        nodes: vec![NodeStatus {
            id: NodeId(0),
            name: "embedded".into(),
            pool: "embedded".into(),
            online: false,
            drained: false,
            evacuates: false,
            forgotten: false,
            granules: 64,
            used: 32,
            fragments: 2,
            written: Bytes(3 << 30),
            wrong_disk: false,
            unknown: 0,
        }],
        sessions: vec![session(1, "42", Lifetime::Job), session(2, "dbs", Lifetime::Persistent)],
        instances: vec![instance(1, "42", 1, "CA---"), instance(2, "dbs", 2, "DA-T-")],
        stages: vec![
            stage(0, StageState::Running, Direction::In, 1 << 20),
            stage(1, StageState::Failed("away: gone".into()), Direction::Out, 0),
        ],
        process: None,
        ..ControlStatus::default()
    }
    .into()
}

#[test]
fn status_names_nodes_with_full_disks() {
    let host = |name: &str, log_room| HostActivity {
        host: name.to_owned(),
        store: Some(forebay_store::daemon::StoreReport {
            gauges: Some(forebay_store::daemon::StoreGauges {
                log_space: log_room,
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..HostActivity::default()
    };
    let status = Status {
        activity: vec![
            host("bb1", LogSpace::Normal),
            host("bb2", LogSpace::ReserveOnly),
            host("bb3", LogSpace::Exhausted),
        ],
        ..Status::default()
    };
    let mut text = String::new();
    add_nodes(&mut text, &status);
    assert!(!text.contains("bb1: disk"), "{text}");
    assert!(text.contains("\nbb2: disk full: only reads and removals"), "{text}");
    assert!(text.contains("\nbb3: disk full and log full"), "{text}");
}

#[test]
fn status_names_damaged_data() {
    let damaged = |instance| DamagedObject { instance, ino: 17, offset: 65_536 };
    let mut status = example();
    status.activity = vec![HostActivity {
        host: "bb2".to_owned(),
        store: Some(StoreReport {
            damaged_objects: 5,
            damaged: vec![damaged(2), damaged(0x1f)],
            ..StoreReport::default()
        }),
        ..HostActivity::default()
    }];
    let mut text = String::new();
    add_nodes(&mut text, &status);
    assert!(
        text.ends_with(
            "\
bb2: instance dbs: inode 17 is damaged from byte 65536 of its object on
bb2: instance 1f: inode 17 is damaged from byte 65536 of its object on
bb2: 3 more damaged objects: see its log
"
        ),
        "{text}"
    );
}

#[test]
fn status_of_embedded_pool_with_interrupted_job() {
    let expected = "\
pool          size   in use     free   granule
embedded  1.00 GiB  512 MiB  512 MiB  16.0 MiB

node      pool      state        size   in use  fragments   written
embedded  embedded  offline  1.00 GiB  512 MiB          2  3.00 GiB

instance  of          user     access           state          used     size         age
42        job 42      4000000  striped,private  ready             ?  256 MiB  2 min 04 s
dbs       persistent  4000000  striped,private  being removed     ?  256 MiB  2 min 04 s

stage of  line  direction  state      files                   data
42           3  in         copying  1 of 3+  1.00 MiB of 3.00 MiB+
42           4  out        failed    1 of 3        0 B of 3.00 MiB
stage of 42, line 4, failed: away: gone

job 42 was interrupted: its data is here; `forebay recover` stages it out
";
    let text = status(&example(), UnixMillis(125_900), "");
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn stage_that_reads_back_shows_amounts_of_that_phase() {
    let mut status = example();
    let stage = &mut status.stages[1];
    stage.state = StageState::Running;
    stage.progress.phase = forebay_protocol::progress::StagePhase::ReadingBack;
    stage.progress.read_back = forebay_protocol::progress::StageAmount {
        files: 0,
        files_total: 1,
        bytes: 1 << 20,
        bytes_total: 2 << 20,
    };
    let mut text = String::new();
    add_stages(&mut text, &status);
    let expected = "\
stage of  line  direction  state           files                   data
42           3  in         copying       1 of 3+  1.00 MiB of 3.00 MiB+
42           4  out        reading back   0 of 1   1.00 MiB of 2.00 MiB
";
    assert_eq!(text.trim_start(), expected, "{text}");
    // A stopped stage shows what it has copied.
    status.stages[1].state = StageState::Cancelled;
    let mut text = String::new();
    add_stages(&mut text, &status);
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").ends_with("cancelled 1 of 3 0 B of 3.00 MiB"), "{text}");
}

#[test]
fn instance_being_removed_shows_removed_files_of_all_nodes() {
    let mut status = example();
    let on = |removed_objects| HostActivity {
        store: Some(forebay_store::daemon::StoreReport {
            removals: vec![RemovalProgress { instance: 2, total_objects: 1000, removed_objects }],
            ..Default::default()
        }),
        ..HostActivity::default()
    };
    status.activity = vec![on(250), on(400)];
    let mut text = String::new();
    add_instances(&mut text, &status, UnixMillis(125_900));
    assert!(text.contains("  650 of 2000 files removed  "), "{text}");
    assert!(text.contains("  ready  "), "{text}");
}

#[test]
fn status_names_instances_on_offline_nodes() {
    let mut shared = example();
    shared.pools[0].name = "flash".into();
    shared.nodes[0].name = "bb1".into();
    let text = status(&shared, UnixMillis(125_900), "");
    assert!(
        text.contains(
            "\n42 has data on offline nodes bb1; operations that need them are blocked\n"
        ),
        "{text}"
    );
    assert!(text.contains("`forebay forget NODE`"), "{text}");
    shared.nodes[0].forgotten = true;
    let text = status(&shared, UnixMillis(125_900), "");
    assert!(!text.contains("offline"), "{text}");
    assert!(text.contains("given up"), "{text}");
    shared.nodes[0].forgotten = false;
    shared.nodes[0].online = true;
    let text = status(&shared, UnixMillis(125_900), "");
    assert!(!text.contains("offline"), "{text}");
}

#[test]
fn status_says_what_an_operator_has_to_decide() {
    let mut pool = example();
    pool.nodes[0].wrong_disk = true;
    pool.nodes[0].unknown = 2;
    pool.control.outdated = true;
    let text = status(&pool, UnixMillis(0), "");
    for advice in [
        "embedded  embedded  wrong disk",
        "accept the loss of what happened since with `forebay accept-restored`\n",
        "mount its flash, or give up what was on it with `forebay forget embedded --lost`\n",
        "has 2 fragments that the restored controller does not know",
    ] {
        assert!(text.contains(advice), "{advice}: {text}");
    }
}

#[test]
fn empty_pool_in_use_names_its_process() {
    let mut empty = example();
    (empty.sessions, empty.instances, empty.stages) = Default::default();
    empty.process = Some(77);
    let text = status(&empty, UnixMillis(0), "");
    assert!(text.ends_with("\nnothing is allocated\n\nprocess 77 has the pool open\n"), "{text}");
}
