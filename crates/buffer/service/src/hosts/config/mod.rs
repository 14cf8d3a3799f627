//! The configuration of a pool over several hosts: one TOML file, the same on all of them.
//!
//! `docs/pool.md` explains every entry; `examples/pool/pool.toml` is a whole one.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_model::units::Bytes;
use forebay_wire::auth::PoolKey;
use forebay_wire::munge::Munge;
use forebay_wire::place::MAX_NODES;
use serde::Deserialize;
use toml::Spanned;

/// Largest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    /// From 1; 0 if it is about the whole file.
    line: usize,
    reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ConfigError {}

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
    pub from: ConnectsFrom,
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
    pub patience: Duration,
    /// How hosts know each other.
    pub auth: AuthMethod,
    /// Directories of the parallel file system below which stages may be; empty for anywhere.
    pub staged_below: Vec<String>,
    /// Stages that one node moves at a time.
    pub movers: usize,
}

/// What a process shows to others to be known.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// This host's `munged`.
    pub munge: Option<Munge>,
    /// The pool's key.
    pub key: Option<PoolKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    pool: PoolTable,
    controller: ControllerTable,
    storage: Vec<StorageTable>,
    agent: Option<AgentTable>,
    auth: AuthTable,
    staging: Option<StagingTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolTable {
    name: Spanned<String>,
    granularity: Spanned<String>,
    equalize_fragments: Option<bool>,
    stripe: Option<Spanned<String>>,
    max_nodes: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ControllerTable {
    address: Spanned<String>,
    directory: Spanned<PathBuf>,
    socket: Option<Spanned<PathBuf>>,
    operator: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StorageTable {
    name: Spanned<String>,
    address: Spanned<String>,
    directory: Spanned<PathBuf>,
    capacity: Spanned<String>,
    from: Option<Vec<Spanned<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentTable {
    directory: Option<Spanned<PathBuf>>,
    socket: Option<Spanned<PathBuf>>,
    mount_root: Option<Spanned<PathBuf>>,
    patience_seconds: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthTable {
    method: Spanned<String>,
    socket: Option<Spanned<PathBuf>>,
    key_file: Option<Spanned<PathBuf>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StagingTable {
    below: Option<Vec<Spanned<String>>>,
    movers: Option<Spanned<usize>>,
}

/// The text of a file, for naming lines of it.
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, at: Range<usize>, reason: impl fmt::Display) -> ConfigError {
        let before = self.text.as_bytes().get(..at.start).unwrap_or_default();
        ConfigError {
            file: self.file.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            reason: reason.to_string(),
        }
    }

    fn size(&self, text: &Spanned<String>) -> Result<Bytes, ConfigError> {
        let size: Result<Bytes, _> = text.get_ref().parse();
        match size {
            Ok(Bytes(0)) => Err(self.error(text.span(), "the size must be more than nothing")),
            Ok(size) => Ok(size),
            Err(error) => Err(self.error(text.span(), error)),
        }
    }

    fn address(&self, text: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
        let written = text.get_ref();
        let wrong = |reason: String| self.error(text.span(), reason);
        if !written.contains(':') {
            return Err(wrong(format!(
                "`{written}` has no port; write `host:port`, for instance `{written}:7510`"
            )));
        }
        let mut found = written
            .to_socket_addrs()
            .map_err(|error| wrong(format!("`{written}` is no address: {error}")))?;
        let address = found
            .next()
            .ok_or_else(|| wrong(format!("`{written}` has no address")))?;
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(wrong(format!(
                "others cannot connect to `{written}`; write this host's own address and a port"
            )));
        }
        Ok(address)
    }

    fn absolute(&self, path: &Spanned<PathBuf>) -> Result<PathBuf, ConfigError> {
        if path.get_ref().is_absolute() {
            return Ok(path.get_ref().clone());
        }
        let reason = format!(
            "`{}` is relative; write a path that begins with `/`",
            path.get_ref().display()
        );
        Err(self.error(path.span(), reason))
    }

    fn path(
        &self,
        path: &Option<Spanned<PathBuf>>,
        default: &Path,
    ) -> Result<PathBuf, ConfigError> {
        path.as_ref()
            .map_or_else(|| Ok(default.to_owned()), |path| self.absolute(path))
    }

    fn name(&self, name: &Spanned<String>) -> Result<String, ConfigError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let text = name.get_ref();
        if text.is_empty() || text.len() > 255 || !text.chars().all(plain) {
            let reason = format!("`{text}` is no name; use letters, digits and `_-.`");
            return Err(self.error(name.span(), reason));
        }
        Ok(text.clone())
    }
}

impl PoolConfig {
    /// Reads a configuration. Host names in it are looked up.
    pub fn read(file: &Path) -> Result<PoolConfig, ConfigError> {
        let whole = |reason: String| ConfigError {
            file: file.to_owned(),
            line: 0,
            reason,
        };
        let size = std::fs::metadata(file).map_err(|e| whole(e.to_string()))?;
        if size.len() > MAX_FILE {
            return Err(whole(format!("it is larger than {MAX_FILE} bytes")));
        }
        let text = std::fs::read_to_string(file).map_err(|e| whole(e.to_string()))?;
        PoolConfig::parse(file, &text)
    }

    /// Reads a configuration from its text; `file` is for errors.
    pub fn parse(file: &Path, text: &str) -> Result<PoolConfig, ConfigError> {
        let source = Source { file, text };
        let read: File = toml::from_str(text).map_err(|error: toml::de::Error| {
            source.error(error.span().unwrap_or(0..0), error.message())
        })?;
        let agent = read.agent.unwrap_or_default();
        let staging = read.staging.unwrap_or_default();
        let granularity = source.size(&read.pool.granularity)?;
        let mut storage: Vec<StorageConfig> = Vec::new();
        for node in &read.storage {
            let address = source.address(&node.address)?;
            let one = StorageConfig {
                name: source.name(&node.name)?,
                address,
                directory: source.absolute(&node.directory)?,
                capacity: source.size(&node.capacity)?,
                from: from::read(&source, node.from.as_deref(), address)?,
            };
            if one.capacity < granularity {
                let reason = "less than one granule of the pool; give more, or lower `granularity`";
                return Err(source.error(node.capacity.span(), reason));
            }
            if storage.iter().any(|other| other.name == one.name) {
                let reason = format!("there are two storage nodes `{}`", one.name);
                return Err(source.error(node.name.span(), reason));
            }
            if storage.iter().any(|other| other.address == one.address) {
                let reason = format!("two storage nodes have the address {}", one.address);
                return Err(source.error(node.address.span(), reason));
            }
            storage.push(one);
        }
        if storage.is_empty() {
            return Err(source.error(0..0, "a pool needs a storage node: [[storage]]"));
        }
        let directory = source.path(&agent.directory, Path::new("/run/forebay"))?;
        let mut staged_below = Vec::new();
        for path in staging.below.unwrap_or_default() {
            if !path.get_ref().starts_with('/') {
                let reason = format!("`{}` is no absolute path", path.get_ref());
                return Err(source.error(path.span(), reason));
            }
            staged_below.push(path.into_inner());
        }
        let operator = read.controller.operator.as_ref();
        let controller_directory = source.absolute(&read.controller.directory)?;
        Ok(PoolConfig {
            file: file.to_owned(),
            name: source.name(&read.pool.name)?,
            granularity,
            equalize_fragments: read.pool.equalize_fragments.unwrap_or(true),
            stripe: stripe(&source, read.pool.stripe.as_ref())?,
            max_nodes: positive(&source, read.pool.max_nodes.as_ref(), u32::from(MAX_NODES))?
                .min(u32::from(MAX_NODES)),
            controller: source.address(&read.controller.address)?,
            controller_socket: source.path(
                &read.controller.socket,
                Path::new("/run/forebay/controller.socket"),
            )?,
            controller_directory,
            operator: operator.map_or(Ok(0), |name| user(&source, name))?,
            storage,
            agent_socket: source.path(&agent.socket, &directory.join("agent.socket"))?,
            agent_directory: directory,
            mount_root: source.path(&agent.mount_root, Path::new("/mnt/forebay"))?,
            patience: Duration::from_secs(positive(&source, agent.patience_seconds.as_ref(), 60)?),
            auth: method(&source, &read.auth)?,
            staged_below,
            movers: positive(&source, staging.movers.as_ref(), 4)?,
        })
    }

    /// The storage node of this name.
    pub fn storage_node(&self, name: &str) -> Option<&StorageConfig> {
        self.storage.iter().find(|node| node.name == name)
    }

    /// What a process of this host shows to others. Fails if MUNGE is not installed or the key
    /// cannot be read.
    pub fn identity(&self) -> Result<Identity, ConfigError> {
        let wrong = |reason: String| ConfigError {
            file: self.file.clone(),
            line: 0,
            reason,
        };
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
}

fn stripe(source: &Source<'_>, text: Option<&Spanned<String>>) -> Result<Bytes, ConfigError> {
    let Some(text) = text else {
        return Ok(Bytes(8 << 20));
    };
    let size = source.size(text)?;
    let block = forebay_wire::layout::BLOCK;
    if size.0 % block != 0 {
        let reason = format!("a stripe must be a multiple of {block} bytes");
        return Err(source.error(text.span(), reason));
    }
    Ok(size)
}

fn positive<T: Copy + Default + PartialEq>(
    source: &Source<'_>,
    number: Option<&Spanned<T>>,
    default: T,
) -> Result<T, ConfigError> {
    match number {
        None => Ok(default),
        Some(number) if *number.get_ref() == T::default() => {
            Err(source.error(number.span(), "must be at least 1"))
        }
        Some(number) => Ok(*number.get_ref()),
    }
}

/// A user by number or name.
fn user(source: &Source<'_>, name: &Spanned<String>) -> Result<u32, ConfigError> {
    let text = name.get_ref();
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        _ => Err(source.error(name.span(), format!("there is no user `{text}`"))),
    }
}

fn method(source: &Source<'_>, auth: &AuthTable) -> Result<AuthMethod, ConfigError> {
    let misplaced = |entry: &Option<Spanned<PathBuf>>, reason| match entry {
        Some(entry) => Err(source.error(entry.span(), reason)),
        None => Ok(()),
    };
    match auth.method.get_ref().as_str() {
        "munge" => {
            misplaced(&auth.key_file, "`key_file` is for method = \"key\"")?;
            let socket = auth.socket.as_ref();
            let socket = socket.map(|path| source.absolute(path)).transpose()?;
            Ok(AuthMethod::Munge(socket))
        }
        "key" => {
            misplaced(&auth.socket, "`socket` is for method = \"munge\"")?;
            match &auth.key_file {
                Some(file) => Ok(AuthMethod::Key(source.absolute(file)?)),
                None => Err(source.error(
                    auth.method.span(),
                    "method = \"key\" needs `key_file`, a file that only root can read",
                )),
            }
        }
        other => {
            let reason = format!("there is no method `{other}`; write \"munge\" or \"key\"");
            Err(source.error(auth.method.span(), reason))
        }
    }
}

mod from;
#[cfg(test)]
mod tests;

pub use from::ConnectsFrom;
