//! Fencing of old connections: a request that is still on a broken connection is not carried out after
//! another connection has taken its place, its handle was closed, or its session has ended. A real daemon
//! receives delayed requests on old connections.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use forebay_net::auth::{Authenticator, PoolKey};
use forebay_net::channel::{Receiver, Sender};
use forebay_net::chunk::{Chunk, MAX_CHUNK_BYTES};
use forebay_net::connection;
use forebay_net::frame::{self, MAX_BODY_BYTES};
use forebay_net::handshake::Service;
use forebay_protocol::address::Address;
use forebay_protocol::message::{
    AdminRequest, DataRequest, FileRequest, NameRequest, SessionRequest,
};
use forebay_protocol::message::{
    Attach, ClientHost, InstanceSpec, NewInode, OpenMode, PROTOCOL_VERSION, SessionToken,
    TrailingField,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Call, Errno, HandleId, Ino, InstanceId, Reply, Request};
use forebay_store::daemon::{Daemon, StoreOptions};
use std::io;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const INSTANCE: InstanceId = InstanceId(5);
const HANDLE: HandleId = HandleId(9);
const SIZE: usize = 2 * MAX_CHUNK_BYTES;
const BOTH: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };

fn key() -> PoolKey {
    PoolKey::new(b"the key of a test").unwrap()
}

fn call(seq: u64, request: Request) -> Call {
    Call { seq, caller: None, tags: Vec::new(), request }
}

/// Only clients on other hosts send data over connections.
fn tcp(daemon: &Daemon) -> Address {
    daemon.tcp_address().unwrap()
}

fn encoded(call: &Call, payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_call(&mut bytes, call, payload).unwrap();
    bytes
}

/// One connection, driven frame by frame.
struct Remote {
    sender: Sender,
    receiver: Receiver,
}

impl Remote {
    /// The next reply; `None` if the daemon has closed the connection.
    fn reply(&mut self) -> Option<Reply> {
        let (_, body) = self.receiver.receive(MAX_BODY_BYTES).ok()??;
        Some(frame::decode(body).unwrap())
    }

    fn ask(&mut self, seq: u64, request: Request) -> Reply {
        let bytes = encoded(&call(seq, request), 0);
        self.sender.send(&bytes, None).unwrap();
        self.reply().unwrap()
    }

    /// Sends a write of these data.
    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let head = encoded(&call(1, write_request()), data.len());
        self.sender.send_payload(&head, data, 0)
    }

    /// Reads with one request, the connection's only one.
    fn read(&mut self) -> Vec<u8> {
        let request =
            Request::Data(DataRequest::Read { handle: HANDLE, offset: 0, length: 4 << 20 });
        self.sender.send(&encoded(&call(1, request), 0), None).unwrap();
        let (header, _) = self.receiver.receive(MAX_BODY_BYTES).unwrap().unwrap();
        let mut data = vec![0; header.payload];
        let mut have = 0;
        while have < data.len() {
            match self.receiver.receive_chunk(&mut data[have..]).unwrap() {
                Chunk::Data(count) => have += count,
                Chunk::End | Chunk::Failed(_) => break,
            }
        }
        data.truncate(have);
        data
    }
}

fn write_request() -> Request {
    Request::Data(DataRequest::Write { handle: HANDLE, offset: 0, append: false })
}

/// A daemon, and a session whose file is open.
struct Scene {
    daemon: Daemon,
    token: SessionToken,
    /// The connection for requests, and its last one's number.
    slot: Remote,
    seq: u64,
    _dir: TempDir,
}

impl Scene {
    fn new() -> Scene {
        let dir = TempDir::new().unwrap();
        let mut options = StoreOptions::new(dir.path());
        options.tcp = Some(([127, 0, 0, 1], 0).into());
        options.key = Some(key());
        let daemon = Daemon::start(options).unwrap();
        let mut admin = connect(tcp(&daemon), None, None, (0, false)).0;
        let spec = InstanceSpec {
            id: INSTANCE,
            uid: 0,
            gid: 0,
            mode: 0o755,
            capacity: 64 << 20,
            inodes: 1000,
            placement: Placement::single_node(),
        };
        assert_eq!(admin.ask(2, Request::Admin(AdminRequest::CreateInstance(spec))), Reply::Done);
        let (slot, token) = connect(tcp(&daemon), Some(INSTANCE), None, (0, false));
        let mut scene = Scene { daemon, token, slot, seq: 1, _dir: dir };
        let create = Request::Name(NameRequest::Create {
            parent: Ino::ROOT,
            name: b"f".to_vec(),
            mode: 0o644.into(),
            exclusive: true,
            handle: HANDLE,
            open: BOTH,
        });
        assert!(matches!(scene.say(create), Reply::Opened { .. }));
        let reserve = Request::File(FileRequest::ReserveSpace {
            handle: HANDLE,
            returned: 0,
            want: 8 << 20,
            lent: TrailingField(0),
        });
        assert!(matches!(scene.say(reserve), Reply::SpaceGranted(_)));
        scene
    }

    fn say(&mut self, request: Request) -> Reply {
        self.seq += 1;
        self.slot.ask(self.seq, request)
    }

    fn lane(&self, number: u32) -> Remote {
        connect(tcp(&self.daemon), None, Some(self.token), (number, true)).0
    }

    fn read(&self) -> Vec<u8> {
        self.lane(7).read()
    }

