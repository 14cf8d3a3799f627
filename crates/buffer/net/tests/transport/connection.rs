//! Connections over Unix sockets.

use forebay_net::channel::channel;
use forebay_net::connection::Connection;
use forebay_net::frame::{self, Flags, Kind, MAX_BODY_BYTES};
use forebay_net::stream::Stream;
use forebay_protocol::message::{Call, InodeRequest, Reply, Request};
use forebay_protocol::{Errno, Ino};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

#[test]
fn descriptor_arrives_with_its_reply_and_payload_in_the_callers_buffer() {
    let (near, far) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let (mut sender, mut receiver) = channel(Stream::Unix(far));
        let (header, _) = receiver.receive(MAX_BODY_BYTES).unwrap().unwrap();
        assert_eq!((header.kind, header.seq), (Kind::Call, 3));
        let path = std::env::temp_dir().join(format!("forebay-net-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(b"by descriptor").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut out = Vec::new();
        let earlier = Reply::Failed(Errno::EIO);
        frame::encode_reply(&mut out, 2, Flags::default(), &earlier, 0).unwrap();
        let flags = Flags { descriptor: true, cacheable: false };
        frame::encode_reply(&mut out, 3, flags, &Reply::Data, 7).unwrap();
        sender.send(&out, Some(file.as_fd())).unwrap();
        sender.send_payload(&[], b"payload", 0).unwrap();
    });
    let mut connection = Connection::from(channel(Stream::Unix(near)));
    let call = Call {
        seq: 3,
        caller: None,
        tags: Vec::new(),
        request: Request::Inode(InodeRequest::GetAttr { ino: Ino::ROOT }),
    };
    let mut into = [0; 16];
    let response = connection.call(&call, &[], &mut into).unwrap();
    assert_eq!((response.reply, &into[..response.payload]), (Reply::Data, &b"payload"[..]));
    let mut text = String::new();
    std::fs::File::from(response.descriptor.unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, "by descriptor");
    server.join().unwrap();
}
