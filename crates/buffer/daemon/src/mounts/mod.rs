//! Attached instances, and mounted ones: one mount for each, shared by the job's views. Movers use
//! the attachment: this process never reaches into a mount of its own.
//!
//! Below the mount an instance has `striped/` and `private/<host>/`; a job's view is a symbolic
//! link to one of them.

mod access;
mod fuse;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_client::{Fs, Mount, MountReport};
use forebay_job_script::AccessMode;

use access::make_mode_directory;
use forebay_control::messages::{InstanceId, Owner};
use fuse::{detach, mount_instance_at};

pub use access::StorageAccess;
pub(crate) use fuse::{abort_stale_mounts, unmount_stale};

/// The directory of the shared name space in an instance.
pub(crate) const STRIPED_DIRECTORY: &str = "striped";

#[derive(Default)]
struct View {
    /// A session with the instance; a new one takes long.
    attached: Option<Fs>,
    mount: Option<Mount>,
    /// Where it is mounted, if that is not where instances usually are.
    path: Option<PathBuf>,
    users: u32,
}

/// The mounts of one process.
pub struct Mounts {
    directory: PathBuf,
    host: String,
    reach: StorageAccess,
    /// Whether attachments outlive mounting, for movers that use them.
    keeps: bool,
    /// Each instance has a lock of its own: one that waits for its storage holds up no other.
    mounted: Mutex<BTreeMap<InstanceId, Arc<Mutex<View>>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mounts {
    /// None yet. Mounts are to be below `directory`; `host` names the private directories.
    pub fn new(directory: PathBuf, host: String, reach: StorageAccess) -> Mounts {
        Mounts {
            directory,
            host,
            reach,
            keeps: true,
            mounted: Mutex::default(),
        }
    }

    /// Keeps no attachment beside a mount: one that is alone with its instance may cache.
    pub fn without_attachments(mut self) -> Mounts {
        self.keeps = false;
        self
    }

    fn path(&self, instance: InstanceId) -> PathBuf {
        match self.view(instance) {
            Some(view) => self.path_of(instance, &lock(&view)),
            None => self.usual_path(instance),
        }
    }

    fn usual_path(&self, instance: InstanceId) -> PathBuf {
        self.directory.join(format!("i{}", instance.0))
    }

    fn path_of(&self, instance: InstanceId, view: &View) -> PathBuf {
        let moved = view.path.clone();
        moved.unwrap_or_else(|| self.usual_path(instance))
    }

    /// The directory of one access mode in an instance.
    pub fn mode_directory(&self, mode: AccessMode) -> PathBuf {
        match mode {
            AccessMode::Private => Path::new("private").join(&self.host),
            AccessMode::Striped | AccessMode::LoadBalanced => PathBuf::from(STRIPED_DIRECTORY),
        }
    }

    /// The same in the instance's mount.
    fn root(&self, instance: InstanceId, mode: AccessMode) -> PathBuf {
        self.path(instance).join(self.mode_directory(mode))
    }

    fn view(&self, instance: InstanceId) -> Option<Arc<Mutex<View>>> {
        lock(&self.mounted).get(&instance).cloned()
    }

    /// Attaches an instance of `owner` that lies at `addresses`, if it is not attached, and makes
    /// the directory of an access mode.
    pub fn attach_instance(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
        addresses: &[String],
    ) -> Result<Fs, String> {
        let view = lock(&self.mounted).entry(instance).or_default().clone();
        self.attach_locked(instance, mode, owner, addresses, &mut lock(&view))
    }

    fn attach_locked(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
        addresses: &[String],
        view: &mut View,
    ) -> Result<Fs, String> {
        let attached = match &view.attached {
            Some(attached) => attached.clone(),
            None => self.reach.attach(instance, mode, addresses)?,
        };
        view.attached = Some(attached.clone());
        let space = self.mode_directory(mode);
        make_mode_directory(&attached, &space, owner)
            .map_err(|e| format!("`{}` in the instance: {e}", space.display()))?;
        Ok(attached)
    }

    /// Mounts an instance of `owner` that lies at `addresses`, if it is not mounted, and makes the
    /// directory of an access mode.
    pub fn mount_instance(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
        addresses: &[String],
    ) -> Result<(), String> {
        let view = lock(&self.mounted).entry(instance).or_default().clone();
        let mut view = lock(&view);
        let path = self.path_of(instance, &view);
        let attached = self.attach_locked(instance, mode, owner, addresses, &mut view)?;
        if view.mount.as_ref().is_none_or(Mount::is_unmounted) {
            if view.mount.take().is_some() {
                // What is left of a mount that was lost.
                let _ = detach(&path);
            }
            view.mount = Some(mount_instance_at(attached, instance, mode, &path)?);
        }
        if !self.keeps {
            view.attached = None;
        }
        view.users += 1;
        Ok(())
    }

    /// Whether an instance is mounted.
    pub fn is_mounted(&self, instance: InstanceId) -> bool {
        self.view(instance)
            .is_some_and(|view| lock(&view).mount.is_some())
    }

    /// Mounts the copy of a load-balanced instance that lies at `addresses` in the place of the one
    /// that is mounted. Files that are open keep to the old one, which goes when they are closed.
    pub fn switch_replica(
        &self,
        instance: InstanceId,
        owner: Owner,
        addresses: &[String],
        turn: u32,
    ) -> Result<(), String> {
        let mode = AccessMode::LoadBalanced;
        let view = lock(&self.mounted).entry(instance).or_default().clone();
        let mut view = lock(&view);
        view.attached = None;
        let path = self.directory.join(format!("i{}.{turn}", instance.0));
        let attached = self.attach_locked(instance, mode, owner, addresses, &mut view)?;
        let new = mount_instance_at(attached, instance, mode, &path)?;
        if !self.keeps {
            view.attached = None;
        }
        let old = (self.path_of(instance, &view), view.mount.replace(new));
        view.path = Some(path);
        // It may wait for a daemon that does not answer.
        let end = move || {
            let _ = detach(&old.0);
            drop(old.1);
            let _ = fs::remove_dir(&old.0);
        };
        let ending = std::thread::Builder::new().name("forebay-unmount".into());
        if let Err(error) = ending.spawn(end) {
            tracing::warn!(instance = instance.0, %error, "the old copy stays mounted");
        }
        Ok(())
    }

    /// What each mount has done. One that is just being made or unmounted is left out.
    pub fn reports(&self) -> BTreeMap<InstanceId, MountReport> {
        let report = |(id, view): (&InstanceId, &Arc<Mutex<View>>)| {
            let view = view.try_lock().ok()?;
            Some((*id, view.mount.as_ref()?.report()))
        };
        lock(&self.mounted).iter().filter_map(report).collect()
    }

    /// One user less; the last one unmounts.
    pub fn unmount_instance(&self, instance: InstanceId) -> Result<(), String> {
        match self.view(instance) {
            Some(view) => self.leave_locked(instance, &mut lock(&view)),
            None => Ok(()),
        }
    }

    fn leave_locked(&self, instance: InstanceId, view: &mut View) -> Result<(), String> {
        view.users = view.users.saturating_sub(1);
        if view.users > 0 {
            return Ok(());
        }
        let Some(mount) = view.mount.take() else {
            return Ok(());
        };
        let path = self.path_of(instance, view);
        if let Err(error) = mount.unmount() {
            tracing::warn!(instance = instance.0, %error, "in use, and unmounted when it no longer is");
            // Someone still has a file open there: the mount goes when that is closed.
            detach(&path).map_err(|e| format!("{}: {error}; {e}", path.display()))?;
        }
        let _ = fs::remove_dir(&path);
        tracing::info!(instance = instance.0, "unmounted");
        Ok(())
    }

    /// Unmounts an instance that is to be removed and ends the session with it.
    pub fn close_instance(&self, instance: InstanceId) -> Result<(), String> {
        let Some(view) = lock(&self.mounted).remove(&instance) else {
            return Ok(());
        };
        let mut view = lock(&view);
        view.users = 0;
        let left = self.leave_locked(instance, &mut view);
        view.attached = None;
        left
    }

    /// Ends the session with an instance that nobody here uses any more.
    pub fn close_unused_instance(&self, instance: InstanceId) {
        let unused = |view: Arc<Mutex<View>>| lock(&view).users == 0;
        if self.view(instance).is_some_and(unused) {
            let _ = self.close_instance(instance);
        }
    }

    /// Unmounts everything.
    pub fn close_all(&self) {
        let instances: Vec<InstanceId> = lock(&self.mounted).keys().copied().collect();
        for instance in instances {
            let _ = self.close_instance(instance);
        }
    }

    /// Makes a job's view at `path`, which ends with `/`.
    pub fn link_path(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        path: &str,
    ) -> Result<(), String> {
        let link = Path::new(path.trim_end_matches('/'));
        let fail = |e: io::Error| format!("{}: {e}", link.display());
        let parent = link.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(fail)?;
        // Whoever looks meanwhile finds the old one or the new one.
        let new = link.with_extension("new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
        std::os::unix::fs::symlink(self.root(instance, mode), &new).map_err(fail)?;
        fs::rename(&new, link).map_err(fail)
    }

    /// Takes a job's view away.
    pub fn unlink_path(&self, path: &str) {
        let link = Path::new(path.trim_end_matches('/'));
        let _ = fs::remove_file(link);
        if let Some(parent) = link.parent() {
            let _ = fs::remove_dir(parent);
        }
    }
}
