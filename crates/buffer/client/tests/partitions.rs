//! A client that cannot reach one storage node of an instance, while it reaches the others.

use crate::support;
use forebay_client::{Channel, ClientOptions, Connection, File, Fs, NodeAddresses, Os, System};
use forebay_net::auth::Authenticator;
use forebay_net::connection::Response;
use forebay_protocol::address::Address;
use forebay_protocol::message::OpenMode;
use forebay_protocol::{Call, Errno, Ino};
use forebay_store::daemon::{Daemon, StoreOptions};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::process::key;
use support::{INSTANCE, READ_WRITE, STRIPE, Temporary, make_instance};

/// Data over sockets, as from another host.
const REMOTE: OpenMode = OpenMode { descriptor: false, ..READ_WRITE };
/// Of sessions without a connection.
const LEASE: Duration = Duration::from_secs(1);

type SharedConnection = Arc<Mutex<Option<Connection>>>;

/// The network of a client, with a link to one daemon that can be cut.
#[derive(Clone, Debug, Default)]
struct Network(Arc<Mutex<Links>>);

#[derive(Debug, Default)]
struct Links {
    cut: Option<Address>,
    open: Vec<(Address, SharedConnection)>,
}

#[derive(Debug)]
struct Cuttable(SharedConnection);

impl Network {
    /// Closes all connections to a daemon, and makes no new ones.
    fn cut(&self, address: Address) {
        let mut links = self.0.lock().unwrap();
        for (_, connection) in links.open.extract_if(.., |(to, _)| *to == address) {
            connection.lock().unwrap().take();
        }
        links.cut = Some(address);
    }

    fn heal(&self) {
        self.0.lock().unwrap().cut = None;
    }
}

impl System for Network {
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        if self.0.lock().unwrap().cut.as_ref() == Some(address) {
            return Err(ErrorKind::ConnectionRefused.into());
        }
        let connection = Arc::new(Mutex::new(Some(Os.connect(address, auth, timeout)?)));
        self.0.lock().unwrap().open.push((address.clone(), connection.clone()));
        Ok(Box::new(Cuttable(connection)))
    }
}

impl Cuttable {
    fn with<T>(&self, act: impl FnOnce(&mut Connection) -> io::Result<T>) -> io::Result<T> {
        self.0.lock().unwrap().as_mut().map_or(Err(ErrorKind::ConnectionReset.into()), act)
    }
}

impl Channel for Cuttable {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.with(|connection| connection.send(call, payload))
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        self.with(|connection| connection.receive(seq, into))
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.with(|connection| connection.set_timeout(timeout))
    }
}

impl Drop for Cuttable {
    fn drop(&mut self) {
        self.0.lock().unwrap().take();
    }
}

struct Nodes {
    daemons: Vec<Daemon>,
    _temporary: Temporary,
}

impl Nodes {
    fn start() -> Nodes {
        let temporary = Temporary::new();
        let daemons: Vec<Daemon> = (0..2)
            .map(|node| {
                let mut options = StoreOptions::new(temporary.dir(&format!("flash{node}")));
                options.tcp = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
                options.key = Some(key());
                options.limits.lease_ns = LEASE.as_nanos() as u64;
                Daemon::start(options).unwrap()
            })
            .collect();
        let local: Vec<Address> = daemons.iter().map(Daemon::address).collect();
        make_instance(local, 64 << 20);
        Nodes { daemons, _temporary: temporary }
    }

    fn addresses(&self) -> Vec<Address> {
        self.daemons.iter().map(|daemon| daemon.tcp_address().unwrap()).collect()
    }

    fn attach(&self, network: &Network) -> Fs {
        let options = ClientOptions {
            key: Some(key()),
            timeout: Duration::from_secs(2),
            session_lease: LEASE,
            system: Arc::new(network.clone()),
            ..ClientOptions::default()
        };
        Fs::attach(NodeAddresses::from(self.addresses()), INSTANCE, options).unwrap()
    }

    /// A file of two stripes, whose length its metadata node records because it has not heard of
    /// the writer for longer than a lease.
    fn given_up_writer(&self, network: &Network) -> (Fs, Arc<File>, Fs) {
        let (writer, reader) = (self.attach(network), self.attach(&Network::default()));
        let file = writer.create(Ino::ROOT, b"f", 0o644, true, REMOTE).unwrap().file;
        assert_eq!(file.ino().metadata_node().0, 0, "the root is on the first node");
        file.write_all_at(&vec![7; 2 * STRIPE as usize], 0).unwrap();
        network.cut(self.addresses()[0].clone());
        std::thread::sleep(LEASE + Duration::from_millis(1500));
        await_length(&reader, file.ino(), 2 * STRIPE);
        (writer, file, reader)
    }
}

fn await_length(fs: &Fs, ino: Ino, length: u64) {
    let start = Instant::now();
    loop {
        let size = fs.get_attr(ino).unwrap().size;
        if size == length {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "the length is {size}, not {length}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn writes_are_not_acknowledged_after_the_metadata_node_has_given_the_writer_up() {
    let (nodes, network) = (Nodes::start(), Network::default());
    let (_writer, file, reader) = nodes.given_up_writer(&network);
    let stripe = vec![7; STRIPE as usize];
    let results: Vec<_> =
        (2..4).map(|number| file.write_all_at(&stripe, number * STRIPE)).collect();
    assert_eq!(results, [Err(Errno::EIO); 2]);
    let ino = file.ino();
    drop(file);
    network.heal();
    await_length(&reader, ino, 2 * STRIPE);
}

#[test]
fn writes_after_a_partition_count_for_the_length() {
    let (nodes, network) = (Nodes::start(), Network::default());
    let (_writer, file, reader) = nodes.given_up_writer(&network);
    network.heal();
    file.write_all_at(&vec![7; 2 * STRIPE as usize], 2 * STRIPE).unwrap();
    let ino = file.ino();
    drop(file);
    await_length(&reader, ino, 4 * STRIPE);
}
