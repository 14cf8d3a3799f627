//! Holes, data and blocks of files.

use forebay_protocol::Errno;
use forebay_protocol::message::FoundExtent;
use forebay_protocol::space::BLOCK_BYTES;
use rustix::fd::{AsFd, AsRawFd};
use rustix::fs::SeekFrom;
use std::ops::Range;

/// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)`, without the extents that follow.
const FIEMAP: libc::Ioctl = 0xc020_660b_u32 as libc::Ioctl;
/// Extents that are requested at a time.
const EXTENTS: usize = 32;
/// `f_type` of a tmpfs.
const TMPFS_MAGIC: u64 = 0x0102_1994;

const EXTENT_LAST: u32 = 0x1;
const EXTENT_UNKNOWN: u32 = 0x2;
const EXTENT_DELALLOC: u32 = 0x4;
/// Flags of extents whose bytes do not lie in blocks of their own: encoded (8), encrypted (0x80), not
/// aligned (0x100), within the inode (0x200), at the end of another extent (0x400), and shared with
/// another file (0x2000). To write to them can take space.
const EXTENT_WITHOUT_BLOCKS: u32 = 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000;

/// `struct fiemap_extent` of Linux.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    more_reserved: [u32; 3],
}

/// `struct fiemap` of Linux, with space for extents.
#[repr(C)]
#[derive(Debug)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; EXTENTS],
}

const _: () = assert!(size_of::<FiemapExtent>() == 56 && size_of::<Fiemap>() == 32 + EXTENTS * 56);

/// The next hole, or else the next data, at or after `offset` of an open file. Moves its position.
pub fn next_extent(file: impl AsFd, offset: u64, hole: bool) -> Result<FoundExtent, Errno> {
    let length = rustix::fs::fstat(&file)?.st_size.cast_unsigned();
    let to = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
    match rustix::fs::seek(&file, to) {
        Ok(at) => Ok(FoundExtent { at: Some(at), length }),
        Err(rustix::io::Errno::NXIO) => Ok(FoundExtent { at: None, length }),
        Err(error) => Err(error.into()),
    }
}

/// The bytes of a range of an open file that have blocks of their own, or will get blocks that count
/// as used already, so that writing to them takes no more space: also those that were reserved by
/// `fallocate` and never written, beyond the end of the file, too. Fewer if that cannot be told: none
/// on file systems without `FIEMAP`, except that those with data count on a tmpfs. Moves the file's
/// position there.
pub fn bytes_with_blocks(file: impl AsFd, range: Range<u64>) -> Result<u64, Errno> {
    let mut count = 0;
    let mut at = range.start;
    while at < range.end {
        let map = match extents(&file, at..range.end) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOTTY) => {
                return bytes_in_memory(file, range);
            }
            other => other?,
        };
        let found = map.extents.iter().take(map.mapped_extents as usize);
        let (from, mut is_complete) = (at, true);
        for extent in found {
            let end = extent.logical.saturating_add(extent.length).min(range.end);
            if has_blocks(extent.flags) {
                count += end.saturating_sub(extent.logical.max(at));
            }
            at = at.max(end);
            is_complete = extent.flags & EXTENT_LAST != 0;
        }
        if is_complete || at == from {
            break;
        }
    }
    assert!(count <= range.end.saturating_sub(range.start), "no byte counts twice");
    Ok(count)
}

/// Whether all bytes of a range of an open file count in [`bytes_with_blocks`].
pub fn all_have_blocks(file: impl AsFd, range: Range<u64>) -> Result<bool, Errno> {
    let length = range.end - range.start;
    Ok(bytes_with_blocks(file, range)? == length)
}

fn has_blocks(flags: u32) -> bool {
    let is_placed = flags & EXTENT_UNKNOWN == 0 || flags & EXTENT_DELALLOC != 0;
    is_placed && flags & EXTENT_WITHOUT_BLOCKS == 0
}

/// The first extents of a range.
fn extents(file: impl AsFd, range: Range<u64>) -> Result<Fiemap, rustix::io::Errno> {
    let mut map = Fiemap {
        start: range.start,
        length: range.end - range.start,
        flags: 0,
        mapped_extents: 0,
        extent_count: EXTENTS as u32,
        reserved: 0,
        extents: [FiemapExtent::default(); EXTENTS],
    };
    loop {
        // SAFETY: the descriptor is open, and the kernel writes `extent_count` extents, for which there
        // is space, behind the head.
        let done = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FIEMAP, &raw mut map) };
        if done == 0 {
            break;
        }
        match rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()) {
            Some(rustix::io::Errno::INTR) => {}
            error => return Err(error.unwrap_or(rustix::io::Errno::IO)),
        }
    }
    map.mapped_extents = map.mapped_extents.min(EXTENTS as u32);
    Ok(map)
}

