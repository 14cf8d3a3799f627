//! The state of the library in this process: mounts, and the instances attached to.

use crate::directories::{Directories, Directory};
use crate::mounts::{self, InstanceMount};
use crate::{errno, fork, path};
use forebay_client::{ClientOptions, Fs, MountedInstance};
use forebay_protocol::{Errno, Ino};
use parking_lot::RwLock;
use std::ffi::{CString, c_int};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Descriptors kept for this library, if the limit permits.
const OWN_DESCRIPTORS: u64 = 4096;
/// The greatest descriptor number in use, and so the length of the kernel's table.
const MAX_DESCRIPTORS: u64 = 65_536;

static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());
/// The process ends, or intercepts nothing by request.
static OFF: AtomicBool = AtomicBool::new(false);

/// The mounts that this process can see.
#[derive(Debug)]
pub struct Runtime {
    mounts: Vec<Mount>,
    /// Other paths of directories in mounts: the values of DataWarp's variables, which may lead over
    /// symbolic links. Each with the path that it stands for.
    aliases: Vec<(Vec<u8>, Vec<u8>)>,
    /// The lowest descriptor that belongs to this library.
    floor: RawFd,
}

#[derive(Debug)]
struct Mount {
    mount: InstanceMount,
    /// `None`: it cannot be used.
    attached: OnceLock<Option<Attached>>,
}

/// An instance that is used through the client library.
#[derive(Debug)]
pub struct Attached {
    /// `None` when the process ends.
    fs: RwLock<Option<Fs>>,
    /// The root of the mount, with `O_PATH`.
    root: OwnedFd,
    /// The device number that `stat` reports through the mount.
    pub device: u64,
    /// Effective user and group when it was attached.
    user: (u32, u32),
    /// The directories of its paths.
    pub directories: Directories,
}

/// A path in an instance.
pub struct Place {
    /// The instance.
    pub attached: &'static Attached,
    /// A session with it.
    pub fs: Fs,
    /// The path relative to its root, not empty.
    pub relative: Vec<u8>,
    /// The path as the kernel knows it.
    pub absolute: Vec<u8>,
}

impl Attached {
    /// A descriptor that has a number, and nothing else: the lowest free one.
    pub fn new_descriptor(&self, close_on_exec: bool) -> Result<RawFd, Errno> {
        let command = if close_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        // SAFETY: duplicates an open descriptor.
        let fd = unsafe { libc::fcntl(self.root.as_raw_fd(), command, 0) };
        if fd < 0 { Err(errno::last()) } else { Ok(fd) }
    }

    /// A session on behalf of the process; `None` when the process ends, or has become another user.
    fn session(&self) -> Option<Fs> {
        let fs = self.fs.read().clone()?;
        (effective_user() == self.user).then_some(fs)
    }

    fn open(mount: &InstanceMount, floor: RawFd) -> Result<Attached, Errno> {
        let point = CString::new(mount.point.clone()).map_err(|_| Errno::EINVAL)?;
        // SAFETY: `point` is a C string.
        let opened = unsafe {
            libc::open(point.as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC)
        };
        if opened < 0 {
            return Err(errno::last());
        }
        // SAFETY: it was just opened, and nobody else has it.
        let opened = unsafe { OwnedFd::from_raw_fd(opened) };
        // SAFETY: duplicates an open descriptor.
        let moved = unsafe { libc::fcntl(opened.as_raw_fd(), libc::F_DUPFD_CLOEXEC, floor) };
        if moved < 0 {
            return Err(errno::last());
        }
        // SAFETY: as above.
        let root = unsafe { OwnedFd::from_raw_fd(moved) };
        let described = MountedInstance::of_mount(&root)?;
        let delays_writes = !is_off("FOREBAY_DELAYED_WRITES");
        let options =
            ClientOptions { batch_closes: true, delays_writes, ..ClientOptions::default() };
        let fs = described.attach(options)?;
        fork::register();
        Ok(Attached {
            fs: RwLock::new(Some(fs)),
            device: crate::stat::of_descriptor(root.as_raw_fd())?.st_dev,
            root,
            user: effective_user(),
            directories: Directories::default(),
        })
    }
}

