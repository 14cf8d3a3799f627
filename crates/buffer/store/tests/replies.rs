//! Replies to calls: each is sent in the end, and not before the call's effects are durable.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use forebay_protocol::message::{
    AdminRequest, Attach, CacheRecall, ClientHost, EVENT_SLOT, FileRequest, InodeRequest,
    InstanceSpec, LockRequest, NameRequest, NewInode, OnExisting, OpenMode, PROTOCOL_VERSION,
    RECOVERY_SLOT, SessionRequest, SessionToken, SetAttr, TrailingField, XattrMode,
};
use forebay_protocol::peer::{Incarnation, PeerMessage, PeerPayload, Step, StepResult, TxId};
use forebay_protocol::placement::Placement;
use forebay_protocol::{
    Call, Credentials, Errno, FileKind, HandleId, Ino, InstanceId, NodeIndex, Reply, Request,
    SessionId, Timestamp,
};
use forebay_store::node::{ConnId, Effect, Input, Limits, Node, NodeState, Now};
use forebay_store::objects::{ObjectId, Objects};
use std::cell::Cell;
use support::memory_objects::MemoryObjects;
use support::seeds::root;

const CONN: ConnId = ConnId(1);
const OTHER: ConnId = ConnId(2);

fn call(
    node: &mut Node<MemoryObjects>,
    conn: ConnId,
    seq: u64,
    request: Request,
) -> Vec<Effect<ObjectId>> {
    let mut effects = Vec::new();
    let call = Call { seq, caller: None, tags: Vec::new(), request };
    node.step(Now::default(), Input::Call(conn, call), &mut effects);
    effects
}

fn start() -> Node<MemoryObjects> {
    start_with(MemoryObjects::default(), false)
}

/// With these objects. `local`: clients are on the daemon's host.
fn start_with(objects: MemoryObjects, local: bool) -> Node<MemoryObjects> {
    let state = NodeState::default();
    let (now, limits) = (Now::default(), Limits::default());
    let mut node = Node::start(state, 0, objects, limits, now, [1; 32]).unwrap();
    node.set_boot_id(5);
    for conn in [CONN, OTHER] {
        node.step(now, Input::Connected(conn, root(local)), &mut Vec::new());
    }
    node
}

/// All records since the start become durable.
fn sync_log(node: &mut Node<MemoryObjects>) -> Vec<Effect<ObjectId>> {
    let mut effects = Vec::new();
    let last = node.take_records().len() as u64;
    node.step(Now::default(), Input::LogSynced(last), &mut effects);
    effects
}

fn at_second(second: u64) -> Now {
    Now { steady_ns: second * 1_000_000_000, ..Now::default() }
}

fn greeting(instance: Option<InstanceId>) -> Attach {
    Attach {
        version: PROTOCOL_VERSION,
        instance,
        token: None,
        slot: 0,
        data_connection: false,
        single_cache: false,
        cache_checks_permissions: false,
        client: ClientHost::default(),
        delegates: TrailingField::default(),
        client_number: TrailingField::default(),
    }
}

fn hello(instance: Option<InstanceId>) -> Request {
    Request::Session(SessionRequest::Attach(greeting(instance)))
}

fn spec(placement: Placement) -> InstanceSpec {
    InstanceSpec {
        id: InstanceId(7),
        uid: 0,
        gid: 0,
        mode: 0o755,
        capacity: 1 << 20,
        inodes: 10,
        placement,
    }
}

#[test]
fn creation_and_removal_of_instances_are_answered_when_durable() {
    let mut node = start();
    let welcome = call(&mut node, CONN, 1, hello(None));
    let is_attached = |effect: &Effect<ObjectId>| {
        let Effect::Reply { reply, .. } = effect else {
            return false;
        };
        matches!(reply, Reply::Attached { boot: 5, .. })
    };
    assert!(welcome.iter().any(is_attached));

    let remove = Request::Admin(AdminRequest::RemoveInstance { id: InstanceId(7), force: false });
    let requests = [
        (2, Request::Admin(AdminRequest::CreateInstance(spec(Placement::single_node())))),
        (3, remove),
    ];
    for (seq, request) in requests {
        // The second call is a repetition, which must not be answered earlier.
        for _ in 0..2 {
            let effects = call(&mut node, CONN, seq, request.clone());
            let synced = |effect: &Effect<ObjectId>| matches!(effect, Effect::Sync { .. });
            let answered = |effect: &Effect<ObjectId>| matches!(effect, Effect::Reply { .. });
            assert!(effects.iter().any(synced) && !effects.iter().any(answered));
        }
    }
}

/// A session is attached to an instance on two nodes, the other of which is never heard of.
fn start_with_silent_peer() -> Node<MemoryObjects> {
    let mut node = start();
    call(&mut node, CONN, 1, hello(None));
    let peers = ["/0".to_owned(), "/1".to_owned()];
    let place = Placement::distributed(4096, &peers, [7; 32]).remove(0);
    call(&mut node, CONN, 2, Request::Admin(AdminRequest::CreateInstance(spec(place))));
    call(&mut node, OTHER, 1, hello(Some(InstanceId(7))));
    node
}

fn make(name: &str, new: NewInode) -> Request {
    Request::Name(NameRequest::Mknod {
        parent: Ino::ROOT,
        name: name.as_bytes().to_vec(),
        new,
        mode: 0o755.into(),
    })
}

fn replies(effects: &[Effect<ObjectId>]) -> Vec<Reply> {
    let replies = effects.iter().filter_map(|effect| match effect {
        Effect::Reply { reply, .. } => Some(reply.clone()),
        _ => None,
    });
    replies.collect()
}

