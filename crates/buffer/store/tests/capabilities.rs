//! Capabilities for data objects on other nodes: for one user, and as long as the file is open at its metadata
//! node. Driven through the wire protocol.
//!
//! Needs root, because it acts as several users.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use forebay_net::channel::channel;
use forebay_net::connection::Connection;
use forebay_net::stream::Stream;
use forebay_protocol::message::{
    AdminRequest, Attach, ClientHost, FileRequest, InstanceSpec, NameRequest, OpenMode,
    PROTOCOL_VERSION, SessionRequest, TrailingField,
};
use forebay_protocol::placement::{Capability, Placement};
use forebay_protocol::{Call, Errno, HandleId, Ino, InstanceId, Reply, Request};
use forebay_store::daemon::{Daemon, StoreOptions};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const INSTANCE: InstanceId = InstanceId(5);
const WRITE: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };
const FILE: HandleId = HandleId(1);
const PIECE: HandleId = HandleId(2);

/// A session with one daemon, over one connection.
struct Client {
    connection: Connection,
    seq: u64,
}

impl Client {
    /// A session of a user with the instance, or of the administrator. Each user connects in a thread of
    /// its own; the daemon knows who has connected.
    fn attach(daemon: &Daemon, user: Option<(u32, u32)>) -> Client {
        let connect = || Stream::connect(&daemon.address(), Duration::from_secs(5)).unwrap();
        let stream = match user {
            Some((uid, gid)) => as_user(uid, gid, connect),
            None => connect(),
        };
        let mut client = Client { connection: Connection::from(channel(stream)), seq: 0 };
        let attach = Attach {
            version: PROTOCOL_VERSION,
            instance: user.map(|_| INSTANCE),
            token: None,
            slot: 0,
            data_connection: false,
            single_cache: false,
            cache_checks_permissions: false,
            client: ClientHost::default(),
            delegates: TrailingField::default(),
            client_number: TrailingField::default(),
        };
        let attached = client.call(Request::Session(SessionRequest::Attach(attach)));
        assert!(matches!(attached, Reply::Attached { .. }), "{attached:?}");
        client
    }

    fn call(&mut self, request: impl Into<Request>) -> Reply {
        self.seq += 1;
        let answer = self.connection.call(&Call::new(self.seq, request), &[], &mut []);
        match answer.unwrap().reply {
            Reply::Tagged { reply, .. } => *reply,
            reply => reply,
        }
    }

