//! Directories of node-local dataspaces.
//!
//! ```text
//! DIRECTORY/USER/5656/…         data of workflow 5656, mode 0700 of the user
//! DIRECTORY/USER/persistent/…   persistent data
//! ```
//! `DIRECTORY`, `USER` and `persistent` belong to root, so that no user can put links in the place
//! of what this process opens there.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};

use crate::config::{Dataspace, DataspaceKind, SiteConfig};

/// Name of the directory of persistent data.
pub const PERSISTENT: &str = "persistent";

/// A user of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name.
    pub name: String,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Home directory.
    pub home: String,
}

impl Account {
    /// The user `uid` with group `gid`.
    pub fn find(uid: u32, gid: u32) -> Result<Account, String> {
        let found = nix::unistd::User::from_uid(uid.into()).map_err(|error| error.to_string())?;
        let user = found.ok_or_else(|| format!("user {uid} is not known on this node"))?;
        let home = user.dir.to_string_lossy().into_owned();
        Ok(Account { name: user.name, uid, gid, home })
    }
}

/// The site's node-local dataspaces.
pub fn node_spaces(config: &SiteConfig) -> impl Iterator<Item = &Dataspace> {
    config.dataspaces.iter().filter(|space| space.kind == DataspaceKind::Node)
}

/// The directory of a workflow's data in a dataspace.
pub fn of_workflow(space: &Dataspace, account: &Account, workflow: u32) -> PathBuf {
    space.directory.join(&account.name).join(workflow.to_string())
}

/// The directory of a user's persistent data in a dataspace.
pub fn of_persistent(space: &Dataspace, account: &Account) -> PathBuf {
    space.directory.join(&account.name).join(PERSISTENT)
}

/// Creates a directory unless it exists. Fails if something else is there.
fn make_directory(path: &Path, mode: u32) -> io::Result<bool> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => {
            // Whatever the umask is.
            fs::set_permissions(path, Permissions::from_mode(mode))?;
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path)?;
            if found.is_dir() { Ok(false) } else { Err(ErrorKind::NotADirectory.into()) }
        }
        Err(error) => Err(error),
    }
}

/// Creates the directory of a workflow's data with its parents; returns it.
pub fn prepare(space: &Dataspace, account: &Account, workflow: u32) -> io::Result<PathBuf> {
    fs::create_dir_all(&space.directory)?;
    make_directory(&space.directory.join(&account.name), 0o711)?;
    make_directory(&of_persistent(space, account), 0o711)?;
    let directory = of_workflow(space, account, workflow);
    if make_directory(&directory, 0o700)? {
        chown(&directory, Some(account.uid), Some(account.gid))?;
    }
    Ok(directory)
}

/// Moves the entries of another workflow's directory into that of this one, as the user, and leaves a
/// link in its place for programs that use it.
///
/// # Errors
/// Both have an entry of one name, or the file system fails. Nothing is lost.
pub fn merge(space: &Dataspace, account: &Account, from: u32, to: u32) -> Result<(), String> {
    let (old, new) = (of_workflow(space, account, from), of_workflow(space, account, to));
    let failed = |error: io::Error| format!("{}: {error}", old.display());
    match fs::symlink_metadata(&old) {
        Ok(found) if found.is_dir() => {}
        // It was merged before, or the job had nothing on this node.
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    }
    // The user could replace a directory by a link while root moves what is in it.
    let program = std::env::current_exe().map_err(failed)?;
    let output = Command::new(program)
        .arg("merge")
        .args([&old, &new])
        .uid(account.uid)
        .gid(account.gid)
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.trim().trim_start_matches("error: ").to_owned());
    }
    fs::remove_dir(&old).map_err(failed)?;
    symlink(to.to_string(), &old).map_err(failed)
}

