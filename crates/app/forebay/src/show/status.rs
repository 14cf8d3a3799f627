//! What a pool holds, for people.

use forebay_job_script::Direction;
use forebay_store::daemon::Direct;
use forebay_store::log::LogSpace;
use forebay_store::objects::RemovalProgress;

use super::tables::{row, table};
use super::{size, time};
use forebay_control::controller::{
    InstanceStatus, Lifetime, SessionStatus, StageState, StageStatus,
};
use forebay_control::messages::UnixMillis;
use forebay_daemon::activity::Status;
use forebay_daemon::embedded::POOL_NAME;

/// A user's name, or number if it has none.
pub fn user(uid: u32) -> String {
    match uzers::get_user_by_uid(uid) {
        Some(user) => user.name().to_string_lossy().into_owned(),
        None => uid.to_string(),
    }
}

/// An instance's state in words.
pub fn instance_state(instance: &InstanceStatus) -> &'static str {
    let state = instance.state.as_str();
    match () {
        () if state.starts_with('D') => "being removed",
        () if !instance.intact => "data lost",
        () if state.contains('A') => "ready",
        () => "being made",
    }
}

/// The state of an instance that is being destroyed.
fn removing(removal: &RemovalProgress) -> String {
    let RemovalProgress {
        removed_objects: removed,
        total_objects: objects,
        ..
    } = removal;
    match objects {
        // They are not counted yet.
        0 => "being removed".to_owned(),
        objects => format!("{removed} of {objects} files removed"),
    }
}

/// A stage's state in a word or two; of one that is running, what it is doing.
pub fn stage_state(stage: &StageStatus) -> &'static str {
    match &stage.state {
        StageState::Waiting => "waiting",
        StageState::Queued => "queued",
        StageState::Running => stage.progress.phase.words(),
        StageState::Cancelling => "stopping",
        StageState::Done => "done",
        StageState::Failed(_) => "failed",
        StageState::Cancelled => "cancelled",
    }
}

fn since(now: UnixMillis, then: UnixMillis) -> String {
    time((now.ms_since(then) / 1000) as f64)
        .replace("0 ms", "0 s")
        .replace(".0 s", " s")
}

/// What a pool holds at the time `now`.
pub fn status(status: &Status, now: UnixMillis) -> String {
    let mut text = String::new();
    pools(&mut text, status);
    instances(&mut text, status, now);
    stages(&mut text, status);
    advice(&mut text, status);
    text
}

fn pools(text: &mut String, status: &Status) {
    let mut rows = vec![row(["pool", "size", "in use", "free", "granule"])];
    for pool in &status.pools {
        let bytes = |granules: u64| size(granules.saturating_mul(pool.granularity.0));
        let used = pool.quantity.saturating_sub(pool.free);
        rows.push(vec![
            pool.name.clone(),
            bytes(pool.quantity),
            bytes(used),
            bytes(pool.free),
            size(pool.granularity.0),
        ]);
    }
    text.push_str(&table("lrrrr", &rows));
    let mut rows = vec![row([
        "node",
        "pool",
        "state",
        "size",
        "in use",
        "fragments",
    ])];
    for node in &status.nodes {
        let state = match (node.online, node.drained) {
            _ if node.forgotten => "given up",
            (false, true) => "drained, offline",
            (_, true) if node.fragments > 0 => "draining",
            (_, true) => "drained",
            (true, false) => "online",
            (false, false) => "offline",
        };
        let granule = status.pools.iter().find(|pool| pool.name == node.pool);
        let granule = granule.map_or(0, |pool| pool.granularity.0);
        rows.push(vec![
            node.name.clone(),
            node.pool.clone(),
            state.to_owned(),
            size(node.granules.saturating_mul(granule)),
            size(node.used.saturating_mul(granule)),
            node.fragments.to_string(),
        ]);
    }
    text.push('\n');
    text.push_str(&table("lllrrr", &rows));
    for host in &status.activity {
        let path = host.store.as_ref().map(|store| store.data_path);
        if let Some(path) = path.filter(|path| path.direct != Direct::Never) {
            text.push_str(&format!(
                "{}: data of clients on other hosts: {path}\n",
                host.host
            ));
        }
        let present = host.store.as_ref().and_then(|store| store.gauges.as_ref());
        match present.map_or(LogSpace::Normal, |present| present.log_space) {
            LogSpace::Normal => {}
            LogSpace::ReserveOnly => text.push_str(&format!(
                "{}: its disk is full: only removing and reading go on, until it has space for the log\n",
                host.host
            )),
            LogSpace::Exhausted => text.push_str(&format!(
                "{}: its disk is full, and so is the log: only reading goes on\n",
                host.host
            )),
        }
    }
}

