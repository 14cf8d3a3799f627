//! Fencing of old connections: a request that is still on a broken connection is not carried out after
//! another connection has taken its place, its handle was closed, or its session has ended. A real daemon
//! receives delayed requests on old connections.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use forebay_net::auth::PoolKey;
use forebay_net::chunk::{self, MAX_CHUNK_BYTES};
use forebay_net::connection::Connection;
use forebay_net::frame::{self, HEADER_BYTES};
use forebay_net::handshake::Dialling;
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::message::{
    AdminRequest, DataRequest, FileRequest, NameRequest, SessionRequest,
};
use forebay_protocol::message::{
    Attach, InstanceSpec, NewInode, OpenMode, PROTOCOL_VERSION, SessionToken,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Call, Errno, HandleId, Ino, InstanceId, Reply, Request};
use forebay_store::daemon::{Daemon, StoreOptions};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const INSTANCE: InstanceId = InstanceId(5);
const HANDLE: HandleId = HandleId(9);
const SIZE: usize = 2 * MAX_CHUNK_BYTES;
const BOTH: OpenMode = OpenMode {
    read: true,
    write: true,
    truncate: false,
    descriptor: false,
};

fn key() -> PoolKey {
    PoolKey::new(b"the key of a test").unwrap()
}

fn call(seq: u64, request: Request) -> Call {
    Call {
        seq,
        caller: None,
        request,
    }
}

fn encoded(call: &Call, payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode_call(&mut bytes, call, payload).unwrap();
    bytes
}

/// The next reply; `None`: the daemon has closed the connection.
fn receive_reply(stream: &Stream) -> Option<Reply> {
    let mut head = [0; HEADER_BYTES];
    let mut none = VecDeque::new();
    stream.receive_all(&mut head, &mut none).ok()?;
    let header = frame::parse_header(&head).unwrap();
    let mut body = vec![0; header.body];
    stream.receive_all(&mut body, &mut none).ok()?;
    Some(frame::decode_body(&head, &header, &body).unwrap())
}

fn ask(stream: &Stream, seq: u64, request: Request) -> Reply {
    let bytes = encoded(&call(seq, request), 0);
    stream.send_all(&bytes, &[], None).unwrap();
    receive_reply(stream).unwrap()
}

fn write_request() -> Request {
    Request::Data(DataRequest::Write {
        handle: HANDLE,
        offset: 0,
        append: false,
    })
}

/// A daemon, and a session with an open file.
struct Scene {
    daemon: Daemon,
    resume: SessionToken,
    /// The connection for requests, and the number of its last request.
    slot: Stream,
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
        let admin = connect(&daemon, None, None, (0, false)).0;
        let spec = InstanceSpec {
            id: INSTANCE,
            uid: 0,
            gid: 0,
            mode: 0o755,
            capacity: 64 << 20,
            inodes: 1000,
            placement: Placement::single_node(),
        };
        assert_eq!(
            ask(
                &admin,
                2,
                Request::Admin(AdminRequest::CreateInstance(spec))
            ),
            Reply::Done
        );
        let (slot, resume) = connect(&daemon, Some(INSTANCE), None, (0, false));
        let mut scene = Scene {
            daemon,
            resume,
            slot,
            seq: 1,
            _dir: dir,
        };
        let create = Request::Name(NameRequest::Create {
            parent: Ino::ROOT,
            name: b"f".to_vec(),
            mode: 0o644,
            exclusive: true,
            handle: HANDLE,
            open: BOTH,
        });
        assert!(matches!(scene.request(create), Reply::Opened { .. }));
        let reserve = Request::File(FileRequest::ReserveSpace {
            handle: HANDLE,
            returned: 0,
            want: 8 << 20,
        });
        assert!(matches!(scene.request(reserve), Reply::SpaceGranted(_)));
        scene
    }

    fn request(&mut self, request: Request) -> Reply {
        self.seq += 1;
        ask(&self.slot, self.seq, request)
    }

    fn data_connection(&self, number: u32) -> Stream {
        connect(&self.daemon, None, Some(self.resume), (number, true)).0
    }

    fn read(&self) -> Vec<u8> {
        let request = Request::Data(DataRequest::Read {
            handle: HANDLE,
            offset: 0,
            length: 4 << 20,
        });
        let mut link = Connection::new(self.data_connection(7));
        let mut into = vec![0; 4 << 20];
        let got = link.call(&call(1, request), &[], &mut into).unwrap();
        into.truncate(got.payload);
        into
    }

    /// Send the first half of a write of ones, and wait until it is written.
    fn begin_old_write(&self) -> Stream {
        let old = self.data_connection(3);
        let head = encoded(&call(1, write_request()), SIZE);
        chunk::send_chunk(&old, &head, &[1; MAX_CHUNK_BYTES]).unwrap();
        let start = Instant::now();
        while self.read().len() < MAX_CHUNK_BYTES {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "nothing is written"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        old
    }
}
/// A connection that is attached, and its session.
fn connect(
    daemon: &Daemon,
    instance: Option<InstanceId>,
    resume: Option<SessionToken>,
    (slot, bulk): (u32, bool),
) -> (Stream, SessionToken) {
    // Only clients on other hosts send data over connections.
    let address = daemon.tcp_address().unwrap();
    let stream = Stream::connect(&address, Duration::from_secs(5)).unwrap();
    stream.set_timeout(Some(Duration::from_secs(20))).unwrap();
    let Address::Tcp(at) = address else {
        panic!("not over TCP")
    };
    let hello = Attach {
        version: PROTOCOL_VERSION,
        instance,
        token: resume,
        slot,
        data_connection: bulk,
        single_cache: false,
    };
    let Reply::Challenge { nonce } = ask(
        &stream,
        1,
        Request::Session(SessionRequest::Attach(hello.clone())),
    ) else {
        panic!("nothing to prove");
    };
    let key = key();
    let dialling = Dialling::new(None, Some(&key), at, nonce).unwrap();
    let proved = ask(&stream, 1, dialling.prove().unwrap());
    dialling.check(&proved).unwrap();
    let Reply::Attached { token: resume, .. } =
        ask(&stream, 1, Request::Session(SessionRequest::Attach(hello)))
    else {
        panic!("no session");
    };
    (stream, resume)
}

