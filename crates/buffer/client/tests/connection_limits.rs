//! Clients that exhaust what a storage daemon grants them do not block others.
//!
//! Needs root, because it acts as several users.

use crate::support;
use forebay_client::{ClientOptions, Fs};
use forebay_net::admission::ConnectionLimits;
use forebay_net::auth::{Authenticator, PoolKey};
use forebay_net::channel::channel;
use forebay_net::connection::Connection;
use forebay_net::frame::{self, Flags, HEADER_BYTES, Kind};
use forebay_net::handshake::{ClientHandshake, Service};
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::message::{Attach, ClientHost, OpenMode, PROTOCOL_VERSION, TrailingField};
use forebay_protocol::message::{NameRequest, SessionRequest};
use forebay_protocol::{Call, Errno, Ino, Reply, Request};
use forebay_store::daemon::{self, Daemon};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{INSTANCE, READ_WRITE, Temporary, as_user, users_pool};

/// Data travel over data connections.
const REMOTE: OpenMode = OpenMode { descriptor: false, ..READ_WRITE };

fn key() -> PoolKey {
    PoolKey::new(b"a key for tests only").unwrap()
}

/// A daemon with these limits and an instance with access for group 2000.
fn pool(limits: ConnectionLimits, sessions: usize) -> (Daemon, Temporary) {
    let temporary = Temporary::new();
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.tcp = Some(([127, 0, 0, 1], 0).into());
    options.key = Some(key());
    options.connection_limits = limits;
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

fn attach_request(is_data: bool) -> Request {
    Request::Session(SessionRequest::Attach(Attach {
        version: PROTOCOL_VERSION,
        instance: Some(INSTANCE),
        token: None,
        slot: 0,
        data_connection: is_data,
        single_cache: false,
        cache_checks_permissions: false,
        client: ClientHost::default(),
        delegates: TrailingField::default(),
        client_number: TrailingField::default(),
    }))
}

fn local(daemon: &Daemon) -> Connection {
    Connection::from(channel(Stream::connect(&daemon.address(), Duration::from_secs(5)).unwrap()))
}

/// The reply of the daemon; `None` if it closes the connection.
fn call(connection: &mut Connection, request: Request) -> Option<Reply> {
    let call = Call { seq: 1, caller: None, tags: Vec::new(), request };
    connection.call(&call, &[], &mut []).ok().map(|response| response.reply)
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
    let started = Instant::now();
    let fs = from_another_host(&daemon).unwrap();
    fs.get_attr(Ino::ROOT).unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
    // The oldest ones were closed, so that the limit is kept.
    let mut oldest = silent.iter_mut().take(480);
    assert!(oldest.all(|stream| is_closed(stream, Duration::from_secs(5))));
    assert!(connections(&daemon) <= 530, "{}", connections(&daemon));
}

#[test]
fn handshake_is_limited_in_time_and_size() {
    let limits = ConnectionLimits {
        handshake_timeout: Duration::from_millis(500),
        ..ConnectionLimits::default()
    };
    let (daemon, _temporary) = pool(limits, 100);
    let mut call = Vec::new();
    let attach = Call { seq: 1, caller: None, tags: Vec::new(), request: attach_request(false) };
    frame::encode_call(&mut call, &attach, 0).unwrap();
    // One byte every 50 ms.
    let mut slow = TcpStream::connect(tcp(&daemon)).unwrap();
    let started = Instant::now();
    let sent = call.iter().take_while(|byte| {
        std::thread::sleep(Duration::from_millis(50));
        slow.write_all(&[**byte]).is_ok() && !is_closed(&mut slow, Duration::from_millis(1))
    });
    assert!(sent.count() < call.len());
    assert!(started.elapsed() < Duration::from_secs(5));
    // Half of it on the Unix socket, where the kernel identifies the client.
    let Address::Unix(socket) = daemon.address() else {
        unreachable!("a daemon has a Unix socket");
    };
    let mut half = UnixStream::connect(socket).unwrap();
    half.write_all(&call[..call.len() / 2]).unwrap();
    half.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let started = Instant::now();
    assert_eq!(half.read(&mut [0]).unwrap(), 0);
    assert!(started.elapsed() >= Duration::from_millis(400));
    // The first message of the handshake again and again, without a proof.
    let auth = Authenticator { key: Some(key()), ..Authenticator::default() };
    let server = (Service::Storage, tcp(&daemon));
    let (_, opening) = ClientHandshake::new(server, &auth).unwrap();
    let mut again = TcpStream::connect(tcp(&daemon)).unwrap();
    let started = Instant::now();
    while again.write_all(&opening).is_ok() && !is_closed(&mut again, Duration::from_millis(1)) {
        assert!(started.elapsed() < Duration::from_secs(5), "the handshake has no time limit");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A longer message than an unauthenticated client may send.
    let mut long = Vec::new();
    let name = vec![b'x'; 100 << 10];
    let request = Request::Name(NameRequest::Lookup { parent: Ino::ROOT, name });
    frame::encode_call(&mut long, &Call { seq: 1, caller: None, tags: Vec::new(), request }, 0)
        .unwrap();
    let mut oversized = TcpStream::connect(tcp(&daemon)).unwrap();
    oversized.write_all(&long[..HEADER_BYTES]).unwrap();
    assert!(is_closed(&mut oversized, Duration::from_millis(300)));
    // An authenticated client may be idle.
    let fs = from_another_host(&daemon).unwrap();
    std::thread::sleep(Duration::from_millis(800));
    fs.get_attr(Ino::ROOT).unwrap();
}

#[test]
fn user_cannot_exhaust_connections() {
    let limits =
        ConnectionLimits { user: 8, workers: 6, user_workers: 3, ..ConnectionLimits::default() };
    let (daemon, _temporary) = pool(limits, 100);
    let connect_12 = |is_data| {
        let mut connections: Vec<Connection> = (0..12).map(|_| local(&daemon)).collect();
        let replies: Vec<_> =
            connections.iter_mut().map(|one| call(one, attach_request(is_data))).collect();
        (connections, replies)
    };
    let count_attached = |replies: &[Option<Reply>]| {
        replies.iter().filter(|reply| matches!(reply, Some(Reply::Attached { .. }))).count()
    };
    let (held, replies) = as_user(1000, 1, || connect_12(false));
    assert_eq!(count_attached(&replies), 8);
    let refused = Some(Reply::Failed(Errno::EMFILE));
    assert!(replies[8..].iter().all(|reply| *reply == refused), "{replies:?}");
    // Other users are not affected.
    let other = as_user(1001, 2000, || call(&mut local(&daemon), attach_request(false)));
    assert!(matches!(other, Some(Reply::Attached { .. })));
    drop(held);
    // A closed connection can be replaced.
    wait_until(|| {
        as_user(1000, 1, || {
            matches!(call(&mut local(&daemon), attach_request(false)), Some(Reply::Attached { .. }))
        })
    });
    // Data connections, each of which has a thread.
    wait_until(|| connections(&daemon) < 3);
    let (held, replies) = as_user(1000, 1, || connect_12(true));
    assert_eq!(count_attached(&replies), 3, "{replies:?}");
    assert!(replies.contains(&Some(Reply::Failed(Errno::EAGAIN))));
    let (_root, replies) = connect_12(true);
    assert_eq!(count_attached(&replies), 3, "root gets the rest: {replies:?}");
    drop(held);
    wait_until(|| {
        as_user(1000, 1, || {
            matches!(call(&mut local(&daemon), attach_request(true)), Some(Reply::Attached { .. }))
        })
    });
}

#[test]
fn idle_data_connections_are_closed_and_made_again() {
    let idle_timeout = Duration::from_millis(200);
    let limits = ConnectionLimits { idle_timeout, ..ConnectionLimits::default() };
    let (daemon, _temporary) = pool(limits, 100);
    let fs = from_another_host(&daemon).unwrap();
    let file = fs.create_path(Path::new("f"), 0o600, REMOTE).unwrap().file;
    file.write_all_at(b"before", 0).unwrap();
    let busy = connections(&daemon);
    wait_until(|| connections(&daemon) < busy);
    file.write_all_at(b"after ", 0).unwrap();
    let mut read = [0; 6];
    assert_eq!(file.read_at(&mut read, 0), Ok(6));
    assert_eq!(&read, b"after ");
}

#[test]
fn user_cannot_exhaust_open_files() {
    let temporary = Temporary::new();
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.limits.max_user_handles = 10;
    let daemon = users_pool(options, 0o770);
    let attach = || Fs::attach(daemon.address(), INSTANCE, ClientOptions::default()).unwrap();
    let open = |fs: &Fs, name: String| {
        Ok::<_, Errno>(fs.create_path(Path::new(&name), 0o666, REMOTE)?.file)
    };
    let (mut held, [first, second]) = as_user(1000, 2000, || {
        let sessions = [attach(), attach()];
        // The limit is that of all sessions of the user together.
        let open = |number: usize| open(&sessions[number % 2], format!("f{number}"));
        let held: Vec<_> = (0..10).map(|number| open(number).unwrap()).collect();
        assert_eq!(open(10).map(drop), Err(Errno::EMFILE));
        (held, sessions)
    });
    as_user(1001, 2000, || drop(open(&attach(), "other".to_owned()).unwrap()));
    drop(open(&attach(), "root".to_owned()).unwrap());
    drop(held.pop());
    wait_until(|| open(&first, "f10".to_owned()).is_ok());
    // The handles of a session that ends are free again.
    drop((held, first));
    wait_until(|| open(&second, "f11".to_owned()).is_ok());
}

#[test]
fn user_cannot_exhaust_sessions() {
    let (daemon, _temporary) = pool(ConnectionLimits::default(), 4);
    as_user(1000, 1, || {
        for _ in 0..4 {
            let mut connection = local(&daemon);
            assert!(matches!(
                call(&mut connection, attach_request(false)),
                Some(Reply::Attached { .. })
            ));
            // The connection is closed; the session stays until its lease expires.
        }
        let fifth = call(&mut local(&daemon), attach_request(false));
        assert_eq!(fifth, Some(Reply::Failed(Errno::EMFILE)));
    });
    as_user(1001, 2000, || {
        let other = call(&mut local(&daemon), attach_request(false));
        assert!(matches!(other, Some(Reply::Attached { .. })));
    });
}

/// A server that sends no handshake, or a wrong one.
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
            // A server's answer with an invalid Noise message.
            let mut no_key = Vec::new();
            let fields = (Kind::Handshake, Flags::default(), 0);
            frame::encode(&mut no_key, fields, &(0u8, vec![9u8; 48]), 0, 1000).unwrap();
            for message in [no_handshake, no_key] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(&message).unwrap();
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.read(&mut [0; 4096]);
            }
        });
        let attach = || Fs::attach(address.clone(), INSTANCE, options.clone()).map(|_| ());
        assert_eq!(attach(), Err(Errno::EPROTO), "no handshake");
        assert_eq!(attach(), Err(Errno::ENOKEY), "without the key");
    });
}

/// Number of connections of the daemon.
fn connections(daemon: &Daemon) -> u64 {
    let report = daemon.stats().collect_report(Duration::from_secs(5));
    report.gauges.unwrap().connections
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(20), "timeout");
        std::thread::sleep(Duration::from_millis(20));
    }
}
