//! Sending and receiving frames and payloads on a blocking socket.

use crate::chunk::{self, CHUNK_HEADER_BYTES, Chunk};
use crate::frame::{self, FrameError, HEADER_BYTES, Header};
use crate::record::{
    DataProtection, MAC_BYTES, MAX_RECORD_BYTES, RECORD_HEADER_BYTES, RECORD_TAG_BYTES,
    ReceiveGuard, SendGuard, record_length, sealed_length,
};
use crate::stream::Stream;
use forebay_protocol::ids::Errno;
use std::collections::VecDeque;
use std::io;
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
    guard: Option<SendGuard>,
    sealed: Sealed,
}

/// Records on their way out, in memory that is kept.
#[derive(Debug, Default)]
struct Sealed {
    bytes: Vec<u8>,
    length: usize,
}

impl Sealed {
    fn push(&mut self, guard: &mut SendGuard, plain: &[u8]) -> Result<(), FrameError> {
        let need = self.length + sealed_length(plain.len());
        if need > self.bytes.len() {
            self.bytes.resize(need, 0);
        }
        self.length += guard.seal_into(plain, &mut self.bytes[self.length..])?;
        Ok(())
    }

    fn get(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Sender {
    /// Frames in clear, as on a Unix socket and before the handshake; with a guard in records.
    pub fn new(stream: Arc<Stream>, guard: Option<SendGuard>) -> Sender {
        Sender { stream, guard, sealed: Sealed::default() }
    }

    /// The socket.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// From now on everything is sent in records.
    pub fn set_guard(&mut self, guard: SendGuard) {
        debug_assert!(self.guard.is_none(), "a connection has one handshake");
        self.guard = Some(guard);
    }

    pub(crate) fn has_guard(&self) -> bool {
        self.guard.is_some()
    }

    pub(crate) fn protect_data(&mut self, data: DataProtection, mac: [u8; 32]) {
        if let Some(guard) = &mut self.guard {
            guard.protect_data(data, mac);
        }
    }

    fn protection(&self) -> Option<DataProtection> {
        self.guard.as_ref().map(SendGuard::data)
    }

    /// Sends whole frames, and `descriptor` with their first byte.
    pub fn send(&mut self, frames: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        match &mut self.guard {
            None => self.stream.send_parts(&[frames], descriptor),
            Some(guard) => {
                self.sealed.length = 0;
                self.sealed.push(guard, frames)?;
                self.stream.send_parts(&[self.sealed.get()], None)
            }
        }
    }

    /// Sends `head`, whole frames, and behind them a chunk of `word` and `data`.
    fn send_word(&mut self, head: &[u8], word: u32, data: &[u8]) -> io::Result<()> {
        let Some(guard) = &mut self.guard else {
            let header = chunk::header(word, data);
            return self.stream.send_parts(&[head, &header, data], None);
        };
        self.sealed.length = 0;
        self.sealed.push(guard, head)?;
        match guard.data() {
            DataProtection::Off => {
                let header = chunk::header(word, data);
                self.stream.send_parts(&[self.sealed.get(), &header, data], None)
            }
            DataProtection::Integrity => {
                let tag = guard.mac(word, data);
                self.stream.send_parts(&[self.sealed.get(), &word.to_le_bytes(), &tag, data], None)
            }
            DataProtection::Encrypted => {
                self.sealed.push(guard, &word.to_le_bytes())?;
                self.sealed.push(guard, data)?;
                self.stream.send_parts(&[self.sealed.get()], None)
            }
        }
    }

    /// Sends `head`, if there is any, and one chunk behind it: `data`, at most
    /// [`MAX_CHUNK_BYTES`](chunk::MAX_CHUNK_BYTES).
    pub fn send_chunk(&mut self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let word = chunk::data_word(data)?;
        self.send_word(head, word, data)
    }

    /// Sends the head of a frame and all of its payload, which lies at `offset` of an object.
    pub fn send_payload(&mut self, head: &[u8], payload: &[u8], offset: u64) -> io::Result<()> {
        let (mut head, mut rest) = (head, payload);
        for length in chunk::chunk_lengths(offset, payload.len()) {
            let (now, later) = rest.split_at(length);
            self.send_chunk(head, now)?;
            (head, rest) = (&[], later);
        }
        debug_assert!(rest.is_empty());
        if head.is_empty() {
            return Ok(());
        }
        self.send(head, None)
    }

    /// Sends `head` and `data` behind it as chunks. Without cryptography they are sent by one system
    /// call: the receiver is not kept waiting while the sender computes the next checksum.
    pub fn send_chunks(&mut self, head: &[u8], data: &[u8]) -> io::Result<()> {
        let plain = matches!(self.protection(), None | Some(DataProtection::Off));
        if !plain {
            let mut head = head;
            for data in data.chunks(chunk::MAX_CHUNK_BYTES) {
                self.send_chunk(head, data)?;
                head = &[];
            }
            return if head.is_empty() { Ok(()) } else { self.send(head, None) };
        }
        self.sealed.length = 0;
        let head = match &mut self.guard {
            Some(guard) => {
                self.sealed.push(guard, head)?;
                self.sealed.get()
            }
            None => head,
        };
        let chunks = || data.chunks(chunk::MAX_CHUNK_BYTES);
        let headers: Vec<_> = chunks().map(|data| chunk::header(data.len() as u32, data)).collect();
        let parts = headers.iter().zip(chunks());
        let parts = parts.flat_map(|(header, data)| [&header[..], data]);
        let parts: Vec<&[u8]> = std::iter::once(head).chain(parts).collect();
        self.stream.send_parts(&parts, None)
    }

    /// Reports why a payload that was announced does not follow.
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

    /// Uses `count` of the bytes.
    fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "only received bytes are used");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves bytes to the front of `into`, and returns how many.
    fn take(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.end - self.start);
        into[..count].copy_from_slice(&self.bytes[self.start..self.start + count]);
        self.consume(count);
        count
    }

