//! Calls of a job's processes over a Unix socket.

use forebay_net::channel::Sender;
use forebay_net::frame::{self, Flags, Kind};
use forebay_net::job_socket::{MAX_STAGING_BODY_BYTES, call_service, receive_call, send_reply};
use forebay_net::stream::Stream;
use forebay_protocol::staging::{JobRequest, PathKind, StagingCall, StagingReply};
use proptest::prelude::*;
use serde::Serialize;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The frame of a call.
fn framed(message: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = (Kind::Call, Flags::default(), 0);
    frame::encode(&mut out, fields, message, 0, MAX_STAGING_BODY_BYTES).unwrap();
    out
}

fn pair() -> (Arc<Stream>, Arc<Stream>) {
    let (near, far) = UnixStream::pair().unwrap();
    (Arc::new(Stream::Unix(near)), Arc::new(Stream::Unix(far)))
}

#[test]
fn refusal_is_received_from_service_that_does_not_read_the_call() {
    let socket = std::env::temp_dir().join(format!("forebay-call-{}", std::process::id()));
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
        Sender::new(near, None).send(&framed(&call), None).unwrap();
        prop_assert_eq!(receive_call(&far, |_| Ok(())).unwrap(), call);
    }

    #[test]
    fn any_bytes_are_refused_or_parsed_without_panic(bytes: Vec<u8>) {
        let (near, far) = pair();
        near.send_parts([&framed(&bytes)[..], &bytes], None).unwrap();
        drop(near);
        let _ = receive_call(&far, |_| Ok(()));
        let _ = receive_call(&far, |_| Ok(()));
    }
}
