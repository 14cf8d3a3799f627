//! Memory of a process that mounts and unmounts instances, as an agent does for one job after another.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod support;

use std::fs;
use std::path::Path;
use support::{Pool, Temporary, attach, mount_at};

const MIB: u64 = 1 << 20;
const MOUNTS: usize = 40;

/// Bytes of memory of this process.
fn memory() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Reads and writes by several programs at a time.
fn use_mount(path: &Path) {
    std::thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let file = path.join(format!("f{number}"));
                fs::write(&file, vec![1; 4 << 20]).unwrap();
                assert_eq!(fs::read(&file).unwrap().len(), 4 << 20);
                fs::remove_file(&file).unwrap();
            });
        }
    });
}

#[test]
fn memory_of_a_process_does_not_grow_with_the_number_of_mounts() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 2, 4096 * MIB);
    let path = temporary.dir("mnt");
    let mut sizes = Vec::new();
    for _ in 0..MOUNTS {
        let mount = mount_at(attach(pool.nodes()), &path);
        use_mount(&path);
        support::unmount(mount);
        sizes.push(memory() / MIB);
    }
    let [middle, last] = [sizes[MOUNTS / 2], sizes[MOUNTS - 1]];
    assert!(last < middle + 32 && last < 192, "MiB after each mount: {sizes:?}");
}
