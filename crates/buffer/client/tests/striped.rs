//! Instances over several storage daemons with several clients.

use crate::support;
use forebay_client::{ClientOptions, File, Fs, NodeAddresses};
use forebay_policy::layout::{FIRST_WIDTH, Layout};
use forebay_protocol::message::{Allocate, OnExisting, OpenMode, SetAttr};
use forebay_protocol::{Errno, FileKind, Ino};
use forebay_store::daemon::{self, Daemon};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::process::{Process, key};
use support::striped_admin::StripedAdmin;
use support::{INSTANCE, Mounted, Pool, READ_WRITE, STRIPE, Temporary, attach, noise, shell, spec};

const MIB: u64 = 1 << 20;
/// Data over sockets, as from another host.
const REMOTE: OpenMode = OpenMode { descriptor: false, ..READ_WRITE };
const ANEW: OpenMode = OpenMode { truncate: true, ..REMOTE };

/// Daemons that can be killed, with their Unix sockets and TCP addresses.
fn processes(temporary: &Temporary, nodes: usize) -> (Vec<Process>, NodeAddresses, NodeAddresses) {
    let start = |node| Process::start(&temporary.dir(&format!("flash{node}")));
    let processes: Vec<Process> = (0..nodes).map(start).collect();
    let local: Vec<_> = processes.iter().map(Process::local).collect();
    let remote: Vec<_> = processes.iter().map(Process::remote).collect();
    (processes, local.into(), remote.into())
}

fn over_tcp(nodes: &NodeAddresses, timeout: Duration) -> Fs {
    let options = ClientOptions { key: Some(key()), timeout, ..ClientOptions::default() };
    Fs::attach(nodes.clone(), INSTANCE, options).unwrap()
}

fn set_len(fs: &Fs, ino: Ino, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    assert_eq!(fs.set_attr(ino, None, set).unwrap().size, size);
}

/// Space of the data objects of a daemon, in bytes.
fn space(flash: &Path) -> u64 {
    let out = shell(flash, "du -s --block-size=1 objects | cut -f1");
    out.trim().parse().unwrap()
}

/// Waits until the condition holds.
#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn large_file_is_striped_over_all_daemons_and_its_space_is_freed() {
    let mounted = Mounted::new(3, 96 * MIB);
    let flash = |node: usize| mounted.temporary.0.join(format!("flash{node}"));
    let before: Vec<u64> = (0..3).map(|node| space(&flash(node))).collect();
    let data = noise(12 << 20, 1);
    let path = mounted.path.join("big");
    std::fs::write(&path, &data).unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
    for (node, before) in before.iter().enumerate() {
        let more = space(&flash(node)) - before;
        assert!((4 * MIB..5 * MIB).contains(&more), "node {node} took {more}");
    }
    let kib = shell(&mounted.path, "du -k big | cut -f1");
    assert_eq!(kib.trim(), (12 << 10).to_string());
    let df = || -> (u64, u64) {
        let out = shell(&mounted.path, "df -k --output=size,used . | tail -1");
        let mut numbers = out.split_whitespace().map(|n| n.parse::<u64>().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    };
    let (size, used) = df();
    assert_eq!(size, 96 << 10, "the sum of all nodes");
    assert!((12 << 10..13 << 10).contains(&used), "{used}");
    shell(&mounted.path, "cp big copy; cmp big copy; rm big copy");
    wait_until("space of removed files is free", || df().1 < 1 << 10);
    wait_until("objects of removed files are removed", || {
        (0..3).all(|node| space(&flash(node)) < before[node] + MIB)
    });
}

