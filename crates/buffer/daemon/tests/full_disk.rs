//! The database of a controller or storage node on a disk without a free block. The tests mount a
//! small file system and need root for that.

use forebay_control::records::Change;
use forebay_daemon::database::Database;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system, which goes with it.
struct Disk {
    path: PathBuf,
    _home: tempfile::TempDir,
}

impl Disk {
    fn new() -> Disk {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
            .arg(&path)
            .status();
        assert!(mount.unwrap().success(), "tmpfs cannot be mounted: run as root");
        Disk { path, _home: home }
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    fn fill(&self) {
        let mut options = std::fs::OpenOptions::new();
        let mut ballast = options.create(true).append(true).open(self.ballast()).unwrap();
        for size in [1 << 20, 4096, 1] {
            let bytes = vec![1; size];
            while ballast.write_all(&bytes).is_ok() {}
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.path).status();
    }
}

fn put(key: u128, length: usize) -> Change {
    Change { table: "things", key, value: Some(vec![key as u8; length]) }
}

fn remove(key: u128) -> Change {
    Change { table: "things", key, value: None }
}

fn keys(file: &Path) -> Vec<u128> {
    let rows = Database::open(file).unwrap().load_records().unwrap();
    rows.iter().map(|(_, key, _)| *key).collect()
}

#[test]
fn database_accepts_changes_on_a_full_disk() {
    let disk = Disk::new();
    let file = disk.path.join("state.redb");
    let database = Database::open(&file).unwrap();
    for key in 0..1000 {
        database.commit(&[put(key, 300)]).unwrap();
    }
    disk.fill();
    for round in 0..3 {
        for key in 0..500 {
            database.commit(&[put(key, 300 + round)]).unwrap();
        }
    }
    for key in 0..100 {
        database.commit(&[remove(key)]).unwrap();
    }
    drop(database);
    assert_eq!(keys(&file), (100..1000).collect::<Vec<_>>());

    // More than the disk has: an error, and all that was written down before is there.
    let database = Database::open(&file).unwrap();
    let mut next = 1000;
    let error = loop {
        match database.commit(&[put(next, 3000)]) {
            Ok(()) => next += 1,
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("state.redb") && error.contains("No space left"), "{error}");
    drop(database);
    let there = keys(&file);
    assert!(there == (100..next).collect::<Vec<_>>() || there == (100..=next).collect::<Vec<_>>());

    // With space again it goes on.
    std::fs::remove_file(disk.ballast()).unwrap();
    let database = Database::open(&file).unwrap();
    for key in next..next + 100 {
        database.commit(&[put(key, 3000)]).unwrap();
    }
    drop(database);
    assert_eq!(keys(&file), (100..next + 100).collect::<Vec<_>>());
}
