//! Carrying out a task.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use forebay_norns_api::message::{DataPath, Operation, Resource};
use forebay_stage::{ItemKind, StageError, StageItem, StageOptions, StageRequest, run_stage};
use rustix::io::Errno;

use crate::measure::{bytes_at, sync};
use crate::place::{Place, as_missing};
use crate::remote::{RemoteFileSystem, Session};
use crate::remove::remove;
use crate::service::Context;
use crate::task::{Task, TaskRecord};

/// Threads that copy the files of one task.
const COPY_THREADS: usize = 2;
/// Interval at which the size of a source is compared with what was measured.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);

/// Carries out a task, in the thread of a worker.
pub(crate) fn execute(ctx: &Context, task: &Task) -> Result<(), Errno> {
    let TaskRecord { request, .. } = &task.record;
    if task.is_cancelled() {
        return Err(Errno::CANCELED);
    }
    if ctx.dry_run {
        return Ok(());
    }
    let source = || open(ctx, task, &request.source);
    match (request.operation, &request.destination) {
        (Operation::Remove, _) => remove_source(ctx, task, &source()?, None),
        (Operation::Copy, Some(to)) => copy(ctx, task, &source()?.place, &open(ctx, task, to)?),
        (Operation::Move, Some(to)) => {
            if !task.record.copied {
                copy(ctx, task, &source()?.place, &open(ctx, task, to)?)?;
                if task.region.is_some() {
                    return Ok(());
                }
                let record = TaskRecord { copied: true, ..task.record.clone() };
                ctx.store.write_task(&record).map_err(|_| Errno::IO)?;
            }
            remove_source(ctx, task, &source()?, Some(&open(ctx, task, to)?.place))
        }
        (Operation::Copy | Operation::Move, None) => Err(Errno::INVAL),
    }
}

/// A resource of a task, and what limits and counts the bytes there.
struct Opened {
    place: Place,
    limits: Limits,
}

/// The account of a dataspace.
enum Limits {
    /// Memory has none.
    None,
    /// Of this node, for a job.
    Local(Option<u32>, String),
    /// Of another node.
    Remote(Arc<RemoteFileSystem>),
}

impl Limits {
    fn reserve(&self, ctx: &Context, bytes: u64) -> Result<(), Errno> {
        match self {
            Limits::None => Ok(()),
            Limits::Local(job, nsid) => match ctx.registry.lock().reserve(*job, nsid, bytes) {
                true => Ok(()),
                false => Err(Errno::DQUOT),
            },
            Limits::Remote(fs) => fs.reserve(bytes),
        }
    }

    /// Returns a reservation, and counts the bytes that were added and removed.
    fn settle(&self, ctx: &Context, reserved: u64, added: u64, removed: u64) {
        match self {
            Limits::None => {}
            Limits::Local(job, nsid) => {
                ctx.registry.lock().release(*job, nsid, reserved);
                ctx.charge(*job, nsid, added, removed);
            }
            Limits::Remote(fs) => {
                if let Err(errno) = fs.settle(added, removed) {
                    tracing::warn!(%errno, "another node has not counted a transfer");
                }
            }
        }
    }
}

/// Opens a resource, to be accessed as the task's user.
fn open(ctx: &Context, task: &Task, resource: &Resource) -> Result<Opened, Errno> {
    let record = &task.record;
    match resource {
        Resource::Memory { size } => {
            // A region is lost with the service that received it.
            let region = task.region.as_ref().ok_or(Errno::INTR)?;
            if u64::try_from(rustix::fs::fstat(region)?.st_size) != Ok(*size) {
                return Err(Errno::FAULT);
            }
            let place = Place::descriptor(region.as_raw_fd());
            Ok(Opened { place, limits: Limits::None })
        }
        Resource::Path(DataPath { nsid, path }) => {
            // The job may have ended since the task was accepted.
            let is_trusted =
                record.user.uid == 0 || record.user.uid == rustix::process::geteuid().as_raw();
            let authorized = ctx.registry.lock().authorize_task(is_trusted, record.job, nsid);
            authorized.map_err(|_| Errno::ACCESS)?;
            let mount = ctx.mount_of(nsid).ok_or(Errno::NOENT)?;
            let place = Place::local(&mount, path, record.user.identity()?)?;
            Ok(Opened { place, limits: Limits::Local(record.job, nsid.clone()) })
        }
        Resource::Remote { host, path: DataPath { nsid, path } } => {
            let network = ctx.network.as_ref().ok_or(Errno::OPNOTSUPP)?;
            let session = Session::new(record.user.clone(), record.job, nsid.clone());
            let fs = RemoteFileSystem::connect(network, host, &session)?;
            Ok(Opened { place: Place::remote(fs.clone(), path)?, limits: Limits::Remote(fs) })
        }
    }
}

