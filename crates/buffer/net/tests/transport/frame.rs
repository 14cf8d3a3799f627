//! Encoding and decoding of frames, valid and not.

use forebay_net::frame::{
    Flags, FrameError, HEADER_BYTES, Header, MAX_BODY_BYTES, check_body, decode, encode_call,
    encode_reply, parse_header,
};
use forebay_protocol::ids::{Ino, Timestamp};
use forebay_protocol::message::{
    Attr, Call, FileKind, InodeRequest, MAX_REQUEST_INODES, NameRequest, Provisional, Reply,
    Request,
};
use proptest::prelude::*;

fn frame(call: &Call) -> Vec<u8> {
    let mut out = Vec::new();
    encode_call(&mut out, call, 0).unwrap();
    out
}

fn call(request: Request) -> Call {
    Call { seq: 7, caller: None, tags: Vec::new(), request }
}

/// A header that matches any body.
fn framed(body: &[u8]) -> ([u8; HEADER_BYTES], Header) {
    let bytes = frame(&call(Request::Inode(InodeRequest::StatFs)));
    let mut head = *bytes.first_chunk::<HEADER_BYTES>().unwrap();
    head[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..24]), body);
    head[24..28].copy_from_slice(&sum.to_le_bytes());
    (head, parse_header(&head, MAX_BODY_BYTES).unwrap())
}

fn parse(bytes: &[u8]) -> Result<Call, FrameError> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(FrameError::Length)?;
    let header = parse_header(head, MAX_BODY_BYTES)?;
    let body = rest.get(..header.body).ok_or(FrameError::Length)?;
    check_body(head, &header, body)?;
    decode(body)
}

#[test]
fn reply_with_maximal_attributes_of_max_request_inodes_fits_a_frame() {
    let time = Timestamp { secs: i64::MIN, nanos: u32::MAX };
    let longest = Attr {
        ino: Ino(u64::MAX),
        kind: FileKind::BlockDevice,
        mode: u16::MAX,
        nlink: u32::MAX,
        uid: u32::MAX,
        gid: u32::MAX,
        rdev: u32::MAX,
        size: u64::MAX,
        blocks: u64::MAX,
        atime: time,
        mtime: time,
        ctime: time,
        provisional: Some(Provisional { mtime_seen: time, width: u16::MAX }),
        extended: true,
    };
    let reply = Reply::Attrs(vec![longest; MAX_REQUEST_INODES]);
    assert_eq!(encode_reply(&mut Vec::new(), 1, Flags::default(), &reply, 0), Ok(()));
}

#[test]
fn frame_of_another_version_reports_version_mismatch() {
    let mut bytes = frame(&call(Request::Inode(InodeRequest::StatFs)));
    bytes[4] -= 1;
    let error = parse(&bytes).unwrap_err();
    assert_eq!(error, FrameError::Version(bytes[4]));
    assert!(error.to_string().contains("version mismatch"), "{error}");
}

proptest! {
    #[test]
    fn call_is_decoded_as_it_was_encoded(seq: u64, ino: u64, name: Vec<u8>) {
        let request = Request::Name(NameRequest::Lookup { parent: Ino(ino), name });
        let call = Call { seq, caller: None, tags: Vec::new(), request };
        prop_assert_eq!(parse(&frame(&call)), Ok(call));
    }

    #[test]
    fn flipped_bit_is_detected(at: prop::sample::Index, bit in 0u8..8) {
        let request = Request::Inode(InodeRequest::GetAttr { ino: Ino(9) });
        let mut bytes = frame(&call(request));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(parse(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_refused_or_parsed_without_panic(bytes: Vec<u8>) {
        let _ = parse(&bytes);
    }

    /// With a matching checksum any bytes reach the decoder.
    #[test]
    fn any_body_is_refused_or_parsed_without_panic(
        family in 0u8..10,
        kind in 0u8..16,
        rest in prop::collection::vec(any::<u8>(), 0..300),
        long in prop::collection::vec(0x80u8..=0xff, 0..12),
    ) {
        let bodies = [
            [&[kind][..], &rest].concat(),
            // As a call: its number, no credentials, then the request.
            [&[7, 0, family, kind][..], &rest].concat(),
            // Lengths without an end.
            [&[7, 0, family, kind][..], &long, &rest].concat(),
        ];
        for body in bodies {
            let (head, header) = framed(&body);
            check_body(&head, &header, &body).unwrap();
            let _ = decode::<Call>(&body);
            let _ = decode::<Reply>(&body);
        }
    }
}
