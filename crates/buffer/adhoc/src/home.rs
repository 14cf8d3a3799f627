//! The private directories of an instance: one on each host, and one of the leader.
//!
//! A directory is locked by the process that uses it. One without such a process is what a killed
//! process has left: it is removed, unless it is marked as holding data for a stage-out.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use forebay_daemon::mounts::remove_stale_mounts;
use forebay_fuse::mount::mount_table;
use rustix::fs::{FlockOperation, flock};

/// Beginning of the names of all directories.
const NAME_PREFIX: &str = "forebay-";
/// End of the name of a leader's directory.
const LEADER_SUFFIX: &str = ".leader";
/// Longest path of a local directory in bytes: sockets below it must fit into 107.
const MAX_LOCAL_BYTES: usize = 64;
/// Time to wait for a process that is about to end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a directory without a process may be that of a process that is restarted.
const RESTART_TIME: Duration = Duration::from_secs(30);
/// The file with the secret that hosts authenticate each other with.
pub const KEY_FILE: &str = "key";
/// The file that marks a directory with data for a stage-out.
const KEEP_FILE: &str = "keep";

/// A directory that this process uses.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    lock: File,
}

/// The path of a host's directory.
pub fn node_path(local: &Path, id: &str) -> PathBuf {
    local.join(format!("{NAME_PREFIX}{id}"))
}

/// The path of the leader's directory.
pub fn leader_path(local: &Path, id: &str) -> PathBuf {
    local.join(format!("{NAME_PREFIX}{id}{LEADER_SUFFIX}"))
}

/// Checks that `local` can hold directories of this process, which names the remedy if not.
///
/// # Errors
/// The reason and the remedy.
pub fn check_local(local: &Path) -> Result<(), String> {
    let shown = local.display();
    if !local.is_absolute() {
        return Err(format!("--local {shown}: the path must be absolute"));
    }
    if local.as_os_str().len() > MAX_LOCAL_BYTES {
        return Err(format!(
            "--local {shown}: longer than {MAX_LOCAL_BYTES} bytes, and sockets below it would have \
             no valid path; name a shorter path, such as a symbolic link"
        ));
    }
    match fs::metadata(local) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(format!("--local {shown}: not a directory")),
        Err(error) => Err(format!("--local {shown}: {error}")),
    }
}

impl Home {
    /// Makes a directory that only this user can access.
    ///
    /// # Errors
    /// The reason and the remedy; among others that there is one of this name.
    pub fn create(path: PathBuf) -> Result<Home, String> {
        let shown = path.display();
        let parent = path.parent().unwrap_or(Path::new("/")).display().to_string();
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                format!("{parent}: {error}; name a directory that you may write to with --local")
            }
            _ => format!("{shown}: {error}"),
        };
        // It gets its name when it is locked, so that nobody takes it for a remainder.
        let mut new = path.clone().into_os_string();
        new.push(format!(".{}.new", std::process::id()));
        let new = PathBuf::from(new);
        fs::DirBuilder::new().mode(0o700).create(&new).map_err(failed)?;
        let made = lock_file(&new).and_then(|lock| {
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            fs::rename(&new, &path)?;
            Ok(lock)
        });
        made.map(|lock| Home { path: path.clone(), lock }).map_err(|error| {
            let _ = fs::remove_dir_all(&new);
            match error.kind() {
                ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists => format!(
                    "{shown} exists already: two hosts share {parent}; name a directory that each \
                     host has for itself with --local"
                ),
                _ => failed(error),
            }
        })
    }

    /// Takes over the directory of a process that has ended or is about to.
    ///
    /// # Errors
    /// There is none, another process uses it, or another user owns it.
    pub fn reopen(path: PathBuf) -> Result<Home, String> {
        let shown = path.display();
        if owner(&path).map_err(|e| format!("{shown}: {e}"))? != own_uid() {
            return Err(format!("{shown}: belongs to another user"));
        }
        let lock = lock_file(&path).map_err(|e| format!("{shown}: {e}"))?;
        let started = Instant::now();
        while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            if started.elapsed() > LOCK_TIMEOUT {
                return Err(format!("{shown}: another process uses it; end that first"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Home { path, lock })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Shows that its process is alive.
    pub fn touch(&self) {
        // If it fails, the lock shows the same as long as the process runs.
        let _ = self.lock.set_modified(SystemTime::now());
    }

    /// Writes a file that only this user can read.
    ///
    /// # Errors
    /// The file and the reason.
    pub fn write(&self, name: &str, contents: &str) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        let mut options = fs::OpenOptions::new();
        let opened = options.create(true).truncate(true).write(true).mode(0o600).open(&path);
        let written = opened.and_then(|mut file| file.write_all(contents.as_bytes()));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Marks it as holding data for a stage-out.
    ///
    /// # Errors
    /// The file and the reason.
    pub fn mark_kept(&self) -> Result<(), String> {
        self.write(KEEP_FILE, "").map(drop)
    }

    /// Removes the mark.
    pub fn clear_kept(&self) {
        let _ = fs::remove_file(self.path.join(KEEP_FILE));
    }

    /// Whether it holds data for a stage-out.
    pub fn is_kept(&self) -> bool {
        is_marked(&self.path)
    }

    /// Removes it with everything in it.
    ///
    /// # Errors
    /// The path that is left and the reason.
    pub fn remove(self) -> Result<(), String> {
        remove_tree(&self.path)
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The owner of what is at `path` itself.
fn owner(path: &Path) -> std::io::Result<u32> {
    Ok(fs::symlink_metadata(path)?.uid())
}

fn lock_file(home: &Path) -> std::io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600).open(home.join("lock"))
}

/// The directory of a node's mounts.
pub fn mounts_directory(home: &Path) -> PathBuf {
    agent_directory(home).join("mounts")
}

/// The directory of a node's agent.
pub fn agent_directory(home: &Path) -> PathBuf {
    home.join("agent")
}

/// Removes a directory, after the mounts below it.
fn remove_tree(path: &Path) -> Result<(), String> {
    remove_stale_mounts(&mounts_directory(path), path);
    // Removing files through a mount would destroy what is behind it.
    if let Some(point) = mount_below(path) {
        let point = point.display();
        return Err(format!("{point} is still mounted; unmount it with `fusermount3 -u {point}`"));
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// A mount point below `path`.
fn mount_below(path: &Path) -> Option<PathBuf> {
    let table = mount_table().ok()?;
    table.into_iter().map(|entry| entry.point).find(|point| point.starts_with(path))
}

/// Removes the directories in `local` that killed processes of this user have left, half a minute
/// after they were in use. Those with data for a stage-out stay; their paths are returned.
pub fn remove_remainders(local: &Path) -> Vec<PathBuf> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(local).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_instance_name(name)) else {
            continue;
        };
        let path = local.join(name);
        if owner(&path).is_ok_and(|owner| owner == own_uid()) && !is_used(&path) {
            if is_marked(&path) {
                kept.push(path);
            } else if !was_used_recently(&path) {
                // What cannot be removed stays for the next one.
                let _ = remove_tree(&path);
            }
        }
    }
    kept
}

/// Whether a process that used the directory may be restarted.
fn was_used_recently(path: &Path) -> bool {
    let modified = fs::metadata(path.join("lock")).and_then(|found| found.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < RESTART_TIME))
}

