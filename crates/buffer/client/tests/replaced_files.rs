//! Files and symbolic links that one client replaces all the time, while programs of a mount look for them.

use crate::support;
use forebay_client::Fs;
use forebay_protocol::Ino;
use forebay_protocol::message::{NewInode, OnExisting};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Mounted, READ_WRITE, attach};

/// Replaces the file `current` and the symbolic link `link` to it until `ended`.
fn replace_until(fs: &Fs, ended: &AtomicBool) {
    let rename = |name: &[u8]| {
        fs.rename((Ino::ROOT, b"next"), (Ino::ROOT, name), OnExisting::Replace).unwrap();
    };
    while !ended.load(Ordering::Relaxed) {
        drop(fs.create(Ino::ROOT, b"next", 0o644, false, READ_WRITE).unwrap());
        rename(b"current");
        let link = NewInode::Symlink(b"current".to_vec());
        fs.make_inode(Ino::ROOT, b"next", link, 0o777).unwrap();
        rename(b"link");
    }
}

/// The kernel looks for a file at most twice. A local file system always has one of them.
#[test]
fn file_that_another_client_replaces_all_the_time_can_be_used_by_its_name() {
    for nodes in [1, 3] {
        let mounted = Mounted::new(nodes, 64 << 20);
        let other = attach(mounted.pool.nodes());
        let path = mounted.path.join("current");
        let link = mounted.path.join("link");
        fs::write(&path, "first").unwrap();
        symlink("current", &link).unwrap();
        let inodes = || other.statfs().unwrap().inodes_used;
        let before = inodes();
        let ended = AtomicBool::new(false);
        let mut failures: Vec<(&str, io::Error)> = Vec::new();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| replace_until(&other, &ended));
            for _ in 0..1500 {
                failures.extend(File::open(&path).err().map(|error| ("open", error)));
                failures.extend(fs::metadata(&path).err().map(|error| ("stat", error)));
                failures.extend(fs::read(&path).err().map(|error| ("read", error)));
                failures.extend(fs::read_link(&link).err().map(|error| ("readlink", error)));
                failures.extend(fs::symlink_metadata(&link).err().map(|error| ("lstat", error)));
                failures.extend(fs::read(&link).err().map(|error| ("read a link", error)));
            }
            ended.store(true, Ordering::Relaxed);
        });
        let took = begun.elapsed();
        assert!(
            failures.is_empty(),
            "{nodes} nodes, {} of 9,000: {:?}",
            failures.len(),
            failures[0]
        );
        assert!(took < Duration::from_secs(120), "{took:?}");
        // No removed file is kept for long. `next` may be there.
        let done = Instant::now();
        while inodes() > before + 1 {
            assert!(done.elapsed() < Duration::from_secs(10), "{} inodes", inodes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
