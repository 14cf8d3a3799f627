//! Hosts and users known by MUNGE, with a `munged` of the test's own.
//!
//! Needs root, because it acts as several users, and the package `munge`.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod support;

use forebay_client::{Admin, Fs, Options};
use forebay_store::daemon::{self, Daemon};
use forebay_wire::auth::{self, Proof};
use forebay_wire::message::{Hello, InstanceSpec, PROTOCOL};
use forebay_wire::munge::Munge;
use forebay_wire::place::Place;
use forebay_wire::stream::{Link, Stream};
use forebay_wire::{Call, Errno, Ino, Reply, Request};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{INSTANCE, Temporary, as_user};

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
        forebay_wire::auth::random(&mut key).unwrap();
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

fn by(munge: Munge) -> Options {
    Options {
        patience: Duration::from_secs(5),
        munge: Some(munge),
        ..Options::default()
    }
}

/// A daemon that listens on TCP and knows its peers by `munge`, with an instance of user 1000,
/// group 2000.
fn pool(munge: Munge, temporary: &Temporary) -> Daemon {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests act as several users: run as root"
    );
    let mut options = daemon::Options::new(temporary.dir("flash"));
    options.tcp = Some(([127, 0, 0, 1], 0).into());
    options.munge = Some(munge);
    let daemon = Daemon::start(options).unwrap();
    let admin = Admin::connect(daemon.address(), Options::default()).unwrap();
    let spec = InstanceSpec {
        id: INSTANCE,
        uid: 1000,
        gid: 2000,
        mode: 0o770,
        capacity: 1 << 20,
        inodes: 100,
        place: Place::alone(),
    };
    admin.create_instance(spec).unwrap();
    daemon
}

#[test]
fn munge_says_who_attaches_from_another_host() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let daemon = pool(munged.munge(), &temporary);
    let address = daemon.tcp_address().unwrap();
    let attach = || Fs::attach(address.clone(), INSTANCE, by(munged.munge()));
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
fn a_host_without_the_right_key_is_refused() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let other = Munged::start(&temporary.dir("other"));
    let daemon = pool(munged.munge(), &temporary);
    let address = daemon.tcp_address().unwrap();
    let stranger = Fs::attach(address.clone(), INSTANCE, by(other.munge()));
    assert_eq!(stranger.map(|_| ()).unwrap_err(), Errno::EKEYREJECTED);
    let nobody = Fs::attach(address, INSTANCE, Options::default());
    assert_eq!(nobody.map(|_| ()).unwrap_err(), Errno::EKEYREJECTED);
}

#[test]
fn a_credential_is_good_for_one_challenge() {
    let temporary = Temporary::new();
    let munged = Munged::start(&temporary.dir("munge"));
    let daemon = pool(munged.munge(), &temporary);
    let address = daemon.tcp_address().unwrap();
    let munge = munged.munge();
    let hello = Hello {
        version: PROTOCOL,
        instance: Some(INSTANCE),
        resume: None,
        slot: 0,
        bulk: false,
        caches: false,
    };
    let connect = || {
        let stream = Stream::connect(&address, Duration::from_secs(5)).unwrap();
        stream.set_timeout(Some(Duration::from_secs(10))).unwrap();
        Link::new(stream)
    };
    let say = |link: &mut Link, request| {
        let call = Call {
            seq: 1,
            caller: None,
            request,
        };
        link.call(&call, &[], &mut []).unwrap().reply
    };
    let challenge = |link: &mut Link| match say(link, Request::Hello(hello.clone())) {
        Reply::Challenge { nonce } => nonce,
        reply => panic!("{reply:?} instead of a challenge"),
    };
    let refused = Reply::Failed(Errno::EKEYREJECTED);
    let (mut first, mut second) = (connect(), connect());
    let nonce = challenge(&mut first);
    let other = challenge(&mut second);
    assert_ne!(nonce, other);
    let prove = |nonce: &[u8; 32]| auth::prove(Some(&munge), None, nonce).unwrap();
    let proof = prove(&nonce);
    // Shown to another challenge, and before the one it is for.
    assert_eq!(say(&mut second, Request::Prove(proof.clone())), refused);
    // munged has seen it now, so it is of no use to its owner either; a new one is.
    assert_eq!(say(&mut first, Request::Prove(proof)), refused);
    let nonce = challenge(&mut first);
    assert_eq!(say(&mut first, Request::Prove(prove(&nonce))), Reply::Done);
    assert!(matches!(
        say(&mut first, Request::Hello(hello.clone())),
        Reply::Welcome { .. }
    ));
    // Nonsense is refused, and a proof without a challenge too.
    challenge(&mut second);
    assert_eq!(
        say(&mut second, Request::Prove(Proof::Munge(vec![7; 100]))),
        refused
    );
    assert_eq!(say(&mut second, Request::Prove(prove(&[0; 32]))), refused);
}
