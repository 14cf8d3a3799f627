//! Hosts and users authenticated by MUNGE, with a `munged` of the test.
//!
//! Needs root, because it acts as several users, and the package `munge`.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs};
use forebay_net::auth::Authenticator;
use forebay_net::channel::{Receiver, Sender, channel};
use forebay_net::frame::{self, Flags, Kind, MAX_BODY_BYTES};
use forebay_net::handshake::{self, ClientHandshake, Refusal, ServerNotAuthenticated, Service};
use forebay_net::munge::Munge;
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::message::{
    Attach, ClientHost, PROTOCOL_VERSION, SessionRequest, TrailingField,
};
use forebay_protocol::{Call, Errno, Ino, Reply, Request};
use forebay_store::daemon::{self, Daemon};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{INSTANCE, Temporary, as_user, users_pool};

/// A `munged` with its own key.
struct Munged {
    child: Child,
    socket: PathBuf,
}

impl Munged {
    fn start(directory: &Path) -> Munged {
        let file = |name: &str| directory.join(name);
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
        let key: [u8; 64] = forebay_net::random::random_bytes().unwrap();
        std::fs::write(file("key"), key).unwrap();
        std::fs::set_permissions(file("key"), PermissionsExt::from_mode(0o600)).unwrap();
        let option = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        let child = Command::new("munged")
            .args(["--foreground", "--force", "--origin=127.0.0.1"])
            .arg(option("key-file", file("key")))
            .arg(option("socket", file("socket")))
            .arg(option("pid-file", file("pid")))
            .arg(option("log-file", file("log")))
            .arg(option("seed-file", file("seed")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("munged runs: scripts/setup.sh test installs the package `munge`");
        let started = Instant::now();
        while !file("socket").exists() {
            assert!(started.elapsed() < Duration::from_secs(20), "munged starts");
            std::thread::sleep(Duration::from_millis(5));
        }
        Munged { child, socket: file("socket") }
    }

    fn munge(&self) -> Munge {
        Munge::new(Some(self.socket.clone())).unwrap()
    }
}

impl Drop for Munged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn options(munge: Munge) -> ClientOptions {
    ClientOptions {
        timeout: Duration::from_secs(5),
        munge: Some(munge),
        ..ClientOptions::default()
    }
}

/// A daemon that listens on TCP and authenticates its peers by `munge`, with an instance of user 1000,
/// group 2000.
fn pool(munge: Munge, temporary: &Temporary) -> Daemon {
    let mut options = daemon::StoreOptions::new(temporary.dir("flash"));
    options.tcp = Some(([127, 0, 0, 1], 0).into());
    options.munge = Some(munge);
    users_pool(options, 0o770)
}

#[test]
fn munge_authenticates_users_of_other_hosts() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let daemon = pool(munged.munge(), &temporary);
    let address = daemon.tcp_address().unwrap();
    let attach = || Fs::attach(address.clone(), INSTANCE, options(munged.munge()));
    let credential = as_user(1000, 2000, || munged.munge().encode(b"hello").unwrap());
    let decoded = munged.munge().decode(&credential).unwrap();
    assert_eq!((decoded.uid, decoded.gid), (1000, 2000));
    assert_eq!(decoded.origin, Ipv4Addr::LOCALHOST, "the origin of munged");
    assert_eq!(decoded.payload, b"hello");
    as_user(1000, 1, || {
        let fs = attach().unwrap();
        fs.mkdir_all(Path::new("mine"), 0o700).unwrap();
    });
    as_user(1001, 2000, || {
        let fs = attach().unwrap();
        let mine = fs.lookup(Ino::ROOT, b"mine").unwrap();
        assert_eq!(
            fs.lookup(mine.ino, b"x").map(|_| ()),
            Err(Errno::EACCES),
            "a member of the group, but not the owner of the directory"
        );
    });
    as_user(1001, 1001, || {
        assert_eq!(attach().map(|_| ()).unwrap_err(), Errno::EACCES);
    });
    // A user on another host is no administrator; its root is.
    as_user(1000, 2000, || {
        let admin = Admin::connect(address.clone(), options(munged.munge()));
        assert_eq!(admin.map(|_| ()).unwrap_err(), Errno::EACCES);
    });
    let admin = Admin::connect(address.clone(), options(munged.munge())).unwrap();
    assert_eq!(admin.instances().unwrap().len(), 1);
}

#[test]
fn host_with_wrong_key_is_refused() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let other = Munged::start(&temporary.dir("other"));
    let daemon = pool(munged.munge(), &temporary);
    let address = daemon.tcp_address().unwrap();
    let wrong_key = Fs::attach(address.clone(), INSTANCE, options(other.munge()));
    assert_eq!(wrong_key.map(|_| ()).unwrap_err(), Errno::EKEYREJECTED);
    let no_key = Fs::attach(address, INSTANCE, ClientOptions::default());
    assert_eq!(no_key.map(|_| ()).unwrap_err(), Errno::EKEYREJECTED);
}

