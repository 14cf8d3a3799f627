//! Clients without permission, with forged requests, or without knowledge of the protocol.
//!
//! Needs root, because it acts as several users.

use crate::support;
use forebay_client::{Admin, ClientOptions, Fs};
use forebay_net::channel::channel;
use forebay_net::connection::Connection;
use forebay_net::frame::{self, HEADER_BYTES};
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::message::{
    Attach, ClientHost, OpenMode, PROTOCOL_VERSION, SetAttr, TrailingField,
};
use forebay_protocol::message::{FileRequest, InodeRequest, NameRequest, SessionRequest};
use forebay_protocol::{Call, Credentials, Errno, HandleId, Ino, InstanceId, Reply, Request};
use forebay_store::daemon::{self, Daemon, StartError};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use support::{INSTANCE, READ_WRITE, Temporary, as_user, users_pool};

const ONCE: fn() -> ClientOptions =
    || ClientOptions { timeout: Duration::ZERO, ..ClientOptions::default() };

/// A daemon with an instance of user 1000, group 2000.
fn pool() -> (Daemon, Temporary) {
    let temporary = Temporary::new();
    let options = daemon::StoreOptions::new(temporary.dir("flash"));
    (users_pool(options, 0o750), temporary)
}

fn socket(daemon: &Daemon) -> std::path::PathBuf {
    match daemon.address() {
        Address::Unix(path) => path,
        Address::Tcp(_) => panic!("a local daemon has a Unix socket"),
    }
}

#[test]
fn instance_is_limited_to_its_user_and_group() {
    let (daemon, _temporary) = pool();
    let attach = || Fs::attach(daemon.address(), INSTANCE, ONCE());
    as_user(1000, 1, || {
        let file = attach().unwrap().create(Ino::ROOT, b"f", 0o600, true, READ_WRITE).unwrap().file;
        file.write_all_at(b"mine", 0).unwrap();
    });
    as_user(1001, 2000, || {
        let fs = attach().unwrap();
        let file = fs.lookup(Ino::ROOT, b"f").unwrap();
        assert_eq!(fs.open(file.ino, READ_WRITE).map(|_| ()), Err(Errno::EACCES));
        let wider = SetAttr { mode: Some(0o666), ..SetAttr::default() };
        assert_eq!(fs.set_attr(file.ino, None, wider).map(|_| ()), Err(Errno::EPERM));
        assert_eq!(fs.unlink(Ino::ROOT, b"f"), Err(Errno::EACCES));
        // Only root may act on behalf of another user.
        let as_root = fs.on_behalf_of(Credentials {
            uid: 0,
            gid: 0,
            groups: Some(Vec::new()),
            checked: true,
        });
        assert_eq!(as_root.unlink(Ino::ROOT, b"f"), Err(Errno::EPERM));
    });
    as_user(1002, 1, || assert_eq!(attach().map(|_| ()), Err(Errno::EACCES)));
    as_user(1000, 1, || {
        let admin = Admin::connect(daemon.address(), ONCE());
        assert_eq!(admin.map(|_| ()), Err(Errno::EACCES));
    });
    let absent = Fs::attach(daemon.address(), InstanceId(99), ONCE());
    assert_eq!(absent.map(|_| ()), Err(Errno::ENOENT));
}

#[test]
fn invalid_names_are_refused() {
    let (daemon, _temporary) = pool();
    let fs = Fs::attach(daemon.address(), INSTANCE, ClientOptions::default()).unwrap();
    for (name, errno) in [
        (&b"a/b"[..], Errno::EINVAL),
        (b"../x", Errno::EINVAL),
        (b"nul\0", Errno::EINVAL),
        (b"", Errno::ENOENT),
        (b"..", Errno::EEXIST),
        (&[b'n'; 256], Errno::ENAMETOOLONG),
    ] {
        assert_eq!(fs.mkdir(Ino::ROOT, name, 0o700).map(|_| ()), Err(errno), "{name:?}");
    }
    let up = fs.resolve(Path::new("../../../etc/passwd"), true);
    assert_eq!(up.map(|_| ()), Err(Errno::ENOENT), "the root's parent is the root");
    assert_eq!(fs.get_attr(Ino(12_345)).map(|_| ()), Err(Errno::ESTALE));
}

