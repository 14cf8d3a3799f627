//! A job's staging calls over a Unix socket: one call and its reply per connection.

use crate::channel::{Receiver, Sender, channel};
use crate::frame::{self, Flags, FrameError, Kind};
use crate::stream::Stream;
use forebay_protocol::staging::{JobRequest, StagingReply};
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// Longest body, in bytes: a list of some hundred thousand paths.
pub const MAX_STAGING_BODY_BYTES: usize = 32 << 20;

/// Sends a call to the service at `socket` and waits for its reply without a timeout.
pub fn call_service(socket: &Path, call: &JobRequest) -> io::Result<StagingReply> {
    call_with_descriptor(socket, call, None)
}

/// Sends any call, with a descriptor if there is one, and waits for its reply without a timeout.
pub fn call_with_descriptor<C: Serialize, R: DeserializeOwned>(
    socket: &Path,
    call: &C,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<R> {
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        // The path is too long for a socket.
        io::ErrorKind::InvalidInput => io::ErrorKind::NotFound.into(),
        _ => error,
    })?;
    let (mut sender, mut receiver) = channel(Stream::Unix(stream));
    // A service that refuses without reading the call may have closed its end. Its reply can still
    // be received.
    let sent = match send_message(&mut sender, Kind::Call, call, descriptor) {
        Err(error) if !is_disconnected(&error) => return Err(error),
        sent => sent,
    };
    let reply = receive_message(&mut receiver, Kind::Reply, MAX_STAGING_BODY_BYTES, |_| Ok(()));
    match (reply, sent) {
        (Err(_), Err(error)) => Err(error),
        (reply, _) => reply,
    }
}

fn is_disconnected(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Receives the call, at the service's end of a connection. Before memory is used for it, `admit` is
/// asked with its length in bytes, and may fail.
pub fn receive_call(
    stream: &Arc<Stream>,
    admit: impl FnOnce(usize) -> io::Result<()>,
) -> io::Result<JobRequest> {
    let mut receiver = Receiver::new(stream.clone(), None);
    receive_message(&mut receiver, Kind::Call, MAX_STAGING_BODY_BYTES, admit)
}

/// Receives any call of at most `max_bytes`, and the descriptor that was sent with it.
pub fn receive_with_descriptor<C: DeserializeOwned>(
    stream: &Arc<Stream>,
    max_bytes: usize,
) -> io::Result<(C, Option<OwnedFd>)> {
    let mut receiver = Receiver::new(stream.clone(), None);
    let call = receive_message(&mut receiver, Kind::Call, max_bytes, |_| Ok(()))?;
    Ok((call, receiver.take_descriptor()))
}

/// Sends the reply.
pub fn send_reply<R: Serialize>(stream: &Arc<Stream>, reply: &R) -> io::Result<()> {
    send_message(&mut Sender::new(stream.clone(), None), Kind::Reply, reply, None)
}

fn send_message<T: Serialize>(
    sender: &mut Sender,
    kind: Kind,
    message: &T,
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut out = Vec::new();
    let flags = Flags { descriptor: descriptor.is_some(), ..Flags::default() };
    let fields = (kind, flags, 0);
    frame::encode(&mut out, fields, message, 0, MAX_STAGING_BODY_BYTES)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    sender.send(&out, descriptor)
}

fn receive_message<T: DeserializeOwned>(
    receiver: &mut Receiver,
    kind: Kind,
    max_bytes: usize,
    admit: impl FnOnce(usize) -> io::Result<()>,
) -> io::Result<T> {
    let Some((header, body)) = receiver.receive_if(max_bytes, admit)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    if header.kind != kind || header.payload > 0 {
        return Err(FrameError::Kind.into());
    }
    Ok(frame::decode(body)?)
}