/// Moves the entries of a directory; directories that both have become one.
///
/// # Errors
/// Both have another entry of one name, or the file system fails.
pub fn merge_entries(old: &Path, new: &Path) -> Result<(), String> {
    let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    for entry in fs::read_dir(old).map_err(|error| failed(old, error))? {
        let entry = entry.map_err(|error| failed(old, error))?;
        let (from, to) = (entry.path(), new.join(entry.file_name()));
        let is_directory =
            |path: &Path| fs::symlink_metadata(path).ok().map(|found| found.is_dir());
        match (is_directory(&from), is_directory(&to)) {
            (_, None) => fs::rename(&from, &to).map_err(|error| failed(&from, error))?,
            (Some(true), Some(true)) => {
                merge_entries(&from, &to)?;
                fs::remove_dir(&from).map_err(|error| failed(&from, error))?;
            }
            (_, Some(_)) => {
                return Err(format!(
                    "two jobs before this one have a file {} on this node: rename it in one of them",
                    to.display()
                ));
            }
        }
    }
    Ok(())
}

/// Bytes in files, and files and other entries, below a directory. No link is followed, also if the
/// user puts one in the place of a directory meanwhile.
pub fn usage(directory: &Path) -> (u64, u64) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let (mut bytes, mut files) = (0, 0);
    let Ok(root) = rustix::fs::open(directory, flags | OFlags::NOFOLLOW, Mode::empty()) else {
        return (0, 0);
    };
    let mut waiting = vec![PathBuf::from(".")];
    while let Some(here) = waiting.pop() {
        let opened = rustix::fs::openat2(&root, &here, flags, Mode::empty(), within);
        let Ok(entries) = opened.and_then(|at| Dir::read_from(&at).map(|dir| (at, dir))) else {
            continue;
        };
        let (at, entries) = entries;
        for entry in entries.flatten() {
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let Ok(found) = rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => waiting.push(here.join(OsStr::from_bytes(name.to_bytes()))),
                FileType::RegularFile => {
                    bytes += u64::try_from(found.st_size).unwrap_or(0);
                    files += 1;
                }
                _ => files += 1,
            }
        }
    }
    (bytes, files)
}

/// Removes the directories of a workflow's data, but no persistent data.
pub fn remove(config: &SiteConfig, account: &Account, workflows: &[u32]) -> io::Result<()> {
    for space in node_spaces(config) {
        for workflow in workflows {
            let path = of_workflow(space, account, *workflow);
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(&path)?,
                Ok(_) => fs::remove_file(&path)?,
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Makes data of a workflow persistent: moves them to the user's persistent data, and leaves a link
/// for the jobs that follow. Returns whether the node has them.
///
/// # Errors
/// Other persistent data have the name.
pub fn store(
    space: &Dataspace,
    account: &Account,
    workflow: u32,
    path: &str,
) -> Result<bool, String> {
    let from = of_workflow(space, account, workflow).join(path);
    let to = of_persistent(space, account).join(path);
    let failed = |error: io::Error| format!("{}: {error}", from.display());
    match fs::symlink_metadata(&from) {
        // Stored before.
        Ok(found) if found.is_symlink() => return Ok(fs::symlink_metadata(&to).is_ok()),
        Ok(found) if found.uid() != account.uid => {
            return Err(format!("{}: belongs to another user", from.display()));
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed(error)),
    }
    if fs::symlink_metadata(&to).is_ok() {
        return Err(format!(
            "persistent data called {path} exist on this node: remove them with \
             `forebay workflow persist delete {}://{path}`, or choose another name",
            space.name
        ));
    }
    assert!(!path.contains('/'), "the directives allow one name");
    fs::rename(&from, &to).map_err(failed)?;
    // In root's directory nobody can replace it by a link any more.
    if let Err(error) = make_private(&to, account.uid) {
        let _ = fs::rename(&to, &from);
        return Err(failed(error));
    }
    symlink(&to, &from).map_err(failed)?;
    let parent = File::open(of_persistent(space, account));
    parent.and_then(|parent| parent.sync_all()).map_err(failed)?;
    Ok(true)
}

/// Takes the permissions of others from a file or directory of a user; sharing gives them.
fn make_private(path: &Path, uid: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if found.uid() != uid {
        return Err(ErrorKind::PermissionDenied.into());
    }
    file.set_permissions(Permissions::from_mode(found.mode() & 0o700))
}

/// Removes persistent data.
pub fn delete(space: &Dataspace, account: &Account, path: &str) -> io::Result<()> {
    let target = of_persistent(space, account).join(path);
    match fs::symlink_metadata(&target) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&target),
        Ok(_) => fs::remove_file(&target),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
