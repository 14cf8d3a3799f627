//! Encrypted records: how an authenticated TCP connection carries frames.
//!
//! ```text
//! 0        2
//! length   Noise message: ciphertext and 16 bytes of authentication tag
//! ```
//! A record is decrypted only with the number of records before it in its direction as nonce, so one
//! that was changed, repeated, left out or moved fails. Frames of any length become a sequence of
//! records. Bulk data follow the connection's [`DataProtection`].

use crate::frame::FrameError;
use serde::{Deserialize, Serialize};
use snow::StatelessTransportState;
use std::fmt;
use std::sync::Arc;

/// Bytes of plaintext in a record, at most.
pub const MAX_RECORD_BYTES: usize = 32 << 10;
/// Bytes in front of a record.
pub const RECORD_HEADER_BYTES: usize = 2;
/// Bytes of a record's authentication tag.
pub const RECORD_TAG_BYTES: usize = 16;
/// Bytes of the authentication tag of a chunk under [`DataProtection::Integrity`].
pub const MAC_BYTES: usize = 16;

/// Protection of bulk data between hosts. Everything else is always encrypted; within a host nothing
/// is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataProtection {
    /// Checksums against transmission errors only: whoever controls the network can read and change
    /// data.
    #[default]
    Off,
    /// Keyed hashes: changes are detected, data can be read.
    Integrity,
    /// Authenticated encryption.
    Encrypted,
}

impl std::str::FromStr for DataProtection {
    type Err = String;

    fn from_str(text: &str) -> Result<DataProtection, String> {
        match text {
            "off" => Ok(DataProtection::Off),
            "integrity" => Ok(DataProtection::Integrity),
            "encrypted" => Ok(DataProtection::Encrypted),
            other => Err(format!("`{other}` is not `off`, `integrity` or `encrypted`")),
        }
    }
}

impl fmt::Display for DataProtection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DataProtection::Off => "off",
            DataProtection::Integrity => "integrity",
            DataProtection::Encrypted => "encrypted",
        })
    }
}

/// Both directions of a connection with these keys. Bulk data are encrypted, too, until
/// `protect_data` says otherwise.
pub(crate) fn guards(transport: StatelessTransportState) -> (SendGuard, ReceiveGuard) {
    let transport = Arc::new(transport);
    let send = SendGuard {
        transport: transport.clone(),
        data: DataProtection::Encrypted,
        mac: [0; 32],
        records: 0,
        chunks: 0,
    };
    let receive = ReceiveGuard {
        transport,
        data: DataProtection::Encrypted,
        mac: [0; 32],
        records: 0,
        chunks: 0,
    };
    (send, receive)
}

/// Bytes of the records of so many bytes.
pub(crate) fn sealed_length(plain: usize) -> usize {
    plain + plain.div_ceil(MAX_RECORD_BYTES) * (RECORD_HEADER_BYTES + RECORD_TAG_BYTES)
}

/// Encrypts and authenticates what is sent on one connection.
pub struct SendGuard {
    transport: Arc<StatelessTransportState>,
    data: DataProtection,
    mac: [u8; 32],
    records: u64,
    chunks: u64,
}

/// Decrypts and verifies what is received on one connection.
pub struct ReceiveGuard {
    transport: Arc<StatelessTransportState>,
    data: DataProtection,
    mac: [u8; 32],
    records: u64,
    chunks: u64,
}

impl fmt::Debug for SendGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendGuard").finish_non_exhaustive()
    }
}

impl fmt::Debug for ReceiveGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveGuard").finish_non_exhaustive()
    }
}

/// The keyed hash of chunk `number`, with its header word.
fn mac(key: &[u8; 32], number: u64, word: u32, data: &[u8]) -> [u8; MAC_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&number.to_le_bytes()).update(&word.to_le_bytes()).update(data);
    let mut tag = [0; MAC_BYTES];
    tag.copy_from_slice(&hasher.finalize().as_bytes()[..MAC_BYTES]);
    tag
}

impl SendGuard {
    /// How bulk data are protected from now on, and the key of their hashes in this direction.
    pub(crate) fn protect_data(&mut self, data: DataProtection, mac: [u8; 32]) {
        debug_assert_eq!(self.chunks, 0, "the mode is agreed upon before the first data");
        (self.data, self.mac) = (data, mac);
    }

