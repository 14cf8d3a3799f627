//! Fields at the end of messages that releases before do not know.

use forebay_net::frame::{self, Flags, HEADER_BYTES};
use forebay_protocol::message::{
    Attach, ClientHost, FileRequest, NameRequest, OpenMode, PROTOCOL_VERSION, PathOperation,
    PathRequest, PathRest, SessionRequest, SessionToken, Share, StatFs, TrailingField,
};
use forebay_protocol::peer::{Incarnation, PeerMessage, PeerPayload, Step, TxId};
use forebay_protocol::placement::Placement;
use forebay_protocol::{
    Call, Credentials, HandleId, Ino, InstanceId, NodeIndex, Reply, Request, SessionId, Timestamp,
};

fn attach(delegates: bool, number: u64) -> Call {
    let attach = Attach {
        version: PROTOCOL_VERSION,
        instance: None,
        token: None,
        slot: 0,
        data_connection: false,
        single_cache: true,
        cache_checks_permissions: true,
        client: ClientHost { host: "host".into(), mount: Some(7) },
        delegates: TrailingField(delegates),
        client_number: TrailingField(number),
    };
    Call::new(1, Request::Session(SessionRequest::Attach(attach)))
}

fn body(call: &Call) -> Vec<u8> {
    let mut frame = Vec::new();
    frame::encode_call(&mut frame, call, 0).unwrap();
    frame.split_off(HEADER_BYTES)
}

#[test]
fn field_that_an_older_client_does_not_send_has_its_default() {
    let sent = body(&attach(true, 5));
    assert_eq!(frame::decode::<Call>(&sent).unwrap(), attach(true, 5));
    let older = &sent[..sent.len() - 1];
    assert_eq!(frame::decode::<Call>(older).unwrap(), attach(true, 0));
    let oldest = &sent[..sent.len() - 2];
    assert_eq!(frame::decode::<Call>(oldest).unwrap(), attach(false, 0));
}

#[test]
fn message_of_an_older_daemon_names_no_client_and_promises_no_recalls() {
    let message = |client, recalls_caches| {
        let message = PeerMessage {
            instance: InstanceId(7),
            from: NodeIndex(1),
            sender: Incarnation::default(),
            receiver: Incarnation::default(),
            sequence: 3,
            payload: PeerPayload::Prepare {
                tx: TxId(9),
                round: 1,
                who: Credentials { uid: 0, gid: 0, groups: Some(Vec::new()), checked: true },
                now: Timestamp::default(),
                steps: vec![Step::AddLink { ino: Ino(4) }],
                client: TrailingField(client),
            },
            recalls_caches: TrailingField(recalls_caches),
        };
        Call::new(1, Request::Peer(Box::new(message)))
    };
    let sent = body(&message(5, true));
    assert_eq!(frame::decode::<Call>(&sent).unwrap(), message(5, true));
    let older = &sent[..sent.len() - 2];
    assert_eq!(frame::decode::<Call>(older).unwrap(), message(0, false));
}

#[test]
fn older_daemon_ignores_a_field_that_it_does_not_know() {
    let mut newer = body(&attach(true, 5));
    newer.push(1);
    assert_eq!(frame::decode::<Call>(&newer).unwrap(), attach(true, 5));
}

#[test]
fn daemon_that_does_not_say_so_takes_no_batches() {
    let attached = |takes_batches| Reply::Attached {
        token: SessionToken { session: SessionId(7), secret: 9 },
        boot: 1,
        epoch: 2,
        capacity: 3,
        placement: Placement::single_node(),
        takes_batches: TrailingField(takes_batches),
        keeps_write_leases: TrailingField(takes_batches),
    };
    let mut frame = Vec::new();
    frame::encode_reply(&mut frame, 1, Flags::default(), &attached(true), 0).unwrap();
    let sent = frame.split_off(HEADER_BYTES);
    assert_eq!(frame::decode::<Reply>(&sent).unwrap(), attached(true));
    // A daemon of the release before sends neither field.
    assert_eq!(frame::decode::<Reply>(&sent[..sent.len() - 2]).unwrap(), attached(false));
}

#[test]
fn mode_that_an_older_client_sends_changes_access_times_and_an_older_daemon_reads_a_newer_one() {
    let mode =
        |keep| OpenMode { read: true, keep_access_time: TrailingField(keep), ..OpenMode::NONE };
    let (ino, handle) = (Ino(9), HandleId(3));
    let open = |keep| FileRequest::Open { ino, handle, open: mode(keep) };
    let by_path = |keep| PathRequest {
        path: PathRest { from: Ino::ROOT, names: b"a/b".to_vec(), links: 0 },
        follow: true,
        operation: PathOperation::File(open(keep)),
    };
    let create = |keep| NameRequest::Create {
        parent: ino,
        name: b"f".to_vec(),
        mode: 0o600.into(),
        exclusive: true,
        handle,
        open: mode(keep),
    };
    let requests =
        |keep| [open(keep).into(), Request::Path(Box::new(by_path(keep))), create(keep).into()];
    for (newer, older) in requests(true).into_iter().zip(requests(false)) {
        let (newer, older) = (Call::new(1, newer), Call::new(1, older));
        let sent = body(&newer);
        assert_eq!(frame::decode::<Call>(&sent).unwrap(), newer);
        assert_eq!(sent.last(), Some(&1), "an older daemon does not read the last byte");
        assert_eq!(frame::decode::<Call>(&sent[..sent.len() - 1]).unwrap(), older);
    }
}

#[test]
fn older_daemon_has_no_share_and_an_older_client_brings_no_loan() {
    let share = Share { free: 3, lends: 2, borrows: 1 };
    let stat = |share| {
        Reply::StatFs(StatFs { capacity: 9, share: TrailingField(share), ..StatFs::default() })
    };
    let mut frame = Vec::new();
    frame::encode_reply(&mut frame, 1, Flags::default(), &stat(Some(share)), 0).unwrap();
    let sent = frame.split_off(HEADER_BYTES);
    assert_eq!(frame::decode::<Reply>(&sent).unwrap(), stat(Some(share)));
    assert_eq!(frame::decode::<Reply>(&sent[..sent.len() - 4]).unwrap(), stat(None));

    let reserve = |lent| {
        let (handle, lent) = (HandleId(3), TrailingField(lent));
        Call::new(1, FileRequest::ReserveSpace { handle, returned: 0, want: 4096, lent })
    };
    let sent = body(&reserve(7));
    assert_eq!(frame::decode::<Call>(&sent).unwrap(), reserve(7));
    assert_eq!(frame::decode::<Call>(&sent[..sent.len() - 1]).unwrap(), reserve(0));
}

#[test]
fn truncated_message_is_no_older_one() {
    let sent = body(&attach(true, 5));
    let truncated = &sent[..sent.len() - 3];
    assert!(frame::decode::<Call>(truncated).is_err());
}
