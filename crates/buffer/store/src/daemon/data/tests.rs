//! Data connections, tested through their sockets.

use super::*;
use crate::objects::{ObjectId, Objects};
use forebay_net::channel::channel;
use forebay_net::chunk::{CHUNK_HEADER_BYTES, MAX_CHUNK_BYTES};
use forebay_net::connection::Connection;
use forebay_net::stream::Stream;
use forebay_protocol::message::OpenMode;
use forebay_protocol::{HandleId, Ino, InstanceId, Timestamp};
use std::collections::VecDeque;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use tempfile::TempDir;

const SESSION: SessionId = SessionId(1);
const HANDLE: HandleId = HandleId(7);
const OBJECT: ObjectId = ObjectId { instance: InstanceId(1), ino: Ino(5) };
const READ_WRITE: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };

/// A daemon's objects: one object with one open handle.
struct Flash {
    _dir: TempDir,
    objects: DiskObjects,
    opens: Arc<OpenObjects>,
}

impl Flash {
    fn new() -> Flash {
        let dir = tempfile::tempdir().unwrap();
        let mut objects = DiskObjects::open(dir.path()).unwrap();
        objects.add_instance(OBJECT.instance).unwrap();
        let epoch = Timestamp::default();
        objects.create(OBJECT, (epoch, epoch)).unwrap();
        let opens = Arc::<OpenObjects>::default();
        opens.insert_handle(SESSION, HANDLE, OBJECT, READ_WRITE);
        opens.set_grant(SESSION, HANDLE, 1 << 40);
        Flash { _dir: dir, objects, opens }
    }

    /// A connection and the thread that serves it.
    fn connect(&self) -> (Stream, JoinHandle<io::Result<()>>) {
        let (near, far) = UnixStream::pair().unwrap();
        (Stream::Unix(near), self.serve(Stream::Unix(far)))
    }

    fn serve(&self, far: Stream) -> JoinHandle<io::Result<()>> {
        let (objects, opens) = (self.objects.clone(), self.opens.clone());
        let fence = Fence::new(far.as_fd().try_clone_to_owned().unwrap());
        std::thread::spawn(move || {
            let context = DataContext {
                fence: &fence,
                opens: &opens,
                objects: &objects,
                counters: &StoreCounters::default(),
                traffic: &Traffic::default(),
                charged: None,
                clock: Clock::start(),
                idle_timeout: Duration::from_secs(60),
            };
            let (sender, receiver) = channel(far);
            serve_data_connection(sender, receiver, SESSION, context)
        })
    }

    /// The object as a client on this host has it open.
    fn open_local(&self) -> File {
        File::from(self.objects.open(OBJECT, READ_WRITE).unwrap())
    }
}

fn call(request: Request) -> Call {
    Call { seq: 1, caller: None, tags: Vec::new(), request }
}

fn write_call(offset: u64) -> Call {
    call(Request::Data(DataRequest::Write { handle: HANDLE, offset, append: false }))
}

fn write(connection: &mut Connection, data: &[u8], offset: u64) -> Reply {
    connection.call(&write_call(offset), data, &mut []).unwrap().reply
}

fn read(connection: &mut Connection, offset: u64, length: usize) -> Vec<u8> {
    let request =
        Request::Data(DataRequest::Read { handle: HANDLE, offset, length: length as u32 });
    let mut into = vec![0; length];
    let answer = connection.call(&call(request), &[], &mut into).unwrap();
    assert_eq!(answer.reply, Reply::Data);
    into.truncate(answer.payload);
    into
}

/// A deterministic pseudo-random sequence (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// An offset and a length, often page-aligned.
    fn range(&mut self, size: u64) -> (u64, usize) {
        let (at, length) = (self.below(size), 1 + self.below(3 << 20));
        match self.below(4) {
            0 => (at, length as usize),
            1 => (at / 4096 * 4096, length as usize),
            _ => (at / 4096 * 4096, length.next_multiple_of(4096) as usize),
        }
    }
}

/// Random operations of a remote and a local client, compared with the same operations in memory.
fn run_random_operations(seed: u64) {
    const SIZE: u64 = 6 << 20;
    let flash = Flash::new();
    let (stream, served) = flash.connect();
    let (mut connection, local) = (Connection::from(channel(stream)), flash.open_local());
    let mut random = Random(seed);
    let mut oracle: Vec<u8> = Vec::new();
    for step in 0..150u64 {
        let (at, length) = random.range(SIZE);
        let end = at as usize + length;
        let data: Vec<u8> = (0..length).map(|i| (i as u64 * 7 + step * 31) as u8).collect();
        match random.below(8) {
            0..=3 => {
                let here = random.below(4) == 0;
                if here {
                    local.write_all_at(&data, at).unwrap()
                } else {
                    let (count, offset) = (length as u32, at);
                    assert_eq!(write(&mut connection, &data, at), Reply::Written { count, offset });
                }
                if oracle.len() < end {
                    oracle.resize(end, 0);
                }
                oracle[at as usize..end].copy_from_slice(&data);
            }
            4 => {
                local.set_len(at).unwrap();
                oracle.resize(at as usize, 0);
            }
            _ => {
                let from = (at as usize).min(oracle.len());
                let expected = &oracle[from..end.min(oracle.len()).max(from)];
                let found = match random.below(3) {
                    0 => {
                        let mut found = vec![0; expected.len()];
                        local.read_exact_at(&mut found, from as u64).unwrap();
                        found
                    }
                    _ => read(&mut connection, at, length),
                };
                assert!(found == expected, "seed {seed}, step {step}: {at} +{length}");
            }
        }
    }
    drop(connection);
    served.join().unwrap().unwrap();
}