    /// Protection of bulk data.
    pub fn data(&self) -> DataProtection {
        self.data
    }

    /// Appends `plain` to `out` as records.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let start = out.len();
        out.resize(start + sealed_length(plain.len()), 0);
        let written = self.seal_into(plain, &mut out[start..])?;
        assert_eq!(start + written, out.len(), "records have a fixed overhead");
        Ok(())
    }

    /// Puts `plain` as records at the front of `out`, which has room for
    /// [`sealed_length`] bytes. Returns their number.
    pub(crate) fn seal_into(&mut self, plain: &[u8], out: &mut [u8]) -> Result<usize, FrameError> {
        let mut at = 0;
        for part in plain.chunks(MAX_RECORD_BYTES) {
            let (head, message) = out[at..]
                .split_first_chunk_mut::<RECORD_HEADER_BYTES>()
                .ok_or(FrameError::Length)?;
            let written = self
                .transport
                .write_message(self.records, part, message)
                .map_err(|_| FrameError::Authentication)?;
            let length = u16::try_from(written).map_err(|_| FrameError::Length)?;
            *head = length.to_le_bytes();
            self.records += 1;
            at += RECORD_HEADER_BYTES + written;
        }
        debug_assert_eq!(at, sealed_length(plain.len()));
        Ok(at)
    }

    /// The tag of the next chunk.
    pub(crate) fn mac(&mut self, word: u32, data: &[u8]) -> [u8; MAC_BYTES] {
        let tag = mac(&self.mac, self.chunks, word, data);
        self.chunks += 1;
        tag
    }
}

/// The length of the first record of `raw`, header included, or of the part that has to arrive
/// before that is known.
pub(crate) fn record_length(raw: &[u8]) -> Result<usize, FrameError> {
    let Some(head) = raw.first_chunk::<RECORD_HEADER_BYTES>() else {
        return Ok(RECORD_HEADER_BYTES);
    };
    let length = usize::from(u16::from_le_bytes(*head));
    if !(RECORD_TAG_BYTES + 1..=MAX_RECORD_BYTES + RECORD_TAG_BYTES).contains(&length) {
        return Err(FrameError::Length);
    }
    Ok(RECORD_HEADER_BYTES + length)
}

impl ReceiveGuard {
    /// How bulk data are protected from now on, and the key of their hashes in this direction.
    pub(crate) fn protect_data(&mut self, data: DataProtection, mac: [u8; 32]) {
        debug_assert_eq!(self.chunks, 0, "the mode is agreed upon before the first data");
        (self.data, self.mac) = (data, mac);
    }

    /// Protection of bulk data.
    pub fn data(&self) -> DataProtection {
        self.data
    }

    /// Decrypts a whole record into the front of `into`, and returns the bytes of plaintext. `into`
    /// may be as short as the plaintext.
    pub(crate) fn open_record(
        &mut self,
        record: &[u8],
        into: &mut [u8],
    ) -> Result<usize, FrameError> {
        let message = record.get(RECORD_HEADER_BYTES..).ok_or(FrameError::Length)?;
        let count = self
            .transport
            .read_message(self.records, message, into)
            .map_err(|_| FrameError::Authentication)?;
        debug_assert_eq!(count + RECORD_TAG_BYTES, message.len());
        self.records += 1;
        Ok(count)
    }

    /// Appends the plaintext of all whole records of `raw` to `plain`. Returns the bytes taken from
    /// `raw`.
    pub fn open(&mut self, raw: &[u8], plain: &mut Vec<u8>) -> Result<usize, FrameError> {
        let mut taken = 0;
        loop {
            let length = record_length(&raw[taken..])?;
            let Some(record) = raw.get(taken..taken + length) else {
                return Ok(taken);
            };
            let start = plain.len();
            // Room for the tag spares the cipher a copy.
            plain.resize(start + record.len(), 0);
            let count = self.open_record(record, &mut plain[start..])?;
            plain.truncate(start + count);
            taken += record.len();
        }
    }