#[test]
fn written_data_are_visible_to_other_clients_at_once() {
    let temporary = Temporary::new();
    let (_processes, local, remote) = processes(&temporary, 3);
    let admin = StripedAdmin::connect(local.clone(), &ClientOptions::default()).unwrap();
    admin.create_instance(&spec(256 * MIB), STRIPE).unwrap();
    let near = attach(local);
    let far = over_tcp(&remote, Duration::from_secs(20));
    let near_file = near.create(Ino::ROOT, b"f", 0o644, true, READ_WRITE).unwrap();
    let ino = near_file.attr.ino;
    let far_file = far.open(ino, REMOTE).unwrap();
    let mut copy: Vec<u8> = Vec::new();
    for round in 0..60u64 {
        let seen = noise(64, round);
        let place = u64::from_le_bytes(seen[..8].try_into().unwrap());
        let (offset, length) = (place % (20 * STRIPE), 1 + (place >> 32) % (7 * STRIPE));
        let (writer, reader, fs) = if round % 2 == 0 {
            (&near_file.file, &far_file.file, &far)
        } else {
            (&far_file.file, &near_file.file, &near)
        };
        if round % 10 == 9 {
            set_len(fs, ino, offset);
            copy.resize(offset as usize, 0);
        } else {
            let data = noise(length, round + 1000);
            writer.write_all_at(&data, offset).unwrap();
            let end = (offset + length) as usize;
            copy.resize(copy.len().max(end), 0);
            copy[offset as usize..end].copy_from_slice(&data);
        }
        assert_eq!(fs.get_attr(ino).unwrap().size, copy.len() as u64);
        let mut all = vec![7; copy.len() + 100];
        assert_eq!(reader.read_at(&mut all, 0).unwrap(), copy.len());
        assert!(all[..copy.len()] == copy, "round {round}");
    }
    // After the close the metadata node knows the length.
    drop((near_file, far_file));
    assert_eq!(near.get_attr(ino).unwrap().size, copy.len() as u64);
    assert_eq!(far.get_attr(ino).unwrap().size, copy.len() as u64);
}

#[test]
fn truncated_data_do_not_reappear() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 64 * MIB);
    let fs = attach(pool.nodes());
    let file = fs.create(Ino::ROOT, b"f", 0o644, true, READ_WRITE).unwrap().file;
    let length = 10 * STRIPE;
    for shorter in [0, 1, STRIPE, STRIPE + 5, 3 * STRIPE - 1, 7 * STRIPE] {
        file.write_all_at(&vec![9; length as usize], 0).unwrap();
        set_len(&fs, file.ino(), shorter);
        set_len(&fs, file.ino(), length);
        let mut all = vec![1; length as usize + 1];
        assert_eq!(file.read_at(&mut all, 0).unwrap() as u64, length);
        let (kept, rest) = all[..length as usize].split_at(shorter as usize);
        assert!(kept.iter().all(|byte| *byte == 9), "truncated to {shorter}");
        assert!(rest.iter().all(|byte| *byte == 0), "truncated to {shorter}");
    }
    let truncate = OpenMode { truncate: true, ..READ_WRITE };
    let opened = fs.open(file.ino(), truncate).unwrap();
    assert_eq!(opened.attr.size, 0);
    file.write_all_at(b"x", 5 * STRIPE).unwrap();
    let mut all = vec![1; length as usize];
    let count = file.read_at(&mut all, 0).unwrap();
    assert_eq!(count as u64, 5 * STRIPE + 1);
    assert!(all[..count - 1].iter().all(|byte| *byte == 0));
}

