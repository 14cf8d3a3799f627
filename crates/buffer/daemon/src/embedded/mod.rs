//! A whole buffer in one process, over one directory: controller, storage node and compute node,
//! connected within the process.
//!
//! [`OpenPool::open`] takes a directory, creates a pool in it if it is new, and resumes whatever
//! an interrupted process left. One process at a time serves it. Others can ask that one for the status
//! through a socket in the directory, and use the pool as well ([`JoinedPool`]) while it
//! [shares](EmbeddedPool::share) it. If that process is killed, one of those that have joined serves the
//! pool from then on.

mod job_lock;
mod lock;
mod sharing;
mod size;
mod successor;

pub use job_lock::{JobLock, JobLocked};
pub use sharing::JoinedPool;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_control::controller::{
    ControlStatus, Controller, Failure, JobUsage, Request, Settings,
};
use forebay_protocol::address::Address;
use forebay_store::daemon;
use forebay_units::Bytes;

use crate::activity::{Status, StatusSource};
use crate::client::{ControllerClient, own_user};
use crate::compute;
use crate::connection::Endpoint;
use crate::control_channel::{connection_limits, listen_unix};
use crate::controller::{self, ControllerPort};
use crate::database::Database;
use crate::directory::socket_path;
use crate::error::DaemonError;
use crate::job_api::JobApi;
use crate::mounts;
use crate::service::Service;
use crate::storage;
use forebay_net::admission::SharedAdmission;
use forebay_net::auth::Authenticator;
use forebay_net::listener::Listener;
use lock::Acquired;
use sharing::Sharing;

/// Name of the pool and of its only storage node.
pub const POOL_NAME: &str = "embedded";
/// Name of the pool's only compute node.
pub const HOST_NAME: &str = "localhost";
/// Granularity of a new pool.
const DEFAULT_GRANULARITY: Bytes = Bytes(16 << 20);
/// Time between ticks of the controller, and between a node's reports of its counters.
const TICK_INTERVAL: Duration = Duration::from_millis(200);
/// Time to wait for a process that is opening or closing the pool, when its status is queried.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// An error about the pool in a directory.
fn pool_error(directory: &Path, reason: impl std::fmt::Display) -> DaemonError {
    DaemonError::new(format!("pool {}: {reason}", directory.display()))
}

/// The directory and size of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedPoolOptions {
    /// Its directory; created if it is missing.
    pub directory: PathBuf,
    /// Its size. Default: the size it has; four fifths of the free space for a new one.
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
        EmbeddedPoolOptions { directory, size: None }
    }
}

/// An open pool. Dropping it closes it.
pub struct EmbeddedPool {
    client: ControllerClient,
    port: ControllerPort,
    /// Sources of the nodes' counters.
    nodes: [StatusSource; 2],
    directory: PathBuf,
    listeners: Vec<Listener>,
    compute: Service,
    storage: Service,
    controller: Service,
    sharing: Sharing,
    _lock: fs::File,
}

/// A pool that this process serves or has joined.
#[allow(clippy::large_enum_variant, reason = "a process has one")]
pub enum OpenPool {
    /// This process serves it.
    Served(EmbeddedPool),
    /// Another process serves it.
    Joined(JoinedPool),
}

impl OpenPool {
    /// Opens the pool in a directory, or joins the process that serves and shares it. While another
    /// process has it for itself, `wait` is asked, with the reason, whether to go on waiting.
    pub fn open(
        options: &EmbeddedPoolOptions,
        wait: &mut dyn FnMut(&str) -> bool,
    ) -> Result<OpenPool, DaemonError> {
        let fail = |reason: String| pool_error(&options.directory, reason);
        check_owner(&options.directory)?;
        // A refusal leaves nothing behind.
        if !records(&options.directory).exists() {
            let space = size::existing_ancestor(&options.directory);
            size::granules(&space, options.size, DEFAULT_GRANULARITY)
                .map_err(|error| fail(error.to_string()))?;
        }
        fs::create_dir_all(&options.directory).map_err(|e| {
            fail(format!("cannot be created: {e}; name another directory with --pool"))
        })?;
        let directory = fs::canonicalize(&options.directory).map_err(|e| fail(e.to_string()))?;
        check_records(&directory).map_err(fail)?;
        let mut open = || match lock::acquire_directory(&directory, wait)? {
            Acquired::Locked(lock) => {
                EmbeddedPool::start(&directory, options.size, lock).map(OpenPool::Served)
            }
            Acquired::Joined(pool) => {
                resize(&pool, &directory, options.size)?;
                Ok(OpenPool::Joined(*pool))
            }
        };
        open().map_err(|error| pool_error(&directory, error))
    }
}

