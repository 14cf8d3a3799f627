//! By which call a process locks a file.
//!
//! On a local file system `flock` and `fcntl` know nothing of each other. The kernel tells them apart
//! when it asks for a lock, but the FUSE library does not pass that on. The thread that asks waits in
//! its system call meanwhile, and `/proc` says in which.

use forebay_protocol::LockOwner;
use forebay_protocol::lock::MAX_LOCK_OFFSET;
use std::fs;
use std::time::Duration;

/// `flock` among the system calls of 32-bit programs, on x86 and on ARM alike. Neither 64-bit system
/// has under this number a call that locks files.
#[cfg(target_pointer_width = "64")]
const SMALL_FLOCK: i64 = 143;
#[cfg(not(target_pointer_width = "64"))]
const SMALL_FLOCK: i64 = libc::SYS_flock as i64;

/// First pause before it is looked again what a thread is about that is not at rest yet.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
/// The pauses double so often: a second and more in all, for a processor that many want.
const PAUSES: u32 = 16;

/// The owner whom the kernel calls `number`, of a lock of the bytes from `start` to `end` that the
/// thread `tid` asks for. Where that cannot be seen, which is so for processes of another PID name
/// space and, without root, where `ptrace` is restricted, all locks are those of `fcntl`.
pub fn owner(tid: u32, number: u64, (start, end): (u64, u64)) -> LockOwner {
    // `flock` locks all of a file.
    if tid != 0 && (start, end) == (0, MAX_LOCK_OFFSET) && is_in_flock(tid) {
        LockOwner::Flock(number)
    } else {
        LockOwner::Fcntl(number)
    }
}

fn is_in_flock(tid: u32) -> bool {
    let mut pause = FIRST_PAUSE;
    for _ in 0..PAUSES {
        match system_call(tid) {
            Call::Number(number) => return number == libc::SYS_flock || number == SMALL_FLOCK,
            Call::Unknown => return false,
            // It has asked, and is about to wait for the answer.
            Call::NotYet => std::thread::sleep(pause),
        }
        pause *= 2;
    }
    false
}

#[derive(Debug, PartialEq, Eq)]
enum Call {
    Number(i64),
    NotYet,
    Unknown,
}

/// The system call that a thread waits in.
fn system_call(tid: u32) -> Call {
    let Ok(text) = fs::read_to_string(format!("/proc/{tid}/syscall")) else {
        return Call::Unknown;
    };
    match text.split_ascii_whitespace().next() {
        Some("running") => Call::NotYet,
        Some(number) => number.parse().map_or(Call::Unknown, Call::Number),
        None => Call::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn it_is_seen_what_a_thread_waits_in() {
        let (sender, receiver) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            sender.send(tid).unwrap();
            let _ = ended.recv();
        });
        let tid = receiver.recv().unwrap();
        let found = (0..1000).find_map(|_| match system_call(tid) {
            Call::NotYet => {
                std::thread::sleep(Duration::from_millis(1));
                None
            }
            seen => Some(seen),
        });
        assert_eq!(found, Some(Call::Number(libc::SYS_futex)));
        assert_eq!(owner(tid, 7, (0, MAX_LOCK_OFFSET)), LockOwner::Fcntl(7));
        assert_eq!(system_call(u32::MAX), Call::Unknown);
        drop(end);
        thread.join().unwrap();
    }
}