#[test]
fn appends_of_several_clients_do_not_interleave() {
    let temporary = Temporary::new();
    let (_processes, local, remote) = processes(&temporary, 3);
    let admin = StripedAdmin::connect(local.clone(), &ClientOptions::default()).unwrap();
    admin.create_instance(&spec(64 * MIB), STRIPE).unwrap();
    let clients =
        [(attach(local), READ_WRITE), (over_tcp(&remote, Duration::from_secs(20)), REMOTE)];
    let (clients, length) = (&clients, 997);
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            scope.spawn(move || {
                let (fs, mode) = &clients[usize::from(writer) % 2];
                let file = fs.create(Ino::ROOT, b"log", 0o644, false, *mode);
                let file = file.unwrap().file;
                for _ in 0..50 {
                    assert_eq!(file.append(&vec![writer; length]).unwrap(), length);
                }
            });
        }
    });
    let (fs, mode) = &clients[0];
    let log = fs.create(Ino::ROOT, b"log", 0o644, false, *mode).unwrap();
    assert_eq!(log.attr.size, 4 * 50 * length as u64);
    let mut bytes = vec![0; 4 * 50 * length];
    assert_eq!(log.file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    for line in bytes.chunks(length) {
        assert!(line.iter().all(|byte| *byte == line[0]));
    }
}

#[test]
fn holes_and_data_are_found_by_descriptor_and_over_sockets() {
    const BLOCK: u64 = 4096;
    const STRIPES: u64 = 40;
    for (nodes, written) in [(1, 3..9), (3, 3..9), (3, 0..1), (3, 12..38), (3, 15..16)] {
        let temporary = Temporary::new();
        let pool = Pool::new(&temporary, nodes, 64 * MIB);
        let fs = attach(pool.nodes());
        let near = fs.create(Ino::ROOT, b"f", 0o644, true, READ_WRITE).unwrap().file;
        for stripe in written.clone().chain([STRIPES - 2]) {
            near.write_all_at(&[1; 10], stripe * STRIPE + 5).unwrap();
        }
        let size = STRIPES * STRIPE + 7;
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        fs.set_attr(near.ino(), None, set).unwrap();
        let far = fs.open(near.ino(), REMOTE).unwrap().file;
        for offset in (0..size + 2).step_by(BLOCK as usize * 3 / 2) {
            for hole in [false, true] {
                let found = near.seek(offset, hole);
                assert_eq!(far.seek(offset, hole), found, "{nodes} nodes, {offset}, {hole}");
            }
        }
        let data = written.start * STRIPE;
        assert_eq!(near.seek(0, false), Ok(data));
        assert_eq!(near.seek(data, true), Ok(data + BLOCK));
        assert_eq!(near.seek((STRIPES - 1) * STRIPE, false), Err(Errno::ENXIO));
        assert_eq!(near.seek(size - 1, true), Ok(size - 1));
    }
}

#[test]
fn ranges_are_allocated_cleared_and_sought_over_several_nodes() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 64 * MIB);
    let fs = attach(pool.nodes());
    let file = fs.create(Ino::ROOT, b"f", 0o644, true, READ_WRITE).unwrap().file;
    let attr = || fs.get_attr(file.ino()).unwrap();
    let reserve = |keep_size| Allocate::Reserve { keep_size };
    file.allocate(100, 9 * STRIPE, reserve(true)).unwrap();
    assert_eq!(attr().size, 0);
    assert!(attr().blocks * 512 >= 9 * STRIPE);
    file.allocate(100, 9 * STRIPE, reserve(false)).unwrap();
    assert_eq!(attr().size, 100 + 9 * STRIPE);
    file.write_all_at(&vec![5; 9 * STRIPE as usize], 0).unwrap();
    let before = attr().blocks;
    file.allocate(2 * STRIPE, 5 * STRIPE, Allocate::PunchHole).unwrap();
    assert_eq!(attr().size, 100 + 9 * STRIPE);
    assert_eq!(before - attr().blocks, 5 * STRIPE / 512);
    let mut all = vec![1; 9 * STRIPE as usize];
    file.read_at(&mut all, 0).unwrap();
    for (at, byte) in all.iter().enumerate() {
        let hole = (2 * STRIPE..7 * STRIPE).contains(&(at as u64));
        assert_eq!(*byte, if hole { 0 } else { 5 }, "at {at}");
    }
    assert_eq!(file.seek(0, true), Ok(2 * STRIPE));
    assert_eq!(file.seek(2 * STRIPE + 1, true), Ok(2 * STRIPE + 1));
    assert_eq!(file.seek(2 * STRIPE, false), Ok(7 * STRIPE));
    assert_eq!(file.seek(8 * STRIPE + 3, false), Ok(8 * STRIPE + 3));
    assert_eq!(file.seek(20 * STRIPE, false), Err(Errno::ENXIO));
    // A range beyond the maximum file size is refused at once.
    file.allocate(100 * STRIPE, 1 << 43, Allocate::PunchHole).unwrap();
    let too_much = file.allocate(0, 65 * MIB, reserve(false));
    assert_eq!(too_much, Err(Errno::ENOSPC));
    assert_eq!(attr().size, 100 + 9 * STRIPE, "a refused request does not change the length");
}

