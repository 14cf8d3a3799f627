//! Carrying out a task.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;

use forebay_norns_api::message::{DataPath, Operation, Resource};
use forebay_stage::{ItemKind, StageError, StageItem, StageOptions, StageRequest, run_stage};
use rustix::io::Errno;

use crate::measure::bytes_at;
use crate::place::{Place, as_missing};
use crate::remove::remove;
use crate::service::Context;
use crate::task::{Task, TaskRecord};

/// Threads that copy the files of one task.
const COPY_THREADS: usize = 2;

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
        (Operation::Copy, Some(to)) => copy(ctx, task, &source()?, to),
        (Operation::Move, Some(to)) => {
            if !task.record.copied {
                copy(ctx, task, &source()?, to)?;
                if task.region.is_some() {
                    return Ok(());
                }
                let record = TaskRecord { copied: true, ..task.record.clone() };
                ctx.store.write_task(&record).map_err(|_| Errno::IO)?;
            }
            remove_source(ctx, task, &source()?, Some(&open(ctx, task, to)?))
        }
        (Operation::Copy | Operation::Move, None) => Err(Errno::INVAL),
    }
}

/// The place of a resource, accessed as the task's user.
fn open(ctx: &Context, task: &Task, resource: &Resource) -> Result<Place, Errno> {
    match resource {
        Resource::Memory { .. } => {
            // A region is lost with the service that received it.
            let region = task.region.as_ref().ok_or(Errno::INTR)?;
            Ok(Place::descriptor(region.as_raw_fd()))
        }
        Resource::Path(DataPath { nsid, path }) => {
            let mount = ctx.mount_of(nsid).ok_or(Errno::NOENT)?;
            Place::local(&mount, path, task.record.user.identity())
        }
        Resource::Remote { .. } => Err(Errno::OPNOTSUPP),
    }
}

/// The dataspace of this node in which a resource is.
fn local_dataspace(resource: &Resource) -> Option<&str> {
    match resource {
        Resource::Path(path) => Some(&path.nsid),
        Resource::Memory { .. } | Resource::Remote { .. } => None,
    }
}

/// Removes the source. Of a task that continues, it may be removed already.
fn remove_source(
    ctx: &Context,
    task: &Task,
    source: &Place,
    copy: Option<&Place>,
) -> Result<(), Errno> {
    let removed = match remove(source, copy, &|| task.is_cancelled() && copy.is_none()) {
        Err(Errno::NOENT) if task.record.resumed => 0,
        other => other?,
    };
    if let Some(nsid) = local_dataspace(&task.record.request.source) {
        ctx.charge(task.record.job, nsid, 0, removed);
    }
    Ok(())
}

/// Copies the source within the limits of its destination.
fn copy(ctx: &Context, task: &Task, source: &Place, to: &Resource) -> Result<(), Errno> {
    let stop = || task.is_cancelled();
    let kind = source.kind()?;
    let total = bytes_at(source, &stop)?;
    task.total.store(total, Relaxed);
    let target = open(ctx, task, to)?;
    let Some(nsid) = local_dataspace(to) else {
        return run(ctx, task, kind, source, &target);
    };
    // An existing file is replaced. What a directory shares with an existing one is not known.
    let before = bytes_at(&target, &stop)?;
    let replaced = if kind == ItemKind::File { before } else { 0 };
    let needed = total.saturating_sub(replaced);
    let job = task.record.job;
    if !ctx.registry.lock().reserve(job, nsid, needed) {
        return Err(Errno::DQUOT);
    }
    let outcome = run(ctx, task, kind, source, &target);
    let after = bytes_at(&target, &|| false).unwrap_or(before);
    ctx.registry.lock().release(job, nsid, needed);
    ctx.charge(job, nsid, after.saturating_sub(before), before.saturating_sub(after));
    outcome
}

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
    let outcome = run_stage(&StageRequest { items: vec![item] }, &options, &task.progress);
    let number = task.record.task;
    match outcome {
        Ok(report) => {
            for warning in report.warnings {
                tracing::warn!(task = number, %warning, "not preserved");
            }
            Ok(())
        }
        Err(StageError::Cancelled) => Err(Errno::CANCELED),
        Err(error) => {
            tracing::info!(task = number, %error, "a copy has failed");
            Err(as_missing(Errno::from_raw_os_error(first_code(&error))))
        }
    }
}

/// The error number of the first problem.
fn first_code(error: &StageError) -> i32 {
    let code = match error {
        StageError::Stopped(problem) => problem.code,
        StageError::Incomplete { problems, .. } => problems.first().map_or(0, |first| first.code),
        StageError::Cancelled => libc::ECANCELED,
    };
    if code == 0 { libc::EIO } else { code }
}
