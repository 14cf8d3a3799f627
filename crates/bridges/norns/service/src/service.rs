//! The service: its state, its start and its workers.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use forebay_net::admission::{ConnectionLimits, SharedAdmission};
use forebay_net::listener::Listener;
use forebay_net::stream::raise_descriptor_limit;
use forebay_norns_api::Configuration;
use nix::unistd::Group;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::execute::execute;
use crate::measure::bytes_at;
use crate::place::Place;
use crate::registry::Registry;
use crate::remote::{self, Network};
use crate::server;
use crate::store::Store;
use crate::table::TaskTable;
use crate::task::{Outcome, Task, TaskRecord};

/// The group whose members administer the service, besides root.
const ADMINISTRATORS: &str = "norns";

/// The state that all threads share.
pub(crate) struct Context {
    pub registry: Mutex<Registry>,
    pub tasks: TaskTable,
    pub store: Store,
    pub dry_run: bool,
    /// The network, if transfers between nodes are configured.
    pub network: Option<Network>,
    /// The number of the administrators' group.
    pub administrators: Option<u32>,
}

impl Context {
    /// The directory of a dataspace.
    pub fn mount_of(&self, nsid: &str) -> Option<PathBuf> {
        let registry = self.registry.lock();
        registry.dataspace(nsid).map(|found| mount_path(&found.space.mount))
    }

    /// Counts bytes that a task has added to a dataspace, or removed from it.
    pub fn charge(&self, job: Option<u32>, nsid: &str, added: u64, removed: u64) {
        let mut registry = self.registry.lock();
        registry.charge(job, nsid, added, removed);
        if let Err(error) = self.store.write_registry(&registry) {
            tracing::error!(%error, "cannot record what is used in dataspaces");
        }
    }
}

pub(crate) fn mount_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// The bytes below a mount point, of a dataspace whose contents are tracked.
pub(crate) fn tracked_bytes(mount: &Path) -> Result<u64, Errno> {
    bytes_at(&Place::local(mount, b"", None)?, &|| false)
}

/// Failure to start the service.
#[derive(Debug)]
pub struct StartError {
    what: String,
    error: io::Error,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl std::error::Error for StartError {}

fn about(what: impl fmt::Display) -> impl FnOnce(io::Error) -> StartError {
    move |error| StartError { what: what.to_string(), error }
}

/// The running service. It ends when dropped; tasks that are not over continue when a service starts
/// with the same state.
pub struct Service {
    ctx: Arc<Context>,
    _listeners: Vec<Listener>,
    pidfile: PathBuf,
}

impl Service {
    /// Starts the service.
    ///
    /// # Errors
    /// If its directory, one of its sockets or a dataspace of the configuration is not accessible.
    pub fn start(configuration: &Configuration) -> Result<Service, StartError> {
        raise_descriptor_limit();
        let directory = &configuration.staging_directory;
        let in_directory = || about(directory.display());
        let store = Store::open(directory).map_err(in_directory())?;
        let mut registry = store.registry().map_err(in_directory())?;
        add_configured(&mut registry, configuration)?;
        let group = Group::from_name(ADMINISTRATORS).ok().flatten();
        let network = Network::new(configuration).map_err(about("transfers between nodes"))?;
        let records = store.tasks().map_err(in_directory())?;
        let ctx = Arc::new(Context {
            registry: Mutex::new(registry),
            tasks: TaskTable::default(),
            store,
            dry_run: configuration.dry_run,
            network,
            administrators: group.map(|group| group.gid.as_raw()),
        });
        restore_tasks(&ctx, records);
        for number in 0..configuration.workers {
            let worker = ctx.clone();
            let thread = std::thread::Builder::new().name(format!("norns-{number}"));
            thread.spawn(move || work(&worker)).map_err(about("cannot start a worker"))?;
        }
        let listeners = listen(&ctx, configuration)?;
        let pidfile = configuration.pidfile.clone();
        std::fs::write(&pidfile, format!("{}\n", std::process::id()))
            .map_err(about(pidfile.display()))?;
        Ok(Service { ctx, _listeners: listeners, pidfile })
    }