#[test]
fn directories_are_distributed_and_listed_completely() {
    let mounted = Mounted::new(3, 64 * MIB);
    let fs = attach(mounted.pool.nodes());
    let mut shards = BTreeSet::new();
    for number in 0..40 {
        let name = format!("dir{number}");
        let dir = fs.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap();
        assert_eq!((dir.kind, dir.nlink), (FileKind::Dir, 2));
        shards.insert(dir.ino.metadata_node());
        let file = fs.create(dir.ino, b"file", 0o644, true, READ_WRITE).unwrap();
        assert_eq!(file.attr.ino.metadata_node(), dir.ino.metadata_node());
        file.file.write_all_at(&[1; 100_000][..number * 1000], 0).unwrap();
        // Some files are open while they are listed.
        if number % 2 == 0 {
            std::mem::forget(file);
        }
        let link = format!("link{number}");
        let linked = fs.link(fs.lookup(dir.ino, b"file").unwrap().ino, Ino::ROOT, link.as_bytes());
        assert_eq!(linked.unwrap().nlink, 2);
    }
    assert_eq!(shards.len(), 3);
    assert_eq!(fs.get_attr(Ino::ROOT).unwrap().nlink, 42);
    let page = fs.read_dir(Ino::ROOT, 0, 100_000, true).unwrap();
    assert!(page.end && page.entries.len() == 80);
    for entry in page.entries {
        let attr = entry.attr.unwrap();
        assert_eq!((attr.ino, attr.kind), (entry.ino, entry.kind));
        let name = String::from_utf8(entry.name).unwrap();
        if let Some(number) = name.strip_prefix("link") {
            let number: u64 = number.parse().unwrap();
            assert_eq!((attr.size, attr.nlink), (number * 1000, 2), "{name}");
        }
    }
    let listed = shell(
        &mounted.path,
        "ls -lR | grep -c file; find . -mindepth 1 | wc -l; mv dir0 dir1/inside; \
         ls dir1/inside/..; mv dir1/inside/file dir2/moved; rmdir dir1/inside; rm -r *; ls -A",
    );
    assert_eq!(listed, "40\n120\nfile\ninside\n");
}

#[test]
fn only_mount_drops_its_cache_before_another_client_changes_it() {
    let mounted = Mounted::new(3, 64 * MIB);
    let NodeAddresses(addresses) = mounted.pool.nodes();
    let dir = &mounted.path;
    shell(dir, "for i in 0 1 2 3 4 5; do mkdir d$i; echo $i > d$i/file; ln d$i/file link$i; done");
    for (round, address) in addresses.iter().enumerate() {
        let names = [2 * round, 2 * round + 1];
        shell(dir, "ls -lR > /dev/null; stat d*/* link* > /dev/null");
        assert!(names.iter().all(|i| !dir.join(format!("d{i}/new")).exists()));
        // By the address of any node.
        let fs = attach(address.clone());
        for i in names {
            let inside = fs.lookup(Ino::ROOT, format!("d{i}").as_bytes()).unwrap().ino;
            fs.unlink(Ino::ROOT, format!("link{i}").as_bytes()).unwrap();
            let file = fs.lookup(inside, b"file").unwrap().ino;
            set_len(&fs, file, 77);
            let to = (Ino::ROOT, &format!("moved{i}").into_bytes()[..]);
            fs.mkdir(inside, b"new", 0o700).unwrap();
            fs.rename((inside, b"file"), to, OnExisting::Fail).unwrap();
            let meta = std::fs::metadata(dir.join(format!("moved{i}"))).unwrap();
            assert_eq!((meta.len(), meta.nlink()), (77, 1));
            assert!(!dir.join(format!("link{i}")).exists());
            assert!(!dir.join(format!("d{i}/file")).exists());
            assert!(dir.join(format!("d{i}/new")).is_dir());
            let inside = std::fs::metadata(dir.join(format!("d{i}"))).unwrap();
            assert_eq!(inside.nlink(), 3);
        }
    }
}

