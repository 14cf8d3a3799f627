//! The configuration of a pool over several hosts: one TOML file, the same on all of them.
//!
//! `docs/pool.md` explains every entry; `examples/pool/pool.toml` is a whole one.

mod read;
mod source;
mod sources;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use forebay_net::auth::PoolKey;
use forebay_net::munge::Munge;
use forebay_units::Bytes;

use forebay_control::controller::ReadBack;

pub use source::ConfigError;
pub use sources::AllowedSources;

/// The pool's configuration on an installed host.
pub const DEFAULT_CONFIG_FILE: &str = "/etc/forebay/pool.toml";

/// Environment variable that names the pool: a configuration file, or a directory.
pub const POOL_VARIABLE: &str = "FOREBAY_POOL";

/// The pool named by the environment.
pub fn pool_from_environment() -> Option<PathBuf> {
    let value = std::env::var_os(POOL_VARIABLE)?;
    (!value.is_empty()).then(|| PathBuf::from(value))
}

/// How hosts know each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// By the `munged` that listens at this socket, or at its usual place.
    Munge(Option<PathBuf>),
    /// By the secret in this file.
    Key(PathBuf),
}

/// A storage node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// Its host name.
    pub name: String,
    /// Where its daemon listens.
    pub address: SocketAddr,
    /// Its directory on the flash.
    pub directory: PathBuf,
    /// What it gives to the pool.
    pub capacity: Bytes,
    /// From where its daemon may connect to the controller.
    pub allowed_sources: AllowedSources,
}

impl StorageConfig {
    /// The socket for clients on the node itself.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The file it is from.
    pub file: PathBuf,
    /// Its name.
    pub name: String,
    /// Bytes in a granule.
    pub granularity: Bytes,
    /// Whether requests are enlarged so that all fragments match.
    pub equalize_fragments: bool,
    /// Bytes in a stripe.
    pub stripe: Bytes,
    /// Most storage nodes of an instance.
    pub max_nodes: u32,
    /// Where the controller listens.
    pub controller: SocketAddr,
    /// Where it keeps its state.
    pub controller_directory: PathBuf,
    /// The socket for its own host.
    pub controller_socket: PathBuf,
    /// User that may do what an operator may, besides root.
    pub operator: u32,
    /// Its nodes.
    pub storage: Vec<StorageConfig>,
    /// Where agents mount instances.
    pub agent_directory: PathBuf,
    /// The socket through which processes on a compute node reach the pool.
    pub agent_socket: PathBuf,
    /// Directory below which jobs see their mounts.
    pub mount_root: PathBuf,
    /// How long clients wait for a storage daemon that does not answer.
    pub storage_timeout: Duration,
    /// How hosts know each other.
    pub auth: AuthMethod,
    /// Directories of the parallel file system below which stages may be; empty for anywhere.
    pub pfs_roots: Vec<String>,
    /// Stages that one node moves at a time.
    pub max_stages_per_node: usize,
    /// Which stages are read back and compared.
    pub read_back: ReadBack,
}

/// What a process shows to others to be known.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// This host's `munged`.
    pub munge: Option<Munge>,
    /// The pool's key.
    pub key: Option<PoolKey>,
}

impl PoolConfig {
    /// The storage node of this name.
    pub fn storage_node(&self, name: &str) -> Option<&StorageConfig> {
        self.storage.iter().find(|node| node.name == name)
    }

    /// What a process of this host shows to others. Fails if MUNGE is not installed or the key
    /// cannot be read.
    pub fn identity(&self) -> Result<Identity, ConfigError> {
        let wrong = |reason: String| ConfigError::about_file(&self.file, reason);
        match &self.auth {
            AuthMethod::Munge(socket) => Ok(Identity {
                munge: Some(Munge::new(socket.clone()).map_err(|e| wrong(e.to_string()))?),
                key: None,
            }),
            AuthMethod::Key(file) => {
                let failed = |e: std::io::Error| wrong(format!("key file {}: {e}", file.display()));
                let mode = std::fs::metadata(file).map_err(failed)?.permissions();
                if mode.mode() & 0o077 != 0 {
                    let file = file.display();
                    return Err(wrong(format!(
                        "key file {file}: others may read or write it, and whoever has the key \
                         may do anything; `chmod 600 {file}`"
                    )));
                }
                let secret = std::fs::read(file).map_err(failed)?;
                let key = PoolKey::new(&secret).map_err(|_| {
                    let file = file.display();
                    wrong(format!("key file {file}: a key has at least 16 bytes"))
                })?;
                Ok(Identity {
                    munge: None,
                    key: Some(key),
                })
            }
        }
    }

    /// The socket through which the processes of a job on a compute node ask to stage: beside the
    /// agent's own.
    pub fn job_api_socket(&self) -> PathBuf {
        self.agent_socket.with_file_name("calls.socket")
    }
}
