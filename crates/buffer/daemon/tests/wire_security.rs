//! The traffic of a whole pool on loopback, recorded by a packet socket: controller, storage nodes,
//! compute node and clients.
//!
//! Needs root, for the packet socket.

use crate::test_pool;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_client::{ClientOptions, Fs, NodeAddresses};
use forebay_daemon::{ControllerClient, Daemon, PoolConfig};
use forebay_net::auth::PoolKey;
use forebay_protocol::address::Address;
use forebay_protocol::message::OpenMode;
use forebay_protocol::random::keyed_block;
use forebay_protocol::{Ino, InstanceId};
use forebay_units::Bytes;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType};
use test_pool::{TestPool, create_persistent, is_online, wait_for};

const KEY: &[u8] = b"the key of this pool, for tests";
const NAME: &str = "name-of-an-instance";
const CONTENTS: &[u8] = b"contents of a file that others must not read; ";
const LENGTH: usize = 3 << 20;
const BOTH: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };

/// Records the TCP payloads from and to some ports of this host.
struct Recorder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<u8>>,
}

impl Recorder {
    fn start(ports: Vec<u16>) -> Recorder {
        // All packets (`ETH_P_ALL`), without link headers.
        let all = NonZeroU32::new(u32::from(3u16.to_be())).map(Protocol::from_raw);
        let socket = rustix::net::socket(AddressFamily::PACKET, SocketType::DGRAM, all).unwrap();
        sockopt::set_socket_recv_buffer_size_force(&socket, 256 << 20).unwrap();
        let timeout = Some(Duration::from_millis(50));
        sockopt::set_socket_timeout(&socket, Timeout::Recv, timeout).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut recorded, mut packet) = (Vec::new(), vec![0; 128 << 10]);
            loop {
                match rustix::net::recv(&socket, &mut packet[..], RecvFlags::empty()) {
                    Ok((count, _)) => recorded.extend(tcp_payload(&packet[..count], &ports)),
                    Err(_) if stopped.load(Ordering::Acquire) => return recorded,
                    Err(_) => {}
                }
            }
        });
        Recorder { stop, thread }
    }

    fn stop(self) -> Vec<u8> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// The payload of an IPv4 packet from or to one of these TCP ports.
fn tcp_payload<'a>(packet: &'a [u8], ports: &[u16]) -> &'a [u8] {
    let payload = || {
        let header = usize::from(packet.first()? & 15) * 4;
        let segment = packet.get(header..)?;
        let port = |at: usize| Some(u16::from_be_bytes([*segment.get(at)?, *segment.get(at + 1)?]));
        let is_tcp = packet.first()? >> 4 == 4 && *packet.get(9)? == 6;
        let is_ours = ports.contains(&port(0)?) || ports.contains(&port(2)?);
        (is_tcp && is_ours).then_some(segment.get(usize::from(segment.get(12)? >> 4) * 4..)?)
    };
    payload().unwrap_or_default()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Panics if a secret was recorded: as bytes, or as the beginning of an array in JSON.
fn assert_absent(recorded: &[u8], secret: &[u8], what: &str) {
    assert!(!contains(recorded, secret), "{what} was sent in clear text");
    let numbers: Vec<String> = secret.iter().take(12).map(u8::to_string).collect();
    assert!(!contains(recorded, numbers.join(",").as_bytes()), "{what} was sent as JSON");
}

fn configuration(pool: &TestPool, mode: &str) -> PoolConfig {
    let file = pool.file("key", "none");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replacen("[pool]\n", &format!("[pool]\ndata_protection = \"{mode}\"\n"), 1);
    fs::write(&file, text).unwrap();
    PoolConfig::read(&file).unwrap()
}

/// Uses a file of the instance over TCP, and directories on both nodes.
fn use_instance(pool: &TestPool, instance: InstanceId) {
    let nodes = NodeAddresses(pool.nodes.iter().map(|node| Address::Tcp(*node)).collect());
    let key = Some(PoolKey::new(KEY).unwrap());
    let fs = Fs::attach(nodes, instance, ClientOptions { key, ..Default::default() }).unwrap();
    for number in 0..8 {
        fs.mkdir(Ino::ROOT, format!("d{number}").as_bytes(), 0o700).unwrap();
    }
    let contents = CONTENTS.repeat(LENGTH / CONTENTS.len());
    let file = fs.create_path(Path::new("d0/file"), 0o600, BOTH).unwrap().file;
    file.write_all_at(&contents, 0).unwrap();
    let mut read = vec![0; contents.len()];
    assert_eq!(file.read_at(&mut read, 0), Ok(contents.len()));
    assert!(read == contents);
}

#[test]
fn recorded_traffic_of_a_pool_contains_no_secrets_and_encrypted_traffic_no_file_contents() {
    for mode in ["off", "integrity", "encrypted"] {
        let pool = TestPool::new(2);
        pool.write_key("key", KEY);
        let config = configuration(&pool, mode);
        let ports = pool.nodes.iter().chain([&pool.controller]).map(|at| at.port()).collect();
        let recorder = Recorder::start(ports);
        let _controller =
            wait_for("the controller's port is free", || Daemon::start_controller(&config).ok());
        let _nodes = ["s0", "s1"].map(|name| Daemon::start_storage(&config, name).unwrap());
        let _agent = Daemon::start_agent(&config, "n0").unwrap();
        wait_for("the nodes are accepted", || {
            (is_online(&pool, "s0") && is_online(&pool, "s1")).then_some(())
        });
        let client = ControllerClient::open(&config.file).unwrap();
        client.request(create_persistent(NAME, client.caller(), Bytes(32 << 20))).unwrap();
        let instance = client.status().unwrap().instances[0].id.0;
        use_instance(&pool, InstanceId(instance));
        let recorded = recorder.stop();
        assert!(contains(&recorded, b"FBAY"), "handshakes begin in clear text");
        assert!(recorded.len() > 2 * LENGTH);
        let secret: [u8; 32] =
            fs::read(pool.path("controller/secret")).unwrap().try_into().unwrap();
        assert_absent(&recorded, &secret, "the controller's secret");
        assert_absent(&recorded, KEY, "the pool's key");
        let derived = blake3::derive_key("forebay pool key 1", KEY);
        assert_absent(&recorded, &derived, "the derived key");
        for half in [0, 1] {
            let block = keyed_block(&secret, (u128::from(instance) << 1) | half);
            assert_absent(&recorded, &block, "the secret of the instance's capabilities");
        }
        for text in [NAME, "granularity"] {
            assert!(!contains(&recorded, text.as_bytes()), "{mode}: control traffic: {text}");
        }
        assert_eq!(contains(&recorded, CONTENTS), mode != "encrypted", "{mode}");
    }
}
