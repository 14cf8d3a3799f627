//! Daemons, instances and mounts in one directory.

use crate::Outcome;
use crate::cpu_limit::CpuLimit;
use crate::gluster::Gluster;
use crate::process::Process;
use crate::processors;
use crate::striped_admin::StripedAdmin;
use crate::work::{ClientTask, Task};
use forebay_client::{ClientOptions, Fs, MountOptions, NodeAddresses, mount};
use forebay_net::auth::PoolKey;
use forebay_net::record::DataProtection;
use forebay_protocol::address::Address;
use forebay_protocol::message::{InstanceSpec, MAX_BATCH_REQUESTS};
use forebay_protocol::{Errno, InstanceId};
use forebay_store::daemon::{self, Daemon};
use rustix::fs::Advice;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const INSTANCE: InstanceId = InstanceId(1);
pub const STRIPE: u64 = 1 << 20;
/// A benchmark's directory is named by this and its process id.
const DIRECTORY_PREFIX: &str = "forebay-bench-";
/// The daemons. The second and third share an instance; the last two protect data over TCP in the mode
/// of their name.
const DAEMONS: [&str; 5] = ["one", "two-a", "two-b", "integrity", "encrypted"];

pub fn key() -> Result<PoolKey, Errno> {
    PoolKey::new(b"for measurements only")
}

/// A contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// The underlying file system.
    Base,
    /// The library, on the daemon's host.
    Library,
    /// The library, on the daemon's host, with metadata requests in batches.
    Batches,
    /// The library, as from another host.
    Tcp,
    /// As `Tcp`, with metadata requests in batches.
    TcpBatches,
    /// The mount.
    Mount,
    /// A GlusterFS volume of one brick, mounted.
    Gluster,
    /// One TCP connection over loopback.
    Stream,
    /// As `Library`, on two daemons.
    LibraryTwo,
    /// As `Batches`, on two daemons.
    BatchesTwo,
    /// As `Tcp`, on two daemons.
    TcpTwo,
    /// As `Tcp`, with data authenticated.
    TcpIntegrity,
    /// As `Tcp`, with data encrypted.
    TcpEncrypted,
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::Base => "underlying",
            Place::Library => "library",
            Place::Batches => "batches",
            Place::Tcp => "TCP",
            Place::TcpBatches => "TCP, batches",
            Place::Mount => "mount",
            Place::Gluster => "GlusterFS",
            Place::Stream => "loopback",
            Place::LibraryTwo => "library, 2",
            Place::BatchesTwo => "batches, 2",
            Place::TcpTwo => "TCP, 2",
            Place::TcpIntegrity => "TCP, integrity",
            Place::TcpEncrypted => "TCP, encrypted",
        }
    }

    /// Whether data are transferred by descriptors.
    pub fn is_local(self) -> bool {
        matches!(self, Place::Library | Place::LibraryTwo)
    }

    /// Metadata operations that are requested together.
    pub fn operations_per_batch(self) -> usize {
        let has_batches = matches!(self, Place::Batches | Place::TcpBatches | Place::BatchesTwo);
        if has_batches { MAX_BATCH_REQUESTS } else { 1 }
    }

    pub fn nodes(self, dir: &Path) -> NodeAddresses {
        let (tcp, daemons) = match self {
            Place::Tcp | Place::TcpBatches => (true, 0..1),
            Place::TcpTwo => (true, 1..3),
            Place::TcpIntegrity => (true, 3..4),
            Place::TcpEncrypted => (true, 4..5),
            Place::LibraryTwo | Place::BatchesTwo => (false, 1..3),
            Place::Base
            | Place::Library
            | Place::Batches
            | Place::Mount
            | Place::Gluster
            | Place::Stream => (false, 0..1),
        };
        let names = DAEMONS.iter().skip(daemons.start).take(daemons.len());
        let address = |name: &&str| {
            let flash = dir.join(name);
            let text = fs::read_to_string(flash.join("tcp")).ok();
            match text.and_then(|text| text.parse().ok()) {
                Some(address) if tcp => Address::Tcp(address),
                _ => Address::Unix(flash.join("socket")),
            }
        };
        NodeAddresses(names.map(address).collect())
    }
}

/// A daemon process: serves until its input ends.
pub fn run_daemon(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let dir = PathBuf::from(arguments.next().ok_or("no directory")?);
    if let Some(core) = arguments.next() {
        processors::use_only(core.parse()?)?;
    }
    let mut options = daemon::StoreOptions::new(&dir);
    let mode = dir.file_name().and_then(|name| name.to_str()?.parse().ok());
    options.data_protection = mode.unwrap_or(DataProtection::Off);
    (options.tcp, options.key) = (Some(([127, 0, 0, 1], 0).into()), Some(key()?));
    let daemon = Daemon::start(options)?;
    if let Some(Address::Tcp(address)) = daemon.tcp_address() {
        fs::write(dir.join("tcp"), address.to_string())?;
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(daemon.stop()?)
}

/// A mount process: serves until its input ends.
pub fn run_mount(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let dir = PathBuf::from(arguments.next().ok_or("no directory")?);
    let fs = Fs::attach(Place::Mount.nodes(&dir), INSTANCE, ClientOptions::default())?;
    let mount = mount(fs, &dir.join("mnt"), &MountOptions::default())?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(mount.unmount()?)
}

/// Removes the directories of benchmarks that were killed: on tmpfs they would occupy memory.
fn remove_leftovers(parent: &Path) -> Outcome<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(DIRECTORY_PREFIX));
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        if Path::new("/proc").join(pid.to_string()).exists() {
            continue;
        }
        // Fails if it is not mounted.
        let _ = Command::new("umount").arg("--lazy").arg(entry.path().join("mnt")).output();
        fs::remove_dir_all(entry.path())?;
    }
    Ok(())
}