    /// Room for `need` bytes in all, in one piece.
    fn make_room(&mut self, need: usize, capacity: usize) {
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
    guard: Option<ReceiveGuard>,
    /// As they came.
    raw: Buffer,
    /// Decrypted.
    plain: Buffer,
    body: Vec<u8>,
    descriptors: VecDeque<OwnedFd>,
    deadline: Option<Instant>,
}

impl Receiver {
    /// The counterpart of [`Sender::new`].
    pub fn new(stream: Arc<Stream>, guard: Option<ReceiveGuard>) -> Receiver {
        Receiver::resume(stream, guard, Vec::new(), Vec::new())
    }

    /// For a connection on which `raw` has been received and not decrypted, and before it `plain`,
    /// which has been decrypted, or needs no decryption.
    pub fn resume(
        stream: Arc<Stream>,
        guard: Option<ReceiveGuard>,
        plain: Vec<u8>,
        raw: Vec<u8>,
    ) -> Receiver {
        let buffer = |bytes: Vec<u8>| Buffer { start: 0, end: bytes.len(), bytes };
        let (plain, raw) = match guard {
            Some(_) => (plain, raw),
            None => {
                assert!(raw.is_empty(), "without a guard nothing has to be decrypted");
                (raw, plain)
            }
        };
        Receiver {
            stream,
            guard,
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

    /// From now on everything arrives in records.
    pub fn set_guard(&mut self, guard: ReceiveGuard) {
        debug_assert!(self.guard.is_none(), "a connection has one handshake");
        self.guard = Some(guard);
    }

    pub(crate) fn protect_data(&mut self, data: DataProtection, mac: [u8; 32]) {
        if let Some(guard) = &mut self.guard {
            guard.protect_data(data, mac);
        }
    }

    /// Everything must have arrived by then, however slowly the peer sends; `None`: no limit, and no
    /// timeout of the socket.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        if deadline.is_none() {
            self.stream.set_timeout(None)?;
        }
        Ok(())
    }

    /// The descriptor that came first of those not taken yet.
    pub fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
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

    /// Waits until `need` raw bytes are in one piece. `false`: the peer closed before the first.
    fn gather(&mut self, need: usize) -> io::Result<bool> {
        let capacity = match &self.guard {
            Some(guard) if guard.data() == DataProtection::Encrypted => RECORD_BUFFER_BYTES,
            _ => BUFFER_BYTES,
        };
        self.raw.make_room(need, capacity);
        while self.raw.end - self.raw.start < need {
            self.limit_wait()?;
            self.stream.await_input()?;
            let into = &mut self.raw.bytes[self.raw.end..];
            let count = match self.stream.receive(into, &mut self.descriptors) {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && self.deadline.is_some() =>
                {
                    return Err(timeout());
                }
                other => other?,
            };
            if count == 0 && self.raw.ready().is_empty() {
                return Ok(false);
            }
            if count == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            self.raw.end += count;
        }
        Ok(true)
    }

    /// Fills all of `into` with raw bytes.
    fn fill_raw(&mut self, into: &mut [u8]) -> io::Result<()> {
        let have = self.raw.take(into);
        if have < into.len() {
            self.stream.receive_all(&mut into[have..], &mut self.descriptors)?;
        }
        Ok(())
    }

