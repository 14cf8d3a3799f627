//! Messages as bytes: a fixed header, JSON, and between hosts a seal.
//!
//! ```text
//! 0      4         8          12
//! magic  length    crc32c     body…  seal (32 bytes, if the magic says so)
//! ```
//! Integers are little-endian; length and checksum are the body's. Control messages are few and
//! small beside the data, so they are in a form that people can read.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_net::stream::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::seal::{SEAL, Seal, Seals};

const MAGIC: [u8; 4] = *b"FBC1";
const SEALED: [u8; 4] = *b"FBS1";
const HEADER: usize = 12;
/// Longest body, in bytes.
pub const MAX_BODY: usize = 64 << 20;
/// Longest body of those who only ask, in bytes: a job script and what goes with it.
pub const MAX_REQUEST: usize = 1 << 20;
/// Longest body from someone who is not known yet, in bytes.
pub const MAX_UNKNOWN: usize = 64 << 10;

fn bad(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// What is sent on a connection.
pub struct Outgoing {
    stream: Arc<Stream>,
    seal: Option<Seal>,
}

/// What is received on a connection.
pub struct Incoming {
    stream: Arc<Stream>,
    seal: Option<Seal>,
    /// When everything must have arrived.
    until: Option<Instant>,
}

/// Both directions of a new connection, without seals. `until`: when its greeting must be over.
pub fn halves(stream: Arc<Stream>, until: Option<Instant>) -> (Outgoing, Incoming) {
    let outgoing = Outgoing {
        stream: stream.clone(),
        seal: None,
    };
    let incoming = Incoming {
        stream,
        seal: None,
        until,
    };
    (outgoing, incoming)
}

impl Outgoing {
    /// From now on messages are sealed.
    pub fn seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// The socket.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Sends a message.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut bytes = vec![0; HEADER];
        serde_json::to_writer(&mut bytes, message)?;
        self.send_framed(bytes)
    }

    /// Sends a message that was [received](Incoming::receive_body) elsewhere.
    pub fn pass_on(&mut self, body: &[u8]) -> io::Result<()> {
        let mut bytes = vec![0; HEADER];
        bytes.extend_from_slice(body);
        self.send_framed(bytes)
    }

    /// `bytes` has room for the header before the body.
    fn send_framed(&mut self, mut bytes: Vec<u8>) -> io::Result<()> {
        let (head, body) = bytes.split_at_mut(HEADER);
        if body.len() > MAX_BODY {
            let length = body.len();
            return Err(bad(format!(
                "a message of {length} bytes is too long to send"
            )));
        }
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let magic = if self.seal.is_some() { SEALED } else { MAGIC };
        head[..4].copy_from_slice(&magic);
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[8..12].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
        if let Some(seal) = &mut self.seal {
            let seal = seal.next(head, body);
            bytes.extend_from_slice(seal.as_bytes());
        }
        self.stream.send_all(&bytes, &[], None)
    }
}

impl Incoming {
    /// From now on only sealed messages are taken.
    pub fn seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// The socket.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The greeting is over: messages may take as long as they like.
    pub fn relax(&mut self) -> io::Result<()> {
        self.until = None;
        self.stream.set_timeout(None)
    }

    /// Receives the next message, if its body has at most `most` bytes.
    pub fn receive<T: DeserializeOwned>(&mut self, most: usize) -> io::Result<T> {
        read(&self.receive_body(most)?)
    }

    /// The body of the next message, if it has at most `most` bytes.
    pub fn receive_body(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let (body, sealed) = self.next(most)?;
        if self.seal.is_some() && !sealed {
            return Err(bad("a message between hosts has no seal"));
        }
        Ok(body)
    }

    /// Receives the next message, and whether it is sealed: whoever is refused is told so without
    /// a seal.
    pub fn receive_greeting<T: DeserializeOwned>(&mut self) -> io::Result<(T, bool)> {
        let (body, sealed) = self.next(MAX_UNKNOWN)?;
        Ok((read(&body)?, sealed))
    }

