//! The configuration of a pool over several hosts: one TOML file, the same on all of them.
//!
//! `docs/pool.md` explains every entry; `examples/pool/pool.toml` is a complete one.

mod error;
mod read;
mod reload;
mod sources;
#[cfg(test)]
mod tests;
mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use forebay_net::auth::{Authenticator, PoolKey};
use forebay_net::munge::Munge;
use forebay_net::record::DataProtection;
use forebay_store::daemon::{ScrubOptions, StoreOptions, UserRateLimits};
use forebay_units::Bytes;

use forebay_control::controller::ReadBack;

pub use error::ConfigError;
pub use sources::AllowedSources;
pub use value::parse_period;

/// The pool's configuration on an installed host.
pub const DEFAULT_CONFIG_FILE: &str = "/etc/forebay/pool.toml";

/// Environment variable that names the pool: a configuration file, or a directory.
pub const POOL_VARIABLE: &str = "FOREBAY_POOL";

/// The pool named by the environment.
pub fn pool_from_environment() -> Option<PathBuf> {
    let value = std::env::var_os(POOL_VARIABLE)?;
    (!value.is_empty()).then(|| PathBuf::from(value))
}

/// The configuration file of the pool over several hosts that is selected: the one given, that of the
/// environment, or the installed one.
pub fn selected_file(given: Option<PathBuf>) -> PathBuf {
    given.or_else(pool_from_environment).unwrap_or_else(|| DEFAULT_CONFIG_FILE.into())
}

/// The way in which hosts authenticate each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// With the `munged` at this socket, or at its default one.
    Munge(Option<PathBuf>),
    /// With the secret in this file.
    Key(PathBuf),
}

/// A storage node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// Its name: that of its host, unless several storage nodes are on one host.
    pub name: String,
    /// The name of its host.
    pub host: String,
    /// The address at which its daemon listens.
    pub address: SocketAddr,
    /// Its directory on the flash.
    pub directory: PathBuf,
    /// Its share of the pool.
    pub capacity: Bytes,
    /// Memory for names, attributes and open files, unless the default is used.
    pub metadata_memory: Option<Bytes>,
    /// The addresses from which its daemon may connect to the controller.
    pub allowed_sources: AllowedSources,
}

impl StorageConfig {
    /// The socket for clients on the node itself.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }
}

/// Least time for which clients wait for a reply.
const MIN_REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Limits of each storage daemon; `None`: the default. Those of one user do not apply to root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Connections of one user.
    pub user_connections: Option<usize>,
    /// Connections for data of one user.
    pub user_data_connections: Option<usize>,
    /// Connections for data of all.
    pub data_connections: Option<usize>,
    /// Sessions of one user.
    pub user_sessions: Option<usize>,
    /// Open files of one user.
    pub user_open_files: Option<usize>,
    /// Requests of one user in a second; `None`: no limit.
    pub user_requests_per_second: Option<u64>,
    /// Bytes of contents that one user reads and writes in a second; `None`: no limit.
    pub user_bytes_per_second: Option<Bytes>,
}

