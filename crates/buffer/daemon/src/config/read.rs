//! Parsing a configuration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_net::record::DataProtection;
use forebay_protocol::placement::MAX_NODES;
use forebay_units::Bytes;
use serde::Deserialize;
use toml::Spanned;

use super::source::{ConfigError, Source};
use super::sources;
use super::{AuthMethod, PoolConfig, StorageConfig};
use forebay_control::controller::ReadBack;

/// Maximum size of a configuration file.
const MAX_FILE_BYTES: u64 = 4 << 20;

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
    data_protection: Option<Spanned<String>>,
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
    timeout_seconds: Option<Spanned<u64>>,
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
    read_back: Option<Spanned<String>>,
}

impl PoolConfig {
    /// Reads a configuration and resolves its host names.
    pub fn read(file: &Path) -> Result<PoolConfig, ConfigError> {
        let whole = |reason: String| ConfigError::about_file(file, reason);
        let size = std::fs::metadata(file).map_err(|e| whole(e.to_string()))?;
        if size.len() > MAX_FILE_BYTES {
            return Err(whole(format!("it is larger than {MAX_FILE_BYTES} bytes")));
        }
        let text = std::fs::read_to_string(file).map_err(|e| whole(e.to_string()))?;
        PoolConfig::parse(file, &text)
    }

    /// Parses a configuration; `file` is for error messages.
    pub fn parse(file: &Path, text: &str) -> Result<PoolConfig, ConfigError> {
        let source = Source { file, text };
        let read: File = toml::from_str(text).map_err(|error: toml::de::Error| {
            source.error(error.span().unwrap_or(0..0), error.message())
        })?;
        let agent = read.agent.unwrap_or_default();
        let staging = read.staging.unwrap_or_default();
        let granularity = source.size(&read.pool.granularity)?;
        let storage = storage(&source, &read.storage, granularity)?;
        let directory = source.path(&agent.directory, Path::new("/run/forebay"))?;
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
            controller_socket: source
                .path(&read.controller.socket, Path::new("/run/forebay/controller.socket"))?,
            controller_directory,
            operator: operator.map_or(Ok(0), |name| user(&source, name))?,
            storage,
            agent_socket: source.path(&agent.socket, &directory.join("agent.socket"))?,
            agent_directory: directory,
            mount_root: source.path(&agent.mount_root, Path::new("/mnt/forebay"))?,
            storage_timeout: Duration::from_secs(positive(
                &source,
                agent.timeout_seconds.as_ref(),
                60,
            )?),
            auth: method(&source, &read.auth)?,
            data_protection: data_protection(&source, read.pool.data_protection.as_ref())?,
            pfs_roots: pfs_roots(&source, staging.below.unwrap_or_default())?,
            max_stages_per_node: positive(&source, staging.movers.as_ref(), 4)?,
            read_back: read_back(&source, staging.read_back.as_ref())?,
        })
    }
}

fn storage(
    source: &Source<'_>,
    tables: &[StorageTable],
    granularity: Bytes,
) -> Result<Vec<StorageConfig>, ConfigError> {
    let mut nodes: Vec<StorageConfig> = Vec::new();
    for table in tables {
        let address = source.address(&table.address)?;
        let node = StorageConfig {
            name: source.name(&table.name)?,
            address,
            directory: source.absolute(&table.directory)?,
            capacity: source.size(&table.capacity)?,
            allowed_sources: sources::read(source, table.from.as_deref(), address)?,
        };
        if node.capacity < granularity {
            let reason = "less than one granule of the pool; give more, or lower `granularity`";
            return Err(source.error(table.capacity.span(), reason));
        }
        if nodes.iter().any(|other| other.name == node.name) {
            let reason = format!("there are two storage nodes `{}`", node.name);
            return Err(source.error(table.name.span(), reason));
        }
        if nodes.iter().any(|other| other.address == node.address) {
            let reason = format!("two storage nodes have the address {}", node.address);
            return Err(source.error(table.address.span(), reason));
        }
        nodes.push(node);
    }
    if nodes.is_empty() {
        return Err(source.error(0..0, "a pool needs a storage node: [[storage]]"));
    }
    Ok(nodes)
}

/// The directories that stages may access.
fn pfs_roots(source: &Source<'_>, paths: Vec<Spanned<String>>) -> Result<Vec<String>, ConfigError> {
    let absolute = |path: Spanned<String>| {
        if path.get_ref().starts_with('/') {
            return Ok(path.into_inner());
        }
        let reason = format!("`{}` is not an absolute path", path.get_ref());
        Err(source.error(path.span(), reason))
    };
    paths.into_iter().map(absolute).collect()
}

fn read_back(source: &Source<'_>, word: Option<&Spanned<String>>) -> Result<ReadBack, ConfigError> {
    let Some(word) = word else {
        return Ok(ReadBack::default());
    };
    match word.get_ref().as_str() {
        "none" => Ok(ReadBack::None),
        "out" => Ok(ReadBack::Out),
        "all" => Ok(ReadBack::All),
        other => {
            let reason = format!("`{other}`: write \"none\", \"out\" or \"all\"");
            Err(source.error(word.span(), reason))
        }
    }
}

fn data_protection(
    source: &Source<'_>,
    word: Option<&Spanned<String>>,
) -> Result<DataProtection, ConfigError> {
    let Some(word) = word else {
        return Ok(DataProtection::default());
    };
    let parsed = word.get_ref().parse();
    parsed.map_err(|reason: String| source.error(word.span(), reason))
}

fn stripe(source: &Source<'_>, text: Option<&Spanned<String>>) -> Result<Bytes, ConfigError> {
    let Some(text) = text else {
        return Ok(Bytes(8 << 20));
    };
    let size = source.size(text)?;
    let block = forebay_protocol::space::BLOCK_BYTES;
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

/// A user, by number or name.
fn user(source: &Source<'_>, name: &Spanned<String>) -> Result<u32, ConfigError> {
    let text = name.get_ref();
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) | Err(_) => Err(source.error(name.span(), format!("there is no user `{text}`"))),
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
