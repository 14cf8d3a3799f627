//! The lock of a pool's directory: one process at a time has it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_net::lock_file;

use super::sharing::JoinedPool;
use crate::error::DaemonError;
use crate::mounts;

/// Time to wait for a killed process to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to wait for a process that may only be reading the pool's status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// Access to a pool's directory.
pub enum Acquired {
    /// This process has locked it.
    Locked(fs::File),
    /// Another process serves the pool in it.
    Joined(Box<JoinedPool>),
}

/// Locks the directory for this process, or joins the one that has it, if that permits it. If it does
/// not, `wait` is asked, with the reason, whether to go on waiting: after a time in which a killed
/// process may exit.
pub fn acquire_directory(
    directory: &Path,
    wait: &mut dyn FnMut(&str) -> bool,
) -> Result<Acquired, DaemonError> {
    let started = Instant::now();
    loop {
        let refused = match try_lock_directory(directory) {
            Ok(lock) => return Ok(Acquired::Locked(lock)),
            Err(refused) => refused,
        };
        if let Some(joined) = JoinedPool::join(directory)? {
            return Ok(Acquired::Joined(Box::new(joined)));
        }
        let timeout = if holder_is_dying(directory) { EXIT_TIMEOUT } else { STATUS_TIMEOUT };
        if started.elapsed() > timeout && !wait(&refused) {
            return Err(DaemonError::new(refused));
        }
        release_dying_holder(directory);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Locks the directory if the process that had it is gone.
pub fn try_lock_abandoned(directory: &Path) -> Option<fs::File> {
    let lock = try_lock_directory(directory).ok();
    if lock.is_none() {
        release_dying_holder(directory);
    }
    lock
}

/// Ends the mounts of a killed process that has the lock, since it may wait for their requests.
fn release_dying_holder(directory: &Path) {
    if holder_is_dying(directory) {
        mounts::abort_stale_mounts(&directory.join("mounts"));
    }
}

/// Whether the process that has locked the directory is dead, or about to be.
fn holder_is_dying(directory: &Path) -> bool {
    let holder = fs::read_to_string(directory.join("lock")).unwrap_or_default();
    is_dying(holder.trim())
}

/// Whether the process with this id is dead, or has only threads that wait for the kernel.
fn is_dying(process: &str) -> bool {
    if process.is_empty() || !process.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    match fs::read_to_string(format!("/proc/{process}/stat")) {
        // The state follows the name, which is in parentheses.
        Ok(stat) => stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Locks the directory, unless another process has it.
pub fn try_lock_directory(directory: &Path) -> Result<fs::File, String> {
    let locked = lock_file::lock_directory(directory);
    let Some(mut file) = locked.map_err(|e| format!("`lock` cannot be locked: {e}"))? else {
        let holder = fs::read_to_string(directory.join("lock")).unwrap_or_default();
        return Err(format!(
            "process {} uses it; wait until that has ended, or name another directory",
            holder.trim()
        ));
    };
    let noted = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    noted.map_err(|e| format!("`lock` cannot be written: {e}"))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lock_of_a_status_reader_delays_opening() {
        let pool = tempfile::tempdir().unwrap();
        let reader = try_lock_directory(pool.path()).unwrap();
        let leave = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            drop(reader);
        });
        let acquire = || acquire_directory(pool.path(), &mut |_| false);
        let taken = acquire().unwrap();
        leave.join().unwrap();
        // One that stays is refused.
        let refused = acquire().err().unwrap().to_string();
        assert!(refused.contains("uses it; wait until that has ended"), "{refused}");
        drop(taken);
        assert!(matches!(acquire(), Ok(Acquired::Locked(_))));
    }
}
