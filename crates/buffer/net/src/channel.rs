//! Sending and receiving frames and payloads on a blocking socket.

use crate::chunk::{self, CHUNK_HEADER_BYTES, Chunk};
use crate::frame::{self, FrameError, HEADER_BYTES, Header};
use crate::record::{
    DataProtection, MAC_BYTES, MAX_RECORD_BYTES, RECORD_HEADER_BYTES, RECORD_TAG_BYTES,
    RecordCipher, encrypted_length, record_length,
};
use crate::stream::Stream;
use forebay_protocol::ids::Errno;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that are received ahead of their use.
const BUFFER_BYTES: usize = 16 << 10;
/// The same where everything arrives in records.
const RECORD_BUFFER_BYTES: usize = 8 * (RECORD_HEADER_BYTES + MAX_RECORD_BYTES + RECORD_TAG_BYTES);
/// Bytes by which the memory for a body grows as the body arrives.
const BODY_STEP_BYTES: usize = 64 << 10;

/// The sending direction of a connection.
#[derive(Debug)]
pub struct Sender {
    stream: Arc<Stream>,
    cipher: Option<RecordCipher>,
    records: RecordBuffer,
}

/// Records to send, in memory that is reused without being zeroed.
#[derive(Debug, Default)]
struct RecordBuffer {
    bytes: Vec<u8>,
    length: usize,
}

impl RecordBuffer {
    fn push(&mut self, cipher: &mut RecordCipher, plain: &[u8]) -> Result<(), FrameError> {
        let end = self.length + encrypted_length(plain.len());
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        cipher.encrypt_into(plain, &mut self.bytes[self.length..end])?;
        self.length = end;
        Ok(())
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Sender {
    /// Sends frames in clear, as on a Unix socket and before the handshake; with a cipher, in
    /// records.
    pub fn new(stream: Arc<Stream>, cipher: Option<RecordCipher>) -> Sender {
        Sender { stream, cipher, records: RecordBuffer::default() }
    }

    /// The socket.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Encrypts everything from now on.
    pub fn set_cipher(&mut self, cipher: RecordCipher) {
        assert!(self.cipher.is_none(), "a connection has one handshake");
        self.cipher = Some(cipher);
    }

    pub(crate) fn protect_data(&mut self, data: DataProtection, mac_key: [u8; 32]) {
        if let Some(cipher) = &mut self.cipher {
            cipher.protect_data(data, mac_key);
        }
    }

    /// Sends frames, encrypted if there is a cipher, and behind them `data` unchanged.
    fn send_parts<'a>(
        &'a mut self,
        frames: &'a [u8],
        data: impl IntoIterator<Item = &'a [u8]>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let frames = match &mut self.cipher {
            None => frames,
            Some(cipher) => {
                assert!(descriptor.is_none(), "descriptors stay on the host");
                self.records.length = 0;
                self.records.push(cipher, frames)?;
                self.records.get()
            }
        };
        self.stream.send_parts(std::iter::once(frames).chain(data), descriptor)
    }

    /// Sends whole frames, and `descriptor` with their first byte.
    pub fn send(&mut self, frames: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.send_parts(frames, [], descriptor)
    }

    /// Sends `head`, whole frames, and behind them a chunk of `word` and `data`.
    fn send_word(&mut self, head: &[u8], word: u32, data: &[u8]) -> io::Result<()> {
        let Some(cipher) = &mut self.cipher else {
            return self.send_parts(head, [&chunk::header(word, data)[..], data], None);
        };
        match cipher.data() {
            DataProtection::Off => {
                self.send_parts(head, [&chunk::header(word, data)[..], data], None)
            }
            DataProtection::Integrity => {
                let tag = cipher.next_mac(word, data);
                self.send_parts(head, [&word.to_le_bytes()[..], &tag, data], None)
            }
            DataProtection::Encrypted => {
                self.records.length = 0;
                for part in [head, &word.to_le_bytes(), data] {
                    self.records.push(cipher, part)?;
                }
                self.stream.send_parts([self.records.get()], None)
            }
        }
    }

    /// Sends `head`, which may be empty, and one chunk of `data`, at most
    /// [`MAX_CHUNK_BYTES`](chunk::MAX_CHUNK_BYTES).
    pub fn send_chunk(&mut self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let word = chunk::data_word(data)?;
        self.send_word(head, word, data)
    }

    /// Sends the head of a frame and its whole payload, the data at `offset` of an object.
    pub fn send_payload(&mut self, head: &[u8], payload: &[u8], offset: u64) -> io::Result<()> {
        let (mut head, mut rest) = (head, payload);
        for length in chunk::chunk_lengths(offset, payload.len()) {
            let (now, later) = rest.split_at(length);
            self.send_chunk(head, now)?;
            (head, rest) = (&[], later);
        }
        assert!(rest.is_empty(), "the chunks cover the payload");
        if head.is_empty() { Ok(()) } else { self.send(head, None) }
    }

