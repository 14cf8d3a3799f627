//! Termination signals: unfinished files are removed, then the process exits with
//! 128 + signal number (130 for Ctrl-C).

use crate::console::print_stderr;
use forebay_console::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Unfinished files and directories, each with its parent directory if that was created for it.
static UNFINISHED: Mutex<BTreeMap<PathBuf, Option<PathBuf>>> = Mutex::new(BTreeMap::new());

fn unfinished() -> MutexGuard<'static, BTreeMap<PathBuf, Option<PathBuf>>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that waits for signals. Must be called once, before anything is written.
pub fn watch_signals() -> Result<(), Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::Failed(format!("cannot wait for signals: {e}")))?;
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // The lock is held until the process exits: nothing can be finished from here on.
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

/// Removes a file or a directory tree. The other thread may create a file in it at the same time,
/// so a directory that is "not empty" is tried again. `holder` is removed as well if it is empty.
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

/// Registers `path` as unfinished; `holder` is its parent directory, if that was created for it.
pub fn register_unfinished(path: &Path, holder: Option<&Path>) {
    unfinished().insert(path.to_path_buf(), holder.map(Path::to_path_buf));
}

/// Runs `finish` (a rename to the final name) without interruption by a signal; if it succeeds,
/// `path` is no longer unfinished.
pub fn commit_unfinished<T, E>(path: &Path, finish: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut paths = unfinished();
    let result = finish();
    if result.is_ok() {
        paths.remove(path);
    }
    result
}

/// Removes the unfinished `path`.
pub fn discard_unfinished(path: &Path) {
    let mut paths = unfinished();
    let holder = paths.remove(path).flatten();
    remove(path, holder.as_deref());
}
