//! The process that serves a mount until it is unmounted.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_client::{Fs, Mount, MountOptions, mount};
use forebay_console::print_stdout;
use forebay_daemon::attach_persistent;
use forebay_daemon::config::selected_file;
use forebay_fuse::mount::{MountEntry, mount_table};
use forebay_store::daemon::Daemon;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

use crate::options::Options;
use crate::{MOUNT_FAILED, MOUNTED, fail, is_of_directories, local, read_only_flag};

/// Interval at which the process checks whether it was unmounted, or has received a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Mounts, reports that to the process that waits, and serves.
pub fn serve(source: &str, directory: &Path, options: &Options) -> ExitCode {
    // Fails only if this process leads a session already.
    let _ = rustix::process::setsid();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // Registration fails only for signals that cannot be caught.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    raise_hard_descriptor_limit();
    let (daemons, mounted) = match mount_source(source, directory, options) {
        Ok(Some(mounted)) => mounted,
        // The process of the first mount serves this one, too.
        Ok(None) => {
            return match print_stdout(MOUNTED) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail(MOUNT_FAILED, &error.to_string()),
            };
        }
        Err(reason) => return fail(MOUNT_FAILED, &reason),
    };
    if let Err(error) = detach_from_terminal() {
        return fail(MOUNT_FAILED, &error.to_string());
    }
    while !mounted.is_unmounted() && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(POLL_INTERVAL);
    }
    if !mounted.is_unmounted() {
        detach_all(mounted.path());
    }
    drop(mounted);
    let stopped: Vec<io::Result<()>> = daemons.into_iter().map(Daemon::stop).collect();
    match stopped.into_iter().all(|stopped| stopped.is_ok()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(MOUNT_FAILED),
    }
}

fn mount_source(
    source: &str,
    directory: &Path,
    options: &Options,
) -> Result<Option<(Vec<Daemon>, Mount)>, String> {
    let directory = directory.canonicalize();
    let directory = directory.map_err(|error| format!("mount point: {error}"))?;
    let Some((daemons, fs)) = attach(source, &directory, options)? else {
        return Ok(None);
    };
    let defaults = MountOptions::default();
    let mounted = mount(
        fs,
        &directory,
        &MountOptions {
            threads: options.threads.unwrap_or(defaults.threads),
            passthrough: options.passthrough,
            kernel_permissions: options.kernel_permissions,
            read_only: options.read_only,
            synchronous: options
                .kernel_flags
                .intersects(MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC),
            // All mounts of directories are one file system of this kernel.
            local_locks: !daemons.is_empty(),
            name: source.to_owned(),
            ..defaults
        },
    );
    let mounted = mounted.map_err(|error| error.to_string())?;
    if options.kernel_flags != MountFlags::NOSUID | MountFlags::NODEV {
        let flags = options.kernel_flags | read_only_flag(options);
        mount_remount(&directory, flags, "")
            .map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    Ok(Some((daemons, mounted)))
}

/// `None`: another process has mounted the same directories, and they are mounted at `point`, too.
fn attach(
    source: &str,
    point: &Path,
    options: &Options,
) -> Result<Option<(Vec<Daemon>, Fs)>, String> {
    if !is_of_directories(source) {
        let file = selected_file(options.pool.clone());
        let fs = attach_persistent(&file, source).map_err(|error| error.to_string())?;
        return Ok(Some((Vec::new(), fs)));
    }
    let directories = directories_of(source)?;
    local::attach(&directories, options, || mount_again(&directories, point, options))
}

fn directories_of(source: &str) -> Result<Vec<PathBuf>, String> {
    let absolute = |text: &str| {
        let path = Path::new(text).canonicalize();
        path.map_err(|error| format!("{text}: {error}"))
    };
    source.split(',').map(absolute).collect()
}

/// Mounts these directories at `point`, too, if another process of this program has mounted them.
fn mount_again(directories: &[PathBuf], point: &Path, options: &Options) -> Result<bool, String> {
    let failed = |error: io::Error| format!("{}: {error}", point.display());
    let is_source = |entry: &MountEntry| {
        let source = entry.source.to_str().filter(|_| entry.kind == "fuse.forebay");
        source.is_some_and(|text| directories_of(text).is_ok_and(|found| found == directories))
    };
    let Some(first) = mount_table().map_err(failed)?.into_iter().rfind(is_source) else {
        return Ok(false);
    };
    mount_bind(&first.point, point).map_err(|errno| failed(errno.into()))?;
    let mounted = mount_table().map_err(failed)?.into_iter().rfind(|entry| entry.point == point);
    let is_same = mounted.is_some_and(|entry| is_source(&entry) && entry.device == first.device);
    let flags = MountFlags::BIND | options.kernel_flags | read_only_flag(options);
    let mounted = match is_same {
        true => mount_remount(point, flags, "").map(|()| true),
        // The first one was unmounted meanwhile.
        false => Ok(false),
    };
    if mounted != Ok(true) {
        let _ = unmount(point, UnmountFlags::DETACH);
    }
    mounted.map_err(|errno| failed(errno.into()))
}

/// Unmounts this file system wherever it is mounted. Files may be open.
fn detach_all(path: &Path) {
    let Ok(table) = mount_table() else {
        return;
    };
    let own = table.iter().rfind(|entry| entry.point == path).map(|entry| entry.device);
    for entry in table.iter().rev().filter(|entry| Some(entry.device) == own) {
        let _ = unmount(&entry.point, UnmountFlags::DETACH);
    }
}

/// Raises the limit of descriptors to that of the kernel: each open file takes some, also of
/// programs whose own limit is high. Without privileges it stays.
fn raise_hard_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = std::fs::read_to_string("/proc/sys/fs/nr_open");
    if let Some(limit) = limit.ok().and_then(|text| text.trim().parse().ok()) {
        let raised = Rlimit { current: Some(limit), maximum: Some(limit) };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Reports the mount, and closes what the caller of `mount` may wait for.
fn detach_from_terminal() -> io::Result<()> {
    let mut output = io::stdout();
    writeln!(output, "{MOUNTED}")?;
    output.flush()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir("/")
}
