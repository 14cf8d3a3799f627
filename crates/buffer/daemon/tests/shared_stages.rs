//! Stages that three storage daemons over loopback move together.

use crate::test_pool;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use forebay_control::controller::{Answer, Request, StageState};
use forebay_control::messages::StageProgress;
use forebay_daemon::activity::{HostActivity, StageTotals};
use forebay_daemon::{ControllerClient, Daemon};
use forebay_job_script::{Direction, InstanceRef, Stage, StageKind};
use forebay_units::Bytes;
use test_pool::{TestPool, create_persistent, is_online, wait_for};

const NODES: [&str; 3] = ["s0", "s1", "s2"];
const MIB: u64 = 1 << 20;

/// Contents, permissions, times and number of links of everything below a directory.
fn picture(root: &Path) -> BTreeMap<PathBuf, String> {
    let (mut found, mut open) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(path) = open.pop() {
        let state = fs::symlink_metadata(&path).unwrap();
        let contents = match state.is_dir() {
            true => {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                String::new()
            }
            false => {
                let mut hasher = DefaultHasher::new();
                hasher.write(&fs::read(&path).unwrap());
                hasher.finish().to_string()
            }
        };
        let links = if state.is_dir() { 0 } else { state.nlink() };
        let time = (state.mtime(), state.mtime_nsec());
        let line = format!("{:o} {time:?} {links} {contents}", state.mode());
        found.insert(path.strip_prefix(root).unwrap().to_owned(), line);
    }
    found
}

/// Small files, hard links, and a large file with data in all of its four parts.
fn create_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    for index in 0..60u32 {
        let file = root.join(format!("a/f{index}"));
        fs::write(&file, vec![index as u8; 1000 * index as usize]).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    }
    fs::hard_link(root.join("a/f1"), root.join("a/b/same")).unwrap();
    let large = fs::File::create(root.join("a/b/large")).unwrap();
    large.set_len(200 * MIB + 7).unwrap();
    for part in 0..4 {
        large.write_all_at(&vec![part as u8 + 1; MIB as usize], part * 64 * MIB + 5).unwrap();
    }
    fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::File::open(root.join("a")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
}

fn run_stage(client: &ControllerClient, what: Stage) -> StageProgress {
    let begin = Request::BeginStage { token: "data".into(), what };
    let Answer::Stage(stage) = client.request(begin).unwrap() else { panic!("no stage") };
    client.request(Request::AwaitStage { stage }).unwrap();
    let status = client.status().unwrap().control.stages;
    let ended = status.into_iter().find(|status| status.id == stage).unwrap();
    assert_eq!((ended.state, ended.nodes.len()), (StageState::Done, 3));
    ended.progress
}

/// The totals of each node, when they include these bytes.
fn totals_of(
    client: &ControllerClient,
    bytes: u64,
    of: impl Fn(&HostActivity) -> StageTotals,
) -> Vec<StageTotals> {
    wait_for("the nodes tell what they have moved", || {
        let activity = client.status().ok()?.activity;
        let totals: Vec<StageTotals> = activity.iter().map(&of).collect();
        let sum: u64 = totals.iter().map(|totals| totals.bytes).sum();
        let runs = totals.iter().any(|totals| totals.running > 0);
        (sum == bytes && totals.len() == 3 && !runs).then_some(totals)
    })
}

#[test]
fn every_node_copies_a_part_of_a_directory_and_of_a_large_file() {
    let pool = TestPool::new(3);
    let config = pool.config("key");
    let start = || Daemon::start_controller(&config).ok();
    let _controller = wait_for("the controller's port is free", start);
    let _storage = NODES.map(|name| Daemon::start_storage(&pool.config("key"), name).unwrap());
    wait_for("the nodes are in service", || {
        NODES.iter().all(|name| is_online(&pool, name)).then_some(())
    });
    let client = pool.client();
    // Before that a node gets no share.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    client.request(create_persistent("data", client.caller(), Bytes(96 * MIB))).unwrap();
    let (source, copy) = (pool.path("in"), pool.path("out"));
    create_tree(&source);
    let instance = || InstanceRef::Persistent("data".into());
    let (from, to) = (source.to_str().unwrap(), copy.to_str().unwrap());
    let stage = |direction, path| {
        Stage::new(direction, StageKind::Directory, instance(), path, "deep/tree").unwrap()
    };
    let moved = run_stage(&client, stage(Direction::In, from));
    let bytes = (0..60).map(|index| 1000 * index).sum::<u64>() + 200 * MIB + 7;
    assert_eq!((moved.files, moved.bytes, moved.bytes_total), (62, bytes, bytes));
    let totals = totals_of(&client, bytes, |host| host.staged_in);
    // The large file has four parts.
    assert!(totals.iter().all(|of| of.files > 5 && of.bytes > 60 * MIB), "{totals:?}");
    assert_eq!(totals.iter().map(|of| of.done).sum::<u64>(), 1, "{totals:?}");
    let moved = run_stage(&client, stage(Direction::Out, to));
    assert_eq!((moved.files, moved.bytes), (62, bytes));
    assert_eq!(moved.read_back.bytes, moved.read_back.bytes_total);
    let totals = totals_of(&client, bytes, |host| host.staged_out);
    assert!(totals.iter().all(|of| of.files > 5 && of.read_back > 0), "{totals:?}");
    assert_eq!(picture(&copy), picture(&source));
}
