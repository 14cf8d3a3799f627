//! Clients that exhaust what a storage daemon grants them do not block others.
//!
//! Needs root, because it acts as several users.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod support;

use forebay_client::{ClientOptions, Fs};
use forebay_net::admission::ConnectionLimits;
use forebay_net::auth::{Authenticator, PoolKey};
use forebay_net::channel::channel;
use forebay_net::connection::Connection;
use forebay_net::frame::{self, Flags, HEADER_BYTES, Kind};
use forebay_net::handshake::{ClientHandshake, Service};
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::message::{Attach, PROTOCOL_VERSION};
use forebay_protocol::message::{NameRequest, SessionRequest};
use forebay_protocol::{Call, Errno, Ino, Reply, Request};
use forebay_store::daemon::{self, Daemon};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use support::{INSTANCE, Temporary, as_user, users_pool};

fn key() -> PoolKey {
    PoolKey::new(b"a key for tests only").unwrap()
}

/// A daemon with these limits and an instance that is open to everybody of group 2000.
fn pool(doors: ConnectionLimits, sessions: usize) -> (Daemon, Temporary) {
    let temporary = Temporary::new();
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.tcp = Some(([127, 0, 0, 1], 0).into());
    options.key = Some(key());
    options.connection_limits = doors;
    options.limits.max_user_sessions = sessions;
    (users_pool(options, 0o770), temporary)
}

fn tcp(daemon: &Daemon) -> SocketAddr {
    match daemon.tcp_address() {
        Some(Address::Tcp(address)) => address,
        other => panic!("{other:?}"),
    }
}

fn from_another_host(daemon: &Daemon) -> Result<Fs, Errno> {
    let options = ClientOptions {
        key: Some(key()),
        timeout: Duration::from_secs(10),
        ..ClientOptions::default()
    };
    Fs::attach(daemon.tcp_address().unwrap(), INSTANCE, options)
}

fn hello(bulk: bool) -> Request {
    Request::Session(SessionRequest::Attach(Attach {
        version: PROTOCOL_VERSION,
        instance: Some(INSTANCE),
        token: None,
        slot: 0,
        data_connection: bulk,
        single_cache: false,
    }))
}

fn local(daemon: &Daemon) -> Connection {
    Connection::from(channel(Stream::connect(&daemon.address(), Duration::from_secs(5)).unwrap()))
}

/// What the daemon says to a call; `None` if it closes the connection instead.
fn say(link: &mut Connection, request: Request) -> Option<Reply> {
    let call = Call { seq: 1, caller: None, request };
    link.call(&call, &[], &mut []).ok().map(|answer| answer.reply)
}

/// Whether the other side closes the connection within this time.
fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(within)).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn thousand_silent_connections_do_not_block_others() {
    let (daemon, _temporary) = pool(ConnectionLimits::default(), 100);
    let address = tcp(&daemon);
    let mut silent: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(address).unwrap()).collect();
    let begun = Instant::now();
    let fs = from_another_host(&daemon).unwrap();
    fs.get_attr(Ino::ROOT).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5));
    // The oldest of them have gone; those that are there still are no more than may be.
    let mut gone = silent.iter_mut().take(480);
    assert!(gone.all(|stream| is_closed(stream, Duration::from_secs(5))));
    assert!(connections(&daemon) <= 530, "{}", connections(&daemon));
}