#[test]
fn remote_and_local_clients_see_each_others_writes() {
    for seed in [1, 0xdead_beef, 77_777] {
        run_random_operations(seed);
    }
}

#[test]
fn damaged_chunk_is_not_acknowledged_and_can_be_sent_again() {
    let flash = Flash::new();
    let data: Vec<u8> = (0..4 * MAX_CHUNK_BYTES).map(|i| (i % 241) as u8).collect();
    let (stream, served) = flash.connect();
    let (mut sender, receiver) = channel(stream);
    let mut head = Vec::new();
    frame::encode_call(&mut head, &write_call(0), data.len()).unwrap();
    sender.send_chunk(&head, &data[..MAX_CHUNK_BYTES]).unwrap();
    let damaged = {
        let (near, far) = UnixStream::pair().unwrap();
        let sent = data[MAX_CHUNK_BYTES..2 * MAX_CHUNK_BYTES].to_vec();
        let sending = std::thread::spawn(move || {
            let (mut sender, _receiver) = channel(Stream::Unix(near));
            sender.send_chunk(&[], &sent)
        });
        let mut bytes = vec![0; CHUNK_HEADER_BYTES + MAX_CHUNK_BYTES];
        Stream::Unix(far).receive_all(&mut bytes, &mut VecDeque::new()).unwrap();
        sending.join().unwrap().unwrap();
        bytes[CHUNK_HEADER_BYTES + 1000] ^= 8;
        bytes
    };
    sender.stream().send_parts([&damaged[..]], None).unwrap();
    let error = served.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    let mut rest = [0; 1];
    let stream = receiver.stream();
    let answered = stream.receive(&mut rest, &mut VecDeque::new()).unwrap_or(0);
    assert_eq!(answered, 0, "nothing was acknowledged");

    let (stream, served) = flash.connect();
    let mut connection = Connection::from(channel(stream));
    assert!(matches!(write(&mut connection, &data, 0), Reply::Written { .. }));
    assert!(read(&mut connection, 0, data.len()) == data);
    drop(connection);
    served.join().unwrap().unwrap();
}

#[test]
fn write_beyond_grant_or_to_closed_handle_is_received_and_refused() {
    let flash = Flash::new();
    let (stream, served) = flash.connect();
    let mut connection = Connection::from(channel(stream));
    let data = vec![3; 1 << 20];
    flash.opens.set_grant(SESSION, HANDLE, 4096);
    assert_eq!(write(&mut connection, &data, 0), Reply::Failed(Errno::EDQUOT));
    flash.opens.close_handle(SESSION, HANDLE);
    assert_eq!(write(&mut connection, &data, 0), Reply::Failed(Errno::EBADF));
    assert_eq!(flash.open_local().metadata().unwrap().len(), 0);
    drop(connection);
    served.join().unwrap().unwrap();
}

#[test]
fn write_without_grant_needs_blocks_for_all_of_it() {
    let flash = Flash::new();
    let (stream, served) = flash.connect();
    let mut connection = Connection::from(channel(stream));
    let data = vec![3; 4 * MAX_CHUNK_BYTES];
    assert!(matches!(write(&mut connection, &data, 0), Reply::Written { .. }));
    flash.opens.set_grant(SESSION, HANDLE, 4096);
    let new = vec![4; 4 * MAX_CHUNK_BYTES];
    assert_eq!(write(&mut connection, &new, 1), Reply::Failed(Errno::EDQUOT));
    assert!(read(&mut connection, 0, 2 * data.len()) == data, "nothing was written");
    let written = Reply::Written { count: new.len() as u32, offset: 0 };
    assert_eq!(write(&mut connection, &new, 0), written);
    assert!(read(&mut connection, 0, 2 * data.len()) == new);
    let append = DataRequest::Write { handle: HANDLE, offset: 0, append: true };
    let mut append = |data: &[u8]| {
        connection.call(&call(Request::Data(append.clone())), data, &mut []).unwrap().reply
    };
    assert_eq!(append(&new[..8192]), Reply::Failed(Errno::EDQUOT));
    let granted = Reply::Written { count: 1, offset: new.len() as u64 };
    flash.opens.set_grant(SESSION, HANDLE, 8192);
    assert_eq!(append(&[5]), granted);
    flash.opens.set_grant(SESSION, HANDLE, 0);
    let in_last_block = Reply::Written { count: 4095, offset: new.len() as u64 + 1 };
    assert_eq!(append(&new[..4095]), in_last_block);
    assert_eq!(append(&[5]), Reply::Failed(Errno::EDQUOT));
    drop(connection);
    served.join().unwrap().unwrap();
}

fn over_tcp() -> (Stream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    (Stream::Tcp(near), Stream::Tcp(far))
}

fn over_unix() -> (Stream, Stream) {
    let (near, far) = UnixStream::pair().unwrap();
    (Stream::Unix(near), Stream::Unix(far))
}

/// A delayed daemon finds a write in its socket whose client has disconnected.
#[test]
fn write_of_disconnected_client_is_not_carried_out() {
    for pair in [over_unix, over_tcp] {
        let flash = Flash::new();
        let (near, far) = pair();
        let data = [1; 64 << 10];
        let mut head = Vec::new();
        frame::encode_call(&mut head, &write_call(0), data.len()).unwrap();
        let (mut sender, receiver) = channel(near);
        sender.send_chunk(&head, &data).unwrap();
        assert!(!far.is_peer_gone().unwrap());
        drop((sender, receiver));
        while !far.is_peer_gone().unwrap() {
            std::thread::yield_now();
        }
        let error = flash.serve(far).join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(flash.open_local().metadata().unwrap().len(), 0);
    }
}
