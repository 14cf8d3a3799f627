//! The counters of daemon and mount.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs, MountReport};
use forebay_net::auth::PoolKey;
use forebay_protocol::message::{OpenMode, SetAttr};
use forebay_protocol::{Errno, Ino};
use forebay_store::daemon::{self, Daemon, StatsHandle, StoreReport};
use std::os::unix::fs::FileExt;
use std::time::Duration;
use support::{INSTANCE, Mounted, Pool, STRIPE, Temporary, attach, make_instance, spec};

const TIMEOUT: Duration = Duration::from_secs(10);
const MIB: usize = 1 << 20;

fn count(report: &StoreReport, kind: &str) -> u64 {
    report.requests[kind].latency.count()
}

fn mode(descriptor: bool) -> OpenMode {
    OpenMode { read: true, write: true, truncate: false, descriptor, ..OpenMode::NONE }
}

/// Threads of data connections count a request just after the reply.
fn wait_for(stats: &StatsHandle, is_expected: impl Fn(&StoreReport) -> bool) -> StoreReport {
    for _ in 0..500 {
        let report = stats.collect_report(TIMEOUT);
        if is_expected(&report) {
            return report;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{:?}", stats.collect_report(TIMEOUT));
}

#[test]
fn fsync_syncs_the_log_only_on_nodes_with_new_records() {
    let temporary = Temporary::new();
    let daemon = Daemon::start(daemon::StoreOptions::new(temporary.dir("flash"))).unwrap();
    make_instance(daemon.address(), 64 << 20);
    let stats = daemon.stats();
    let fs = attach(daemon.address());
    let file = fs.create(Ino::ROOT, b"file", 0o644, true, mode(true));
    let file = file.unwrap().file;
    let syncs = || stats.collect_report(TIMEOUT).syncs.count();
    // The log is synced within a second.
    let settled_syncs = || {
        let mut last = syncs();
        loop {
            std::thread::sleep(Duration::from_millis(1500));
            match syncs() {
                same if same == last => return same,
                more => last = more,
            }
        }
    };
    for data_only in [true, false] {
        fs.set_attr(file.ino(), None, SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
        let before = syncs();
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.fsync(data_only).unwrap();
        assert!(syncs() > before, "the name is made durable");
        let before = settled_syncs();
        for number in 0..20 {
            file.write_all_at(&[number; 4096], 0).unwrap();
            file.fsync(data_only).unwrap();
        }
        assert_eq!(syncs(), before, "the metadata of the file are unchanged");
    }
    drop(file);
    daemon.stop().unwrap();
}

#[test]
fn requests_and_failures_are_counted_by_kind() {
    let temporary = Temporary::new();
    let daemon = Daemon::start(daemon::StoreOptions::new(temporary.dir("flash"))).unwrap();
    make_instance(daemon.address(), 64 << 20);
    let stats = daemon.stats();
    let fs = attach(daemon.address());
    let before = stats.collect_report(TIMEOUT);
    let dir = fs.mkdir(Ino::ROOT, b"dir", 0o755).unwrap().ino;
    for number in 0..20 {
        let name = format!("file{number}");
        drop(fs.create(dir, name.as_bytes(), 0o644, true, mode(true)).unwrap());
    }
    assert_eq!(fs.lookup(dir, b"absent"), Err(Errno::ENOENT));
    fs.lookup(dir, b"file7").unwrap();
    fs.sync().unwrap();
    let after = stats.collect_report(TIMEOUT);
    let rise = |kind: &str| count(&after, kind) - count(&before, kind);
    assert_eq!((rise("mknod"), rise("create"), rise("lookup"), rise("sync")), (1, 20, 2, 1));
    let failed = |report: &StoreReport, kind: &str| report.requests[kind].failed;
    assert_eq!(failed(&after, "lookup") - failed(&before, "lookup"), 1);
    assert_eq!(failed(&after, "create"), failed(&before, "create"));
    // Each change is a record; the sync is a sync of the log.
    assert!(after.records - before.records >= 21);
    assert!(after.record_bytes > before.record_bytes);
    assert!(after.syncs.count() > before.syncs.count());
    let creates = &after.requests["create"].latency;
    assert!(creates.mean().unwrap() > Duration::ZERO);
    assert!(creates.mean().unwrap() < TIMEOUT);
    assert!(after.received > before.received && after.sent > before.sent);
    daemon.stop().unwrap();
    let late = stats.collect_report(Duration::ZERO);
    assert_eq!((late.gauges.is_none(), count(&late, "create")), (true, 20));
}

#[test]
fn only_data_over_sockets_are_counted() {
    let temporary = Temporary::new();
    let key = || PoolKey::new(b"for this test only").unwrap();
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    (options.tcp, options.key) = (Some(([127, 0, 0, 1], 0).into()), Some(key()));
    let daemon = Daemon::start(options).unwrap();
    make_instance(daemon.address(), 64 << 20);
    let stats = daemon.stats();
    let near = attach(daemon.address());
    let options = ClientOptions { key: Some(key()), ..ClientOptions::default() };
    let far = Fs::attach(daemon.tcp_address().unwrap(), INSTANCE, options).unwrap();
    let data = vec![7; MIB];
    let by_descriptor = near.create(Ino::ROOT, b"near", 0o644, true, mode(true)).unwrap();
    by_descriptor.file.write_all_at(&data, 0).unwrap();
    let before = stats.collect_report(TIMEOUT);
    assert_eq!(count(&before, "write"), 0);
    assert!(before.received < MIB as u64);
    let by_socket = far.create(Ino::ROOT, b"far", 0o644, true, mode(false)).unwrap();
    by_socket.file.write_all_at(&data, 0).unwrap();
    let mut back = vec![0; MIB];
    assert_eq!(by_socket.file.read_at(&mut back, 0), Ok(MIB));
    assert_eq!(back, data);
    let after = wait_for(&stats, |report| count(report, "write") > 0 && count(report, "read") > 0);
    let received = after.received - before.received;
    let sent = after.sent - before.sent;
    for bytes in [received, sent] {
        assert!((MIB as u64..MIB as u64 + 16_384).contains(&bytes), "{bytes}");
    }
}

#[test]
fn daemon_reports_its_instances_and_space() {
    let temporary = Temporary::new();
    let daemon = Daemon::start(daemon::StoreOptions::new(temporary.dir("flash"))).unwrap();
    let stats = daemon.stats();
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    admin.create_instance(spec(64 << 20)).unwrap();
    let fs = attach(daemon.address());
    let present = stats.collect_report(TIMEOUT).gauges.unwrap();
    assert_eq!((present.sessions, present.connections), (2, 2));
    assert_eq!(present.instances, admin.instances().unwrap());
    let opened = fs.create(Ino::ROOT, b"file", 0o644, true, mode(true)).unwrap();
    opened.file.write_all_at(&vec![1; MIB], 0).unwrap();
    let usage = &stats.collect_report(TIMEOUT).gauges.unwrap().instances[0];
    assert!(usage.used >= MIB as u64 && usage.inodes == 2 && usage.sessions == 1, "{usage:?}");
    drop((opened, fs, admin));
    let report = wait_for(&stats, |r| r.gauges.as_ref().unwrap().sessions == 0);
    assert_eq!(report.gauges.unwrap().instances[0].sessions, 0);
}

#[test]
fn mount_counts_operations_of_the_kernel() {
    let mounted = Mounted::new(1, 64 << 20);
    let mount = mounted.mount.as_ref().unwrap();
    let before = mount.report();
    let file = std::fs::File::create_new(mounted.path.join("file")).unwrap();
    file.write_all_at(&vec![1; MIB], 0).unwrap();
    file.sync_all().unwrap();
    std::fs::create_dir(mounted.path.join("dir")).unwrap();
    // An operation is counted just after its reply.
    let done = |report: &MountReport, kind: &str| {
        report.operations[kind].count() - before.operations[kind].count()
    };
    let counted = |report: &MountReport| {
        ["create", "mkdir", "fsync"].map(|kind| done(report, kind)) == [1, 1, 1]
    };
    let mut after = mount.report();
    for _ in 0..500 {
        if counted(&after) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        after = mount.report();
    }
    assert!(counted(&after), "{after:?}");
    assert!(done(&after, "write") >= 1);
    assert_eq!(after.written - before.written, MIB as u64);
    assert!(after.operations["fsync"].mean().unwrap() > Duration::ZERO);
}

/// Otherwise a power failure of a node that no longer holds a part of the file would restore its old
/// end.
#[test]
fn fsync_after_truncate_reaches_only_nodes_that_hold_objects() {
    let temporary = Temporary::new();
    let pool = Pool::new(&temporary, 4, 64 << 20);
    let (fs, other) = (attach(pool.nodes()), attach(pool.nodes()));
    let synced = || -> Vec<u64> {
        let daemons = pool.daemons.iter().map(Daemon::stats);
        daemons.map(|stats| count(&stats.collect_report(TIMEOUT), "sync")).collect()
    };
    let syncs = |act: &dyn Fn()| -> Vec<u64> {
        let before = synced();
        act();
        let after = synced().into_iter().zip(before);
        after.map(|(after, before)| after - before).collect()
    };
    let truncate = |ino| {
        let set = SetAttr { size: Some(1), ..SetAttr::default() };
        assert_eq!(other.set_attr(ino, None, set).unwrap().size, 1);
    };
    let create = |name: &[u8]| fs.create(Ino::ROOT, name, 0o644, true, mode(true)).unwrap();

    // Its metadata node, and the node of its only stripe.
    let small = create(b"small").file;
    small.write_all_at(b"x", 0).unwrap();
    let nodes = syncs(&|| small.fsync(false).unwrap());
    assert!((1..=2).contains(&nodes.iter().sum::<u64>()), "{nodes:?}");

    let file = create(b"truncated").file;
    file.write_all_at(&vec![1; 4 * STRIPE as usize], 0).unwrap();
    truncate(file.ino());
    assert_eq!(syncs(&|| file.fsync(false).unwrap()), [1; 4]);
    // By another client, through a handle without writes, when no client writes.
    let other = other.open(file.ino(), mode(true)).unwrap().file;
    assert_eq!(syncs(&|| other.fsync(true).unwrap()), [1; 4]);
    other.write_all_at(&vec![1; 4 * STRIPE as usize], 0).unwrap();
    let ino = file.ino();
    drop((file, other));
    truncate(ino);
    let reads = OpenMode { write: false, ..mode(true) };
    let read = fs.open(ino, reads).unwrap().file;
    assert_eq!(syncs(&|| read.fsync(false).unwrap()), [1; 4]);
}
