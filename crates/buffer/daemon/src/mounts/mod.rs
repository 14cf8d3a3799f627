//! Sessions with instances, and mounts of them: one per instance, shared by all jobs of the host.
//! Movers use the session: this process never accesses its own mount.
//!
//! An instance has the directories `striped/` and `private/<host>/`; the path that a job sees is a
//! symbolic link to one of them.

mod access;
mod fuse;
mod io_counters;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_client::{Fs, Mount, MountReport};
use forebay_control::controller::HostIo;
use forebay_control::messages::{InstanceId, Owner, UnixMillis};
use forebay_job_script::AccessMode;
use forebay_protocol::message::ClientHost;
use parking_lot::Mutex;

use crate::clock::now;
use access::make_mode_directory;
use fuse::{detach, mount_instance_at};
use io_counters::{ClosedInstances, io_of};

pub use access::StorageAccess;
pub(crate) use fuse::abort_stale_mounts;
pub use fuse::remove_stale_mounts;

/// The directory of the striped access mode in an instance.
pub(crate) const STRIPED_DIRECTORY: &str = "striped";

#[derive(Default)]
struct InstanceMount {
    /// A session with the instance. Opening one takes a round trip to each of its nodes.
    session: Option<Fs>,
    mount: Option<Mount>,
    /// The mount point, if it is not the default one.
    path: Option<PathBuf>,
    /// Generation of the session and the mount.
    generation: u64,
    /// Activations that use the mount.
    users: u32,
    /// Counters of mounts that have ended, and the time of the first mount.
    ended: HostIo,
}

/// The mounts of one process.
pub struct Mounts {
    directory: PathBuf,
    host: String,
    access: StorageAccess,
    /// Whether the session of a mount is kept, for movers.
    keep_sessions: bool,
    /// Each instance has its own lock: waiting for the storage of one does not block others.
    instances: Mutex<BTreeMap<InstanceId, Arc<Mutex<InstanceMount>>>>,
    /// Counters of instances that were closed in the last minutes.
    closed: ClosedInstances,
}

impl Mounts {
    /// No mounts yet. Mount points will be below `directory`; `host` names the private directories.
    pub fn new(directory: PathBuf, host: String, access: StorageAccess) -> Mounts {
        Mounts {
            directory,
            host,
            access,
            keep_sessions: true,
            instances: Mutex::default(),
            closed: ClosedInstances::default(),
        }
    }

    /// Keeps no session of its own besides the mount's: an instance with one client can be cached more.
    pub fn without_sessions(mut self) -> Mounts {
        self.keep_sessions = false;
        self
    }

    fn path(&self, instance: InstanceId) -> PathBuf {
        match self.find(instance) {
            Some(entry) => self.path_of(instance, &entry.lock()),
            None => self.default_path(instance),
        }
    }

    fn default_path(&self, instance: InstanceId) -> PathBuf {
        self.directory.join(format!("i{}", instance.0))
    }

    fn path_of(&self, instance: InstanceId, entry: &InstanceMount) -> PathBuf {
        let moved = entry.path.clone();
        moved.unwrap_or_else(|| self.default_path(instance))
    }

    /// The directory of one access mode in an instance.
    pub fn mode_directory(&self, mode: AccessMode) -> PathBuf {
        match mode {
            AccessMode::Private => Path::new("private").join(&self.host),
            AccessMode::Striped | AccessMode::LoadBalanced => PathBuf::from(STRIPED_DIRECTORY),
        }
    }

    /// The directory of an access mode below the instance's mount point.
    fn root(&self, instance: InstanceId, mode: AccessMode) -> PathBuf {
        self.path(instance).join(self.mode_directory(mode))
    }

    fn find(&self, instance: InstanceId) -> Option<Arc<Mutex<InstanceMount>>> {
        self.instances.lock().get(&instance).cloned()
    }

    /// Opens a session with an instance of `owner` on the storage daemons at `addresses`, unless
    /// there is one, and makes the directory of an access mode. `generation` is that of a mount;
    /// `None` for movers, which storage nodes never refuse.
    pub fn attach_instance(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
        addresses: &[String],
        generation: Option<u64>,
    ) -> Result<Fs, String> {
        let entry = self.instances.lock().entry(instance).or_default().clone();
        let mut entry = entry.lock();
        self.attach_locked(instance, mode, owner, addresses, generation, &mut entry)
    }

