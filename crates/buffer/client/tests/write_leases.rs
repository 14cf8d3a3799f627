//! Delayed writes under write leases: no client observes a file without the writes that another one's
//! program takes to be carried out, errors are reported, and few requests are sent.

use crate::support;
use forebay_client::{Channel, ClientOptions, Connection, File, Fs, Os, System};
use forebay_net::auth::Authenticator;
use forebay_net::connection::Response;
use forebay_protocol::address::Address;
use forebay_protocol::message::{OpenMode, SetAttr, TrailingField};
use forebay_protocol::{Call, Errno, Ino, Reply};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use support::faulty_network::FaultyNetwork;
use support::held_network::HeldNetwork;
use support::network_pool::NetworkPool;
use support::process::{Process, key, pause};
use support::{INSTANCE, Temporary, make_instance};

const READ: OpenMode =
    OpenMode { read: true, write: false, truncate: false, descriptor: false, ..OpenMode::NONE };
const WRITE: OpenMode = OpenMode { write: true, ..READ };
const FILE: &str = "file";
/// Storage nodes of the instances.
const NODES: [usize; 2] = [1, 3];
const PIECE: usize = 4 << 10;

fn options() -> ClientOptions {
    ClientOptions { delays_writes: true, key: Some(key()), ..ClientOptions::default() }
}

fn create(fs: &Fs, name: &str) -> Arc<File> {
    fs.create_path(Path::new(name), 0o644, WRITE).unwrap().file
}

/// Bytes after which the content repeats itself.
const PERIOD: u64 = 131 * 251;
/// The content, and as much as the longest write.
static CONTENT: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..2 * PERIOD + 47_008).map(|at| (at / 131 % 251) as u8).collect());

/// The byte at `offset` of what [`write_piece`] writes.
fn expected(offset: u64) -> u8 {
    CONTENT[(offset % PERIOD) as usize]
}

fn write_piece(file: &File, offset: u64, length: usize) -> Result<usize, Errno> {
    let start = (offset % PERIOD) as usize;
    file.write_at(&CONTENT[start..start + length], offset)
}

/// Reads `length` bytes with another client, and compares them.
fn check_content(fs: &Fs, name: &str, length: u64) {
    let file = fs.open_path(Path::new(name), READ).unwrap().file;
    let mut found = vec![0; length as usize + 1];
    assert_eq!(file.read_at(&mut found, 0), Ok(length as usize));
    let wrong = (0..length).find(|at| found[*at as usize] != expected(*at));
    assert_eq!(wrong, None, "{name}: wrong from there on");
}

#[test]
fn small_sequential_writes_take_few_requests() {
    for (piece, nodes) in [(PIECE, 1), (47_008, 1), (1 << 10, 3)] {
        let pool = NetworkPool::new(nodes);
        // Several writes are made in the time of a request, however the threads are scheduled.
        let network = Arc::new(FaultyNetwork::new(300, 0));
        let (writer, reader) =
            (pool.attach(ClientOptions { system: network, ..options() }), pool.client());
        let file = create(&writer, FILE);
        let pieces = (16 << 20) / piece as u64;
        for index in 0..pieces {
            assert_eq!(write_piece(&file, index * piece as u64, piece), Ok(piece));
        }
        file.fsync(true).unwrap();
        assert!(pool.count("write") < pieces * 2 / 3, "{} requests", pool.count("write"));
        check_content(&reader, FILE, pieces * piece as u64);
    }
}

/// An observation of a file by another client than its writer: returns the length that it sees.
type Observation = fn(&Fs, Ino) -> u64;

