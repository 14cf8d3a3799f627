//! Answering calls.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_net::admission::{ConnectionPermit, Principal};
use forebay_net::job_socket::{receive_with_descriptor, send_reply};
use forebay_net::stream::Stream;
use forebay_norns_api::Code;
use forebay_norns_api::message::{
    Call, Command, ControlCall, DataPath, DataspaceRequest, Listing, MAX_TEXT_BYTES, MAX_WAIT_MS,
    Operation, Reply, Resource, TaskRequest,
};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;

use crate::caller::{Caller, ProcessId};
use crate::registry::{Refused, Registry};
use crate::service::{Context, finish_task, mount_path, tracked_bytes};
use crate::table::Cancelled;
use crate::task::{Task, TaskRecord};

/// Time for a process to send its call, and to read the reply.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest call of a user, in bytes: a task with a few names and paths.
const MAX_USER_CALL_BYTES: usize = 64 << 10;
/// Longest call of an administrator, in bytes: a job with the names of 10,000 hosts.
const MAX_CONTROL_CALL_BYTES: usize = 1 << 20;
/// Longest name of a node or dataspace.
const MAX_NAME_BYTES: usize = 255;

/// Answers the one call of a connection.
pub(crate) fn serve_connection(
    ctx: &Context,
    control: bool,
    stream: &Arc<Stream>,
    permit: &ConnectionPermit,
) {
    if stream.set_timeout(Some(CALL_TIMEOUT)).is_err() {
        return;
    }
    let reply = answer(ctx, control, stream, permit);
    // The process may have ended.
    let _ = send_reply(stream, &reply.unwrap_or_else(|(code, why)| Reply::Refused(code, why)));
}

fn answer(
    ctx: &Context,
    control: bool,
    stream: &Arc<Stream>,
    permit: &ConnectionPermit,
) -> Result<Reply, Refused> {
    let caller = Caller::of(stream).map_err(|error| (Code::SNAFU, error.to_string()))?;
    let uid = caller.user.uid;
    let principal = if caller.trusted { Principal::Trusted } else { Principal::User(uid) };
    permit.admit(principal).map_err(|reason| (Code::TOOMANYTASKS, reason.to_string()))?;
    std::thread::sleep(permit.request_delay(Instant::now(), 1.0));
    let max_bytes = if control { MAX_CONTROL_CALL_BYTES } else { MAX_USER_CALL_BYTES };
    let (call, region) = receive_with_descriptor::<Call>(stream, max_bytes)
        .map_err(|error| (Code::BADREQUEST, error.to_string()))?;
    let visible = if caller.trusted { None } else { Some(uid) };
    match call {
        Call::Submit(request) => submit(ctx, &caller, request, region),
        Call::Status { task, wait_ms } => {
            let wait = Duration::from_millis(wait_ms.min(MAX_WAIT_MS));
            let state = ctx.tasks.state(task, visible, wait);
            state.map(Reply::State).ok_or_else(|| no_task(task))
        }
        Call::Cancel(task) => match ctx.tasks.cancel(task, visible) {
            Cancelled::Requested => Ok(Reply::Done),
            Cancelled::Pending(task) => {
                finish_task(ctx, &task, Err(Errno::CANCELED), Instant::now());
                Ok(Reply::Done)
            }
            Cancelled::Unknown => Err(no_task(task)),
        },
        Call::Control(call) => {
            let member = ctx.administrators.is_some_and(|group| {
                caller.user.gid == group || caller.user.groups.contains(&group)
            });
            if !control || !(caller.trusted || member) {
                return Err((Code::BADREQUEST, "this call is for administrators".to_owned()));
            }
            administer(ctx, call)
        }
    }
}

fn no_task(task: u32) -> Refused {
    (Code::NOSUCHTASK, format!("you have no task {task}"))
}

fn bad_arguments(reason: impl Into<String>) -> Refused {
    (Code::BADARGS, reason.into())
}

