//! Batches: which are refused, and what is remembered of those that were carried out.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use forebay_protocol::message::{
    AdminRequest, BATCH_SLOTS, BatchRequest, FIRST_BATCH_SLOT, FileRequest, MAX_BATCH_REQUESTS,
    NameRequest, NewInode, OnExisting, OpenMode, PathOperation, PathRequest, PathRest,
    SessionToken,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Attr, Credentials, Errno, FileKind, HandleId, Ino, Reply, Request};
use forebay_store::node::{ConnId, Effect, Input, Limits, Node, NodeState, Now, Record};
use forebay_store::objects::ObjectId;
use std::collections::BTreeMap;
use support::daemon::{INSTANCE, call, hello, spec};
use support::memory_objects::MemoryObjects;
use support::seeds::root;

/// A node with an instance, its clients and its log.
struct Scene {
    node: Node<MemoryObjects>,
    state: NodeState,
    next_conn: u64,
}

impl Scene {
    fn new() -> Scene {
        let mut scene = Scene::of(NodeState::default());
        let admin = scene.connect(None, None, 0).unwrap().0;
        let spec = spec(1 << 20, 1000, Placement::single_node());
        scene.ask(admin, 2, Request::Admin(AdminRequest::CreateInstance(spec)));
        scene
    }

    fn of(state: NodeState) -> Scene {
        let (now, objects) = (Now::default(), MemoryObjects::default());
        let node = Node::start(state.clone(), 0, objects, Limits::default(), now, [1; 32]).unwrap();
        let mut scene = Scene { node, state, next_conn: 1 };
        scene.keep_records();
        scene
    }

    /// The daemon dies, and starts again with what it has logged.
    fn restart(self) -> Scene {
        Scene { next_conn: self.next_conn, ..Scene::of(self.state) }
    }

    fn keep_records(&mut self) {
        for record in self.node.take_records() {
            let record: Record = postcard::from_bytes(&record).unwrap();
            self.state.apply(&record).unwrap();
        }
    }

    fn step(&mut self, input: Input) -> BTreeMap<ConnId, Reply> {
        let mut effects: Vec<Effect<ObjectId>> = Vec::new();
        self.node.step(Now::default(), input, &mut effects);
        self.keep_records();
        let mut replies = BTreeMap::new();
        for effect in effects {
            if let Effect::Reply { conn, reply, .. } = effect {
                assert!(replies.insert(conn, reply).is_none(), "one reply each");
            }
        }
        replies
    }

    /// The replies to a call: that to the call, or those to the requests of the batch.
    fn ask(&mut self, conn: ConnId, seq: u64, request: Request) -> Vec<Reply> {
        let replies = self.step(Input::Call(conn, call(seq, request)));
        assert!(replies.keys().all(|from| from.connection() == conn));
        replies.into_values().collect()
    }

    fn connect(
        &mut self,
        instance: Option<forebay_protocol::InstanceId>,
        token: Option<SessionToken>,
        slot: u32,
    ) -> Result<(ConnId, SessionToken), Errno> {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        self.step(Input::Connected(conn, root(true)));
        let replies = self.ask(conn, 1, hello(instance, token, slot));
        match &replies[..] {
            [Reply::Attached { token, takes_batches, .. }] if takes_batches.0 => Ok((conn, *token)),
            [Reply::Failed(errno)] => Err(*errno),
            other => panic!("{other:?}"),
        }
    }
}

fn create(name: &str) -> BatchRequest {
    BatchRequest::Name(NameRequest::Mknod {
        parent: Ino::ROOT,
        name: name.as_bytes().to_vec(),
        new: NewInode::Node(FileKind::File, 0),
        mode: 0o644.into(),
    })
}

fn unlink(name: &str) -> BatchRequest {
    BatchRequest::Name(NameRequest::Unlink { parent: Ino::ROOT, name: name.as_bytes().to_vec() })
}

fn lookup(name: &str) -> BatchRequest {
    BatchRequest::Name(NameRequest::Lookup { parent: Ino::ROOT, name: name.as_bytes().to_vec() })
}

#[test]
fn batches_must_have_a_batch_slot_and_at_most_the_permitted_requests() {
    let mut scene = Scene::new();
    let refused = vec![Reply::Failed(Errno::EINVAL)];
    for slot in [0, FIRST_BATCH_SLOT - 1, FIRST_BATCH_SLOT + BATCH_SLOTS] {
        let (conn, _) = scene.connect(Some(INSTANCE), None, slot).unwrap();
        assert_eq!(scene.ask(conn, 2, Request::Batch(vec![create("a")])), refused, "slot {slot}");
    }
    let (conn, _) = scene.connect(Some(INSTANCE), None, FIRST_BATCH_SLOT).unwrap();
    assert_eq!(scene.ask(conn, 2, Request::Batch(Vec::new())), refused);
    let too_many = vec![create("a"); MAX_BATCH_REQUESTS + 1];
    assert_eq!(scene.ask(conn, 3, Request::Batch(too_many)), refused);
    let absent = scene.ask(conn, 4, Request::Batch(vec![lookup("a"); MAX_BATCH_REQUESTS]));
    assert_eq!(absent, vec![Reply::Failed(Errno::ENOENT); MAX_BATCH_REQUESTS]);
    let unknown = scene.ask(ConnId(999), 1, Request::Batch(vec![lookup("a")]));
    assert_eq!(unknown, [Reply::Failed(Errno::ENOTCONN)]);
}

