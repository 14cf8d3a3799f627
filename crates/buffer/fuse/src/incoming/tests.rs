#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use super::*;
use crate::abi::OutHeader;
use crate::reply::{ReplyEmpty, ReplyEntry, ReplyWrite};
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::sync::Mutex;
use zerocopy::IntoBytes;

/// Implements nothing.
struct Nothing;

impl Filesystem for Nothing {}

/// A connection whose other side the test has.
fn connection() -> (Arc<Device>, UnixDatagram) {
    let (device, kernel) = UnixDatagram::pair().unwrap();
    kernel.set_nonblocking(true).unwrap();
    (Arc::new(Device::new(device.into())), kernel)
}

fn message(opcode: u32, arguments: &[u8]) -> Vec<u8> {
    let len = (size_of::<InHeader>() + arguments.len()) as u32;
    let header = InHeader { len, opcode, unique: 6, nodeid: 1, ..InHeader::default() };
    [header.as_bytes(), arguments].concat()
}

/// The error of the only reply. `None`: there is none.
fn replied(kernel: &UnixDatagram) -> Option<i32> {
    let mut buffer = [0; 4096];
    let length = match kernel.recv(&mut buffer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
        received => received.unwrap(),
    };
    let (header, _) = OutHeader::read_from_prefix(&buffer[..length]).unwrap();
    assert_eq!((header.len as usize, header.unique), (length, 6));
    assert_eq!(kernel.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    Some(-header.error)
}

#[test]
fn requests_of_any_length_and_contents_have_one_reply() {
    let (device, kernel) = connection();
    for opcode in 0..=60 {
        for length in 0..140 {
            for byte in [0, 1, 0xff] {
                let message = message(opcode, &vec![byte; length]);
                let incoming = Incoming::parse(&message, &device).unwrap();
                let has_reply = incoming.has_reply();
                let is_held = length % 2 == 1;
                if is_held {
                    incoming.hold().dispatch(&Nothing)
                } else {
                    incoming.dispatch(&Nothing)
                }
                let error = replied(&kernel);
                assert_eq!(error.is_some(), has_reply, "opcode {opcode}");
                let known = [libc::ENOSYS, libc::EIO, libc::ENOTTY];
                assert!(error.is_none_or(|error| known.contains(&error)), "{opcode} {error:?}");
            }
        }
    }
}

#[test]
fn messages_without_their_length_are_refused() {
    let (device, _kernel) = connection();
    let whole = message(opcode::READLINK, &[]);
    assert!((0..whole.len()).all(|length| Incoming::parse(&whole[..length], &device).is_none()));
    assert!(Incoming::parse(&[whole, vec![0]].concat(), &device).is_none());
    let header = InHeader { len: 40, total_extlen: 1, ..InHeader::default() };
    assert!(Incoming::parse(header.as_bytes(), &device).is_none());
}

#[test]
fn request_that_is_dropped_fails() {
    let (device, kernel) = connection();
    let message = message(opcode::READLINK, &[]);
    drop(Incoming::parse(&message, &device).unwrap().hold());
    assert_eq!(replied(&kernel), Some(libc::EIO));
}

/// Notes the arguments of some requests.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Filesystem for Notes {
    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let note = format!("{} {name:?} {} {to_name:?} {flags}", parent.0, to_parent.0);
        self.0.lock().unwrap().push(note);
        reply.ok();
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: i32,
        reply: ReplyWrite,
    ) {
        self.0.lock().unwrap().push(format!("{} {offset} {data:?} {flags:?}", handle.0));
        reply.written(data.len() as u32);
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.lock().unwrap().push(format!("{name:?}"));
        reply.error(100_000); // the kernel would not accept it
    }
}

#[test]
fn arguments_are_those_of_the_message() {
    let (device, kernel) = connection();
    let notes = Notes::default();
    let rename = abi::Rename2In { newdir: 7, flags: 2, _padding: 0 };
    let rename = [rename.as_bytes(), b"from\0to\0"].concat();
    let write =
        abi::WriteIn { fh: 3, offset: 9, size: 2, write_flags: 4, ..abi::WriteIn::default() };
    let write = [write.as_bytes(), b"\x05\x06"].concat();
    for (opcode, arguments, error) in [
        (opcode::RENAME2, rename.as_slice(), 0),
        (opcode::WRITE, write.as_slice(), 0),
        (opcode::LOOKUP, b"name\0".as_slice(), libc::EIO),
    ] {
        let message = message(opcode, arguments);
        Incoming::parse(&message, &device).unwrap().dispatch(&notes);
        assert_eq!(replied(&kernel), Some(error));
    }
    let noted = notes.0.into_inner().unwrap();
    let expected = ["1 \"from\" 7 \"to\" 2", "3 9 [5, 6] WriteFlags(KILL_SUIDGID)", "\"name\""];
    assert_eq!(noted, expected);
}