/// A call in flight is not answered for 10 s, and answered `EAGAIN` after 30 s.
#[track_caller]
fn check_answered_eagain_after_20s(node: &mut Node<MemoryObjects>) {
    for (second, expected) in [(10, vec![]), (30, vec![Reply::Failed(Errno::EAGAIN)])] {
        let mut effects = Vec::new();
        node.step(at_second(second), Input::Tick, &mut effects);
        assert_eq!(replies(&effects), expected);
    }
}

/// A file gets another length, which concerns the other node.
fn resize_file(node: &mut Node<MemoryObjects>) {
    let made = call(node, OTHER, 2, make("f", NewInode::Node(FileKind::File, 0)));
    let [Reply::Attr(attr)] = replies(&made)[..] else {
        panic!("{made:?}");
    };
    let set = SetAttr { size: Some(8_000), ..SetAttr::default() };
    let request = Request::Inode(InodeRequest::SetAttr { ino: attr.ino, handle: None, set });
    assert_eq!(replies(&call(node, OTHER, 3, request)), []);
}

#[test]
fn resize_with_silent_peer_answers_eagain_after_20s() {
    let mut node = start_with_silent_peer();
    resize_file(&mut node);
    check_answered_eagain_after_20s(&mut node);
}

#[test]
fn mkdir_with_silent_peer_answers_eagain_after_20s() {
    let mut node = start_with_silent_peer();
    let mut seq = 1;
    let there = (0..20).find(|number| {
        seq += 1;
        let request = make(&format!("d{number}"), NewInode::Dir);
        replies(&call(&mut node, OTHER, seq, request)).is_empty()
    });
    let name = format!("d{}", there.unwrap());
    check_answered_eagain_after_20s(&mut node);
    // Neither the name nor a lock on it is left.
    let lookup = Request::Name(NameRequest::Lookup { parent: Ino::ROOT, name: name.into_bytes() });
    let found = call(&mut node, OTHER, seq + 1, lookup);
    assert_eq!(replies(&found), [Reply::Failed(Errno::ENOENT)]);
}

/// A message from the other node, which knows this node's incarnation.
fn receive(
    node: &mut Node<MemoryObjects>,
    receiver: Incarnation,
    number: u64,
    say: PeerPayload,
) -> Vec<Effect<ObjectId>> {
    let message = PeerMessage {
        instance: InstanceId(7),
        from: NodeIndex(1),
        sender: Incarnation { epoch: 1, nonce: 1 },
        receiver,
        sequence: number,
        payload: say,
        recalls_caches: TrailingField(true),
    };
    call(node, CONN, 100 + number, Request::Peer(Box::new(message)))
}

/// This node's incarnation, as the other one learns it.
fn incarnation(node: &mut Node<MemoryObjects>) -> Incarnation {
    let mut effects = Vec::new();
    node.step(at_second(1), Input::Tick, &mut effects);
    let sender = effects.iter().find_map(|effect| match effect {
        Effect::SendToPeer { message, .. } => Some(message.sender),
        _ => None,
    });
    sender.unwrap()
}

/// The other node has prepared a change of a name here, and is not heard of again.
fn lock_name(node: &mut Node<MemoryObjects>, name: &str) {
    let own = incarnation(node);
    let step = Step::InsertEntry {
        dir: Ino::ROOT,
        name: name.as_bytes().to_vec(),
        ino: Ino(1 << 48 | 9),
        kind: FileKind::File,
        existing: OnExisting::Fail,
    };
    let prepare = PeerPayload::Prepare {
        tx: TxId(77),
        round: 1,
        who: Credentials { uid: 0, gid: 0, groups: Some(Vec::new()), checked: true },
        now: Timestamp::default(),
        steps: vec![step],
        client: TrailingField::default(),
    };
    receive(node, own, 1, prepare);
}

fn lookup(name: &str) -> Request {
    Request::Name(NameRequest::Lookup { parent: Ino::ROOT, name: name.as_bytes().to_vec() })
}

#[test]
fn lookup_of_name_locked_by_silent_peer_answers_eagain_after_20s() {
    let mut node = start_with_silent_peer();
    lock_name(&mut node, "locked");
    assert_eq!(replies(&call(&mut node, OTHER, 2, lookup("locked"))), []);
    check_answered_eagain_after_20s(&mut node);
    // It is still locked: the next call waits, too.
    assert_eq!(replies(&call(&mut node, OTHER, 3, lookup("locked"))), []);
}

/// The instance is removed while a call waits: the call fails.
#[track_caller]
fn check_answered_when_removed(node: &mut Node<MemoryObjects>) {
    let remove = Request::Admin(AdminRequest::RemoveInstance { id: InstanceId(7), force: true });
    let answered = replies(&call(node, CONN, 3, remove));
    assert_eq!(answered, [Reply::Failed(Errno::ESTALE)]);
}

#[test]
fn removal_of_instance_fails_call_that_waits_for_a_lock() {
    let mut node = start_with_silent_peer();
    lock_name(&mut node, "locked");
    let waiting = call(&mut node, OTHER, 2, lookup("locked"));
    assert_eq!(replies(&waiting), []);
    check_answered_when_removed(&mut node);
}

#[test]
fn removal_of_instance_fails_call_that_waits_for_a_transaction() {
    let mut node = start_with_silent_peer();
    let mut requests = (2..22).map(|seq| (seq, make(&format!("d{seq}"), NewInode::Dir)));
    let waits = requests.any(|(seq, make)| replies(&call(&mut node, OTHER, seq, make)).is_empty());
    assert!(waits);
    check_answered_when_removed(&mut node);
}