fn observations() -> Vec<(&'static str, Observation)> {
    vec![
        ("attributes of a path", |fs, _| fs.resolve(Path::new(FILE), true).unwrap().size),
        ("attributes of an inode", |fs, ino| fs.get_attr(ino).unwrap().size),
        ("attributes of a name", |fs, _| fs.lookup(Ino::ROOT, FILE.as_bytes()).unwrap().size),
        ("listing", |fs, ino| {
            let page = fs.read_dir(Ino::ROOT, 0, 1 << 16, true).unwrap();
            let found = page.entries.iter().find(|entry| entry.ino == ino).unwrap();
            found.attr.unwrap().size
        }),
        ("open", |fs, _| fs.open_path(Path::new(FILE), READ).unwrap().attr.size),
        ("open for writing", |fs, _| fs.open_path(Path::new(FILE), WRITE).unwrap().attr.size),
        ("create of an existing file", |fs, _| {
            fs.create_path(Path::new(FILE), 0o644, WRITE).unwrap().attr.size
        }),
        ("read", |fs, _| {
            let file = fs.open_path(Path::new(FILE), READ).unwrap().file;
            let mut all = vec![0; 8 << 20];
            file.read_at(&mut all, 0).unwrap() as u64
        }),
        ("seek", |fs, _| fs.open_path(Path::new(FILE), READ).unwrap().file.seek(0, true).unwrap()),
        ("attributes after a change of the mode", |fs, ino| {
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            fs.set_attr(ino, None, set).unwrap().size
        }),
        ("link", |fs, ino| {
            let size = fs.link(ino, Ino::ROOT, b"link").unwrap().size;
            fs.unlink(Ino::ROOT, b"link").unwrap();
            size
        }),
        ("rename", |fs, ino| {
            fs.rename_path(Path::new(FILE), Path::new("renamed")).unwrap();
            fs.rename_path(Path::new("renamed"), Path::new(FILE)).unwrap();
            fs.get_attr(ino).unwrap().size
        }),
        ("extension", |fs, ino| {
            let size = fs.get_attr(ino).unwrap().size;
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.set_attr(ino, None, set).unwrap().size
        }),
    ]
}

#[test]
fn every_observation_by_another_client_shows_all_writes() {
    for nodes in NODES {
        let pool = NetworkPool::new(nodes);
        let (writer, observer) = (pool.attach(options()), pool.client());
        let file = create(&writer, FILE);
        let (mut end, mut writes) = (0, 0);
        for round in 0..3 {
            for (name, observe) in observations() {
                // The last lease was recalled.
                std::thread::sleep(Duration::from_millis(260));
                for _ in 0..40 + round {
                    writes += 1;
                    end += write_piece(&file, end, PIECE).unwrap() as u64;
                }
                assert_eq!(observe(&observer, file.ino()), end, "{name}");
            }
        }
        assert!(pool.count("write") < writes, "nothing was delayed");
        check_content(&observer, FILE, end);
    }
}

#[test]
fn own_requests_show_all_writes() {
    for nodes in NODES {
        let pool = NetworkPool::new(nodes);
        let fs = pool.attach(options());
        let (file, other) = (create(&fs, FILE), create(&fs, FILE));
        let mut end = 0;
        for (name, observe) in observations() {
            for _ in 0..40 {
                end += write_piece(&file, end, PIECE).unwrap() as u64;
            }
            assert_eq!(observe(&fs, file.ino()), end, "{name}");
        }
        // A second open file overwrites, appends and truncates.
        for round in 0..20_u64 {
            let start = round * 100_000;
            for index in 0..20 {
                write_piece(&file, start + index * 1000, 1000).unwrap();
            }
            other.write_at(&[255; 500], start + 19_600).unwrap();
            let mut found = [0; 1000];
            file.read_at(&mut found, start + 19_000).unwrap();
            assert!(found[600..] == [255; 400] && found[0] == expected(start + 19_000));
        }
        let size = fs.get_attr(file.ino()).unwrap().size;
        assert_eq!(other.append(&[1; 10]), Ok(10));
        let set = SetAttr { size: Some(size + 5), ..SetAttr::default() };
        assert_eq!(fs.set_attr(file.ino(), None, set).unwrap().size, size + 5);
    }
}

#[test]
fn concurrent_observations_are_never_older_than_writes() {
    NODES.into_iter().for_each(|nodes| observe_concurrently(nodes, FaultyNetwork::default()));
}

#[test]
fn concurrent_observations_are_never_older_than_writes_with_a_slow_network() {
    NODES.into_iter().for_each(|nodes| observe_concurrently(nodes, FaultyNetwork::new(3000, 0)));
}

#[test]
fn concurrent_observations_are_never_older_than_writes_if_replies_are_lost() {
    NODES.into_iter().for_each(|nodes| observe_concurrently(nodes, FaultyNetwork::new(300, 40)));
}

/// One client writes over this network, and others observe the file.
fn observe_concurrently(nodes: usize, network: FaultyNetwork) {
    let pool = NetworkPool::new(nodes);
    let writer = pool.attach(ClientOptions { system: Arc::new(network), ..options() });
    let file = create(&writer, FILE);
    let (written, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (index, pause_ms) in [1, 70, 400].into_iter().enumerate() {
            let (pool, written, stop, ino) = (&pool, &written, &stop, file.ino());
            scope.spawn(move || {
                let fs = pool.client();
                while !stop.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(pause_ms));
                    let before = written.load(Ordering::Acquire);
                    let (name, observe) = observations().swap_remove(index * 2);
                    let size = observe(&fs, ino);
                    assert!(size >= before, "{name}: {size} bytes after {before}");
                }
            });
        }
        let (start, mut end) = (Instant::now(), 0);
        let mut outcome = Ok(0);
        while outcome.is_ok() && start.elapsed() < Duration::from_secs(4) {
            outcome = write_piece(&file, end, 1000);
            end += outcome.unwrap_or_default() as u64;
            written.store(end, Ordering::Release);
        }
        // Also after a failure: the observers would never end.
        stop.store(true, Ordering::Release);
        outcome.unwrap();
    });
    drop(file);
    check_content(&pool.client(), FILE, written.load(Ordering::Acquire));
}

