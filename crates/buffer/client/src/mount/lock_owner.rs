//! The owner of a lock that a process takes by `flock` or `fcntl`.
//!
//! On a local file system locks of `flock` and `fcntl` are independent. The kernel distinguishes
//! them in its request, but the FUSE library does not pass that on. The requesting thread waits in
//! its system call meanwhile, and `/proc` shows which one that is.

use crate::backoff::Backoff;
use crate::system::Os;
use forebay_protocol::LockOwner;
use forebay_protocol::lock::MAX_LOCK_OFFSET;
use std::fs;
use std::time::Duration;

/// `flock` among the system calls of 32-bit programs, on x86 and on ARM. On neither 64-bit system
/// does a call with this number lock files.
#[cfg(target_pointer_width = "64")]
const FLOCK_32_BIT: i64 = 143;
#[cfg(not(target_pointer_width = "64"))]
const FLOCK_32_BIT: i64 = libc::SYS_flock as i64;

/// Backoff while a thread is not yet asleep in its system call, for example on a loaded processor.
const SLEEP_BACKOFF: Backoff =
    Backoff::new(Duration::from_micros(20), Duration::from_millis(500), Duration::from_secs(1));

/// The owner that the kernel calls `number`, of a lock on the bytes from `start` to `end` that the
/// thread `tid` requests. Where the system call is not visible, that is for processes in another PID
/// name space and, without root, where `ptrace` is restricted, all locks are those of `fcntl`.
pub fn lock_owner(tid: u32, number: u64, (start, end): (u64, u64)) -> LockOwner {
    // `flock` locks the whole file.
    if tid != 0 && (start, end) == (0, MAX_LOCK_OFFSET) && is_in_flock(tid) {
        LockOwner::Flock(number)
    } else {
        LockOwner::Fcntl(number)
    }
}

fn is_in_flock(tid: u32) -> bool {
    let mut retries = SLEEP_BACKOFF.start(&Os);
    loop {
        match system_call(tid) {
            SystemCall::Number(number) => {
                return number == libc::SYS_flock || number == FLOCK_32_BIT;
            }
            SystemCall::Unknown => return false,
            // It has sent the request, and is about to wait for the reply.
            SystemCall::NotAsleep if retries.wait() => {}
            SystemCall::NotAsleep => return false,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum SystemCall {
    Number(i64),
    NotAsleep,
    Unknown,
}

/// The system call that a thread waits in.
fn system_call(tid: u32) -> SystemCall {
    let Ok(text) = fs::read_to_string(format!("/proc/{tid}/syscall")) else {
        return SystemCall::Unknown;
    };
    match text.split_ascii_whitespace().next() {
        Some("running") => SystemCall::NotAsleep,
        Some(number) => number.parse().map_or(SystemCall::Unknown, SystemCall::Number),
        None => SystemCall::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn system_call_of_a_waiting_thread_is_found() {
        let (sender, receiver) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            sender.send(tid).unwrap();
            let _ = ended.recv();
        });
        let tid = receiver.recv().unwrap();
        let found = (0..1000).find_map(|_| match system_call(tid) {
            SystemCall::NotAsleep => {
                std::thread::sleep(Duration::from_millis(1));
                None
            }
            seen => Some(seen),
        });
        assert_eq!(found, Some(SystemCall::Number(libc::SYS_futex)));
        let all = (0, MAX_LOCK_OFFSET);
        assert_eq!(lock_owner(tid, 7, all), LockOwner::Fcntl(7));
        assert_eq!(system_call(u32::MAX), SystemCall::Unknown);
        drop(end);
        thread.join().unwrap();
    }
}