#[test]
fn removal_of_instance_fails_call_that_waits_for_an_object() {
    let mut node = start_with_silent_peer();
    resize_file(&mut node);
    check_answered_when_removed(&mut node);
}

#[test]
fn removal_of_instance_fails_call_that_waits_for_invalid_checksums() {
    let (mut node, _, _, open) = with_durable_checksums();
    assert_eq!(replies(&call(&mut node, OTHER, 3, open)), []);
    check_answered_when_removed(&mut node);
}

/// A transaction that has committed here, and whose other participant is not heard of again. Returns
/// the number of its call.
fn decide_with_silent_participant(node: &mut Node<MemoryObjects>) -> u64 {
    let own = incarnation(node);
    receive(node, own, 1, PeerPayload::ProbeAck);
    let prepared = (2..22).find_map(|seq| {
        let effects = call(node, OTHER, seq, make(&format!("d{seq}"), NewInode::Dir));
        effects.iter().find_map(|effect| match effect {
            Effect::SendToPeer { message, .. } => match &message.payload {
                PeerPayload::Prepare { tx, round, .. } => Some((seq, *tx, *round)),
                _ => None,
            },
            _ => None,
        })
    });
    let (seq, tx, round) = prepared.unwrap();
    let found = Ok(vec![StepResult::Inode(Ino(1 << 48 | 9), FileKind::Dir)]);
    receive(node, own, 2, PeerPayload::Vote { tx, round, found });
    sync_log(node);
    seq
}

/// A call is not answered 50 s after `second`, and answered `EIO` after 65 s.
#[track_caller]
fn check_answered_eio_after_60s(node: &mut Node<MemoryObjects>, second: u64) {
    for (later, expected) in [(50, vec![]), (65, vec![Reply::Failed(Errno::EIO)])] {
        let mut effects = Vec::new();
        node.step(at_second(second + later), Input::Tick, &mut effects);
        assert_eq!(replies(&effects), expected);
    }
}

#[test]
fn decided_transaction_with_silent_participant_answers_eio_after_60s() {
    let mut node = start_with_silent_peer();
    decide_with_silent_participant(&mut node);
    check_answered_eio_after_60s(&mut node, 0);
}

#[test]
fn repeated_call_of_decided_transaction_answers_eio_after_60s() {
    let mut node = start_with_silent_peer();
    let seq = decide_with_silent_participant(&mut node);
    check_answered_eio_after_60s(&mut node, 0);
    // The connection breaks, and the call is repeated on another one.
    let again = ConnId(3);
    let now = at_second(70);
    node.step(now, Input::Connected(again, root(false)), &mut Vec::new());
    let (_, session) = node.sessions().find(|(id, _)| *id == SessionId(2)).unwrap();
    let hello = Request::Session(SessionRequest::Attach(Attach {
        token: Some(SessionToken { session: SessionId(2), secret: session.secret }),
        ..greeting(Some(InstanceId(7)))
    }));
    let repeated = make(&format!("d{seq}"), NewInode::Dir);
    let mut effects = Vec::new();
    for request in [hello, repeated] {
        let call = Call { seq, caller: None, tags: Vec::new(), request };
        node.step(now, Input::Call(again, call), &mut effects);
    }
    assert!(matches!(replies(&effects)[..], [Reply::Attached { .. }]));
    check_answered_eio_after_60s(&mut node, 70);
}

#[test]
fn removal_of_file_is_reported_to_peers_when_durable() {
    let mut node = start_with_silent_peer();
    let own = incarnation(&mut node);
    let made = call(&mut node, OTHER, 2, make("f", NewInode::Node(FileKind::File, 0)));
    let [Reply::Attr(attr)] = replies(&made)[..] else {
        panic!("{made:?}");
    };
    let unlink = Request::Name(NameRequest::Unlink { parent: Ino::ROOT, name: b"f".to_vec() });
    assert_eq!(replies(&call(&mut node, OTHER, 3, unlink)), [Reply::Done]);
    // The other node has an object of it, perhaps with synced data: a power cut here could still bring the
    // file back.
    let is_reported = |effects: &[Effect<ObjectId>]| {
        effects.iter().any(|effect| match effect {
            Effect::SendToPeer { message, .. } => {
                matches!(&message.payload, PeerPayload::OrphansChecked { removed, .. } if *removed == [attr.ino])
            }
            _ => false,
        })
    };
    assert!(!is_reported(&receive(&mut node, own, 1, PeerPayload::CheckOrphans(vec![attr.ino]))));
    assert!(is_reported(&sync_log(&mut node)));
    assert!(is_reported(&receive(&mut node, own, 2, PeerPayload::CheckOrphans(vec![attr.ino]))));
}

/// A file whose object has durable checksums, and a request to open it for writing.
fn with_durable_checksums() -> (Node<MemoryObjects>, MemoryObjects, ObjectId, Request) {
    let objects = MemoryObjects::default();
    let mut node = start_with(objects.clone(), true);
    call(&mut node, CONN, 1, hello(None));
    call(
        &mut node,
        CONN,
        2,
        Request::Admin(AdminRequest::CreateInstance(spec(Placement::single_node()))),
    );
    call(&mut node, OTHER, 1, hello(Some(InstanceId(7))));
    let put = Request::Name(NameRequest::PutFile {
        parent: Ino::ROOT,
        name: b"file".to_vec(),
        set: Box::new(SetAttr::default()),
        data: b"some bytes".to_vec(),
    });
    let made = replies(&call(&mut node, OTHER, 2, put));
    let [Reply::Attr(attr)] = &made[..] else {
        panic!("{made:?}");
    };
    let object = ObjectId { instance: InstanceId(7), ino: attr.ino };
    objects.add_durable_checksums(object);
    let open = Request::File(FileRequest::Open {
        ino: attr.ino,
        handle: HandleId(1),
        open: OpenMode { write: true, descriptor: true, ..OpenMode::default() },
    });
    (node, objects, object, open)
}

