//! A job's staging calls over a Unix socket: one call and its reply per connection.

use crate::channel::channel;
use crate::frame::{self, Flags, FrameError, Kind};
use crate::stream::Stream;
use forebay_protocol::staging::{JobRequest, StagingReply};
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use crate::channel::{Receiver, Sender};

/// Longest body, in bytes: lists of some hundred thousand paths.
pub const MAX_STAGING_BODY_BYTES: usize = 32 << 20;

/// Sends a call to the service at `socket` and waits for its reply, however long that takes.
pub fn call_service(socket: &Path, call: &JobRequest) -> io::Result<StagingReply> {
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        // No socket has such a path.
        io::ErrorKind::InvalidInput => io::ErrorKind::NotFound.into(),
        _ => error,
    })?;
    let (mut sender, mut receiver) = channel(Stream::Unix(stream));
    // A service that refuses without reading the call may have closed its end already; the reason
    // can be received nevertheless.
    let sent = match send_message(&mut sender, Kind::Call, call) {
        Err(error) if !is_disconnected(&error) => return Err(error),
        sent => sent,
    };
    match (receive_message(&mut receiver, Kind::Reply), sent) {
        (Err(_), Err(error)) => Err(error),
        (reply, _) => reply,
    }
}

fn is_disconnected(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// The service's end of a connection: receives the one call.
pub fn receive_call(stream: &Arc<Stream>) -> io::Result<JobRequest> {
    receive_message(&mut Receiver::new(stream.clone(), None), Kind::Call)
}

/// Sends the one reply.
pub fn send_reply(stream: &Arc<Stream>, reply: &StagingReply) -> io::Result<()> {
    send_message(&mut Sender::new(stream.clone(), None), Kind::Reply, reply)
}

fn send_message<T: Serialize>(sender: &mut Sender, kind: Kind, message: &T) -> io::Result<()> {
    let mut out = Vec::new();
    let fields = (kind, Flags::default(), 0);
    frame::encode(&mut out, fields, message, 0, MAX_STAGING_BODY_BYTES)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    sender.send(&out, None)
}

fn receive_message<T: DeserializeOwned>(receiver: &mut Receiver, kind: Kind) -> io::Result<T> {
    let Some((header, body)) = receiver.receive(MAX_STAGING_BODY_BYTES)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    if header.kind != kind || header.payload > 0 {
        return Err(FrameError::Kind.into());
    }
    Ok(frame::decode(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::staging::{PathKind, StagingCall};
    use proptest::prelude::*;

    fn pair() -> (Arc<Stream>, Arc<Stream>) {
        let (near, far) = UnixStream::pair().unwrap();
        (Arc::new(Stream::Unix(near)), Arc::new(Stream::Unix(far)))
    }

    #[test]
    fn refusal_is_received_from_service_that_does_not_read_the_call() {
        let socket = std::env::temp_dir().join(format!("forebay-ask-{}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let refused = StagingReply::Refused(libc::EACCES, "no".into());
        let reply = refused.clone();
        let server = std::thread::spawn(move || {
            for _ in 0..50 {
                let (stream, _) = listener.accept().unwrap();
                send_reply(&Arc::new(Stream::Unix(stream)), &reply).unwrap();
            }
        });
        // So much that it does not fit into the socket's buffer.
        let call = JobRequest {
            job: "job".into(),
            call: StagingCall::Query(PathKind::File, vec!["x".repeat(4 << 20)]),
        };
        for _ in 0..50 {
            assert_eq!(call_service(&socket, &call).unwrap(), refused);
        }
        server.join().unwrap();
        std::fs::remove_file(&socket).unwrap();
    }

    proptest! {
        #[test]
        fn call_is_received_as_it_was_sent(paths: Vec<String>) {
            let job = paths.concat();
            let call = JobRequest { job, call: StagingCall::Query(PathKind::File, paths) };
            let (near, far) = pair();
            send_message(&mut Sender::new(near, None), Kind::Call, &call).unwrap();
            prop_assert_eq!(receive_call(&far).unwrap(), call);
        }

        #[test]
        fn any_bytes_are_refused_or_parsed_without_panic(bytes: Vec<u8>) {
            let (near, far) = pair();
            let mut framed = Vec::new();
            let fields = (Kind::Call, Flags::default(), 0);
            frame::encode(&mut framed, fields, &bytes, 0, MAX_STAGING_BODY_BYTES).unwrap();
            near.send_parts(&[&framed, &bytes], None).unwrap();
            drop(near);
            let _ = receive_call(&far);
            let _ = receive_call(&far);
        }
    }
}