/// Waits until the process of the leader's directory has ended, and removes the directory unless it
/// holds data for a stage-out.
pub fn remove_leader(path: &Path) {
    let started = Instant::now();
    while is_used(path) && started.elapsed() < LOCK_TIMEOUT {
        std::thread::sleep(Duration::from_millis(20));
    }
    if is_leader_path(path)
        && owner(path).is_ok_and(|owner| owner == own_uid())
        && !is_marked(path)
        && !is_used(path)
    {
        // What cannot be removed stays for the next instance.
        let _ = remove_tree(path);
    }
}

/// Whether it is the path of a leader's directory.
pub fn is_leader_path(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(LEADER_SUFFIX) && is_instance_name(name))
}

fn is_instance_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(NAME_PREFIX) else {
        return false;
    };
    let id = rest.strip_suffix(LEADER_SUFFIX).unwrap_or(rest);
    id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a directory is marked as holding data for a stage-out.
pub fn is_marked(path: &Path) -> bool {
    path.join(KEEP_FILE).exists()
}

/// Whether a process uses the directory.
pub fn is_used(path: &Path) -> bool {
    let opened = fs::OpenOptions::new().write(true).open(path.join("lock"));
    match opened {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err(),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn remainders_are_removed_and_directories_in_use_or_with_data_to_stage_out_stay() {
        let local = tempfile::tempdir().unwrap();
        let path = |id: &str| node_path(local.path(), id);
        let used = Home::create(path("00000001")).unwrap();
        let kept = Home::create(path("00000002")).unwrap();
        kept.mark_kept().unwrap();
        drop(kept);
        let long_ago = |home: Home| home.lock.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        long_ago(Home::create(path("00000003")).unwrap());
        long_ago(Home::create(leader_path(local.path(), "00000003")).unwrap());
        drop(Home::create(path("00000004")).unwrap());
        fs::create_dir(local.path().join("forebay-results")).unwrap();
        assert_eq!(remove_remainders(local.path()), [path("00000002")]);
        let names = fs::read_dir(local.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(
            names,
            ["forebay-00000001", "forebay-00000002", "forebay-00000004", "forebay-results"]
        );
        used.remove().unwrap();
        assert!(!path("00000001").exists());
    }

    #[test]
    fn directory_is_private_and_refused_where_another_has_its_name() {
        let local = tempfile::tempdir().unwrap();
        let home = Home::create(node_path(local.path(), "00000001")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(home.path()), 0o700);
        assert_eq!(mode(&home.write("key", "secret").unwrap()), 0o600);
        let refused = Home::create(node_path(local.path(), "00000001")).unwrap_err();
        assert!(refused.contains("two hosts share"), "{refused}");
        assert_eq!(fs::read_dir(local.path()).unwrap().count(), 1, "nothing else is left");
        assert!(check_local(Path::new("scratch")).unwrap_err().contains("absolute"));
        let long = PathBuf::from(format!("/{}", "d".repeat(64)));
        assert!(check_local(&long).unwrap_err().contains("longer than 64"));
        assert!(check_local(&local.path().join("none")).unwrap_err().contains("No such file"));
    }
}