/// Gives a joined pool the requested size.
fn resize(pool: &JoinedPool, directory: &Path, size: Option<Bytes>) -> Result<(), DaemonError> {
    let status = pool.client().status().map_err(DaemonError::new)?;
    for request in pool_requests(&status, directory, size)? {
        pool.client().request(request).map_err(DaemonError::new)?;
    }
    Ok(())
}

impl EmbeddedPool {
    fn start(
        directory: &Path,
        size: Option<Bytes>,
        lock: fs::File,
    ) -> Result<EmbeddedPool, DaemonError> {
        for inner in ["jobs", "mounts", "journals", "flash"] {
            fs::create_dir_all(directory.join(inner))
                .map_err(DaemonError::with_context(format!("`{inner}` cannot be created")))?;
        }
        let mounts_directory = directory.join("mounts");
        let sharing = Sharing::closed(directory)
            .map_err(DaemonError::with_context("`joining` and `users` cannot be locked"))?;
        mounts::remove_stale_mounts(&mounts_directory, &directory.join("jobs"));
        let controller = start_controller(directory, size)?;
        let listener = listen_unix(&status_socket(directory), 0o600)?;
        controller.serve(
            &listener,
            &SharedAdmission::new(connection_limits()),
            &Authenticator::default(),
        )?;
        let endpoint = Endpoint::InProcess(controller.port.clone());
        let mut store = daemon::StoreOptions::new(directory.join("flash"));
        store.socket = socket_path(directory, "socket");
        let setup = storage::Setup {
            name: POOL_NAME.to_owned(),
            host: HOST_NAME.to_owned(),
            directory: directory.to_owned(),
            store,
            address: String::new(),
            client: forebay_client::ClientOptions::default(),
            activity_interval: TICK_INTERVAL,
            lock: None,
        };
        // A pool without its storage node is of no use: its requests fail at once.
        let on_failure = controller.port.clone();
        let storage = storage::start(setup, endpoint.clone(), move || on_failure.stop())?;
        let job_api_socket = job_api_socket(directory);
        let job_api =
            Arc::new(JobApi::new(endpoint.clone(), job_api_socket.clone(), mounts_directory));
        let job_api_listener = listen_unix(&job_api_socket, 0o600)?;
        job_api.serve(&job_api_listener)?;
        let setup = compute::Setup {
            name: HOST_NAME.to_owned(),
            mounts: storage.mounts,
            job_api,
            activity_interval: TICK_INTERVAL,
            lock: None,
        };
        let compute = compute::start(setup, endpoint.clone())?;
        let host = Some(HOST_NAME.to_owned());
        let client = ControllerClient::connect(vec![Ok(endpoint)], None, job_api_socket, host)?;
        Ok(EmbeddedPool {
            client,
            port: controller.port,
            nodes: [storage.status_source, compute.status_source],
            directory: directory.to_owned(),
            listeners: vec![listener, job_api_listener],
            compute: compute.service,
            storage: storage.service,
            controller: controller.service,
            sharing,
            _lock: lock,
        })
    }

    /// The pool's directory, absolute.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A client of the pool, for this process's user.
    pub fn client(&self) -> &ControllerClient {
        &self.client
    }

    /// Tries to lock the job `token` for this process.
    pub fn lock_job(&self, token: &str) -> Result<JobLocked, DaemonError> {
        let locked = JobLock::try_lock(&self.directory, token);
        locked.map_err(|error| pool_error(&self.directory, error))
    }