#[test]
fn full_instance_refuses_the_write_that_does_not_fit() {
    for nodes in NODES {
        let pool = NetworkPool::with_capacity(nodes, 24 << 20);
        let fs = pool.attach(options());
        let file = create(&fs, FILE);
        let mut end = 0;
        let refused = loop {
            match write_piece(&file, end, 47_008) {
                Ok(count) => end += count as u64,
                Err(errno) => break errno,
            }
            assert!(end < 32 << 20);
        };
        assert_eq!(refused, Errno::ENOSPC);
        assert!(end > 16 << 20, "{end} bytes");
        file.fsync(false).unwrap();
        drop(file);
        check_content(&pool.client(), FILE, end);
    }
}

/// A writer whose network is cut after it has delayed writes. `act` is what another client does then;
/// the result is that of the writer's `fsync`, with the bytes that it had written.
fn write_while_cut(pool: &NetworkPool, act: impl FnOnce(&Fs)) -> (Result<(), Errno>, u64) {
    let network = FaultyNetwork::default();
    let writer = pool.attach(ClientOptions { system: Arc::new(network.clone()), ..options() });
    let file = create(&writer, FILE);
    let written = AtomicU64::new(0);
    let observer = pool.client();
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            for _ in 0..60_000 {
                let end = written.load(Ordering::Acquire);
                let count = write_piece(&file, end, 1000)?;
                written.store(end + count as u64, Ordering::Release);
            }
            Ok(())
        });
        while written.load(Ordering::Acquire) < 1 << 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        network.cut(true);
        let start = Instant::now();
        act(&observer);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        network.cut(false);
        let result = writes.join().unwrap();
        (result.and_then(|()| file.fsync(true)), written.load(Ordering::Acquire))
    })
}

#[test]
fn writer_that_is_cut_off_writes_nothing_after_others_opened_the_file() {
    for nodes in NODES {
        let pool = NetworkPool::new(nodes);
        let (result, _) = write_while_cut(&pool, |observer| {
            let mode = OpenMode { truncate: true, ..WRITE };
            drop(observer.open_path(Path::new(FILE), mode).unwrap());
        });
        assert_eq!(result, Err(Errno::EIO));
        let size = pool.client().resolve(Path::new(FILE), true).unwrap().size;
        assert_eq!(size, 0, "a late write");
    }
}

#[test]
fn writer_that_is_cut_off_loses_nothing_if_others_only_look_at_attributes() {
    for nodes in NODES {
        let pool = NetworkPool::new(nodes);
        let (result, written) = write_while_cut(&pool, |observer| {
            assert!(observer.resolve(Path::new(FILE), true).unwrap().size > 0);
        });
        assert_eq!((result, written), (Ok(()), 60_000_000));
        check_content(&pool.client(), FILE, written);
    }
}

/// The addresses of the daemons, and the file to create, for the test `writer_process`.
const DAEMON: &str = "FOREBAY_TEST_WRITE_LEASES_DAEMON";
const RESULT: &str = "FOREBAY_TEST_WRITE_LEASES_RESULT";

#[test]
#[ignore = "not a test: a client that another test stops or kills"]
fn writer_process() {
    let Ok(address) = std::env::var(DAEMON) else {
        return;
    };
    let addresses: Vec<Address> = address.split(',').map(|text| text.parse().unwrap()).collect();
    let fs = Fs::attach(addresses, INSTANCE, options()).unwrap();
    let file = create(&fs, FILE);
    let mut end = 0;
    let failed = loop {
        match write_piece(&file, end, PIECE) {
            Ok(count) => end += count as u64,
            Err(errno) => break errno,
        }
        if end > 200 << 20 {
            // The test is to end before.
            std::thread::sleep(Duration::from_secs(60));
            break Errno::ETIMEDOUT;
        }
        std::thread::sleep(Duration::from_micros(20));
    };
    std::fs::write(std::env::var(RESULT).unwrap(), format!("{failed:?}")).unwrap();
}

