//! Calls of administrators.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use forebay_norns_api::Code;
use forebay_norns_api::c::{bytes, result, text};
use forebay_norns_api::client::{self, Socket};
use forebay_norns_api::message::{
    Backend, Call, Command, ControlCall, DataspaceRequest, JobRequest, Process, Reply,
};
use libc::{gid_t, pid_t, uid_t};

/// Bytes in the unit of capacities and quotas.
const MEGABYTE: u64 = 1 << 20;
/// Maximum hosts, and maximum limits, of a job.
const MAX_ENTRIES: usize = 65_536;

/// `nornsctl_backend_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CBackend {
    /// Type.
    pub b_type: c_int,
    /// Whether contents count from the start.
    pub b_track: bool,
    /// Mount point.
    pub b_mount: *const c_char,
    /// Capacity in MiB.
    pub b_capacity: u32,
}

/// `nornsctl_job_limit_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CLimit {
    /// Dataspace.
    pub l_nsid: *const c_char,
    /// Quota in MiB.
    pub l_quota: u32,
}

/// `nornsctl_job_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CJob {
    /// Hosts.
    pub j_hosts: *mut *const c_char,
    /// Number of hosts.
    pub j_nhosts: usize,
    /// Limits.
    pub j_limits: *mut *mut CLimit,
    /// Number of limits.
    pub j_nlimits: usize,
}

/// `nornsctl_stat_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CStatus {
    /// Running tasks.
    pub st_running_tasks: usize,
    /// Pending tasks.
    pub st_pending_tasks: usize,
    /// Seconds until the running tasks are over, or NaN.
    pub st_eta: f64,
}

const EMPTY_JOB: CJob = CJob {
    j_hosts: std::ptr::null_mut(),
    j_nhosts: 0,
    j_limits: std::ptr::null_mut(),
    j_nlimits: 0,
};

/// Sends a call whose reply has no contents.
fn call(call: ControlCall) -> Result<(), Code> {
    client::call(Socket::Control, &Call::Control(call), None).map(|_| ())
}

/// A dataspace.
#[unsafe(no_mangle)]
pub extern "C" fn NORNSCTL_BACKEND(
    flags: c_uint,
    track: bool,
    mount_point: *const c_char,
    capacity: u32,
) -> CBackend {
    let b_type = flags as c_int;
    CBackend { b_type, b_track: track, b_mount: mount_point, b_capacity: capacity }
}

/// Initializes a dataspace.
///
/// # Safety
/// `backend` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_backend_init(
    backend: *mut CBackend,
    flags: c_uint,
    track: bool,
    mount_point: *const c_char,
    capacity: u32,
) {
    if !backend.is_null() {
        // SAFETY: it is not null, and the caller guarantees the rest.
        unsafe { backend.write(NORNSCTL_BACKEND(flags, track, mount_point, capacity)) }
    }
}

/// A job's limit.
#[unsafe(no_mangle)]
pub extern "C" fn NORNSCTL_JOB_LIMIT(nsid: *const c_char, quota: u32) -> CLimit {
    CLimit { l_nsid: nsid, l_quota: if nsid.is_null() { 0 } else { quota } }
}

/// Initializes a job's limit.
///
/// # Safety
/// `limit` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_job_limit_init(
    limit: *mut CLimit,
    nsid: *const c_char,
    quota: u32,
) {
    if !limit.is_null() {
        // SAFETY: it is not null, and the caller guarantees the rest.
        unsafe { limit.write(NORNSCTL_JOB_LIMIT(nsid, quota)) }
    }
}

/// A job; all zero if a list is missing.
#[unsafe(no_mangle)]
pub extern "C" fn NORNSCTL_JOB(
    hosts: *mut *const c_char,
    nhosts: usize,
    limits: *mut *mut CLimit,
    nlimits: usize,
) -> CJob {
    if hosts.is_null() || nhosts == 0 || limits.is_null() || nlimits == 0 {
        return EMPTY_JOB;
    }
    CJob { j_hosts: hosts, j_nhosts: nhosts, j_limits: limits, j_nlimits: nlimits }
}

/// Initializes a job.
///
/// # Safety
/// `job` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_job_init(
    job: *mut CJob,
    hosts: *mut *const c_char,
    nhosts: usize,
    limits: *mut *mut CLimit,
    nlimits: usize,
) {
    if !job.is_null() {
        // SAFETY: it is not null, and the caller guarantees the rest.
        unsafe { job.write(NORNSCTL_JOB(hosts, nhosts, limits, nlimits)) }
    }
}

/// Sends a command; no command has arguments.
#[unsafe(no_mangle)]
pub extern "C" fn nornsctl_send_command(command: c_uint, args: *mut c_void) -> i32 {
    let has_arguments = !args.is_null();
    result(move || {
        if has_arguments {
            return Err(Code::BADARGS);
        }
        call(ControlCall::Command(match command {
            1000 => Command::Ping,
            1001 => Command::Pause,
            1002 => Command::Resume,
            1003 => Command::Shutdown,
            _ => return Err(Code::BADARGS),
        }))
    })
}

/// Reports the status of the service.
///
/// # Safety
/// `stats` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_status(stats: *mut CStatus) -> i32 {
    result(move || {
        // SAFETY: the caller guarantees it.
        let stats = unsafe { stats.as_mut() }.ok_or(Code::BADARGS)?;
        let status = Call::Control(ControlCall::Status);
        match client::call(Socket::Control, &status, None)? {
            Reply::Status(status) => {
                *stats = CStatus {
                    st_running_tasks: status.running as usize,
                    st_pending_tasks: status.pending as usize,
                    st_eta: status.eta_seconds.unwrap_or(f64::NAN),
                };
                Ok(())
            }
            _ => Err(Code::SNAFU),
        }
    })
}

