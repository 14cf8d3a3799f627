//! Daemons that share a distributed instance, driven through the wire protocol.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use forebay_net::auth::PoolKey;
use forebay_net::channel::channel;
use forebay_net::connection::Connection;
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::message::{
    AdminRequest, FileRequest, InodeRequest, NameRequest, SessionRequest,
};
use forebay_protocol::message::{
    Attach, ClientHost, InstanceSpec, NewInode, OpenMode, PROTOCOL_VERSION, RECOVERY_SLOT,
    SessionToken, TrailingField,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{
    Call, Errno, FileKind, HandleId, Ino, InstanceId, NodeIndex, Reply, Request,
};
use forebay_store::daemon::{Daemon, StoreOptions};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const INSTANCE: InstanceId = InstanceId(5);
const STRIPE: u64 = 64 << 10;

/// A session with one daemon, over one connection to its Unix socket.
struct Client {
    connection: Connection,
    seq: u64,
    token: Option<SessionToken>,
}

impl Client {
    fn new(daemon: &Daemon, instance: Option<InstanceId>) -> Client {
        Client::join(daemon, instance, None, 0, 0)
    }

    /// Connect with a slot of a new or existing session; `seq` is the last call made on it.
    fn join(
        daemon: &Daemon,
        instance: Option<InstanceId>,
        token: Option<SessionToken>,
        slot: u32,
        seq: u64,
    ) -> Client {
        let stream = Stream::connect(&daemon.address(), Duration::from_secs(5)).unwrap();
        let mut client = Client { connection: Connection::from(channel(stream)), seq, token };
        let attach = Attach {
            version: PROTOCOL_VERSION,
            instance,
            token,
            slot,
            data_connection: false,
            single_cache: false,
            cache_checks_permissions: false,
            client: ClientHost::default(),
            delegates: TrailingField::default(),
            client_number: TrailingField::default(),
        };
        let Reply::Attached { token, .. } =
            client.call(Request::Session(SessionRequest::Attach(attach)))
        else {
            panic!("not attached");
        };
        client.token = Some(token);
        client
    }

    fn call_with_descriptor(&mut self, request: Request) -> (Reply, Option<std::fs::File>) {
        self.seq += 1;
        let call = Call { seq: self.seq, caller: None, tags: Vec::new(), request };
        let answer = self.connection.call(&call, &[], &mut []).unwrap();
        (answer.reply, answer.descriptor.map(std::fs::File::from))
    }

    fn call(&mut self, request: Request) -> Reply {
        self.call_with_descriptor(request).0
    }
}

fn key() -> PoolKey {
    PoolKey::new(b"the key of a test").unwrap()
}

fn start(dir: &Path, tcp: Option<SocketAddr>) -> Daemon {
    let mut options = StoreOptions::new(dir);
    options.sync_interval = Duration::from_millis(50);
    (options.tcp, options.key) = (tcp, tcp.map(|_| key()));
    Daemon::start(options).unwrap()
}

fn spec(place: Placement) -> InstanceSpec {
    InstanceSpec {
        id: INSTANCE,
        uid: 0,
        gid: 0,
        mode: 0o755,
        capacity: 64 << 20,
        inodes: 1000,
        placement: place,
    }
}

/// Start daemons, create an instance distributed over all of them, and attach a client to each.
fn start_distributed(
    temporary: &TempDir,
    count: u16,
    over_tcp: bool,
) -> (Vec<Daemon>, Vec<Client>) {
    let tcp = over_tcp.then(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    let daemons: Vec<Daemon> =
        (0..count).map(|number| start(&temporary.path().join(number.to_string()), tcp)).collect();
    let peers: Vec<String> = daemons
        .iter()
        .map(|daemon| daemon.tcp_address().unwrap_or(daemon.address()).to_string())
        .collect();
    let places = Placement::distributed(STRIPE, &peers, [7; 32]);
    for (daemon, place) in daemons.iter().zip(places) {
        let reply = Client::new(daemon, None)
            .call(Request::Admin(AdminRequest::CreateInstance(spec(place))));
        assert_eq!(reply, Reply::Done);
    }
    let clients = daemons.iter().map(|daemon| Client::new(daemon, Some(INSTANCE))).collect();
    (daemons, clients)
}

fn metadata_client(clients: &mut [Client], ino: Ino) -> &mut Client {
    &mut clients[usize::from(ino.metadata_node().0)]
}

/// Create a directory and return its inode.
fn mkdir(clients: &mut [Client], parent: Ino, name: &str) -> Ino {
    let request = Request::Name(NameRequest::Mknod {
        parent,
        name: name.into(),
        new: NewInode::Dir,
        mode: 0o755.into(),
    });
    match metadata_client(clients, parent).call(request) {
        Reply::Attr(attr) => attr.ino,
        Reply::Referral { ino, kind } => {
            assert_eq!(kind, FileKind::Dir);
            ino
        }
        other => panic!("{other:?}"),
    }
}

fn wait_until(what: &str, mut good: impl FnMut() -> bool) {
    let start = Instant::now();
    while !good() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn count_objects(temporary: &TempDir, node: u16) -> usize {
    let root = temporary.path().join(format!("{node}/objects"));
    let mut count = 0;
    for instance in std::fs::read_dir(root).unwrap() {
        for folder in std::fs::read_dir(instance.unwrap().path()).unwrap() {
            count += std::fs::read_dir(folder.unwrap().path()).unwrap().count();
        }
    }
    count
}

fn exercise_shared_instance(over_tcp: bool) {
    let temporary = TempDir::new().unwrap();
    let (daemons, mut clients) = start_distributed(&temporary, 3, over_tcp);
    let dirs: Vec<Ino> =
        (0..12).map(|number| mkdir(&mut clients, Ino::ROOT, &format!("d{number}"))).collect();
    for node in 0..3 {
        let here = dirs.iter().filter(|dir| dir.metadata_node() == NodeIndex(node));
        assert!(here.count() > 0, "no directory is on node {node}");
    }
    let Reply::Attr(root) =
        clients[0].call(Request::Inode(InodeRequest::GetAttr { ino: Ino::ROOT }))
    else {
        panic!("no attributes");
    };
    assert_eq!(root.nlink, 14);

    // A file with a stripe on each node.
    let dir = dirs[0];
    let create = Request::Name(NameRequest::Create {
        parent: dir,
        name: b"f".to_vec(),
        mode: 0o644.into(),
        exclusive: true,
        handle: HandleId(1),
        open: OpenMode { write: true, ..OpenMode::default() },
    });
    let Reply::Opened { attr, capability: permit, .. } =
        metadata_client(&mut clients, dir).call(create)
    else {
        panic!("no file");
    };
    assert!(attr.provisional.is_some());
    let permit = permit.unwrap();
    assert_eq!(permit.width, 3);
    for client in &mut clients {
        let open = OpenMode { write: true, descriptor: true, ..OpenMode::default() };
        let handle = HandleId(2);
        let request = Request::File(FileRequest::OpenObject { handle, capability: permit, open });
        let (reply, object) = client.call_with_descriptor(request);
        assert!(matches!(reply, Reply::Object(Some(_))), "{reply:?}");
        object.unwrap().write_all_at(&[7; 5000], 0).unwrap();
        let returned = 0;
        client.call(Request::File(FileRequest::Close { handle, returned }));
        let forged = Request::File(FileRequest::OpenObject {
            handle: HandleId(3),
            capability: forebay_protocol::placement::Capability { ino: Ino(99), ..permit },
            open,
        });
        assert_eq!(client.call(forged), Reply::Failed(Errno::EACCES));
    }
    let (handle, returned) = (HandleId(1), 0);
    metadata_client(&mut clients, dir).call(Request::File(FileRequest::Close { handle, returned }));
    wait_until("the file length becomes final", || {
        match metadata_client(&mut clients, dir)
            .call(Request::Inode(InodeRequest::GetAttr { ino: attr.ino }))
        {
            Reply::Attr(now) => now.provisional.is_none() && now.size == 2 * STRIPE + 5000,
            other => panic!("{other:?}"),
        }
    });
    assert!((0..3).all(|node| count_objects(&temporary, node) == 1));

    // Rename it into a directory on another node, and unlink it there.
    let to = *dirs.iter().find(|to| to.metadata_node() != dir.metadata_node()).unwrap();
    let rename = Request::Name(NameRequest::Rename {
        parent: dir,
        name: b"f".to_vec(),
        to,
        to_name: b"g".to_vec(),
        existing: forebay_protocol::message::OnExisting::Replace,
    });
    assert_eq!(metadata_client(&mut clients, dir).call(rename), Reply::Done);
    let (parent, name) = (to, b"g".to_vec());
    let unlink = Request::Name(NameRequest::Unlink { parent, name });
    assert_eq!(metadata_client(&mut clients, to).call(unlink), Reply::Done);
    wait_until("the data objects are removed", || {
        (0..3).all(|node| count_objects(&temporary, node) == 0)
    });
    drop(clients);
    for daemon in daemons {
        daemon.stop().unwrap();
    }
}

#[test]
fn three_daemons_share_an_instance_over_unix_sockets() {
    exercise_shared_instance(false);
}

#[test]
fn three_daemons_share_an_instance_over_tcp() {
    exercise_shared_instance(true);
}

#[test]
fn operation_that_needs_a_stopped_daemon_completes_after_its_restart() {
    let temporary = TempDir::new().unwrap();
    let (mut daemons, mut clients) = start_distributed(&temporary, 2, false);
    let Address::Unix(_) = daemons[1].address() else {
        panic!("a local daemon has a Unix socket");
    };
    drop(clients.pop());
    daemons.pop().unwrap().stop().unwrap();
    let layout = forebay_policy::layout::Layout::new(2, STRIPE).unwrap();
    let names = (0..).map(|number: u32| format!("d{number}"));
    let mut elsewhere = names
        .filter(|name| layout.metadata_node_for_dir(Ino::ROOT, name.as_bytes()) == NodeIndex(1));
    let name = elsewhere.next().unwrap();
    let waiting = std::thread::spawn(move || {
        let ino = mkdir(&mut clients, Ino::ROOT, &name);
        (clients, ino)
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished());
    // Operations on the first daemon alone do not wait.
    let mut other = Client::new(&daemons[0], Some(INSTANCE));
    assert!(matches!(
        other.call(Request::Inode(InodeRequest::GetAttr { ino: Ino::ROOT })),
        Reply::Attr(_)
    ));
    daemons.push(start(&temporary.path().join("1"), None));
    let (_, ino) = waiting.join().unwrap();
    assert_eq!(ino.metadata_node(), NodeIndex(1));
    let mut back = Client::new(&daemons[1], Some(INSTANCE));
    assert!(matches!(back.call(Request::Inode(InodeRequest::GetAttr { ino })), Reply::Attr(_)));
}

#[test]
fn unlinked_open_file_survives_restart_until_its_client_closes_it() {
    let temporary = TempDir::new().unwrap();
    let daemon = start(temporary.path(), None);
    Client::new(&daemon, None)
        .call(Request::Admin(AdminRequest::CreateInstance(spec(Placement::single_node()))));
    let mut first = Client::new(&daemon, Some(INSTANCE));
    let mut second = Client::new(&daemon, Some(INSTANCE));
    let open = OpenMode { write: true, ..OpenMode::default() };
    let create = Request::Name(NameRequest::Create {
        parent: Ino::ROOT,
        name: b"f".to_vec(),
        mode: 0o644.into(),
        exclusive: true,
        handle: HandleId(1),
        open,
    });
    let Reply::Opened { attr, .. } = first.call(create) else {
        panic!("no file");
    };
    second.call(Request::Inode(InodeRequest::GetAttr { ino: attr.ino }));
    daemon.stop().unwrap();

    // The second client reconnects first and unlinks the file.
    let daemon = start(temporary.path(), None);
    let mut second = Client::join(&daemon, Some(INSTANCE), second.token, 0, second.seq);
    let (parent, name) = (Ino::ROOT, b"f".to_vec());
    assert_eq!(second.call(Request::Name(NameRequest::Unlink { parent, name })), Reply::Done);
    std::thread::sleep(Duration::from_millis(200));
    let mut again = Client::join(&daemon, Some(INSTANCE), first.token, RECOVERY_SLOT, 0);
    let (ino, handle) = (attr.ino, HandleId(1));
    let reply = again.call(Request::File(FileRequest::Open { ino, handle, open }));
    assert!(matches!(reply, Reply::Opened { .. }), "{reply:?}");

    // Once all clients are back and the file is closed, it is removed.
    let mut first = Client::join(&daemon, Some(INSTANCE), first.token, 0, first.seq);
    let returned = 0;
    first.call(Request::File(FileRequest::Close { handle, returned }));
    wait_until("the file is removed", || {
        second.call(Request::Inode(InodeRequest::GetAttr { ino })) == Reply::Failed(Errno::ESTALE)
    });
}

#[test]
fn removed_instance_leaves_no_objects_when_the_daemon_stops() {
    let temporary = TempDir::new().unwrap();
    let daemon = start(temporary.path(), None);
    let mut admin = Client::new(&daemon, None);
    assert_eq!(
        admin.call(Request::Admin(AdminRequest::CreateInstance(spec(Placement::single_node())))),
        Reply::Done
    );
    let (id, force) = (INSTANCE, false);
    assert_eq!(admin.call(Request::Admin(AdminRequest::RemoveInstance { id, force })), Reply::Done);
    drop(admin);
    daemon.stop().unwrap();
    let left = std::fs::read_dir(temporary.path().join("objects")).unwrap();
    assert_eq!(left.count(), 0);
}
