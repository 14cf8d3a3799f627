//! Instances whose capacity is used up: what has blocks can be written, as on a local file system, and
//! nothing else; the instance never takes more than its capacity.
//!
//! Needs root, for mounts and descriptors.

use crate::support;
use forebay_client::{ClientOptions, File, Fs, MountOptions};
use forebay_protocol::message::{Allocate, OpenMode, SetAttr};
use forebay_protocol::{Errno, Ino};
use forebay_store::daemon::{Daemon, StoreOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::network_pool::NetworkPool;
use support::process::{Process, key};
use support::{
    INSTANCE, Mounted, Pool, READ, READ_WRITE, STRIPE, Temporary, attach, make_instance, noise,
    shell,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Capacity on each storage node.
const CAPACITY: u64 = 8 * MIB;
/// Data over sockets, as from another host.
const REMOTE: OpenMode = OpenMode { descriptor: false, ..READ_WRITE };
/// Blocks in which a local file system keeps the places of fragmented objects.
const MAPS: u64 = 32 * KIB;
/// Time until the space of removed files is free.
const PATIENCE: Duration = Duration::from_secs(20);

fn create(fs: &Fs, name: &str, mode: OpenMode) -> Arc<File> {
    fs.create_path(Path::new(name), 0o644, mode).unwrap().file
}

fn length(fs: &Fs, file: &File) -> u64 {
    fs.get_attr(file.ino()).unwrap().size
}

fn read(fs: &Fs, file: &File) -> Vec<u8> {
    let mut data = vec![0; length(fs, file) as usize];
    let reader = fs.open(file.ino(), READ).unwrap().file;
    assert_eq!(reader.read_at(&mut data, 0).unwrap(), data.len());
    data
}

/// Writes to a file until no block can be added on any storage node.
fn fill(fs: &Fs, name: &str, mode: OpenMode) -> Arc<File> {
    let file = create(fs, name, mode);
    let nodes = u64::from(fs.storage_nodes());
    // Block by block at the end: each node is full by itself.
    for node in 0..nodes {
        let mut at = node * STRIPE;
        let bytes = vec![1; STRIPE as usize];
        let mut size = STRIPE;
        while size >= BLOCK {
            match file.write_all_at(&bytes[..size as usize], at) {
                Ok(()) if size == STRIPE => at += nodes * STRIPE,
                Ok(()) => at += size,
                Err(errno) => {
                    assert_eq!(errno, Errno::ENOSPC);
                    size /= 2;
                }
            }
            assert!(at < 2 * nodes * CAPACITY, "the instance is never full");
        }
    }
    file
}

fn used(fs: &Fs) -> u64 {
    let statfs = fs.statfs().unwrap();
    let (used, capacity) = (statfs.used, statfs.capacity);
    assert!(used <= capacity + MAPS, "{used} of {capacity} bytes");
    statfs.used
}

/// Two ways to the same instance: the one that is tested, and one that observes.
fn on_each_way(test: impl Fn(&Fs, OpenMode, &Fs)) {
    for nodes in [1, 3] {
        eprintln!("{nodes} nodes, descriptors");
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, nodes as u64 * CAPACITY);
        let descriptors = attach(pool.nodes());
        assert!(create(&descriptors, "probe", READ_WRITE).descriptor().is_some() == (nodes == 1));
        test(&descriptors, READ_WRITE, &attach(pool.nodes()));
        eprintln!("{nodes} nodes, TCP");
        let pool = NetworkPool::with_capacity(nodes, nodes as u64 * CAPACITY);
        test(&pool.client(), REMOTE, &pool.client());
        eprintln!("{nodes} nodes, TCP, delayed writes");
        let pool = NetworkPool::with_capacity(nodes, nodes as u64 * CAPACITY);
        let delays = ClientOptions { delays_writes: true, ..ClientOptions::default() };
        test(&pool.attach(delays), REMOTE, &pool.client());
    }
}

#[test]
fn data_are_written_over_in_a_full_instance() {
    on_each_way(|fs, mode, other| {
        let file = create(fs, "file", mode);
        let mut data = noise(512 * KIB + 100, 1);
        file.write_all_at(&data, 0).unwrap();
        let before = used(fs);
        let filler = fill(fs, "filler", mode);
        let full = used(fs);
        // A block, a part of one, a range over stripes, everything, the last byte.
        let end = data.len() as u64;
        for (round, (at, length)) in
            [(8 * KIB, BLOCK), (10, 100), (STRIPE - 7, 5 * STRIPE + 20), (0, end), (end - 1, 1)]
                .into_iter()
                .enumerate()
        {
            let new = noise(length, 2 + round as u64);
            data[at as usize..(at + length) as usize].copy_from_slice(&new);
            assert_eq!(file.write_at(&new, at), Ok(length as usize), "{length} bytes at {at}");
            file.flush().unwrap();
            assert!(read(other, &file) == data, "{length} bytes at {at}");
        }
        // Many small writes in order, which a client may delay.
        for at in (0..64 * KIB).step_by(1000) {
            let new = noise(1000, at);
            data[at as usize..at as usize + 1000].copy_from_slice(&new);
            assert_eq!(file.write_at(&new, at), Ok(1000));
        }
        file.fsync(false).unwrap();
        assert!(read(other, &file) == data);
        assert!(used(fs).abs_diff(full) <= MAPS, "{} bytes, {full} before", used(fs));
        // A handle that was never granted any space.
        let again = other.open(file.ino(), mode).unwrap().file;
        let new = noise(end, 99);
        again.write_all_at(&new, 0).unwrap();
        assert!(read(fs, &file) == new);
        // The rest of the last block, and no more.
        let rest = noise(BLOCK - end % BLOCK, 98);
        again.write_all_at(&rest, end).unwrap();
        assert!(read(fs, &file) == [new, rest].concat());
        let end = end.next_multiple_of(BLOCK);
        if fs.storage_nodes() == 1 {
            assert_eq!(again.write_at(&[1], end), Err(Errno::ENOSPC));
            assert_eq!(again.append(&[1]), Err(Errno::ENOSPC));
            assert_eq!(length(other, &file), end);
        }
        // A client that writes over data keeps no space from others.
        if fs.storage_nodes() == 1 {
            let less = SetAttr { size: Some(length(fs, &filler) - 64 * KIB), ..SetAttr::default() };
            fs.set_attr(filler.ino(), None, less).unwrap();
            file.write_all_at(&noise(end, 97), 0).unwrap();
            let new = create(other, "new", mode);
            new.write_all_at(&noise(32 * KIB, 1), 0).unwrap();
            drop(new);
            other.unlink(Ino::ROOT, b"new").unwrap();
        }
        // Nothing was leaked.
        drop((filler, again));
        fs.unlink(Ino::ROOT, b"filler").unwrap();
        let begun = Instant::now();
        while used(fs) > before {
            assert!(begun.elapsed() < PATIENCE, "{} bytes, {before} before", used(fs));
            std::thread::sleep(Duration::from_millis(50));
        }
        let space = fs.get_attr(file.ino()).unwrap().blocks;
        assert_eq!(space * 512, end.next_multiple_of(BLOCK));
    });
}

#[test]
fn reserved_space_is_written_in_a_full_instance() {
    on_each_way(|fs, mode, other| {
        let file = create(fs, "file", mode);
        file.write_all_at(&noise(64 * KIB, 1), 0).unwrap();
        let keep_size = Allocate::Reserve { keep_size: true };
        file.allocate(64 * KIB, MIB, keep_size).unwrap();
        let inner = create(fs, "inner", mode);
        inner.allocate(0, 256 * KIB, Allocate::Reserve { keep_size: false }).unwrap();
        let filler = fill(fs, "filler", mode);
        let full = used(fs);
        let mut data = noise(64 * KIB + MIB, 2);
        data[..64 * KIB as usize].copy_from_slice(&read(fs, &file));
        // In fragments, and then between them.
        let part = 64 * KIB;
        for first in [2, 1] {
            for at in (first * part..64 * KIB + MIB).step_by(2 * part as usize) {
                let piece = &data[at as usize..(at + part) as usize];
                assert_eq!(file.write_at(piece, at), Ok(part as usize), "at {at}");
                let end = if first == 2 { at + part } else { 64 * KIB + MIB };
                assert_eq!(length(other, &file), end);
            }
        }
        assert!(read(other, &file) == data);
        inner.write_all_at(&data[..256 * KIB as usize], 0).unwrap();
        assert!(read(other, &inner) == data[..256 * KIB as usize]);
        assert!(used(fs).abs_diff(full) <= MAPS, "{} bytes, {full} before", used(fs));
        if fs.storage_nodes() == 1 {
            assert_eq!(file.write_at(&[1], 64 * KIB + MIB), Err(Errno::ENOSPC));
        }
        // What is reserved may be reserved again.
        let zero = Allocate::Zero { keep_size: true };
        for what in [keep_size, Allocate::Reserve { keep_size: false }, zero] {
            file.allocate(128 * KIB, 512 * KIB, what).unwrap();
        }
        data[128 * KIB as usize..640 * KIB as usize].fill(0);
        assert!(read(other, &file) == data);
        file.write_all_at(&data, 0).unwrap();
        drop(filler);
    });
}

#[test]
fn holes_are_not_filled_in_a_full_instance() {
    on_each_way(|fs, mode, other| {
        let nodes = u64::from(fs.storage_nodes());
        let file = create(fs, "file", mode);
        let data = noise(nodes * STRIPE, 1);
        file.write_all_at(&data, 0).unwrap();
        // Of each node: blocks, a hole, blocks.
        file.write_all_at(&data, 2 * nodes * STRIPE).unwrap();
        let _filler = fill(fs, "filler", mode);
        let before = read(other, &file);
        let refused = [
            (nodes * STRIPE, BLOCK),
            (nodes * STRIPE - 1, 2),
            (nodes * STRIPE, nodes * STRIPE),
            (nodes * STRIPE + BLOCK, 1),
            (3 * nodes * STRIPE, BLOCK),
            (9 * nodes * STRIPE, 1),
        ];
        for (at, length) in refused {
            let written = file.write_all_at(&noise(length, 5), at);
            assert_eq!(written, Err(Errno::ENOSPC), "{length} bytes at {at}");
        }
        let mut after = read(other, &file);
        // One byte before the hole has a block.
        let last = (nodes * STRIPE - 1) as usize;
        after[last] = before[last];
        assert!(after == before);
        // A hole that is made is one.
        file.allocate(0, BLOCK, Allocate::PunchHole).unwrap();
        let space = fill(fs, "more", mode);
        assert_eq!(fs.get_attr(space.ino()).unwrap().blocks * 512, BLOCK);
        assert_eq!(file.write_at(&[1; 10], 0), Err(Errno::ENOSPC));
        file.write_all_at(&data[..BLOCK as usize], BLOCK).unwrap();
    });
}

#[test]
fn appends_to_reserved_space_of_a_full_instance_do_not_overlap() {
    on_each_way(|fs, mode, other| {
        let file = create(fs, "file", mode);
        file.allocate(0, MIB, Allocate::Reserve { keep_size: true }).unwrap();
        let _filler = fill(fs, "filler", mode);
        const RECORD: usize = 700;
        let clients = [fs, other];
        let write = |writer: u8| {
            let file = clients[usize::from(writer % 2)].open(file.ino(), mode).unwrap().file;
            let mut written = 0;
            loop {
                match file.append(&[writer; RECORD]) {
                    Ok(count) => {
                        written += count;
                        // Where a stripe ends there may be space for a part.
                        assert!(count == RECORD || written as u64 > MIB / 10, "{count} bytes");
                    }
                    Err(errno) => {
                        assert_eq!(errno, Errno::ENOSPC);
                        return written;
                    }
                }
            }
        };
        let counts: Vec<usize> = std::thread::scope(|scope| {
            let writers: Vec<_> =
                (1..=4).map(|writer| scope.spawn(move || write(writer))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let data = read(other, &file);
        assert_eq!(data.len(), counts.iter().sum::<usize>());
        assert!(data.len() as u64 > MIB - 5 * RECORD as u64, "{} bytes", data.len());
        for (number, record) in data.chunks(RECORD).enumerate() {
            assert!((1..=4).contains(&record[0]), "record {number}");
            assert!(record.iter().all(|byte| *byte == record[0]), "record {number}");
        }
    });
}

/// A file system for the objects of a daemon.
struct Disk {
    temporary: Temporary,
    objects: PathBuf,
}

impl Disk {
    fn tmpfs() -> Disk {
        let temporary = Temporary::new();
        let disk = Disk { objects: temporary.dir("flash/objects"), temporary };
        let arguments = ["-t", "tmpfs", "-o", "size=128m", "tmpfs"];
        assert!(disk.mount(&arguments), "tmpfs cannot be mounted");
        disk
    }

    /// `None` where there are no loop devices, and need not be.
    fn ext4() -> Option<Disk> {
        let temporary = Temporary::new();
        let disk = Disk { objects: temporary.dir("flash/objects"), temporary };
        let image = disk.temporary.0.join("image");
        std::fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image).status();
        assert!(made.unwrap().success(), "mkfs.ext4 fails");
        let mounted = disk.mount(&["-o", "loop", image.to_str().unwrap()]);
        if !mounted {
            support::expect_no_loop_devices("a full instance on ext4");
        }
        mounted.then_some(disk)
    }

    fn mount(&self, arguments: &[&str]) -> bool {
        Command::new("mount").args(arguments).arg(&self.objects).status().unwrap().success()
    }

    /// A daemon on it, also for clients on other hosts, with an instance.
    fn start(&self) -> Daemon {
        let mut options = StoreOptions::new(self.temporary.0.join("flash"));
        (options.tcp, options.key) = (Some(([127, 0, 0, 1], 0).into()), Some(key()));
        let daemon = Daemon::start(options).unwrap();
        make_instance(daemon.address(), CAPACITY);
        daemon
    }

    /// Bytes in use.
    fn used(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.objects).unwrap();
        (stat.f_blocks - stat.f_bfree) * stat.f_frsize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.objects).status();
    }
}

/// Blocks are freed while clients write over them, and others take the space.
fn free_under_writers(disk: &Disk, mode: OpenMode) {
    let daemon = disk.start();
    let (local, tcp) = (daemon.address(), daemon.tcp_address().unwrap());
    let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
    let address = if mode.descriptor { local } else { tcp };
    let attached = || Fs::attach(address.clone(), INSTANCE, options.clone()).unwrap();
    let fs = attached();
    let empty = disk.used();
    // What a handle was granted counts as used until it is closed, or is granted something else.
    let ino = {
        let file = create(&fs, "file", mode);
        file.write_all_at(&noise(2 * MIB, 1), 0).unwrap();
        file.ino()
    };
    let file = fs.open(ino, mode).unwrap().file;
    let filler = fill(&fs, "filler", mode);
    let set_length = |file: &File, size| {
        fs.set_attr(file.ino(), None, SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
    };
    let (began, has_ended) = (Instant::now(), AtomicBool::new(false));
    let goes_on = || !has_ended.load(Ordering::Acquire) && began.elapsed() < Duration::from_secs(4);
    let wrote = |result: Result<(), Errno>| match result {
        Ok(()) => true,
        Err(Errno::ENOSPC) => false,
        Err(errno) => panic!("{errno}"),
    };
    let piece = 256 * KIB;
    let overwrite = |writer: u64| {
        let own = attached();
        let file = own.open(file.ino(), mode).unwrap().file;
        let data = noise(piece, writer);
        let (mut written, mut round) = (0, writer);
        while goes_on() {
            written += u64::from(wrote(file.write_all_at(&data, round % 7 * piece)));
            round += 3;
        }
        written
    };
    let free = || {
        let mut round = 0;
        while goes_on() {
            file.allocate(round * 5 % 8 * piece, piece, Allocate::PunchHole).unwrap();
            set_length(&file, 2 * MIB - round % 3 * 300_000);
            std::thread::sleep(Duration::from_millis(3));
            round += 1;
        }
    };
    let take = || {
        let (data, mut at) = (noise(64 * KIB, 3), CAPACITY);
        while goes_on() {
            at += 64 * KIB;
            if !wrote(filler.write_all_at(&data, at)) {
                // Until the writers have filled what was freed.
                set_length(&filler, CAPACITY);
                at = CAPACITY;
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    };
    let written: u64 = std::thread::scope(|scope| {
        let writers = [1, 2].map(|writer| {
            let overwrite = &overwrite;
            scope.spawn(move || overwrite(writer))
        });
        scope.spawn(free);
        scope.spawn(take);
        while goes_on() {
            let taken = disk.used().saturating_sub(empty);
            if taken > CAPACITY + MAPS {
                has_ended.store(true, Ordering::Release);
                panic!("{taken} bytes in an instance of {CAPACITY}");
            }
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    eprintln!("{written} writes");
    assert!(written > 100, "{written} writes succeeded");
    used(&fs);
}

#[test]
fn capacity_is_not_exceeded_while_blocks_are_freed_under_writers() {
    for mode in [READ_WRITE, REMOTE] {
        free_under_writers(&Disk::tmpfs(), mode);
        if let Some(disk) = Disk::ext4() {
            free_under_writers(&disk, mode);
        }
    }
}

/// The steps of xfstests generic/274, and programs that change data in place.
#[test]
fn programs_write_to_reserved_space_and_data_on_a_full_mount() {
    for (nodes, passthrough) in [(1, true), (1, false), (3, true)] {
        eprintln!("{nodes} nodes, passthrough {passthrough}");
        let options = MountOptions { passthrough, ..MountOptions::default() };
        let mounted = Mounted::with_options(nodes, nodes as u64 * 32 * MIB, &options);
        shell(
            &mounted.path,
            "head -c 65536 /dev/urandom > test
             fallocate --keep-size --offset 65536 --length 8MiB test
             head -c 300000 /dev/urandom > data; cp data /dev/shm/full-data-$$
             for bs in 1M 4k; do dd if=/dev/zero of=fill$bs bs=$bs 2> /dev/null && exit 1; done
             dd if=/dev/zero of=fill.sync bs=4k oflag=sync 2> /dev/null && exit 1
             for first in 1 2; do
               for i in $(seq $first 2 127); do
                 dd if=/dev/urandom of=test seek=$i bs=64k count=1 conv=notrunc 2> /dev/null
               done
             done
             test $(stat -c %s test) = 8388608
             # In place: by write, and by a memory map.
             python3 - <<'END'
import mmap, os
with open('data', 'r+b') as file:
    file.write(b'x' * 100000)
    file.flush()
    os.fsync(file.fileno())
    with mmap.mmap(file.fileno(), 0) as map:
        map[200000:200004] = b'mmap'
        map.flush()
END
             test \"$(head -c 100000 data | tr -d x | wc -c)\" = 0
             test \"$(tail -c +200001 data | head -c 4)\" = mmap
             cmp <(tail -c +100001 data | head -c 99999) <(tail -c +100001 /dev/shm/full-data-$$ | head -c 99999)
             # A copy within the file system over data.
             dd if=/dev/zero of=fill1M bs=1M count=1 conv=notrunc 2> /dev/null
             python3 - <<'END'
import os
source, target = os.open('data', os.O_RDONLY), os.open('fill1M', os.O_RDWR)
done = 0
while done < 300000:
    done += os.copy_file_range(source, target, 300000 - done)
END
             cmp -n 300000 data fill1M
             rm /dev/shm/full-data-$$",
        );
    }
}

/// Grants and handles are forgotten, and the instance is still full.
#[test]
fn data_are_written_over_after_a_restart_of_the_daemon() {
    let temporary = Temporary::new();
    let mut process = Process::start(&temporary.dir("flash"));
    make_instance(process.local(), CAPACITY);
    let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
    let near = attach(process.local());
    let far = Fs::attach(process.remote(), INSTANCE, options).unwrap();
    let file = create(&near, "file", READ_WRITE);
    file.write_all_at(&noise(300_000, 1), 0).unwrap();
    let far_file = far.open(file.ino(), REMOTE).unwrap().file;
    let _filler = fill(&near, "filler", READ_WRITE);
    for (round, file) in [&file, &far_file, &file].into_iter().enumerate() {
        process.kill();
        process.restart();
        let new = noise(300_000, 2 + round as u64);
        file.write_all_at(&new, 0).unwrap();
        assert_eq!(file.write_at(&[1], MIB), Err(Errno::ENOSPC));
        assert!(read(&far, file) == new);
        used(&near);
    }
}

/// On a memory file system, data have blocks; what is reserved there cannot be told from a hole.
#[test]
fn data_in_memory_are_written_over_in_a_full_instance() {
    let disk = Disk::tmpfs();
    let daemon = disk.start();
    let fs = attach(daemon.address());
    let file = create(&fs, "file", READ_WRITE);
    file.write_all_at(&noise(300_000, 1), 0).unwrap();
    file.write_all_at(&noise(300_000, 1), MIB).unwrap();
    let _filler = fill(&fs, "filler", READ_WRITE);
    let new = noise(300_000, 2);
    file.write_all_at(&new, 0).unwrap();
    file.write_all_at(&new, MIB).unwrap();
    assert_eq!(file.append(&[1; 100]), Ok(100), "the last block has room");
    assert_eq!(file.write_at(&new, 200_000), Err(Errno::ENOSPC));
    let data = read(&fs, &file);
    assert!(data[..300_000] == new && data[MIB as usize..][..300_000] == new);
}