fn invalidated(
    node: &mut Node<MemoryObjects>,
    object: ObjectId,
    result: Result<(), Errno>,
) -> Vec<Effect<ObjectId>> {
    let mut effects = Vec::new();
    node.step(Now::default(), Input::ChecksumsInvalidated(object, result), &mut effects);
    effects
}

#[test]
fn object_is_opened_for_writing_when_its_checksums_are_invalid() {
    let (mut node, objects, object, open) = with_durable_checksums();
    let asked = |effects: &[Effect<ObjectId>]| {
        let asks = |effect: &&Effect<ObjectId>| matches!(effect, Effect::InvalidateChecksums(of) if *of == object);
        (effects.iter().filter(asks).count(), replies(effects).len())
    };
    assert_eq!(asked(&call(&mut node, OTHER, 3, open.clone())), (1, 0));
    // Other calls are answered meanwhile.
    let stat = Request::Inode(InodeRequest::GetAttr { ino: object.ino });
    assert_eq!(asked(&call(&mut node, OTHER, 4, stat)), (0, 1));
    // It failed: the waiting call fails, and may be retried.
    let failed = invalidated(&mut node, object, Err(Errno::EIO));
    assert_eq!(replies(&failed), [Reply::Failed(Errno::EIO)]);
    let truncate = Request::Inode(InodeRequest::SetAttr {
        ino: object.ino,
        handle: None,
        set: SetAttr { size: Some(3), ..SetAttr::default() },
    });
    assert_eq!(asked(&call(&mut node, OTHER, 5, open)), (1, 0));
    assert_eq!(asked(&call(&mut node, OTHER, 6, truncate)), (0, 0));
    objects.invalidate_checksums(object);
    let opened = replies(&invalidated(&mut node, object, Ok(())));
    assert!(
        matches!(&opened[..], [Reply::Opened { .. }, Reply::Attr(attr)] if attr.size == 3),
        "{opened:?}"
    );
}

#[test]
fn closed_connection_gets_no_reply_after_invalidation() {
    let (mut node, objects, object, open) = with_durable_checksums();
    call(&mut node, OTHER, 3, open);
    node.step(Now::default(), Input::Disconnected(OTHER), &mut Vec::new());
    objects.invalidate_checksums(object);
    assert!(invalidated(&mut node, object, Ok(())).is_empty());
}

/// Attaches `OTHER` to the instance.
fn attach_other(node: &mut Node<MemoryObjects>) -> SessionToken {
    let welcome = replies(&call(node, OTHER, 1, hello(Some(InstanceId(7)))));
    let [Reply::Attached { token, .. }] = welcome[..] else {
        panic!("{welcome:?}");
    };
    token
}

/// Makes a file in the root, with the second request of `OTHER`.
fn make_file(node: &mut Node<MemoryObjects>) -> Ino {
    let made = replies(&call(node, OTHER, 2, make("f", NewInode::Node(FileKind::File, 0))));
    let [Reply::Attr(attr)] = &made[..] else {
        panic!("{made:?}");
    };
    attr.ino
}

/// The reply to a request for a read lease, after another user than the owner has opened the file again
/// in this mode.
fn lease_after_reopen(open: OpenMode) -> Reply {
    let mut node = start();
    call(&mut node, CONN, 1, hello(None));
    let create = AdminRequest::CreateInstance(spec(Placement::single_node()));
    call(&mut node, CONN, 2, Request::Admin(create));
    let token = attach_other(&mut node);
    let ino = make_file(&mut node);
    let read = OpenMode { read: true, ..OpenMode::default() };
    let opening =
        |handle, open| Request::File(FileRequest::Open { ino, handle: HandleId(handle), open });
    call(&mut node, OTHER, 3, opening(1, read));
    let recovery = ConnId(3);
    node.step(Now::default(), Input::Connected(recovery, root(false)), &mut Vec::new());
    let joining =
        Attach { token: Some(token), slot: RECOVERY_SLOT, ..greeting(Some(InstanceId(7))) };
    call(&mut node, recovery, 1, Request::Session(SessionRequest::Attach(joining)));
    let caller = Credentials { uid: 1000, gid: 1000, groups: Some(Vec::new()), checked: false };
    let reopen = Call { seq: 2, caller: Some(caller), tags: Vec::new(), request: opening(2, open) };
    let mut effects = Vec::new();
    node.step(Now::default(), Input::Call(recovery, reopen), &mut effects);
    let is_refused = replies(&effects) == [Reply::Failed(Errno::EACCES)];
    assert_eq!(is_refused, open.write, "{effects:?}");
    let lease = Request::Lock(LockRequest::Lease { handles: vec![HandleId(1)] });
    replies(&call(&mut node, OTHER, 4, lease)).remove(0)
}

/// The client may still write to the data object, which it has open.
#[test]
fn nothing_is_leased_after_a_writer_could_not_open_its_file_again() {
    let read = OpenMode { read: true, ..OpenMode::default() };
    let granted = lease_after_reopen(read);
    assert!(matches!(&granted, Reply::Leases(leases) if leases[0].is_some()), "{granted:?}");
    let write = OpenMode { write: true, ..OpenMode::default() };
    assert_eq!(lease_after_reopen(write), Reply::Leases(vec![None]));
}

