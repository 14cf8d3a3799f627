//! Replies to requests over connections that break.

mod waiting_hosts;

use super::*;
use forebay_control::controller::{Answer, Settings, Setup};
use forebay_control::storage_node::{StorageEffect, StorageInput, StorageNode};
use forebay_job_script::JobScript;
use forebay_policy::pool::NodeId;
use forebay_units::Bytes;
use std::path::Path;

use crate::messages::Role;

const KEY: RequestId = RequestId(9);

/// A controller with one storage node, which never carries out anything.
fn driver(directory: &Path) -> Driver {
    let records = Database::open(&directory.join("controller.redb")).unwrap();
    let mount_root = directory.join("jobs").display().to_string();
    let settings = Settings { mount_root, ..Settings::default() };
    let controller = Controller::restore(settings, Vec::new()).unwrap();
    let policy = Policy::default();
    let mut driver = Driver::new(controller, records, policy, Duration::from_secs(1), None);
    let pool = Request::AddPool {
        name: "fast".into(),
        granularity: Bytes(1 << 30),
        equalize_fragments: false,
    };
    driver.apply(pool).unwrap().unwrap();
    let node = Request::AddNode {
        name: "bb0".into(),
        pool: "fast".into(),
        granules: 10,
        address: Some("bb0:7511".into()),
    };
    driver.apply(node).unwrap().unwrap();
    let mut node = StorageNode::restore(NodeId(0), 10, now(), Vec::new()).unwrap();
    for effect in node.step(StorageInput::Tick { written: Bytes(0) }) {
        if let StorageEffect::Report(report) = effect {
            driver.step(ControllerInput::Report(report));
            driver.flush().unwrap();
        }
    }
    driver
}

fn connect(driver: &mut Driver) -> (ConnectionId, Outbox) {
    let client = Candidate {
        uid: 0,
        gid: 0,
        trusted: true,
        role: Role::Client(None),
        source: None,
        munge_origin: None,
        stream: None,
    };
    let admitted = driver.connect(client).unwrap();
    (admitted.id, admitted.outbox)
}

/// Sends a request whose reply needs the storage node.
fn request(driver: &mut Driver, id: ConnectionId) {
    let script = "#DW jobdw capacity=2GiB type=scratch access_mode=striped\n";
    let setup = Request::Setup {
        token: "7".into(),
        owner: Owner { uid: 0, gid: 0 },
        creator: "test".into(),
        setup: Setup::from_script(&JobScript::parse(script, None).unwrap()),
    };
    let message = ToController::Request(KEY, Box::new(setup));
    driver.handle_message(id, message).unwrap();
    driver.flush().unwrap();
}

#[test]
fn reply_goes_to_the_connection_that_retransmitted_last() {
    let directory = tempfile::tempdir().unwrap();
    let mut driver = driver(directory.path());
    let (first, first_outbox) = connect(&mut driver);
    let (second, second_outbox) = connect(&mut driver);
    request(&mut driver, first);
    request(&mut driver, first);
    assert_eq!(driver.connections[&first].requests_in_flight, 1);
    // The client has lost its connection, which is not noticed here yet.
    request(&mut driver, second);
    let in_flight = [first, second].map(|id| driver.connections[&id].requests_in_flight);
    assert_eq!(in_flight, [0, 1]);
    driver.forget(first);
    driver.reply(KEY, Ok(Answer::Done));
    assert!(matches!(second_outbox.messages.try_recv(), Ok(FromController::Reply(KEY, Ok(_)))));
    assert!(first_outbox.messages.try_recv().is_err());
    assert!(driver.pending.is_empty());
    assert_eq!(driver.connections[&second].requests_in_flight, 0);
}

#[test]
fn request_whose_last_connection_is_lost_is_not_replied_to() {
    let directory = tempfile::tempdir().unwrap();
    let mut driver = driver(directory.path());
    let (first, _first_outbox) = connect(&mut driver);
    let (second, _second_outbox) = connect(&mut driver);
    request(&mut driver, first);
    request(&mut driver, second);
    assert_eq!(driver.pending.len(), 1, "no reply yet");
    driver.forget(second);
    assert!(driver.pending.is_empty());
}

#[test]
fn audit_log_has_a_line_for_each_allocation_and_operators_action_with_its_outcome() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let mut driver = driver(directory.path());
    driver.audit = Some(AuditLog::open(file.clone()).unwrap());
    let (id, _outbox) = connect(&mut driver);
    request(&mut driver, id);
    let lines = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert!(lines().is_empty(), "the outcome is not known yet");
    // Waiting requests are repeated, and have one outcome.
    request(&mut driver, id);
    driver.reply(KEY, Ok(Answer::Done));
    let mut send = |number, request| {
        let message = ToController::Request(RequestId(number), Box::new(request));
        driver.handle_message(id, message).unwrap();
        driver.flush().unwrap();
    };
    send(10, Request::DrainNode { node: NodeId(7), drained: true, evacuate: false });
    send(11, Request::StageIn { token: "7".into() });
    std::fs::rename(&file, directory.path().join("audit.log.1")).unwrap();
    send(12, Request::DrainNode { node: NodeId(0), drained: true, evacuate: true });
    let after = lines();
    assert_eq!(after.len(), 1, "a renamed log is continued under its name");
    assert_eq!((&after[0]["action"], &after[0]["outcome"]), (&"drain".into(), &"done".into()));
    std::fs::rename(directory.path().join("audit.log.1"), &file).unwrap();
    let before = lines();
    assert_eq!(before.len(), 2);
    assert_eq!(before[0]["action"], "setup");
    assert_eq!((&before[0]["uid"], &before[0]["outcome"]), (&0.into(), &"done".into()));
    assert!(before[0]["object"].as_str().unwrap().contains("job 7 of user 0"));
    assert_eq!(before[1]["outcome"], "there is no storage node 7");
}