fn holder(session: Option<&SessionStatus>) -> String {
    match session {
        Some(session) if session.lifetime == Lifetime::Job => format!("job {}", session.token),
        Some(_) => "persistent".to_owned(),
        None => String::new(),
    }
}

fn instances(text: &mut String, status: &Status, now: UnixMillis) {
    text.push('\n');
    if status.instances.is_empty() {
        text.push_str("nothing is allocated\n");
        return;
    }
    let mut rows = vec![row([
        "instance", "of", "user", "access", "state", "used", "size", "for",
    ])];
    for instance in &status.instances {
        let session = status.sessions.iter().find(|s| s.id == instance.session);
        let modes: Vec<&str> = instance.modes.iter().map(|mode| mode.keyword()).collect();
        let used = status
            .instance_usage(instance.id)
            .map(|(bytes, _)| size(bytes));
        rows.push(vec![
            instance.label.clone(),
            holder(session),
            session.map_or_else(String::new, |s| user(s.owner.uid)),
            modes.join(","),
            match status.removal_progress(instance.id) {
                Some(removal) => removing(&removal),
                None => instance_state(instance).to_owned(),
            },
            used.unwrap_or_else(|| "?".to_owned()),
            size(instance.capacity.0),
            since(now, instance.created),
        ]);
    }
    text.push_str(&table("lllllrrr", &rows));
    for instance in &status.instances {
        if let Some(reason) = instance.broken.as_ref().filter(|_| !instance.intact) {
            text.push_str(&format!("{}: {reason}\n", instance.label));
        }
    }
    out_of_reach(text, status);
}

fn amount(stage: &StageStatus) -> (String, String) {
    let progress = &stage.progress;
    if stage.state == StageState::Done {
        return (
            progress.copied.files.to_string(),
            size(progress.copied.bytes),
        );
    }
    // While files are still being found nobody knows how many there are.
    let open = if progress.all_found { "" } else { "+" };
    let moved = match stage.state {
        StageState::Running => progress.present(),
        _ => progress.copied,
    };
    (
        format!("{} of {}{open}", moved.files, moved.files_total),
        format!("{} of {}{open}", size(moved.bytes), size(moved.bytes_total)),
    )
}

fn stages(text: &mut String, status: &Status) {
    if status.stages.is_empty() {
        return;
    }
    let mut rows = vec![row(["stage of", "line", "way", "state", "files", "data"])];
    for stage in &status.stages {
        let way = match stage.direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        let (files, data) = amount(stage);
        rows.push(vec![
            stage.token.clone(),
            match stage.line {
                // Asked for by a running job or by `forebay stage`, not by a script.
                0 => "-".to_owned(),
                line => line.to_string(),
            },
            way.to_owned(),
            stage_state(stage).to_owned(),
            files,
            data,
        ]);
    }
    text.push('\n');
    text.push_str(&table("lrllrr", &rows));
    for stage in &status.stages {
        if let StageState::Failed(reason) = &stage.state {
            let token = &stage.token;
            let line = match stage.line {
                0 => String::new(),
                line => format!(", line {line},"),
            };
            text.push_str(&format!("stage of {token}{line} failed: {reason}\n"));
        }
    }
}

/// A pool of the kind that is open only while it is used.
fn is_embedded(status: &Status) -> bool {
    status.pools.iter().all(|pool| pool.name == POOL_NAME)
}