    /// Opens a session of its own with an instance that is copied to another one, and whose storage
    /// daemons are at `addresses`. It is closed when it is dropped.
    pub fn open_source(&self, instance: InstanceId, addresses: &[String]) -> Result<Fs, String> {
        let client = ClientHost { host: self.host.clone(), mount: None };
        self.access.open_session(instance, AccessMode::Striped, addresses, client)
    }

    fn attach_locked(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
        addresses: &[String],
        generation: Option<u64>,
        entry: &mut InstanceMount,
    ) -> Result<Fs, String> {
        let session = match &entry.session {
            Some(session) => session.clone(),
            None => {
                // Movers share the session of a process that keeps it.
                let mount = generation.filter(|_| !self.keep_sessions);
                let client = ClientHost { host: self.host.clone(), mount };
                self.access.open_session(instance, mode, addresses, client)?
            }
        };
        entry.session = Some(session.clone());
        let directory = self.mode_directory(mode);
        make_mode_directory(&session, &directory, owner)
            .map_err(|e| format!("`{}` in the instance: {e}", directory.display()))?;
        Ok(session)
    }

    /// Mounts an instance of `owner` on the storage daemons at `addresses`, unless it is mounted,
    /// and makes the directory of an access mode. Each call adds a user of the mount.
    pub fn mount_instance(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
        addresses: &[String],
        generation: u64,
    ) -> Result<(), String> {
        let entry = self.instances.lock().entry(instance).or_default().clone();
        let mut entry = entry.lock();
        if entry.mount.is_some() && entry.generation < generation {
            self.replace_locked(instance, mode, owner, addresses, generation, &mut entry)?;
        }
        let path = self.path_of(instance, &entry);
        if entry.generation < generation {
            entry.session = None;
        }
        let session =
            self.attach_locked(instance, mode, owner, addresses, Some(generation), &mut entry)?;
        entry.generation = generation;
        if entry.mount.as_ref().is_none_or(Mount::is_unmounted) {
            if let Some(lost) = entry.mount.take() {
                // The rest of a mount that was lost.
                entry.ended.io = entry.ended.io.plus(io_of(&lost));
                let _ = detach(&path);
            }
            entry.mount = Some(mount_instance_at(session, instance, mode, &path)?);
            if entry.ended.since == UnixMillis::default() {
                entry.ended.since = now();
            }
        }
        if !self.keep_sessions {
            entry.session = None;
        }
        entry.users += 1;
        Ok(())
    }

    /// Whether an instance is mounted.
    pub fn is_mounted(&self, instance: InstanceId) -> bool {
        self.find(instance).is_some_and(|entry| entry.lock().mount.is_some())
    }

    /// Replaces the mount of an instance by one of another generation: of a load-balanced instance,
    /// another replica. Open files stay on the old one, which is unmounted when they are closed.
    pub fn replace_mount(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
        addresses: &[String],
        generation: u64,
    ) -> Result<(), String> {
        let entry = self.instances.lock().entry(instance).or_default().clone();
        let mut entry = entry.lock();
        // Another activation may have replaced it.
        if mode != AccessMode::LoadBalanced && entry.generation >= generation {
            return Ok(());
        }
        self.replace_locked(instance, mode, owner, addresses, generation, &mut entry)
    }

    fn replace_locked(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
        addresses: &[String],
        generation: u64,
        entry: &mut InstanceMount,
    ) -> Result<(), String> {
        entry.session = None;
        let path = self.directory.join(format!("i{}.{generation}", instance.0));
        let session =
            self.attach_locked(instance, mode, owner, addresses, Some(generation), entry)?;
        let new = mount_instance_at(session, instance, mode, &path)?;
        if !self.keep_sessions {
            entry.session = None;
        }
        let replaced = entry.mount.replace(new);
        let io = replaced.as_ref().map(io_of).unwrap_or_default();
        entry.ended.io = entry.ended.io.plus(io);
        let old = (self.path_of(instance, entry), replaced);
        entry.path = Some(path);
        entry.generation = generation;
        // It may wait for a daemon that does not reply.
        let end = move || {
            let _ = detach(&old.0);
            drop(old.1);
            let _ = fs::remove_dir(&old.0);
        };
        let ending = std::thread::Builder::new().name("forebay-unmount".into());
        if let Err(error) = ending.spawn(end) {
            tracing::warn!(%instance, %error, "cannot start a thread; the old mount stays");
        }
        Ok(())
    }