/// A request to store a file in the root directory.
fn put_file(name: &str) -> Request {
    Request::Name(NameRequest::PutFile {
        parent: Ino::ROOT,
        name: name.into(),
        set: Box::new(SetAttr::default()),
        data: b"old".to_vec(),
    })
}

#[test]
fn file_replaces_another_one_when_its_data_are_durable() {
    let (mut node, _, object, _) = with_durable_checksums();
    call(&mut node, OTHER, 3, put_file("replaced"));
    let rename = |to_name: &[u8]| {
        Request::Name(NameRequest::Rename {
            parent: Ino::ROOT,
            name: b"file".to_vec(),
            to: Ino::ROOT,
            to_name: to_name.to_vec(),
            existing: OnExisting::Replace,
        })
    };
    let syncs = |effects: &[Effect<ObjectId>]| {
        effects.iter().any(|effect| matches!(effect, Effect::SyncObject(of) if *of == object))
    };
    let synced = |node: &mut Node<MemoryObjects>, result| {
        let mut effects = Vec::new();
        node.step(Now::default(), Input::ObjectSynced(object, result), &mut effects);
        replies(&effects)
    };
    node.take_records();
    let waiting = call(&mut node, OTHER, 4, rename(b"replaced"));
    assert!(syncs(&waiting) && replies(&waiting).is_empty());
    assert!(!node.has_records(), "nothing is recorded before");
    // A device that fails keeps the old file.
    assert_eq!(synced(&mut node, Err(Errno::EIO)), [Reply::Failed(Errno::EIO)]);
    // Too many files are being made durable: the client repeats the call under another number.
    assert!(syncs(&call(&mut node, OTHER, 5, rename(b"replaced"))));
    assert_eq!(synced(&mut node, Err(Errno::EAGAIN)), [Reply::Failed(Errno::EAGAIN)]);
    assert!(syncs(&call(&mut node, OTHER, 6, rename(b"replaced"))));
    assert_eq!(synced(&mut node, Ok(())), [Reply::Done]);
    // A rename to a new name does not wait.
    let request = Request::Name(NameRequest::Rename {
        parent: Ino::ROOT,
        name: b"replaced".to_vec(),
        to: Ino::ROOT,
        to_name: b"new".to_vec(),
        existing: OnExisting::Replace,
    });
    let renamed = call(&mut node, OTHER, 7, request);
    assert_eq!(replies(&renamed), [Reply::Done]);
}

/// The number of the sync that a node asks the other one for.
fn sync_asked(effects: &[Effect<ObjectId>]) -> Option<u64> {
    effects.iter().find_map(|effect| match effect {
        Effect::SendToPeer { message, .. } => match message.payload {
            PeerPayload::SyncObject { sync, .. } => Some(sync),
            _ => None,
        },
        _ => None,
    })
}

/// A client opens a file for writing, and may write on the other node, too: calls `seq` and the next.
fn extend_to_other_node(node: &mut Node<MemoryObjects>, seq: u64, ino: Ino) {
    let (handle, open) = (HandleId(seq), OpenMode { write: true, ..OpenMode::default() });
    let opened = call(node, OTHER, seq, Request::File(FileRequest::Open { ino, handle, open }));
    assert!(matches!(replies(&opened)[..], [Reply::Opened { .. }]));
    let renew = Request::File(FileRequest::RenewCapability { handle, position: 1 });
    let renewed = call(node, OTHER, seq + 1, renew);
    assert!(matches!(replies(&renewed)[..], [Reply::Capability(_)]), "{renewed:?}");
}

#[test]
fn file_replaces_another_one_when_its_data_are_durable_on_all_nodes() {
    let mut node = start_with_silent_peer();
    let own = incarnation(&mut node);
    receive(&mut node, own, 1, PeerPayload::ProbeAck);
    let put = |node: &mut Node<MemoryObjects>, seq, name: &str| {
        let put = call(node, OTHER, seq, put_file(name));
        match replies(&put)[..] {
            [Reply::Attr(attr)] => ObjectId { instance: InstanceId(7), ino: attr.ino },
            _ => panic!("{put:?}"),
        }
    };
    let objects = [(2, "a"), (3, "b"), (4, "c")].map(|(seq, name)| put(&mut node, seq, name));
    for (index, seq) in [(0, 5), (1, 7)] {
        extend_to_other_node(&mut node, seq, objects[index].ino);
    }
    let rename = |name: &str| {
        Request::Name(NameRequest::Rename {
            parent: Ino::ROOT,
            name: name.into(),
            to: Ino::ROOT,
            to_name: b"c".to_vec(),
            existing: OnExisting::Replace,
        })
    };
    let synced = |node: &mut Node<MemoryObjects>, object| {
        let mut effects = Vec::new();
        node.step(Now::default(), Input::ObjectSynced(object, Ok(())), &mut effects);
        effects
    };
    let waiting = call(&mut node, OTHER, 10, rename("a"));
    let sync = sync_asked(&waiting).unwrap();
    assert!(replies(&waiting).is_empty());
    assert!(replies(&synced(&mut node, objects[0])).is_empty(), "the other node has data, too");
    let done = PeerPayload::ObjectSynced { sync, result: Some(Ok(())) };
    assert_eq!(replies(&receive(&mut node, own, 2, done)), [Reply::Done]);

    // A node that says nothing, not even that it is at work, fails the rename.
    assert!(sync_asked(&call(&mut node, OTHER, 11, rename("b"))).is_some());
    synced(&mut node, objects[1]);
    for (second, expected) in [(15, vec![]), (25, vec![Reply::Failed(Errno::EAGAIN)])] {
        let mut effects = Vec::new();
        node.step(at_second(second), Input::Tick, &mut effects);
        assert_eq!(replies(&effects), expected);
    }
}

