//! The process that serves a mount until it is unmounted.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_client::{Fs, Mount, MountOptions, mount};
use forebay_daemon::attach_persistent;
use forebay_daemon::config::selected_file;
use forebay_store::daemon::Daemon;
use rustix::mount::{MountFlags, UnmountFlags, mount_remount, unmount};

use crate::options::Options;
use crate::{MOUNT_FAILED, MOUNTED, fail, local, read_only_flag};

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
        Ok(mounted) => mounted,
        Err(reason) => return fail(MOUNT_FAILED, &reason),
    };
    if let Err(error) = detach_from_terminal() {
        return fail(MOUNT_FAILED, &error.to_string());
    }
    while !mounted.is_unmounted() && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(POLL_INTERVAL);
    }
    if !mounted.is_unmounted() {
        // Files may be open.
        let _ = unmount(mounted.path(), UnmountFlags::DETACH);
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
) -> Result<(Vec<Daemon>, Mount), String> {
    let directory = directory.canonicalize();
    let directory = directory.map_err(|error| format!("mount point: {error}"))?;
    let (daemons, fs) = attach(source, options)?;
    let defaults = MountOptions::default();
    let mounted = mount(
        fs,
        &directory,
        &MountOptions {
            threads: options.threads.unwrap_or(defaults.threads),
            passthrough: options.passthrough,
            kernel_permissions: options.kernel_permissions,
            read_only: options.read_only,
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
    Ok((daemons, mounted))
}

fn attach(source: &str, options: &Options) -> Result<(Vec<Daemon>, Fs), String> {
    if !source.contains('/') {
        let file = selected_file(options.pool.clone());
        let fs = attach_persistent(&file, source).map_err(|error| error.to_string())?;
        return Ok((Vec::new(), fs));
    }
    let absolute = |text: &str| {
        let path = Path::new(text).canonicalize();
        path.map_err(|error| format!("{text}: {error}"))
    };
    let directories: Vec<PathBuf> = source.split(',').map(absolute).collect::<Result<_, _>>()?;
    local::attach(&directories, options)
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
