//! Hosts and users authenticated by MUNGE, with a `munged` of the test.
//!
//! Needs root, because it acts as several users, and the package `munge`.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod support;

use forebay_client::{Admin, ClientOptions, Fs};
use forebay_net::auth;
use forebay_net::connection::Connection;
use forebay_net::frame::{self, Flags, HEADER_BYTES};
use forebay_net::handshake::{self, Dialling, Opening};
use forebay_net::munge::Munge;
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::identity::Proof;
use forebay_protocol::message::SessionRequest;
use forebay_protocol::message::{Attach, PROTOCOL_VERSION};
use forebay_protocol::{Call, Errno, Ino, Reply, Request};
use forebay_store::daemon::{self, Daemon};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{INSTANCE, Temporary, as_user, users_pool};

/// A `munged` with a key of its own.
struct Munged {
    child: Child,
    socket: PathBuf,
}

impl Munged {
    fn start(directory: &Path) -> Munged {
        let file = |name: &str| directory.join(name);
        std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
        let mut key = [0; 64];
        forebay_protocol::random::fill_random(&mut key).unwrap();
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
        let begun = Instant::now();
        while !file("socket").exists() {
            assert!(begun.elapsed() < Duration::from_secs(20), "munged starts");
            std::thread::sleep(Duration::from_millis(5));
        }
        Munged {
            child,
            socket: file("socket"),
        }
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

fn by(munge: Munge) -> ClientOptions {
    ClientOptions {
        timeout: Duration::from_secs(5),
        munge: Some(munge),
        ..ClientOptions::default()
    }
}

/// A daemon that listens on TCP and knows its peers by `munge`, with an instance of user 1000,
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
    let attach = || Fs::attach(address.clone(), INSTANCE, by(munged.munge()));
    let credential = as_user(1000, 2000, || munged.munge().encode(b"hello").unwrap());
    let decoded = munged.munge().decode(&credential).unwrap();
    assert_eq!((decoded.uid, decoded.gid), (1000, 2000));
    assert_eq!(decoded.origin, Ipv4Addr::LOCALHOST, "as munged was told");
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
            "a member of the group, but not the directory's owner"
        );
    });
    as_user(1001, 1001, || {
        assert_eq!(attach().map(|_| ()).unwrap_err(), Errno::EACCES);
    });
    // A user on another host is no administrator; its root is.
    as_user(1000, 2000, || {
        let admin = Admin::connect(address.clone(), by(munged.munge()));
        assert_eq!(admin.map(|_| ()).unwrap_err(), Errno::EACCES);
    });
    let admin = Admin::connect(address.clone(), by(munged.munge())).unwrap();
    assert_eq!(admin.instances().unwrap().len(), 1);
}

#[test]
fn host_with_wrong_key_is_refused() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let other = Munged::start(&temporary.dir("other"));
    let daemon = pool(munged.munge(), &temporary);
    let address = daemon.tcp_address().unwrap();
    let stranger = Fs::attach(address.clone(), INSTANCE, by(other.munge()));
    assert_eq!(stranger.map(|_| ()).unwrap_err(), Errno::EKEYREJECTED);
    let nobody = Fs::attach(address, INSTANCE, ClientOptions::default());
    assert_eq!(nobody.map(|_| ()).unwrap_err(), Errno::EKEYREJECTED);
}