    /// `FrameError::Authentication` unless `tag` is that of the next chunk.
    pub(crate) fn verify(
        &mut self,
        word: u32,
        data: &[u8],
        tag: &[u8; MAC_BYTES],
    ) -> Result<(), FrameError> {
        let own = mac(&self.mac, self.chunks, word, data);
        self.chunks += 1;
        // The difference of all bytes at once, so that the time does not depend on where they differ.
        let difference = own.iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b));
        if std::hint::black_box(difference) != 0 {
            return Err(FrameError::Authentication);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sending guard of one side, and the receiving guard of the other.
    fn connection() -> (SendGuard, ReceiveGuard) {
        let builder = || snow::Builder::new("Noise_NN_25519_AESGCM_SHA256".parse().unwrap());
        let mut client = builder().build_initiator().unwrap();
        let mut server = builder().build_responder().unwrap();
        let (mut message, mut payload) = ([0; 256], [0; 256]);
        let count = client.write_message(&[], &mut message).unwrap();
        server.read_message(&message[..count], &mut payload).unwrap();
        let count = server.write_message(&[], &mut message).unwrap();
        client.read_message(&message[..count], &mut payload).unwrap();
        let (mut sent, _) = guards(client.into_stateless_transport_mode().unwrap());
        let (_, mut received) = guards(server.into_stateless_transport_mode().unwrap());
        sent.protect_data(DataProtection::Integrity, [7; 32]);
        received.protect_data(DataProtection::Integrity, [7; 32]);
        (sent, received)
    }

    fn sealed(guard: &mut SendGuard, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        guard.seal(plain, &mut out).unwrap();
        assert_eq!(out.len(), sealed_length(plain.len()));
        out
    }

    #[test]
    fn records_are_accepted_once_unchanged_and_in_order() {
        let (mut send, mut receive) = connection();
        let first = sealed(&mut send, b"first");
        let second = sealed(&mut send, &[3; 3 * MAX_RECORD_BYTES + 1]);
        let mut plain = Vec::new();
        // In pieces, as they arrive.
        assert_eq!(receive.open(&first[..1], &mut plain), Ok(0));
        assert_eq!(receive.open(&first[..9], &mut plain), Ok(0));
        assert_eq!(receive.open(&first, &mut plain), Ok(first.len()));
        assert_eq!(plain, b"first");
        let refused = Err(FrameError::Authentication);
        assert_eq!(receive.open(&first, &mut plain), refused, "repeated");
        let (mut send, mut receive) = connection();
        let (first, other) = (sealed(&mut send, b"first"), sealed(&mut send, b"other"));
        assert_eq!(receive.open(&other, &mut plain), refused, "the first is missing");
        for at in RECORD_HEADER_BYTES..first.len() {
            let mut changed = first.clone();
            changed[at] ^= 1;
            assert_eq!(receive.open(&changed, &mut plain), refused, "byte {at}");
        }
        plain.clear();
        assert_eq!(receive.open(&first, &mut plain), Ok(first.len()));
        assert_eq!(receive.open(&other, &mut plain), Ok(other.len()));
        assert_eq!(plain, b"firstother");
        let (_, mut another) = connection();
        assert_eq!(another.open(&second, &mut plain), refused, "another session");
    }

    #[test]
    fn chunk_tags_are_accepted_once_unchanged_and_in_order() {
        let (mut send, mut receive) = connection();
        let (first, second) = (send.mac(4, b"data"), send.mac(4, b"data"));
        assert_ne!(first, second, "the same data again");
        assert_eq!(receive.verify(4, b"data", &first), Ok(()));
        let refused = Err(FrameError::Authentication);
        assert_eq!(receive.verify(4, b"data", &first), refused, "repeated");
        let third = send.mac(4, b"data");
        assert_eq!(receive.verify(5, b"data", &third), refused, "another length");
        let fourth = send.mac(4, b"data");
        assert_eq!(receive.verify(4, b"date", &fourth), refused, "other data");
    }

    #[test]
    fn record_of_impossible_length_is_refused() {
        for length in [0u16, 16, u16::MAX] {
            assert_eq!(record_length(&length.to_le_bytes()), Err(FrameError::Length));
        }
        assert_eq!(record_length(&[1]), Ok(RECORD_HEADER_BYTES));
    }
}
