//! Messages as bytes: a fixed header, then JSON.
//!
//! ```text
//! 0      4         8          12
//! magic  length    crc32c     body…
//! ```
//! Integers are little-endian; the checksum covers the body. Control messages are few and small
//! beside the data, so they are in a form that people can read.

use std::collections::VecDeque;
use std::io;

use forebay_wire::stream::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

const MAGIC: [u8; 4] = *b"FBC1";
const HEADER: usize = 12;
/// Longest body, in bytes.
pub const MAX_BODY: usize = 64 << 20;
/// Longest body from someone who is not known yet, in bytes.
pub const MAX_UNKNOWN: usize = 64 << 10;

fn bad(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// A message's frame.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER];
    serde_json::to_writer(&mut bytes, message)?;
    let body = bytes.len() - HEADER;
    if body > MAX_BODY {
        return Err(bad(format!(
            "a message of {body} bytes is too long to send"
        )));
    }
    let sum = crc32c::crc32c(&bytes[HEADER..]);
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&u32::try_from(body).unwrap_or(u32::MAX).to_le_bytes());
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

/// Sends a message on a blocking socket.
pub fn send(stream: &Stream, message: &impl Serialize) -> io::Result<()> {
    stream.send_all(&encode(message)?, &[], None)
}

/// Receives the next message from a blocking socket, if its body has at most `most` bytes.
pub fn receive<T: DeserializeOwned>(stream: &Stream, most: usize) -> io::Result<T> {
    let mut header = [0; HEADER];
    fill(stream, &mut header)?;
    if header[..4] != MAGIC {
        return Err(bad(
            "the other side does not speak Forebay's control protocol",
        ));
    }
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let length = word(4) as usize;
    if length > most {
        return Err(bad(format!("a message of {length} bytes is too long")));
    }
    let mut body = vec![0; length];
    fill(stream, &mut body)?;
    if crc32c::crc32c(&body) != word(8) {
        return Err(bad("a message is damaged: its checksum does not fit"));
    }
    serde_json::from_slice(&body).map_err(|e| bad(format!("a message cannot be read: {e}")))
}

fn fill(stream: &Stream, mut buffer: &mut [u8]) -> io::Result<()> {
    // Nobody sends descriptors here; any are closed.
    let mut descriptors = VecDeque::new();
    while !buffer.is_empty() {
        let count = stream.receive(buffer, &mut descriptors)?;
        if count == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        descriptors.clear();
        buffer = buffer.get_mut(count..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::message::{Downward, Upward};
    use super::*;
    use std::os::unix::net::UnixStream;

    fn exchange(bytes: &[u8], most: usize) -> io::Result<Upward> {
        let (near, far) = UnixStream::pair().unwrap();
        Stream::Unix(near).send_all(bytes, &[], None).unwrap();
        receive(&Stream::Unix(far), most)
    }

    #[test]
    fn a_message_arrives_or_is_refused() {
        let message = Upward::Query(7, super::super::message::Query::Paths("job".into()));
        let bytes = encode(&message).unwrap();
        assert_eq!(exchange(&bytes, MAX_BODY).unwrap(), message);
        assert!(exchange(&bytes, 5).is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(exchange(&damaged, MAX_BODY).is_err(), "byte {at}");
            assert!(exchange(&bytes[..at], MAX_BODY).is_err(), "cut at {at}");
        }
        let other = encode(&Downward::Refused("no".into())).unwrap();
        assert!(exchange(&other, MAX_BODY).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_refused_without_panic(bytes: Vec<u8>) {
            let _ = exchange(&bytes, MAX_BODY);
        }
    }
}