#[test]
fn concurrent_renames_between_nodes_are_consistent() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 64 * MIB);
    let setup = attach(pool.nodes());
    let dirs: Vec<Ino> = (0..6)
        .map(|number| {
            let name = format!("d{number}");
            setup.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap().ino
        })
        .collect();
    for number in 0..4u8 {
        let name = [b'f', b'0' + number];
        setup.create(dirs[0], &name, 0o644, true, READ_WRITE).unwrap();
    }
    // Each file always has one name.
    std::thread::scope(|scope| {
        for mover in 0..3u64 {
            let (dirs, nodes) = (&dirs, pool.nodes());
            scope.spawn(move || {
                let fs = attach(nodes);
                for round in 0..60u64 {
                    let place = noise(8, mover * 1000 + round);
                    let (from, to) = (usize::from(place[0]) % 6, usize::from(place[1]) % 6);
                    let name = [b'f', b'0' + place[2] % 4];
                    let moved =
                        fs.rename((dirs[from], &name), (dirs[to], &name), OnExisting::Replace);
                    assert!(matches!(moved, Ok(()) | Err(Errno::ENOENT)), "{moved:?}");
                }
            });
        }
    });
    let mut names: Vec<Vec<u8>> = Vec::new();
    for dir in &dirs {
        let page = setup.read_dir(*dir, 0, 10_000, true).unwrap();
        for entry in page.entries {
            assert_eq!(entry.attr.unwrap().nlink, 1);
            names.push(entry.name);
        }
    }
    names.sort();
    assert_eq!(names, [b"f0", b"f1", b"f2", b"f3"]);
}

#[test]
fn wrong_or_reordered_addresses_are_refused() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 64 * MIB);
    let NodeAddresses(addresses) = pool.nodes();
    let [a, b, c] = [0, 1, 2].map(|node: usize| addresses[node].clone());
    let quick = ClientOptions { timeout: Duration::ZERO, ..ClientOptions::default() };
    let attach = |nodes: Vec<_>| Fs::attach(nodes, INSTANCE, quick.clone());
    for wrong in [vec![], vec![a.clone(), b.clone()], vec![b.clone(), a, c]] {
        assert_eq!(attach(wrong).map(|_| ()), Err(Errno::EINVAL));
    }
    let fs = attach(vec![b]).unwrap();
    let file = fs.create(Ino::ROOT, b"f", 0o644, true, READ_WRITE).unwrap().file;
    let data = noise(9 * STRIPE, 3);
    file.write_all_at(&data, 0).unwrap();
    let mut back = vec![0; data.len()];
    assert_eq!(file.read_at(&mut back, 0), Ok(data.len()));
    assert!(back == data);
    assert_eq!(fs.statfs().unwrap().capacity, 64 * MIB / 3 * 3);
}