fn start_writer(pool: &NetworkPool, result: &Path) -> Child {
    let writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "write_leases::writer_process"])
        .env(DAEMON, pool.addresses().join(","))
        .env(RESULT, result)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while pool.count("write_lease") < 1 || pool.count("write") < 50 {
        assert!(start.elapsed() < Duration::from_secs(30), "the client gets no lease");
        std::thread::sleep(Duration::from_millis(5));
    }
    writer
}

#[test]
fn stopped_writer_delays_others_for_some_time_and_writes_nothing_after_they_opened() {
    for nodes in NODES {
        let temporary = Temporary::new();
        let (pool, result) = (NetworkPool::new(nodes), temporary.0.join("result"));
        let observer = pool.client();
        let mut writer = start_writer(&pool, &result);
        pause(&writer, true);
        let start = Instant::now();
        let size = observer.resolve(Path::new(FILE), true).unwrap().size;
        let file = observer.open_path(Path::new(FILE), WRITE).unwrap().file;
        let delay = start.elapsed();
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        assert!(size > 0);
        observer.set_attr(file.ino(), None, set).unwrap();
        pause(&writer, false);
        writer.wait().unwrap();
        assert_eq!(std::fs::read_to_string(&result).unwrap(), "EIO");
        assert_eq!(observer.get_attr(file.ino()).unwrap().size, 0, "a late write");
        assert!(delay < Duration::from_secs(20), "{delay:?}");
    }
}

#[test]
fn stopped_writer_loses_nothing_if_others_only_look_at_attributes() {
    for nodes in NODES {
        let temporary = Temporary::new();
        let (pool, result) = (NetworkPool::new(nodes), temporary.0.join("result"));
        let observer = pool.client();
        let mut writer = start_writer(&pool, &result);
        pause(&writer, true);
        for _ in 0..2 {
            assert!(observer.resolve(Path::new(FILE), true).unwrap().size > 0);
        }
        pause(&writer, false);
        std::thread::sleep(Duration::from_millis(100));
        let size = observer.resolve(Path::new(FILE), true).unwrap().size;
        check_content_of_at_least(&observer, size);
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(!result.exists(), "a write failed");
    }
}

#[test]
fn killed_writer_leaves_a_part_without_gaps() {
    for nodes in NODES {
        let temporary = Temporary::new();
        let (pool, result) = (NetworkPool::new(nodes), temporary.0.join("result"));
        let mut writer = start_writer(&pool, &result);
        writer.kill().unwrap();
        writer.wait().unwrap();
        let (observer, start) = (pool.client(), Instant::now());
        check_content_of_at_least(&observer, 50 * PIECE as u64);
        let delay = start.elapsed();
        assert!(delay < Duration::from_secs(20), "{delay:?}");
    }
}

fn check_content_of_at_least(fs: &Fs, least: u64) {
    let opened = fs.open_path(Path::new(FILE), READ).unwrap();
    assert!(opened.attr.size >= least, "{} bytes", opened.attr.size);
    let mut found = vec![0; least as usize];
    assert_eq!(opened.file.read_at(&mut found, 0), Ok(found.len()));
    let wrong = (0..least).find(|at| found[*at as usize] != expected(*at));
    assert_eq!(wrong, None, "wrong from there on");
}

#[test]
fn restarts_of_the_daemons_lose_no_delayed_write_and_show_all_of_them() {
    for nodes in NODES {
        let temporary = Temporary::new();
        let start = |node| Process::start(&temporary.dir(&format!("flash{node}")));
        let mut processes: Vec<Process> = (0..nodes).map(start).collect();
        make_instance(processes.iter().map(Process::local).collect::<Vec<_>>(), 256 << 20);
        let addresses: Vec<Address> = processes.iter().map(Process::remote).collect();
        let attach = |options| Fs::attach(addresses.clone(), INSTANCE, options).unwrap();
        let (writer, observer) = (attach(options()), attach(options()));
        let file = create(&writer, FILE);
        let mut end = 0;
        for round in 0..4 * nodes {
            for _ in 0..200 + round {
                end += write_piece(&file, end, PIECE).unwrap() as u64;
            }
            // Each node by itself, and then others while the capabilities of one have expired.
            for killed in [round % nodes, (round + round / nodes) % nodes] {
                processes[killed].kill();
                processes[killed].restart();
                for _ in 0..100 {
                    end += write_piece(&file, end, PIECE).unwrap() as u64;
                }
            }
            assert_eq!(observer.get_attr(file.ino()).unwrap().size, end, "round {round}");
        }
        file.fsync(true).unwrap();
        check_content(&observer, FILE, end);
    }
}

