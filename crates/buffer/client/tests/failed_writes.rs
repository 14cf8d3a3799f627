//! Writes that arrive after the program received their error, and power failures of storage nodes
//! during a truncation. The daemons are real, behind a network that a test can delay.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use forebay_client::{Channel, ClientOptions, Connection, Fs, NodeAddresses, Os, System};
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
use std::time::{Duration, Instant};
use support::process::key;
use support::{INSTANCE, STRIPE, Temporary, make_instance};

const BOTH: OpenMode = OpenMode { read: true, write: true, truncate: false, descriptor: false };
const ANEW: OpenMode = OpenMode { truncate: true, ..BOTH };
const LENGTH: usize = 3 * STRIPE as usize;

/// A network between a client and its daemons.
#[derive(Clone, Debug, Default)]
struct Network(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Writes are sent, and do not arrive.
    holds_writes: bool,
    held: Vec<(Connection, Call, Vec<u8>)>,
    /// Hosts that nobody is at, and how often they were tried.
    away: BTreeSet<String>,
    tried: u32,
    /// How often hosts have lost their power, other than never.
    cuts: BTreeMap<String, u64>,
    /// All but the one that is asked lose theirs when a file is cut next.
    cut_power: bool,
    /// Cuts that were asked for by a request of their own.
    set_attrs: u32,
}

impl Network {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was held arrives. Returns when the daemons have done with it.
    fn deliver(&self) {
        let held = std::mem::take(&mut self.state().held);
        assert!(!held.is_empty(), "nothing was late");
        for (mut link, call, payload) in held {
            if link.send(&call, &payload).is_ok() {
                let _ = link.receive(call.seq, &mut []);
            }
        }
    }
}

impl State {
    fn start(&self, host: &str) -> u64 {
        1 + self.cuts.get(host).copied().unwrap_or(0)
    }
}

impl System for Network {
    fn now(&self) -> Instant {
        Os.now()
    }

    fn sleep(&self, time: Duration) {
        Os.sleep(time);
    }

    fn connect(
        &self,
        address: &Address,
        auth: &Authenticator,
        patience: Duration,
    ) -> io::Result<Connection> {
        let host = address.to_string();
        let start = {
            let mut state = self.state();
            if state.away.contains(&host) {
                state.tried += 1;
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            state.start(&host)
        };
        Ok(Box::new(Wire {
            network: self.clone(),
            host,
            start,
            cuts: false,
            link: Some(Os.connect(address, auth, patience)?),
        }))
    }
}

#[derive(Debug)]
struct Wire {
    network: Network,
    host: String,
    /// The start of the host that it leads to.
    start: u64,
    /// A file is cut by what was asked last.
    cuts: bool,
    /// `None`: the message that was sent last is held.
    link: Option<Connection>,
}

impl Wire {
    fn link(&self) -> io::Result<&Connection> {
        let broken = self.network.state().start(&self.host) != self.start;
        let whole = self.link.as_ref().filter(|_| !broken);
        whole.ok_or(io::ErrorKind::ConnectionReset.into())
    }

    fn link_mut(&mut self) -> io::Result<&mut Connection> {
        self.link()?;
        self.link.as_mut().ok_or(io::ErrorKind::TimedOut.into())
    }
}

impl Channel for Wire {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        self.link()?;
        let mut state = self.network.state();
        let sized = |set: &SetAttr| set.size.is_some();
        self.cuts = match &call.request {
            Request::Name(NameRequest::Create { open, .. })
            | Request::File(FileRequest::Open { open, .. }) => open.truncate,
            Request::Inode(InodeRequest::SetAttr { set, .. }) => sized(set),
            _ => false,
        };
        state.set_attrs += u32::from(
            self.cuts && matches!(call.request, Request::Inode(InodeRequest::SetAttr { .. })),
        );
        let is_write = matches!(call.request, Request::Data(DataRequest::Write { .. }));
        if is_write && state.holds_writes {
            let link = self.link.take().unwrap();
            state.held.push((link, call.clone(), payload.to_vec()));
            return Ok(());
        }
        drop(state);
        self.link_mut()?.send(call, payload)
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        let start = self.start;
        let mut answer = self.link_mut()?.receive(seq, into)?;
        if let Reply::Attached { boot, .. } = &mut answer.reply {
            *boot = start;
        }
        let state = &mut *self.network.state();
        if self.cuts && std::mem::take(&mut state.cut_power) {
            for (host, cuts) in &mut state.cuts {
                *cuts += u64::from(*host != self.host);
            }
        }
        Ok(answer)
    }

    fn set_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        self.link()?.set_timeout(patience)
    }
}

