//! A whole buffer in one process, over one directory: controller, storage daemon, mounts, movers.
//!
//! [`Pool::open`] takes a directory, makes a pool of it if it is new, and takes up whatever an
//! interrupted process left under way. One process has it open at a time.

pub mod copies;
mod driver;
mod flash;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_model::jobscript::BufferPath;
use forebay_model::units::Bytes;

pub(crate) use driver::HOST;
pub(crate) use flash::Flash;
pub use flash::{create, destroy};

use crate::activity::HostActivity;
use crate::controller::{
    AskedStage, Cause, Controller, Envelope, Failure, JobView, Outcome, Request, Settings, Status,
};
use crate::database::Database;
use crate::hosts::Welcome;
use crate::protocol::{Instant, Order, Owner, StageId, StagePlan};
use crate::show;
use crate::views;

/// Name of the pool and of its only node.
pub const POOL: &str = "embedded";
/// Granularity of a new pool unless something else is asked for.
pub const GRANULARITY: Bytes = Bytes(16 << 20);

/// Where a pool is and how large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Its directory; made if it is missing.
    pub directory: PathBuf,
    /// Bytes it has. If not given: what it had before; for a new one four fifths of the space
    /// that is free there.
    pub size: Option<Bytes>,
}

impl Default for PoolOptions {
    /// `$XDG_STATE_HOME/forebay`, or `.forebay` in the working directory.
    fn default() -> PoolOptions {
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let directory = match state.filter(|path| path.is_absolute()) {
            Some(state) => state.join("forebay"),
            None => PathBuf::from(".forebay"),
        };
        PoolOptions {
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
    Ask(Box<Envelope>, SyncSender<Outcome>),
    Status(SyncSender<Status>),
    Paths(String, SyncSender<Result<Vec<(String, String)>, Failure>>),
    Job(String, SyncSender<Result<JobView, Failure>>),
    Asked(
        String,
        Vec<BufferPath>,
        Vec<StageId>,
        SyncSender<Result<Vec<AskedStage>, Failure>>,
    ),
    Node(crate::node::Input),
    Order(Order),
    Welcome(Welcome),
    Attached(StagePlan, Result<forebay_client::Fs, String>),
    Activity(SyncSender<HostActivity>),
    Stop,
}

/// An open pool.
pub struct Pool {
    asker: Asker,
    driver: Option<JoinHandle<Result<(), String>>>,
    directory: PathBuf,
    _lock: fs::File,
}

/// One who makes requests of an open pool; clones may do so from any thread. Once the pool is
/// closed all of them fail.
#[derive(Clone)]
pub struct Asker {
    events: Sender<Event>,
    caller: Owner,
    client: u64,
    number: Arc<AtomicU64>,
}

impl Asker {
    /// The user and group that requests are made for.
    pub fn caller(&self) -> Owner {
        self.caller
    }

    /// Asks and waits for the answer.
    pub fn ask(&self, request: Request) -> Outcome {
        let answer = self.begin(request)?;
        answer.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Asks; the answer comes through the channel.
    pub fn begin(&self, request: Request) -> Result<Receiver<Outcome>, Failure> {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        // Every request has a client of its own, so that several can be under way.
        let client = (self.client << 20) | (number & 0xf_ffff);
        let envelope = Envelope {
            client,
            number,
            caller: self.caller,
            request,
        };
        let (answer, receiver) = sync_channel(1);
        self.events
            .send(Event::Ask(Box::new(envelope), answer))
            .map_err(|_| ended())?;
        Ok(receiver)
    }

    /// Pools, nodes, sessions, instances and stages.
    pub fn status(&self) -> Result<Status, Failure> {
        let (answer, receiver) = sync_channel(1);
        self.events
            .send(Event::Status(answer))
            .map_err(|_| ended())?;
        receiver.recv().map_err(|_| ended())
    }

    /// The same, if the pool says so within `patience`.
    pub fn status_within(&self, patience: std::time::Duration) -> Result<Status, String> {
        let (answer, receiver) = sync_channel(1);
        let closed = || "the pool is closed".to_owned();
        let sent = self.events.send(Event::Status(answer));
        sent.map_err(|_| closed())?;
        receiver
            .recv_timeout(patience)
            .map_err(|error| match error {
                RecvTimeoutError::Timeout => "the pool is busy".to_owned(),
                RecvTimeoutError::Disconnected => closed(),
            })
    }

    /// The variables of a session's job and what they are set to.
    pub fn paths(&self, token: &str) -> Result<Vec<(String, String)>, Failure> {
        let (answer, receiver) = sync_channel(1);
        self.events
            .send(Event::Paths(token.to_owned(), answer))
            .map_err(|_| ended())?;
        receiver.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// A job as its own processes may know it.
    pub fn job(&self, token: &str) -> Result<JobView, Failure> {
        let (answer, receiver) = sync_channel(1);
        self.events
            .send(Event::Job(token.to_owned(), answer))
            .map_err(|_| ended())?;
        receiver.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// What a running job has asked to be staged, as [`Controller::asked`] says it.
    pub fn asked(
        &self,
        token: &str,
        about: &[BufferPath],
        numbers: &[StageId],
    ) -> Result<Vec<AskedStage>, Failure> {
        let (answer, receiver) = sync_channel(1);
        let (about, numbers) = (about.to_vec(), numbers.to_vec());
        self.events
            .send(Event::Asked(token.to_owned(), about, numbers, answer))
            .map_err(|_| ended())?;
        receiver.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// The time for the state machines: milliseconds since 1970.
pub(crate) fn now() -> Instant {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Instant(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Pool {
    /// Opens the pool in a directory.
    pub fn open(options: &PoolOptions) -> Result<Pool, PoolError> {
        let fail = |reason: String| PoolError::new(&options.directory, reason);
        fs::create_dir_all(&options.directory).map_err(|e| {
            fail(format!(
                "cannot be made: {e}; name a directory that can be with --pool"
            ))
        })?;
        let directory = fs::canonicalize(&options.directory).map_err(|e| fail(e.to_string()))?;
        let lock = take(&directory)?;
        for inner in ["jobs", "mounts", "journals", "flash"] {
            let made = fs::create_dir_all(directory.join(inner));
            made.map_err(|e| PoolError::new(&directory, format!("`{inner}` cannot be made: {e}")))?;
        }
        views::unmount_rests(&directory.join("mounts"));
        let size = size(&directory, options.size)?;
        let caller = Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let (events, inbox): (Sender<Event>, Receiver<Event>) = channel();
        let driver = driver::Driver::start(&directory, caller, events.clone())
            .map_err(|reason| PoolError::new(&directory, reason))?;
        let thread = std::thread::Builder::new().name("forebay-driver".into());
        let driver = thread
            .spawn(move || driver.run(&inbox))
            .map_err(|e| PoolError::new(&directory, format!("no thread can be made: {e}")))?;
        let asker = Asker {
            events,
            caller,
            // Requests of an earlier process are never mistaken for ours: times only rise, and
            // only one process at a time has the pool.
            client: now().0,
            number: Arc::new(AtomicU64::new(0)),
        };
        let pool = Pool {
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
        let status = self.status()?;
        let known = status.pools.first();
        let granularity = known.map_or(GRANULARITY, |pool| pool.granularity);
        if known.is_none() {
            let name = POOL.to_owned();
            self.ask(Request::AddPool {
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
        let (name, pool) = (POOL.to_owned(), POOL.to_owned());
        self.ask(Request::AddNode {
            name,
            pool,
            granules,
            address: None,
        })
        .map(|_| ())
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
        let _ = self.asker.events.send(Event::Stop);
        let outcome = driver
            .join()
            .unwrap_or_else(|_| Err("the driver has failed".to_owned()));
        outcome.map_err(|reason| PoolError::new(&self.directory, reason))
    }
}

impl std::ops::Deref for Pool {
    type Target = Asker;

    fn deref(&self) -> &Asker {
        &self.asker
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn ended() -> Failure {
    Failure::new(
        Cause::Failed,
        "the pool's controller has ended; see what it said before",
    )
}

/// Refuses a directory in which no pool was ever made.
pub(crate) fn is_there(options: &PoolOptions) -> Result<(), PoolError> {
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
pub fn status(options: &PoolOptions) -> Result<Status, PoolError> {
    let directory = &options.directory;
    let fail = |reason: String| PoolError::new(directory, reason);
    is_there(options)?;
    let Ok(_lock) = lock(directory) else {
        let text = fs::read(directory.join("status.json"))
            .map_err(|e| fail(format!("status.json: {e}")))?;
        return serde_json::from_slice(&text).map_err(|e| fail(format!("status.json: {e}")));
    };
    let records =
        Database::open(&directory.join("controller.redb")).map_err(|e| fail(e.to_string()))?;
    let rows = records.load().map_err(|e| fail(e.to_string()))?;
    let controller =
        Controller::restore(Settings::default(), rows).map_err(|e| fail(e.to_string()))?;
    Ok(controller.status())
}

/// Takes the directory for this process, if need be from one that was killed and cannot end.
fn take(directory: &Path) -> Result<fs::File, PoolError> {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
    let begun = std::time::Instant::now();
    loop {
        let refused = match lock(directory) {
            Ok(lock) => return Ok(lock),
            Err(refused) => refused,
        };
        let holder = fs::read_to_string(directory.join("lock")).unwrap_or_default();
        if !is_dying(holder.trim()) || begun.elapsed() > PATIENCE {
            return Err(refused);
        }
        views::abort_rests(&directory.join("mounts"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Whether the process of this number is dead or has only threads left that wait for the kernel.
fn is_dying(process: &str) -> bool {
    if process.is_empty() || !process.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    match fs::read_to_string(format!("/proc/{process}/stat")) {
        // The state follows the name, which is in parentheses.
        Ok(stat) => stat
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Locks the directory.
fn lock(directory: &Path) -> Result<fs::File, PoolError> {
    let path = directory.join("lock");
    let fail = |reason: String| PoolError::new(directory, reason);
    let open = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path);
    let mut file = open.map_err(|e| fail(format!("`lock` cannot be made: {e}")))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            return Err(fail(format!(
                "process {} uses it; wait until that has ended, or name another directory",
                holder.trim()
            )));
        }
        Err(errno) => return Err(fail(format!("`lock` cannot be locked: {errno}"))),
    }
    use std::io::Write;
    let noted = file
        .set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    noted.map_err(|e| fail(format!("`lock` cannot be written: {e}")))?;
    Ok(file)
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
                show::size(asked.0),
                show::size(all)
            );
            return Err(PoolError::new(directory, reason));
        }
        return Ok(Some(asked));
    }
    Ok(Some(Bytes(
        state.f_bavail.saturating_mul(state.f_frsize) / 5 * 4,
    )))
}
