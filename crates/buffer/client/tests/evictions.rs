//! Sessions that an administrator lists and ends, over TCP as from other hosts.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs};
use forebay_protocol::Errno;
use forebay_protocol::message::{ClientHost, OpenMode, SessionInfo};
use forebay_store::daemon::{self, Daemon};
use std::path::Path;
use std::time::{Duration, Instant};
use support::process::key;
use support::{INSTANCE, Temporary, spec};

const BOTH: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };

fn start(temporary: &Temporary) -> Daemon {
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.tcp = Some(([127, 0, 0, 1], 0).into());
    options.key = Some(key());
    Daemon::start(options).unwrap()
}

fn attach(daemon: &Daemon, host: &str) -> Fs {
    let client = ClientHost { host: host.into(), mount: None };
    let options = ClientOptions { client, key: Some(key()), ..ClientOptions::default() };
    Fs::attach(daemon.tcp_address().unwrap(), INSTANCE, options).unwrap()
}

fn session_of(admin: &Admin, host: &str) -> Option<SessionInfo> {
    let sessions = admin.sessions().unwrap();
    sessions.into_iter().find(|session| session.client.host == host)
}

#[test]
fn sessions_are_listed_with_what_they_hold_and_have_moved() {
    let temporary = Temporary::new();
    let daemon = start(&temporary);
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    assert_eq!(admin.sessions(), Ok(Vec::new()), "administrators are no clients");
    admin.create_instance(spec(64 << 20)).unwrap();
    let (fs, _other) = (attach(&daemon, "nid1"), attach(&daemon, "nid2"));
    let file = fs.create_path(Path::new("f"), 0o644, BOTH).unwrap().file;
    file.write_all_at(&[1; 300_000], 0).unwrap();
    let mut data = vec![0; 200_000];
    assert_eq!(file.read_at(&mut data, 0), Ok(200_000));

    // A request is counted when its reply is sent.
    let counted = |session: &SessionInfo| (session.written, session.read) == (300_000, 200_000);
    let session = std::iter::repeat_with(|| session_of(&admin, "nid1").unwrap())
        .take(1000)
        .inspect(|_| std::thread::sleep(Duration::from_millis(5)))
        .find(counted)
        .unwrap();
    assert_eq!(session.instance, INSTANCE);
    assert_eq!(session.uid, rustix::process::geteuid().as_raw());
    assert_eq!(session.handles, 1);
    assert!(session.connections > 0 && session.data_connections > 0, "{session:?}");
    let age_ns = session.age_ns.unwrap();
    assert!(session.idle_ns <= age_ns, "{session:?}");
    assert!(!session.has_locks);
    let idle = session_of(&admin, "nid2").unwrap();
    assert_eq!((idle.handles, idle.written, idle.data_connections), (0, 0, 0));
    drop(file);
    drop(fs);
    assert_eq!(session_of(&admin, "nid1"), None, "a client that detaches has no session");
}

#[test]
fn client_that_has_not_noticed_a_restart_of_the_daemon_ends_its_session() {
    let temporary = Temporary::new();
    let daemon = start(&temporary);
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    admin.create_instance(spec(64 << 20)).unwrap();
    let client = ClientHost { host: "nid1".into(), mount: None };
    let options = ClientOptions { client, ..ClientOptions::default() };
    let fs = Fs::attach(daemon.address(), INSTANCE, options).unwrap();
    let file = fs.create_path(Path::new("f"), 0o644, BOTH).unwrap().file;
    assert_eq!(file.lock(true), Ok(()), "the client waits for events from now on");
    drop(file);
    daemon.stop().unwrap();
    let daemon = start(&temporary);
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    let waits = || session_of(&admin, "nid1").is_some_and(|session| session.connections > 0);
    let begun = Instant::now();
    while !waits() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not wait for events again");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Only the connection for events is a new one.
    drop(fs);
    assert_eq!(session_of(&admin, "nid1"), None);
}

#[test]
fn evicted_client_loses_what_it_holds_and_every_later_request_fails() {
    let temporary = Temporary::new();
    let daemon = start(&temporary);
    let admin = Admin::connect(daemon.address(), ClientOptions::default()).unwrap();
    admin.create_instance(spec(64 << 20)).unwrap();
    let (evicted, other) = (attach(&daemon, "nid1"), attach(&daemon, "nid2"));
    let file = evicted.create_path(Path::new("f"), 0o644, BOTH).unwrap().file;
    file.write_all_at(&[1; 100_000], 0).unwrap();
    assert_eq!(file.lock(true), Ok(()));
    let of_other = other.open_path(Path::new("f"), BOTH).unwrap().file;
    assert!(of_other.try_lock(true).is_err(), "the lock is held");
    let id = session_of(&admin, "nid1").unwrap().id;
    assert!(session_of(&admin, "nid1").unwrap().has_locks);

    admin.evict_sessions(&[id]).unwrap();
    assert_eq!(session_of(&admin, "nid1"), None);
    // The lock is free at once, and what was acknowledged is there.
    assert_eq!(of_other.try_lock(true), Ok(()));
    let mut data = vec![0; 100_001];
    assert_eq!(of_other.read_at(&mut data, 0), Ok(100_000));

    assert_eq!(file.write_all_at(&[2; 100_000], 0), Err(Errno::ESHUTDOWN));
    assert_eq!(file.fsync(false), Err(Errno::ESHUTDOWN));
    let created = evicted.create_path(Path::new("g"), 0o644, BOTH).map(|_| ());
    assert_eq!(created, Err(Errno::ESHUTDOWN));
    assert_eq!(session_of(&admin, "nid1"), None, "it begins no new session");
    assert_eq!(of_other.read_at(&mut data, 0), Ok(100_000));
    assert!(data[..100_000].iter().all(|byte| *byte == 1), "an evicted client writes nothing");
    // A new client of the same host may attach, and evicting again changes nothing.
    let again = attach(&daemon, "nid1");
    admin.evict_sessions(&[id]).unwrap();
    assert!(again.open_path(Path::new("f"), BOTH).is_ok());
    drop((file, evicted));
}