/// Whether a variable of the environment switches something off.
fn is_off(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "off")
}

fn effective_user() -> (u32, u32) {
    // SAFETY: have no requirements.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

impl Runtime {
    /// The state of this process; `None` if nothing is intercepted.
    fn get() -> Option<&'static Runtime> {
        if OFF.load(Ordering::Relaxed) {
            return None;
        }
        let known = RUNTIME.load(Ordering::Acquire);
        // SAFETY: a runtime is never freed.
        if let Some(runtime) = unsafe { known.as_ref() } {
            return Some(runtime);
        }
        let new = Box::into_raw(Box::new(Runtime::start()));
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let won = RUNTIME.compare_exchange(std::ptr::null_mut(), new, order.0, order.1);
        // Another thread may have been faster; this one's is not used then.
        let runtime = won.map_or_else(|other| other, |_| new);
        // SAFETY: as above.
        unsafe { runtime.as_ref() }
    }

    fn start() -> Runtime {
        let is_off = is_off("FOREBAY_PRELOAD");
        let mountinfo = if is_off { None } else { std::fs::read("/proc/self/mountinfo").ok() };
        let found = mounts::parse(&mountinfo.unwrap_or_default(), effective_user().0);
        let floor = if found.is_empty() { 0 } else { reserve_descriptors() };
        let aliases = if found.is_empty() { Vec::new() } else { aliases() };
        let mounts = found.into_iter().map(|mount| Mount { mount, attached: OnceLock::new() });
        Runtime { mounts: mounts.collect(), aliases, floor }
    }

    /// The path with which the kernel reaches `absolute` without the aliases.
    fn without_alias(&self, absolute: Vec<u8>) -> Vec<u8> {
        let aliased = self.aliases.iter().find_map(|(alias, target)| {
            let rest = path::below(&absolute, alias)?;
            Some([target.as_slice(), b"/", rest].concat())
        });
        aliased.unwrap_or(absolute)
    }

    fn place(&'static self, absolute: Vec<u8>) -> Option<Place> {
        let absolute = self.without_alias(absolute);
        let contains = |mount: &&Mount| path::below(&absolute, &mount.mount.point).is_some();
        let mount = self.mounts.iter().filter(contains).max_by_key(|m| m.mount.point.len())?;
        let nested =
            |point: &Vec<u8>| absolute == *point || path::below(&absolute, point).is_some();
        if mount.mount.nested.iter().any(nested) {
            return None;
        }
        let relative = path::below(&absolute, &mount.mount.point)?.to_vec();
        let attach = || Attached::open(&mount.mount, self.floor).ok();
        let attached = mount.attached.get_or_init(attach).as_ref()?;
        Some(Place { attached, fs: attached.session()?, relative, absolute })
    }
}

/// The values of DataWarp's variables that lead over symbolic links, and where they lead to.
fn aliases() -> Vec<(Vec<u8>, Vec<u8>)> {
    let variables = std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"DW_"));
    let mut aliases = Vec::new();
    for (_, value) in variables {
        // Values end with a slash.
        let text = value.as_bytes();
        let text = text.strip_suffix(b"/").unwrap_or(text);
        let Some(alias) = path::absolute(text, || None) else {
            continue;
        };
        let Ok(target) = std::fs::canonicalize(&value) else {
            continue;
        };
        let target = target.into_os_string().into_vec();
        if target != alias {
            aliases.push((alias, target));
        }
    }
    aliases
}

/// Raises the limit of descriptors, and keeps those at its end for this library. Returns the lowest
/// of them.
fn reserve_descriptors() -> RawFd {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        let wanted = (1024 + OWN_DESCRIPTORS).min(limit.rlim_max);
        if limit.rlim_cur < wanted {
            let raised = libc::rlimit { rlim_cur: wanted, ..limit };
            // SAFETY: `raised` is valid for reads.
            if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
                limit = raised;
            }
        }
    }
    let top = limit.rlim_cur.min(MAX_DESCRIPTORS);
    let floor = (top - OWN_DESCRIPTORS.min(top / 4)) as RawFd;
    forebay_net::descriptors::keep_descriptors_above(floor);
    extend_descriptor_table(floor);
    floor
}