    /// Whether an administrator has ended the service.
    pub fn has_ended(&self) -> bool {
        self.ctx.tasks.has_ended()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.ctx.tasks.end(true);
        let _ = std::fs::remove_file(&self.pidfile);
    }
}

/// Adds the dataspaces of the configuration. What tasks have stored in one of an earlier start still
/// counts.
fn add_configured(
    registry: &mut Registry,
    configuration: &Configuration,
) -> Result<(), StartError> {
    for (nsid, space) in &configuration.dataspaces {
        let mount = mount_path(&space.mount);
        let what = || about(format!("dataspace `{nsid}`: {}", mount.display()));
        if !std::fs::metadata(&mount).map_err(what())?.is_dir() {
            return Err(what()(io::ErrorKind::NotADirectory.into()));
        }
        if registry.dataspace(nsid).is_some() {
            let updated = registry.update_dataspace(nsid, space.clone());
            debug_assert!(updated.is_ok(), "the dataspace exists");
            continue;
        }
        let used = match space.track {
            true => tracked_bytes(&mount).map_err(|errno| what()(errno.into()))?,
            false => 0,
        };
        let added = registry.add_dataspace(nsid, space.clone(), used);
        added.map_err(|(_, reason)| about(configuration_entry(nsid))(io::Error::other(reason)))?;
    }
    Ok(())
}

fn configuration_entry(nsid: &str) -> String {
    format!("dataspace `{nsid}` of the configuration")
}

/// Queues the tasks that an earlier service has not completed.
fn restore_tasks(ctx: &Context, records: Vec<TaskRecord>) {
    for record in records {
        if record.outcome.is_some() {
            let number = record.task;
            if let Some(dropped) = ctx.tasks.finish(record, None) {
                ctx.store.remove_task(dropped);
            }
            ctx.store.remove_journal(number);
        } else {
            tracing::info!(task = record.task, "continues after a restart");
            ctx.tasks.enqueue(Task::new(TaskRecord { resumed: true, ..record }, None));
        }
    }
}

fn listen(ctx: &Arc<Context>, configuration: &Configuration) -> Result<Vec<Listener>, StartError> {
    let address = SocketAddr::new(configuration.bind_address, configuration.remote_port);
    let mut listeners: Vec<Listener> =
        remote::listen(ctx).map_err(about(address))?.into_iter().collect();
    let limits = ConnectionLimits { request_rate: 1000.0, ..ConnectionLimits::default() };
    let sockets = &configuration.sockets;
    let control_mode = if ctx.administrators.is_some() { 0o660 } else { 0o600 };
    let mut bound = Vec::new();
    for (path, mode, control) in
        [(&sockets.control, control_mode, true), (&sockets.global, 0o666, false)]
    {
        let listener = Listener::unix(path, mode).map_err(about(path.display()))?;
        if let (true, Some(group)) = (control, ctx.administrators) {
            // Without the permission to do this, only the service's own user administers it.
            let _ = std::os::unix::fs::chown(path, None, Some(group));
        }
        bound.push((listener, control));
    }
    // An administrator who gets a reply knows that users can connect, too.
    for (listener, control) in bound {
        let ctx = ctx.clone();
        let serve = move |stream, permit| server::serve_connection(&ctx, control, &stream, &permit);
        let served = listener.serve(SharedAdmission::new(limits.clone()), serve);
        served.map_err(about("cannot start a thread"))?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Carries out tasks until the service ends.
fn work(ctx: &Context) {
    while let Some(task) = ctx.tasks.next() {
        let started = Instant::now();
        let run = || execute(ctx, &task);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        let result = result.unwrap_or(Err(Errno::IO));
        if ctx.tasks.has_ended() {
            // The task continues when the service starts again.
            return;
        }
        finish_task(ctx, &task, result, started);
    }
}

/// Records the result of a task.
pub(crate) fn finish_task(ctx: &Context, task: &Task, result: Result<(), Errno>, started: Instant) {
    let total = task.total.load(Relaxed);
    let done = if result.is_ok() { total } else { task.done() };
    let outcome = Some(Outcome::new(result, done, total));
    let record = TaskRecord { outcome, ..task.record.clone() };
    tracing::info!(task = record.task, ?result, bytes = done, "task is over");
    if let Err(error) = ctx.store.write_task(&record) {
        tracing::error!(task = record.task, %error, "cannot record the result of a task");
    }
    ctx.store.remove_journal(record.task);
    if let Some(dropped) = ctx.tasks.finish(record, Some(started.elapsed())) {
        ctx.store.remove_task(dropped);
    }
}
