//! Attached instances, and mounted ones: one mount for each, shared by the job's views. Movers use
//! the attachment: this process never reaches into a mount of its own.
//!
//! Below the mount an instance has `striped/` and `private/<host>/`; a job's view is a symbolic
//! link to one of them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_client::{Fs, Mount, MountOptions, MountReport, mount};
use forebay_model::jobscript::AccessMode;
use forebay_wire::message::Caller;
use forebay_wire::stream::Address;
use forebay_wire::{Errno, Ino};

use crate::protocol::{InstanceId, Owner};

/// The directory of the shared name space in an instance.
pub(crate) const STRIPED: &str = "striped";

/// How this process reaches storage daemons.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// The daemon on this host, if there is one: its address as other hosts write it, and the
    /// Unix socket through which it is reached faster.
    pub own: Option<(String, Address)>,
    /// Who we are, and how long calls wait for a daemon.
    pub options: forebay_client::Options,
}

impl Reach {
    /// Where an instance's daemons are, in their order; none are listed if the only one is our
    /// own.
    fn addresses(&self, listed: &[String]) -> Result<Vec<Address>, String> {
        if listed.is_empty() {
            let own = self.own.as_ref().map(|(_, address)| address.clone());
            return Ok(own.into_iter().collect());
        }
        let one = |text: &String| match &self.own {
            Some((known, local)) if known == text => Ok(local.clone()),
            _ => text
                .parse()
                .map_err(|_| format!("`{text}` is no address of a storage daemon")),
        };
        listed.iter().map(one).collect()
    }

    fn attach(&self, instance: InstanceId, listed: &[String]) -> Result<Fs, String> {
        let addresses = self.addresses(listed)?;
        if addresses.is_empty() {
            return Err("no storage daemon has it".to_owned());
        }
        let id = forebay_wire::InstanceId(instance.0);
        Fs::attach(addresses, id, self.options.clone()).map_err(|errno| {
            let reason = match errno {
                Errno::ENOKEY => "what listens at a storage node's address has not proved that it \
                                  is one of the pool's daemons; the log says at which"
                    .to_owned(),
                other => other.to_string(),
            };
            format!("the instance cannot be attached: {reason}")
        })
    }
}

#[derive(Default)]
struct View {
    /// A session with the instance; a new one takes long.
    attached: Option<Fs>,
    mount: Option<Mount>,
    users: u32,
}

/// The mounts of one process.
pub(crate) struct Views {
    directory: PathBuf,
    host: String,
    reach: Reach,
    /// Whether attachments outlive mounting, for movers that use them.
    keeps: bool,
    /// Each instance has a lock of its own: one that waits for its storage holds up no other.
    mounted: Mutex<BTreeMap<InstanceId, Arc<Mutex<View>>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Views {
    pub fn new(directory: PathBuf, host: String, reach: Reach) -> Views {
        Views {
            directory,
            host,
            reach,
            keeps: true,
            mounted: Mutex::default(),
        }
    }

    /// Keeps no attachment beside a mount: one that is alone with its instance may cache.
    pub fn only_mounts(mut self) -> Views {
        self.keeps = false;
        self
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

    fn view(&self, instance: InstanceId) -> Option<Arc<Mutex<View>>> {
        lock(&self.mounted).get(&instance).cloned()
    }

    /// Attaches an instance of `owner` that lies at `addresses`, if it is not attached, and makes
    /// the directory of an access mode.
    pub fn attach(
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
            None => self.reach.attach(instance, addresses)?,
        };
        view.attached = Some(attached.clone());
        let space = self.space(mode);
        furnish(&attached, &space, owner)
            .map_err(|e| format!("`{}` in the instance: {e}", space.display()))?;
        Ok(attached)
    }

    /// Mounts an instance of `owner` that lies at `addresses`, if it is not mounted, and makes the
    /// directory of an access mode.
    pub fn enter(
        &self,
        instance: InstanceId,
        mode: AccessMode,
        owner: Owner,
        addresses: &[String],
    ) -> Result<(), String> {
        let path = self.path(instance);
        let view = lock(&self.mounted).entry(instance).or_default().clone();
        let mut view = lock(&view);
        let attached = self.attach_locked(instance, mode, owner, addresses, &mut view)?;
        if view.mount.as_ref().is_none_or(Mount::has_ended) {
            if view.mount.take().is_some() {
                // What is left of a mount that was lost.
                let _ = detach(&path);
            }
            fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            let name = format!("forebay-{}", instance.0);
            let options = MountOptions {
                name,
                ..MountOptions::default()
            };
            view.mount = Some(mount(attached, &path, &options).map_err(|e| e.to_string())?);
            tracing::info!(instance = instance.0, path = %path.display(), "mounted");
        }
        if !self.keeps {
            view.attached = None;
        }
        view.users += 1;
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
    pub fn leave(&self, instance: InstanceId) -> Result<(), String> {
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
        let path = self.path(instance);
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
    pub fn end(&self, instance: InstanceId) -> Result<(), String> {
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
    pub fn end_unused(&self, instance: InstanceId) {
        let unused = |view: Arc<Mutex<View>>| lock(&view).users == 0;
        if self.view(instance).is_some_and(unused) {
            let _ = self.end(instance);
        }
    }

    /// Unmounts everything.
    pub fn leave_all(&self) {
        let instances: Vec<InstanceId> = lock(&self.mounted).keys().copied().collect();
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

/// Makes the directory of an access mode for the instance's owner, with the permissions of the
/// instance; one that is there already stays as it is. It has its owner from the beginning, so that
/// nothing is left half done.
fn furnish(attached: &Fs, space: &Path, owner: Owner) -> Result<(), Errno> {
    let mut parent = Ino::ROOT;
    for above in space.parent().into_iter().flat_map(Path::iter) {
        let name = above.as_bytes();
        parent = match attached.lookup(parent, name) {
            Err(Errno::ENOENT) => match attached.mkdir(parent, name, 0o755) {
                Err(Errno::EEXIST) => attached.lookup(parent, name)?.ino, // By another host.
                made => made?.ino,
            },
            found => found?.ino,
        };
    }
    let name = space.file_name().ok_or(Errno::EINVAL)?.as_bytes();
    match attached.lookup(parent, name) {
        Err(Errno::ENOENT) => {}
        found => return found.map(|_| ()),
    }
    let mode = attached.get_attr(Ino::ROOT)?.mode;
    let own = rustix::process::geteuid().as_raw() == owner.uid
        && rustix::process::getegid().as_raw() == owner.gid;
    // Nobody else gets as far as this in an instance of our own user: it is a directory as any.
    let mode = if own && mode & 0o007 == 0 {
        0o755
    } else {
        mode
    };
    let (uid, gid) = (owner.uid, owner.gid);
    // The owner may make nothing in a directory that is root's, and need not.
    let checked = true;
    let owners = attached.on_behalf_of(Caller { uid, gid, checked });
    match owners.mkdir(parent, name, mode) {
        Err(Errno::EEXIST) => Ok(()),
        made => made.map(|_| ()),
    }
}

/// Takes away mounts whose process has ended.
pub(crate) fn unmount_rests(directory: &Path) {
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
pub(crate) fn abort_rests(directory: &Path) {
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
