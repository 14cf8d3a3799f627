//! Encodes and decodes messages between clients and daemons on their way.

use forebay_net::frame::{self, Flags, HEADER_BYTES};
use forebay_protocol::{Call, Reply};
use serde::de::DeserializeOwned;

fn taken_out<T: DeserializeOwned>(bytes: &[u8], payload: usize) -> (u64, T) {
    let head = bytes.first_chunk::<HEADER_BYTES>().unwrap();
    let header = frame::parse_header(head, frame::MAX_BODY_BYTES).unwrap();
    assert_eq!((header.body, header.payload), (bytes.len() - HEADER_BYTES, payload));
    let body = &bytes[HEADER_BYTES..];
    frame::check_body(head, &header, body).unwrap();
    (header.seq, frame::decode(body).unwrap())
}

/// A call as it arrives.
pub fn call(call: &Call, payload: usize) -> Call {
    let mut bytes = Vec::new();
    frame::encode_call(&mut bytes, call, payload).unwrap();
    taken_out(&bytes, payload).1
}

/// An answer as it arrives, with the number of its call.
pub fn reply(seq: u64, reply: &Reply, payload: usize) -> (u64, Reply) {
    let mut bytes = Vec::new();
    frame::encode_reply(&mut bytes, seq, Flags::default(), reply, payload).unwrap();
    taken_out(&bytes, payload)
}
