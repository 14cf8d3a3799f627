//! Writes that arrive after the program received their error, and power failures of storage nodes
//! during a truncation. The daemons are real, behind a network that a test can delay.

use crate::support;
use forebay_client::{Channel, ClientOptions, Connection, Fs, NewFile, NodeAddresses, Os, System};
use forebay_net::auth::Authenticator;
use forebay_net::connection::Response;
use forebay_protocol::address::Address;
use forebay_protocol::message::{Allocate, OpenMode, SetAttr};
use forebay_protocol::message::{DataRequest, FileRequest, InodeRequest, NameRequest};
use forebay_protocol::{Call, Errno, Ino, Reply, Request};
use forebay_store::daemon::{self, Daemon};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use support::process::key;
use support::{INSTANCE, STRIPE, Temporary, make_instance};

const BOTH: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };
const ANEW: OpenMode = OpenMode { truncate: true, ..BOTH };
const LENGTH: usize = 3 * STRIPE as usize;

/// A network between a client and its daemons.
#[derive(Clone, Debug, Default)]
struct Network(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Writes are delayed.
    delays_writes: bool,
    delayed: Vec<(Connection, Call, Vec<u8>)>,
    /// Unreachable hosts, and the number of connections refused.
    unreachable: BTreeSet<String>,
    refused: u32,
    /// Power failures of each host.
    power_failures: BTreeMap<String, u64>,
    /// At the next truncation all hosts but that of the request lose power.
    power_fails: bool,
    /// Truncations by a separate request.
    set_attrs: u32,
}

impl Network {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers the delayed writes, and waits for the replies.
    fn deliver(&self) {
        let delayed = std::mem::take(&mut self.state().delayed);
        assert!(!delayed.is_empty(), "no write was delayed");
        for (mut connection, call, payload) in delayed {
            if connection.send(&call, &payload).is_ok() {
                let _ = connection.receive(call.seq, &mut []);
            }
        }
    }
}

impl State {
    /// All hosts lose power.
    fn fail_power(&mut self) {
        self.power_failures.values_mut().for_each(|failures| *failures += 1);
    }

    fn boot_id(&self, host: &str) -> u64 {
        1 + self.power_failures.get(host).copied().unwrap_or(0)
    }
}

impl System for Network {
    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        let host = address.to_string();
        let boot_id = {
            let mut state = self.state();
            if state.unreachable.contains(&host) {
                state.refused += 1;
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            state.boot_id(&host)
        };
        Ok(Box::new(DelayedConnection {
            network: self.clone(),
            host,
            boot_id,
            truncates: false,
            connection: Some(Os.connect(address, auth, timeout)?),
        }))
    }
}

#[derive(Debug)]
struct DelayedConnection {
    network: Network,
    host: String,
    /// The boot id of the host.
    boot_id: u64,
    /// The last request truncates a file.
    truncates: bool,
    /// `None`: the last message is delayed.
    connection: Option<Connection>,
}

impl DelayedConnection {
    fn connection(&self) -> io::Result<&Connection> {
        let is_broken = self.network.state().boot_id(&self.host) != self.boot_id;
        let connection = self.connection.as_ref().filter(|_| !is_broken);
        connection.ok_or(io::ErrorKind::ConnectionReset.into())
    }

    fn connection_mut(&mut self) -> io::Result<&mut Connection> {
        self.connection()?;
        self.connection.as_mut().ok_or(io::ErrorKind::TimedOut.into())
    }
}

impl Channel for DelayedConnection {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.connection()?;
        let mut state = self.network.state();
        self.truncates = match &call.request {
            Request::Name(NameRequest::Create { open, .. })
            | Request::File(FileRequest::Open { open, .. }) => open.truncate,
            Request::Inode(InodeRequest::SetAttr { set, .. }) => set.size.is_some(),
            _ => false,
        };
        state.set_attrs += u32::from(
            self.truncates && matches!(call.request, Request::Inode(InodeRequest::SetAttr { .. })),
        );
        let is_write = matches!(call.request, Request::Data(DataRequest::Write { .. }));
        if is_write && state.delays_writes {
            let connection = self.connection.take().unwrap();
            state.delayed.push((connection, call.clone(), payload.to_vec()));
            return Ok(());
        }
        drop(state);
        self.connection_mut()?.send(call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        let boot_id = self.boot_id;
        let mut response = self.connection_mut()?.receive(seq, into)?;
        if let Reply::Attached { boot, .. } = &mut response.reply {
            *boot = boot_id;
        }
        let state = &mut *self.network.state();
        if self.truncates && std::mem::take(&mut state.power_fails) {
            for (host, failures) in &mut state.power_failures {
                *failures += u64::from(*host != self.host);
            }
        }
        Ok(response)
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.connection()?.set_timeout(timeout)
    }
}

