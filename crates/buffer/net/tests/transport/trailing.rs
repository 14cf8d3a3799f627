//! Fields at the end of messages that releases before do not know.

use forebay_net::frame::{self, Flags, HEADER_BYTES};
use forebay_protocol::message::{
    Attach, ClientHost, FileRequest, NameRequest, OpenMode, PROTOCOL_VERSION, PathOperation,
    PathRequest, PathRest, SessionRequest, SessionToken, Share, StatFs, TrailingField,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Call, HandleId, Ino, Reply, Request, SessionId};

fn attach(delegates: bool) -> Call {
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
        client_number: TrailingField::default(),
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
    let sent = body(&attach(true));
    let older = &sent[..sent.len() - 1];
    assert_eq!(frame::decode::<Call>(older).unwrap(), attach(false));
    assert_eq!(frame::decode::<Call>(&sent).unwrap(), attach(true));
}

#[test]
fn older_daemon_ignores_a_field_that_it_does_not_know() {
    let mut newer = body(&attach(true));
    newer.push(1);
    assert_eq!(frame::decode::<Call>(&newer).unwrap(), attach(true));
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
    let sent = body(&attach(true));
    let truncated = &sent[..sent.len() - 2];
    assert!(frame::decode::<Call>(truncated).is_err());
}
