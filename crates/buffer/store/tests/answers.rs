//! What is answered when: not before it is durable, and not never.
#![allow(clippy::unwrap_used, reason = "what cannot be unwrapped has failed")]

use forebay_protocol::identity::PeerIdentity;
use forebay_protocol::message::{
    AdminRequest, FileRequest, InodeRequest, NameRequest, SessionRequest,
};
use forebay_protocol::message::{
    Attach, InstanceSpec, NewInode, OnExisting, OpenMode, PROTOCOL_VERSION, SessionToken, SetAttr,
};
use forebay_protocol::peer::{Incarnation, PeerMessage, PeerPayload, Step, StepResult, TxId};
use forebay_protocol::placement::Placement;
use forebay_protocol::{
    Call, Errno, FileKind, HandleId, Ino, InstanceId, NodeIndex, Reply, Request, SessionId,
    Timestamp,
};
use forebay_store::node::{ConnId, Effect, Input, Limits, NodeState, Now, Shard};
use forebay_store::objects::{MemoryObjects, ObjectId};

const CONN: ConnId = ConnId(1);
const OTHER: ConnId = ConnId(2);

fn say(
    shard: &mut Shard<MemoryObjects>,
    conn: ConnId,
    seq: u64,
    request: Request,
) -> Vec<Effect<ObjectId>> {
    let mut effects = Vec::new();
    let call = Call {
        seq,
        caller: None,
        request,
    };
    shard.step(Now::default(), Input::Call(conn, call), &mut effects);
    effects
}

fn start() -> Shard<MemoryObjects> {
    start_with(MemoryObjects::default(), false)
}

/// With these objects, and clients on the daemon's host or not.
fn start_with(objects: MemoryObjects, local: bool) -> Shard<MemoryObjects> {
    let state = NodeState::default();
    let (now, limits) = (Now::default(), Limits::default());
    let mut shard = Shard::start(state, 0, objects, limits, None, now, [1; 32]).unwrap();
    shard.set_boot_id(5);
    let root = PeerIdentity {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        trusted: true,
        local,
    };
    for conn in [CONN, OTHER] {
        shard.step(now, Input::Connected(conn, root.clone()), &mut Vec::new());
    }
    shard
}

fn greeting(instance: Option<InstanceId>) -> Attach {
    Attach {
        version: PROTOCOL_VERSION,
        instance,
        token: None,
        slot: 0,
        data_connection: false,
        single_cache: false,
    }
}

fn hello(instance: Option<InstanceId>) -> Request {
    Request::Session(SessionRequest::Attach(greeting(instance)))
}

fn spec(place: Placement) -> InstanceSpec {
    InstanceSpec {
        id: InstanceId(7),
        uid: 0,
        gid: 0,
        mode: 0o755,
        capacity: 1 << 20,
        inodes: 10,
        placement: place,
    }
}

#[test]
fn instances_are_made_and_removed_durably_before_that_is_answered() {
    let mut shard = start();
    let welcome = say(&mut shard, CONN, 1, hello(None));
    let told = |effect: &Effect<ObjectId>| {
        let Effect::Reply { reply, .. } = effect else {
            return false;
        };
        matches!(reply, Reply::Attached { boot: 5, .. })
    };
    assert!(welcome.iter().any(told));

    let remove = Request::Admin(AdminRequest::RemoveInstance {
        id: InstanceId(7),
        force: false,
    });
    let requests = [
        (
            2,
            Request::Admin(AdminRequest::CreateInstance(spec(Placement::single_node()))),
        ),
        (3, remove),
    ];
    for (seq, request) in requests {
        // The second time it is a repetition, which must not be answered earlier.
        for _ in 0..2 {
            let effects = say(&mut shard, CONN, seq, request.clone());
            let synced = |effect: &Effect<ObjectId>| matches!(effect, Effect::Sync { .. });
            let answered = |effect: &Effect<ObjectId>| matches!(effect, Effect::Reply { .. });
            assert!(effects.iter().any(synced) && !effects.iter().any(answered));
        }
    }
}

/// Somebody is attached to an instance on two nodes, the other of which is never heard of.
fn start_beside_nobody() -> Shard<MemoryObjects> {
    let mut shard = start();
    say(&mut shard, CONN, 1, hello(None));
    let peers = ["/0".to_owned(), "/1".to_owned()];
    let place = Placement::distributed(4096, &peers).unwrap().remove(0);
    say(
        &mut shard,
        CONN,
        2,
        Request::Admin(AdminRequest::CreateInstance(spec(place))),
    );
    say(&mut shard, OTHER, 1, hello(Some(InstanceId(7))));
    shard
}