/// Daemons with one instance, and a network.
struct Scene {
    network: Network,
    nodes: NodeAddresses,
    _daemons: Vec<Daemon>,
    _temporary: Temporary,
}

impl Scene {
    fn new(nodes: usize) -> Scene {
        let temporary = Temporary::new();
        let start = |node| {
            let mut options = daemon::StoreOptions::new(temporary.dir(&format!("flash{node}")));
            options.tcp = Some(([127, 0, 0, 1], 0).into());
            options.key = Some(key());
            Daemon::start(options).unwrap()
        };
        let daemons: Vec<Daemon> = (0..nodes).map(start).collect();
        let local: Vec<_> = daemons.iter().map(Daemon::address).collect();
        make_instance(local, 64 << 20);
        let remote = daemons.iter().map(|daemon| daemon.tcp_address().unwrap());
        let nodes = NodeAddresses::from(remote.collect::<Vec<_>>());
        let network = Network::default();
        network.state().power_failures = nodes.0.iter().map(|at| (at.to_string(), 0)).collect();
        Scene { network, nodes, _daemons: daemons, _temporary: temporary }
    }

    fn attach(&self, system: Arc<dyn System>, timeout: Duration) -> Fs {
        let options =
            ClientOptions { key: Some(key()), timeout, system, ..ClientOptions::default() };
        Fs::attach(self.nodes.clone(), INSTANCE, options).unwrap()
    }

    /// A client whose writes can be delayed, with a short timeout.
    fn client(&self) -> Fs {
        self.attach(Arc::new(self.network.clone()), Duration::from_millis(150))
    }

    /// A client whose writes are not delayed.
    fn other(&self) -> Fs {
        self.attach(Arc::new(Os), Duration::from_secs(20))
    }

    /// Writes ones to a file, then sevens by a write that fails and is delayed.
    fn fail_to_write(&self, fs: &Fs) -> Arc<forebay_client::File> {
        let file = fs.create(Ino::ROOT, b"f", 0o644, false, BOTH).unwrap().file;
        file.write_all_at(&[1; LENGTH], 0).unwrap();
        self.network.state().delays_writes = true;
        assert_eq!(file.write_all_at(&[7; LENGTH], 0), Err(Errno::EIO));
        self.network.state().delays_writes = false;
        file
    }
}

fn contents(fs: &Fs, ino: Ino) -> Vec<u8> {
    let opened = fs.open(ino, BOTH).unwrap();
    let mut all = vec![0; opened.attr.size as usize];
    assert_eq!(opened.file.read_at(&mut all, 0).unwrap(), all.len());
    all
}

fn truncate(fs: &Fs, ino: Ino) {
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.set_attr(ino, None, set).unwrap();
}

#[test]
fn failed_write_does_not_undo_later_requests() {
    for nodes in [1, 3] {
        type Act = fn(&Fs, &forebay_client::File);
        let acts: [(&str, Act); 4] = [
            ("truncate", |fs, file| truncate(fs, file.ino())),
            ("open with O_TRUNC", |fs, file| {
                fs.open(file.ino(), ANEW).unwrap();
            }),
            ("punch a hole", |_, file| {
                let all = (0, LENGTH as u64);
                file.allocate(all.0, all.1, Allocate::PunchHole).unwrap();
            }),
            ("sync", |_, file| file.fsync(false).unwrap()),
        ];
        for (what, act) in acts {
            let scene = Scene::new(nodes);
            let (fs, other) = (scene.client(), scene.other());
            let file = scene.fail_to_write(&fs);
            act(&fs, &file);
            let before = contents(&other, file.ino());
            scene.network.deliver();
            let after = contents(&other, file.ino());
            assert!(after == before, "{what}, on {nodes} nodes");
            // The file is usable again.
            file.write_all_at(&[2; LENGTH], 0).unwrap();
            assert!(contents(&other, file.ino()) == [2; LENGTH]);
        }
    }
}

#[test]
fn failed_write_does_not_overwrite_data_written_under_a_later_lock() {
    let scene = Scene::new(3);
    let (fs, other) = (scene.client(), scene.other());
    let ino = fs.create(Ino::ROOT, b"f", 0o644, false, BOTH).unwrap();
    ino.file.lock(true).unwrap();
    let file = scene.fail_to_write(&fs);
    ino.file.unlock().unwrap();
    let other_file = other.open(file.ino(), BOTH).unwrap().file;
    other_file.lock(true).unwrap();
    other_file.write_all_at(&[2; LENGTH], 0).unwrap();
    scene.network.deliver();
    assert!(contents(&other, file.ino()) == [2; LENGTH]);
}

