//! A pool over several hosts: its roles as daemons, and the way to them.
//!
//! ```text
//! forebay run ── Unix ── Agent ──┐
//!                                ├─ TCP ── ControllerDaemon     (controller.redb)
//!                StorageDaemon ──┘
//! ```
//!
//! Each daemon is one of the state machines of this crate with sockets, a clock and a disk. The
//! messages between them may get lost with a connection: commands are repeated until they have
//! shown their effect, reports come every second, and clients repeat what is not answered.
//! Data goes straight between clients and storage daemons, also while the controller is away.

mod agent;
mod client;
mod config;
mod controller;
pub(crate) mod doors;
mod frame;
mod greet;
mod link;
mod messages;
mod relay;
mod seal;
mod server;
mod storage;

use std::fmt;
use std::fs;
use std::path::Path;

pub use agent::AgentDaemon;
pub use client::RemoteController;
pub use config::{
    AuthMethod, ConfigError, DEFAULT_CONFIG_FILE, Identity, POOL_VARIABLE, PoolConfig,
    StorageConfig, pool_from_environment,
};
pub use controller::ControllerDaemon;
pub(crate) use messages::Welcome;
pub use storage::StorageDaemon;

/// Why a daemon cannot start or go on.
#[derive(Debug)]
pub struct DaemonError {
    reason: String,
    /// The configuration is at fault.
    bad_input: bool,
}

impl DaemonError {
    fn new(reason: impl fmt::Display) -> DaemonError {
        DaemonError {
            reason: reason.to_string(),
            bad_input: false,
        }
    }

    /// About a path or an address.
    fn with_context(what: impl fmt::Display) -> impl FnOnce(std::io::Error) -> DaemonError {
        move |error| DaemonError::new(format!("{what}: {error}"))
    }

    /// Whether the user's input is at fault.
    pub fn is_bad_input(&self) -> bool {
        self.bad_input
    }
}

impl fmt::Display for DaemonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for DaemonError {}

impl From<ConfigError> for DaemonError {
    fn from(error: ConfigError) -> DaemonError {
        DaemonError {
            reason: error.to_string(),
            bad_input: true,
        }
    }
}

/// The name of this host, as it names itself.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Makes a directory of a daemon's, with these permissions. One that is there already must be the
/// daemon's own user's: whoever owns it could put other things in the place of what is in it.
fn create_private_directory(path: &Path, mode: u32) -> Result<(), DaemonError> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let at = |error| DaemonError::with_context(path.display())(error);
    fs::create_dir_all(path).map_err(at)?;
    let owner = fs::metadata(path).map_err(at)?.uid();
    let own = rustix::process::geteuid().as_raw();
    if owner != own {
        return Err(DaemonError::new(format!(
            "{}: belongs to user {owner}, but this daemon runs as user {own}; give it a directory \
             of its own",
            path.display()
        )));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at)
}

/// Writes a file so that after a crash it is there whole, or not at all.
fn write_atomically(path: &Path, contents: &[u8], mode: u32) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let options = options.create(true).truncate(true).write(true).mode(mode);
    let mut file = options.open(&new)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    match path.parent() {
        Some(parent) => fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Locks a daemon's directory; the lock ends with the file.
fn lock_directory(path: &Path) -> Result<fs::File, DaemonError> {
    let file = path.join("lock");
    let open = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&file)
        .map_err(DaemonError::with_context(file.display()))?;
    rustix::fs::flock(&open, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(
        |_| {
            let path = path.display();
            DaemonError::new(format!("{path}: another Forebay daemon runs on it"))
        },
    )?;
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_daemon_keeps_its_things_in_a_directory_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("new/one");
        create_private_directory(&path, 0o711).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o711);
        assert!(
            rustix::process::geteuid().is_root(),
            "this test gives a directory away: run as root"
        );
        std::os::unix::fs::chown(&path, Some(1000), Some(1000)).unwrap();
        let error = create_private_directory(&path, 0o711)
            .unwrap_err()
            .to_string();
        assert!(error.contains("belongs to user 1000"), "{error}");
    }
}
