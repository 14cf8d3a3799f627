//! The driver that runs a [`Node`] on a real machine: sockets, clock, log, threads.
//!
//! One thread takes all metadata requests: it gathers what has arrived on its connections, steps
//! the shard, writes the log once for all of them, and then answers. A second thread syncs, so
//! that nobody waits for a disk but who asked for it; a third makes checkpoints now and then and
//! keeps space in reserve, a fourth checksums of data at rest, a fifth removes what is left of
//! removed instances. Bulk connections have a thread each.

mod accept;
mod blocking_io;
mod calls;
mod checkpointer;
mod checksummer;
mod connection;
mod counters;
mod data;
mod doors;
mod effects;
mod entry;
mod events;
mod flights;
mod mailbox;
mod munge_worker;
mod peer_links;
mod syncer;

pub use counters::{RequestStats, StatsHandle, StoreGauges, StoreReport};
pub use data::{DataPath, Direct};
pub use doors::DoorLimits;

use crate::log::spare_segment::{ensure_spare_segment, is_out_of_space};
use crate::log::{Log, RecoveryError};
use crate::node::{Limits, Node, NodeState, Now};
use crate::objects::{DiskObjects, RemovalQueue};
use crate::recovery;
use crate::storage::DiskStorage;
use counters::StoreCounters;
use events::EventLoop;
use forebay_net::auth::PoolKey;
use forebay_net::munge::Munge;
use forebay_protocol::Timestamp;
use forebay_protocol::address::Address;
use mailbox::Mailbox;
use rustix::fs::{FlockOperation, flock};
use std::fmt;
use std::fs::{File, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How to run a storage daemon.
#[derive(Clone, Debug)]
pub struct InvalidOptions {
    /// Directory on the flash: `log/`, `objects/`, a lock file. Made if it is missing.
    pub dir: PathBuf,
    /// Unix socket to listen at.
    pub socket: PathBuf,
    /// TCP address to listen at; needs `key` or `munge`. Port 0 takes a free one.
    pub tcp: Option<SocketAddr>,
    /// The pool's key, which clients on other hosts must have.
    pub key: Option<PoolKey>,
    /// This host's `munged`, by which clients on other hosts are known.
    pub munge: Option<Munge>,
    /// What clients may use up.
    pub limits: Limits,
    /// How many connections there may be.
    pub doors: DoorLimits,
    /// Bytes reserved for each segment of the log, at least 4 MiB.
    pub segment_size: u64,
    /// How long a change may go without being made durable when nobody asks for it.
    pub sync_interval: Duration,
    /// How often new checksums of data at rest are made to hold when the host is started again, which
    /// makes all data durable; while others keep the device busy, a tenth as often.
    pub checksum_interval: Duration,
    /// Whether large reads and writes of clients on other hosts go past the page cache.
    pub direct: Direct,
    /// Those that do may use `io_uring`.
    pub uring: bool,
}

impl InvalidOptions {
    /// A daemon on the directory `dir` that listens at `dir/socket`.
    pub fn new(dir: impl Into<PathBuf>) -> InvalidOptions {
        let dir = dir.into();
        InvalidOptions {
            socket: dir.join("socket"),
            dir,
            tcp: None,
            key: None,
            munge: None,
            limits: Limits::default(),
            doors: DoorLimits::default(),
            segment_size: 64 << 20,
            sync_interval: Duration::from_secs(1),
            checksum_interval: Duration::from_secs(30),
            direct: Direct::default(),
            uring: true,
        }
    }

    fn check(&self) -> Result<(), StartError> {
        let why = if self.tcp.is_some() && self.key.is_none() && self.munge.is_none() {
            "listening on TCP needs MUNGE or the pool's key"
        } else if self.segment_size < 4 << 20 {
            "a log segment must have at least 4 MiB"
        } else {
            return Ok(());
        };
        Err(StartError::Options(why))
    }
}

/// Why a daemon did not start.
#[derive(Debug)]
pub enum StartError {
    /// Something about this path or address failed.
    Io(String, io::Error),
    /// Another daemon runs on the directory.
    DirectoryInUse(PathBuf),
    /// The log or its checkpoint could not be read.
    Recovery(RecoveryError),
    /// The options do not go together.
    Options(&'static str),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Io(what, error) => write!(f, "{what}: {error}"),
            StartError::DirectoryInUse(dir) => {
                write!(
                    f,
                    "{}: another storage daemon is running on it",
                    dir.display()
                )
            }
            StartError::Recovery(error) => error.fmt(f),
            StartError::Options(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}

fn at<T>(what: impl fmt::Display, result: io::Result<T>) -> Result<T, StartError> {
    result.map_err(|error| StartError::Io(what.to_string(), error))
}

/// Make sure that a directory is there, and that nobody else serves it as long as the file is open.
fn take_directory(dir: &Path) -> Result<File, StartError> {
    at(dir.display(), std::fs::create_dir_all(dir))?;
    let path = dir.join("lock");
    let lock = at(path.display(), File::create(&path))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(_) => Err(StartError::DirectoryInUse(dir.to_owned())),
    }
}

/// Read the log back, and have room for the record of this start.
fn open_log(
    storage: &DiskStorage,
    dir: &Path,
    segment_size: u64,
) -> Result<(NodeState, Log<DiskStorage>), StartError> {
    let full = |error: io::Error| {
        let what = format!(
            "{}: the log has no room for the record of a start; have {} MiB free on its file system",
            dir.display(),
            segment_size >> 20
        );
        StartError::Io(what, error)
    };
    let (state, mut log) =
        recovery::recover_state(storage.clone(), segment_size).map_err(|error| match error {
            RecoveryError::Io(error) if is_out_of_space(&error) => full(error),
            error => StartError::Recovery(error),
        })?;
    match ensure_spare_segment(storage, segment_size) {
        // What there is left of the log is kept for what gives space back.
        Err(error) if is_out_of_space(&error) => {}
        other => at(dir.display(), other)?,
    }
    match log.ensure_start_headroom() {
        Err(error) if is_out_of_space(&error) => Err(full(error)),
        other => at(dir.display(), other),
    }?;
    Ok((state, log))
}

/// The sockets at which clients and other daemons connect.
fn listen(options: &InvalidOptions) -> Result<(UnixListener, Option<TcpListener>), StartError> {
    // A socket left over from a daemon that was killed; the lock says it is not in use.
    let _ = std::fs::remove_file(&options.socket);
    let unix = at(
        options.socket.display(),
        UnixListener::bind(&options.socket),
    )?;
    // Anyone may connect; what they may do is decided by who they are.
    let open = Permissions::from_mode(0o666);
    at(
        options.socket.display(),
        std::fs::set_permissions(&options.socket, open),
    )?;
    let tcp = match options.tcp {
        Some(address) => Some(at(address, forebay_net::listener::listen(address))?),
        None => None,
    };
    Ok((unix, tcp))
}

/// A running storage daemon. Dropping it stops it.
#[derive(Debug)]
pub struct Daemon {
    wake: Arc<Mailbox>,
    counters: Arc<StoreCounters>,
    leaving: Arc<RemovalQueue>,
    thread: Option<JoinHandle<io::Result<()>>>,
    socket: PathBuf,
    tcp: Option<SocketAddr>,
}

impl Daemon {
    /// Recover what is in the directory and start to serve it.
    pub fn start(options: InvalidOptions) -> Result<Daemon, StartError> {
        options.check()?;
        forebay_net::stream::raise_descriptor_limit();
        let lock = take_directory(&options.dir)?;
        let (log_dir, objects_dir) = (options.dir.join("log"), options.dir.join("objects"));
        let storage = at(log_dir.display(), DiskStorage::open(&log_dir))?;
        let (state, log) = open_log(&storage, &log_dir, options.segment_size)?;
        let objects = at(objects_dir.display(), DiskObjects::open(&objects_dir))?;
        for dir in [&objects_dir, &log_dir] {
            let private = Permissions::from_mode(0o700);
            at(dir.display(), std::fs::set_permissions(dir, private))?;
        }
        let clock = Clock {
            start: Instant::now(),
        };
        let mut seed = [0; 32];
        at(
            "/dev/urandom",
            forebay_protocol::random::fill_random(&mut seed),
        )?;
        let mut node = Node::start(
            state,
            log.last_sequence(),
            objects.clone(),
            options.limits.clone(),
            options.key.clone(),
            clock.now(),
            seed,
        )
        .map_err(|errno| StartError::Io(objects_dir.display().to_string(), errno.into()))?;
        node.set_boot_id(crate::objects::boot_hash());
        if options.munge.is_some() {
            node.enable_munge();
        }
        let wake = Arc::new(at("eventfd", Mailbox::new())?);
        let path = data::probe(&objects_dir, options.direct, options.uring);
        let parts = LoopParts {
            counters: Arc::new(StoreCounters::new(path)),
            node,
            log,
            storage,
            objects,
            clock,
            wake,
            lock,
        };
        parts.serve(options, path)
    }

    /// Where clients on this host connect.
    pub fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    /// Where clients on other hosts connect.
    pub fn tcp_address(&self) -> Option<Address> {
        self.tcp.map(Address::Tcp)
    }

    /// What it counts.
    pub fn stats(&self) -> StatsHandle {
        StatsHandle {
            counters: self.counters.clone(),
            leaving: self.leaving.clone(),
            wake: self.wake.clone(),
        }
    }

    /// Removed instances that still take space.
    pub fn removal_queue(&self) -> &RemovalQueue {
        &self.leaving
    }

    /// Has it ended by itself, because its storage failed?
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Wait until the daemon ends by itself, which it does only when its storage fails.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    /// Make names and attributes durable and stop; data, too, if there are new checksums of data at
    /// rest. Otherwise data that nobody synced are left to the kernel, as on any file system.
    pub fn stop(mut self) -> io::Result<()> {
        self.wake.stop.store(true, Ordering::Release);
        self.wake.wake();
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the storage daemon's thread panicked")),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.wake.stop.store(true, Ordering::Release);
        self.wake.wake();
        let _ = self.join();
    }
}

struct LoopParts {
    counters: Arc<StoreCounters>,
    node: Node<DiskObjects>,
    log: Log<DiskStorage>,
    storage: DiskStorage,
    objects: DiskObjects,
    clock: Clock,
    wake: Arc<Mailbox>,
    lock: File,
}

impl LoopParts {
    /// Listen, and have a thread serve who comes.
    fn serve(self, options: InvalidOptions, data: DataPath) -> Result<Daemon, StartError> {
        let (unix, tcp) = listen(&options)?;
        let tcp_address = match &tcp {
            Some(listener) => Some(at("TCP", listener.local_addr())?),
            None => None,
        };
        let (wake, counters) = (self.wake.clone(), self.counters.clone());
        let leaving = self.objects.removal_queue();
        let (socket, dir) = (options.socket.clone(), options.dir.clone());
        let mut events = at("epoll", EventLoop::new(self, options, unix, tcp))?;
        let thread = std::thread::Builder::new()
            .name("forebay-store".into())
            .spawn(move || events.run());
        let thread = Some(at("thread", thread)?);
        let shown = tcp_address.map(tracing::field::display);
        tracing::info!(dir = %dir.display(), %data, tcp = shown, "a storage daemon serves");
        Ok(Daemon {
            wake,
            counters,
            leaving,
            thread,
            socket,
            tcp: tcp_address,
        })
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
struct Clock {
    start: Instant,
}

impl Clock {
    fn now(&self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            wall: Timestamp {
                secs: wall.as_secs() as i64,
                nanos: wall.subsec_nanos(),
            },
            steady_ns: self.start.elapsed().as_nanos() as u64,
        }
    }
}
