//! An attacker between a client and its storage daemons, who records the traffic or changes it.

use crate::support;
use forebay_client::{Channel, ClientOptions, Connection, Fs, NodeAddresses, System};
use forebay_net::auth::Authenticator;
use forebay_net::channel::channel;
use forebay_net::connection::{self, Response};
use forebay_net::frame::{self, Flags, HEADER_BYTES, Kind, MAX_BODY_BYTES};
use forebay_net::handshake::{self, Service};
use forebay_net::record::DataProtection;
use forebay_net::stream::Stream;
use forebay_protocol::address::Address;
use forebay_protocol::{Call, Reply};
use forebay_store::daemon::{self, Daemon};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::process::key;
use support::{INSTANCE, READ_WRITE, STRIPE, Temporary, make_instance};

const KEY: &[u8] = b"a key for tests only";
const NAME: &str = "a-name-that-is-in-requests-only";
const CONTENTS: &[u8] = b"contents of a file that others must not read; ";
const LENGTH: usize = 40 * STRIPE as usize;
const MODES: [DataProtection; 3] =
    [DataProtection::Off, DataProtection::Integrity, DataProtection::Encrypted];

fn contents() -> Vec<u8> {
    CONTENTS.repeat(LENGTH / CONTENTS.len() + 1)[..LENGTH].to_vec()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The network between a client and its daemons: every connection passes through the attacker.
#[derive(Clone, Debug, Default)]
struct Network(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The recorded bytes of each direction of each connection.
    recorded: Vec<Vec<u8>>,
    /// Flips a bit in the next long transfer to a client, or to a daemon.
    flip: Option<Direction>,
    /// Session secrets and capabilities, encoded as in messages.
    secrets: Vec<Vec<u8>>,
    /// Errors of connections.
    errors: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToDaemon,
    ToClient,
}

impl Network {
    fn forward(&self, mut from: &TcpStream, mut to: &TcpStream, direction: Direction) {
        let index = {
            let mut state = self.0.lock().unwrap();
            state.recorded.push(Vec::new());
            state.recorded.len() - 1
        };
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut state = self.0.lock().unwrap();
            // Longer than any request: in the middle of file contents.
            if count > 8000 && state.flip == Some(direction) {
                bytes[count / 2] ^= 0x10;
                state.flip = None;
            }
            state.recorded[index].extend_from_slice(&bytes[..count]);
            drop(state);
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    fn note_secret<T: serde::Serialize>(&self, secret: &T) {
        let mut encoded = Vec::new();
        let fields = (Kind::Call, Flags::default(), 0);
        frame::encode(&mut encoded, fields, secret, 0, MAX_BODY_BYTES).unwrap();
        self.0.lock().unwrap().secrets.push(encoded.split_off(HEADER_BYTES));
    }
}

impl System for Network {
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        _timeout: Duration,
    ) -> io::Result<Connection> {
        let Address::Tcp(daemon) = *address else { panic!("a TCP address") };
        let entry = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(entry.local_addr()?)?;
        let (client, _) = entry.accept()?;
        let far = TcpStream::connect(daemon)?;
        let network = self.clone();
        std::thread::spawn(move || {
            std::thread::scope(|scope| {
                scope.spawn(|| network.forward(&client, &far, Direction::ToDaemon));
                network.forward(&far, &client, Direction::ToClient);
            });
        });
        let (mut sender, mut receiver) = channel(Stream::tcp(near)?);
        handshake::connect(&mut sender, &mut receiver, (Service::Storage, daemon), auth)
            .inspect_err(|error| self.0.lock().unwrap().errors.push(error.to_string()))?;
        let connection = connection::Connection::from((sender, receiver));
        Ok(Box::new(Observed { network: self.clone(), connection }))
    }
}

/// A connection whose secrets the test learns before their encryption.
#[derive(Debug)]
struct Observed {
    network: Network,
    connection: connection::Connection,
}

impl Channel for Observed {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.connection.send(call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        let response = self.connection.receive(seq, into);
        match response.as_ref().map(|response| &response.reply) {
            Ok(Reply::Attached { token, .. }) => self.network.note_secret(&token.secret),
            Ok(
                Reply::Opened { capability: Some(capability), .. } | Reply::Capability(capability),
            ) => {
                self.network.note_secret(&capability.mac);
            }
            Ok(_) => {}
            Err(error) => self.network.0.lock().unwrap().errors.push(error.to_string()),
        }
        response
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.connection.stream().set_timeout(timeout)
    }
}

/// Two daemons of this mode that share an instance, and the network in front of them.
struct Pool {
    network: Network,
    nodes: NodeAddresses,
    _daemons: Vec<Daemon>,
    _temporary: Temporary,
}

impl Pool {
    fn start(mode: DataProtection) -> Pool {
        let temporary = Temporary::new();
        let start = |name| {
            Daemon::start(daemon::StoreOptions {
                tcp: Some(([127, 0, 0, 1], 0).into()),
                key: Some(key()),
                data_protection: mode,
                ..daemon::StoreOptions::new(temporary.dir(name))
            })
            .unwrap()
        };
        let daemons = vec![start("one"), start("two")];
        make_instance(daemons.iter().map(Daemon::address).collect::<Vec<_>>(), 64 << 20);
        let remote = daemons.iter().map(|daemon| daemon.tcp_address().unwrap());
        let nodes = NodeAddresses::from(remote.collect::<Vec<_>>());
        Pool { network: Network::default(), nodes, _daemons: daemons, _temporary: temporary }
    }

    fn attach(
        &self,
        data_protection: Option<DataProtection>,
    ) -> Result<Fs, forebay_protocol::Errno> {
        let options = ClientOptions {
            key: Some(key()),
            timeout: Duration::from_secs(10),
            data_protection,
            system: Arc::new(self.network.clone()),
            ..ClientOptions::default()
        };
        Fs::attach(self.nodes.clone(), INSTANCE, options)
    }
}

#[test]
fn recorded_traffic_of_a_client_contains_no_secrets_and_encrypted_traffic_no_file_contents() {
    for mode in MODES {
        let pool = Pool::start(mode);
        let fs = pool.attach(Some(mode)).unwrap();
        let file = fs.create_path(Path::new(NAME), 0o600, READ_WRITE).unwrap().file;
        file.write_all_at(&contents(), 0).unwrap();
        let mut read = vec![0; LENGTH];
        assert_eq!(file.read_at(&mut read, 0), Ok(LENGTH));
        assert!(read == contents());
        drop((file, fs));
        let state = pool.network.0.lock().unwrap();
        assert!(state.secrets.len() >= 3, "two tokens and a capability: {}", state.secrets.len());
        let recorded = state.recorded.concat();
        assert!(recorded.len() > 2 * LENGTH);
        assert!(!contains(&recorded, KEY), "{mode}: the pool's secret");
        assert!(!contains(&recorded, NAME.as_bytes()), "{mode}: a request");
        for secret in &state.secrets {
            assert!(secret.len() > 8 && !contains(&recorded, secret), "{mode}: {secret:?}");
        }
        let readable = contains(&recorded, CONTENTS);
        assert_eq!(readable, mode != DataProtection::Encrypted, "{mode}");
    }
}

#[test]
fn flipped_bit_ends_the_connection_and_no_wrong_byte_is_read_or_stored() {
    for mode in [DataProtection::Integrity, DataProtection::Encrypted] {
        let pool = Pool::start(mode);
        let fs = pool.attach(Some(mode)).unwrap();
        let file = fs.create_path(Path::new(NAME), 0o600, READ_WRITE).unwrap().file;
        file.write_all_at(&contents(), 0).unwrap();
        let flip = |direction| pool.network.0.lock().unwrap().flip = Some(direction);
        let flipped = || pool.network.0.lock().unwrap().flip.is_none();
        flip(Direction::ToClient);
        let mut read = vec![0; LENGTH];
        let outcome = file.read_at(&mut read, 0);
        assert!(flipped());
        assert!(outcome.is_err() || read[..outcome.unwrap()] == contents()[..outcome.unwrap()]);
        let errors = pool.network.0.lock().unwrap().errors.concat();
        assert!(errors.contains("authentication failed"), "{mode}: {errors}");
        // The daemon ends the connection without storing the data.
        flip(Direction::ToDaemon);
        let outcome = file.write_all_at(&contents(), 0);
        assert!(flipped());
        drop((file, outcome));
        let again = pool.attach(Some(mode)).unwrap();
        let file = again.open_path(Path::new(NAME), READ_WRITE).unwrap().file;
        let mut read = vec![0; LENGTH];
        assert_eq!(file.read_at(&mut read, 0), Ok(LENGTH));
        assert!(read == contents(), "{mode}");
    }
}

#[test]
fn client_of_another_data_protection_is_refused_with_the_reason() {
    let pool = Pool::start(DataProtection::Off);
    let refused = pool.attach(Some(DataProtection::Encrypted)).map(|_| ());
    assert_eq!(refused, Err(forebay_protocol::Errno::EPROTO));
    let errors = pool.network.0.lock().unwrap().errors.concat();
    let reason =
        "data protection mismatch: the client is configured for `encrypted`, the server for `off`";
    assert!(errors.contains(reason), "{errors}");
    pool.attach(None).unwrap();
}
