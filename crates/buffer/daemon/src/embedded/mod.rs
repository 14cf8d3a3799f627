//! A whole buffer in one process, over one directory: controller, storage daemon, mounts, movers.
//!
//! [`Pool::open`] takes a directory, makes a pool of it if it is new, and takes up whatever an
//! interrupted process left under way. One process has it open at a time.

mod asker;
mod driver;
mod flash;
mod lock;
pub mod movers;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_job_script::BufferPath;
use forebay_units::Bytes;

pub use asker::Asker;
pub use driver::HOST_NAME;
pub(crate) use flash::StorageDriver;
pub use flash::{create_fragment, destroy_fragment};

use crate::activity::HostActivity;
use crate::activity::Status;
use crate::controller_client::ControllerClient;
use crate::database::Database;
use crate::hosts::Welcome;
use crate::mounts;
use forebay_control::controller::{
    Cause, Controller, Failure, JobView, Outcome, Request, RequestEnvelope, RequestedStage,
    Settings,
};
use forebay_control::messages::{
    Owner, StageId, StagePlan, StampedCommand, StorageCommand, UnixMillis,
};
use forebay_units::human;

/// Name of the pool and of its only node.
pub const POOL_NAME: &str = "embedded";
/// Granularity of a new pool unless something else is asked for.
pub const DEFAULT_GRANULARITY: Bytes = Bytes(16 << 20);

/// Where a pool is and how large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedPoolOptions {
    /// Its directory; made if it is missing.
    pub directory: PathBuf,
    /// Bytes it has. If not given: what it had before; for a new one four fifths of the space
    /// that is free there.
    pub size: Option<Bytes>,
}

impl Default for EmbeddedPoolOptions {
    /// `$XDG_STATE_HOME/forebay`, or `.forebay` in the working directory.
    fn default() -> EmbeddedPoolOptions {
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let directory = match state.filter(|path| path.is_absolute()) {
            Some(state) => state.join("forebay"),
            None => PathBuf::from(".forebay"),
        };
        EmbeddedPoolOptions {
            directory,
            size: None,
        }
    }
}

/// Why a pool cannot be used.
#[derive(Debug)]
pub struct PoolError {
    directory: PathBuf,
    reason: String,
}

impl PoolError {
    fn new(directory: &Path, reason: impl fmt::Display) -> PoolError {
        PoolError {
            directory: directory.to_owned(),
            reason: reason.to_string(),
        }
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}: {}", self.directory.display(), self.reason)
    }
}

impl std::error::Error for PoolError {}

/// What a driver's thread is told.
pub(crate) enum Event {
    Ask(Box<RequestEnvelope>, SyncSender<Outcome>),
    Status(SyncSender<Status>),
    Paths(String, SyncSender<Result<Vec<(String, String)>, Failure>>),
    Job(String, SyncSender<Result<JobView, Failure>>),
    Asked(
        String,
        Vec<BufferPath>,
        Vec<StageId>,
        SyncSender<Result<Vec<RequestedStage>, Failure>>,
    ),
    Node(forebay_control::storage_node::StorageInput),
    Order(StampedCommand<StorageCommand>),
    Welcome(Welcome),
    Attached(StagePlan, Result<forebay_client::Fs, String>),
    Activity(SyncSender<HostActivity>),
    Stop,
}

/// An open pool.
pub struct EmbeddedPool {
    asker: Asker,
    driver: Option<JoinHandle<Result<(), String>>>,
    directory: PathBuf,
    _lock: fs::File,
}

