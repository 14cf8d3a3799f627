//! Daemons' directories: permissions, locks, files that survive crashes, sockets.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_net::lock_file;

use crate::error::DaemonError;

/// Longest path of a Unix socket in bytes, below the kernel's limit of 107.
const MAX_SOCKET_PATH: usize = 100;

/// Creates a daemon's directory with these permissions. An existing one must belong to the
/// daemon's own user: any other owner could replace the files in it.
pub(crate) fn create_private_directory(path: &Path, mode: u32) -> Result<(), DaemonError> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let at = |error: std::io::Error| DaemonError::with_context(path.display())(error);
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

/// Replaces a file atomically and durably: after a crash it has its old contents or the new ones.
pub(crate) fn write_atomically(path: &Path, contents: &[u8], mode: u32) -> std::io::Result<()> {
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

/// Locks a daemon's directory. Closing the file releases the lock.
pub(crate) fn lock_directory(path: &Path) -> Result<fs::File, DaemonError> {
    let locked = lock_file::lock_directory(path);
    let locked = locked.map_err(DaemonError::with_context(path.join("lock").display()))?;
    locked.ok_or_else(|| {
        let path = path.display();
        DaemonError::new(format!("{path}: locked: another Forebay daemon uses this directory"))
    })
}

/// The path of a socket called `name` in `directory`. In a directory whose path is too long for a
/// socket, it is in the directory for temporary files, under the same name for all processes
/// of this user.
pub(crate) fn socket_path(directory: &Path, name: &str) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let path = directory.join(name);
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() <= MAX_SOCKET_PATH {
        return path;
    }
    let uid = rustix::process::geteuid().as_raw();
    let hash = blake3::hash(bytes).to_hex();
    let short = std::env::temp_dir().join(format!("forebay-{uid}-{:.16}", hash.as_str()));
    debug_assert!(short.as_os_str().len() <= MAX_SOCKET_PATH);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn directory_of_another_user_is_refused() {
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
        let error = create_private_directory(&path, 0o711).unwrap_err();
        assert!(error.to_string().contains("belongs to user 1000"), "{error}");
    }

    #[test]
    fn socket_in_a_deep_directory_gets_a_short_path() {
        let shallow = Path::new("/run/forebay");
        assert_eq!(socket_path(shallow, "a.socket"), shallow.join("a.socket"));
        let deep = PathBuf::from(format!("/{}", "d".repeat(120)));
        let (one, other) = (socket_path(&deep, "a.socket"), socket_path(&deep, "b.socket"));
        assert!(one != other && one.as_os_str().len() <= MAX_SOCKET_PATH);
        assert_eq!(one, socket_path(&deep, "a.socket"));
    }
}