/// Contestants and processors of a run.
#[derive(Clone, Copy)]
pub struct Setup {
    /// GlusterFS is measured, too.
    pub gluster: bool,
    /// The number of the processor of all daemons; `None`: they use any.
    pub server_core: Option<usize>,
    /// The part of a processor that each daemon may use, in percent; `None`: it has no limit.
    pub daemon_share: Option<u64>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup { gluster: true, server_core: None, daemon_share: None }
    }
}

/// All contestants in one directory.
pub struct Site {
    pub dir: PathBuf,
    pub gluster: Option<Gluster>,
    mount: Option<Process>,
    pub daemons: Vec<Process>,
    limits: Vec<CpuLimit>,
}

impl Site {
    pub fn start(parent: &Path, setup: Setup) -> Outcome<Site> {
        remove_leftovers(parent)?;
        let dir = parent.join(format!("{DIRECTORY_PREFIX}{}", std::process::id()));
        for part in ["base", "mnt", "gluster"].iter().chain(&DAEMONS) {
            fs::create_dir_all(dir.join(part))?;
        }
        let (mut daemons, mut limits) = (Vec::new(), Vec::new());
        let core = setup.server_core.map(|core| core.to_string());
        for name in DAEMONS {
            let home = dir.join(name).to_string_lossy().into_owned();
            let arguments = ["daemon", &home].into_iter().chain(core.as_deref());
            let mut process = Process::spawn_role(&arguments.collect::<Vec<_>>())?;
            process.read_line()?;
            if let Some(percent) = setup.daemon_share {
                limits.push(CpuLimit::of_process(process.id(), percent)?);
            }
            daemons.push(process);
        }
        let options = ClientOptions { key: Some(key()?), ..ClientOptions::default() };
        for place in [Place::Library, Place::LibraryTwo, Place::TcpIntegrity, Place::TcpEncrypted] {
            let spec = InstanceSpec {
                id: INSTANCE,
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                mode: 0o777,
                capacity: 64 << 30,
                inodes: 10_000_000,
                placement: forebay_protocol::placement::Placement::single_node(),
            };
            let admin = StripedAdmin::connect(place.nodes(&dir), &options)?;
            admin.create_instance(&spec, STRIPE)?;
        }
        let mut mount = Process::spawn_role(&["mount", &dir.to_string_lossy()])?;
        mount.read_line()?;
        let gluster = match setup.gluster.then(|| Gluster::start(&dir)) {
            Some(Ok(gluster)) => Some(gluster),
            Some(Err(reason)) => {
                eprintln!("GlusterFS on {}: SKIPPED: {reason}", dir.display());
                None
            }
            None => None,
        };
        Ok(Site { dir, gluster, mount: Some(mount), daemons, limits })
    }

    /// Has several clients do a task at the same time. Returns the seconds until the last one is done.
    pub fn measure(&self, place: Place, task: Task, clients: u64) -> Outcome<f64> {
        let mut processes = Vec::new();
        for client in 0..clients {
            let mut process = Process::spawn_role(&["client"])?;
            let task = ClientTask { place, task, dir: self.dir.clone(), client, clients };
            process.write_line(&serde_json::to_string(&task)?)?;
            processes.push(process);
        }
        for process in &mut processes {
            process.read_line()?;
        }
        for process in &mut processes {
            process.write_line("go")?;
        }
        let mut longest = 0.0f64;
        for process in &mut processes {
            longest = longest.max(process.read_line()?.parse()?);
        }
        Ok(longest)
    }

    /// CPU time of all daemons.
    pub fn daemon_cpu(&self) -> Outcome<Duration> {
        self.daemons.iter().map(Process::cpu).sum()
    }

    /// Makes all data durable and drops them from the page cache, so that they are read from the disk.
    pub fn evict(&self) -> Outcome<()> {
        let mut pending = vec![self.dir.clone()];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(dir)? {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    pending.push(entry.path());
                } else if kind.is_file() && entry.metadata()?.len() >= 1 << 20 {
                    let file = fs::File::open(entry.path())?;
                    file.sync_all()?;
                    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.gluster = None;
        self.mount = None;
        self.daemons.clear();
        self.limits.clear();
        let _ = fs::remove_dir_all(&self.dir);
    }
}