/// Send the second half of the old write: it has no effect.
fn end_old_write(old: &Stream) {
    // The daemon may have closed the connection, or may be about to.
    let _ = chunk::send_chunk(old, &[], &[1; MAX_CHUNK_BYTES]);
    assert_eq!(receive_reply(old), None);
}

#[test]
fn old_write_does_not_overwrite_newer_write_on_replacement_connection() {
    let scene = Scene::new();
    let old = scene.begin_old_write();
    let new = scene.data_connection(3);
    let head = encoded(&call(1, write_request()), SIZE);
    chunk::send_chunks(&new, &head, &[2; SIZE]).unwrap();
    assert!(matches!(receive_reply(&new), Some(Reply::Written { .. })));
    end_old_write(&old);
    assert!(scene.read() == vec![2; SIZE]);
}

#[test]
fn write_in_socket_buffer_of_replaced_connection_is_dropped() {
    let scene = Scene::new();
    let old = scene.begin_old_write();
    // All of it, and another write, have been sent when the new connection attaches.
    let _ = chunk::send_chunk(&old, &[], &[1; MAX_CHUNK_BYTES]);
    let head = encoded(&call(1, write_request()), SIZE);
    let _ = chunk::send_chunks(&old, &head, &[1; SIZE]);
    let new = scene.data_connection(3);
    chunk::send_chunks(&new, &head, &[2; SIZE]).unwrap();
    assert!(matches!(receive_reply(&new), Some(Reply::Written { .. })));
    while receive_reply(&old).is_some() {}
    assert!(scene.read() == vec![2; SIZE]);
}

#[test]
fn replacing_one_data_connection_leaves_others_working() {
    let scene = Scene::new();
    let old = scene.begin_old_write();
    let _new = scene.data_connection(5);
    chunk::send_chunk(&old, &[], &[1; MAX_CHUNK_BYTES]).unwrap();
    assert!(matches!(receive_reply(&old), Some(Reply::Written { .. })));
}

#[test]
fn write_in_flight_has_no_effect_after_close_of_handle() {
    let mut scene = Scene::new();
    let old = scene.begin_old_write();
    let close = Request::File(FileRequest::Close {
        handle: HANDLE,
        returned: 0,
    });
    assert_eq!(scene.request(close), Reply::Done);
    end_old_write(&old);
    let attr = scene.request(Request::Name(NameRequest::Lookup {
        parent: Ino::ROOT,
        name: b"f".to_vec(),
    }));
    assert!(matches!(attr, Reply::Attr(attr) if attr.size == MAX_CHUNK_BYTES as u64));
}

#[test]
fn write_in_flight_has_no_effect_after_end_of_session() {
    let mut scene = Scene::new();
    let old = scene.begin_old_write();
    assert_eq!(
        scene.request(Request::Session(SessionRequest::Detach)),
        Reply::Done
    );
    end_old_write(&old);
    let (slot, _) = connect(&scene.daemon, Some(INSTANCE), None, (0, false));
    let lookup = Request::Name(NameRequest::Lookup {
        parent: Ino::ROOT,
        name: b"f".to_vec(),
    });
    let attr = ask(&slot, 2, lookup);
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
            mode: 0o755,
        })
    };
    let late = encoded(&call(scene.seq + 1, make(b"late")), 0);
    let (now, later) = late.split_at(late.len() / 2);
    scene.slot.send_all(now, &[], None).unwrap();
    // The client gives up, reconnects, and makes another request.
    let (slot, _) = connect(&scene.daemon, None, Some(scene.resume), (0, false));
    let old = std::mem::replace(&mut scene.slot, slot);
    assert!(matches!(scene.request(make(b"new")), Reply::Attr(_)));
    let _ = old.send_all(later, &[], None);
    assert_eq!(receive_reply(&old), None);
    let lookup = Request::Name(NameRequest::Lookup {
        parent: Ino::ROOT,
        name: b"late".to_vec(),
    });
    assert_eq!(scene.request(lookup), Reply::Failed(Errno::ENOENT));
}
