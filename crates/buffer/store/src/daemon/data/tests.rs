//! A bulk connection from outside, by all ways that data can go.

use super::*;
use crate::objects::{ObjectId, Objects};
use forebay_net::chunk::{self, CHUNK_HEADER_BYTES, MAX_CHUNK_BYTES};
use forebay_net::connection::Connection;
use forebay_protocol::message::DataRequest;
use forebay_protocol::message::OpenMode;
use forebay_protocol::{HandleId, Ino, InstanceId, Timestamp};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

const SESSION: SessionId = SessionId(1);
const LOCAL: SessionId = SessionId(2);
const HANDLE: HandleId = HandleId(7);
const OBJECT: ObjectId = ObjectId {
    instance: InstanceId(1),
    ino: Ino(5),
};
const BOTH: OpenMode = OpenMode {
    read: true,
    write: true,
    truncate: false,
    descriptor: false,
};
const PASSED: OpenMode = OpenMode {
    descriptor: true,
    ..BOTH
};

const fn path(direct: Direct, uring: bool) -> DataPath {
    DataPath {
        direct,
        uring,
        large: 4 << 20,
    }
}

const PATHS: [DataPath; 3] = [
    path(Direct::Never, false),
    path(Direct::Always, false),
    path(Direct::Always, true),
];

/// A daemon's objects, on the file system that the build is on: that one has a device, most likely.
struct Flash {
    dir: PathBuf,
    objects: DiskObjects,
    opens: Arc<OpenObjects>,
    counters: Arc<StoreCounters>,
    path: DataPath,
}

