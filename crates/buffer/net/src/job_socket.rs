//! A job's staging calls over a Unix socket: one call and its answer per connection.
//!
//! ```text
//! 0        2              6
//! version  length of body  body, encoded by `postcard`
//! ```
//! Integers are little-endian.

use forebay_protocol::staging::{JobRequest, StagingReply};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Longest body, in bytes: lists of some hundred thousand paths.
pub const MAX_BODY: usize = 32 << 20;
const VERSION: u16 = 2;

/// Make a call to the service at `socket` and wait for its answer, however long that takes.
pub fn call_service(socket: &Path, call: &JobRequest) -> io::Result<StagingReply> {
    let mut stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        // No socket has such a path.
        io::ErrorKind::InvalidInput => io::ErrorKind::NotFound.into(),
        _ => error,
    })?;
    // Whoever refuses without hearing what it is about may have hung up already; the reason is there
    // all the same.
    let sent = match send(&mut WithoutSignal(&stream), call) {
        Err(error) if !is_hung_up(&error) => return Err(error),
        sent => sent,
    };
    match (receive(&mut stream), sent) {
        (Err(_), Err(error)) => Err(error),
        (answer, _) => answer,
    }
}

/// A stream that fails when the other side has hung up, and does not raise SIGPIPE: C programs do
/// not expect a library to.
struct WithoutSignal<'a>(&'a UnixStream);

impl Write for WithoutSignal<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(self.0, bytes, rustix::net::SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_hung_up(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Send a call or an answer.
pub fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let invalid = |text| io::Error::new(io::ErrorKind::InvalidInput, text);
    let body = postcard::to_stdvec(message).map_err(|_| invalid("it cannot be encoded"))?;
    let length = u32::try_from(body.len()).ok();
    let Some(length) = length.filter(|_| body.len() <= MAX_BODY) else {
        return Err(invalid("too much for one call"));
    };
    let mut frame = Vec::with_capacity(6 + body.len());
    frame.extend_from_slice(&VERSION.to_le_bytes());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    stream.write_all(&frame)
}

/// Receive a call or an answer.
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let mut head = [0; 6];
    stream.read_exact(&mut head)?;
    let [v0, v1, l0, l1, l2, l3] = head;
    let version = u16::from_le_bytes([v0, v1]);
    if version != VERSION {
        return Err(invalid(format!(
            "the peer speaks version {version}, this side {VERSION}"
        )));
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > MAX_BODY {
        return Err(invalid(format!("longer than {MAX_BODY} bytes")));
    }
    // As much memory as there are bytes, whatever length was claimed.
    let mut body = Vec::new();
    stream.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    postcard::from_bytes(&body).map_err(|_| invalid("not a message of this version".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::staging::{PathKind, StagingCall};
    use proptest::prelude::*;

    #[test]
    fn a_refusal_is_heard_from_one_who_does_not_listen() {
        let socket = std::env::temp_dir().join(format!("forebay-ask-{}", std::process::id()));
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..50 {
                let (mut stream, _) = listener.accept().unwrap();
                send(
                    &mut stream,
                    &StagingReply::Refused(libc::EACCES, "no".into()),
                )
                .unwrap();
            }
        });
        // So much that it does not fit into the socket's buffer.
        let call = JobRequest {
            job: "job".into(),
            call: StagingCall::Query(PathKind::File, vec!["x".repeat(4 << 20)]),
        };
        for _ in 0..50 {
            let answer = call_service(&socket, &call).unwrap();
            assert_eq!(answer, StagingReply::Refused(libc::EACCES, "no".into()));
        }
        server.join().unwrap();
        std::fs::remove_file(&socket).unwrap();
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(paths: Vec<String>) {
            let job = paths.concat();
            let call = JobRequest { job, call: StagingCall::Query(PathKind::File, paths) };
            let mut bytes = Vec::new();
            send(&mut bytes, &call).unwrap();
            prop_assert_eq!(receive::<JobRequest>(&mut bytes.as_slice()).unwrap(), call);
        }

        #[test]
        fn any_bytes_are_refused_or_parsed_without_panic(bytes: Vec<u8>) {
            let _ = receive::<JobRequest>(&mut bytes.as_slice());
            let mut framed = vec![VERSION as u8, 0, bytes.len() as u8, 0, 0, 0];
            framed.extend(&bytes);
            let _ = receive::<JobRequest>(&mut framed.as_slice());
            let _ = receive::<StagingReply>(&mut framed.as_slice());
        }
    }
}