/// As [`bytes_with_blocks`], for a tmpfs. What was reserved there cannot be told from holes.
fn bytes_in_memory(file: impl AsFd, range: Range<u64>) -> Result<u64, Errno> {
    if rustix::fs::fstatfs(&file)?.f_type as u64 != TMPFS_MAGIC {
        return Ok(0);
    }
    let mut count = 0;
    let mut at = range.start;
    while at < range.end {
        // The position before the end of the file may be in the last block.
        let first = at / BLOCK_BYTES * BLOCK_BYTES;
        let Some(start) = next_extent(&file, first, false)?.at else { break };
        let found = next_extent(&file, start, true)?;
        let end = found.at.unwrap_or(start).next_multiple_of(BLOCK_BYTES);
        count += end.min(range.end).saturating_sub(start.max(at));
        if end <= at {
            break; // it was truncated meanwhile
        }
        at = end;
    }
    Ok(count.min(range.end - range.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FallocateFlags, fallocate};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::process::Command;

    const BLOCK: u64 = BLOCK_BYTES;

    /// A file system for a test.
    struct Mount(tempfile::TempDir);

    impl Mount {
        /// `None`: it cannot be mounted here.
        fn new(kind: &str) -> Option<Mount> {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("mnt");
            std::fs::create_dir(&path).unwrap();
            let image = dir.path().join("image");
            let mut mount = Command::new("mount");
            if kind == "tmpfs" {
                mount.args(["-t", "tmpfs", "tmpfs"]);
            } else {
                File::create(&image).unwrap().set_len(512 << 20).unwrap();
                let make = Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image).status();
                if !make.is_ok_and(|status| status.success()) {
                    return None;
                }
                mount.args(["-o", "loop"]).arg(&image);
            }
            let mounted = mount.arg(&path).status().is_ok_and(|status| status.success());
            mounted.then_some(Mount(dir))
        }

        fn file(&self, name: &str) -> File {
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).truncate(true);
            options.open(self.0.path().join("mnt").join(name)).unwrap()
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0.path().join("mnt")).status();
        }
    }

    /// Data in two places, each in one more block than it fills, and a hole between them.
    fn check_data(file: &File) {
        file.write_all_at(&[1; 10_000], 0).unwrap();
        file.write_all_at(&[1; 10], 8 * BLOCK).unwrap();
        for sync in [false, true] {
            if sync {
                file.sync_all().unwrap();
            }
            for (range, count) in [
                (0..10_000, 10_000),
                (0..3 * BLOCK, 3 * BLOCK),
                (100..200, 100),
                (10_000..10_100, 100),
                (0..4 * BLOCK, 3 * BLOCK),
                (BLOCK + 1..9 * BLOCK, 3 * BLOCK - 1),
                (3 * BLOCK..8 * BLOCK, 0),
                (8 * BLOCK + 11..8 * BLOCK + 12, 1),
                (9 * BLOCK - 1..1 << 40, 1),
                (9 * BLOCK..1 << 40, 0),
                (7..7, 0),
            ] {
                let found = bytes_with_blocks(file, range.clone());
                assert_eq!(found, Ok(count), "{range:?}, synced: {sync}");
            }
        }
    }

    #[test]
    fn data_have_blocks_and_holes_have_none() {
        check_data(&tempfile::tempfile().unwrap());
        for kind in ["tmpfs", "xfs"] {
            match Mount::new(kind) {
                Some(mount) if kind == "tmpfs" => check_data(&mount.file("f")),
                // It allocates more than is written; nothing is in the hole.
                Some(mount) => {
                    let file = mount.file("f");
                    file.set_len(1 << 20).unwrap();
                    check_data(&file);
                }
                None => eprintln!("no {kind} can be mounted"),
            }
        }
    }

    #[test]
    fn reserved_ranges_have_blocks() {
        let file = tempfile::tempfile().unwrap();
        if fallocate(&file, FallocateFlags::KEEP_SIZE, 2 * BLOCK, 100 * BLOCK).is_err() {
            return eprintln!("the file system of temporary files does not reserve space");
        }
        assert_eq!(bytes_with_blocks(&file, 0..200 * BLOCK), Ok(100 * BLOCK));
        // More extents than are requested at a time.
        for block in (2..102).step_by(2) {
            file.write_all_at(&[1; BLOCK as usize], block * BLOCK).unwrap();
        }
        file.sync_all().unwrap();
        assert_eq!(bytes_with_blocks(&file, 0..200 * BLOCK), Ok(100 * BLOCK));
        assert_eq!(bytes_with_blocks(&file, 50 * BLOCK + 5..51 * BLOCK), Ok(BLOCK - 5));
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 10 * BLOCK)
            .unwrap();
        assert_eq!(bytes_with_blocks(&file, 0..200 * BLOCK), Ok(92 * BLOCK));
    }

    #[test]
    fn shared_blocks_do_not_count() {
        let Some(mount) = Mount::new("xfs") else {
            return eprintln!("no XFS can be mounted");
        };
        let (file, copy) = (mount.file("f"), mount.file("copy"));
        file.write_all_at(&[1; 10 * BLOCK as usize], 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(bytes_with_blocks(&file, 0..10 * BLOCK), Ok(10 * BLOCK));
        rustix::fs::ioctl_ficlone(&copy, &file).unwrap();
        copy.write_all_at(&[2; BLOCK as usize], 0).unwrap();
        copy.sync_all().unwrap();
        assert_eq!(bytes_with_blocks(&copy, 0..10 * BLOCK), Ok(BLOCK));
    }
}
