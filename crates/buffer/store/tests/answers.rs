//! What is answered when: not before it is durable, and not never.
#![allow(clippy::unwrap_used, reason = "what cannot be unwrapped has failed")]

use forebay_store::objects::{MemoryObjects, ObjectId};
use forebay_store::shard::{ConnId, Effect, Input, Limits, Now, Shard, State};
use forebay_wire::auth::Peer;
use forebay_wire::message::{Hello, InstanceSpec, New, OpenMode, PROTOCOL, SetAttr};
use forebay_wire::place::Place;
use forebay_wire::{Call, Errno, HandleId, Ino, InstanceId, Kind, Reply, Request};

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
    let state = State::default();
    let (now, limits) = (Now::default(), Limits::default());
    let mut shard = Shard::start(state, 0, objects, limits, None, now, [1; 32]).unwrap();
    shard.set_boot(5);
    let root = Peer {
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

fn hello(instance: Option<InstanceId>) -> Request {
    Request::Hello(Hello {
        version: PROTOCOL,
        instance,
        resume: None,
        slot: 0,
        bulk: false,
        caches: false,
    })
}

fn spec(place: Place) -> InstanceSpec {
    InstanceSpec {
        id: InstanceId(7),
        uid: 0,
        gid: 0,
        mode: 0o755,
        capacity: 1 << 20,
        inodes: 10,
        place,
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
        matches!(reply, Reply::Welcome { boot: 5, .. })
    };
    assert!(welcome.iter().any(told));

    let remove = Request::RemoveInstance {
        id: InstanceId(7),
        force: false,
    };
    let requests = [
        (2, Request::CreateInstance(spec(Place::alone()))),
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
    let place = Place::spread(4096, &peers).unwrap().remove(0);
    say(&mut shard, CONN, 2, Request::CreateInstance(spec(place)));
    say(&mut shard, OTHER, 1, hello(Some(InstanceId(7))));
    shard
}

fn make(name: &str, new: New) -> Request {
    Request::Make {
        parent: Ino::ROOT,
        name: name.as_bytes().to_vec(),
        new,
        mode: 0o755,
    }
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
            steady: second * 1_000_000_000,
            ..Now::default()
        };
        let mut effects = Vec::new();
        shard.step(now, Input::Tick, &mut effects);
        assert_eq!(replies(&effects), expected);
    }
}

#[test]
fn who_waits_for_an_object_on_a_node_that_never_answers_is_told_to_try_again() {
    let mut shard = start_beside_nobody();
    let made = say(&mut shard, OTHER, 2, make("f", New::Node(Kind::File, 0)));
    let [Reply::Attr(attr)] = replies(&made)[..] else {
        panic!("{made:?}");
    };
    let set = SetAttr {
        size: Some(10_000),
        ..SetAttr::default()
    };
    let request = Request::SetAttr {
        ino: attr.ino,
        handle: None,
        set,
    };
    assert_eq!(replies(&say(&mut shard, OTHER, 3, request)), []);
    is_given_back(&mut shard);
}

#[test]
fn who_waits_for_a_directory_on_a_node_that_never_answers_is_told_to_try_again() {
    let mut shard = start_beside_nobody();
    let mut seq = 1;
    let there = (0..20).find(|number| {
        seq += 1;
        let request = make(&format!("d{number}"), New::Dir);
        replies(&say(&mut shard, OTHER, seq, request)).is_empty()
    });
    let name = format!("d{}", there.unwrap());
    is_given_back(&mut shard);
    // Nothing is left of it, neither the name nor what kept others from it.
    let lookup = Request::Lookup {
        parent: Ino::ROOT,
        name: name.into_bytes(),
    };
    let found = say(&mut shard, OTHER, seq + 1, lookup);
    assert_eq!(replies(&found), [Reply::Failed(Errno::ENOENT)]);
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
        Request::CreateInstance(spec(Place::alone())),
    );
    say(&mut shard, OTHER, 1, hello(Some(InstanceId(7))));
    let put = Request::Put {
        parent: Ino::ROOT,
        name: b"file".to_vec(),
        set: Box::new(SetAttr::default()),
        data: b"some bytes".to_vec(),
    };
    let made = replies(&say(&mut shard, OTHER, 2, put));
    let [Reply::Attr(attr)] = &made[..] else {
        panic!("{made:?}");
    };
    let object = ObjectId {
        instance: InstanceId(7),
        ino: attr.ino,
    };
    objects.put_to_rest(object);
    let open = Request::Open {
        ino: attr.ino,
        handle: HandleId(1),
        open: OpenMode {
            write: true,
            descriptor: true,
            ..OpenMode::default()
        },
    };
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
        Input::Unsealed(object, result),
        &mut effects,
    );
    effects
}

#[test]
fn an_object_at_rest_is_handed_out_when_its_checksums_are_off() {
    let (mut shard, objects, object, open) = at_rest();
    let asked = |effects: &[Effect<ObjectId>]| {
        let asks =
            |effect: &&Effect<ObjectId>| matches!(effect, Effect::Unseal(of) if *of == object);
        (effects.iter().filter(asks).count(), replies(effects).len())
    };
    assert_eq!(asked(&say(&mut shard, OTHER, 3, open.clone())), (1, 0));
    // Others are served meanwhile.
    let stat = Request::GetAttr { ino: object.ino };
    assert_eq!(asked(&say(&mut shard, OTHER, 4, stat)), (0, 1));
    // It failed: whoever waits is told, and may try again.
    let failed = unsealed(&mut shard, object, Err(Errno::EIO));
    assert_eq!(replies(&failed), [Reply::Failed(Errno::EIO)]);
    let cut = Request::SetAttr {
        ino: object.ino,
        handle: None,
        set: SetAttr {
            size: Some(3),
            ..SetAttr::default()
        },
    };
    assert_eq!(asked(&say(&mut shard, OTHER, 5, open)), (1, 0));
    assert_eq!(asked(&say(&mut shard, OTHER, 6, cut)), (0, 0));
    objects.unseal(object);
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
    objects.unseal(object);
    assert!(unsealed(&mut shard, object, Ok(())).is_empty());
}
