//! `mount.forebay`, which `mount -t forebay` runs: mounts a persistent instance of a pool, or an
//! instance in directories of this host.

mod local;
mod options;
mod server;

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use forebay_console::print_stderr;
use options::Options;
use rustix::mount::{MountFlags, mount_remount};

/// First argument of the process that serves the mount.
const SERVE: &str = "--serve";
/// Report of that process when the mount is complete.
const MOUNTED: &str = "mounted";
/// Exit codes of `mount`.
const BAD_USAGE: u8 = 1;
const MOUNT_FAILED: u8 = 32;

#[derive(Debug, Parser)]
#[command(
    name = "mount.forebay",
    version,
    about = "Mount an instance of a Forebay burst buffer",
    after_help = "`mount -t forebay SOURCE DIRECTORY -o OPTIONS` runs this program, if it is installed as\n\
        /sbin/mount.forebay; as /sbin/mount.fuse.forebay also `mount -o remount`. docs/posix.md lists\n\
        the options.\n\n\
        Examples:\n  \
        mount -t forebay climate /mnt/climate -o pool=/etc/forebay/pool.toml\n  \
        mount -t forebay /flash/0,/flash/1 /mnt/scratch -o size=100GiB\n\n\
        Exit codes: 0 mounted, 1 wrong usage, 32 the mount failed."
)]
struct Arguments {
    /// Name of a persistent instance; or directories with a `/`, separated by commas, each for one
    /// storage daemon, which the program then runs
    source: String,
    /// The mount point
    directory: PathBuf,
    /// Options, separated by commas
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Ignore unknown options
    #[arg(short = 's')]
    sloppy: bool,
    /// Do everything but the mount
    #[arg(short = 'f')]
    fake: bool,
    /// No effect
    #[arg(short = 'n')]
    _no_table: bool,
    /// No effect
    #[arg(short = 'v')]
    _verbose: bool,
    /// No effect
    #[arg(short = 't', value_name = "TYPE")]
    _kind: Option<String>,
}

fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let serves = words.get(1).is_some_and(|word| word == SERVE);
    if serves {
        words.remove(1);
    }
    let arguments = match Arguments::try_parse_from(&words) {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { BAD_USAGE } else { 0 });
        }
    };
    match Options::parse(arguments.options.iter().map(String::as_str), arguments.sloppy) {
        Err(reason) => fail(BAD_USAGE, &reason),
        Ok(options) if options.pool.is_some() && is_of_directories(&arguments.source) => {
            fail(BAD_USAGE, "`pool=` is for instances by name, not for directories: leave it out")
        }
        Ok(_) if arguments.fake => ExitCode::SUCCESS,
        Ok(options) if options.remount => remount(&arguments, &options),
        Ok(options) if serves => server::serve(&arguments.source, &arguments.directory, &options),
        Ok(_) => start_server(&words[1..]),
    }
}

/// Whether the source of a mount is directories, not an instance of a pool.
fn is_of_directories(source: &str) -> bool {
    source.contains('/')
}

fn fail(code: u8, reason: &str) -> ExitCode {
    print_stderr(format_args!("mount.forebay: {reason}"));
    ExitCode::from(code)
}

/// Changes the options of a mount that the kernel enforces.
fn remount(arguments: &Arguments, options: &Options) -> ExitCode {
    let flags = options.kernel_flags | read_only_flag(options);
    match mount_remount(&arguments.directory, flags, "") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(MOUNT_FAILED, &format!("{}: {error}", arguments.directory.display())),
    }
}

fn read_only_flag(options: &Options) -> MountFlags {
    if options.read_only { MountFlags::RDONLY } else { MountFlags::empty() }
}

/// Starts the process that serves the mount, and waits until it is mounted.
fn start_server(arguments: &[OsString]) -> ExitCode {
    let started = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.arg(SERVE).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn()
    });
    let report = started.and_then(|mut server| {
        let mut report = String::new();
        let output = server.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // It closes its output when it has mounted.
        io::BufReader::new(output).read_to_string(&mut report)?;
        if report.trim() != MOUNTED {
            server.wait()?;
        }
        Ok(report)
    });
    match report {
        Ok(report) if report.trim() == MOUNTED => ExitCode::SUCCESS,
        // It has printed the reason.
        Ok(_) => ExitCode::from(MOUNT_FAILED),
        Err(error) => fail(MOUNT_FAILED, &error.to_string()),
    }
}
