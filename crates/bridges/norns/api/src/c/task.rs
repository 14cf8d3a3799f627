//! The calls about tasks, which both libraries have.

use std::ffi::{c_char, c_uint};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::{NULL_RESOURCE, Resource, Stat, Task, region, result};
use crate::client::{self, Socket};
use crate::code::Code;
use crate::message::{Call, MAX_WAIT_MS, Operation, Reply, TaskRequest, TaskState};

/// Initializes a task; a null `source` leaves it all zero.
///
/// # Safety
/// Each pointer is null or valid.
pub unsafe fn init_task(
    task: *mut Task,
    operation: c_uint,
    source: *const Resource,
    destination: *const Resource,
) {
    if task.is_null() {
        return;
    }
    // SAFETY: `task` is not null; all bytes zero are a valid value of the plain types of a task.
    unsafe { task.write(std::mem::zeroed()) };
    if source.is_null() {
        return;
    }
    // SAFETY: none of the pointers used is null, and the caller guarantees the rest.
    unsafe {
        (*task).t_op = operation;
        (*task).t_src = *source;
        if destination.is_null() {
            (*task).t_dst.r_flags = NULL_RESOURCE;
        } else {
            (*task).t_dst = *destination;
        }
    }
}

fn operation(number: c_uint) -> Result<Operation, Code> {
    match number {
        1 => Ok(Operation::Copy),
        2 => Ok(Operation::Move),
        3 => Ok(Operation::Remove),
        _ => Err(Code::BADARGS),
    }
}

/// Submits a task and sets its number.
///
/// # Safety
/// `task` is null or valid, with texts and regions that are readable.
pub unsafe fn submit(socket: Socket, task: *mut Task) -> i32 {
    result(move || {
        // SAFETY: the caller guarantees it.
        let task = unsafe { task.as_mut() }.ok_or(Code::BADARGS)?;
        let operation = operation(task.t_op)?;
        // SAFETY: the caller guarantees it.
        let source = unsafe { task.t_src.to_message() }?;
        let destination = match operation {
            Operation::Remove => None,
            // SAFETY: the caller guarantees it.
            Operation::Copy | Operation::Move => Some(unsafe { task.t_dst.to_message() }?),
        };
        let sealed = task.t_src.region().map(region::seal).transpose()?;
        let call = Call::Submit(TaskRequest { operation, source, destination });
        match client::call(socket, &call, sealed.as_ref().map(AsFd::as_fd))? {
            Reply::Task(number) => {
                task.t_id = number;
                task.status = stat(&TaskState {
                    status: Code::PENDING,
                    error: Code::SUCCESS,
                    errno: 0,
                    pending_bytes: 0,
                    total_bytes: 0,
                });
                Ok(())
            }
            _ => Err(Code::SNAFU),
        }
    })
}

fn stat(state: &TaskState) -> Stat {
    Stat {
        st_status: state.status.0,
        st_task_error: state.error.0,
        st_sys_errno: state.errno,
        st_pending: usize::try_from(state.pending_bytes).unwrap_or(usize::MAX),
        st_total: usize::try_from(state.total_bytes).unwrap_or(usize::MAX),
    }
}

/// The state of a task, from the task itself if it is over. The service waits for at most `wait`.
fn state(socket: Socket, task: &mut Task, wait: Duration) -> Result<Stat, Code> {
    if Code(task.status.st_status).is_final() {
        return Ok(task.status);
    }
    if task.t_id == 0 {
        return Err(Code::BADARGS);
    }
    let wait_ms = wait.as_millis().min(u128::from(MAX_WAIT_MS)) as u64;
    let call = Call::Status { task: task.t_id, wait_ms };
    match client::call(socket, &call, None)? {
        Reply::State(state) => {
            let stat = stat(&state);
            if state.status.is_final() {
                task.status = stat;
            }
            Ok(stat)
        }
        _ => Err(Code::SNAFU),
    }
}

/// Waits until a task is over; without limit if `timeout` is null.
///
/// # Safety
/// Each pointer is null or valid.
pub unsafe fn wait(socket: Socket, task: *mut Task, timeout: *const libc::timespec) -> i32 {
    result(move || {
        // SAFETY: the caller guarantees it.
        let (task, timeout) = unsafe { (task.as_mut(), timeout.as_ref()) };
        let task = task.ok_or(Code::BADARGS)?;
        let deadline = timeout.map(duration).transpose()?.map(|time| Instant::now() + time);
        loop {
            let left = match deadline {
                None => Duration::from_millis(MAX_WAIT_MS),
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            };
            let stat = state(socket, task, left)?;
            if Code(stat.st_status).is_final() {
                return Ok(());
            }
            if left < Duration::from_millis(1) {
                // The service waits for whole milliseconds only.
                std::thread::sleep(left);
                return Err(Code::TIMEOUT);
            }
        }
    })
}

/// Longest timeout: a longer one is not distinguished from it.
const MAX_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 86_400);

fn duration(time: &libc::timespec) -> Result<Duration, Code> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Code::BADARGS)?;
    let nanos = u32::try_from(time.tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000);
    Ok(Duration::new(seconds, nanos.ok_or(Code::BADARGS)?).min(MAX_TIMEOUT))
}

/// Reports the state of a task.
///
/// # Safety
/// Each pointer is null or valid.
pub unsafe fn error(socket: Socket, task: *mut Task, into: *mut Stat) -> i32 {
    result(move || {
        // SAFETY: the caller guarantees it.
        let (task, into) = unsafe { (task.as_mut(), into.as_mut()) };
        let (Some(task), Some(into)) = (task, into) else { return Err(Code::BADARGS) };
        *into = state(socket, task, Duration::ZERO)?;
        Ok(())
    })
}

/// Cancels a task. A task that is over stays as it is.
///
/// # Safety
/// `task` is null or valid.
pub unsafe fn cancel(socket: Socket, task: *mut Task) -> i32 {
    result(move || {
        // SAFETY: the caller guarantees it.
        let task = unsafe { task.as_mut() }.ok_or(Code::BADARGS)?;
        if task.t_id == 0 {
            return Err(Code::BADARGS);
        }
        client::call(socket, &Call::Cancel(task.t_id), None).map(|_| ())
    })
}

/// The text of a code; it must not be changed.
pub fn strerror(code: i32) -> *mut c_char {
    Code(code).text().as_ptr().cast_mut()
}