impl LimitsConfig {
    /// Sets the limits of a storage daemon, whose clients wait `storage_timeout` for a reply.
    pub fn apply(&self, store: &mut StoreOptions, storage_timeout: Duration) {
        store.user_rates = UserRateLimits {
            requests: self.user_requests_per_second,
            bytes: self.user_bytes_per_second.map(|bytes| bytes.0),
            longest_delay: storage_timeout.max(MIN_REPLY_TIMEOUT) / 2,
        };
        let (connections, limits) = (&mut store.connection_limits, &mut store.limits);
        for (configured, limit) in [
            (self.user_connections, &mut connections.user),
            (self.user_data_connections, &mut connections.user_workers),
            (self.data_connections, &mut connections.workers),
            (self.user_sessions, &mut limits.max_user_sessions),
            (self.user_open_files, &mut limits.max_user_handles),
        ] {
            *limit = configured.unwrap_or(*limit);
        }
    }
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The file that it was read from.
    pub file: PathBuf,
    /// Its name.
    pub name: String,
    /// Bytes in a granule.
    pub granularity: Bytes,
    /// Whether requests are rounded up so that all fragments have the same size.
    pub equalize_fragments: bool,
    /// Bytes in a stripe.
    pub stripe: Bytes,
    /// Maximum storage nodes of an instance.
    pub max_nodes: u32,
    /// The address at which the controller listens.
    pub controller: SocketAddr,
    /// The directory of its state.
    pub controller_directory: PathBuf,
    /// The socket for clients on its own host.
    pub controller_socket: PathBuf,
    /// The file of the audit log, if there is one.
    pub audit_log: Option<PathBuf>,
    /// Ended jobs and persistent instances whose statistics the controller keeps, unless the default is
    /// used.
    pub kept_usage: Option<usize>,
    /// Longest lifetime of users' persistent instances, and that of those for which none is requested;
    /// `None`: they do not expire.
    pub persistent_lifetime_ms: Option<u64>,
    /// Time before the expiry at which it is announced, unless the default is used.
    pub persistent_warning_ms: Option<u64>,
    /// Time between expiry and removal, unless the default is used.
    pub persistent_grace_ms: Option<u64>,
    /// The user with an operator's rights, besides root.
    pub operator: u32,
    /// The hosts from which root and the operator may administer; `None`: all.
    pub administrators: Option<AllowedSources>,
    /// The only user besides root who may use the pool, if it is one user's own.
    pub only_user: Option<u32>,
    /// Its nodes.
    pub storage: Vec<StorageConfig>,
    /// The directory in which agents mount instances.
    pub agent_directory: PathBuf,
    /// The socket through which processes on a compute node reach the pool.
    pub agent_socket: PathBuf,
    /// Directory below which jobs see their mounts.
    pub mount_root: PathBuf,
    /// Time for which clients wait for a storage daemon that does not reply.
    pub storage_timeout: Duration,
    /// The way in which hosts authenticate each other.
    pub auth: AuthMethod,
    /// The protection of data between hosts.
    pub data_protection: DataProtection,
    /// Directories of the parallel file system that stages may access; empty for all.
    pub pfs_roots: Vec<String>,
    /// Maximum stages that one node moves at a time.
    pub max_stages_per_node: usize,
    /// Maximum nodes that share one stage.
    pub max_nodes_per_stage: usize,
    /// The stages that are read back and compared.
    pub read_back: ReadBack,
    /// Limits of each storage daemon.
    pub limits: LimitsConfig,
    /// The regular scrub of each storage daemon.
    pub scrub: ScrubOptions,
}

impl PoolConfig {
    /// The storage node of this name.
    pub fn storage_node(&self, name: &str) -> Option<&StorageConfig> {
        self.storage.iter().find(|node| node.name == name)
    }

    /// The storage nodes on the host of this name.
    pub fn storage_nodes_of<'a>(
        &'a self,
        host: &'a str,
    ) -> impl Iterator<Item = &'a StorageConfig> + use<'a> {
        self.storage.iter().filter(move |node| node.host == host)
    }

    /// The credentials of this host. Fails if MUNGE is not installed or the key cannot be read.
    pub fn identity(&self) -> Result<Authenticator, ConfigError> {
        let wrong = |reason: String| ConfigError::about_file(&self.file, reason);
        match &self.auth {
            AuthMethod::Munge(socket) => Ok(Authenticator {
                munge: Some(Munge::new(socket.clone()).map_err(|e| wrong(e.to_string()))?),
                key: None,
                data_protection: Some(self.data_protection),
            }),
            AuthMethod::Key(file) => {
                let key = PoolKey::read(file).map_err(wrong)?;
                let data_protection = Some(self.data_protection);
                Ok(Authenticator { munge: None, key: Some(key), data_protection })
            }
        }
    }

    /// The socket through which the processes of a job on a compute node request stages, in the
    /// same directory as the agent's own.
    pub fn job_api_socket(&self) -> PathBuf {
        self.agent_socket.with_file_name("calls.socket")
    }
}