    /// Create a file in the root directory, and open it.
    fn create(&mut self, name: &str) -> Capability {
        let create = NameRequest::Create {
            parent: Ino::ROOT,
            name: name.into(),
            mode: 0o600.into(),
            exclusive: true,
            handle: FILE,
            open: WRITE,
        };
        match self.call(create) {
            Reply::Opened { capability, .. } => capability.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn open_piece(&mut self, handle: HandleId, capability: Capability) -> Reply {
        self.call(FileRequest::OpenObject { handle, capability, open: WRITE })
    }

    /// What a write needs.
    fn reserve(&mut self, handle: HandleId) -> Reply {
        self.call(FileRequest::ReserveSpace {
            handle,
            returned: 0,
            want: 4096,
            lent: TrailingField(0),
        })
    }

    fn close(&mut self, handle: HandleId) {
        assert_eq!(self.call(FileRequest::Close { handle, returned: 0 }), Reply::Done);
    }

    /// Wait until a handle is closed though nobody has closed it here.
    fn await_end(&mut self, handle: HandleId) {
        let begun = Instant::now();
        loop {
            match self.reserve(handle) {
                Reply::Failed(errno) => return assert_eq!(errno, Errno::EBADF),
                reply => assert!(begun.elapsed() < Duration::from_secs(40), "{reply:?}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Runs `act` in a thread of another user without supplementary groups.
fn as_user<T: Send>(uid: u32, gid: u32, act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        // SAFETY: the raw calls change the credentials of this thread only, which ends after.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
        }
        act()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

const OWNER: Option<(u32, u32)> = Some((1000, 2000));
const MEMBER: Option<(u32, u32)> = Some((1001, 2000));

fn start(directory: &Path) -> Daemon {
    Daemon::start(StoreOptions::new(directory)).unwrap()
}

/// Two daemons with an instance of a user and a group. The root directory is on the first one.
fn start_pool(temporary: &TempDir) -> [Daemon; 2] {
    std::fs::set_permissions(temporary.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let daemons = [0, 1].map(|number| start(&temporary.path().join(number.to_string())));
    let peers: Vec<String> = daemons.iter().map(|daemon| daemon.address().to_string()).collect();
    for (daemon, placement) in daemons.iter().zip(Placement::distributed(65_536, &peers, [7; 32])) {
        let spec = InstanceSpec {
            id: INSTANCE,
            uid: 1000,
            gid: 2000,
            mode: 0o770,
            capacity: 64 << 20,
            inodes: 1000,
            placement,
        };
        let created = Client::attach(daemon, None).call(AdminRequest::CreateInstance(spec));
        assert_eq!(created, Reply::Done);
    }
    daemons
}

#[test]
fn capability_is_for_the_user_to_whom_it_was_issued() {
    let temporary = TempDir::new().unwrap();
    let daemons = start_pool(&temporary);
    let capability = Client::attach(&daemons[0], OWNER).create("f");
    // A member of the group may use the instance, but not the file.
    let mut other = Client::attach(&daemons[1], MEMBER);
    assert_eq!(other.open_piece(PIECE, capability), Reply::Failed(Errno::EACCES));
    let forged = Capability { uid: 1001, ..capability };
    assert_eq!(other.open_piece(PIECE, forged), Reply::Failed(Errno::EACCES));
    let mut own = Client::attach(&daemons[1], OWNER);
    let opened = own.open_piece(PIECE, capability);
    assert!(matches!(opened, Reply::Object(_)), "{opened:?}");
}

#[test]
fn close_at_the_metadata_node_ends_a_writer_on_another_node() {
    let temporary = TempDir::new().unwrap();
    let daemons = start_pool(&temporary);
    let mut home = Client::attach(&daemons[0], OWNER);
    let capability = home.create("f");
    let mut away = Client::attach(&daemons[1], OWNER);
    assert!(matches!(away.open_piece(PIECE, capability), Reply::Object(_)));
    assert!(matches!(away.reserve(PIECE), Reply::SpaceGranted(_)));
    home.close(FILE);
    away.await_end(PIECE);
    // The capability is used up, too, and no other is issued.
    assert_eq!(away.open_piece(HandleId(3), capability), Reply::Failed(Errno::EKEYREJECTED));
    assert_eq!(
        home.call(FileRequest::RenewCapability { handle: FILE, position: 0 }),
        Reply::Failed(Errno::EBADF)
    );
}

#[test]
fn end_of_the_session_ends_its_writers_on_other_nodes() {
    let temporary = TempDir::new().unwrap();
    let daemons = start_pool(&temporary);
    let mut home = Client::attach(&daemons[0], OWNER);
    let capability = home.create("f");
    let mut away = Client::attach(&daemons[1], OWNER);
    assert!(matches!(away.open_piece(PIECE, capability), Reply::Object(_)));
    home.call(Request::Session(SessionRequest::Detach));
    away.await_end(PIECE);
    assert_eq!(away.open_piece(HandleId(3), capability), Reply::Failed(Errno::EKEYREJECTED));
}

#[test]
fn writers_of_open_files_go_on_and_capabilities_end_with_the_start_of_the_metadata_node() {
    let temporary = TempDir::new().unwrap();
    let [first, second] = start_pool(&temporary);
    let mut home = Client::attach(&first, OWNER);
    let capability = home.create("f");
    let mut away = Client::attach(&second, OWNER);
    assert!(matches!(away.open_piece(PIECE, capability), Reply::Object(_)));
    // Several confirmations.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(13) {
        assert!(matches!(away.reserve(PIECE), Reply::SpaceGranted(_)));
        std::thread::sleep(Duration::from_millis(100));
    }
    first.stop().unwrap();
    // The metadata node is away: nobody knows that the file is closed.
    assert!(matches!(away.reserve(PIECE), Reply::SpaceGranted(_)));
    let _first = start(&temporary.path().join("0"));
    let begun = Instant::now();
    while away.open_piece(HandleId(3), capability) != Reply::Failed(Errno::EKEYREJECTED) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the restart is not noticed");
        away.close(HandleId(3));
        std::thread::sleep(Duration::from_millis(50));
    }
    // Its client may still open the file again.
    assert!(matches!(away.reserve(PIECE), Reply::SpaceGranted(_)));
}