#[test]
fn garbage_closes_only_its_own_connection() {
    let (daemon, _temporary) = pool();
    let fs = Fs::attach(daemon.address(), INSTANCE, ClientOptions::default()).unwrap();
    let mut call = Vec::new();
    let request = Request::Inode(InodeRequest::GetAttr { ino: Ino::ROOT });
    frame::encode_call(&mut call, &Call { seq: 1, caller: None, tags: Vec::new(), request }, 0)
        .unwrap();
    let mut long = call.clone();
    long[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut damaged = call.clone();
    damaged[HEADER_BYTES] ^= 1;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n and some more"[..], &[0; 5000], &long, &damaged] {
        let mut stream = UnixStream::connect(socket(&daemon)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(bytes).unwrap();
        let closed = stream.read(&mut [0; 100]);
        assert!(
            matches!(closed, Ok(0))
                || closed.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
        );
        fs.get_attr(Ino::ROOT).unwrap();
    }
    // Half a call: other clients are served.
    let mut half = UnixStream::connect(socket(&daemon)).unwrap();
    half.write_all(&call[..HEADER_BYTES + 1]).unwrap();
    fs.get_attr(Ino::ROOT).unwrap();
    // Thousands of calls without reading a reply: they wait in the socket.
    let mut flood = UnixStream::connect(socket(&daemon)).unwrap();
    flood.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let taken = (0..200_000).take_while(|_| flood.write_all(&call).is_ok()).count();
    assert!(taken < 200_000, "the daemon receives calls only as fast as it can reply");
    fs.get_attr(Ino::ROOT).unwrap();
}

#[test]
fn requests_before_handshake_or_with_guessed_session_are_refused() {
    let (daemon, _temporary) = pool();
    let connect = || {
        Connection::from(channel(
            Stream::connect(&daemon.address(), Duration::from_secs(1)).unwrap(),
        ))
    };
    let mut connection = connect();
    let mut call = |request| {
        let message = Call { seq: 1, caller: None, tags: Vec::new(), request };
        connection.call(&message, &[], &mut []).unwrap().reply
    };
    assert_eq!(
        call(Request::Inode(InodeRequest::GetAttr { ino: Ino::ROOT })),
        Reply::Failed(Errno::ENOTCONN)
    );
    let fs = Fs::attach(daemon.address(), INSTANCE, ClientOptions::default()).unwrap();
    for session in 0..5 {
        let resume = forebay_protocol::message::SessionToken {
            session: forebay_protocol::SessionId(session),
            secret: 42,
        };
        let attach = Attach {
            version: PROTOCOL_VERSION,
            instance: Some(INSTANCE),
            token: Some(resume),
            slot: 0,
            data_connection: false,
            single_cache: false,
            cache_checks_permissions: false,
            client: ClientHost::default(),
            delegates: TrailingField::default(),
            client_number: TrailingField::default(),
        };
        assert_eq!(
            call(Request::Session(SessionRequest::Attach(attach.clone()))),
            Reply::Failed(Errno::ESTALE)
        );
        let attach = Attach { version: PROTOCOL_VERSION + 1, ..attach };
        assert_eq!(
            call(Request::Session(SessionRequest::Attach(attach))),
            Reply::Failed(Errno::EPROTO)
        );
    }
    drop(fs);
}

#[test]
fn second_daemon_on_a_directory_is_refused() {
    let (daemon, temporary) = pool();
    let second = Daemon::start(daemon::StoreOptions::new(temporary.0.join("flash")));
    assert!(matches!(second, Err(StartError::DirectoryInUse(_))));
    drop(daemon);
    Daemon::start(daemon::StoreOptions::new(temporary.0.join("flash"))).unwrap();
}

/// A group member with read permission cannot write by opening the same handle again, or by repeating
/// the request with another mode.
#[test]
fn read_only_handle_cannot_be_upgraded() {
    let (daemon, _temporary) = pool();
    let fs = Fs::attach(daemon.address(), INSTANCE, ONCE()).unwrap();
    let created = fs.create_path(Path::new("theirs"), 0o644, READ_WRITE);
    let ino = created.unwrap().attr.ino;
    let address = daemon.address();
    as_user(3000, 2000, move || {
        let mut connection =
            Connection::from(channel(Stream::connect(&address, Duration::from_secs(1)).unwrap()));
        let mut tags = Vec::new();
        let mut call = |seq, request| {
            let message = Call { seq, caller: None, tags: tags.clone(), request };
            let mut response = connection.call(&message, &[], &mut []).unwrap();
            response.reply = match response.reply {
                Reply::Tagged { reply, tags: of_reply } => {
                    tags = of_reply.into_iter().map(|(_, tag)| tag).collect();
                    *reply
                }
                reply => reply,
            };
            response
        };
        let attach = Attach {
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
        };
        call(0, Request::Session(SessionRequest::Attach(attach)));
        let open = |handle, open| Request::File(FileRequest::Open { ino, handle, open });
        let create = |handle, open| {
            Request::Name(NameRequest::Create {
                parent: Ino::ROOT,
                name: b"theirs".to_vec(),
                mode: 0o644.into(),
                exclusive: false,
                handle,
                open,
            })
        };
        let read = OpenMode { read: true, descriptor: true, ..OpenMode::default() };
        let (one, two) = (HandleId(1), HandleId(2));
        let refused = Reply::Failed(Errno::EACCES);
        let not_reached = Reply::Failed(Errno::ESTALE);
        assert_eq!(call(1, open(one, read)).reply, not_reached, "the number alone is not enough");
        let lookup = NameRequest::Lookup { parent: Ino::ROOT, name: b"theirs".to_vec() };
        assert!(matches!(call(1, Request::Name(lookup)).reply, Reply::Attr(_)));
        assert_eq!(call(1, open(one, READ_WRITE)).reply, refused);
        let response = call(2, open(one, read));
        assert!(matches!(response.reply, Reply::Opened { .. }));
        assert!(response.descriptor.is_none(), "users get no descriptors");
        for (seq, request) in [
            (2, open(one, READ_WRITE)),
            (2, open(two, READ_WRITE)),
            (3, open(one, READ_WRITE)),
            (4, create(one, READ_WRITE)),
            (4, create(two, READ_WRITE)),
        ] {
            let response = call(seq, request);
            assert_eq!(response.reply, refused, "{seq}");
            assert!(response.descriptor.is_none());
        }
    });
}