    /// Sends the head of a frame and its whole payload: if the payload is not protected by
    /// cryptography in one system call, so that the receiver does not wait for checksums.
    pub fn send_chunks(&mut self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        if self.cipher.as_ref().is_some_and(|cipher| cipher.data() != DataProtection::Off) {
            return self.send_payload(head, payload, 0);
        }
        let chunks = || payload.chunks(chunk::MAX_CHUNK_BYTES);
        let headers: Vec<_> = chunks().map(|data| chunk::header(data.len() as u32, data)).collect();
        let parts = headers.iter().zip(chunks());
        self.send_parts(head, parts.flat_map(|(header, data)| [&header[..], data]), None)
    }

    /// Sends the reason why an announced payload ends early.
    pub fn send_failure(&mut self, errno: Errno) -> io::Result<()> {
        self.send_word(&[], chunk::failure_word(errno), &[])
    }
}

/// Bytes that have been received and not used yet.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    fn ready(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Drops the first `count` bytes.
    fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end && self.end <= self.bytes.len());
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves bytes to the front of `into`, and returns their number.
    fn take(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(&self.bytes[self.start..self.start + count]);
        self.consume(count);
        count
    }

    /// Makes space for `need` contiguous bytes, including those in the buffer.
    fn reserve(&mut self, need: usize, capacity: usize) {
        if self.start + need > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if need > self.bytes.len() {
                self.bytes.resize(need.max(capacity), 0);
            }
        }
    }
}

/// The receiving direction of a connection.
#[derive(Debug)]
pub struct Receiver {
    stream: Arc<Stream>,
    cipher: Option<RecordCipher>,
    /// As received.
    raw: Buffer,
    /// Decrypted.
    plain: Buffer,
    body: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    deadline: Option<Instant>,
}

impl Receiver {
    /// The counterpart of [`Sender::new`].
    pub fn new(stream: Arc<Stream>, cipher: Option<RecordCipher>) -> Receiver {
        Receiver::resume(stream, cipher, Vec::new(), Vec::new())
    }

    /// For a connection on which `plain` and then `raw` have been received: `plain` is decrypted,
    /// or needs no decryption, `raw` is encrypted.
    pub fn resume(
        stream: Arc<Stream>,
        cipher: Option<RecordCipher>,
        plain: Vec<u8>,
        raw: Vec<u8>,
    ) -> Receiver {
        let buffer = |bytes: Vec<u8>| Buffer { start: 0, end: bytes.len(), bytes };
        let (plain, raw) = match cipher {
            Some(_) => (plain, raw),
            None => {
                assert!(raw.is_empty(), "without a cipher nothing is encrypted");
                (raw, plain)
            }
        };
        Receiver {
            stream,
            cipher,
            raw: buffer(raw),
            plain: buffer(plain),
            body: Vec::new(),
            descriptors: VecDeque::new(),
            deadline: None,
        }
    }

    /// The socket.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Decrypts everything from now on.
    pub fn set_cipher(&mut self, cipher: RecordCipher) {
        assert!(self.cipher.is_none(), "a connection has one handshake");
        self.cipher = Some(cipher);
    }

    pub(crate) fn protect_data(&mut self, data: DataProtection, mac_key: [u8; 32]) {
        if let Some(cipher) = &mut self.cipher {
            cipher.protect_data(data, mac_key);
        }
    }

