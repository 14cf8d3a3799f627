//! Descriptors of data objects: who gets them, and the space that they hold.
//!
//! Needs root, because it acts as another user.

use crate::support;
use forebay_client::{Admin, ClientOptions};
use forebay_protocol::Errno;
use forebay_store::daemon::{self, Daemon};
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};
use support::{INSTANCE, READ, READ_WRITE, Temporary, as_user, attach, make_instance, users_pool};

const MIB: usize = 1 << 20;

/// Bytes that the files below a directory take.
fn space_below(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let space = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        directory if directory.is_dir() => space_below(&entry.path()),
        file => space_of(&file),
    };
    entries.map(space).sum()
}

fn space_of(file: &Metadata) -> u64 {
    file.blocks() * 512
}

#[test]
fn user_on_a_storage_node_writes_no_more_than_the_capacity() {
    let temporary = Temporary::new();
    let dir = temporary.dir("flash");
    let daemon = users_pool(daemon::StoreOptions::new(&dir), 0o770);
    as_user(1000, 2000, || {
        let fs = attach(daemon.address());
        let file = fs.create_path(Path::new("f"), 0o600, READ_WRITE).unwrap().file;
        // What a program with a copy of the library's descriptor can do.
        if let Some(descriptor) = file.descriptor() {
            let object = File::from(descriptor.try_clone_to_owned().unwrap());
            object.write_all_at(&vec![1; 4 * MIB], 0).unwrap();
        }
        let written = vec![1; MIB / 2];
        file.write_all_at(&written, 0).unwrap();
        assert_eq!(file.write_all_at(&vec![1; 4 * MIB], 0), Err(Errno::ENOSPC));
        file.fsync(false).unwrap();
        let mut read = vec![0; MIB / 2];
        let reader = fs.open_path(Path::new("f"), READ).unwrap().file;
        assert_eq!(reader.read_at(&mut read, 0), Ok(read.len()));
        assert_eq!(read, written);
        assert!(reader.descriptor().is_none() && file.descriptor().is_none());
    });
    let space = space_below(&dir.join("objects"));
    assert!(space <= MIB as u64, "{space} bytes in an instance of 1 MiB");
}

#[test]
fn data_of_a_removed_instance_take_no_space_while_a_program_has_them_open() {
    let temporary = Temporary::new();
    let daemon = Daemon::start(daemon::StoreOptions::new(temporary.dir("flash"))).unwrap();
    make_instance(daemon.address(), 64 << 20);
    let fs = attach(daemon.address());
    let file = fs.create_path(Path::new("f"), 0o600, READ_WRITE).unwrap().file;
    file.write_all_at(&vec![1; 8 * MIB], 0).unwrap();
    // As the kernel has it open for a program, with FUSE passthrough.
    let held = File::from(file.descriptor().unwrap().try_clone_to_owned().unwrap());
    assert!(space_of(&held.metadata().unwrap()) > 0);
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    admin.remove_instance(INSTANCE, true).unwrap();
    let begun = Instant::now();
    while space_of(&held.metadata().unwrap()) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the removed instance takes space");
        std::thread::sleep(Duration::from_millis(20));
    }
}