#[test]
fn client_waits_for_a_munged_that_is_being_restarted() {
    let temporary = Temporary::new();
    let directory = temporary.dir("munge");
    let munged = Munged::start(&directory);
    let daemon = pool(munged.munge(), &temporary);
    let address = daemon.tcp_address().unwrap();
    let munge = munged.munge();
    drop(munged);
    let _ = std::fs::remove_file(directory.join("socket"));
    let client = std::thread::spawn(move || Fs::attach(address, INSTANCE, options(munge)));
    std::thread::sleep(Duration::from_millis(700));
    assert!(!client.is_finished(), "the client repeats its attempt");
    // With another key, which both sides get from the same daemon.
    let _restarted = Munged::start(&directory);
    assert!(client.join().unwrap().is_ok());
}

/// One side of a handshake with the daemon, step by step.
struct Client {
    sender: Sender,
    receiver: Receiver,
    handshake: ClientHandshake,
}

impl Client {
    /// Connects, and receives the server's answer.
    fn connect(at: SocketAddr, auth: &Authenticator) -> Client {
        let stream = Stream::connect(&Address::Tcp(at), Duration::from_secs(5)).unwrap();
        stream.set_timeout(Some(Duration::from_secs(10))).unwrap();
        let (mut sender, mut receiver) = channel(stream);
        let (mut handshake, opening) = ClientHandshake::new((Service::Storage, at), auth).unwrap();
        sender.send(&opening, None).unwrap();
        let (_, body) = receiver.receive(MAX_BODY_BYTES).unwrap().unwrap();
        let (send, receive) = handshake.receive_answer(body).unwrap();
        sender.set_cipher(send);
        receiver.set_cipher(receive);
        Client { sender, receiver, handshake }
    }

    /// Sends a proof, and returns the body of the verdict.
    fn send_proof(&mut self, proof: &[u8]) -> Vec<u8> {
        self.sender.send(proof, None).unwrap();
        let (_, body) = self.receiver.receive(MAX_BODY_BYTES).unwrap().unwrap();
        body.to_vec()
    }
}

fn is_refused(client: &Client, verdict: &[u8]) -> bool {
    let error = client.handshake.receive_verdict(verdict).unwrap_err();
    let refusal = error.get_ref().and_then(|e| e.downcast_ref::<Refusal>());
    error.to_string().contains("authentication failed")
        && refusal.is_some_and(|refusal| refusal.errno == Errno::EKEYREJECTED)
}