    /// Receives a whole record, and returns its length. `None`: the peer closed before it.
    fn gather_record(&mut self) -> io::Result<Option<usize>> {
        if !self.gather(RECORD_HEADER_BYTES)? {
            return Ok(None);
        }
        let length = record_length(self.raw.ready())?;
        if !self.gather(length)? {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(Some(length))
    }

    /// Decrypts records until `into` is full. `false`: the peer closed before the first byte.
    fn fill_plain(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let mut have = self.plain.take(into);
        while have < into.len() {
            let Some(length) = self.gather_record()? else {
                if have == 0 {
                    return Ok(false);
                }
                return Err(io::ErrorKind::ConnectionReset.into());
            };
            let Some(guard) = &mut self.guard else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let record = &self.raw.bytes[self.raw.start..self.raw.start + length];
            let plain = length - RECORD_HEADER_BYTES - RECORD_TAG_BYTES;
            if plain <= into.len() - have {
                have += guard.open_record(record, &mut into[have..])?;
            } else {
                // Room for the tag spares the cipher a copy.
                self.plain.make_room(length, length);
                (self.plain.start, self.plain.end) = (0, 0);
                self.plain.end = guard.open_record(record, &mut self.plain.bytes)?;
                have += self.plain.take(&mut into[have..]);
            }
            self.raw.consume(length);
        }
        Ok(true)
    }

    /// Fills `into` with bytes of a frame. `false`: the peer closed before the first one.
    fn fill_frame(&mut self, into: &mut [u8]) -> io::Result<bool> {
        if self.guard.is_some() {
            return self.fill_plain(into);
        }
        let mut have = 0;
        while have < into.len() {
            if self.raw.ready().is_empty() && !self.gather(1)? {
                if have == 0 {
                    return Ok(false);
                }
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            have += self.raw.take(&mut into[have..]);
        }
        Ok(true)
    }

    /// Receives header and body of the next frame, whose body may have `max_body` bytes. `None`: the
    /// peer has closed the connection.
    pub fn receive(&mut self, max_body: usize) -> io::Result<Option<(Header, &[u8])>> {
        let mut head = [0; HEADER_BYTES];
        if !self.fill_frame(&mut head)? {
            return Ok(None);
        }
        let header = frame::parse_header(&head, max_body)?;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        // Memory grows as the bytes arrive: a peer that announces much has to send it.
        while body.len() < header.body {
            let have = body.len();
            body.resize(header.body.min(have + BODY_STEP_BYTES), 0);
            if !self.fill_frame(&mut body[have..])? {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
        frame::check_body(&head, &header, &body)?;
        self.body = body;
        Ok(Some((header, &self.body)))
    }

    /// Receives a chunk into the front of `into`, which has room for the rest of the payload. After
    /// an error `into` holds damaged data.
    pub fn receive_chunk(&mut self, into: &mut [u8]) -> io::Result<Chunk> {
        match self.guard.as_ref().map(ReceiveGuard::data) {
            None | Some(DataProtection::Off) => {
                let mut head = [0; CHUNK_HEADER_BYTES];
                self.fill_raw(&mut head)?;
                let [a, b, c, d, ..] = head;
                let word = u32::from_le_bytes([a, b, c, d]);
                let data = chunk::data_range(word, into)?;
                self.fill_raw(data)?;
                if chunk::header(word, data) != head {
                    return Err(FrameError::Checksum.into());
                }
                Ok(chunk::parse_word(word))
            }
            Some(DataProtection::Integrity) => {
                let (mut word, mut tag) = ([0; 4], [0; MAC_BYTES]);
                self.fill_raw(&mut word)?;
                self.fill_raw(&mut tag)?;
                let word = u32::from_le_bytes(word);
                let data = chunk::data_range(word, into)?;
                self.fill_raw(data)?;
                if let Some(guard) = &mut self.guard {
                    guard.verify(word, data, &tag)?;
                }
                Ok(chunk::parse_word(word))
            }
            Some(DataProtection::Encrypted) => {
                let mut word = [0; 4];
                self.fill_whole(&mut word)?;
                let word = u32::from_le_bytes(word);
                let data = chunk::data_range(word, into)?;
                self.fill_whole(data)?;
                Ok(chunk::parse_word(word))
            }
        }
    }

    fn fill_whole(&mut self, into: &mut [u8]) -> io::Result<()> {
        if into.is_empty() || self.fill_plain(into)? {
            return Ok(());
        }
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

fn timeout() -> io::Error {
    let reason = "timeout: the peer did not authenticate in time";
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

/// Both directions of a new connection, in clear.
pub fn channel(stream: Stream) -> (Sender, Receiver) {
    let stream = Arc::new(stream);
    (Sender::new(stream.clone(), None), Receiver::new(stream, None))
}
