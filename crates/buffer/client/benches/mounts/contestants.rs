//! The local file system, passthrough_ll and mounts, all on one directory of the disk.

use crate::Outcome;
use crate::passthrough::Passthrough;
use crate::process::Process;
use crate::report::Target;
use forebay_client::{Admin, ClientOptions, Fs, MountOptions, mount};
use forebay_protocol::InstanceId;
use forebay_protocol::message::InstanceSpec;
use forebay_protocol::placement::Placement;
use forebay_store::daemon::{Daemon, StoreOptions};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

const INSTANCE: InstanceId = InstanceId(1);
const LOCAL: &str = "local";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contestant {
    /// The local file system.
    Local,
    /// libfuse's passthrough_ll over the local file system.
    Passthrough,
    /// A mount, the only client of its instance, in a process of its own.
    Mount,
    /// The same in the daemon's process, as `mount.forebay` and embedded pools have it.
    InProcess,
    /// A mount beside another one that does nothing.
    BesideIdle,
}

impl Contestant {
    pub fn name(self) -> &'static str {
        match self {
            Contestant::Local => LOCAL,
            Contestant::Passthrough => "pass-ll",
            Contestant::Mount => "mount",
            Contestant::InProcess => "in-process",
            Contestant::BesideIdle => "mount+idle",
        }
    }

    /// The contestant that it is compared with, and the target of the ratio.
    pub fn compared_with(self) -> (Option<Contestant>, Target) {
        match self {
            Contestant::Local => (None, Target::None),
            Contestant::Passthrough => (Some(Contestant::Local), Target::None),
            Contestant::Mount | Contestant::InProcess => {
                (Some(Contestant::Passthrough), Target::AtLeast(1.0))
            }
            Contestant::BesideIdle => (Some(Contestant::Passthrough), Target::AtLeast(0.8)),
        }
    }
}

/// A daemon process with one instance, which it mounts if a directory for that is given: serves until
/// its input ends.
pub fn run_daemon(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let dir = PathBuf::from(arguments.next().ok_or("no directory")?);
    let daemon = Daemon::start(StoreOptions::new(&dir))?;
    let admin = Admin::connect(daemon.address(), ClientOptions::default())?;
    admin.create_instance(InstanceSpec {
        id: INSTANCE,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mode: 0o755,
        capacity: 16 << 30,
        inodes: 1_000_000,
        placement: Placement::single_node(),
    })?;
    match arguments.next() {
        None => await_end_of_input()?,
        Some(at) => serve_mount(&dir, &at)?,
    }
    drop(admin);
    Ok(daemon.stop()?)
}

/// Tells the parent that the process serves, and waits until it may end.
fn await_end_of_input() -> Outcome<()> {
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A mount process, whose kernel checks permissions: serves until its input ends.
pub fn run_mount(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let (Some(flash), Some(at)) = (arguments.next(), arguments.next()) else {
        return Err("no directories".into());
    };
    serve_mount(Path::new(&flash), &at)
}

fn serve_mount(flash: &Path, at: &str) -> Outcome<()> {
    let address = forebay_protocol::address::Address::Unix(flash.join("socket"));
    let fs = Fs::attach(address, INSTANCE, ClientOptions::default())?;
    let options = MountOptions { kernel_permissions: true, ..MountOptions::default() };
    let mounted = mount(fs, Path::new(at), &options)?;
    await_end_of_input()?;
    Ok(mounted.unmount()?)
}

/// All contestants. Processes that are listed first end first.
pub struct Contestants {
    pub dir: PathBuf,
    mounts: Vec<Process>,
    daemons: Vec<Process>,
    passthrough: Option<Passthrough>,
    idle_mount: bool,
}

impl Contestants {
    /// Starts them in a new directory in `parent`.
    pub fn start(parent: &Path, options: &str, idle_mount: bool) -> Outcome<Contestants> {
        let dir = parent.join(format!("forebay-mounts-{}", std::process::id()));
        let make = |name: &str| {
            let path = dir.join(name);
            fs::create_dir_all(&path).map(|()| path)
        };
        let source = make("passed")?;
        let at = make(Contestant::Passthrough.name())?;
        make(LOCAL)?;
        let passthrough = match Passthrough::start(&dir, &source, &at, options) {
            Ok(passthrough) => Some(passthrough),
            Err(error) => {
                eprintln!("passthrough_ll: SKIPPED: {error}");
                None
            }
        };
        let (daemons, mounts) = (Vec::new(), Vec::new());
        let mut all = Contestants { dir: dir.clone(), mounts, daemons, passthrough, idle_mount };
        all.serve(&make("flash-1")?, &[make(Contestant::Mount.name())?])?;
        let flash = make("flash-in-process")?;
        all.start_process(&[Path::new("daemon"), &flash, &make(Contestant::InProcess.name())?])?;
        if idle_mount {
            let points = [make(Contestant::BesideIdle.name())?, make("idle")?];
            all.serve(&make("flash-2")?, &points)?;
        }
        Ok(all)
    }

    /// Starts a daemon, and a mount at each of these directories.
    fn serve(&mut self, flash: &Path, points: &[PathBuf]) -> Outcome<()> {
        self.start_process(&[Path::new("daemon"), flash])?;
        for at in points {
            self.start_process(&[Path::new("mount"), flash, at])?;
        }
        Ok(())
    }

    /// Starts a process, whose role is the first of its arguments, and waits until it serves.
    fn start_process(&mut self, arguments: &[&Path]) -> Outcome<()> {
        let words: Vec<_> = arguments.iter().map(|path| path.to_string_lossy()).collect();
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let mut process = Process::spawn_role(&words)?;
        process.read_line()?;
        match words.first() {
            Some(&"mount") => self.mounts.push(process),
            _ => self.daemons.push(process),
        }
        Ok(())
    }

    pub fn all(&self) -> Vec<Contestant> {
        let mut all = vec![Contestant::Local];
        all.extend(self.passthrough.is_some().then_some(Contestant::Passthrough));
        all.extend([Contestant::Mount, Contestant::InProcess]);
        all.extend(self.idle_mount.then_some(Contestant::BesideIdle));
        all
    }

    /// A new directory on the file system of a contestant.
    pub fn empty_directory(&self, contestant: Contestant) -> Outcome<PathBuf> {
        let path = self.dir.join(contestant.name()).join("work");
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// Ends all processes and removes the directory.
    pub fn stop(mut self) -> Outcome<()> {
        self.end();
        Ok(fs::remove_dir_all(&self.dir)?)
    }

    fn end(&mut self) {
        self.mounts.clear();
        self.daemons.clear();
        self.passthrough = None;
    }
}

impl Drop for Contestants {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
