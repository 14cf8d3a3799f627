//! Frames: a fixed header and a body in the compact `postcard` encoding; a payload follows in
//! [chunks](crate::chunk).
//!
//! ```text
//! 0      4        5      6       8         12            16         24        28
//! magic  version  kind   flags   body len  payload len   sequence   crc32c    body…
//! ```
//! Integers are little-endian. The checksum covers header bytes 0 to 23 and the body;
//! chunks have their own.

use forebay_protocol::ids::Errno;
use forebay_protocol::message::{Call, MAX_DATA, Reply};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 28;
/// Longest body, in bytes.
pub const MAX_BODY_BYTES: usize = 256 * 1024;
const MAGIC: [u8; 4] = *b"FBAY";
const VERSION: u8 = 2;

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The body is a [`Call`].
    Call,
    /// The body is a [`Reply`].
    Reply,
}

/// What a frame's header says besides lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// A descriptor travels with the frame.
    pub descriptor: bool,
    /// The reply may be cached for [`CACHE_TIME`](forebay_protocol::message::CACHE_TIME).
    pub cacheable: bool,
}

/// The parsed header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Call or reply.
    pub direction: Direction,
    /// What travels with the frame or holds for it.
    pub flags: Flags,
    /// Bytes of body.
    pub body: usize,
    /// Bytes of payload that are to follow, without what chunks add.
    pub payload: usize,
    /// [`Call::seq`] of the call, or of the call that is answered.
    pub seq: u64,
    /// CRC-32C.
    pub checksum: u32,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first bytes are not a frame's.
    Magic,
    /// The peer's version.
    Version(u8),
    /// Unknown kind or flag.
    Kind,
    /// Longer than allowed.
    Length,
    /// The checksum does not fit.
    Checksum,
    /// The body is not a message.
    Body,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Magic => f.write_str("not a Forebay peer: the first bytes are not 'FBAY'"),
            FrameError::Version(v) => {
                write!(f, "the peer speaks frame version {v}, this side {VERSION}")
            }
            FrameError::Kind => f.write_str("unknown kind of frame"),
            FrameError::Length => write!(
                f,
                "frame too long: at most {MAX_BODY_BYTES} bytes of body and {MAX_DATA} of data"
            ),
            FrameError::Checksum => f.write_str("frame damaged: checksum does not fit"),
            FrameError::Body => f.write_str("frame does not hold a message of this version"),
        }
    }
}

impl std::error::Error for FrameError {}

impl From<FrameError> for std::io::Error {
    fn from(bad: FrameError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, bad)
    }
}

impl From<FrameError> for Errno {
    fn from(_: FrameError) -> Errno {
        Errno::EPROTO
    }
}

/// Parse a header.
pub fn parse_header(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if bytes[..4] != MAGIC {
        return Err(FrameError::Magic);
    }
    if bytes[4] != VERSION {
        return Err(FrameError::Version(bytes[4]));
    }
    let direction = match bytes[5] {
        0 => Direction::Call,
        1 => Direction::Reply,
        _ => return Err(FrameError::Kind),
    };
    let flags = u16::from_le_bytes([bytes[6], bytes[7]]);
    if flags > 3 {
        return Err(FrameError::Kind);
    }
    let (body, payload) = (word(8) as usize, word(12) as usize);
    if body > MAX_BODY_BYTES || payload > MAX_DATA {
        return Err(FrameError::Length);
    }
    let seq = u64::from(word(16)) | u64::from(word(20)) << 32;
    let flags = Flags {
        descriptor: flags & 1 != 0,
        cacheable: flags & 2 != 0,
    };
    Ok(Header {
        direction,
        flags,
        body,
        payload,
        seq,
        checksum: word(24),
    })
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), body)
}

fn put<T: Serialize>(
    out: &mut Vec<u8>,
    direction: Direction,
    flags: Flags,
    seq: u64,
    message: &T,
    payload: usize,
) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let taken = std::mem::take(out);
    *out = postcard::to_extend(message, taken).map_err(|_| FrameError::Body)?;
    let body = out.len() - start - HEADER_BYTES;
    if body > MAX_BODY_BYTES || payload > MAX_DATA {
        out.truncate(start);
        return Err(FrameError::Length);
    }
    let (head, body_bytes) = out[start..].split_at_mut(HEADER_BYTES);
    head[..4].copy_from_slice(&MAGIC);
    head[4] = VERSION;
    head[5] = u8::from(direction == Direction::Reply);
    head[6] = u8::from(flags.descriptor) | u8::from(flags.cacheable) << 1;
    head[8..12].copy_from_slice(&(body as u32).to_le_bytes());
    head[12..16].copy_from_slice(&(payload as u32).to_le_bytes());
    head[16..24].copy_from_slice(&seq.to_le_bytes());
    let sum = checksum(&head[..24], body_bytes);
    head[24..28].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// Append header and body of a call to `out`. The caller sends a payload of that many bytes behind