/// Accepts a task. It is on stable storage when its number is returned.
fn submit(
    ctx: &Context,
    caller: &Caller,
    request: TaskRequest,
    region: Option<OwnedFd>,
) -> Result<Reply, Refused> {
    let own = rustix::process::geteuid();
    if !own.is_root() && !caller.trusted {
        let reason = format!("the service runs as user {} and serves that user only", own.as_raw());
        return Err((Code::NOTSUPPORTED, reason));
    }
    check_request(&request, ctx.network.is_some())?;
    let region = match &request.source {
        Resource::Memory { size } => Some(check_region(region, *size)?),
        Resource::Path(_) | Resource::Remote { .. } => None,
    };
    let (job, authorized) = {
        let registry = ctx.registry.lock();
        let job = registry.job_of(caller);
        let resources = std::iter::once(&request.source).chain(&request.destination);
        let mut spaces = resources.filter_map(|resource| match resource {
            Resource::Path(path) => Some(&path.nsid),
            Resource::Memory { .. } | Resource::Remote { .. } => None,
        });
        (job, spaces.try_for_each(|nsid| registry.authorize_job(caller.trusted, job, nsid)))
    };
    // While the service is paused it says so whatever the task is.
    let task = ctx.tasks.reserve(caller.user.uid)?;
    authorized?;
    let user = caller.user.clone();
    let record =
        TaskRecord { task, user, job, request, copied: false, resumed: false, outcome: None };
    let written = ctx.store.write_task(&record);
    written.map_err(|error| (Code::SNAFU, format!("cannot record the task: {error}")))?;
    tracing::info!(task, uid = caller.user.uid, ?job, request = ?record.request, "task accepted");
    ctx.tasks.enqueue(Task::new(record, region));
    Ok(Reply::Task(task))
}

fn check_request(request: &TaskRequest, has_network: bool) -> Result<(), Refused> {
    let unsupported = |reason: &str| Err((Code::NOTSUPPORTED, reason.to_owned()));
    for resource in std::iter::once(&request.source).chain(&request.destination) {
        let (host, path) = match resource {
            Resource::Memory { .. } => continue,
            Resource::Path(path) => ("", path),
            Resource::Remote { host, path } => (host.as_str(), path),
        };
        check_text(host, path)?;
    }
    if let (Resource::Memory { .. }, Some(Resource::Path(path) | Resource::Remote { path, .. })) =
        (&request.source, &request.destination)
        && path.path.ends_with(b"/")
    {
        return Err(bad_arguments("a memory region becomes a file, and the path is a directory's"));
    }
    match (request.operation, &request.source, &request.destination) {
        (Operation::Remove, Resource::Path(_), None) => Ok(()),
        (Operation::Remove, _, None) => unsupported("only paths of this node can be removed"),
        (Operation::Remove, _, Some(_)) => Err(bad_arguments("a removal has no destination")),
        (Operation::Copy | Operation::Move, _, None) => {
            Err(bad_arguments("the task has no destination"))
        }
        (Operation::Copy | Operation::Move, _, Some(Resource::Memory { .. })) => {
            unsupported("memory cannot be a destination")
        }
        (
            Operation::Copy | Operation::Move,
            Resource::Remote { .. },
            Some(Resource::Remote { .. }),
        ) => unsupported("one of the two paths must be on this node"),
        (Operation::Copy | Operation::Move, Resource::Remote { .. }, Some(Resource::Path(_)))
        | (Operation::Copy | Operation::Move, _, Some(Resource::Remote { .. })) => {
            match has_network {
                true => Ok(()),
                false => unsupported("transfers between nodes need a key file or MUNGE"),
            }
        }
        (
            Operation::Copy | Operation::Move,
            Resource::Memory { .. } | Resource::Path(_),
            Some(Resource::Path(_)),
        ) => Ok(()),
    }
}

fn check_text(host: &str, path: &DataPath) -> Result<(), Refused> {
    if host.len().max(path.nsid.len()) > MAX_NAME_BYTES || path.path.len() > MAX_TEXT_BYTES {
        return Err(bad_arguments(format!(
            "a name is longer than {MAX_NAME_BYTES} bytes, or a path than {MAX_TEXT_BYTES}"
        )));
    }
    if path.path.contains(&0) || path.path.is_empty() {
        return Err(bad_arguments("the path is empty or contains a null byte"));
    }
    Ok(())
}