/// Removes the source. Of a task that continues, it may be removed already.
fn remove_source(
    ctx: &Context,
    task: &Task,
    source: &Opened,
    copy: Option<&Place>,
) -> Result<(), Errno> {
    let stop = || task.is_cancelled() && copy.is_none();
    let removed = match remove(&source.place, copy, &stop) {
        Err(Errno::NOENT) if task.record.resumed => 0,
        other => other?,
    };
    source.limits.settle(ctx, 0, 0, removed);
    Ok(())
}

/// Copies the source within the limits of its destination.
fn copy(ctx: &Context, task: &Task, source: &Place, target: &Opened) -> Result<(), Errno> {
    let stop = || task.is_cancelled();
    let kind = source.kind()?;
    if kind == ItemKind::Directory && target.place.is_in(source)? {
        // A directory cannot be copied into itself.
        return Err(Errno::INVAL);
    }
    let total = bytes_at(source, &stop)?;
    task.total.store(total, Relaxed);
    // An existing file is replaced. What a directory shares with an existing one is not known.
    let before = bytes_at(&target.place, &stop)?;
    let replaced = if kind == ItemKind::File { before } else { 0 };
    let needed = total.saturating_sub(replaced);
    target.limits.reserve(ctx, needed)?;
    let outcome = run(ctx, task, kind, source, &target.place).and_then(|()| sync(&target.place));
    let after = bytes_at(&target.place, &|| false).unwrap_or(before);
    let (added, removed) = (after.saturating_sub(before), before.saturating_sub(after));
    target.limits.settle(ctx, needed, added, removed);
    outcome
}

/// Copies at most the bytes that were measured: a source that has grown meanwhile is `DQUOT`.
fn run(
    ctx: &Context,
    task: &Task,
    kind: ItemKind,
    source: &Place,
    target: &Place,
) -> Result<(), Errno> {
    target.create_parents()?;
    let item = StageItem { kind, source: source.location(), target: target.location() };
    let options = StageOptions {
        workers: COPY_THREADS,
        journal: Some(ctx.store.journal(task.record.task)),
        keep_parts: false,
        ..StageOptions::default()
    };
    let request = StageRequest { items: vec![item] };
    let (ended, has_grown) = (AtomicBool::new(false), AtomicBool::new(false));
    let outcome = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !ended.load(Relaxed) {
                if task.progress.snapshot().bytes_total > task.total.load(Relaxed) {
                    has_grown.store(true, Relaxed);
                    task.progress.cancel();
                    return;
                }
                std::thread::park_timeout(WATCH_INTERVAL);
            }
        });
        let outcome = run_stage(&request, &options, &task.progress);
        ended.store(true, Relaxed);
        watch.thread().unpark();
        outcome
    });
    match outcome {
        Ok(report) => {
            for warning in report.warnings {
                tracing::warn!(task = task.record.task, %warning, "not preserved");
            }
            Ok(())
        }
        Err(StageError::Cancelled) if has_grown.load(Relaxed) => Err(Errno::DQUOT),
        Err(StageError::Cancelled) => Err(Errno::CANCELED),
        Err(error) => {
            tracing::info!(task = task.record.task, %error, "a copy has failed");
            Err(as_missing(Errno::from_raw_os_error(first_code(&error))))
        }
    }
}

/// The error number of the first problem.
fn first_code(error: &StageError) -> i32 {
    let code = match error {
        StageError::Stopped(problem) => problem.code,
        StageError::Incomplete { problems, .. } => problems.first().map_or(0, |first| first.code),
        StageError::Cancelled | StageError::OtherShare => libc::ECANCELED,
    };
    if code == 0 { libc::EIO } else { code }
}
