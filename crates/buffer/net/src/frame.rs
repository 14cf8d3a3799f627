//! Frames: a fixed header and a body; a payload follows in [chunks](crate::chunk).
//!
//! ```text
//! 0      4        5      6       8         12            16         24        28
//! magic  version  kind   flags   body len  payload len   sequence   crc32c    body…
//! ```
//! Integers are little-endian. The checksum covers header bytes 0 to 23 and the body; chunks have
//! their own. Bodies are encoded by `postcard`, those of control messages in JSON. An authenticated
//! TCP connection sends frames in encrypted [records](crate::record).

use forebay_protocol::ids::Errno;
use forebay_protocol::message::{Call, MAX_DATA, Reply};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 28;
/// Longest body of a call or reply, in bytes.
pub const MAX_BODY_BYTES: usize = 256 * 1024;
/// Longest body from an unauthenticated peer, in bytes: a credential with its handshake message.
pub const MAX_UNAUTHENTICATED_BODY_BYTES: usize = 32 * 1024;
const MAGIC: [u8; 4] = *b"FBAY";
const VERSION: u8 = 3;

/// Contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A [`Call`], or a call of a job's process.
    Call,
    /// The [`Reply`] to a call.
    Reply,
    /// A message of the [handshake](crate::handshake).
    Handshake,
    /// A control message.
    Control,
}

/// Flags in a frame's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// A descriptor is passed with the frame.
    pub descriptor: bool,
    /// The reply may be cached for
    /// [`CACHE_LIFETIME_NS`](forebay_protocol::message::CACHE_LIFETIME_NS).
    pub cacheable: bool,
}

/// The parsed header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Contents.
    pub kind: Kind,
    /// Flags.
    pub flags: Flags,
    /// Bytes of body.
    pub body: usize,
    /// Bytes of the payload that follows, without chunk headers.
    pub payload: usize,
    /// [`Call::seq`] of the call or of the answered call.
    pub seq: u64,
    /// CRC-32C.
    pub checksum: u32,
}

/// Errors of received frames, payloads and records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The first bytes are not those of a frame.
    Magic,
    /// The peer's version differs.
    Version(u8),
    /// Unknown kind or flag.
    Kind,
    /// Longer than allowed.
    Length,
    /// The checksum does not match.
    Checksum,
    /// The body cannot be decoded.
    Body,
    /// Decryption or authentication of received bytes failed.
    Authentication,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Magic => f.write_str("not a Forebay peer: the first bytes are not 'FBAY'"),
            FrameError::Version(v) => {
                write!(f, "version mismatch: the peer uses frame version {v}, this side {VERSION}")
            }
            FrameError::Kind => f.write_str("unexpected kind of frame"),
            FrameError::Length => f.write_str("frame too long"),
            FrameError::Checksum => f.write_str("damaged frame: checksum mismatch"),
            FrameError::Body => f.write_str("the frame's body is not a message of this version"),
            FrameError::Authentication => f.write_str(
                "message authentication failed: data were changed, repeated or lost in transit",
            ),
        }
    }
}

impl std::error::Error for FrameError {}