/// Has the kernel extend the process's table of descriptors beyond `floor`. Once the process has several
/// threads, the call that needs that would wait for some 10 ms (`synchronize_rcu`).
fn extend_descriptor_table(floor: RawFd) {
    // SAFETY: the path is a C string; the descriptors are closed by their only owner.
    unsafe {
        let opened = libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        if opened < 0 {
            return; // later calls fail, too, or extend the table
        }
        let moved = libc::fcntl(opened, libc::F_DUPFD_CLOEXEC, floor);
        libc::close(opened);
        if moved >= 0 {
            libc::close(moved);
        }
    }
}

/// The place of a path; `None` if it does not lead into an instance, or only the kernel can resolve
/// it.
pub fn locate(directory: c_int, path: &[u8]) -> Option<Place> {
    let runtime = Runtime::get()?;
    if runtime.mounts.is_empty() {
        return None;
    }
    let absolute = path::absolute(path, || match directory {
        libc::AT_FDCWD => current_directory(),
        _ => None,
    })?;
    runtime.place(absolute)
}

/// The absolute path of `path` relative to the open directory `directory`, as far as known.
pub fn absolute_at(directory: c_int, path: &[u8]) -> Option<Vec<u8>> {
    let runtime = Runtime::get()?;
    let absolute = path::absolute(path, || match directory {
        libc::AT_FDCWD => current_directory(),
        fd => {
            let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
            Some(link.into_os_string().into_vec())
        }
    })?;
    Some(runtime.without_alias(absolute))
}

fn current_directory() -> Option<Vec<u8>> {
    std::env::current_dir().ok().map(|path| path.into_os_string().into_vec())
}

/// Whether a descriptor belongs to this library.
pub fn is_own_descriptor(fd: RawFd) -> bool {
    let floor = own_descriptors();
    floor > 0 && fd >= floor
}

/// The lowest descriptor of this library; 0 if it has none.
pub fn own_descriptors() -> RawFd {
    // SAFETY: a runtime is never freed.
    unsafe { RUNTIME.load(Ordering::Acquire).as_ref() }.map_or(0, |runtime| runtime.floor)
}

/// Ends all sessions: the process exits.
pub fn end() {
    OFF.store(true, Ordering::Relaxed);
    // SAFETY: as above.
    let runtime = unsafe { RUNTIME.load(Ordering::Acquire).as_ref() };
    for mount in runtime.iter().flat_map(|runtime| &runtime.mounts) {
        if let Some(Some(attached)) = mount.attached.get() {
            let ended = attached.fs.write().take();
            drop(ended);
        }
    }
}

/// In a child process: the sessions are the parent's. They are neither used nor ended here.
pub fn forget() {
    RUNTIME.store(std::ptr::null_mut(), Ordering::Release);
}

impl Place {
    /// Runs `operation` on the directory and the name of the path. `None`: the path leads over a
    /// symbolic link.
    pub fn with_parent<T>(
        &self,
        mut operation: impl FnMut(Ino, &[u8]) -> Result<T, Errno>,
    ) -> Option<Result<T, Errno>> {
        let (directory, name) = path::split(&self.relative);
        let directories = &self.attached.directories;
        let (mut found, is_new) = match directories.find(&self.fs, directory) {
            Ok(found) => found,
            Err(errno) => return Some(Err(errno)),
        };
        for attempt in 0..2 {
            let Directory::Own(parent) = found else {
                return None;
            };
            match operation(parent, name) {
                // The remembered directory does not exist any more.
                Err(Errno::ESTALE) if attempt == 0 && !is_new => {
                    directories.clear();
                    found = match directories.find(&self.fs, directory) {
                        Ok((found, _)) => found,
                        Err(errno) => return Some(Err(errno)),
                    };
                }
                // A directory that was removed meanwhile.
                Err(Errno::ESTALE) => return Some(Err(Errno::ENOENT)),
                other => return Some(other),
            }
        }
        Some(Err(Errno::ENOENT))
    }
}
