//! Rates of users at a storage daemon: what exceeds them is delayed, and others are not affected.
//!
//! Needs root, because it acts as several users.

use crate::support;
use forebay_client::{ClientOptions, Fs};
use forebay_protocol::message::{ClientHost, OpenMode};
use forebay_protocol::{Credentials, Errno, Ino};
use forebay_store::daemon::{self, Daemon, UserRateLimits};
use std::path::Path;
use std::time::{Duration, Instant};
use support::process::key;
use support::{INSTANCE, READ_WRITE, Temporary, as_user, users_pool};

/// Data travel over data connections.
const REMOTE: OpenMode = OpenMode { descriptor: false, ..READ_WRITE };
/// Requests in a second, and at once after idle time.
const REQUESTS: u64 = 10;
const KIB: usize = 1 << 10;
/// Bytes in a second.
const BYTES: u64 = 512 << 10;

/// A daemon with these rates, and an instance of user 1000 and group 2000.
fn pool(requests: Option<u64>, bytes: Option<u64>) -> (Daemon, Temporary) {
    let temporary = Temporary::new();
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    (options.tcp, options.key) = (Some(([127, 0, 0, 1], 0).into()), Some(key()));
    options.user_rates = UserRateLimits { requests, bytes, ..UserRateLimits::default() };
    (users_pool(options, 0o770), temporary)
}

fn attach(daemon: &Daemon) -> Fs {
    Fs::attach(daemon.address(), INSTANCE, ClientOptions::default()).unwrap()
}

/// Requests delayed so far.
fn delayed(daemon: &Daemon) -> u64 {
    daemon.stats().collect_report(Duration::from_secs(10)).delayed_requests
}

#[test]
fn requests_of_a_user_are_delayed_and_those_of_others_are_not() {
    let (daemon, _temporary) = pool(Some(REQUESTS), None);
    // Several sessions of a user share the rate.
    as_user(1000, 2000, || {
        let sessions = [attach(&daemon), attach(&daemon)];
        for number in 0..2 * REQUESTS {
            sessions[number as usize % 2].get_attr(Ino::ROOT).unwrap();
        }
    });
    let before = delayed(&daemon);
    assert!(before > 0);
    as_user(1001, 2000, || {
        let fs = attach(&daemon);
        (0..REQUESTS / 2).for_each(|_| assert!(fs.get_attr(Ino::ROOT).is_ok()));
    });
    // Root and its programs have no rate.
    let fs = attach(&daemon);
    (0..10 * REQUESTS).for_each(|_| assert!(fs.get_attr(Ino::ROOT).is_ok()));
    assert_eq!(delayed(&daemon), before);
    daemon.stop().unwrap();
}

#[test]
fn rate_of_requests_holds_in_the_long_run_and_delays_are_counted() {
    const COUNT: u64 = 3 * REQUESTS;
    let (daemon, _temporary) = pool(Some(REQUESTS), None);
    as_user(1000, 2000, || {
        let fs = attach(&daemon);
        let begun = Instant::now();
        (0..COUNT).for_each(|_| assert!(fs.get_attr(Ino::ROOT).is_ok()));
        let least = Duration::from_secs((COUNT - REQUESTS) / REQUESTS);
        assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    });
    let report = daemon.stats().collect_report(Duration::from_secs(10));
    assert!(report.delayed_requests > 0 && report.delayed_requests <= COUNT);
    assert!(report.delay_us > 0);
    daemon.stop().unwrap();
}

#[test]
fn requests_of_batches_count_by_themselves() {
    const COUNT: u64 = 3 * REQUESTS;
    let (daemon, _temporary) = pool(Some(REQUESTS), None);
    as_user(1000, 2000, || {
        let fs = attach(&daemon);
        let begun = Instant::now();
        let names: Vec<String> = (0..COUNT / 2).map(|number| format!("f{number}")).collect();
        for _ in 0..2 {
            let found = fs.lookup_many(Ino::ROOT, &names);
            assert!(found.iter().all(|result| *result == Err(Errno::ENOENT)), "{found:?}");
        }
        let least = Duration::from_secs((COUNT - REQUESTS) / REQUESTS);
        assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    });
    let report = daemon.stats().collect_report(Duration::from_secs(10));
    assert!(report.delayed_requests > 0, "by the rate");
    let count = |kind: &str| report.requests[kind].latency.count();
    assert_eq!((count("lookup"), count("batch")), (COUNT, 2));
    daemon.stop().unwrap();
}

