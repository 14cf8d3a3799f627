//! Fields at the end of messages that releases before do not know.

use forebay_net::frame::{self, Flags, HEADER_BYTES};
use forebay_protocol::message::{
    Attach, ClientHost, PROTOCOL_VERSION, SessionRequest, SessionToken, Trailing,
};
use forebay_protocol::placement::Placement;
use forebay_protocol::{Call, Reply, Request, SessionId};

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
        delegates: Trailing(delegates),
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
        takes_batches: Trailing(takes_batches),
    };
    let mut frame = Vec::new();
    frame::encode_reply(&mut frame, 1, Flags::default(), &attached(true), 0).unwrap();
    let sent = frame.split_off(HEADER_BYTES);
    assert_eq!(frame::decode::<Reply>(&sent).unwrap(), attached(true));
    assert_eq!(frame::decode::<Reply>(&sent[..sent.len() - 1]).unwrap(), attached(false));
}

#[test]
fn truncated_message_is_no_older_one() {
    let sent = body(&attach(true));
    let truncated = &sent[..sent.len() - 2];
    assert!(frame::decode::<Call>(truncated).is_err());
}