    /// Permits other processes to join.
    pub fn share(&self) -> Result<(), DaemonError> {
        self.sharing.open().map_err(|error| pool_error(&self.directory, error))
    }

    /// Refuses processes that want to join. Those that have joined stay.
    pub fn end_sharing(&self) -> Result<(), DaemonError> {
        self.sharing.close().map_err(|error| pool_error(&self.directory, error))
    }

    /// Whether processes that have joined still use the pool.
    pub fn has_users(&self) -> Result<bool, DaemonError> {
        self.sharing.has_users().map_err(|error| pool_error(&self.directory, error))
    }

    /// A source of the pool's status that replies within `timeout` or fails, for any thread.
    pub fn status_source(&self, timeout: Duration) -> StatusSource {
        let (port, nodes) = (self.port.clone(), self.nodes.clone());
        Arc::new(move || {
            let mut status = port.status(timeout)?;
            // The counters that the controller has are those of the last report.
            status.activity.clear();
            for node in &nodes {
                status.activity.extend(node()?.activity);
            }
            Ok(status)
        })
    }

    /// Stops stages, unmounts, makes everything durable and releases the directory.
    pub fn close(mut self) -> Result<(), DaemonError> {
        self.stop()
    }

    fn stop(&mut self) -> Result<(), DaemonError> {
        self.listeners.clear();
        let stopped = [&mut self.compute, &mut self.storage, &mut self.controller]
            .map(Service::stop)
            .into_iter()
            .collect::<Result<Vec<()>, DaemonError>>();
        stopped.map(drop).map_err(|error| pool_error(&self.directory, error))
    }
}

impl Drop for EmbeddedPool {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

fn start_controller(
    directory: &Path,
    size: Option<Bytes>,
) -> Result<controller::ControllerService, DaemonError> {
    let owner = own_user();
    let settings = Settings {
        mount_root: directory.join("jobs").display().to_string(),
        operator: owner.uid,
        retry_interval_ms: 500,
        max_stages_per_node: 2,
        single_process: true,
        ..Settings::default()
    };
    let setup = controller::Setup {
        directory: directory.to_owned(),
        settings,
        audit_log: None,
        pool_id: POOL_NAME.to_owned(),
        allowed_sources: Default::default(),
        administrators: None,
        operator: 0,
        only_user: Some(owner.uid),
        process: Some(std::process::id()),
        tick_interval: TICK_INTERVAL,
        lock: None,
    };
    controller::start(setup, |restored| pool_requests(&restored.status(), directory, size))
}

/// The requests that make the pool and its node, or change the node's size.
fn pool_requests(
    known: &ControlStatus,
    directory: &Path,
    size: Option<Bytes>,
) -> Result<Vec<Request>, DaemonError> {
    let pool = known.pools.first();
    let node = known.nodes.first();
    let granularity = pool.map_or(DEFAULT_GRANULARITY, |pool| pool.granularity);
    if size.is_none() && node.is_some() {
        return Ok(Vec::new());
    }
    let granules = size::granules(directory, size, granularity)?;
    let used = node.map_or(0, |node| node.used);
    if granules < used {
        return Err(DaemonError::new(format!(
            "{used} granules are in use; the pool cannot be made smaller than that"
        )));
    }
    let mut requests = vec![Request::AddNode {
        name: POOL_NAME.to_owned(),
        pool: POOL_NAME.to_owned(),
        granules,
        address: None,
    }];
    if pool.is_none() {
        let add_pool =
            Request::AddPool { name: POOL_NAME.to_owned(), granularity, equalize_fragments: false };
        requests.insert(0, add_pool);
    }
    Ok(requests)
}

/// Refuses a pool of another user, unless root asks.
fn check_owner(directory: &Path) -> Result<(), DaemonError> {
    let own = own_user().uid;
    let owner = match fs::metadata(records(directory)) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            fs::metadata(directory).map(|found| found.uid())
        }
        found => found.map(|found| found.uid()),
    };
    match owner {
        Ok(owner) if own != 0 && owner != own => {
            let found = nix::unistd::User::from_uid(owner.into()).ok().flatten();
            let name = found.map_or_else(|| owner.to_string(), |user| user.name);
            let reason = format!("belongs to user {name}; name another one with --pool");
            Err(pool_error(directory, reason))
        }
        // A new one, or an error that its use will show.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses a directory in which no pool was ever created.
pub fn check_exists(options: &EmbeddedPoolOptions) -> Result<(), DaemonError> {
    let directory = &options.directory;
    check_owner(directory)?;
    match fs::metadata(records(directory)) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(pool_error(directory, error));
        }
        Err(_) => {}
    }
    let reason = "there is none there yet; `forebay run SCRIPT` makes one, --pool names another";
    Err(pool_error(directory, reason))
}