#[test]
fn bytes_over_data_connections_and_in_small_files_have_a_rate() {
    let (daemon, _temporary) = pool(None, Some(BYTES));
    as_user(1000, 2000, || {
        let fs = attach(&daemon);
        let data = vec![7; 64 * KIB];
        let begun = Instant::now();
        let file = fs.create_path(Path::new("f"), 0o600, REMOTE).unwrap().file;
        for number in 0..12 {
            file.write_all_at(&data, number * data.len() as u64).unwrap();
        }
        drop(file);
        let moved = 12 * data.len() as u64;
        let least = Duration::from_secs_f64((moved - BYTES) as f64 / BYTES as f64);
        assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
        // Reads count as well.
        let begun = Instant::now();
        let file = fs.open_path(Path::new("f"), OpenMode { write: false, ..REMOTE }).unwrap().file;
        let mut into = vec![0; data.len()];
        for number in 0..12 {
            assert_eq!(file.read_at(&mut into, number * data.len() as u64), Ok(into.len()));
            assert_eq!(into, data);
        }
        assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    });
    let before = delayed(&daemon);
    assert!(before > 0);
    daemon.stop().unwrap();
}

#[test]
fn daemon_stops_while_requests_are_delayed() {
    let (daemon, _temporary) = pool(Some(1), Some(4 << 10));
    as_user(1000, 2000, || {
        let timeout = Duration::from_secs(1);
        let fs = ClientOptions { timeout, ..ClientOptions::default() };
        let fs = Fs::attach(daemon.address(), INSTANCE, fs).unwrap();
        let file = fs.create_path(Path::new("f"), 0o600, REMOTE).unwrap().file;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| file.write_all_at(&[1; 60 * KIB], 0));
            let reader = scope.spawn(|| fs.get_attr(Ino::ROOT));
            while delayed(&daemon) < 3 {
                std::thread::sleep(Duration::from_millis(10));
            }
            let begun = Instant::now();
            daemon.stop().unwrap();
            assert!(begun.elapsed() < Duration::from_secs(10), "delays are not waited for");
            assert!(writer.join().unwrap().is_err());
            let _ = reader.join().unwrap();
        });
    });
}

#[test]
fn requests_of_a_mount_count_for_their_users_and_those_of_stages_for_nobody() {
    let (daemon, _temporary) = pool(Some(REQUESTS), None);
    let attach = |mount: Option<u64>| {
        let client = ClientHost { host: "nid1".into(), mount };
        let options = ClientOptions { client, key: Some(key()), ..ClientOptions::default() };
        Fs::attach(daemon.tcp_address().unwrap(), INSTANCE, options).unwrap()
    };
    let user = |uid| Credentials { uid, gid: 2000, groups: Some(Vec::new()), checked: false };
    let look_up = |fs: &Fs| (0..REQUESTS).for_each(|_| assert!(fs.get_attr(Ino::ROOT).is_ok()));
    // A stage for a user, and root's programs.
    let stage = attach(None);
    look_up(&stage.on_behalf_of(user(1000)));
    look_up(&stage.on_behalf_of(user(1000)));
    assert_eq!(delayed(&daemon), 0);
    // A process of a user on a compute node, and another one's.
    let mount = attach(Some(0));
    look_up(&mount.on_behalf_of(user(1001)));
    let before = delayed(&daemon);
    look_up(&mount.on_behalf_of(user(1001)));
    let of_user = delayed(&daemon);
    assert!(of_user > before, "the second half exceeds the burst");
    let before = of_user;
    for _ in 0..REQUESTS / 4 {
        mount.on_behalf_of(user(1002)).get_attr(Ino::ROOT).unwrap();
    }
    assert_eq!(delayed(&daemon), before);
    // What root does in a job's mount counts for the owner of the instance.
    look_up(&mount);
    look_up(&mount);
    assert!(delayed(&daemon) > before);
    daemon.stop().unwrap();
}