    fn next(&mut self, most: usize) -> io::Result<(Vec<u8>, bool)> {
        let mut head = [0; HEADER];
        self.fill(&mut head)?;
        let sealed = match (head.first_chunk(), &self.seal) {
            (Some(&MAGIC), _) => false,
            (Some(&SEALED), Some(_)) => true,
            (Some(&SEALED), None) => return Err(bad("a sealed message, but no key for it")),
            _ => {
                return Err(bad(
                    "the other side does not speak Forebay's control protocol",
                ));
            }
        };
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = word(4) as usize;
        if length > most {
            return Err(bad(format!("a message of {length} bytes is too long")));
        }
        // Grown as the bytes arrive: whoever announces much has to send it.
        let mut body = Vec::new();
        while body.len() < length {
            let have = body.len();
            body.resize(length.min(have + (64 << 10)), 0);
            self.fill(&mut body[have..])?;
        }
        if crc32c::crc32c(&body) != word(8) {
            return Err(bad("a message is damaged: its checksum does not fit"));
        }
        if sealed {
            let mut said = [0; SEAL];
            self.fill(&mut said)?;
            // Compared in constant time.
            let fits = |seal: &mut Seal| seal.next(&head, &body) == blake3::Hash::from_bytes(said);
            if !self.seal.as_mut().is_some_and(fits) {
                return Err(bad(
                    "a message has a wrong seal: it was changed on its way, or is not the next one",
                ));
            }
        }
        Ok((body, sealed))
    }

