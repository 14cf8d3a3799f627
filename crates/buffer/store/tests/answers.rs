//! What is answered when: not before it is durable, and not never.
#![allow(clippy::unwrap_used, reason = "what cannot be unwrapped has failed")]

use forebay_store::objects::{MemoryObjects, ObjectId};
use forebay_store::shard::{ConnId, Effect, Input, Limits, Now, Shard, State};
use forebay_wire::auth::Peer;
use forebay_wire::message::{Hello, InstanceSpec, New, PROTOCOL, SetAttr};
use forebay_wire::place::Place;
use forebay_wire::{Call, Errno, Ino, InstanceId, Kind, Reply, Request};

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
    let (state, objects) = (State::default(), MemoryObjects::default());
    let (now, limits) = (Now::default(), Limits::default());
    let mut shard = Shard::start(state, 0, objects, limits, None, now, [1; 32]).unwrap();
    shard.set_boot(5);
    let root = Peer {
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        trusted: true,
        local: false,
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

#[test]
fn who_waits_for_a_node_that_never_answers_is_told_to_try_again() {
    let mut shard = start();
    say(&mut shard, CONN, 1, hello(None));
    let peers = ["/0".to_owned(), "/1".to_owned()];
    let place = Place::spread(4096, &peers).unwrap().remove(0);
    say(&mut shard, CONN, 2, Request::CreateInstance(spec(place)));
    say(&mut shard, OTHER, 1, hello(Some(InstanceId(7))));
    let make = Request::Make {
        parent: Ino::ROOT,
        name: b"f".to_vec(),
        new: New::Node(Kind::File, 0),
        mode: 0o644,
    };
    let made = say(&mut shard, OTHER, 2, make);
    let ino = made.iter().find_map(|effect| match effect {
        Effect::Reply {
            reply: Reply::Attr(attr),
            ..
        } => Some(attr.ino),
        _ => None,
    });
    let set = SetAttr {
        size: Some(10_000),
        ..SetAttr::default()
    };
    let request = Request::SetAttr {
        ino: ino.unwrap(),
        handle: None,
        set,
    };
    let replied = |effects: &[Effect<ObjectId>]| {
        let replies = effects.iter().filter_map(|effect| match effect {
            Effect::Reply { reply, .. } => Some(reply.clone()),
            _ => None,
        });
        replies.collect::<Vec<_>>()
    };
    assert_eq!(replied(&say(&mut shard, OTHER, 3, request)), []);
    for (second, expected) in [(10, vec![]), (30, vec![Reply::Failed(Errno::EAGAIN)])] {
        let now = Now {
            steady: second * 1_000_000_000,
            ..Now::default()
        };
        let mut effects = Vec::new();
        shard.step(now, Input::Tick, &mut effects);
        assert_eq!(replied(&effects), expected);
    }
}
