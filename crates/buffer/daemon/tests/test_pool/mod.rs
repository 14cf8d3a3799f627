//! A pool's directory and configuration on loopback, for daemons in the test's process.
#![allow(clippy::unwrap_used)] // a test: what cannot be unwrapped has failed
#![allow(dead_code)] // each test program uses its own part

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use forebay_control::controller::{InstanceSpec, Request};
use forebay_control::messages::Owner;
use forebay_daemon::{ControllerClient, Daemon, PoolConfig};
use forebay_job_script::{Access, AccessMode, Capacity, InstanceType};
use forebay_units::Bytes;

/// A request for a striped persistent instance.
pub fn create_persistent(name: &str, owner: Owner, capacity: Bytes) -> Request {
    let access = Access { mode: AccessMode::Striped, modifiers: Default::default() };
    Request::CreatePersistent {
        name: name.to_owned(),
        owner,
        spec: InstanceSpec {
            capacity: Capacity::Bytes(capacity),
            kind: InstanceType::Scratch,
            access: vec![access],
            pool: None,
            preference: Default::default(),
            modifiers: Default::default(),
            group: None,
            lifetime_ms: None,
            account: None,
        },
        public: false,
    }
}

pub fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "timeout: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub struct TestPool {
    pub directory: tempfile::TempDir,
    pub controller: SocketAddr,
    pub nodes: Vec<SocketAddr>,
}

impl TestPool {
    /// A pool of `nodes` storage nodes. No daemon runs yet.
    pub fn new(nodes: usize) -> TestPool {
        let listeners: Vec<TcpListener> =
            (0..=nodes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let mut free = listeners.iter().map(|l| l.local_addr().unwrap());
        let pool = TestPool {
            directory: tempfile::tempdir().unwrap(),
            controller: free.next().unwrap(),
            nodes: free.collect(),
        };
        pool.write_key("key", b"the key of this pool, for tests");
        pool.write_key("other-key", b"the key of another pool");
        pool
    }

    /// Writes a key file that only its owner can read.
    pub fn write_key(&self, name: &str, key: &[u8]) {
        let file = self.path(name);
        fs::write(&file, key).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A configuration with this key file; `sockets` names the controller's local socket.
    pub fn file(&self, key: &str, sockets: &str) -> PathBuf {
        let home = self.directory.path().display();
        let mut text = format!(
            "[pool]\nname = \"p\"\ngranularity = \"1MiB\"\n[controller]\naddress = \"{}\"\n\
             directory = \"{home}/controller\"\nsocket = \"{home}/{sockets}.socket\"\n\
             [agent]\ndirectory = \"{home}/agent\"\n\
             [auth]\nmethod = \"key\"\nkey_file = \"{home}/{key}\"\n",
            self.controller
        );
        for (index, address) in self.nodes.iter().enumerate() {
            text.push_str(&format!(
                "[[storage]]\nname = \"s{index}\"\naddress = \"{address}\"\n\
                 directory = \"{home}/s{index}\"\ncapacity = \"64MiB\"\n"
            ));
        }
        let file = self.path(&format!("{key}-{sockets}.toml"));
        fs::write(&file, text).unwrap();
        file
    }

    pub fn config(&self, key: &str) -> PoolConfig {
        PoolConfig::read(&self.file(key, "controller")).unwrap()
    }

    pub fn controller(&self) -> Daemon {
        wait_for("the controller's port is free", || {
            Daemon::start_controller(&self.config("key")).ok()
        })
    }

    pub fn client(&self) -> ControllerClient {
        ControllerClient::open(&self.file("key", "controller")).unwrap()
    }
}

/// Whether the controller has accepted a storage node.
pub fn is_online(pool: &TestPool, name: &str) -> bool {
    pool.path(name).join("pool").exists()
}

/// A frame of the control protocol.
pub fn frame(body: &str) -> Vec<u8> {
    forebay_net::frame::encode_control(1 << 20, |out| {
        out.extend_from_slice(body.as_bytes());
        Ok(())
    })
    .unwrap()
}
