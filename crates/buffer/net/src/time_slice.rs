//! Time slices of threads that answer requests.
//!
//! A thread that others wait for runs for some microseconds, then sleeps. On a host whose processors
//! are busy it competes with threads that compute, and by default waits until one of them has used up
//! its slice of some milliseconds. Since Linux 6.12 a thread may ask for shorter slices of its own: it
//! gets no more processor time, but gets it sooner.

use std::io;
use std::mem;

/// The shortest slice that Linux grants, in nanoseconds.
const SLICE_NS: u64 = 100_000;

/// Requests short time slices for the calling thread, and for threads that it starts from then on. Its
/// priority is unchanged. Without effect on a thread with a real-time, batch or idle policy, and
/// before Linux 6.12.
pub fn shorten_time_slice() -> io::Result<()> {
    let mut attributes = attributes()?;
    if attributes.sched_policy == libc::SCHED_OTHER as u32 {
        attributes.sched_runtime = SLICE_NS;
        // SAFETY: the kernel reads the structure, whose size is in its first field, and keeps no
        // pointer to it.
        let status = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The scheduling attributes of the calling thread.
fn attributes() -> io::Result<libc::sched_attr> {
    let size = mem::size_of::<libc::sched_attr>();
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes to the structure.
    let status = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    attributes.size = size as u32;
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_is_short_and_inherited_and_the_priority_is_kept() {
        let before = attributes().unwrap();
        let (own, inherited) = std::thread::spawn(|| {
            shorten_time_slice().unwrap();
            let inherited = std::thread::spawn(|| attributes().unwrap()).join().unwrap();
            (attributes().unwrap(), inherited)
        })
        .join()
        .unwrap();
        for after in [own, inherited] {
            assert_eq!(after.sched_nice, before.sched_nice);
            assert_eq!(after.sched_policy, before.sched_policy);
            // Kernels without slices of single threads report none.
            if before.sched_runtime > 0 {
                assert_eq!(after.sched_runtime, SLICE_NS);
            }
        }
        assert_eq!(attributes().unwrap().sched_runtime, before.sched_runtime);
    }
}
