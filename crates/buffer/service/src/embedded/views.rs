//! Mounted instances: one mount for each, shared by the job's views and by the movers.
//!
//! Below the mount an instance has `striped/` and `private/<host>/`; a job's view is a symbolic
//! link to one of them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_client::{Fs, Mount, MountOptions, MountReport, mount};
use forebay_model::jobscript::AccessMode;
use forebay_wire::stream::Address;

use crate::protocol::{InstanceId, Owner};

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
    pub fn root(&self, instance: InstanceId, mode: AccessMode) -> PathBuf {
        match mode {
            AccessMode::Private => self.path(instance).join("private").join(&self.host),
            AccessMode::Striped | AccessMode::LoadBalanced => self.path(instance).join("striped"),
        }
    }

    /// Mounts an instance, if it is not mounted, and makes the directory of an access mode.
    pub fn enter(
        &mut self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
    ) -> Result<(), String> {
        let path = self.path(instance);
        if !self.mounted.contains_key(&instance) {
            let id = forebay_wire::InstanceId(instance.0);
            let attached = Fs::attach(self.daemon.clone(), id, forebay_client::Options::default());
            let attached = attached.map_err(|e| format!("the instance cannot be attached: {e}"))?;
            self.mounted.insert(
                instance,
                View {
                    attached,
                    mount: None,
                    users: 0,
                },
            );
        }
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
            let mounted = mount(view.attached.clone(), &path, &options);
            view.mount = Some(mounted.map_err(|e| e.to_string())?);
            tracing::info!(instance = instance.0, path = %path.display(), "mounted");
        }
        view.users += 1;
        let root = self.root(instance, mode);
        let made = fs::create_dir_all(&root).and_then(|()| {
            use std::os::unix::fs::MetadataExt;
            let state = fs::metadata(&root)?;
            if (state.uid(), state.gid()) == (owner.uid, owner.gid) {
                return Ok(());
            }
            std::os::unix::fs::chown(&root, Some(owner.uid), Some(owner.gid))
        });
        made.map_err(|e| {
            let reason = format!("{}: {e}", root.display());
            let _ = self.leave(instance);
            reason
        })
    }

    /// What each mount has done.
    pub fn reports(&self) -> BTreeMap<InstanceId, MountReport> {
        let of = |(id, view): (&InstanceId, &View)| Some((*id, view.mount.as_ref()?.report()));
        self.mounted.iter().filter_map(of).collect()
    }

    /// One user less. The mount stays: whoever comes next finds it.
    pub fn leave_open(&mut self, instance: InstanceId) {
        if let Some(view) = self.mounted.get_mut(&instance) {
            view.users = view.users.saturating_sub(1);
        }
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
            tracing::warn!(instance = instance.0, %error, "a mount is in use; it goes when it no longer is");
            // Someone still has a file open there: the mount goes when that is closed.
            detach(&path).map_err(|e| format!("{}: {error}; {e}", path.display()))?;
        }
        let _ = fs::remove_dir(&path);
        tracing::info!(instance = instance.0, "unmounted");
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
