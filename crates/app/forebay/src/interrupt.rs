//! Ctrl-C and its kin: whatever is half-written is removed, then the process ends with
//! 128 + signal number (130 for Ctrl-C).

use crate::console::print_stderr;
use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Files and directories that are not finished yet, each with the directory that was made to hold
/// it, if one was.
static UNFINISHED: Mutex<BTreeMap<PathBuf, Option<PathBuf>>> = Mutex::new(BTreeMap::new());

fn unfinished() -> MutexGuard<'static, BTreeMap<PathBuf, Option<PathBuf>>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that waits for signals. Call once, before anything is written.
pub fn watch_signals() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::Failed(format!("cannot wait for signals: {e}")))?;
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Held to the end of the process: nothing can be finished from here on.
                let paths = unfinished();
                for (path, holder) in paths.iter() {
                    remove(path, holder.as_deref());
                }
                print_stderr("\ninterrupted: nothing was written");
                std::process::exit(128 + signal);
            }
        })
        .map_err(|e| Failure::Failed(format!("cannot start a thread: {e}")))?;
    Ok(())
}

/// Removes a file or a directory with what is in it. The other thread may be creating a file in
/// it at the same time, so a directory that is "not empty" is tried again.
/// The directory that was made to hold it goes as well if nothing else is in it.
fn remove(path: &Path, holder: Option<&Path>) {
    for _ in 0..20 {
        let done = if path.is_dir() {
            std::fs::remove_dir_all(path).is_ok()
        } else {
            std::fs::remove_file(path).is_ok() || !path.exists()
        };
        if done {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    if let Some(holder) = holder {
        let _ = std::fs::remove_dir(holder);
    }
}

/// Notes `path` as half-written from now on; `holder` is the directory that was made to hold it, if
/// there was none before.
pub fn register_unfinished(path: &Path, holder: Option<&Path>) {
    unfinished().insert(path.to_path_buf(), holder.map(Path::to_path_buf));
}

/// Runs `finish` (a rename to the final name), which no signal can cut in half; afterwards
/// `path` no longer counts as half-written if it succeeded.
pub fn commit_unfinished<T, E>(path: &Path, finish: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut paths = unfinished();
    let result = finish();
    if result.is_ok() {
        paths.remove(path);
    }
    result
}

/// Removes `path` and forgets it.
pub fn discard_unfinished(path: &Path) {
    let mut paths = unfinished();
    let holder = paths.remove(path).flatten();
    remove(path, holder.as_deref());
}
