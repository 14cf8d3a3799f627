//! Mounts of hosts that are presumed dead, over TCP as from other hosts.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs};
use forebay_protocol::address::Address;
use forebay_protocol::message::{ClientHost, HostFence, MAX_FENCED_HOSTS, OpenMode};
use forebay_protocol::{Errno, InstanceId};
use forebay_store::daemon::{self, Daemon};
use std::path::Path;
use support::process::key;
use support::{INSTANCE, Temporary, spec};

const BOTH: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };

fn start(temporary: &Temporary, fences: Vec<(InstanceId, Vec<HostFence>)>) -> Daemon {
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.tcp = Some(([127, 0, 0, 1], 0).into());
    options.key = Some(key());
    options.fences = fences;
    Daemon::start(options).unwrap()
}

fn tcp(daemon: &Daemon) -> Address {
    daemon.tcp_address().unwrap()
}

/// A mount of a host, or a program on it.
fn attach(daemon: &Daemon, host: &str, mount: Option<u64>) -> Result<Fs, Errno> {
    let client = ClientHost { host: host.into(), mount };
    let options = ClientOptions { client, key: Some(key()), ..ClientOptions::default() };
    Fs::attach(tcp(daemon), INSTANCE, options)
}

fn fence(generation: u64) -> Vec<HostFence> {
    vec![HostFence { host: "nid1".into(), generation }]
}

#[test]
fn fenced_mount_is_refused_until_its_host_mounts_anew() {
    let temporary = Temporary::new();
    let daemon = start(&temporary, Vec::new());
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    admin.create_instance(spec(64 << 20)).unwrap();
    let other = attach(&daemon, "nid2", Some(0)).unwrap();
    let program = attach(&daemon, "nid1", None).unwrap();
    let silent = attach(&daemon, "nid1", Some(0)).unwrap();
    let file = silent.create_path(Path::new("f"), 0o644, BOTH).unwrap().file;
    file.write_all_at(&[1; 100_000], 0).unwrap();
    admin.fence_hosts(INSTANCE, fence(7)).unwrap();

    // Neither through open files nor by new ones, nor with a session of its own.
    assert_eq!(file.write_all_at(&[2; 100_000], 0), Err(Errno::ESTALE));
    assert_eq!(file.fsync(false), Err(Errno::ESTALE));
    let created = silent.create_path(Path::new("g"), 0o644, BOTH).map(|_| ());
    assert_eq!(created, Err(Errno::ESTALE));
    assert_eq!(attach(&daemon, "nid1", Some(6)).map(|_| ()), Err(Errno::ESTALE));

    // What was acknowledged is there, for mounts that are not refused.
    for fs in [other, program, attach(&daemon, "nid1", Some(7)).unwrap()] {
        let file = fs.open_path(Path::new("f"), BOTH).unwrap().file;
        let mut data = vec![0; 100_001];
        assert_eq!(file.read_at(&mut data, 0), Ok(100_000));
        assert!(data[..100_000].iter().all(|byte| *byte == 1));
        file.write_all_at(&[1], 0).unwrap();
    }
    // An earlier fence that arrives late lowers none.
    admin.fence_hosts(INSTANCE, fence(3)).unwrap();
    assert_eq!(attach(&daemon, "nid1", Some(6)).map(|_| ()), Err(Errno::ESTALE));
    assert_eq!(admin.fence_hosts(InstanceId(99), fence(1)), Err(Errno::ENOENT));
}

#[test]
fn fences_hold_from_the_start_of_a_daemon() {
    let temporary = Temporary::new();
    let daemon = start(&temporary, Vec::new());
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    admin.create_instance(spec(64 << 20)).unwrap();
    let Address::Tcp(address) = tcp(&daemon) else { panic!("not a TCP address") };
    let silent = attach(&daemon, "nid1", Some(0)).unwrap();
    let file = silent.create_path(Path::new("f"), 0o644, BOTH).unwrap().file;
    file.write_all_at(&[1; 1000], 0).unwrap();
    drop(admin);
    daemon.stop().unwrap();
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.tcp = Some(address);
    options.key = Some(key());
    // Those that the daemon has refused are in the node's records, too.
    let mut fences = vec![HostFence { host: "n".repeat(300), generation: 1 }];
    fences.extend(fence(7));
    let many = |number| HostFence { host: format!("other{number}"), generation: 1 };
    fences.extend((0..=MAX_FENCED_HOSTS).map(many));
    options.fences = vec![(INSTANCE, fences)];
    let _daemon = Daemon::start(options).unwrap();
    // The daemon knows its session, and refuses to let it continue.
    let created = silent.create_path(Path::new("g"), 0o644, BOTH).map(|_| ());
    assert_eq!(created, Err(Errno::ESTALE));
    // While the daemon runs, so that nothing waits for it.
    drop((file, silent));
}