#[test]
fn requests_that_pass_descriptors_or_have_long_replies_are_refused_by_themselves() {
    let mut scene = Scene::new();
    let (conn, _) = scene.connect(Some(INSTANCE), None, FIRST_BATCH_SLOT).unwrap();
    let (parent, ino, name, open) = (Ino::ROOT, Ino::ROOT, b"x".to_vec(), OpenMode::default());
    let mode = 0o644.into();
    let path = PathRest { from: Ino::ROOT, names: Vec::new(), links: 0 };
    let operation = PathOperation::File(FileRequest::Open { ino, handle: HandleId(1), open });
    let requests = vec![
        create("before"),
        BatchRequest::Name(NameRequest::Create {
            parent,
            name: name.clone(),
            mode,
            exclusive: false,
            handle: HandleId(1),
            open,
        }),
        BatchRequest::Name(NameRequest::ReadDir { ino, cookie: 0, bytes: 1 << 16, attrs: true }),
        BatchRequest::Name(NameRequest::Rename {
            parent,
            name,
            to: parent,
            to_name: b"y".to_vec(),
            existing: OnExisting::Replace,
        }),
        BatchRequest::Path(Box::new(PathRequest { path, follow: true, operation })),
        lookup("before"),
    ];
    let replies = scene.ask(conn, 2, Request::Batch(requests));
    assert_eq!(replies[1..5], vec![Reply::Failed(Errno::EOPNOTSUPP); 4]);
    assert!(matches!(replies[0], Reply::Attr(Attr { kind: FileKind::File, .. })));
    assert_eq!(replies[5], replies[0]);
}

#[test]
fn each_request_is_repeated_or_carried_out_once_after_a_restart() {
    let mut scene = Scene::new();
    let (conn, token) = scene.connect(Some(INSTANCE), None, FIRST_BATCH_SLOT).unwrap();
    let batch = || Request::Batch(vec![create("a"), unlink("none"), create("b"), lookup("a")]);
    let first = scene.ask(conn, 2, batch());
    assert!(matches!(
        &first[..],
        [Reply::Attr(_), Reply::Failed(Errno::ENOENT), Reply::Attr(_), _]
    ));
    // The replies are lost.
    let mut scene = scene.restart();
    let (conn, _) = scene.connect(Some(INSTANCE), Some(token), FIRST_BATCH_SLOT).unwrap();
    assert_eq!(scene.ask(conn, 2, batch()), first, "nothing is made twice");
    let next = scene.ask(conn, 3, batch());
    assert_eq!(next[0], Reply::Failed(Errno::EEXIST));

    // Only the first ones were logged before the daemon died.
    let removals = |count| Request::Batch(["a", "b"].into_iter().take(count).map(unlink).collect());
    assert_eq!(scene.ask(conn, 4, removals(1)), [Reply::Done]);
    let mut scene = scene.restart();
    let (conn, _) = scene.connect(Some(INSTANCE), Some(token), FIRST_BATCH_SLOT).unwrap();
    assert_eq!(scene.ask(conn, 4, removals(2)), [Reply::Done, Reply::Done]);
    assert_eq!(scene.ask(conn, 4, removals(2)), [Reply::Done, Reply::Done]);
    // A batch that arrives late is not carried out.
    assert_eq!(scene.ask(conn, 3, batch()), vec![Reply::Failed(Errno::ESTALE); 4]);
}

#[test]
fn slots_remember_their_own_batches() {
    let mut scene = Scene::new();
    let (one, token) = scene.connect(Some(INSTANCE), None, FIRST_BATCH_SLOT).unwrap();
    let (other, _) = scene.connect(Some(INSTANCE), Some(token), FIRST_BATCH_SLOT + 1).unwrap();
    let (single, _) = scene.connect(Some(INSTANCE), Some(token), 0).unwrap();
    let [a, b] = ["a", "b"].map(|prefix| {
        let creates = (0..MAX_BATCH_REQUESTS).map(|number| create(&format!("{prefix}{number}")));
        Request::Batch(creates.collect())
    });
    let (made, also) = (scene.ask(one, 2, a.clone()), scene.ask(other, 2, b.clone()));
    let alone = scene.ask(single, 2, create("c").into());
    assert_eq!(scene.ask(one, 2, a), made);
    assert_eq!(scene.ask(other, 2, b), also);
    assert_eq!(scene.ask(single, 2, create("c").into()), alone);
}

#[test]
fn requests_of_a_batch_are_made_for_its_caller() {
    let mut scene = Scene::new();
    let (conn, _) = scene.connect(Some(INSTANCE), None, FIRST_BATCH_SLOT).unwrap();
    let caller = Credentials { uid: 9, gid: 9, groups: None, checked: false };
    let request = Request::Batch(vec![create("a"), lookup("a")]);
    let call = forebay_protocol::Call { caller: Some(caller), ..call(2, request) };
    let replies = scene.step(Input::Call(conn, call));
    // The root directory is root's, and the groups of the caller do not matter.
    let expected = [Reply::Failed(Errno::EACCES), Reply::Failed(Errno::ENOENT)];
    assert!(replies.into_values().eq(expected));
}
