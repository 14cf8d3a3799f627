//! Encrypted records, which carry the frames of an authenticated TCP connection.
//!
//! ```text
//! 0        2
//! length   Noise message: ciphertext and 16 bytes of authentication tag
//! ```
//! The nonce of a record is the number of records before it in its direction, so a changed, repeated,
//! missing or reordered record fails authentication. A frame of any length becomes a sequence of
//! records. Bulk data are protected by the connection's [`DataProtection`].

use crate::frame::FrameError;
use serde::{Deserialize, Serialize};
use snow::StatelessTransportState;
use std::fmt;
use std::sync::Arc;

/// Most bytes of plaintext in a record.
pub const MAX_RECORD_BYTES: usize = 32 << 10;
/// Bytes in front of a record's ciphertext.
pub const RECORD_HEADER_BYTES: usize = 2;
/// Bytes of a record's authentication tag.
pub const RECORD_TAG_BYTES: usize = 16;
/// Bytes of the authentication tag of a chunk under [`DataProtection::Integrity`].
pub const MAC_BYTES: usize = 16;

/// Protection of bulk data between hosts. All other messages between hosts are encrypted; messages
/// within a host are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataProtection {
    /// Checksums against transmission errors: an attacker in the network can read and change data.
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

/// Length of the records of `plain` bytes.
pub fn encrypted_length(plain: usize) -> usize {
    plain + plain.div_ceil(MAX_RECORD_BYTES) * (RECORD_HEADER_BYTES + RECORD_TAG_BYTES)
}

/// Length of the first record of `raw`, including its header; of the header, if that is incomplete.
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

/// Encrypts one direction of a connection, or decrypts it.
pub struct RecordCipher {
    transport: Arc<StatelessTransportState>,
    data: DataProtection,
    mac_key: [u8; 32],
    /// Records so far: the nonce of the next one.
    records: u64,
    /// Chunks with a keyed hash so far.
    chunks: u64,
}

impl fmt::Debug for RecordCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordCipher").field("data", &self.data).finish_non_exhaustive()
    }
}

impl RecordCipher {
    /// The ciphers for sending and for receiving. Bulk data are encrypted until `protect_data`
    /// changes that.
    pub(crate) fn pair(transport: StatelessTransportState) -> (RecordCipher, RecordCipher) {
        let transport = Arc::new(transport);
        let cipher = |transport| RecordCipher {
            transport,
            data: DataProtection::Encrypted,
            mac_key: [0; 32],
            records: 0,
            chunks: 0,
        };
        (cipher(transport.clone()), cipher(transport))
    }

    /// Sets the protection of bulk data, and the key of their hashes in this direction.
    pub(crate) fn protect_data(&mut self, data: DataProtection, mac_key: [u8; 32]) {
        assert_eq!(self.chunks, 0, "the mode is set before the first data");
        (self.data, self.mac_key) = (data, mac_key);
    }

    /// Protection of bulk data.
    pub fn data(&self) -> DataProtection {
        self.data
    }

    /// Advances the nonce. A nonce used twice with one key would reveal both plaintexts.
    fn count_record(&mut self) {
        assert!(self.records < u64::MAX - 1, "the largest nonce is reserved");
        self.records += 1;
    }

    /// Appends `plain` to `out` as records.
    pub fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let start = out.len();
        out.resize(start + encrypted_length(plain.len()), 0);
        self.encrypt_into(plain, &mut out[start..])
    }

    /// Fills `out`, which has [`encrypted_length`], with `plain` as records.
    pub(crate) fn encrypt_into(&mut self, plain: &[u8], out: &mut [u8]) -> Result<(), FrameError> {
        assert_eq!(out.len(), encrypted_length(plain.len()));
        let records = out.chunks_mut(RECORD_HEADER_BYTES + MAX_RECORD_BYTES + RECORD_TAG_BYTES);
        for (part, record) in plain.chunks(MAX_RECORD_BYTES).zip(records) {
            let (head, message) = record.split_at_mut(RECORD_HEADER_BYTES);
            let length = u16::try_from(message.len()).map_err(|_| FrameError::Length)?;
            head.copy_from_slice(&length.to_le_bytes());
            let written = self.transport.write_message(self.records, part, message);
            let written = written.map_err(|_| FrameError::Authentication)?;
            assert_eq!(written, part.len() + RECORD_TAG_BYTES, "the overhead is constant");
            self.count_record();
        }
        Ok(())
    }

    /// Decrypts a whole record into the front of `into`, and returns the bytes of plaintext. `into`
    /// may be as short as the plaintext.
    pub(crate) fn decrypt_record(
        &mut self,
        record: &[u8],
        into: &mut [u8],
    ) -> Result<usize, FrameError> {
        debug_assert_eq!(record_length(record), Ok(record.len()));
        let message = record.get(RECORD_HEADER_BYTES..).ok_or(FrameError::Length)?;
        let count = self
            .transport
            .read_message(self.records, message, into)
            .map_err(|_| FrameError::Authentication)?;
        assert_eq!(count + RECORD_TAG_BYTES, message.len(), "the overhead is constant");
        self.count_record();
        Ok(count)
    }

    /// Appends the plaintext of all whole records of `raw` to `plain`. Returns the length of these
    /// records.
    pub fn decrypt(&mut self, raw: &[u8], plain: &mut Vec<u8>) -> Result<usize, FrameError> {
        let mut consumed = 0;
        loop {
            let length = record_length(&raw[consumed..])?;
            let Some(record) = raw.get(consumed..consumed + length) else {
                return Ok(consumed);
            };
            let start = plain.len();
            // With space for the tag, the cipher does not copy.
            plain.resize(start + record.len(), 0);
            let count = self.decrypt_record(record, &mut plain[start..])?;
            plain.truncate(start + count);
            consumed += record.len();
        }
    }

    /// The keyed hash of the next chunk, over its number, first word and data.
    pub(crate) fn next_mac(&mut self, word: u32, data: &[u8]) -> [u8; MAC_BYTES] {
        assert_eq!(self.data, DataProtection::Integrity);
        let mut hasher = blake3::Hasher::new_keyed(&self.mac_key);
        hasher.update(&self.chunks.to_le_bytes()).update(&word.to_le_bytes()).update(data);
        self.chunks += 1;
        let mut tag = [0; MAC_BYTES];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..MAC_BYTES]);
        tag
    }

    /// Fails with `FrameError::Authentication` if `tag` is not the hash of the next chunk.
    pub(crate) fn verify_mac(
        &mut self,
        word: u32,
        data: &[u8],
        tag: &[u8],
    ) -> Result<(), FrameError> {
        let expected = self.next_mac(word, data);
        // All bytes are compared, so that the time does not reveal the first difference.
        let difference = expected.iter().zip(tag).fold(0, |all, (a, b)| all | (a ^ b));
        if tag.len() != MAC_BYTES || std::hint::black_box(difference) != 0 {
            return Err(FrameError::Authentication);
        }
        Ok(())
    }
}