#[test]
fn write_that_is_held_back_is_refused_when_others_have_written() {
    for nodes in NODES {
        let network = HeldNetwork::default();
        let pool = NetworkPool::new(nodes);
        let writer = pool.attach(ClientOptions { system: Arc::new(network.clone()), ..options() });
        let file = create(&writer, FILE);
        let mut end = 0;
        std::thread::scope(|scope| {
            for _ in 0..100 {
                end += write_piece(&file, end, PIECE).unwrap() as u64;
            }
            file.flush().unwrap();
            network.hold(true);
            // The lease may have to be confirmed, so that a write waits.
            let late = scope.spawn(|| {
                let written =
                    (0..8).try_fold(end, |end, _| Ok(end + write_piece(&file, end, PIECE)? as u64));
                written.and_then(|_| file.flush())
            });
            while network.held() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let other = pool.client();
            let opened = other.open_path(Path::new(FILE), WRITE).unwrap().file;
            opened.write_all_at(&vec![255; end as usize + (1 << 16)], 0).unwrap();
            network.hold(false);
            assert_eq!(late.join().unwrap(), Err(Errno::EIO));
            assert_eq!(write_piece(&file, end, PIECE), Err(Errno::EIO), "a later write");
        });
        let read = pool.client().open_path(Path::new(FILE), READ).unwrap().file;
        let mut found = vec![0; end as usize + (1 << 16)];
        assert_eq!(read.read_at(&mut found, 0), Ok(found.len()));
        assert_eq!(found.iter().position(|byte| *byte != 255), None, "a late write");
    }
}

#[test]
fn restarts_of_the_daemons_do_not_let_writes_arrive_that_were_refused_before() {
    for nodes in NODES {
        let temporary = Temporary::new();
        let start = |node| Process::start(&temporary.dir(&format!("flash{node}")));
        let mut processes: Vec<Process> = (0..nodes).map(start).collect();
        make_instance(processes.iter().map(Process::local).collect::<Vec<_>>(), 256 << 20);
        let addresses: Vec<Address> = processes.iter().map(Process::remote).collect();
        let attach = |options| Fs::attach(addresses.clone(), INSTANCE, options).unwrap();
        let network = FaultyNetwork::default();
        let writer = attach(ClientOptions { system: Arc::new(network.clone()), ..options() });
        let observer = attach(options());
        let file = create(&writer, FILE);
        let end = (0..200).fold(0, |end, _| end + write_piece(&file, end, PIECE).unwrap() as u64);
        file.flush().unwrap();
        std::thread::scope(|scope| {
            network.cut(true);
            // A write may wait, if the lease has to be confirmed.
            let late = scope.spawn(|| {
                let write = |end, _| Ok(end + write_piece(&file, end, PIECE)? as u64);
                (0..8).try_fold(end, write).and_then(|_| file.flush())
            });
            let mode = OpenMode { truncate: true, ..WRITE };
            drop(observer.open_path(Path::new(FILE), mode).unwrap());
            for process in &mut processes {
                process.kill();
                process.restart();
            }
            network.cut(false);
            let late = late.join().unwrap();
            // Unless the write had waited: then it is a later one.
            assert!(late == Err(Errno::EIO) || write_piece(&file, end, PIECE).is_ok(), "{late:?}");
            let size = observer.get_attr(file.ino()).unwrap().size;
            assert!(size == 0 || late.is_ok(), "{size} bytes of late writes");
        });
    }
}

/// The network to daemons of an earlier release, which do not say that they keep write leases.
#[derive(Debug)]
struct EarlierDaemons;

#[derive(Debug)]
struct ToEarlierDaemon(Connection);

impl System for EarlierDaemons {
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        Ok(Box::new(ToEarlierDaemon(Os.connect(address, auth, timeout)?)))
    }
}

impl Channel for ToEarlierDaemon {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.0.send(call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        let mut response = self.0.receive(seq, into)?;
        if let Reply::Attached { keeps_write_leases, .. } = &mut response.reply {
            *keeps_write_leases = TrailingField(false);
        }
        Ok(response)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(timeout)
    }
}

#[test]
fn nothing_is_delayed_with_daemons_of_an_earlier_release() {
    for nodes in NODES {
        let pool = NetworkPool::new(nodes);
        let fs = pool.attach(ClientOptions { system: Arc::new(EarlierDaemons), ..options() });
        let file = create(&fs, FILE);
        (0..50).fold(0, |end, _| end + write_piece(&file, end, 1000).unwrap() as u64);
        file.fsync(true).unwrap();
        assert_eq!(pool.count("write_lease"), 0);
    }
}