#[test]
fn unreachable_daemon_fails_requests_and_restarted_one_does_not() {
    let temporary = Temporary::new();
    let (mut processes, local, remote) = processes(&temporary, 3);
    let admin = StripedAdmin::connect(local.clone(), &ClientOptions::default()).unwrap();
    admin.create_instance(&spec(64 * MIB), STRIPE).unwrap();
    let far = over_tcp(&remote, Duration::from_millis(300));
    let options = ClientOptions { timeout: Duration::from_millis(300), ..ClientOptions::default() };
    let fs = Fs::attach(local, INSTANCE, options).unwrap();
    let mut victim = None;
    for number in 0..20 {
        let name = format!("d{number}");
        let dir = fs.mkdir(Ino::ROOT, name.as_bytes(), 0o755).unwrap();
        victim = victim.or((dir.ino.metadata_node().0 == 2).then_some(dir.ino));
    }
    let victim = victim.unwrap();
    let file = fs.create(victim, b"f", 0o644, true, READ_WRITE).unwrap().file;
    file.write_all_at(&noise(6 * STRIPE, 5), 0).unwrap();
    let whole = far.create(Ino::ROOT, b"g", 0o644, true, REMOTE).unwrap();
    let data = noise(6 * STRIPE, 6);
    whole.file.write_all_at(&data, 0).unwrap();
    processes[2].kill();
    assert_eq!(fs.get_attr(victim).map(|_| ()), Err(Errno::EIO));
    assert_eq!(file.fsync(false), Err(Errno::EIO));
    // The other daemons continue.
    fs.get_attr(Ino::ROOT).unwrap();
    fs.create(Ino::ROOT, b"h", 0o644, true, READ_WRITE).unwrap();
    processes[2].restart();
    wait_until("the client reconnects", || fs.get_attr(victim).is_ok());
    file.fsync(false).unwrap();
    assert_eq!(fs.get_attr(file.ino()).unwrap().size, 6 * STRIPE);
    let mut back = vec![0; data.len()];
    assert_eq!(whole.file.read_at(&mut back, 0), Ok(data.len()));
    assert!(back == data);
    whole.file.write_all_at(&data[1..], 0).unwrap();
    // Data on this host are always read and written by descriptor.
    let plain = fs.open(file.ino(), REMOTE).unwrap().file;
    assert_eq!(plain.read_at(&mut back, 0), Ok(data.len()));
}

#[test]
fn instance_is_created_and_removed_on_all_daemons_or_none() {
    let temporary = Temporary::new();
    let start = |node| {
        let options = daemon::StoreOptions::new(temporary.dir(&format!("flash{node}")));
        Daemon::start(options).unwrap()
    };
    let daemons: Vec<Daemon> = (0..3).map(start).collect();
    let addresses: Vec<_> = daemons.iter().map(Daemon::address).collect();
    let connect =
        |nodes: &[_]| StripedAdmin::connect(nodes.to_vec(), &ClientOptions::default()).unwrap();
    // The last one already has an instance with that id.
    let last = connect(&addresses[2..]);
    last.create_instance(&spec(MIB), STRIPE).unwrap();
    let all = connect(&addresses);
    let refused = all.create_instance(&spec(MIB), STRIPE).unwrap_err();
    assert_eq!((refused.errno, &refused.address), (Errno::EEXIST, &addresses[2]));
    let rest = connect(&addresses[..2]).remove_instance(INSTANCE);
    assert_eq!(rest.unwrap_err().errno, Errno::ENOENT);
    last.remove_instance(INSTANCE).unwrap();
    wait_until("the id is free again", || all.create_instance(&spec(MIB), STRIPE).is_ok());
    let fs = attach(addresses[1].clone());
    let busy = all.remove_instance(INSTANCE).unwrap_err();
    assert_eq!((busy.errno, busy.address), (Errno::EBUSY, addresses[0].clone()));
    fs.create(Ino::ROOT, b"f", 0o644, true, READ_WRITE)
        .unwrap()
        .file
        .write_all_at(&[1; 1 << 18], 0)
        .unwrap();
    let small = all.resize_instance(INSTANCE, 4096).unwrap_err();
    assert_eq!(small.errno, Errno::EBUSY);
    assert_eq!(fs.statfs().unwrap().capacity, 3 * MIB);
    all.resize_instance(INSTANCE, 2 * MIB).unwrap();
    assert_eq!(fs.statfs().unwrap().capacity, 6 * MIB);
    drop(fs);
    all.remove_instance(INSTANCE).unwrap();
    let gone = all.remove_instance(INSTANCE).unwrap_err();
    assert_eq!(gone.errno, Errno::ENOENT);
    let unreachable = [addresses[0].clone(), temporary_socket(&temporary)];
    let quick = ClientOptions { timeout: Duration::ZERO, ..ClientOptions::default() };
    let failed = StripedAdmin::connect(unreachable.to_vec(), &quick).unwrap_err();
    assert_eq!(failed.address, unreachable[1]);
}

