//! Who is answered, of those who ask over connections that break.

use super::*;
use forebay_control::controller::{Settings, Setup};
use forebay_control::storage_node::{self, StorageNode};
use forebay_job_script::JobScript;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::sync_channel;

const REQUEST: RequestId = RequestId(9);

/// A controller with one storage node, which never answers.
fn server(directory: &std::path::Path) -> Server {
    let records = Database::open(&directory.join("controller.redb")).unwrap();
    let controller = Controller::restore(Settings::default(), Vec::new()).unwrap();
    let lock = std::fs::File::create(directory.join("lock")).unwrap();
    let mut server = Server::new(controller, records, "id".into(), BTreeMap::new(), lock);
    let pool = Request::AddPool {
        name: "fast".into(),
        granularity: Bytes(1 << 30),
        equalize_fragments: false,
    };
    server.order(pool).unwrap();
    let add = Request::AddNode {
        name: "bb0".into(),
        pool: "fast".into(),
        granules: 10,
        address: Some("bb0:7511".into()),
    };
    server.order(add).unwrap();
    let mut node = StorageNode::restore(NodeId(0), 10, now(), Vec::new()).unwrap();
    for effect in node.step(storage_node::StorageInput::Tick { written: Bytes(0) }) {
        if let storage_node::StorageEffect::Report(report) = effect {
            server.step(ControllerInput::Report(report)).unwrap();
        }
    }
    server
}

fn connect(server: &mut Server, number: u64) -> (ConnId, Receiver<FromController>) {
    let (outbox, inbox) = sync_channel(OUTBOX);
    let connection = Connection {
        stream: Arc::new(Stream::Unix(UnixStream::pair().unwrap().0)),
        from: None,
        outbox,
        peer: None,
        caller: Owner { uid: 0, gid: 0 },
        asked: 0,
        told: Arc::default(),
    };
    server.connections.insert(ConnId(number), connection);
    (ConnId(number), inbox)
}

/// A request that is answered when the storage node has done something.
fn ask(server: &mut Server, id: ConnId) {
    let script = "#DW jobdw capacity=2GiB type=scratch access_mode=striped\n";
    let setup = Request::Setup {
        token: "7".into(),
        owner: Owner { uid: 0, gid: 0 },
        creator: "test".into(),
        setup: Setup::from_script(&JobScript::parse(script, None).unwrap()),
    };
    let ask = ToController::Request(REQUEST, Box::new(setup));
    server.said(id, ask).unwrap();
}

#[test]
fn a_request_is_of_the_connection_that_asked_it_last() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = server(directory.path());
    let (first, told_first) = connect(&mut server, 1);
    let (second, told_second) = connect(&mut server, 2);
    ask(&mut server, first);
    ask(&mut server, first);
    assert_eq!(server.connections[&first].asked, 1, "once, however often");
    // The client has lost its connection, which is not noticed here yet.
    ask(&mut server, second);
    let asked = [first, second].map(|id| server.connections[&id].asked);
    assert_eq!(asked, [0, 1]);
    server.forget(first);
    server.reply(REQUEST, Ok(Answer::Done));
    assert!(matches!(
        told_second.try_recv(),
        Ok(FromController::Reply(REQUEST, Ok(_)))
    ));
    assert!(told_first.try_recv().is_err());
    assert!(server.asked.is_empty() && server.connections[&second].asked == 0);
}

#[test]
fn nobody_waits_for_a_request_whose_last_connection_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = server(directory.path());
    let (first, _) = connect(&mut server, 1);
    let (second, _) = connect(&mut server, 2);
    ask(&mut server, first);
    ask(&mut server, second);
    assert_eq!(server.asked.len(), 1, "it is not answered yet");
    server.forget(second);
    assert!(server.asked.is_empty());
}