#[test]
fn node_says_that_it_syncs_an_object_for_another_one_and_when_it_is_durable() {
    let mut node = start_with_silent_peer();
    let own = incarnation(&mut node);
    receive(&mut node, own, 1, PeerPayload::ProbeAck);
    let made = call(&mut node, OTHER, 2, put_file("a"));
    let [Reply::Attr(attr)] = replies(&made)[..] else {
        panic!("{made:?}");
    };
    let answers = |effects: &[Effect<ObjectId>]| -> Vec<_> {
        let messages = effects.iter().filter_map(|effect| match effect {
            Effect::SendToPeer { message, .. } => Some(message.payload.clone()),
            _ => None,
        });
        messages.collect()
    };
    let ask = PeerPayload::SyncObject { sync: 5, ino: attr.ino };
    for sequence in [2, 3] {
        let effects = receive(&mut node, own, sequence, ask.clone());
        let begins = effects.iter().any(|effect| matches!(effect, Effect::SyncObject(_)));
        assert_eq!(begins, sequence == 2, "one sync answers a question that is repeated");
        let at_work = PeerPayload::ObjectSynced { sync: 5, result: None };
        assert_eq!(answers(&effects), [at_work]);
    }
    let object = ObjectId { instance: InstanceId(7), ino: attr.ino };
    let mut effects = Vec::new();
    node.step(Now::default(), Input::ObjectSynced(object, Err(Errno::EIO)), &mut effects);
    let failed = PeerPayload::ObjectSynced { sync: 5, result: Some(Err(Errno::EIO)) };
    assert_eq!(answers(&effects), [failed]);
}

#[test]
fn small_file_replaces_another_one_when_its_data_are_durable() {
    let (mut node, objects, _, _) = with_durable_checksums();
    let records = Cell::new(0);
    let count_records = |node: &mut Node<MemoryObjects>| {
        records.set(records.get() + node.take_records().len() as u64);
    };
    let old = objects.list_objects(InstanceId(7)).unwrap();
    let put = |node: &mut Node<MemoryObjects>, conn, seq| {
        count_records(node);
        let effects = call(node, conn, seq, put_file("file"));
        assert!(replies(&effects).is_empty() && !node.has_records(), "it is not carried out yet");
        let synced = effects.iter().find_map(|effect| match effect {
            Effect::SyncObject(object) => Some(*object),
            _ => None,
        });
        synced.unwrap()
    };
    let synced = |node: &mut Node<MemoryObjects>, object, result| {
        let mut effects = Vec::new();
        node.step(Now::default(), Input::ObjectSynced(object, result), &mut effects);
        replies(&effects)
    };
    // A device that fails keeps the old file, and so does a client that leaves.
    let object = put(&mut node, OTHER, 3);
    assert_eq!(synced(&mut node, object, Err(Errno::EIO)), [Reply::Failed(Errno::EIO)]);
    assert_eq!(objects.list_objects(InstanceId(7)).unwrap(), old);
    let third = ConnId(3);
    node.step(Now::default(), Input::Connected(third, root(false)), &mut Vec::new());
    call(&mut node, third, 1, hello(Some(InstanceId(7))));
    let object = put(&mut node, third, 2);
    node.step(Now::default(), Input::Disconnected(third), &mut Vec::new());
    assert_eq!(objects.list_objects(InstanceId(7)).unwrap(), old);
    assert_eq!(synced(&mut node, object, Err(Errno::ENOENT)), []);
    // Files that are created meanwhile have other numbers.
    let object = put(&mut node, OTHER, 4);
    node.step(Now::default(), Input::Connected(third, root(false)), &mut Vec::new());
    call(&mut node, third, 1, hello(Some(InstanceId(7))));
    let made = replies(&call(&mut node, third, 2, put_file("other")));
    assert!(matches!(&made[..], [Reply::Attr(attr)] if attr.ino != object.ino));
    let done = synced(&mut node, object, Ok(()));
    assert!(matches!(&done[..], [Reply::Attr(attr)] if attr.ino == object.ino));
    count_records(&mut node);
    node.step(Now::default(), Input::LogSynced(records.get()), &mut Vec::new());
    assert_eq!(objects.list_objects(InstanceId(7)).unwrap().len(), 2, "the old data are removed");
}

/// The data may have changed since the sync in progress began.
#[test]
fn rename_during_a_sync_waits_for_another_one() {
    let (mut node, _, object, _) = with_durable_checksums();
    let third = ConnId(3);
    node.step(Now::default(), Input::Connected(third, root(false)), &mut Vec::new());
    call(&mut node, third, 1, hello(Some(InstanceId(7))));
    call(&mut node, OTHER, 3, put_file("one"));
    call(&mut node, OTHER, 4, put_file("two"));
    let link = NameRequest::Link { ino: object.ino, parent: Ino::ROOT, name: b"alias".to_vec() };
    call(&mut node, OTHER, 5, Request::Name(link));
    let rename = |name: &[u8], to_name: &[u8]| {
        Request::Name(NameRequest::Rename {
            parent: Ino::ROOT,
            name: name.to_vec(),
            to: Ino::ROOT,
            to_name: to_name.to_vec(),
            existing: OnExisting::Replace,
        })
    };
    let syncs = |effects: &[Effect<ObjectId>]| {
        effects.iter().any(|effect| matches!(effect, Effect::SyncObject(of) if *of == object))
    };
    let first = call(&mut node, OTHER, 6, rename(b"file", b"one"));
    assert!(syncs(&first) && replies(&first).is_empty());
    let second = call(&mut node, third, 2, rename(b"alias", b"two"));
    assert!(!syncs(&second) && replies(&second).is_empty());
    for has_next in [true, false] {
        let mut effects = Vec::new();
        node.step(Now::default(), Input::ObjectSynced(object, Ok(())), &mut effects);
        assert_eq!(replies(&effects), [Reply::Done]);
        assert_eq!(syncs(&effects), has_next);
    }
}