    /// The counters of each mount. Mounts in transition are left out.
    pub fn reports(&self) -> BTreeMap<InstanceId, MountReport> {
        let report = |(id, entry): (&InstanceId, &Arc<Mutex<InstanceMount>>)| {
            let entry = entry.try_lock()?;
            Some((*id, entry.mount.as_ref()?.report()))
        };
        self.instances.lock().iter().filter_map(report).collect()
    }

    /// Counters of each instance's mounts, without those that were closed some minutes ago. Mounts in
    /// transition are left out.
    pub fn io(&self) -> BTreeMap<InstanceId, HostIo> {
        let instances = self.instances.lock();
        let mut io = self.closed.recent();
        for (id, entry) in instances.iter() {
            io.remove(id);
            let Some(entry) = entry.try_lock() else {
                continue;
            };
            let mounted = entry.mount.as_ref().map(io_of).unwrap_or_default();
            let sum = HostIo { io: entry.ended.io.plus(mounted), ..entry.ended };
            io.extend((sum.since != UnixMillis::default()).then_some((*id, sum)));
        }
        io
    }

    /// Removes a user of the mount. The last one unmounts it.
    pub fn unmount_instance(&self, instance: InstanceId) -> Result<(), String> {
        match self.find(instance) {
            Some(entry) => self.leave_locked(instance, &mut entry.lock()),
            None => Ok(()),
        }
    }

    fn leave_locked(&self, instance: InstanceId, entry: &mut InstanceMount) -> Result<(), String> {
        entry.users = entry.users.saturating_sub(1);
        if entry.users > 0 {
            return Ok(());
        }
        let Some(mount) = entry.mount.take() else {
            return Ok(());
        };
        entry.ended.io = entry.ended.io.plus(io_of(&mount));
        let path = self.path_of(instance, entry);
        if let Err(error) = mount.unmount() {
            tracing::warn!(%instance, %error, "mount is in use; unmounted once it is idle");
            // A file is still open: the kernel unmounts when it is closed.
            detach(&path).map_err(|e| format!("{}: {error}; {e}", path.display()))?;
        }
        let _ = fs::remove_dir(&path);
        tracing::info!(%instance, "unmounted");
        Ok(())
    }

    /// Unmounts an instance and closes the session with it.
    pub fn close_instance(&self, instance: InstanceId) -> Result<(), String> {
        let Some(entry) = self.instances.lock().remove(&instance) else {
            return Ok(());
        };
        let mut entry = entry.lock();
        entry.users = 0;
        let left = self.leave_locked(instance, &mut entry);
        entry.session = None;
        if entry.ended.since != UnixMillis::default() {
            self.closed.insert(instance, entry.ended);
        }
        left
    }

    /// Closes the session with an instance that no activation uses any more, unless movers may.
    pub fn close_unused_instance(&self, instance: InstanceId) {
        if self.keep_sessions {
            return;
        }
        let unused = |entry: Arc<Mutex<InstanceMount>>| entry.lock().users == 0;
        if self.find(instance).is_some_and(unused) {
            let _ = self.close_instance(instance);
        }
    }

    /// Unmounts all instances and closes all sessions.
    pub fn close_all(&self) {
        let instances: Vec<InstanceId> = self.instances.lock().keys().copied().collect();
        for instance in instances {
            let _ = self.close_instance(instance);
        }
    }

    /// Links a job's `path`, which ends with `/`, to an access mode of a mounted instance.
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
        // Renamed into place: at any time there is the old link or the new one.
        let new = link.with_extension("new");
        if let Err(error) = fs::remove_file(&new)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(fail(error));
        }
        std::os::unix::fs::symlink(self.root(instance, mode), &new).map_err(fail)?;
        fs::rename(&new, link).map_err(fail)
    }

    /// Removes a job's link.
    pub fn unlink_path(&self, path: &str) {
        let link = Path::new(path.trim_end_matches('/'));
        let _ = fs::remove_file(link);
        if let Some(parent) = link.parent() {
            let _ = fs::remove_dir(parent);
        }
    }
}