#[test]
fn failed_append_does_not_overwrite_another_one() {
    let scene = Scene::new(3);
    let (fs, other) = (scene.client(), scene.other());
    let opened = fs.create(Ino::ROOT, b"f", 0o644, true, BOTH).unwrap();
    opened.file.append(&[1; LENGTH]).unwrap();
    scene.network.state().delays_writes = true;
    assert_eq!(opened.file.append(&[7; LENGTH]), Err(Errno::EIO));
    scene.network.state().delays_writes = false;
    let other_file = other.open(opened.attr.ino, BOTH).unwrap().file;
    assert_eq!(other_file.append(&[2; LENGTH]), Ok(LENGTH));
    scene.network.deliver();
    let all = contents(&other, opened.attr.ino);
    assert!(all == [[1; LENGTH], [2; LENGTH]].concat());
}

#[test]
fn fsync_after_power_failure_fails_only_if_the_file_was_truncated() {
    type Act = fn(&Fs, Ino) -> Arc<forebay_client::File>;
    let acts: [(&str, Act); 4] = [
        ("open", |fs, ino| fs.open(ino, ANEW).unwrap().file),
        ("create", |fs, _| {
            let opened = fs.create(Ino::ROOT, b"f", 0o644, false, ANEW);
            opened.unwrap().file
        }),
        ("truncate", |fs, ino| {
            truncate(fs, ino);
            fs.open(ino, BOTH).unwrap().file
        }),
        ("ftruncate", |fs, ino| {
            let file = fs.open(ino, BOTH).unwrap().file;
            let set = SetAttr { size: Some(1), ..SetAttr::default() };
            fs.set_attr(ino, Some(&file), set).unwrap();
            file
        }),
    ];
    // On the larger instance only the nodes with parts of the file count.
    let scenes = [Scene::new(3), Scene::new(12)];
    let cases = scenes.iter().flat_map(|scene| acts.map(|act| (scene, act)));
    for (scene, (what, act)) in cases {
        for power_fails in [false, true] {
            let other = scene.other();
            let other_file = other.create(Ino::ROOT, b"f", 0o644, false, BOTH).unwrap();
            other_file.file.write_all_at(&[1; LENGTH], 0).unwrap();
            other_file.file.fsync(false).unwrap();
            let ino = other_file.attr.ino;
            drop((other_file, other));
            // It has a session with the first node only.
            let fs = scene.client();
            scene.network.state().power_fails = power_fails;
            let file = act(&fs, ino);
            assert!(!scene.network.state().power_fails, "{what}: no truncation");
            let expected = match power_fails {
                true => Err(Errno::EIO),
                false => Ok(()),
            };
            assert_eq!(file.fsync(false), expected, "{what}");
            assert_eq!(file.fsync(false), Ok(()), "{what}");
        }
    }
}

/// Contents of files that are stored whole are durable after a sync of the instance. That of another file
/// makes their names durable, but not their contents; and if it reports a loss, others have to know, too.
#[test]
fn sync_after_power_failure_reports_lost_files_although_another_file_was_synced() {
    for (synced_before, synced_after) in [(false, false), (true, false), (false, true)] {
        let scene = Scene::new(1);
        let fs = scene.client();
        let other = fs.create(Ino::ROOT, b"other", 0o644, false, BOTH).unwrap().file;
        fs.sync().unwrap();
        let new = |name: &[u8]| NewFile {
            name: name.to_vec(),
            set: SetAttr::default(),
            data: vec![1; 100],
        };
        let stored = fs.put_files(Ino::ROOT, vec![new(b"a"), new(b"b")]);
        assert!(stored.iter().all(Result::is_ok), "{stored:?}");
        if synced_before {
            other.fsync(false).unwrap();
        }
        scene.network.state().fail_power();
        if synced_after {
            assert_eq!(other.fsync(false), Err(Errno::EIO));
        }
        let what = format!("before {synced_before}, after {synced_after}");
        assert_eq!(fs.sync(), Err(Errno::EIO), "{what}");
        assert_eq!(fs.sync(), Ok(()), "{what}");
    }
}

#[test]
fn create_does_not_wait_for_nodes_without_parts_of_the_file() {
    let scene = Scene::new(3);
    let fs = scene.client();
    let away = scene.nodes.0[1..].iter().map(Address::to_string);
    scene.network.state().unreachable = away.collect();
    let opened = fs.create(Ino::ROOT, b"new", 0o644, false, ANEW).unwrap();
    assert!(opened.created && opened.attr.size == 0);
    assert_eq!(scene.network.state().refused, 0);
}

#[test]
fn open_with_truncate_takes_one_request_if_all_nodes_are_known() {
    let scene = Scene::new(3);
    let fs = scene.client();
    let ino = fs.create(Ino::ROOT, b"f", 0o644, false, ANEW).unwrap().attr.ino;
    for set_attrs in [1, 1, 1] {
        let opened = fs.open(ino, ANEW).unwrap();
        assert_eq!(opened.attr.size, 0);
        opened.file.write_all_at(&[1; LENGTH], 0).unwrap();
        assert_eq!(scene.network.state().set_attrs, set_attrs);
    }
}