impl From<FrameError> for std::io::Error {
    fn from(error: FrameError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

impl From<FrameError> for Errno {
    fn from(_: FrameError) -> Errno {
        Errno::EPROTO
    }
}

/// Parses the header of a frame whose body may have `max_body` bytes.
pub fn parse_header(bytes: &[u8; HEADER_BYTES], max_body: usize) -> Result<Header, FrameError> {
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if bytes[..4] != MAGIC {
        return Err(FrameError::Magic);
    }
    if bytes[4] != VERSION {
        return Err(FrameError::Version(bytes[4]));
    }
    let kind = match bytes[5] {
        0 => Kind::Call,
        1 => Kind::Reply,
        2 => Kind::Handshake,
        3 => Kind::Control,
        _ => return Err(FrameError::Kind),
    };
    let flags = u16::from_le_bytes([bytes[6], bytes[7]]);
    if flags > 3 {
        return Err(FrameError::Kind);
    }
    let (body, payload) = (word(8) as usize, word(12) as usize);
    if body > max_body || payload > MAX_DATA {
        return Err(FrameError::Length);
    }
    let seq = u64::from(word(16)) | u64::from(word(20)) << 32;
    let flags = Flags { descriptor: flags & 1 != 0, cacheable: flags & 2 != 0 };
    Ok(Header { kind, flags, body, payload, seq, checksum: word(24) })
}

fn checksum(header: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(header), body)
}

/// Fills in the header of the frame `out`, whose body is complete.
fn finish(
    out: &mut [u8],
    (kind, flags, seq): (Kind, Flags, u64),
    payload: usize,
    max_body: usize,
) -> Result<(), FrameError> {
    let (head, body) = out.split_first_chunk_mut::<HEADER_BYTES>().ok_or(FrameError::Length)?;
    if body.len() > max_body || payload > MAX_DATA {
        return Err(FrameError::Length);
    }
    let length = u32::try_from(body.len()).map_err(|_| FrameError::Length)?;
    head[..4].copy_from_slice(&MAGIC);
    head[4] = VERSION;
    head[5] = match kind {
        Kind::Call => 0,
        Kind::Reply => 1,
        Kind::Handshake => 2,
        Kind::Control => 3,
    };
    head[6] = u8::from(flags.descriptor) | u8::from(flags.cacheable) << 1;
    head[8..12].copy_from_slice(&length.to_le_bytes());
    head[12..16].copy_from_slice(&(payload as u32).to_le_bytes());
    head[16..24].copy_from_slice(&seq.to_le_bytes());
    let sum = checksum(&head[..24], body);
    head[24..28].copy_from_slice(&sum.to_le_bytes());
    debug_assert!(parse_header(head, max_body).is_ok_and(|header| header.checksum == sum));
    Ok(())
}

/// Appends a frame with a `postcard` body of at most `max_body` bytes to `out`, which an error
/// leaves unchanged.
pub fn encode<T: Serialize>(
    out: &mut Vec<u8>,
    fields: (Kind, Flags, u64),
    message: &T,
    payload: usize,
    max_body: usize,
) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let taken = std::mem::take(out);
    *out = postcard::to_extend(message, taken).map_err(|_| FrameError::Body)?;
    let outcome = finish(&mut out[start..], fields, payload, max_body);
    if outcome.is_err() {
        out.truncate(start);
    }
    outcome
}

/// A frame with a control message, whose body is appended by `write`.
pub fn encode_control(
    max_body: usize,
    write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>,
) -> std::io::Result<Vec<u8>> {
    let mut out = vec![0; HEADER_BYTES];
    write(&mut out)?;
    finish(&mut out, (Kind::Control, Flags::default(), 0), 0, max_body)?;
    Ok(out)
}

/// Appends header and body of a call to `out`. The caller sends `payload` bytes behind them.
pub fn encode_call(out: &mut Vec<u8>, call: &Call, payload: usize) -> Result<(), FrameError> {
    let fields = (Kind::Call, Flags::default(), call.seq);
    encode(out, fields, call, payload, MAX_BODY_BYTES)
}

/// Appends header and body of a reply to call `seq` to `out`. The caller sends `payload` bytes behind
/// them, and a descriptor with the first byte if the flags contain it.
pub fn encode_reply(
    out: &mut Vec<u8>,
    seq: u64,
    flags: Flags,
    reply: &Reply,
    payload: usize,
) -> Result<(), FrameError> {
    let fields = (Kind::Reply, flags, seq);
    encode(out, fields, reply, payload, MAX_BODY_BYTES)
}

/// Verifies the checksum of header and body. `head` is the received header.
pub fn check_body(
    head: &[u8; HEADER_BYTES],
    header: &Header,
    body: &[u8],
) -> Result<(), FrameError> {
    assert_eq!(body.len(), header.body);
    if checksum(&head[..24], body) != header.checksum {
        return Err(FrameError::Checksum);
    }
    Ok(())
}

/// Decodes a `postcard` body.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    postcard::from_bytes(body).map_err(|_| FrameError::Body)
}