/// A restarted node that has no space for the request, the sequence number of which is 9, while it keeps a
/// removed file. The client that had it open has returned. `absent`: another one has not, of this instance (7)
/// or of another one.
fn full_after_restart(absent: Option<InstanceId>) -> (Node<MemoryObjects>, Request) {
    let objects = MemoryObjects::default();
    let mut node = start_with(objects.clone(), false);
    call(&mut node, CONN, 1, hello(None));
    let spec = InstanceSpec { capacity: 200 << 10, ..spec(Placement::single_node()) };
    let other = InstanceSpec { id: InstanceId(8), ..spec.clone() };
    call(&mut node, CONN, 2, Request::Admin(AdminRequest::CreateInstance(spec)));
    call(&mut node, CONN, 3, Request::Admin(AdminRequest::CreateInstance(other)));
    if absent.is_some() {
        let conn = ConnId(3);
        node.step(Now::default(), Input::Connected(conn, root(false)), &mut Vec::new());
        call(&mut node, conn, 1, hello(absent));
    }
    let token = attach_other(&mut node);
    let put = |name: &[u8]| {
        Request::Name(NameRequest::PutFile {
            parent: Ino::ROOT,
            name: name.to_vec(),
            set: Box::new(SetAttr::default()),
            data: vec![1; 64 << 10],
        })
    };
    let made = [(2, b"removed"), (3, b"kept-by"), (4, b"another")]
        .map(|(seq, name)| replies(&call(&mut node, OTHER, seq, put(name))).remove(0));
    let Reply::Attr(removed) = &made[0] else {
        panic!("{made:?}");
    };
    let open = Request::File(FileRequest::Open {
        ino: removed.ino,
        handle: HandleId(1),
        open: OpenMode { read: true, ..OpenMode::default() },
    });
    assert!(matches!(replies(&call(&mut node, OTHER, 5, open))[..], [Reply::Opened { .. }]));
    let unlink =
        Request::Name(NameRequest::Unlink { parent: Ino::ROOT, name: b"removed".to_vec() });
    call(&mut node, OTHER, 6, unlink);
    assert_eq!(replies(&call(&mut node, OTHER, 7, put(b"new"))), [Reply::Failed(Errno::ENOSPC)]);

    let now = Now::default();
    let limits = Limits { lease_ns: 60_000_000_000, ..Limits::default() };
    let mut node = Node::start(node.snapshot(), 0, objects, limits, now, [2; 32]).unwrap();
    node.step(now, Input::Connected(OTHER, root(false)), &mut Vec::new());
    let joining = Attach { token: Some(token), ..greeting(Some(InstanceId(7))) };
    call(&mut node, OTHER, 7, Request::Session(SessionRequest::Attach(joining)));
    // It has returned.
    let stat = Request::Inode(InodeRequest::StatFs);
    assert_eq!(replies(&call(&mut node, OTHER, 8, stat)).len(), 1);
    (node, put(b"new"))
}

fn replies_at(node: &mut Node<MemoryObjects>, now: Now) -> Vec<Reply> {
    let mut effects = Vec::new();
    node.step(now, Input::Tick, &mut effects);
    replies(&effects)
}

#[test]
fn request_waits_for_the_space_of_a_removed_file_until_that_is_dropped() {
    let (mut node, request) = full_after_restart(None);
    assert_eq!(replies(&call(&mut node, OTHER, 9, request)), []);
    let replies = replies_at(&mut node, Now::default());
    assert!(matches!(replies[..], [Reply::Attr(_)]), "{replies:?}");
}

#[test]
fn request_does_not_wait_for_absent_clients_of_other_instances() {
    let (mut node, request) = full_after_restart(Some(InstanceId(8)));
    assert_eq!(replies(&call(&mut node, OTHER, 9, request)), []);
    let after = replies_at(&mut node, Now::default());
    assert!(matches!(after[..], [Reply::Attr(_)]), "{after:?}");
    // A file that is removed now does not keep its space.
    let unlink =
        Request::Name(NameRequest::Unlink { parent: Ino::ROOT, name: b"another".to_vec() });
    call(&mut node, OTHER, 10, unlink);
    let put = NameRequest::PutFile {
        parent: Ino::ROOT,
        name: b"newer".to_vec(),
        set: Box::new(SetAttr::default()),
        data: vec![1; 64 << 10],
    };
    let after = replies(&call(&mut node, OTHER, 11, Request::Name(put)));
    assert!(matches!(after[..], [Reply::Attr(_)]), "{after:?}");
}

#[test]
fn request_waits_for_the_space_of_a_removed_file_until_the_leases_of_absent_clients_expire() {
    let (mut node, request) = full_after_restart(Some(InstanceId(7)));
    assert_eq!(replies(&call(&mut node, OTHER, 9, request)), []);
    assert_eq!(replies_at(&mut node, at_second(59)), []);
    let replies = replies_at(&mut node, at_second(61));
    assert!(matches!(replies[..], [Reply::Attr(_)]), "{replies:?}");
}