#[test]
fn credential_is_valid_for_one_challenge() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let daemon = pool(munged.munge(), &temporary);
    let address = daemon.tcp_address().unwrap();
    let munge = munged.munge();
    let hello = Attach {
        version: PROTOCOL_VERSION,
        instance: Some(INSTANCE),
        token: None,
        slot: 0,
        data_connection: false,
        single_cache: false,
    };
    let connect = || {
        let stream = Stream::connect(&address, Duration::from_secs(5)).unwrap();
        stream.set_timeout(Some(Duration::from_secs(10))).unwrap();
        Connection::new(stream)
    };
    let say = |link: &mut Connection, request| {
        let call = Call {
            seq: 1,
            caller: None,
            request,
        };
        link.call(&call, &[], &mut []).unwrap().reply
    };
    let challenge = |link: &mut Connection| match say(
        link,
        Request::Session(SessionRequest::Attach(hello.clone())),
    ) {
        Reply::Challenge { nonce } => nonce,
        reply => panic!("{reply:?} instead of a challenge"),
    };
    let Address::Tcp(at) = address else {
        panic!("a TCP address");
    };
    let dial = |nonce| Dialling::new(Some(&munge), None, at, nonce).unwrap();
    let refused = Reply::Failed(Errno::EKEYREJECTED);
    let (mut first, mut second) = (connect(), connect());
    let nonce = challenge(&mut first);
    assert_ne!(nonce, challenge(&mut second));
    let proof = dial(nonce).prove().unwrap();
    // Shown to another challenge, and before the one it is for.
    assert_eq!(say(&mut second, proof.clone()), refused);
    // munged has seen it now, so it is of no use to its owner either; a new one is.
    assert_eq!(say(&mut first, proof), refused);
    let dialling = dial(challenge(&mut first));
    let proved = say(&mut first, dialling.prove().unwrap());
    dialling.check(&proved).unwrap();
    // The daemon's proof is good once, and for the one it was made for.
    assert!(dialling.check(&proved).is_err());
    let other = dial(challenge(&mut second));
    let proved = say(&mut second, other.prove().unwrap());
    assert!(dialling.check(&proved).is_err());
    assert!(matches!(
        say(
            &mut first,
            Request::Session(SessionRequest::Attach(hello.clone()))
        ),
        Reply::Attached { .. }
    ));
    // Nonsense is refused, and a proof without a challenge too.
    let mut third = connect();
    challenge(&mut third);
    let nonsense = Request::Session(SessionRequest::Prove {
        proof: Proof::Munge(vec![7; 100]),
        nonce: [0; 32],
    });
    assert_eq!(say(&mut third, nonsense), refused);
    let late = dial([0; 32]).prove().unwrap();
    assert_eq!(say(&mut third, late), refused);
}

/// Users who listen where a storage daemon should be, and answer as well as they can.
#[test]
fn impostor_daemon_fails_authentication() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let daemon = pool(munged.munge(), &temporary);
    let Some(Address::Tcp(real)) = daemon.tcp_address() else {
        panic!("a TCP address");
    };
    // One with credentials of its own, and one that passes everything on to the daemon.
    let own = munged.munge();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let liar = Address::Tcp(listener.local_addr().unwrap());
    let lies = std::thread::spawn(move || as_user(1001, 1001, || lie(&listener, &own)));
    let attach = |address| {
        as_user(1000, 1, || {
            Fs::attach(address, INSTANCE, by(munged.munge()))
        })
    };
    assert_eq!(attach(liar).map(|_| ()).unwrap_err(), Errno::ENOKEY);
    assert!(lies.join().unwrap(), "it was asked, and answered");

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

/// Answer one greeting as a storage daemon would, but by the credentials of this user.
fn lie(listener: &TcpListener, munge: &Munge) -> bool {
    let (socket, _) = listener.accept().unwrap();
    let at = socket.local_addr().unwrap();
    let stream = Stream::accepted(socket).unwrap();
    let hear = || {
        let mut head = [0; HEADER_BYTES];
        fd(&stream).read_exact(&mut head).unwrap();
        let header = frame::parse_header(&head).unwrap();
        let mut body = vec![0; header.body];
        fd(&stream).read_exact(&mut body).unwrap();
        frame::decode_body::<Call>(&head, &header, &body).unwrap()
    };
    let answer = |seq, reply: &Reply| {
        let mut out = Vec::new();
        frame::encode_reply(&mut out, seq, Flags::default(), reply, 0).unwrap();
        stream.send_all(&out, &[], None).unwrap();
    };
    let nonce = [9; 32];
    answer(hear().seq, &Reply::Challenge { nonce });
    let proof = hear();
    let Request::Session(SessionRequest::Prove { nonce: client, .. }) = proof.request else {
        panic!("{proof:?} instead of a proof");
    };
    let opening = Opening {
        with: handshake::Daemon::Storage,
        daemon: nonce,
        client,
        at,
    };
    let own = auth::answer(Some(munge), None, &opening.of_daemon(1000, 1)).unwrap();
    answer(proof.seq, &Reply::Proved(own));
    true
}

fn fd(stream: &Stream) -> &TcpStream {
    match stream {
        Stream::Tcp(stream) => stream,
        Stream::Unix(_) => panic!("a TCP connection"),
    }
}