/// Instances with a part on storage nodes that cannot be reached; an embedded pool has none while
/// nobody uses it.
fn out_of_reach(text: &mut String, status: &Status) {
    if is_embedded(status) {
        return;
    }
    let before = text.len();
    for instance in &status.instances {
        let away: Vec<&str> = status
            .nodes
            .iter()
            .filter(|node| !node.online && !node.forgotten && instance.nodes.contains(&node.id))
            .map(|node| node.name.as_str())
            .collect();
        if !away.is_empty() {
            text.push_str(&format!(
                "{} has data on {}, offline: who needs them waits\n",
                instance.label,
                away.join(", ")
            ));
        }
    }
    if text.len() > before {
        text.push_str(
            "if a node will never come back, an operator can say so: `forebay forget NODE`\n",
        );
    }
}

/// What the reader may want to do.
fn advice(text: &mut String, status: &Status) {
    let jobs: Vec<&SessionStatus> = status
        .sessions
        .iter()
        .filter(|session| session.lifetime == Lifetime::Job)
        .collect();
    match status.process {
        Some(process) => text.push_str(&format!("\nprocess {process} has the pool open\n")),
        // A job that nobody brings to its end, in a pool that is open only while it is used.
        None if !jobs.is_empty() && is_embedded(status) => {
            text.push('\n');
            for job in jobs {
                let what = if job.written {
                    "its data is here; `forebay recover` stages it out"
                } else {
                    "it had not run; `forebay recover` takes it down"
                };
                text.push_str(&format!("job {} was interrupted: {what}\n", job.token));
            }
        }
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_control::controller::{ControlStatus, NodeStatus, PoolStatus};
    use forebay_control::messages::{InstanceId, Owner, SessionId, StageId, StageProgress};
    use forebay_daemon::activity::HostActivity;
    use forebay_job_script::AccessMode;
    use forebay_policy::pool::NodeId;
    use forebay_units::Bytes;

    fn example() -> Status {
        let owner = Owner {
            uid: 4_000_000,
            gid: 0,
        };
        let session = |id, token: &str, lifetime| SessionStatus {
            id: SessionId(id),
            state: "CA---".into(),
            token: token.into(),
            lifetime,
            written: true,
            ending: false,
            creator: "test".into(),
            owner,
            created: UnixMillis(0),
            hosts: Vec::new(),
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
            created: UnixMillis(1000),
        };
        let stage = |id, state, direction, bytes| StageStatus {
            id: StageId(id),
            token: "42".into(),
            direction,
            line: 3 + id as u32,
            state,
            progress: StageProgress {
                copied: forebay_stage::StageAmount {
                    files: 1,
                    files_total: 3,
                    bytes,
                    bytes_total: 3 << 20,
                },
                all_found: id > 0,
                ..StageProgress::default()
            },
        };
        ControlStatus {
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
                forgotten: false,
                granules: 64,
                used: 32,
                fragments: 2,
            }],
            sessions: vec![
                session(1, "42", Lifetime::Job),
                session(2, "dbs", Lifetime::Persistent),
            ],
            instances: vec![
                instance(1, "42", 1, "CA---"),
                instance(2, "dbs", 2, "DA-T-"),
            ],
            stages: vec![
                stage(0, StageState::Running, Direction::In, 1 << 20),
                stage(
                    1,
                    StageState::Failed("away: gone".into()),
                    Direction::Out,
                    0,
                ),
            ],
            process: None,
        }
        .into()
    }

    #[test]
    fn a_status_says_which_way_data_go_if_not_through_the_page_cache() {
        let host = |name: &str, direct| {
            let mut store = forebay_store::daemon::StoreReport::default();
            (store.data_path.direct, store.data_path.uring) = (direct, true);
            HostActivity {
                host: name.to_owned(),
                store: Some(store),
                ..HostActivity::default()
            }
        };
        let status = Status {
            activity: vec![host("bb1", Direct::Never), host("bb2", Direct::Auto)],
            ..Status::default()
        };
        let mut text = String::new();
        pools(&mut text, &status);
        let expected = "\nbb2: data of clients on other hosts: large objects past the page cache, by io_uring\n";
        assert!(text.ends_with(expected), "{text}");
        assert!(!text.contains("bb1"), "{text}");
    }

    #[test]
    fn nodes_whose_disk_is_full_are_named() {
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
        pools(&mut text, &status);
        assert!(!text.contains("bb1: its disk"), "{text}");
        assert!(
            text.contains("\nbb2: its disk is full: only removing and reading go on"),
            "{text}"
        );
        assert!(
            text.contains("\nbb3: its disk is full, and so is the log"),
            "{text}"
        );
    }

    #[test]
    fn a_status_reads_as_a_person_wants_it() {
        let expected = "\
pool          size   in use     free   granule
embedded  1.00 GiB  512 MiB  512 MiB  16.0 MiB

node      pool      state        size   in use  fragments
embedded  embedded  offline  1.00 GiB  512 MiB          2

instance  of          user     access           state          used     size         for
42        job 42      4000000  striped,private  ready             ?  256 MiB  2 min 04 s
dbs       persistent  4000000  striped,private  being removed     ?  256 MiB  2 min 04 s

stage of  line  way  state      files                   data
42           3  in   copying  1 of 3+  1.00 MiB of 3.00 MiB+
42           4  out  failed    1 of 3        0 B of 3.00 MiB
stage of 42, line 4, failed: away: gone

job 42 was interrupted: its data is here; `forebay recover` stages it out
";
        let text = status(&example(), UnixMillis(125_900));
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn a_stage_that_reads_back_says_how_far_that_is() {
        let mut status = example();
        let stage = &mut status.stages[1];
        stage.state = StageState::Running;
        stage.progress.phase = forebay_stage::Phase::ReadingBack;
        stage.progress.read_back = forebay_stage::StageAmount {
            files: 0,
            files_total: 1,
            bytes: 1 << 20,
            bytes_total: 2 << 20,
        };
        let mut text = String::new();
        stages(&mut text, &status);
        let expected = "\
stage of  line  way  state           files                   data
42           3  in   copying       1 of 3+  1.00 MiB of 3.00 MiB+
42           4  out  reading back   0 of 1   1.00 MiB of 2.00 MiB
";
        assert_eq!(text.trim_start(), expected, "{text}");
        // Of one that was stopped there is what it has copied.
        status.stages[1].state = StageState::Cancelled;
        let mut text = String::new();
        stages(&mut text, &status);
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(
            words
                .join(" ")
                .ends_with("cancelled 1 of 3 0 B of 3.00 MiB"),
            "{text}"
        );
    }

    #[test]
    fn an_instance_that_is_being_removed_says_how_far_that_is() {
        let mut status = example();
        let on = |removed| HostActivity {
            store: Some(forebay_store::daemon::StoreReport {
                removals: vec![RemovalProgress {
                    instance: 2,
                    total_objects: 1000,
                    removed_objects: removed,
                }],
                ..Default::default()
            }),
            ..HostActivity::default()
        };
        status.activity = vec![on(250), on(400)];
        let mut text = String::new();
        instances(&mut text, &status, UnixMillis(125_900));
        assert!(text.contains("  650 of 2000 files removed  "), "{text}");
        assert!(text.contains("  ready  "), "{text}");
    }

    #[test]
    fn instances_on_nodes_that_are_offline_are_named() {
        let mut shared = example();
        shared.pools[0].name = "flash".into();
        shared.nodes[0].name = "bb1".into();
        let text = status(&shared, UnixMillis(125_900));
        assert!(
            text.contains("\n42 has data on bb1, offline: who needs them waits\n"),
            "{text}"
        );
        assert!(text.contains("`forebay forget NODE`"), "{text}");
        shared.nodes[0].forgotten = true;
        let text = status(&shared, UnixMillis(125_900));
        assert!(!text.contains("offline"), "{text}");
        assert!(text.contains("given up"), "{text}");
        shared.nodes[0].forgotten = false;
        shared.nodes[0].online = true;
        let text = status(&shared, UnixMillis(125_900));
        assert!(!text.contains("offline"), "{text}");
    }

    #[test]
    fn an_empty_pool_and_one_in_use_say_so() {
        let mut empty = example();
        (empty.sessions, empty.instances, empty.stages) = Default::default();
        empty.process = Some(77);
        let text = status(&empty, UnixMillis(0));
        assert!(
            text.ends_with("\nnothing is allocated\n\nprocess 77 has the pool open\n"),
            "{text}"
        );
    }
}