#[test]
fn request_that_must_not_take_long_waits_for_a_short_time_for_space_of_absent_clients() {
    let (mut node, _) = full_after_restart(Some(InstanceId(7)));
    let request = Request::Inode(InodeRequest::SetXattr {
        ino: Ino::ROOT,
        name: b"user.large".to_vec(),
        value: vec![1; 32 << 10],
        mode: XattrMode::Any,
    });
    assert_eq!(replies(&call(&mut node, OTHER, 9, request)), []);
    assert_eq!(replies_at(&mut node, at_second(2)), []);
    assert_eq!(node.next_deadline_ns(), Some(at_second(3).steady_ns));
    assert_eq!(replies_at(&mut node, at_second(3)), [Reply::Failed(Errno::ENOSPC)]);
}

/// A repeated request opens its handle again if that was closed meanwhile.
#[test]
fn repeated_open_for_writing_waits_until_others_cache_nothing() {
    let mut node = start();
    call(&mut node, CONN, 1, hello(None));
    let create = AdminRequest::CreateInstance(spec(Placement::single_node()));
    call(&mut node, CONN, 2, Request::Admin(create));
    let attach = |node: &mut Node<MemoryObjects>, conn, attach| {
        node.step(Now::default(), Input::Connected(conn, root(false)), &mut Vec::new());
        let hello = Request::Session(SessionRequest::Attach(attach));
        let welcome = replies(&call(node, conn, 1, hello));
        let [Reply::Attached { token, .. }] = welcome[..] else {
            panic!("{welcome:?}");
        };
        Some(token)
    };
    let greeting = || greeting(Some(InstanceId(7)));
    let (writer, closer, cacher, watcher) = (ConnId(3), ConnId(4), ConnId(5), ConnId(6));
    let token = attach(&mut node, writer, greeting());
    attach(&mut node, closer, Attach { token, slot: 1, ..greeting() });
    let token = attach(&mut node, cacher, Attach { single_cache: true, ..greeting() });
    let slot = EVENT_SLOT;
    attach(&mut node, watcher, Attach { token, slot, single_cache: true, ..greeting() });
    let create = Request::Name(NameRequest::Create {
        parent: Ino::ROOT,
        name: b"file".to_vec(),
        mode: 0o644.into(),
        exclusive: false,
        handle: HandleId(1),
        open: OpenMode { write: true, ..OpenMode::default() },
    });
    let opened = replies(&call(&mut node, writer, 2, create.clone()));
    let [Reply::Opened { attr, .. }] = &opened[..] else {
        panic!("{opened:?}");
    };
    let close = FileRequest::CloseAll { handles: vec![HandleId(1)] };
    assert_eq!(replies(&call(&mut node, closer, 2, Request::File(close))), [Reply::Done]);
    let (known, returned, cache) = (Vec::new(), Vec::new(), CacheRecall::Obeyed);
    let watch = Request::Lock(LockRequest::AwaitEvents { known, returned, cache });
    assert!(replies(&call(&mut node, watcher, 2, watch)).is_empty());
    let stat = Request::Inode(InodeRequest::GetAttr { ino: attr.ino });
    let seen = call(&mut node, cacher, 2, stat);
    let is_cacheable =
        |effect: &Effect<ObjectId>| matches!(effect, Effect::Reply { cacheable, .. } if *cacheable);
    assert!(seen.iter().any(is_cacheable), "{seen:?}");

    let recalled = replies(&call(&mut node, writer, 2, create));
    assert!(
        matches!(&recalled[..], [Reply::Events { recalled_cache: Some(_), .. }]),
        "{recalled:?}"
    );
    // The client does not answer.
    let mut effects = Vec::new();
    node.step(at_second(10), Input::Tick, &mut effects);
    assert!(matches!(replies(&effects)[..], [Reply::Opened { .. }]), "{effects:?}");
}

/// On several nodes, where nothing else makes the request wait: a client may still read under a lease that the
/// node has forgotten.
#[test]
fn change_of_a_file_waits_until_leases_from_before_a_restart_have_expired() {
    let objects = MemoryObjects::default();
    let mut node = start_with(objects.clone(), false);
    call(&mut node, CONN, 1, hello(None));
    let peers = ["/0".to_owned(), "/1".to_owned()];
    let place = Placement::distributed(4096, &peers, [7; 32]).remove(0);
    call(&mut node, CONN, 2, Request::Admin(AdminRequest::CreateInstance(spec(place))));
    let token = attach_other(&mut node);
    let ino = make_file(&mut node);
    let opening =
        |handle, open| Request::File(FileRequest::Open { ino, handle: HandleId(handle), open });
    call(&mut node, OTHER, 3, opening(1, OpenMode { read: true, ..OpenMode::default() }));
    let lease = Request::Lock(LockRequest::Lease { handles: vec![HandleId(1)] });
    let granted = replies(&call(&mut node, OTHER, 4, lease));
    assert!(matches!(&granted[..], [Reply::Leases(leases)] if leases[0].is_some()), "{granted:?}");

    let (now, limits) = (Now::default(), Limits::default());
    let mut node = Node::start(node.snapshot(), 0, objects, limits, now, [2; 32]).unwrap();
    node.step(now, Input::Connected(OTHER, root(false)), &mut Vec::new());
    let joining = Attach { token: Some(token), ..greeting(Some(InstanceId(7))) };
    call(&mut node, OTHER, 4, Request::Session(SessionRequest::Attach(joining)));
    let open = opening(2, OpenMode { write: true, ..OpenMode::default() });
    assert_eq!(replies(&call(&mut node, OTHER, 5, open)), []);
    assert_eq!(replies_at(&mut node, at_second(1)), []);
    let opened = replies_at(&mut node, at_second(10));
    assert!(matches!(opened[..], [Reply::Opened { .. }]), "{opened:?}");
}