    /// Sets the time by which frames must have arrived, however slowly the peer sends; `None`: no
    /// limit, and no timeout of the socket.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        if deadline.is_none() {
            self.stream.set_timeout(None)?;
        }
        Ok(())
    }

    /// The first received descriptor that has not been taken.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// Waits until something has arrived, or the peer has closed the connection. `false`: nothing has
    /// within `timeout`.
    pub fn await_input(&self, timeout: Duration) -> io::Result<bool> {
        if !self.raw.ready().is_empty() || !self.plain.ready().is_empty() {
            return Ok(true);
        }
        self.stream.has_input(timeout)
    }

    fn limit_wait(&self) -> io::Result<()> {
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(1) {
                return Err(timeout());
            }
            self.stream.set_timeout(Some(left))?;
        }
        Ok(())
    }

    /// Waits for `need` contiguous raw bytes. `false`: the peer closed the connection, and there are
    /// none.
    fn gather(&mut self, need: usize) -> io::Result<bool> {
        let capacity = match self.data_protection() {
            DataProtection::Encrypted => RECORD_BUFFER_BYTES,
            DataProtection::Off | DataProtection::Integrity => BUFFER_BYTES,
        };
        self.raw.reserve(need, capacity);
        while self.raw.end - self.raw.start < need {
            self.limit_wait()?;
            self.stream.await_input()?;
            let into = &mut self.raw.bytes[self.raw.end..];
            let count = match self.stream.receive(into, &mut self.descriptors) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.deadline.is_some() => {
                    return Err(timeout());
                }
                other => other?,
            };
            if count == 0 && self.raw.ready().is_empty() {
                return Ok(false);
            }
            if count == 0 {
                return Err(ErrorKind::ConnectionReset.into());
            }
            self.raw.end += count;
        }
        Ok(true)
    }

    fn data_protection(&self) -> DataProtection {
        self.cipher.as_ref().map_or(DataProtection::Off, RecordCipher::data)
    }

    /// Receives some bytes of a frame into the front of `into`, decrypted. 0: the peer closed the
    /// connection.
    fn receive_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.cipher.is_none() {
            self.gather(1)?;
            return Ok(self.raw.take(into));
        }
        if !self.gather(RECORD_HEADER_BYTES)? {
            return Ok(0);
        }
        let length = record_length(self.raw.ready())?;
        self.gather(length)?;
        let (Some(cipher), Some(record)) = (&mut self.cipher, self.raw.ready().get(..length))
        else {
            return Err(ErrorKind::ConnectionReset.into());
        };
        let plain = length - RECORD_HEADER_BYTES - RECORD_TAG_BYTES;
        let count = if plain <= into.len() {
            cipher.decrypt_record(record, into)?
        } else {
            assert!(self.plain.ready().is_empty(), "plaintext is used in order");
            // With space for the tag, the cipher does not copy.
            self.plain.reserve(length, length);
            self.plain.end = cipher.decrypt_record(record, &mut self.plain.bytes)?;
            self.plain.take(into)
        };
        self.raw.consume(length);
        Ok(count)
    }

    /// Fills `into` with bytes of frames, decrypted. `false`: the peer closed the connection before
    /// the first one.
    fn fill(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let mut have = self.plain.take(into);
        while have < into.len() {
            match self.receive_some(&mut into[have..])? {
                0 if have == 0 => return Ok(false),
                0 => return Err(ErrorKind::ConnectionReset.into()),
                count => have += count,
            }
        }
        Ok(true)
    }

    /// Receives header and body of the next frame, whose body may have `max_body` bytes. `None`: the
    /// peer closed the connection.
    pub fn receive(&mut self, max_body: usize) -> io::Result<Option<(Header, &[u8])>> {
        self.receive_if(max_body, |_| Ok(()))
    }

    /// As [`receive`](Self::receive). Before memory is used for the body, `admit` is asked with its
    /// length in bytes, and may fail.
    pub fn receive_if(
        &mut self,
        max_body: usize,
        admit: impl FnOnce(usize) -> io::Result<()>,
    ) -> io::Result<Option<(Header, &[u8])>> {
        let mut head = [0; HEADER_BYTES];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let header = frame::parse_header(&head, max_body)?;
        admit(header.body)?;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        // Memory grows with the received bytes, not with the announced length.
        while body.len() < header.body {
            let have = body.len();
            body.resize(header.body.min(have + BODY_STEP_BYTES), 0);
            if !self.fill(&mut body[have..])? {
                return Err(ErrorKind::ConnectionReset.into());
            }
        }
        frame::check_body(&head, &header, &body)?;
        self.body = body;
        Ok(Some((header, &self.body)))
    }

    /// Fills `into` with bytes of a payload.
    fn fill_payload(&mut self, into: &mut [u8]) -> io::Result<()> {
        if self.data_protection() == DataProtection::Encrypted {
            if !into.is_empty() && !self.fill(into)? {
                return Err(ErrorKind::ConnectionReset.into());
            }
            return Ok(());
        }
        let have = self.raw.take(into);
        self.stream.receive_all(&mut into[have..], &mut self.descriptors)
    }

    /// Receives a chunk into the front of `into`, which has space for the rest of the payload. After
    /// an error `into` may contain damaged data.
    pub fn receive_chunk(&mut self, into: &mut [u8]) -> io::Result<Chunk> {
        let mut head = [0; 4 + MAC_BYTES];
        let mode = self.data_protection();
        let head = match mode {
            DataProtection::Off => &mut head[..CHUNK_HEADER_BYTES],
            DataProtection::Integrity => &mut head[..],
            DataProtection::Encrypted => &mut head[..4],
        };
        self.fill_payload(head)?;
        let (word, check) = head.split_first_chunk().ok_or(FrameError::Length)?;
        let word = u32::from_le_bytes(*word);
        let data = chunk::data_range(word, into)?;
        self.fill_payload(data)?;
        match (mode, &mut self.cipher) {
            (DataProtection::Integrity, Some(cipher)) => cipher.verify_mac(word, data, check)?,
            (DataProtection::Off | DataProtection::Integrity, _) => {
                if chunk::header(word, data)[..] != *head {
                    return Err(FrameError::Checksum.into());
                }
            }
            // Records are authenticated.
            (DataProtection::Encrypted, _) => {}
        }
        Ok(chunk::parse_word(word))
    }
}

fn timeout() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "timeout: the peer did not authenticate in time")
}

/// Both directions of a new connection, in clear.
pub fn channel(stream: Stream) -> (Sender, Receiver) {
    let stream = Arc::new(stream);
    (Sender::new(stream.clone(), None), Receiver::new(stream, None))
}