fn temporary_socket(temporary: &Temporary) -> forebay_protocol::address::Address {
    forebay_protocol::address::Address::Unix(temporary.0.join("no-daemon"))
}

/// Bytes in the data objects of a daemon.
fn object_bytes(flash: &Path) -> u64 {
    let script =
        r#"find objects -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }'"#;
    shell(flash, script).trim().parse().unwrap()
}

#[test]
fn small_file_needs_only_its_own_nodes() {
    type Truncate<'a> = &'a dyn Fn(&Fs) -> Arc<File>;
    const NODES: u16 = 20;
    let temporary = Temporary::new();
    let mut pool = Pool::new(&temporary, usize::from(NODES), 1 << 30);
    let nodes = pool.nodes();
    let (writer, reader) = (attach(nodes.clone()), attach(nodes.clone()));
    let opened = writer.create(Ino::ROOT, b"small", 0o644, true, REMOTE).unwrap();
    let ino = opened.attr.ino;
    let layout = Layout::new(NODES, STRIPE).unwrap();
    let first = usize::from(layout.node_of_stripe(ino, 0).0);
    let own: Vec<usize> = layout
        .first_nodes(ino, FIRST_WIDTH)
        .chain([ino.metadata_node()])
        .map(|node| usize::from(node.0))
        .collect();
    // All other nodes are out of service from here on.
    let daemons: Vec<Daemon> = pool.daemons.drain(..).collect();
    let mut in_service = Vec::new();
    for (node, daemon) in daemons.into_iter().enumerate() {
        if own.contains(&node) {
            in_service.push(daemon);
        } else {
            daemon.stop().unwrap();
        }
    }
    opened.file.write_all_at(&[7; 5000], 0).unwrap();
    assert_eq!(reader.get_attr(ino).unwrap().size, 5000);
    opened.file.fsync(false).unwrap();
    drop(opened);
    let flash = temporary.dir(&format!("flash{first}"));
    assert_eq!(reader.get_attr(ino).unwrap().size, 5000);
    assert_eq!(object_bytes(&flash), 5000);
    // Clients that have no session with any of them truncate and replace it.
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let truncations: [Truncate; 4] = [
        &|fs| fs.open(ino, ANEW).unwrap().file,
        &|fs| fs.create(Ino::ROOT, b"small", 0o644, false, ANEW).unwrap().file,
        &|fs| {
            assert_eq!(fs.set_attr(ino, None, size(100)).unwrap().size, 100);
            fs.open(ino, REMOTE).unwrap().file
        },
        &|fs| {
            let file = fs.open(ino, REMOTE).unwrap().file;
            assert_eq!(fs.set_attr(ino, Some(&file), size(100)).unwrap().size, 100);
            file
        },
    ];
    for truncate in truncations {
        let fs = attach(nodes.clone());
        let file = truncate(&fs);
        file.write_all_at(&[8; 4000], 0).unwrap();
        file.fsync(false).unwrap();
        drop(file);
        assert_eq!(reader.get_attr(ino).unwrap().size, 4000);
    }
    reader.unlink(Ino::ROOT, b"small").unwrap();
    wait_until("the object is removed", || object_bytes(&flash) == 0);
}