    /// The first half of a write of ones has arrived, and is written.
    fn begin_old_write(&self) -> Remote {
        let mut old = self.lane(3);
        let head = encoded(&call(1, write_request()), SIZE);
        old.sender.send_chunk(&head, &[1; MAX_CHUNK_BYTES]).unwrap();
        let start = Instant::now();
        while self.read().len() < MAX_CHUNK_BYTES {
            assert!(start.elapsed() < Duration::from_secs(20), "nothing comes");
            std::thread::sleep(Duration::from_millis(5));
        }
        old
    }
}
/// An attached connection and its session.
fn connect(
    address: Address,
    instance: Option<InstanceId>,
    token: Option<SessionToken>,
    (slot, data_connection): (u32, bool),
) -> (Remote, SessionToken) {
    let auth = Authenticator { key: Some(key()), munge: None, data_protection: None };
    let timeout = Duration::from_secs(5);
    let (sender, receiver) =
        connection::connect(&address, Service::Storage, &auth, timeout).unwrap();
    let timeout = Some(Duration::from_secs(20));
    sender.stream().set_timeout(timeout).unwrap();
    let mut remote = Remote { sender, receiver };
    let attach = Request::Session(SessionRequest::Attach(Attach {
        version: PROTOCOL_VERSION,
        instance,
        token,
        slot,
        data_connection,
        single_cache: false,
        cache_checks_permissions: false,
        client: ClientHost::default(),
        delegates: TrailingField::default(),
        client_number: TrailingField::default(),
    }));
    let Reply::Attached { token, .. } = remote.ask(1, attach) else {
        panic!("no session");
    };
    (remote, token)
}

/// The second half of the old write comes, and nothing comes of it.
fn end_old_write(mut old: Remote) {
    // The daemon may have closed it, or may be about to.
    let _ = old.sender.send_chunk(&[], &[1; MAX_CHUNK_BYTES]);
    assert_eq!(old.reply(), None);
}

#[test]
fn old_write_does_not_overwrite_newer_write_on_replacement_connection() {
    let scene = Scene::new();
    let old = scene.begin_old_write();
    let mut new = scene.lane(3);
    new.write(&[2; SIZE]).unwrap();
    assert!(matches!(new.reply(), Some(Reply::Written { .. })));
    end_old_write(old);
    assert!(scene.read() == vec![2; SIZE]);
}

#[test]
fn write_in_socket_buffer_of_replaced_connection_is_dropped() {
    let scene = Scene::new();
    let mut old = scene.begin_old_write();
    // All of it has been sent, and another write behind it, when the new connection comes.
    let _ = old.sender.send_chunk(&[], &[1; MAX_CHUNK_BYTES]);
    let _ = old.write(&[1; SIZE]);
    let mut new = scene.lane(3);
    new.write(&[2; SIZE]).unwrap();
    assert!(matches!(new.reply(), Some(Reply::Written { .. })));
    while old.reply().is_some() {}
    assert!(scene.read() == vec![2; SIZE]);
}

#[test]
fn replacing_one_data_connection_leaves_others_working() {
    let scene = Scene::new();
    let mut old = scene.begin_old_write();
    let _new = scene.lane(5);
    old.sender.send_chunk(&[], &[1; MAX_CHUNK_BYTES]).unwrap();
    assert!(matches!(old.reply(), Some(Reply::Written { .. })));
}

#[test]
fn write_in_flight_has_no_effect_after_close_of_handle() {
    let mut scene = Scene::new();
    let old = scene.begin_old_write();
    let close = Request::File(FileRequest::Close { handle: HANDLE, returned: 0 });
    assert_eq!(scene.say(close), Reply::Done);
    end_old_write(old);
    let attr =
        scene.say(Request::Name(NameRequest::Lookup { parent: Ino::ROOT, name: b"f".to_vec() }));
    assert!(matches!(attr, Reply::Attr(attr) if attr.size == MAX_CHUNK_BYTES as u64));
}

#[test]
fn write_in_flight_has_no_effect_after_end_of_session() {
    let mut scene = Scene::new();
    let old = scene.begin_old_write();
    assert_eq!(scene.say(Request::Session(SessionRequest::Detach)), Reply::Done);
    end_old_write(old);
    let (mut slot, _) = connect(tcp(&scene.daemon), Some(INSTANCE), None, (0, false));
    let lookup = Request::Name(NameRequest::Lookup { parent: Ino::ROOT, name: b"f".to_vec() });
    let attr = slot.ask(2, lookup);
    assert!(matches!(attr, Reply::Attr(attr) if attr.size == MAX_CHUNK_BYTES as u64));
}

#[test]
fn request_on_replaced_connection_of_slot_is_dropped() {
    let mut scene = Scene::new();
    let make = |name: &[u8]| {
        Request::Name(NameRequest::Mknod {
            parent: Ino::ROOT,
            name: name.to_vec(),
            new: NewInode::Dir,
            mode: 0o755.into(),
        })
    };
    let late = encoded(&call(scene.seq + 1, make(b"late")), 0);
    let (now, later) = late.split_at(late.len() / 2);
    // On a Unix socket, where half a frame can be sent.
    let local = || scene.daemon.address();
    let (mut old, _) = connect(local(), None, Some(scene.token), (0, false));
    old.sender.stream().send_parts([now], None).unwrap();
    // The client gives up, connects again, and makes another request.
    let (slot, _) = connect(local(), None, Some(scene.token), (0, false));
    scene.slot = slot;
    assert!(matches!(scene.say(make(b"new")), Reply::Attr(_)));
    let _ = old.sender.stream().send_parts([later], None);
    assert_eq!(old.reply(), None);
    let lookup = Request::Name(NameRequest::Lookup { parent: Ino::ROOT, name: b"late".to_vec() });
    assert_eq!(scene.say(lookup), Reply::Failed(Errno::ENOENT));
}