#[test]
fn credential_is_accepted_once_and_only_for_its_own_session() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let daemon = pool(munged.munge(), &temporary);
    let Some(Address::Tcp(at)) = daemon.tcp_address() else {
        panic!("a TCP address");
    };
    let auth = Authenticator { munge: Some(munged.munge()), ..Authenticator::default() };
    let connect = || Client::connect(at, &auth);
    let (mut first, mut second) = (connect(), connect());
    let proof = first.handshake.proof().unwrap();
    // Used in another session first.
    let verdict = second.send_proof(&proof);
    assert!(is_refused(&second, &verdict));
    // munged rejects a replayed credential also in its own session; a new one is accepted.
    let verdict = first.send_proof(&proof);
    assert!(is_refused(&first, &verdict));
    let (mut first, mut second) = (connect(), connect());
    let proof = first.handshake.proof().unwrap();
    let verdict = first.send_proof(&proof);
    first.handshake.receive_verdict(&verdict).unwrap();
    // The credential of the daemon is valid once, and in its own session.
    assert!(first.handshake.receive_verdict(&verdict).is_err());
    let proof = second.handshake.proof().unwrap();
    let other = second.send_proof(&proof);
    let error = first.handshake.receive_verdict(&other).unwrap_err();
    assert!(error.get_ref().is_some_and(|e| e.is::<ServerNotAuthenticated>()), "{error}");
    // An authenticated client can attach.
    let attach = Request::Session(SessionRequest::Attach(Attach {
        version: PROTOCOL_VERSION,
        instance: Some(INSTANCE),
        token: None,
        slot: 0,
        data_connection: false,
        single_cache: false,
        cache_checks_permissions: false,
        client: ClientHost::default(),
        delegates: TrailingField::default(),
        client_number: TrailingField::default(),
    }));
    let mut call = Vec::new();
    let attach_call = Call { seq: 1, caller: None, tags: Vec::new(), request: attach };
    frame::encode_call(&mut call, &attach_call, 0).unwrap();
    let reply: Reply = frame::decode(&first.send_proof(&call)).unwrap();
    assert!(matches!(reply, Reply::Attached { .. }), "{reply:?}");
    // An invalid credential is refused: variant `Munge` with arbitrary bytes.
    let mut third = connect();
    let mut invalid = Vec::new();
    let fields = (Kind::Handshake, Flags::default(), 0);
    frame::encode(&mut invalid, fields, &(1u8, vec![7u8; 100], 0u8), 0, 1000).unwrap();
    let verdict = third.send_proof(&invalid);
    assert!(is_refused(&third, &verdict));
}

/// Users who listen at the address of a storage daemon and take part in the handshake.
#[test]
fn impostor_daemon_fails_authentication() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let daemon = pool(munged.munge(), &temporary);
    let Some(Address::Tcp(real)) = daemon.tcp_address() else {
        panic!("a TCP address");
    };
    // One has its own credentials, one relays everything to the daemon.
    let own = munged.munge();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let impostor = Address::Tcp(listener.local_addr().unwrap());
    let impersonation =
        std::thread::spawn(move || as_user(1001, 1001, || impersonate(&listener, own)));
    let attach =
        |address| as_user(1000, 1, || Fs::attach(address, INSTANCE, options(munged.munge())));
    assert_eq!(attach(impostor).map(|_| ()).unwrap_err(), Errno::ENOKEY);
    assert!(impersonation.join().unwrap(), "the handshake took place");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = Address::Tcp(listener.local_addr().unwrap());
    let relays = std::thread::spawn(move || {
        let (near, _) = listener.accept().unwrap();
        let far = TcpStream::connect(real).unwrap();
        let (mut from, mut to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let _ = std::io::copy(&mut &near, &mut &far);
    });
    assert_eq!(attach(relay).map(|_| ()).unwrap_err(), Errno::EKEYREJECTED);
    relays.join().unwrap();
    attach(Address::Tcp(real)).unwrap();
}

/// Answers one handshake as a storage daemon would, but with the credentials of this user.
fn impersonate(listener: &TcpListener, munge: Munge) -> bool {
    let (socket, _) = listener.accept().unwrap();
    let at = socket.local_addr().unwrap();
    let (mut sender, mut receiver) = channel(Stream::tcp(socket).unwrap());
    let auth = Authenticator { key: None, munge: Some(munge), data_protection: None };
    let server = (Service::Storage, at);
    let client = handshake::accept(&mut sender, &mut receiver, server, &auth, || Ok(())).unwrap();
    (client.peer.uid, client.peer.gid) == (1000, 1)
}
