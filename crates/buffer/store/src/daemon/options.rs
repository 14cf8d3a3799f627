//! Options of a storage daemon, and errors at its start.

use super::charged_use::UserRateLimits;
use super::scrubber::ScrubOptions;
use super::trusted_hosts::TrustedHosts;
use crate::log::RecoveryError;
use crate::node::Limits;
use crate::shared_space::SharedSpace;
use forebay_net::admission::ConnectionLimits;
use forebay_net::auth::PoolKey;
use forebay_net::munge::Munge;
use forebay_net::record::DataProtection;
use forebay_protocol::InstanceId;
use forebay_protocol::message::HostFence;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIN_SEGMENT_BYTES: u64 = 4 << 20;

/// Options of a storage daemon.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Directory on the flash, with `log/`, `objects/` and a lock file. Created if missing.
    pub dir: PathBuf,
    /// Path of the Unix socket to listen on.
    pub socket: PathBuf,
    /// TCP address to listen on; requires `key` or `munge`. Port 0: any free port.
    pub tcp: Option<SocketAddr>,
    /// The pool's key, which authenticates clients on other hosts.
    pub key: Option<PoolKey>,
    /// This host's `munged`, which authenticates clients on other hosts.
    pub munge: Option<Munge>,
    /// Limits of sessions and instances.
    pub limits: Limits,
    /// The capacity of the only instance, if all its nodes are in this process.
    pub shared_space: Option<SharedSpace>,
    /// Instances that the log must have, from the records of the storage node.
    pub instances: Vec<InstanceId>,
    /// Fences of compute nodes, by instance, from the records of the storage node.
    pub fences: Vec<(InstanceId, Vec<HostFence>)>,
    /// Hosts whose root has more rights than a client; `None`: all that are authenticated.
    pub trusted_hosts: Option<TrustedHosts>,
    /// Limits of connections.
    pub connection_limits: ConnectionLimits,
    /// Limits of the requests and bytes of each user in a second.
    pub user_rates: UserRateLimits,
    /// Regular comparison of all data at rest with their checksums.
    pub scrub: ScrubOptions,
    /// Protection of data to and from other hosts. Requests are always encrypted.
    pub data_protection: DataProtection,
    /// Bytes allocated to each log segment, at least 4 MiB.
    pub segment_size: u64,
    /// Interval at which changes that no client asked to sync are made durable.
    pub sync_interval: Duration,
    /// Interval at which new checksums of data at rest are made valid beyond the next boot, which
    /// syncs all data; ten times as long while others keep the device busy.
    pub checksum_interval: Duration,
}

/// Smallest budget for metadata that is assumed without configuration.
const MIN_METADATA_BYTES: u64 = 64 << 20;

/// The memory for metadata unless it is configured: an eighth of the memory that this process may use,
/// which is that of the host or of its control groups. A checkpoint takes as much again while it is
/// written.
fn default_metadata_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let host = total.unwrap_or(0).saturating_mul(1024);
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let limits = Path::new(own).ancestors().filter_map(|group| {
        let file = Path::new("/sys/fs/cgroup").join(group).join("memory.max");
        std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    });
    let usable = limits.fold(host, u64::min);
    (usable / 8).max(MIN_METADATA_BYTES)
}

impl StoreOptions {
    /// A daemon on the directory `dir` that listens on `dir/socket`.
    pub fn new(dir: impl Into<PathBuf>) -> StoreOptions {
        let dir = dir.into();
        StoreOptions {
            socket: dir.join("socket"),
            dir,
            tcp: None,
            key: None,
            munge: None,
            limits: Limits { metadata_bytes: default_metadata_bytes(), ..Limits::default() },
            shared_space: None,
            instances: Vec::new(),
            fences: Vec::new(),
            trusted_hosts: None,
            connection_limits: ConnectionLimits::default(),
            user_rates: UserRateLimits::default(),
            scrub: ScrubOptions::default(),
            data_protection: DataProtection::default(),
            segment_size: 64 << 20,
            sync_interval: Duration::from_secs(1),
            checksum_interval: Duration::from_secs(30),
        }
    }

    pub(super) fn validate(&self) -> Result<(), StartError> {
        let why = if self.tcp.is_some() && self.key.is_none() && self.munge.is_none() {
            "listening on TCP requires MUNGE or the pool's key"
        } else if self.segment_size < MIN_SEGMENT_BYTES {
            "a log segment must have at least 4 MiB"
        } else {
            return Ok(());
        };
        Err(StartError::InvalidOptions(why))
    }
}

/// Failure to start a daemon.
#[derive(Debug)]
pub enum StartError {
    /// An operation on this path or address failed.
    Io(String, io::Error),
    /// Another daemon serves the directory.
    DirectoryInUse(PathBuf),
    /// The log or its checkpoint cannot be recovered.
    Recovery(RecoveryError),
    /// The options are inconsistent.
    InvalidOptions(&'static str),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Io(what, error) => write!(f, "{what}: {error}"),
            StartError::DirectoryInUse(dir) => {
                write!(f, "{}: directory in use by another storage daemon", dir.display())
            }
            StartError::Recovery(error) => error.fmt(f),
            StartError::InvalidOptions(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StartError {}
