//! Start and stop of a storage daemon.

use super::batch::BatchQueue;
use super::charged_use::ChargedUse;
use super::clock::Clock;
use super::connections::Connections;
use super::counters::StoreCounters;
use super::data_service::DataService;
use super::delayed_calls::DelayedCalls;
use super::event_loop::{EventLoop, Ticker};
use super::event_loop_thread::EventLoopThread;
use super::log_writer::LogWriter;
use super::mailbox::Mailbox;
use super::munge_worker::start_munge_worker;
use super::object_workers::ObjectWorkers;
use super::options::{StartError, StoreOptions};
use super::peer_links::PeerLinks;
use super::stats::StatsHandle;
use crate::format_version::note_format;
use crate::log::spare_segment::ensure_spare_segment;
use crate::log::{Log, RecoveryError};
use crate::lost_instances::check_instances;
use crate::node::Node;
use crate::objects::{DiskObjects, Objects, RemovalQueue, boot_hash};
use crate::recovery;
use crate::state::NodeState;
use crate::storage::{DiskStorage, is_out_of_space};
use crate::sync_failures::{boot_after, failed_syncs};
use crate::tag_key::load_tag_key;
use forebay_net::auth::Authenticator;
use forebay_net::in_process::{self, InProcessService, Registration};
use forebay_net::listener::{bind_tcp, bind_unix};
use forebay_net::lock_file;
use forebay_protocol::address::Address;
use std::fmt;
use std::fs::{File, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// Characters of a host's name in the log.
const MAX_LOGGED_NAME: usize = 64;

fn at<T>(what: impl fmt::Display, result: io::Result<T>) -> Result<T, StartError> {
    result.map_err(|error| StartError::Io(what.to_string(), error))
}

/// Create the directory if it is missing, and lock it as long as the returned file is open.
fn lock_directory(dir: &Path) -> Result<File, StartError> {
    at(dir.display(), std::fs::create_dir_all(dir))?;
    let lock = at(dir.join("lock").display(), lock_file::lock_directory(dir))?;
    lock.ok_or_else(|| StartError::DirectoryInUse(dir.to_owned()))
}

/// Recover the state and ensure log space for the start record.
fn open_log(
    storage: &DiskStorage,
    dir: &Path,
    segment_size: u64,
) -> Result<(NodeState, Log<DiskStorage>), StartError> {
    let out_of_space = |error: io::Error| {
        let what = format!(
            "{}: disk full: the log needs {} MiB free for the start record",
            dir.display(),
            segment_size >> 20
        );
        StartError::Io(what, error)
    };
    note_format(storage).map_err(StartError::Recovery)?;
    let recovered = recovery::recover_state(storage.clone(), segment_size);
    let (state, mut log) = recovered.map_err(|error| match error {
        RecoveryError::Io(error) if is_out_of_space(&error) => out_of_space(error),
        error => StartError::Recovery(error),
    })?;
    match ensure_spare_segment(storage, segment_size) {
        // The rest of the log is reserved for changes that free space.
        Err(error) if is_out_of_space(&error) => {}
        other => at(dir.display(), other)?,
    }
    match log.ensure_start_headroom() {
        Err(error) if is_out_of_space(&error) => Err(out_of_space(error)),
        other => at(dir.display(), other),
    }?;
    Ok((state, log))
}

/// Listen on the Unix socket and, if configured, on TCP.
fn listen(options: &StoreOptions) -> Result<(UnixListener, Option<TcpListener>), StartError> {
    // All users may connect; requests are authorized by the peer's credentials.
    let unix = at(options.socket.display(), bind_unix(&options.socket, 0o666))?;
    let tcp = match options.tcp {
        Some(address) => Some(at(address, bind_tcp(address))?),
        None => None,
    };
    Ok((unix, tcp))
}

/// The recovered state of a daemon, before it serves.
struct Recovered {
    node: Node<DiskObjects>,
    log: Log<DiskStorage>,
    storage: DiskStorage,
    objects: DiskObjects,
    clock: Clock,
}

/// Recover the log and the data objects, and start the node.
fn recover(options: &StoreOptions) -> Result<Recovered, StartError> {
    let (log_dir, objects_dir) = (options.dir.join("log"), options.dir.join("objects"));
    let storage = at(log_dir.display(), DiskStorage::open(&log_dir))?;
    let (state, log) = open_log(&storage, &log_dir, options.segment_size)?;
    let objects = at(objects_dir.display(), DiskObjects::open(&objects_dir))?;
    let found = objects.list_instances().map_err(io::Error::from);
    let found = at(objects_dir.display(), found)?;
    check_instances(&storage, (&state, log.last_sequence()), &options.instances, &found)
        .map_err(StartError::Recovery)?;
    for dir in [&objects_dir, &log_dir] {
        let private = Permissions::from_mode(0o700);
        at(dir.display(), std::fs::set_permissions(dir, private))?;
    }
    let clock = Clock::start();
    let seed = at("/dev/urandom", forebay_net::random::random_bytes())?;
    let fresh_key = at("/dev/urandom", forebay_net::random::random_bytes())?;
    let (last, limits) = (log.last_sequence(), options.limits.clone());
    let node = Node::start(state, last, objects.clone(), limits, clock.now(), seed);
    let mut node =
        node.map_err(|errno| StartError::Io(objects_dir.display().to_string(), errno.into()))?;
    let failed = at(log_dir.display(), failed_syncs(&storage))?;
    node.set_boot_id(boot_after(boot_hash(), failed));
    if let Some(shared) = &options.shared_space {
        node.share_space(shared.clone());
    }
    node.set_tag_key(at(log_dir.join("tag_key").display(), load_tag_key(&storage, fresh_key))?);
    for (instance, hosts) in &options.fences {
        for host in hosts {
            // One that was never accepted was not reported as effective either.
            if let Err(errno) = node.restore_fences(*instance, std::slice::from_ref(host)) {
                let name: String = host.host.chars().take(MAX_LOGGED_NAME).collect();
                tracing::error!(%errno, %instance, host = name, "a fence is not restored");
            }
        }
    }
    Ok(Recovered { node, log, storage, objects, clock })
}

impl Recovered {
    /// Start the workers and the event loop.
    fn start_event_loop(
        self,
        options: StoreOptions,
        (unix, tcp): (UnixListener, Option<TcpListener>),
        (mailbox, counters): (&Arc<Mailbox>, &Arc<StoreCounters>),
        directory_lock: File,
    ) -> io::Result<(JoinHandle<io::Result<()>>, Registration)> {
        let Recovered { node, log, storage, objects, clock } = self;
        let authenticator = Authenticator {
            key: options.key.clone(),
            munge: options.munge.clone(),
            data_protection: Some(options.data_protection),
        };
        let munge_worker = match options.munge {
            Some(munge) => Some(start_munge_worker(munge, mailbox)?),
            None => None,
        };
        let limits = options.connection_limits;
        let data = DataService::new(limits.clone(), objects.clone(), counters.clone(), clock);
        let rates = ChargedUse::new(&options.user_rates, counters).map(Arc::new);
        let opens = (objects.clone(), data.opens.clone());
        let scrub = (&options.scrub, counters.scrub.clone());
        let workers =
            ObjectWorkers::start(objects, mailbox.clone(), options.checksum_interval, scrub)?;
        let event_loop = EventLoop {
            node,
            clock,
            ticker: Ticker { interval: options.sync_interval, last: Instant::now() },
            connections: Connections::new(mailbox, unix, tcp, limits, counters.clone())?,
            data,
            rates,
            delayed: DelayedCalls::default(),
            batches: BatchQueue::default(),
            log: LogWriter::start(log, storage, options.segment_size, opens, counters, mailbox)?,
            workers,
            munge_worker,
            trusted_hosts: options.trusted_hosts,
            peers: PeerLinks::new(authenticator.clone()),
            authenticator,
            mailbox: mailbox.clone(),
            counters: counters.clone(),
            effects: Vec::new(),
            handovers: Vec::new(),
            directory_lock,
        };
        let event_loop = Arc::new(EventLoopThread::new(event_loop));
        let service: Arc<dyn InProcessService> = event_loop.clone();
        let registration = in_process::register(&options.socket, Arc::downgrade(&service));
        let thread = std::thread::Builder::new().name("forebay-store".into());
        Ok((thread.spawn(move || event_loop.run())?, registration))
    }
}

/// A running storage daemon. Dropping it stops it.
#[derive(Debug)]
pub struct Daemon {
    stats: StatsHandle,
    thread: Option<JoinHandle<io::Result<()>>>,
    socket: PathBuf,
    tcp: Option<SocketAddr>,
    _registration: Registration,
}

impl Daemon {
    /// Recover the directory and serve it.
    pub fn start(options: StoreOptions) -> Result<Daemon, StartError> {
        options.validate()?;
        forebay_net::stream::raise_descriptor_limit();
        forebay_net::memory::limit_retained_memory();
        let directory_lock = lock_directory(&options.dir)?;
        let recovered = recover(&options)?;
        let (unix, tcp) = listen(&options)?;
        let tcp_address = match &tcp {
            Some(listener) => Some(at("TCP", listener.local_addr())?),
            None => None,
        };
        let mailbox = Arc::new(at("eventfd", Mailbox::new())?);
        let counters = Arc::new(StoreCounters::default());
        let objects = recovered.objects.clone();
        let removal_queue = objects.removal_queue();
        let (socket, dir) = (options.socket.clone(), options.dir.clone());
        let shared = (&mailbox, &counters);
        let thread = recovered.start_event_loop(options, (unix, tcp), shared, directory_lock);
        let (thread, registration) = at("event loop", thread)?;
        let shown_tcp = tcp_address.map(tracing::field::display);
        tracing::info!(dir = %dir.display(), tcp = shown_tcp, "storage daemon started");
        let stats = StatsHandle { counters, removal_queue, objects, mailbox };
        Ok(Daemon {
            stats,
            thread: Some(thread),
            socket,
            tcp: tcp_address,
            _registration: registration,
        })
    }

    /// Address for clients on this host.
    pub fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    /// Address for clients on other hosts.
    pub fn tcp_address(&self) -> Option<Address> {
        self.tcp.map(Address::Tcp)
    }

    /// Access to the daemon's statistics.
    pub fn stats(&self) -> StatsHandle {
        self.stats.clone()
    }

    /// Removed instances that still take space.
    pub fn removal_queue(&self) -> &RemovalQueue {
        &self.stats.removal_queue
    }

    /// Whether the daemon has ended because its storage failed or one of its threads panicked.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Wait until the daemon ends because its storage fails or one of its threads panics.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    /// Make metadata durable and stop. Data are synced only if there are new checksums of data at
    /// rest; otherwise the kernel writes unsynced data back, as on any file system.
    pub fn stop(mut self) -> io::Result<()> {
        self.stats.mailbox.request_stop();
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
        self.stats.mailbox.request_stop();
        let _ = self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::worker::Worker;

    #[test]
    fn panic_of_a_thread_ends_the_daemon_with_an_error() {
        let home = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(StoreOptions::new(home.path())).unwrap();
        let worker =
            Worker::start_pool("faulty", &daemon.stats.mailbox, 1, 1, |()| panic!("fault"));
        worker.unwrap().submit(());
        let error = daemon.wait().unwrap_err();
        assert_eq!(error.to_string(), "thread faulty0 panicked");
    }
}
