//! The driver that runs a [`Shard`] on a real machine: sockets, clock, log, threads.
//!
//! One thread takes all metadata requests: it gathers what has arrived on its connections, steps
//! the shard, writes the log once for all of them, and then answers. A second thread syncs, so
//! that nobody waits for a disk but who asked for it; a third makes checkpoints now and then and
//! keeps space in reserve, a fourth checksums of data at rest, a fifth removes what is left of
//! removed instances. Bulk connections have a thread each.

mod accept;
mod bulk;
mod calls;
mod connection;
mod counters;
mod doors;
mod effects;
mod entry;
mod events;
mod fetcher;
mod flights;
mod keeper;
mod peers;
mod proof;
mod sealer;
mod sync;
mod wake;

pub use bulk::{DataPath, Direct};
pub use counters::{Present, Report, Requests, Watch};
pub use doors::DoorLimits;

use crate::log::spare::{is_full, keep_spare};
use crate::log::{Log, RecoverError};
use crate::objects::{DiskObjects, Leaving};
use crate::recovery;
use crate::shard::{Limits, Now, Shard, State};
use crate::storage::Disk;
use counters::Counters;
use events::EventLoop;
use forebay_net::auth::PoolKey;
use forebay_net::munge::Munge;
use forebay_protocol::Timestamp;
use forebay_protocol::address::Address;
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
use wake::Wake;

/// How to run a storage daemon.
#[derive(Clone, Debug)]
pub struct Options {
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
    pub seal_interval: Duration,
    /// Whether large reads and writes of clients on other hosts go past the page cache.
    pub direct: Direct,
    /// Those that do may use `io_uring`.
    pub uring: bool,
}

impl Options {
    /// A daemon on the directory `dir` that listens at `dir/socket`.
    pub fn new(dir: impl Into<PathBuf>) -> Options {
        let dir = dir.into();
        Options {
            socket: dir.join("socket"),
            dir,
            tcp: None,
            key: None,
            munge: None,
            limits: Limits::default(),
            doors: DoorLimits::default(),
            segment_size: 64 << 20,
            sync_interval: Duration::from_secs(1),
            seal_interval: Duration::from_secs(30),
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
    Busy(PathBuf),
    /// The log or its checkpoint could not be read.
    Recover(RecoverError),
    /// The options do not go together.
    Options(&'static str),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Io(what, error) => write!(f, "{what}: {error}"),
            StartError::Busy(dir) => {
                write!(
                    f,
                    "{}: another storage daemon is running on it",
                    dir.display()
                )
            }
            StartError::Recover(error) => error.fmt(f),
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
        Err(_) => Err(StartError::Busy(dir.to_owned())),
    }
}

/// Read the log back, and have room for the record of this start.
fn open_log(
    storage: &Disk,
    dir: &Path,
    segment_size: u64,
) -> Result<(State, Log<Disk>), StartError> {
    let full = |error: io::Error| {
        let what = format!(
            "{}: the log has no room for the record of a start; have {} MiB free on its file system",
            dir.display(),
            segment_size >> 20
        );
        StartError::Io(what, error)
    };
    let (state, mut log) =
        recovery::recover(storage.clone(), segment_size).map_err(|error| match error {
            RecoverError::Io(error) if is_full(&error) => full(error),
            error => StartError::Recover(error),
        })?;
    match keep_spare(storage, segment_size) {
        // What there is left of the log is kept for what gives space back.
        Err(error) if is_full(&error) => {}
        other => at(dir.display(), other)?,
    }
    match log.prepare_start() {
        Err(error) if is_full(&error) => Err(full(error)),
        other => at(dir.display(), other),
    }?;
    Ok((state, log))
}

/// The sockets at which clients and other daemons connect.
fn listen(options: &Options) -> Result<(UnixListener, Option<TcpListener>), StartError> {
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
    wake: Arc<Wake>,
    counters: Arc<Counters>,
    leaving: Arc<Leaving>,
    thread: Option<JoinHandle<io::Result<()>>>,
    socket: PathBuf,
    tcp: Option<SocketAddr>,
}

impl Daemon {
    /// Recover what is in the directory and start to serve it.
    pub fn start(options: Options) -> Result<Daemon, StartError> {
        options.check()?;
        forebay_net::stream::raise_descriptor_limit();
        let lock = take_directory(&options.dir)?;
        let (log_dir, objects_dir) = (options.dir.join("log"), options.dir.join("objects"));
        let storage = at(log_dir.display(), Disk::open(&log_dir))?;
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
        at("/dev/urandom", forebay_protocol::random::random(&mut seed))?;
        let mut shard = Shard::start(
            state,
            log.last(),
            objects.clone(),
            options.limits.clone(),
            options.key.clone(),
            clock.now(),
            seed,
        )
        .map_err(|errno| StartError::Io(objects_dir.display().to_string(), errno.into()))?;
        shard.set_boot(crate::objects::boot());
        if options.munge.is_some() {
            shard.accept_munge();
        }
        let wake = Arc::new(at("eventfd", Wake::new())?);
        let path = bulk::probe(&objects_dir, options.direct, options.uring);
        let parts = Parts {
            counters: Arc::new(Counters::new(path)),
            shard,
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
    pub fn watch(&self) -> Watch {
        Watch {
            counters: self.counters.clone(),
            leaving: self.leaving.clone(),
            wake: self.wake.clone(),
        }
    }

    /// Removed instances that still take space.
    pub fn leaving(&self) -> &Leaving {
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
        self.wake.ring();
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
        self.wake.ring();
        let _ = self.join();
    }
}

struct Parts {
    counters: Arc<Counters>,
    shard: Shard<DiskObjects>,
    log: Log<Disk>,
    storage: Disk,
    objects: DiskObjects,
    clock: Clock,
    wake: Arc<Wake>,
    lock: File,
}

impl Parts {
    /// Listen, and have a thread serve who comes.
    fn serve(self, options: Options, data: DataPath) -> Result<Daemon, StartError> {
        let (unix, tcp) = listen(&options)?;
        let tcp_address = match &tcp {
            Some(listener) => Some(at("TCP", listener.local_addr())?),
            None => None,
        };
        let (wake, counters) = (self.wake.clone(), self.counters.clone());
        let leaving = self.objects.leaving();
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
            steady: self.start.elapsed().as_nanos() as u64,
        }
    }
}