/// The time for the state machines: milliseconds since 1970.
pub(crate) fn now() -> UnixMillis {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UnixMillis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl EmbeddedPool {
    /// Opens the pool in a directory.
    pub fn open(options: &EmbeddedPoolOptions) -> Result<EmbeddedPool, PoolError> {
        let fail = |reason: String| PoolError::new(&options.directory, reason);
        fs::create_dir_all(&options.directory).map_err(|e| {
            fail(format!(
                "cannot be made: {e}; name a directory that can be with --pool"
            ))
        })?;
        let directory = fs::canonicalize(&options.directory).map_err(|e| fail(e.to_string()))?;
        let lock = lock::acquire_directory(&directory)?;
        for inner in ["jobs", "mounts", "journals", "flash"] {
            let made = fs::create_dir_all(directory.join(inner));
            made.map_err(|e| PoolError::new(&directory, format!("`{inner}` cannot be made: {e}")))?;
        }
        mounts::unmount_stale(&directory.join("mounts"));
        let size = size(&directory, options.size)?;
        let caller = Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let (events, inbox): (Sender<Event>, Receiver<Event>) = channel();
        let driver = driver::Driver::start(&directory, caller, events.clone())
            .map_err(|reason| PoolError::new(&directory, reason))?;
        let asker = Asker::new(events, caller).map_err(|e| PoolError::new(&directory, e))?;
        let thread = std::thread::Builder::new().name("forebay-driver".into());
        let driver = thread
            .spawn(move || driver.run(&inbox))
            .map_err(|e| PoolError::new(&directory, format!("no thread can be made: {e}")))?;
        let pool = EmbeddedPool {
            asker,
            driver: Some(driver),
            directory: directory.clone(),
            _lock: lock,
        };
        pool.furnish(size)
            .map_err(|failure| PoolError::new(&directory, failure))?;
        Ok(pool)
    }

    /// Makes the pool and its node, or changes the node's size.
    fn furnish(&self, size: Option<Bytes>) -> Result<(), Failure> {
        let status = self.asker.status()?;
        let known = status.pools.first();
        let granularity = known.map_or(DEFAULT_GRANULARITY, |pool| pool.granularity);
        if known.is_none() {
            let name = POOL_NAME.to_owned();
            self.asker.request(Request::AddPool {
                name,
                granularity,
                equalize_fragments: false,
            })?;
        }
        let size = match (size, status.nodes.first()) {
            (None, Some(_)) => return Ok(()),
            (Some(size), _) => size,
            (None, None) => return Err(Failure::new(Cause::Invalid, "a new pool needs a size")),
        };
        let granules = size.0 / granularity.0.max(1);
        if granules == 0 {
            let reason = format!(
                "{} bytes are less than one granule of {} bytes",
                size.0, granularity.0
            );
            return Err(Failure::new(Cause::Invalid, reason));
        }
        let used = status.nodes.first().map_or(0, |node| node.used);
        if granules < used {
            let reason =
                format!("{used} granules are in use; the pool cannot be made smaller than that");
            return Err(Failure::new(Cause::Busy, reason));
        }
        let (name, pool) = (POOL_NAME.to_owned(), POOL_NAME.to_owned());
        let node = Request::AddNode {
            name,
            pool,
            granules,
            address: None,
        };
        self.asker.request(node).map(drop)
    }

    /// The pool's directory, absolute.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// One who makes requests of it.
    pub fn asker(&self) -> &Asker {
        &self.asker
    }

    /// Stops copies, unmounts, makes everything durable and gives the directory back.
    pub fn close(mut self) -> Result<(), PoolError> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), PoolError> {
        let Some(driver) = self.driver.take() else {
            return Ok(());
        };
        self.asker.stop();
        let outcome = driver
            .join()
            .unwrap_or_else(|_| Err("the driver has failed".to_owned()));
        outcome.map_err(|reason| PoolError::new(&self.directory, reason))
    }
}

impl Drop for EmbeddedPool {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Refuses a directory in which no pool was ever made.
pub fn check_exists(options: &EmbeddedPoolOptions) -> Result<(), PoolError> {
    let directory = &options.directory;
    match fs::metadata(directory.join("controller.redb")) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(PoolError::new(directory, error));
        }
        Err(_) => {}
    }
    let reason = "there is none there yet; `forebay run SCRIPT` makes one, --pool names another";
    Err(PoolError::new(directory, reason))
}

/// The state of a pool, without taking anything up: what another process that uses it noted last,
/// or what its records say.
pub fn status(options: &EmbeddedPoolOptions) -> Result<Status, PoolError> {
    let directory = &options.directory;
    let fail = |reason: String| PoolError::new(directory, reason);
    check_exists(options)?;
    let Ok(_lock) = lock::try_lock_directory(directory) else {
        let text = fs::read(directory.join("status.json"))
            .map_err(|e| fail(format!("status.json: {e}")))?;
        return serde_json::from_slice(&text).map_err(|e| fail(format!("status.json: {e}")));
    };
    let records =
        Database::open(&directory.join("controller.redb")).map_err(|e| fail(e.to_string()))?;
    let rows = records.load_records().map_err(|e| fail(e.to_string()))?;
    let controller =
        Controller::restore(Settings::default(), rows).map_err(|e| fail(e.to_string()))?;
    Ok(controller.status().into())
}

/// The size to give a pool: as asked, or four fifths of what is free for a new one. More than the
/// file system has would be promised in vain.
fn size(directory: &Path, asked: Option<Bytes>) -> Result<Option<Bytes>, PoolError> {
    if asked.is_none() && directory.join("controller.redb").exists() {
        return Ok(None);
    }
    let state = rustix::fs::statvfs(directory).map_err(|e| PoolError::new(directory, e))?;
    if let Some(asked) = asked {
        let all = state.f_blocks.saturating_mul(state.f_frsize);
        // Some file systems say nothing.
        if all > 0 && asked.0 > all {
            let reason = format!(
                "{} are more than its file system has, which is {}; name a smaller --pool-size",
                human::size(asked.0),
                human::size(all)
            );
            return Err(PoolError::new(directory, reason));
        }
        return Ok(Some(asked));
    }
    Ok(Some(Bytes(
        state.f_bavail.saturating_mul(state.f_frsize) / 5 * 4,
    )))
}