#[test]
fn handshake_is_limited_in_time_and_size() {
    let doors = ConnectionLimits {
        handshake_timeout: Duration::from_millis(500),
        ..ConnectionLimits::default()
    };
    let (daemon, _temporary) = pool(doors, 100);
    let mut call = Vec::new();
    let said = Call { seq: 1, caller: None, request: hello(false) };
    frame::encode_call(&mut call, &said, 0).unwrap();
    // A byte now and then, as slowly as it goes.
    let mut slow = TcpStream::connect(tcp(&daemon)).unwrap();
    let begun = Instant::now();
    let sent = call.iter().take_while(|byte| {
        std::thread::sleep(Duration::from_millis(50));
        slow.write_all(&[**byte]).is_ok() && !is_closed(&mut slow, Duration::from_millis(1))
    });
    assert!(sent.count() < call.len());
    assert!(begun.elapsed() < Duration::from_secs(5));
    // Half of it on the Unix socket, where the kernel says who that is.
    let Address::Unix(socket) = daemon.address() else {
        unreachable!("a daemon has a Unix socket");
    };
    let mut half = UnixStream::connect(socket).unwrap();
    half.write_all(&call[..call.len() / 2]).unwrap();
    half.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let begun = Instant::now();
    assert_eq!(half.read(&mut [0]).unwrap(), 0);
    assert!(begun.elapsed() >= Duration::from_millis(400));
    // The first message of the handshake over and over, without a proof.
    let auth = Authenticator { key: Some(key()), munge: None, data_protection: None };
    let server = (Service::Storage, tcp(&daemon));
    let (_, opening) = ClientHandshake::new(server, &auth).unwrap();
    let mut again = TcpStream::connect(tcp(&daemon)).unwrap();
    let begun = Instant::now();
    while again.write_all(&opening).is_ok() && !is_closed(&mut again, Duration::from_millis(1)) {
        assert!(begun.elapsed() < Duration::from_secs(5), "it goes on for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    // More than anybody has to say who is not known yet.
    let mut long = Vec::new();
    let name = vec![b'x'; 100 << 10];
    let request = Request::Name(NameRequest::Lookup { parent: Ino::ROOT, name });
    frame::encode_call(&mut long, &Call { seq: 1, caller: None, request }, 0).unwrap();
    let mut much = TcpStream::connect(tcp(&daemon)).unwrap();
    much.write_all(&long[..HEADER_BYTES]).unwrap();
    assert!(is_closed(&mut much, Duration::from_millis(300)));
    // Who is known may take all the time in the world.
    let fs = from_another_host(&daemon).unwrap();
    std::thread::sleep(Duration::from_millis(800));
    fs.get_attr(Ino::ROOT).unwrap();
}

#[test]
fn user_cannot_exhaust_connections() {
    let doors =
        ConnectionLimits { user: 8, workers: 6, user_workers: 3, ..ConnectionLimits::default() };
    let (daemon, _temporary) = pool(doors, 100);
    let limit = |bulk| {
        let mut held: Vec<Connection> = (0..12).map(|_| local(&daemon)).collect();
        let said: Vec<_> = held.iter_mut().map(|link| say(link, hello(bulk))).collect();
        (held, said)
    };
    let let_in = |said: &[Option<Reply>]| {
        said.iter().filter(|said| matches!(said, Some(Reply::Attached { .. }))).count()
    };
    let (held, said) = as_user(1000, 1, || limit(false));
    assert_eq!(let_in(&said), 8);
    let refused = Some(Reply::Failed(Errno::EMFILE));
    assert!(said[8..].iter().all(|said| *said == refused), "{said:?}");
    // The others are not held up.
    let other = as_user(1001, 2000, || say(&mut local(&daemon), hello(false)));
    assert!(matches!(other, Some(Reply::Attached { .. })));
    drop(held);
    // What was given back can be had again.
    wait_until(|| {
        as_user(1000, 1, || {
            matches!(say(&mut local(&daemon), hello(false)), Some(Reply::Attached { .. }))
        })
    });
    // Connections for data, each of which has a thread.
    wait_until(|| connections(&daemon) < 3);
    let (held, said) = as_user(1000, 1, || limit(true));
    assert_eq!(let_in(&said), 3, "{said:?}");
    assert!(said.contains(&Some(Reply::Failed(Errno::EAGAIN))));
    let (_mine, said) = limit(true);
    assert_eq!(let_in(&said), 3, "root has the rest: {said:?}");
    drop(held);
    wait_until(|| {
        as_user(1000, 1, || {
            matches!(say(&mut local(&daemon), hello(true)), Some(Reply::Attached { .. }))
        })
    });
}

#[test]
fn user_cannot_exhaust_sessions() {
    let (daemon, _temporary) = pool(ConnectionLimits::default(), 4);
    as_user(1000, 1, || {
        for _ in 0..4 {
            let mut link = local(&daemon);
            assert!(matches!(say(&mut link, hello(false)), Some(Reply::Attached { .. })));
            // The connection goes, the session stays for a while.
        }
        let fifth = say(&mut local(&daemon), hello(false));
        assert_eq!(fifth, Some(Reply::Failed(Errno::EMFILE)));
    });
    as_user(1001, 2000, || {
        let other = say(&mut local(&daemon), hello(false));
        assert!(matches!(other, Some(Reply::Attached { .. })));
    });
}

/// Whoever listens in a daemon's place and says nothing, or nonsense, is given up.
#[test]
fn client_gives_up_on_impostor_daemon() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let options =
        ClientOptions { key: Some(key()), timeout: Duration::ZERO, ..ClientOptions::default() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut no_handshake = Vec::new();
            frame::encode_reply(&mut no_handshake, 1, Flags::default(), &Reply::Done, 0).unwrap();
            // The server's answer, with any bytes as its Noise message.
            let mut no_key = Vec::new();
            let fields = (Kind::Handshake, Flags::default(), 0);
            frame::encode(&mut no_key, fields, &(0u8, vec![9u8; 48]), 0, 1000).unwrap();
            for answer in [no_handshake, no_key] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(&answer).unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.read(&mut [0; 4096]);
            }
        });
        let attach = || Fs::attach(address.clone(), INSTANCE, options.clone()).map(|_| ());
        assert_eq!(attach(), Err(Errno::EPROTO), "no handshake");
        assert_eq!(attach(), Err(Errno::ENOKEY), "without the key");
    });
}

/// Connections that the daemon has.
fn connections(daemon: &Daemon) -> u64 {
    let report = daemon.stats().collect_report(Duration::from_secs(5));
    report.gauges.unwrap().connections
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited");
        std::thread::sleep(Duration::from_millis(20));
    }
}
