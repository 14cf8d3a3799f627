//! Unmodified programs on a mounted instance on one storage node.

use crate::support;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::fs::OpenOptions;
use std::io::Write;
use support::{Mounted, attach, mount_at};

crate::on_nodes!(1);

#[test]
fn memory_maps_and_writes_are_coherent_on_every_mount() {
    let mounted = Mounted::new(1, 1 << 30);
    let address = mounted.pool.nodes();
    let second = mounted.temporary.dir("second");
    let other = mount_at(attach(address), &second);
    let path = mounted.path.join("mapped");
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all(&[1; 8192]).unwrap();
    // SAFETY: a new mapping of 8192 bytes, which the file has; nothing else refers to it.
    let map = unsafe {
        mmap(
            std::ptr::null_mut(),
            8192,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
            &file,
            0,
        )
        .unwrap()
    };
    // SAFETY: the mapping lives until munmap below and is only used through this slice.
    let bytes = unsafe { std::slice::from_raw_parts_mut(map.cast::<u8>(), 8192) };
    assert_eq!(bytes[8191], 1);
    bytes[4096] = 7;
    assert_eq!(std::fs::read(second.join("mapped")).unwrap()[4096], 7, "map to read elsewhere");
    let writer = OpenOptions::new().write(true).open(second.join("mapped")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&writer, &[9; 10], 100).unwrap();
    assert_eq!(bytes[100..110], [9; 10], "write elsewhere to map");
    // SAFETY: the mapping from above, not used afterwards.
    unsafe {
        msync(map, 8192, MsyncFlags::SYNC).unwrap();
        munmap(map, 8192).unwrap();
    }
    drop((file, writer));
    support::unmount(other);
}