/// them.
pub fn encode_call(out: &mut Vec<u8>, call: &Call, payload: usize) -> Result<(), FrameError> {
    put(
        out,
        Direction::Call,
        Flags::default(),
        call.seq,
        call,
        payload,
    )
}

/// Append header and body of a reply to call `seq` to `out`. The caller sends a payload of that many
/// bytes behind them, and a descriptor with the first byte if the flags say so.
pub fn encode_reply(
    out: &mut Vec<u8>,
    seq: u64,
    flags: Flags,
    reply: &Reply,
    payload: usize,
) -> Result<(), FrameError> {
    put(out, Direction::Reply, flags, seq, reply, payload)
}

/// Check header and body and decode the body. `head` are the header's bytes as received.
pub fn decode_body<T: DeserializeOwned>(
    head: &[u8; HEADER_BYTES],
    header: &Header,
    body: &[u8],
) -> Result<T, FrameError> {
    if checksum(&head[..24], body) != header.checksum {
        return Err(FrameError::Checksum);
    }
    postcard::from_bytes(body).map_err(|_| FrameError::Body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::ids::{Ino, Timestamp};
    use forebay_protocol::message::{Attr, FileKind, MAX_REQUEST_INODES, Request};
    use forebay_protocol::message::{InodeRequest, NameRequest};
    use proptest::prelude::*;

    fn frame(call: &Call) -> Vec<u8> {
        let mut out = Vec::new();
        encode_call(&mut out, call, 0).unwrap();
        out
    }

    /// The header that fits a body, whatever that is.
    fn framed(body: &[u8]) -> ([u8; HEADER_BYTES], Header) {
        let call = Call {
            seq: 7,
            caller: None,
            request: Request::Inode(InodeRequest::StatFs),
        };
        let mut head = *frame(&call).first_chunk::<HEADER_BYTES>().unwrap();
        head[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
        let sum = checksum(&head[..24], body);
        head[24..28].copy_from_slice(&sum.to_le_bytes());
        (head, parse_header(&head).unwrap())
    }

    fn parse(bytes: &[u8]) -> Result<Call, FrameError> {
        let head: [u8; HEADER_BYTES] = bytes
            .get(..HEADER_BYTES)
            .ok_or(FrameError::Length)?
            .try_into()
            .map_err(|_| FrameError::Length)?;
        let header = parse_header(&head)?;
        let body = bytes
            .get(HEADER_BYTES..HEADER_BYTES + header.body)
            .ok_or(FrameError::Length)?;
        decode_body(&head, &header, body)
    }

    #[test]
    fn attributes_of_as_many_inodes_as_may_be_asked_about_fit() {
        let time = Timestamp {
            secs: i64::MIN,
            nanos: u32::MAX,
        };
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
            provisional: Some(time),
            extended: true,
        };
        let reply = Reply::Attrs(vec![longest; MAX_REQUEST_INODES]);
        assert_eq!(
            encode_reply(&mut Vec::new(), 1, Flags::default(), &reply, 0),
            Ok(())
        );
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(seq: u64, ino: u64, name: Vec<u8>) {
            let request = Request::Name(NameRequest::Lookup { parent: Ino(ino), name });
            let call = Call { seq, caller: None, request };
            prop_assert_eq!(parse(&frame(&call)), Ok(call));
        }

        #[test]
        fn a_flipped_bit_is_seen(at: prop::sample::Index, bit in 0u8..8) {
            let call = Call { seq: 7, caller: None, request: Request::Inode(InodeRequest::GetAttr { ino: Ino(9) }) };
            let mut bytes = frame(&call);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(parse(&bytes).is_err());
        }

        #[test]
        fn any_bytes_are_refused_or_parsed_without_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        /// Whoever makes the checksum fit can have any bytes looked at.
        #[test]
        fn any_body_is_refused_or_parsed_without_panic(
            kind in 0u8..48,
            rest in prop::collection::vec(any::<u8>(), 0..300),
            long in prop::collection::vec(0x80u8..=0xff, 0..12),
        ) {
            let bodies = [
                [&[kind][..], &rest].concat(),
                // As a call: its number, nobody else, then the request.
                [&[7, 0, kind][..], &rest].concat(),
                // Lengths that go on for ever.
                [&[7, 0, kind][..], &long, &rest].concat(),
            ];
            for body in bodies {
                let (head, header) = framed(&body);
                let _ = decode_body::<Call>(&head, &header, &body);
                let _ = decode_body::<Reply>(&head, &header, &body);
            }
        }
    }
}