    fn fill(&self, mut buffer: &mut [u8]) -> io::Result<()> {
        // Nobody sends descriptors here; any are closed.
        let mut descriptors = VecDeque::new();
        while !buffer.is_empty() {
            if let Some(until) = self.until {
                let left = until.saturating_duration_since(Instant::now());
                if left < Duration::from_millis(1) {
                    return Err(late());
                }
                self.stream.set_timeout(Some(left))?;
            }
            let count = match self.stream.receive(buffer, &mut descriptors) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
                other => other?,
            };
            if count == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            descriptors.clear();
            buffer = buffer.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    serde_json::from_slice(body).map_err(|e| bad(format!("a message cannot be read: {e}")))
}

fn late() -> io::Error {
    let reason = "the other side has not said in time who it is";
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

/// Seals both halves of a connection at the controller.
pub fn seal_controller(out: &mut Outgoing, input: &mut Incoming, seals: Seals) {
    out.seal(seals.down);
    input.seal(seals.up);
}

/// Seals both halves of a connection to the controller.
pub fn seal_peer(out: &mut Outgoing, input: &mut Incoming, seals: Seals) {
    out.seal(seals.up);
    input.seal(seals.down);
}

#[cfg(test)]
mod tests {
    use super::super::seal::Secret;
    use super::*;
    use crate::messages::{HandshakeReply, Query, ToController};
    use forebay_net::handshake::{Daemon, Opening};
    use std::os::unix::net::UnixStream;

    fn pair() -> ((Outgoing, Incoming), (Outgoing, Incoming)) {
        let (near, far) = UnixStream::pair().unwrap();
        let half = |stream| halves(Arc::new(Stream::Unix(stream)), None);
        (half(near), half(far))
    }

    fn sealed() -> ((Outgoing, Incoming), (Outgoing, Incoming)) {
        let (mut near, mut far) = pair();
        let (client, daemon) = (Secret::new().unwrap(), Secret::new().unwrap());
        let opening = Opening {
            with: Daemon::Controller,
            client: client.public(),
            daemon: daemon.public(),
            at: "10.0.0.1:7510".parse().unwrap(),
        };
        let seals = client.agree(opening.daemon, &opening).unwrap();
        seal_peer(&mut near.0, &mut near.1, seals);
        let seals = daemon.agree(opening.client, &opening).unwrap();
        seal_controller(&mut far.0, &mut far.1, seals);
        (near, far)
    }

    fn query() -> ToController {
        ToController::Query(7, Query::MountVariables("job".into()))
    }

    /// What is on the wire when `message` is sent by `out`, with `far` at the other end.
    fn bytes(out: &mut Outgoing, far: &Incoming, message: &impl Serialize) -> Vec<u8> {
        out.send(message).unwrap();
        let mut bytes = vec![0; 4096];
        let count = far.stream.receive(&mut bytes, &mut VecDeque::new());
        bytes.truncate(count.unwrap());
        bytes
    }

    fn exchange(bytes: &[u8], most: usize) -> io::Result<ToController> {
        let ((near, _), (_, mut far)) = pair();
        let write = || {
            let _ = near.stream.send_all(bytes, &[], None);
            drop(near);
        };
        std::thread::scope(|scope| {
            scope.spawn(write);
            far.receive(most)
        })
    }

    #[test]
    fn a_message_arrives_or_is_refused() {
        let ((mut near, _), (_, far)) = pair();
        let bytes = bytes(&mut near, &far, &query());
        assert_eq!(exchange(&bytes, MAX_BODY).unwrap(), query());
        assert!(exchange(&bytes, 5).is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(exchange(&damaged, MAX_BODY).is_err(), "byte {at}");
            assert!(exchange(&bytes[..at], MAX_BODY).is_err(), "cut at {at}");
        }
        let ((mut near, _), (_, mut far)) = pair();
        near.send(&HandshakeReply::Refused("no".into())).unwrap();
        assert!(far.receive::<ToController>(MAX_BODY).is_err());
    }

    #[test]
    fn a_sealed_message_is_taken_once_unchanged_and_in_order() {
        let ((mut near, _), (_, mut far)) = sealed();
        near.send(&query()).unwrap();
        near.send(&query()).unwrap();
        assert_eq!(far.receive::<ToController>(MAX_BODY).unwrap(), query());
        assert_eq!(far.receive::<ToController>(MAX_BODY).unwrap(), query());
        let replay = |twice: bool, change: Option<usize>| {
            let ((mut near, _), (_, mut far)) = sealed();
            let mut bytes = bytes(&mut near, &far, &query());
            if let Some(at) = change {
                bytes[at] ^= 1;
                // Whoever changes it can make the checksum fit.
                let end = bytes.len() - SEAL;
                let sum = crc32c::crc32c(&bytes[HEADER..end]);
                bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            }
            for _ in 0..=usize::from(twice) {
                near.stream.send_all(&bytes, &[], None).unwrap();
            }
            drop(near);
            let first = far.receive::<ToController>(MAX_BODY);
            if twice {
                first.unwrap();
                return far.receive::<ToController>(MAX_BODY);
            }
            first
        };
        assert!(replay(false, None).is_ok());
        let again = replay(true, None).unwrap_err();
        assert!(again.to_string().contains("seal"), "{again}");
        for at in [HEADER, HEADER + 5] {
            let changed = replay(false, Some(at)).unwrap_err();
            assert!(changed.to_string().contains("seal"), "{changed}");
        }
        // One without a seal is not taken either.
        let ((near, _), (_, mut far)) = sealed();
        let mut bare = Outgoing {
            stream: near.stream,
            seal: None,
        };
        bare.send(&query()).unwrap();
        let refused = far.receive::<ToController>(MAX_BODY).unwrap_err();
        assert!(refused.to_string().contains("no seal"), "{refused}");
    }

    #[test]
    fn whoever_is_slow_is_late() {
        let ((near, _), (_, mut far)) = pair();
        far.until = Some(Instant::now() + Duration::from_millis(300));
        let begun = Instant::now();
        let drip = move || {
            // One byte at a time, each soon after the one before.
            while near.stream.send_all(&MAGIC[..1], &[], None).is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(drip);
            let error = far.receive::<ToController>(MAX_BODY).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(far);
        });
        assert!(begun.elapsed() < Duration::from_secs(3));
    }

    /// A frame around any body.
    fn framed(body: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_refused_without_panic(bytes: Vec<u8>, body: Vec<u8>) {
            let _ = exchange(&bytes, MAX_BODY);
            let _ = exchange(&framed(&body), MAX_BODY);
        }

        #[test]
        fn any_damage_to_the_text_is_refused_or_read_without_panic(
            at in 0usize..200,
            with in "[ -~]{0,8}",
            deep in 0usize..2000,
        ) {
            let messages = [
                serde_json::to_string(&query()).unwrap(),
                format!("{{\"ask\":[1,2,{}", "[".repeat(deep)),
            ];
            for mut text in messages {
                let at = at.min(text.len());
                text.insert_str(at, &with);
                let _ = exchange(&framed(text.as_bytes()), MAX_BODY);
            }
        }
    }
}
