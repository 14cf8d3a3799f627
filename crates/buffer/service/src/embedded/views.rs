//! Attached instances, and mounted ones: one mount for each, shared by the job's views. Movers use
//! the attachment: this process never reaches into a mount of its own.
//!
//! Below the mount an instance has `striped/` and `private/<host>/`; a job's view is a symbolic
//! link to one of them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_client::{Fs, Mount, MountOptions, mount};
use forebay_model::jobscript::AccessMode;
use forebay_wire::message::SetAttr;
use forebay_wire::stream::Address;

use crate::protocol::{InstanceId, Owner};

/// The directory of the shared name space in an instance.
pub(super) const STRIPED: &str = "striped";

struct View {
    /// The session with the instance; outlives its mount, because a new one takes long.
    attached: Fs,
    mount: Option<Mount>,
    users: u32,
}

/// The mounts of one process.
pub(super) struct Views {
    directory: PathBuf,
    daemon: Address,
    host: String,
    mounted: BTreeMap<InstanceId, View>,
}

impl Views {
    pub fn new(directory: PathBuf, daemon: Address, host: String) -> Views {
        Views {
            directory,
            daemon,
            host,
            mounted: BTreeMap::new(),
        }
    }

    fn path(&self, instance: InstanceId) -> PathBuf {
        self.directory.join(format!("i{}", instance.0))
    }

    /// The directory of one access mode in an instance.
    fn space(&self, mode: AccessMode) -> PathBuf {
        match mode {
            AccessMode::Private => Path::new("private").join(&self.host),
            AccessMode::Striped | AccessMode::LoadBalanced => PathBuf::from(STRIPED),
        }
    }

    /// The same in the instance's mount.
    fn root(&self, instance: InstanceId, mode: AccessMode) -> PathBuf {
        self.path(instance).join(self.space(mode))
    }

    /// Attaches an instance, if it is not attached, and makes the directory of an access mode.
    pub fn attach(
        &mut self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
    ) -> Result<Fs, String> {
        let attached = match self.mounted.get(&instance) {
            Some(view) => view.attached.clone(),
            None => {
                let id = forebay_wire::InstanceId(instance.0);
                let options = forebay_client::Options::default();
                let attached = Fs::attach(self.daemon.clone(), id, options);
                let attached =
                    attached.map_err(|e| format!("the instance cannot be attached: {e}"))?;
                let view = View {
                    attached: attached.clone(),
                    mount: None,
                    users: 0,
                };
                self.mounted.insert(instance, view);
                attached
            }
        };
        let space = self.space(mode);
        let made = attached.mkdir_all(&space, 0o755).and_then(|root| {
            if (root.uid, root.gid) == (owner.uid, owner.gid) {
                return Ok(());
            }
            let set = SetAttr {
                uid: Some(owner.uid),
                gid: Some(owner.gid),
                ..SetAttr::default()
            };
            attached.set_attr(root.ino, None, set).map(|_| ())
        });
        made.map_err(|e| format!("`{}` in the instance: {e}", space.display()))?;
        Ok(attached)
    }

    /// Mounts an instance, if it is not mounted, and makes the directory of an access mode.
    pub fn enter(
        &mut self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
    ) -> Result<(), String> {
        let path = self.path(instance);
        let attached = self.attach(instance, mode, owner)?;
        let Some(view) = self.mounted.get_mut(&instance) else {
            return Err("the instance is not attached".to_owned());
        };
        if view.mount.as_ref().is_none_or(Mount::has_ended) {
            fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let name = format!("forebay-{}", instance.0);
            let options = MountOptions {
                name,
                ..MountOptions::default()
            };
            view.mount = Some(mount(attached, &path, &options).map_err(|e| e.to_string())?);
        }
        view.users += 1;
        Ok(())
    }

    /// One user less; the last one unmounts.
    pub fn leave(&mut self, instance: InstanceId) -> Result<(), String> {
        let Some(view) = self.mounted.get_mut(&instance) else {
            return Ok(());
        };
        view.users = view.users.saturating_sub(1);
        if view.users > 0 {
            return Ok(());
        }
        let Some(mount) = view.mount.take() else {
            return Ok(());
        };
        let path = self.path(instance);
        if let Err(error) = mount.unmount() {
            // Someone still has a file open there: the mount goes when that is closed.
            detach(&path).map_err(|e| format!("{}: {error}; {e}", path.display()))?;
        }
        let _ = fs::remove_dir(&path);
        Ok(())
    }

    /// Unmounts an instance that is to be removed and ends the session with it.
    pub fn end(&mut self, instance: InstanceId) -> Result<(), String> {
        if let Some(view) = self.mounted.get_mut(&instance) {
            view.users = 0;
        }
        let left = self.leave(instance);
        self.mounted.remove(&instance);
        left
    }

    /// Unmounts everything.
    pub fn leave_all(&mut self) {
        let instances: Vec<InstanceId> = self.mounted.keys().copied().collect();
        for instance in instances {
            let _ = self.end(instance);
        }
    }

    /// Makes a job's view at `path`, which ends with `/`.
    pub fn show(&self, instance: InstanceId, mode: AccessMode, path: &str) -> Result<(), String> {
        let link = Path::new(path.trim_end_matches('/'));
        let fail = |e: io::Error| format!("{}: {e}", link.display());
        let parent = link.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(fail)?;
        match fs::remove_file(link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        std::os::unix::fs::symlink(self.root(instance, mode), link).map_err(fail)
    }

    /// Takes a job's view away.
    pub fn hide(&self, path: &str) {
        let link = Path::new(path.trim_end_matches('/'));
        let _ = fs::remove_file(link);
        if let Some(parent) = link.parent() {
            let _ = fs::remove_dir(parent);
        }
    }
}

/// Takes away mounts whose process has ended.
pub(super) fn unmount_rests(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with('i') && detach(&entry.path()).is_ok() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Breaks the connections of mounts below `directory`. A process that was killed while a thread of
/// its own waited for its own mount can end only then; whoever mounted it may do this.
pub(super) fn abort_rests(directory: &Path) {
    let Ok(table) = fs::read_to_string("/proc/self/mountinfo") else {
        return;
    };
    for line in table.lines() {
        // Fields: number, parent, major:minor, root, mount point, …
        let mut fields = line.split(' ').skip(2);
        let (Some(device), Some(point)) = (fields.next(), fields.nth(1)) else {
            continue;
        };
        let Some((_, connection)) = device.split_once(':') else {
            continue;
        };
        if Path::new(point).starts_with(directory) {
            let abort = format!("/sys/fs/fuse/connections/{connection}/abort");
            if fs::write(abort, "1").is_err() {
                let force =
                    rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
                let _ = rustix::mount::unmount(point, force);
            }
        }
    }
}

/// Unmounts now what is unused and later what is in use.
fn detach(path: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    use rustix::mount::{UnmountFlags, unmount};
    match unmount(path, UnmountFlags::DETACH) {
        // Not mounted: what was wanted.
        Ok(()) | Err(Errno::INVAL) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    let quiet = std::process::Stdio::null;
    let status = std::process::Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(path)
        .stdout(quiet())
        .stderr(quiet())
        .status()?;
    // It fails too if nothing is mounted there; then the directory can be removed.
    if status.success() || fs::read_dir(path).is_ok() {
        Ok(())
    } else {
        Err(io::Error::other("fusermount3 cannot unmount it"))
    }
}