fn make(name: &str, new: NewInode) -> Request {
    Request::Name(NameRequest::Mknod {
        parent: Ino::ROOT,
        name: name.as_bytes().to_vec(),
        new,
        mode: 0o755,
    })
}

fn replies(effects: &[Effect<ObjectId>]) -> Vec<Reply> {
    let replies = effects.iter().filter_map(|effect| match effect {
        Effect::Reply { reply, .. } => Some(reply.clone()),
        _ => None,
    });
    replies.collect()
}

/// A call that is under way is not answered for a while, and then so that it is tried again.
#[track_caller]
fn is_given_back(shard: &mut Shard<MemoryObjects>) {
    for (second, expected) in [(10, vec![]), (30, vec![Reply::Failed(Errno::EAGAIN)])] {
        let now = Now {
            steady_ns: second * 1_000_000_000,
            ..Now::default()
        };
        let mut effects = Vec::new();
        shard.step(now, Input::Tick, &mut effects);
        assert_eq!(replies(&effects), expected);
    }
}

/// A file gets another length, which concerns the other node.
fn cut_a_file(shard: &mut Shard<MemoryObjects>) {
    let made = say(
        shard,
        OTHER,
        2,
        make("f", NewInode::Node(FileKind::File, 0)),
    );
    let [Reply::Attr(attr)] = replies(&made)[..] else {
        panic!("{made:?}");
    };
    let set = SetAttr {
        size: Some(10_000),
        ..SetAttr::default()
    };
    let request = Request::Inode(InodeRequest::SetAttr {
        ino: attr.ino,
        handle: None,
        set,
    });
    assert_eq!(replies(&say(shard, OTHER, 3, request)), []);
}

#[test]
fn who_waits_for_an_object_on_a_node_that_never_answers_is_told_to_try_again() {
    let mut shard = start_beside_nobody();
    cut_a_file(&mut shard);
    is_given_back(&mut shard);
}

#[test]
fn who_waits_for_a_directory_on_a_node_that_never_answers_is_told_to_try_again() {
    let mut shard = start_beside_nobody();
    let mut seq = 1;
    let there = (0..20).find(|number| {
        seq += 1;
        let request = make(&format!("d{number}"), NewInode::Dir);
        replies(&say(&mut shard, OTHER, seq, request)).is_empty()
    });
    let name = format!("d{}", there.unwrap());
    is_given_back(&mut shard);
    // Nothing is left of it, neither the name nor what kept others from it.
    let lookup = Request::Name(NameRequest::Lookup {
        parent: Ino::ROOT,
        name: name.into_bytes(),
    });
    let found = say(&mut shard, OTHER, seq + 1, lookup);
    assert_eq!(replies(&found), [Reply::Failed(Errno::ENOENT)]);
}

/// What the other node says, which knows this one's start.
fn hear(
    shard: &mut Shard<MemoryObjects>,
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
    };
    self::say(shard, CONN, 100 + number, Request::Peer(Box::new(message)))
}

/// This node's start, as the other one is told.
fn incarnation(shard: &mut Shard<MemoryObjects>) -> Incarnation {
    let mut effects = Vec::new();
    let now = Now {
        steady_ns: 1_000_000_000,
        ..Now::default()
    };
    shard.step(now, Input::Tick, &mut effects);
    let sender = effects.iter().find_map(|effect| match effect {
        Effect::SendToPeer { message, .. } => Some(message.sender),
        _ => None,
    });
    sender.unwrap()
}

/// The other node has had this one get ready to give a name away, and is not heard of again.
fn keep_a_name(shard: &mut Shard<MemoryObjects>, name: &str) {
    let own = incarnation(shard);
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
        who: forebay_protocol::Credentials {
            uid: 0,
            gid: 0,
            groups: Some(Vec::new()),
            checked: true,
        },
        now: Timestamp::default(),
        steps: vec![step],
    };
    hear(shard, own, 1, prepare);
}

fn look(name: &str) -> Request {
    Request::Name(NameRequest::Lookup {
        parent: Ino::ROOT,
        name: name.as_bytes().to_vec(),
    })
}

#[test]
fn who_waits_for_what_a_node_that_never_answers_keeps_is_told_to_try_again() {
    let mut shard = start_beside_nobody();
    keep_a_name(&mut shard, "kept");
    assert_eq!(replies(&say(&mut shard, OTHER, 2, look("kept"))), []);
    is_given_back(&mut shard);
    // It is kept all the same: whoever asks again waits again.
    assert_eq!(replies(&say(&mut shard, OTHER, 3, look("kept"))), []);
}