impl Flash {
    fn new(path: DataPath) -> Flash {
        let name = format!(
            "bulk-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let program = std::env::current_exe().unwrap();
        let dir = program
            .parent()
            .unwrap()
            .join(format!("{name}-{path:?}").replace(' ', ""));
        let mut objects = DiskObjects::open(&dir).unwrap();
        objects.add_instance(OBJECT.instance).unwrap();
        let epoch = Timestamp::default();
        objects.create(OBJECT, epoch, epoch).unwrap();
        let opens = Arc::<OpenObjects>::default();
        opens.insert_handle(SESSION, HANDLE, OBJECT, BOTH);
        opens.set_grant(SESSION, HANDLE, 1 << 40);
        Flash {
            dir,
            objects,
            opens,
            counters: Arc::new(StoreCounters::new(path)),
            path,
        }
    }

    /// A connection, and the thread that serves it.
    fn connect(&self) -> (Stream, JoinHandle<io::Result<()>>) {
        let (near, far) = UnixStream::pair().unwrap();
        (Stream::Unix(near), self.serve(Stream::Unix(far)))
    }

    /// The thread that serves a connection.
    fn serve(&self, far: Stream) -> JoinHandle<io::Result<()>> {
        let (objects, opens) = (self.objects.clone(), self.opens.clone());
        let (counters, path) = (self.counters.clone(), self.path);
        let end = Fence::new(far.as_fd().try_clone_to_owned().unwrap());
        std::thread::spawn(move || {
            let shared = DataContext {
                end: &end,
                opens: &opens,
                objects: &objects,
                counters: &counters,
                path,
            };
            serve_data_connection(&far, &[], SESSION, shared)
        })
    }

    /// The object as a client of this host has it.
    fn local(&self) -> File {
        File::from(self.objects.open(OBJECT, BOTH).unwrap())
    }

    fn works(&self) -> bool {
        probe(&self.dir, Direct::Always, false).direct == Direct::Always
    }
}

impl Drop for Flash {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn call(request: Request) -> Call {
    Call {
        seq: 1,
        caller: None,
        request,
    }
}

fn write_call(offset: u64) -> Call {
    call(Request::Data(DataRequest::Write {
        handle: HANDLE,
        offset,
        append: false,
    }))
}

fn write(link: &mut Connection, data: &[u8], offset: u64) -> Reply {
    link.call(&write_call(offset), data, &mut []).unwrap().reply
}

fn read(link: &mut Connection, offset: u64, length: usize) -> Vec<u8> {
    let request = Request::Data(DataRequest::Read {
        handle: HANDLE,
        offset,
        length: length as u32,
    });
    let mut into = vec![0; length];
    let answer = link.call(&call(request), &[], &mut into).unwrap();
    assert_eq!(answer.reply, Reply::Data);
    into.truncate(answer.payload);
    into
}

/// Numbers that look like chance and are the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// A place and a length, often ones that suit direct I/O.
    fn range(&mut self, size: u64) -> (u64, usize) {
        let (at, length) = (self.below(size), 1 + self.below(3 << 20));
        match self.below(4) {
            0 => (at, length as usize),
            1 => (at / 4096 * 4096, length as usize),
            _ => (at / 4096 * 4096, length.next_multiple_of(4096) as usize),
        }
    }
}

/// What is written and read by a client of another host and by one of this host, in turns, is the
/// same as in memory.
fn random_operations(path: DataPath, seed: u64) -> Arc<StoreCounters> {
    const SIZE: u64 = 6 << 20;
    let flash = Flash::new(path);
    let (stream, served) = flash.connect();
    let (mut link, local) = (Connection::new(stream), flash.local());
    let mut chance = Chance(seed);
    let mut oracle: Vec<u8> = Vec::new();
    for step in 0..150u64 {
        let (at, length) = chance.range(SIZE);
        let end = at as usize + length;
        let data: Vec<u8> = (0..length)
            .map(|i| (i as u64 * 7 + step * 31) as u8)
            .collect();
        match chance.below(8) {
            0..=3 => {
                let here = chance.below(4) == 0;
                match here {
                    true => local.write_all_at(&data, at).unwrap(),
                    false => {
                        let (count, offset) = (length as u32, at);
                        assert_eq!(
                            write(&mut link, &data, at),
                            Reply::Written { count, offset }
                        );
                    }
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
                let found = match chance.below(3) {
                    0 => {
                        let mut found = vec![0; expected.len()];
                        local.read_exact_at(&mut found, from as u64).unwrap();
                        found
                    }
                    _ => read(&mut link, at, length),
                };
                assert!(
                    found == expected,
                    "{path:?}, seed {seed}, step {step}: {at} +{length}"
                );
            }
        }
    }
    drop(link);
    served.join().unwrap().unwrap();
    flash.counters.clone()
}

#[test]
fn data_are_the_same_whichever_way_they_go() {
    let works = Flash::new(PATHS[0]).works();
    for path in PATHS {
        for seed in [1, 0xdead_beef, 77_777] {
            let counters = random_operations(path, seed);
            let moved = counters
                .direct_read
                .get()
                .min(counters.direct_written.get());
            assert_eq!(
                moved > 0,
                path.direct == Direct::Always && works,
                "{path:?}"
            );
        }
    }
}

#[test]
fn a_damaged_chunk_is_not_acknowledged_and_can_be_sent_again() {
    for path in PATHS {
        let flash = Flash::new(path);
        let data: Vec<u8> = (0..4 * MAX_CHUNK_BYTES).map(|i| (i % 241) as u8).collect();
        let (stream, served) = flash.connect();
        let mut head = Vec::new();
        frame::encode_call(&mut head, &write_call(0), data.len()).unwrap();
        chunk::send_chunk(&stream, &head, &data[..MAX_CHUNK_BYTES]).unwrap();
        let damaged = {
            let (near, far) = UnixStream::pair().unwrap();
            let sent = data[MAX_CHUNK_BYTES..2 * MAX_CHUNK_BYTES].to_vec();
            let sender =
                std::thread::spawn(move || chunk::send_chunk(&Stream::Unix(near), &[], &sent));
            let mut bytes = vec![0; CHUNK_HEADER_BYTES + MAX_CHUNK_BYTES];
            Stream::Unix(far)
                .receive_all(&mut bytes, &mut VecDeque::new())
                .unwrap();
            sender.join().unwrap().unwrap();
            bytes[CHUNK_HEADER_BYTES + 1000] ^= 8;
            bytes
        };
        stream.send_all(&damaged, &[], None).unwrap();
        let error = served.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        let mut rest = [0; 1];
        let answered = stream.receive(&mut rest, &mut VecDeque::new()).unwrap_or(0);
        assert_eq!(answered, 0, "nothing was acknowledged");

        let (stream, served) = flash.connect();
        let mut link = Connection::new(stream);
        assert!(matches!(write(&mut link, &data, 0), Reply::Written { .. }));
        assert!(read(&mut link, 0, data.len()) == data);
        drop(link);
        served.join().unwrap().unwrap();
    }
}

#[test]
fn what_a_client_of_this_host_may_have_mapped_is_written_through_the_cache() {
    let flash = Flash::new(PATHS[2]);
    let (stream, served) = flash.connect();
    let mut link = Connection::new(stream);
    let data = vec![3; 1 << 20];
    let mut written = |offset| {
        let before = flash.counters.direct_written.get();
        assert!(matches!(
            write(&mut link, &data, offset),
            Reply::Written { .. }
        ));
        flash.counters.direct_written.get() - before
    };
    flash.opens.insert_handle(LOCAL, HANDLE, OBJECT, PASSED);
    assert_eq!(written(0), 0);
    flash.opens.close_handle(LOCAL, HANDLE);
    let all = if flash.works() { 1 << 20 } else { 0 };
    assert_eq!(written(1 << 20), all);
    drop(link);
    served.join().unwrap().unwrap();
}

#[test]
fn only_objects_that_the_cache_cannot_keep_go_past_it_by_default() {
    let flash = Flash::new(path(Direct::Auto, true));
    let (stream, served) = flash.connect();
    let mut link = Connection::new(stream);
    let data = vec![3; 1 << 20];
    let mut moved = |offset| {
        assert!(matches!(
            write(&mut link, &data, offset),
            Reply::Written { .. }
        ));
        assert!(read(&mut link, 0, 1 << 20) == data);
        flash.counters.direct_read.get() + flash.counters.direct_written.get()
    };
    assert_eq!(moved(0), 0);
    assert_eq!(moved(3 << 20), 0);
    let all = if flash.works() { 2 << 20 } else { 0 };
    assert_eq!(moved(4 << 20), all);
    drop(link);
    served.join().unwrap().unwrap();
}

#[test]
fn memory_file_systems_and_those_who_do_not_want_it_have_no_direct_way() {
    let memory = std::path::Path::new("/dev/shm");
    if memory.exists() {
        assert_eq!(probe(memory, Direct::Always, true).direct, Direct::Never);
    }
    let flash = Flash::new(PATHS[0]);
    assert_eq!(probe(&flash.dir, Direct::Never, true).direct, Direct::Never);
    assert!(!probe(&flash.dir, Direct::Always, false).uring);
}

#[test]
fn what_was_not_promised_or_is_not_open_is_received_and_refused() {
    let flash = Flash::new(PATHS[2]);
    let (stream, served) = flash.connect();
    let mut link = Connection::new(stream);
    let data = vec![3; 1 << 20];
    flash.opens.set_grant(SESSION, HANDLE, 4096);
    assert_eq!(write(&mut link, &data, 0), Reply::Failed(Errno::EDQUOT));
    flash.opens.close_handle(SESSION, HANDLE);
    assert_eq!(write(&mut link, &data, 0), Reply::Failed(Errno::EBADF));
    assert_eq!(flash.local().metadata().unwrap().len(), 0);
    drop(link);
    served.join().unwrap().unwrap();
}

/// Both ends of a connection over TCP.
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

/// A daemon that was held up finds a write whose client has given up on it.
#[test]
fn a_write_is_not_carried_out_when_its_client_has_gone() {
    for (path, pair) in PATHS.into_iter().zip([over_unix, over_tcp, over_tcp]) {
        let flash = Flash::new(path);
        let (near, far) = pair();
        let data = [1; 64 << 10];
        let mut head = Vec::new();
        frame::encode_call(&mut head, &write_call(0), data.len()).unwrap();
        chunk::send_chunk(&near, &head, &data).unwrap();
        assert!(!far.is_peer_gone().unwrap());
        drop(near);
        while !far.is_peer_gone().unwrap() {
            std::thread::yield_now();
        }
        let error = flash.serve(far).join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(flash.local().metadata().unwrap().len(), 0, "{path:?}");
    }
}