#[test]
fn growing_file_is_extended_to_more_nodes() {
    const NODES: u16 = 12;
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, usize::from(NODES), 1 << 30);
    let (writer, reader) = (attach(pool.nodes()), attach(pool.nodes()));
    let data = noise(30 * STRIPE + 777, 5);
    let opened = writer.create(Ino::ROOT, b"large", 0o644, true, REMOTE).unwrap();
    for (index, part) in data.chunks(STRIPE as usize + 13).enumerate() {
        let offset = index as u64 * (STRIPE + 13);
        opened.file.write_all_at(part, offset).unwrap();
        let length = offset + part.len() as u64;
        assert_eq!(reader.get_attr(opened.attr.ino).unwrap().size, length);
    }
    let ino = opened.attr.ino;
    drop(opened);
    let file = reader.open(ino, REMOTE).unwrap().file;
    let mut read = vec![0; data.len() + 1];
    assert_eq!(file.read_at(&mut read, 0).unwrap(), data.len());
    assert_eq!(read[..data.len()], data[..]);
    drop(file);
    reader.unlink(Ino::ROOT, b"large").unwrap();
    let flashes: Vec<_> = (0..NODES).map(|node| temporary.dir(&format!("flash{node}"))).collect();
    wait_until("all objects are removed", || flashes.iter().all(|flash| object_bytes(flash) == 0));
}

#[test]
fn all_names_of_an_open_file_have_its_length_in_a_listing() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 1 << 30);
    let (writer, reader) = (attach(pool.nodes()), attach(pool.nodes()));
    let opened = writer.create(Ino::ROOT, b"one", 0o644, true, REMOTE).unwrap();
    writer.link(opened.attr.ino, Ino::ROOT, b"two").unwrap();
    opened.file.write_all_at(&[7; 5000], 0).unwrap();
    let page = reader.read_dir(Ino::ROOT, 0, 1 << 16, true).unwrap();
    let attrs: Vec<_> = page.entries.iter().filter_map(|entry| entry.attr).collect();
    assert_eq!(attrs.iter().map(|attr| attr.size).collect::<Vec<_>>(), [5000, 5000]);
    assert_eq!(attrs[0].blocks, attrs[1].blocks);
    assert_eq!(attrs[0].blocks, reader.get_attr(opened.attr.ino).unwrap().blocks);
}

#[test]
fn new_file_that_was_opened_for_reading_only_is_empty_for_all_readers() {
    const READ: OpenMode = OpenMode { read: true, write: false, ..READ_WRITE };
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 3, 1 << 30);
    let (first, other) = (attach(pool.nodes()), attach(pool.nodes()));
    for (index, descriptor) in [(0, true), (1, false), (2, true), (3, false)] {
        let mode = OpenMode { descriptor, ..READ };
        let name = format!("new{index}");
        let opened = first.create(Ino::ROOT, name.as_bytes(), 0o644, true, mode).unwrap();
        let mut read = [0; 100];
        assert_eq!(opened.file.read_at(&mut read, 0), Ok(0), "{mode:?}");
        assert_eq!(other.open(opened.attr.ino, mode).unwrap().file.read_at(&mut read, 0), Ok(0));
        drop(opened.file);
        assert_eq!(other.open(opened.attr.ino, mode).unwrap().file.read_at(&mut read, 0), Ok(0));
    }
    let mounted = Mounted::new(3, 64 * MIB);
    for index in 0..8 {
        let path = mounted.path.join(format!("new{index}"));
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CREATE;
        let file = rustix::fs::open(&path, flags, 0o600.into()).unwrap();
        assert_eq!(rustix::io::read(&file, &mut [0; 100]), Ok(0));
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