#[test]
fn who_waits_when_an_instance_goes_is_told() {
    let mut shard = start_beside_nobody();
    keep_a_name(&mut shard, "kept");
    assert_eq!(replies(&say(&mut shard, OTHER, 2, look("kept"))), []);
    let remove = Request::Admin(AdminRequest::RemoveInstance {
        id: InstanceId(7),
        force: true,
    });
    let told = replies(&say(&mut shard, CONN, 3, remove));
    assert_eq!(told, [Reply::Failed(Errno::ESTALE)]);
    // The same for a transaction of this node's own, and for an object on the other one.
    let mut shard = start_beside_nobody();
    let mut requests = (2..22).map(|seq| (seq, make(&format!("d{seq}"), NewInode::Dir)));
    let waits = requests.any(|(seq, make)| replies(&say(&mut shard, OTHER, seq, make)).is_empty());
    assert!(waits);
    let remove = || {
        Request::Admin(AdminRequest::RemoveInstance {
            id: InstanceId(7),
            force: true,
        })
    };
    let told = replies(&say(&mut shard, CONN, 3, remove()));
    assert_eq!(told, [Reply::Failed(Errno::ESTALE)]);
    let mut shard = start_beside_nobody();
    cut_a_file(&mut shard);
    let told = replies(&say(&mut shard, CONN, 3, remove()));
    assert_eq!(told, [Reply::Failed(Errno::ESTALE)]);
}

#[test]
fn who_waits_for_the_end_of_what_is_decided_is_told_that_it_is_not_known() {
    let mut shard = start_beside_nobody();
    let own = incarnation(&mut shard);
    hear(&mut shard, own, 1, PeerPayload::ProbeAck);
    let asked = (2..22).find_map(|seq| {
        let effects = say(
            &mut shard,
            OTHER,
            seq,
            make(&format!("d{seq}"), NewInode::Dir),
        );
        effects.iter().find_map(|effect| match effect {
            Effect::SendToPeer { message, .. } => match &message.payload {
                PeerPayload::Prepare {
                    tx, round: wave, ..
                } => Some((seq, *tx, *wave)),
                _ => None,
            },
            _ => None,
        })
    });
    let (seq, tx, wave) = asked.unwrap();
    let found = Ok(vec![StepResult::Inode(Ino(1 << 48 | 9), FileKind::Dir)]);
    hear(
        &mut shard,
        own,
        2,
        PeerPayload::Vote {
            tx,
            round: wave,
            found,
        },
    );
    shard.step(Now::default(), Input::LogSynced(u64::MAX), &mut Vec::new());
    // It has happened here, and the other node is not heard of again. The client's connection breaks,
    // and another one repeats the request.
    let again = ConnId(3);
    let root = PeerIdentity {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        trusted: true,
        local: false,
    };
    for (conn, second) in [(OTHER, 0), (again, 70)] {
        let at = |second: u64| Now {
            steady_ns: second * 1_000_000_000,
            ..Now::default()
        };
        if conn == again {
            let connected = Input::Connected(again, root.clone());
            shard.step(at(second), connected, &mut Vec::new());
            let hello = Request::Session(SessionRequest::Attach(Attach {
                token: Some(SessionToken {
                    session: SessionId(2),
                    secret: shard.state().sessions[&SessionId(2)].secret,
                }),
                ..greeting(Some(InstanceId(7)))
            }));
            let call = |seq, request| Call {
                seq,
                caller: None,
                request,
            };
            let mut effects = Vec::new();
            let greeted = Input::Call(again, call(seq, hello));
            shard.step(at(second), greeted, &mut effects);
            assert!(matches!(replies(&effects)[..], [Reply::Attached { .. }]));
            effects.clear();
            let repeated = call(seq, make(&format!("d{seq}"), NewInode::Dir));
            shard.step(at(second), Input::Call(again, repeated), &mut effects);
            assert_eq!(replies(&effects), []);
        }
        for (later, expected) in [(50, vec![]), (65, vec![Reply::Failed(Errno::EIO)])] {
            let mut effects = Vec::new();
            shard.step(at(second + later), Input::Tick, &mut effects);
            assert_eq!(replies(&effects), expected);
        }
    }
}