/// Daemons that share an instance, and the way to them.
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
        network.state().cuts = nodes.0.iter().map(|at| (at.to_string(), 0)).collect();
        Scene { network, nodes, _daemons: daemons, _temporary: temporary }
    }

    fn attach(&self, system: Arc<dyn System>, patience: Duration) -> Fs {
        let options = ClientOptions {
            key: Some(key()),
            timeout: patience,
            system,
            ..ClientOptions::default()
        };
        Fs::attach(self.nodes.clone(), INSTANCE, options).unwrap()
    }

    /// A client whose writes may come late, and who soon gives up.
    fn client(&self) -> Fs {
        self.attach(Arc::new(self.network.clone()), Duration::from_millis(150))
    }

    /// A client without such trouble.
    fn other(&self) -> Fs {
        self.attach(Arc::new(Os), Duration::from_secs(20))
    }

    /// A write of sevens to a file of ones that fails and is still under way.
    fn fail_to_write(&self, fs: &Fs) -> Arc<forebay_client::File> {
        let file = fs.create(Ino::ROOT, b"f", 0o644, false, BOTH).unwrap().file;
        file.write_all_at(&[1; LENGTH], 0).unwrap();
        self.network.state().holds_writes = true;
        assert_eq!(file.write_all_at(&[7; LENGTH], 0), Err(Errno::EIO));
        self.network.state().holds_writes = false;
        file
    }
}

fn contents(fs: &Fs, ino: Ino) -> Vec<u8> {
    let opened = fs.open(ino, BOTH).unwrap();
    let mut all = vec![0; opened.attr.size as usize];
    assert_eq!(opened.file.read_at(&mut all, 0).unwrap(), all.len());
    all
}

fn cut(fs: &Fs, ino: Ino) {
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    fs.set_attr(ino, None, set).unwrap();
}

#[test]
fn failed_write_does_not_undo_later_requests() {
    for nodes in [1, 3] {
        type Act = fn(&Fs, &forebay_client::File);
        let acts: [(&str, Act); 4] = [
            ("cut", |fs, file| cut(fs, file.ino())),
            ("open anew", |fs, file| {
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
            // The file can be used again.
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
    let theirs = other.open(file.ino(), BOTH).unwrap().file;
    theirs.lock(true).unwrap();
    theirs.write_all_at(&[2; LENGTH], 0).unwrap();
    scene.network.deliver();
    assert!(contents(&other, file.ino()) == [2; LENGTH]);
}

#[test]
fn failed_append_does_not_overwrite_another_one() {
    let scene = Scene::new(3);
    let (fs, other) = (scene.client(), scene.other());
    let opened = fs.create(Ino::ROOT, b"f", 0o644, true, BOTH).unwrap();
    opened.file.append(&[1; LENGTH]).unwrap();
    scene.network.state().holds_writes = true;
    assert_eq!(opened.file.append(&[7; LENGTH]), Err(Errno::EIO));
    scene.network.state().holds_writes = false;
    let theirs = other.open(opened.attr.ino, BOTH).unwrap().file;
    assert_eq!(theirs.append(&[2; LENGTH]), Ok(LENGTH));
    scene.network.deliver();
    let all = contents(&other, opened.attr.ino);
    assert!(all == [[1; LENGTH], [2; LENGTH]].concat());
}

#[test]
fn fsync_after_power_failure_fails_only_if_the_file_was_truncated() {
    type Act = fn(&Fs, Ino) -> Arc<forebay_client::File>;
    let acts: [(&str, Act); 3] = [
        ("open", |fs, ino| fs.open(ino, ANEW).unwrap().file),
        ("create", |fs, _| {
            let opened = fs.create(Ino::ROOT, b"f", 0o644, false, ANEW);
            opened.unwrap().file
        }),
        ("cut", |fs, ino| {
            cut(fs, ino);
            fs.open(ino, BOTH).unwrap().file
        }),
    ];
    let scene = Scene::new(3);
    for (what, act) in acts {
        for cut_power in [false, true] {
            let other = scene.other();
            let theirs = other.create(Ino::ROOT, b"f", 0o644, false, BOTH).unwrap();
            theirs.file.write_all_at(&[1; LENGTH], 0).unwrap();
            theirs.file.fsync(false).unwrap();
            let ino = theirs.attr.ino;
            drop((theirs, other));
            // It has spoken to the first node only.
            let fs = scene.client();
            scene.network.state().cut_power = cut_power;
            let file = act(&fs, ino);
            assert!(!scene.network.state().cut_power, "{what}: nothing was cut");
            let told = match cut_power {
                true => Err(Errno::EIO),
                false => Ok(()),
            };
            assert_eq!(file.fsync(false), told, "{what}");
            assert_eq!(file.fsync(false), Ok(()), "{what}");
        }
    }
}

#[test]
fn create_does_not_wait_for_nodes_without_parts_of_the_file() {
    let scene = Scene::new(3);
    let fs = scene.client();
    let away = scene.nodes.0[1..].iter().map(Address::to_string);
    scene.network.state().away = away.collect();
    let opened = fs.create(Ino::ROOT, b"new", 0o644, false, ANEW).unwrap();
    assert!(opened.created && opened.attr.size == 0);
    assert_eq!(scene.network.state().tried, 0);
}

#[test]
fn open_with_truncate_takes_one_request_if_all_nodes_are_known() {
    let scene = Scene::new(3);
    let fs = scene.client();
    let ino = fs.create(Ino::ROOT, b"f", 0o644, false, ANEW).unwrap().attr.ino;
    for asked in [1, 1, 1] {
        let opened = fs.open(ino, ANEW).unwrap();
        assert_eq!(opened.attr.size, 0);
        opened.file.write_all_at(&[1; LENGTH], 0).unwrap();
        assert_eq!(scene.network.state().set_attrs, asked);
    }
}