/// The contents of a region: a sealed file in memory, shorter than the region if that is not readable.
/// Any other file could be one that the caller may not read, and could change while it is copied.
fn check_region(region: Option<OwnedFd>, size: u64) -> Result<OwnedFd, Refused> {
    let region = region.ok_or_else(|| bad_arguments("the contents of the region are missing"))?;
    let sealed = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW;
    let seals = fcntl_get_seals(&region).unwrap_or(SealFlags::empty());
    let length = rustix::fs::fstat(&region).map(|stat| stat.st_size).unwrap_or(-1);
    if !seals.contains(sealed) || !u64::try_from(length).is_ok_and(|length| length <= size) {
        return Err(bad_arguments("the contents of the region are not a sealed file in memory"));
    }
    Ok(region)
}

/// Carries out a call of an administrator.
fn administer(ctx: &Context, call: ControlCall) -> Result<Reply, Refused> {
    tracing::info!(?call, "administration");
    match call {
        ControlCall::Command(command) => run_command(ctx, command),
        ControlCall::Status => Ok(Reply::Status(ctx.tasks.status())),
        ControlCall::RegisterJob(job, request) => change(ctx, |all| all.add_job(job, request)),
        ControlCall::UpdateJob(job, request) => change(ctx, |all| all.update_job(job, request)),
        ControlCall::UnregisterJob(job) => change(ctx, |all| all.remove_job(job)),
        ControlCall::AddProcess(job, process) => {
            let id = ProcessId::now(process.pid);
            change(ctx, |all| all.add_process(job, process, id))
        }
        ControlCall::RemoveProcess(job, process) => {
            change(ctx, |all| all.remove_process(job, process))
        }
        ControlCall::RegisterDataspace(nsid, space) => {
            let used = check_dataspace(&nsid, &space)?;
            change(ctx, |all| all.add_dataspace(&nsid, space, used))
        }
        ControlCall::UpdateDataspace(nsid, space) => {
            check_dataspace(&nsid, &space)?;
            change(ctx, |all| all.update_dataspace(&nsid, space))
        }
        ControlCall::UnregisterDataspace(nsid) => {
            if ctx.tasks.uses_dataspace(&nsid) {
                return Err((Code::TASKSPENDING, format!("tasks use the dataspace `{nsid}`")));
            }
            change(ctx, |all| all.remove_dataspace(&nsid))
        }
        ControlCall::List => {
            let tasks = ctx.tasks.list();
            let registry = ctx.registry.lock();
            let (dataspaces, jobs) = (registry.list_dataspaces(), registry.list_jobs());
            Ok(Reply::Listing(Listing { dataspaces, jobs, tasks }))
        }
    }
}

/// Changes dataspaces and jobs, on stable storage when the call is answered.
fn change(
    ctx: &Context,
    act: impl FnOnce(&mut Registry) -> Result<(), Refused>,
) -> Result<Reply, Refused> {
    let mut registry = ctx.registry.lock();
    act(&mut registry)?;
    let written = ctx.store.write_registry(&registry);
    written.map_err(|error| (Code::SNAFU, format!("cannot record the change: {error}")))?;
    Ok(Reply::Done)
}

/// Checks the description of a dataspace, and returns the bytes that count from the start.
fn check_dataspace(nsid: &str, space: &DataspaceRequest) -> Result<u64, Refused> {
    let mount = mount_path(&space.mount);
    let is_long = nsid.len() > MAX_TEXT_BYTES || space.mount.len() > MAX_TEXT_BYTES;
    if nsid.is_empty() || is_long || space.capacity == 0 || !mount.is_absolute() {
        return Err(bad_arguments("a dataspace has a name, an absolute directory and a capacity"));
    }
    let failed = |reason: &str| bad_arguments(format!("{}: {reason}", mount.display()));
    match std::fs::metadata(&mount) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(failed("is not a directory")),
        Err(error) => return Err(failed(&error.to_string())),
    }
    match space.track {
        true => tracked_bytes(&mount).map_err(|errno| failed(&errno.to_string())),
        false => Ok(0),
    }
}

fn run_command(ctx: &Context, command: Command) -> Result<Reply, Refused> {
    match command {
        Command::Ping => {}
        Command::Pause => ctx.tasks.set_paused(true),
        Command::Resume => ctx.tasks.set_paused(false),
        Command::Shutdown => {
            if !ctx.tasks.end(false) {
                return Err((Code::TASKSPENDING, "tasks are not over".to_owned()));
            }
        }
    }
    Ok(Reply::Done)
}