/// The job in a message.
///
/// # Safety
/// `job` is null or valid, with lists of the given lengths.
unsafe fn job_request(job: *mut CJob) -> Result<JobRequest, Code> {
    // SAFETY: the caller guarantees it.
    let job = unsafe { job.as_ref() }.ok_or(Code::BADARGS)?;
    let missing = job.j_hosts.is_null() || job.j_limits.is_null();
    let counts = 1..=MAX_ENTRIES;
    if missing || !counts.contains(&job.j_nhosts) || !counts.contains(&job.j_nlimits) {
        return Err(Code::BADARGS);
    }
    // SAFETY: the caller guarantees the lengths.
    let (hosts, limits) = unsafe {
        (
            std::slice::from_raw_parts(job.j_hosts, job.j_nhosts),
            std::slice::from_raw_parts(job.j_limits, job.j_nlimits),
        )
    };
    // A null ends a list early.
    let hosts = hosts.iter().take_while(|host| !host.is_null());
    let limits = limits.iter().take_while(|limit| !limit.is_null());
    // SAFETY: the caller guarantees that the entries are valid.
    let hosts = hosts.map(|host| unsafe { text(*host) }).collect::<Result<_, _>>()?;
    let limit = |limit: &*mut CLimit| {
        // SAFETY: the caller guarantees it.
        let limit = unsafe { **limit };
        // SAFETY: the caller guarantees it.
        Ok((unsafe { text(limit.l_nsid) }?, u64::from(limit.l_quota) * MEGABYTE))
    };
    Ok(JobRequest { hosts, limits: limits.map(limit).collect::<Result<_, Code>>()? })
}

/// Registers a job.
///
/// # Safety
/// `job` is null or valid, with lists of the given lengths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_register_job(jobid: u32, job: *mut CJob) -> i32 {
    // SAFETY: the caller guarantees it.
    result(move || call(ControlCall::RegisterJob(jobid, unsafe { job_request(job) }?)))
}

/// Replaces hosts and limits of a job.
///
/// # Safety
/// As for [`nornsctl_register_job`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_update_job(jobid: u32, job: *mut CJob) -> i32 {
    // SAFETY: the caller guarantees it.
    result(move || call(ControlCall::UpdateJob(jobid, unsafe { job_request(job) }?)))
}

/// Removes a job with its processes.
#[unsafe(no_mangle)]
pub extern "C" fn nornsctl_unregister_job(jobid: u32) -> i32 {
    result(|| call(ControlCall::UnregisterJob(jobid)))
}

/// Adds a process to a job.
#[unsafe(no_mangle)]
pub extern "C" fn nornsctl_add_process(jobid: u32, uid: uid_t, gid: gid_t, pid: pid_t) -> i32 {
    result(|| call(ControlCall::AddProcess(jobid, Process { uid, gid, pid })))
}

/// Removes a process from a job.
#[unsafe(no_mangle)]
pub extern "C" fn nornsctl_remove_process(jobid: u32, uid: uid_t, gid: gid_t, pid: pid_t) -> i32 {
    result(|| call(ControlCall::RemoveProcess(jobid, Process { uid, gid, pid })))
}

/// The name and the dataspace in a message.
///
/// # Safety
/// Each pointer is null or valid.
unsafe fn dataspace(
    nsid: *const c_char,
    backend: *const CBackend,
) -> Result<(String, DataspaceRequest), Code> {
    // SAFETY: the caller guarantees it.
    let (nsid, space) = unsafe { (text(nsid)?, backend.as_ref().ok_or(Code::BADARGS)?) };
    let backend = Backend::from_number(space.b_type.into()).ok_or(Code::BADARGS)?;
    // SAFETY: the caller guarantees it.
    let mount = unsafe { bytes(space.b_mount) }?;
    if nsid.is_empty() || mount.is_empty() || space.b_capacity == 0 {
        return Err(Code::BADARGS);
    }
    let mount = std::path::absolute(Path::new(std::ffi::OsStr::from_bytes(&mount)));
    let mount = mount.map_err(|_| Code::BADARGS)?.into_os_string().into_vec();
    let capacity = u64::from(space.b_capacity) * MEGABYTE;
    let space = DataspaceRequest { backend, track: space.b_track, mount, capacity, visible: false };
    Ok((nsid, space))
}

/// Registers a dataspace.
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_register_namespace(
    nsid: *const c_char,
    backend: *mut CBackend,
) -> i32 {
    result(move || {
        // SAFETY: the caller guarantees it.
        let (nsid, space) = unsafe { dataspace(nsid, backend) }?;
        call(ControlCall::RegisterDataspace(nsid, space))
    })
}

/// Replaces the description of a dataspace.
///
/// # Safety
/// Each pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_update_namespace(
    nsid: *const c_char,
    backend: *mut CBackend,
) -> i32 {
    result(move || {
        // SAFETY: the caller guarantees it.
        let (nsid, space) = unsafe { dataspace(nsid, backend) }?;
        call(ControlCall::UpdateDataspace(nsid, space))
    })
}

/// Removes a dataspace; its files stay.
///
/// # Safety
/// `nsid` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nornsctl_unregister_namespace(nsid: *const c_char) -> i32 {
    result(move || {
        // SAFETY: the caller guarantees it.
        let nsid = unsafe { text(nsid) }?;
        call(ControlCall::UnregisterDataspace(nsid))
    })
}