#[test]
fn that_a_file_is_gone_is_said_to_other_nodes_when_it_is_durable() {
    let mut shard = start_beside_nobody();
    let own = incarnation(&mut shard);
    let made = say(
        &mut shard,
        OTHER,
        2,
        make("f", NewInode::Node(FileKind::File, 0)),
    );
    let [Reply::Attr(attr)] = replies(&made)[..] else {
        panic!("{made:?}");
    };
    let unlink = Request::Name(NameRequest::Unlink {
        parent: Ino::ROOT,
        name: b"f".to_vec(),
    });
    assert_eq!(replies(&say(&mut shard, OTHER, 3, unlink)), [Reply::Done]);
    // The other node has an object of it, which synced data may lie in: a power cut here could still
    // bring the file back.
    let told = |effects: &[Effect<ObjectId>]| {
        effects.iter().any(|effect| match effect {
            Effect::SendToPeer { message, .. } => {
                matches!(&message.payload, PeerPayload::OrphansChecked { removed, .. } if *removed == [attr.ino])
            }
            _ => false,
        })
    };
    assert!(!told(&hear(
        &mut shard,
        own,
        1,
        PeerPayload::CheckOrphans(vec![attr.ino])
    )));
    let mut effects = Vec::new();
    shard.step(Now::default(), Input::LogSynced(u64::MAX), &mut effects);
    assert!(told(&effects));
    assert!(told(&hear(
        &mut shard,
        own,
        2,
        PeerPayload::CheckOrphans(vec![attr.ino])
    )));
}

/// A file with an object at rest, which somebody wants to write to.
fn at_rest() -> (Shard<MemoryObjects>, MemoryObjects, ObjectId, Request) {
    let objects = MemoryObjects::default();
    let mut shard = start_with(objects.clone(), true);
    say(&mut shard, CONN, 1, hello(None));
    say(
        &mut shard,
        CONN,
        2,
        Request::Admin(AdminRequest::CreateInstance(spec(Placement::single_node()))),
    );
    say(&mut shard, OTHER, 1, hello(Some(InstanceId(7))));
    let put = Request::Name(NameRequest::PutFile {
        parent: Ino::ROOT,
        name: b"file".to_vec(),
        set: Box::new(SetAttr::default()),
        data: b"some bytes".to_vec(),
    });
    let made = replies(&say(&mut shard, OTHER, 2, put));
    let [Reply::Attr(attr)] = &made[..] else {
        panic!("{made:?}");
    };
    let object = ObjectId {
        instance: InstanceId(7),
        ino: attr.ino,
    };
    objects.add_durable_checksums(object);
    let open = Request::File(FileRequest::Open {
        ino: attr.ino,
        handle: HandleId(1),
        open: OpenMode {
            write: true,
            descriptor: true,
            ..OpenMode::default()
        },
    });
    (shard, objects, object, open)
}

fn unsealed(
    shard: &mut Shard<MemoryObjects>,
    object: ObjectId,
    result: Result<(), Errno>,
) -> Vec<Effect<ObjectId>> {
    let mut effects = Vec::new();
    shard.step(
        Now::default(),
        Input::ChecksumsInvalidated(object, result),
        &mut effects,
    );
    effects
}

#[test]
fn an_object_at_rest_is_handed_out_when_its_checksums_are_off() {
    let (mut shard, objects, object, open) = at_rest();
    let asked = |effects: &[Effect<ObjectId>]| {
        let asks = |effect: &&Effect<ObjectId>| matches!(effect, Effect::InvalidateChecksums(of) if *of == object);
        (effects.iter().filter(asks).count(), replies(effects).len())
    };
    assert_eq!(asked(&say(&mut shard, OTHER, 3, open.clone())), (1, 0));
    // Others are served meanwhile.
    let stat = Request::Inode(InodeRequest::GetAttr { ino: object.ino });
    assert_eq!(asked(&say(&mut shard, OTHER, 4, stat)), (0, 1));
    // It failed: whoever waits is told, and may try again.
    let failed = unsealed(&mut shard, object, Err(Errno::EIO));
    assert_eq!(replies(&failed), [Reply::Failed(Errno::EIO)]);
    let cut = Request::Inode(InodeRequest::SetAttr {
        ino: object.ino,
        handle: None,
        set: SetAttr {
            size: Some(3),
            ..SetAttr::default()
        },
    });
    assert_eq!(asked(&say(&mut shard, OTHER, 5, open)), (1, 0));
    assert_eq!(asked(&say(&mut shard, OTHER, 6, cut)), (0, 0));
    objects.invalidate_checksums(object);
    let opened = replies(&unsealed(&mut shard, object, Ok(())));
    assert!(
        matches!(&opened[..], [Reply::Opened { .. }, Reply::Attr(attr)] if attr.size == 3),
        "{opened:?}"
    );
}

#[test]
fn nobody_is_answered_who_has_gone_while_checksums_were_taken_off() {
    let (mut shard, objects, object, open) = at_rest();
    say(&mut shard, OTHER, 3, open);
    shard.step(Now::default(), Input::Disconnected(OTHER), &mut Vec::new());
    objects.invalidate_checksums(object);
    assert!(unsealed(&mut shard, object, Ok(())).is_empty());
}