/// Refuses a directory that has data of a storage node, but not the controller's records, which say
/// whose they are. A pool whose creation was interrupted has records, or no data.
fn check_records(directory: &Path) -> Result<(), String> {
    let is_lost = !records(directory).exists() && directory.join(storage::RECORDS).exists();
    if !is_lost {
        return Ok(());
    }
    Err(format!(
        "the controller's records, `{}`, are missing, while the storage node's data is there; \
         restore them, or name another directory with --pool. `forebay store dump {}` shows the data; \
         to give it up, remove the directory of the pool",
        records(directory).display(),
        directory.join("flash").display()
    ))
}

/// The controller's records.
fn records(directory: &Path) -> PathBuf {
    directory.join("controller.redb")
}

fn status_socket(directory: &Path) -> PathBuf {
    socket_path(directory, "controller.socket")
}

/// The socket through which the processes of a job ask to stage.
fn job_api_socket(directory: &Path) -> PathBuf {
    socket_path(directory, "calls.socket")
}

/// The state of a pool, without resuming anything: from the process that has it open, or from its
/// records.
pub fn status(options: &EmbeddedPoolOptions) -> Result<Status, DaemonError> {
    ask(options, |restored| restored.status().into(), ControllerClient::status)
}

/// Statistics of the jobs and persistent instances of this name, or of all.
pub fn job_usage(
    options: &EmbeddedPoolOptions,
    token: Option<&str>,
) -> Result<Vec<JobUsage>, DaemonError> {
    ask(options, |restored| restored.job_usage(token), |client| client.job_usage(token))
}

/// Asks the process that has a pool open, or its records.
fn ask<T>(
    options: &EmbeddedPoolOptions,
    from_records: impl FnOnce(&Controller) -> T,
    from_process: impl Fn(&ControllerClient) -> Result<T, Failure>,
) -> Result<T, DaemonError> {
    check_exists(options)?;
    let fail = |reason: String| pool_error(&options.directory, reason);
    let directory = fs::canonicalize(&options.directory).map_err(|e| fail(e.to_string()))?;
    let asked = Instant::now();
    let controller = loop {
        if let Ok(_lock) = lock::try_lock_directory(&directory) {
            break restore(&directory).map_err(|e| fail(e.to_string()))?;
        }
        let answer = client_of_open_pool(&directory)
            .and_then(|client| from_process(&client).map_err(DaemonError::new));
        match answer {
            Ok(answer) => return Ok(answer),
            // The process is opening or closing the pool.
            Err(_) if asked.elapsed() < STATUS_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(fail(error.to_string())),
        }
    };
    Ok(from_records(&controller))
}

fn restore(directory: &Path) -> Result<Controller, DaemonError> {
    let records = Database::open(&records(directory)).map_err(DaemonError::new)?;
    let rows = records.load_records().map_err(DaemonError::new)?;
    Controller::restore(Settings::default(), rows).map_err(DaemonError::new)
}

fn client_of_open_pool(directory: &Path) -> Result<ControllerClient, DaemonError> {
    let endpoint = Endpoint::Socket {
        address: Address::Unix(status_socket(directory)),
        identity: Authenticator::default(),
    };
    ControllerClient::connect(vec![Ok(endpoint)], None, PathBuf::new(), None)
}
