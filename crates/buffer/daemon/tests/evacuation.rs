//! A storage node is drained, emptied and switched off; real daemons in one process.

use crate::test_pool;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use forebay_client::Fs;
use forebay_control::controller::{ControlStatus, EvacuationStep, Request};
use forebay_daemon::activity::exposition;
use forebay_daemon::{Daemon, Status, attach_persistent};
use forebay_policy::pool::NodeId;
use forebay_protocol::message::OpenMode;
use forebay_units::Bytes;
use test_pool::{TestPool, create_persistent, wait_for};

const WRITE: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };

fn bytes_of(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (seed + index / 7) as u8).collect()
}

/// Writes and syncs files of all sizes; returns what they contain.
fn write_files(fs: &Fs) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for index in 0..40 {
        let directory = PathBuf::from(format!("striped/d{}", index % 4));
        fs.mkdir_all(&directory, 0o755).unwrap();
        let path = directory.join(format!("f{index}"));
        let bytes = bytes_of(index, index * index * 997);
        let file = fs.create_path(&path, 0o640, WRITE).unwrap().file;
        file.write_all_at(&bytes, 0).unwrap();
        file.fsync(false).unwrap();
        files.insert(path, bytes);
    }
    fs.sync().unwrap();
    files
}

fn read(fs: &Fs, path: &Path) -> Vec<u8> {
    let mode = OpenMode { read: true, ..OpenMode::default() };
    let opened = fs.open_path(path, mode).unwrap();
    let mut bytes = vec![0; opened.attr.size as usize];
    let length = opened.file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(length);
    bytes
}

fn compare(fs: &Fs, files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, expected) in files {
        assert!(read(fs, path) == *expected, "{}", path.display());
    }
}

fn nodes_of(status: &ControlStatus, name: &str) -> Vec<u32> {
    let instance = status.persistent_instance(name).unwrap();
    instance.nodes.iter().map(|node| node.0).collect()
}

#[test]
fn data_of_a_drained_node_survive_its_end() {
    let pool = TestPool::new(4);
    let file = pool.file("key", "controller");
    let _controller = pool.controller();
    let start = |name: &str| Daemon::start_storage(&pool.config("key"), name).unwrap();
    let mut nodes: Vec<Daemon> = (0..4).map(|index| start(&format!("s{index}"))).collect();
    let client = pool.client();
    let status = || -> Status { client.status().unwrap() };
    let capacity = Bytes(48 << 20);
    client.request(create_persistent("data", client.caller(), capacity)).unwrap();
    assert!(nodes_of(&status(), "data").contains(&0));
    let before = attach_persistent(&file, "data").unwrap();
    let files = write_files(&before);
    let open = before.open_path(Path::new("striped/d1/f1"), WRITE).unwrap().file;
    let drain = |node, drained| {
        let request = Request::DrainNode { node: NodeId(node), drained, evacuate: drained };
        client.request(request).unwrap();
    };
    drain(0, true);
    wait_for("it moves", || {
        let control = status();
        let page = exposition(&control);
        assert!(page.contains("forebay_evacuating_bytes{state=\"waiting\"}"), "{page}");
        let left = control.nodes[0].fragments;
        (left == 0).then_some(())
    });
    let moved = status();
    assert!(moved.evacuations.is_empty(), "{:?}", moved.evacuations);
    assert!(!nodes_of(&moved, "data").contains(&0), "{moved:?}");
    // What a program on another mount writes now would be lost: it gets an error.
    let lost = open.write_all_at(b"too late", 0).and_then(|()| open.fsync(false));
    assert!(lost.is_err(), "acknowledged, and lost");
    drop((open, before));
    // The drained node is gone for good.
    nodes.remove(0).stop().unwrap();
    std::fs::remove_dir_all(pool.path("s0")).unwrap();
    let after = attach_persistent(&file, "data").unwrap();
    compare(&after, &files);
    let file_of = |path: &Path| after.resolve(path, false).unwrap();
    assert_eq!(file_of(Path::new("striped/d2/f2")).mode & 0o777, 0o640);
    // It can be written as before.
    let late = after.create_path(Path::new("striped/late"), 0o600, WRITE).unwrap().file;
    late.write_all_at(b"late", 0).unwrap();
    late.fsync(false).unwrap();
    assert_eq!(read(&after, Path::new("striped/late")), b"late");
    client.request(Request::DestroyPersistent { name: "data".to_owned(), hurry: true }).unwrap();
}

#[test]
fn restarts_of_all_daemons_during_a_copy_lose_nothing() {
    let pool = TestPool::new(3);
    let file = pool.file("key", "controller");
    let mut controller = pool.controller();
    let start = |name: &str| {
        wait_for("its port is free", || Daemon::start_storage(&pool.config("key"), name).ok())
    };
    let mut nodes: Vec<Daemon> = (0..3).map(|index| start(&format!("s{index}"))).collect();
    let client = pool.client();
    let capacity = Bytes(40 << 20);
    client.request(create_persistent("data", client.caller(), capacity)).unwrap();
    let files = {
        let fs = attach_persistent(&file, "data").unwrap();
        write_files(&fs)
    };
    let request = Request::DrainNode { node: NodeId(0), drained: true, evacuate: true };
    client.request(request).unwrap();
    for round in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let node = nodes.remove(0);
        node.stop().unwrap();
        nodes.push(start(&format!("s{round}")));
        controller.stop().unwrap();
        controller = pool.controller();
    }
    let client = pool.client();
    wait_for("it has moved", || {
        let status = client.status().ok()?;
        let waiting = status.evacuations.iter().find(|one| one.step == EvacuationStep::Waiting);
        if let Some(waiting) = waiting
            && waiting.reason.as_ref().is_some_and(|reason| reason.contains("another attempt"))
        {
            // The operator does not wait for the delay.
            let request = Request::DrainNode { node: NodeId(0), drained: true, evacuate: true };
            client.request(request).ok()?;
        }
        (status.nodes[0].fragments == 0).then_some(())
    });
    assert!(!nodes_of(&client.status().unwrap(), "data").contains(&0));
    let after = attach_persistent(&file, "data").unwrap();
    compare(&after, &files);
}
