//! Parsing a configuration.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_control::controller::ReadBack;
use forebay_net::record::DataProtection;
use forebay_protocol::placement::MAX_NODES;
use forebay_store::daemon::ScrubOptions;
use forebay_units::Bytes;
use serde::Deserialize;
use toml::Spanned;

use super::error::{ConfigError, Source};
use super::sources::AllowedSources;
use super::value::{AbsolutePath, ListenAddress, Name, Period, Size, Stripe, User};
use super::{AuthMethod, LimitsConfig, PoolConfig, StorageConfig};

/// Least bytes per second of a scrub.
const MIN_SCRUB_RATE: Bytes = Bytes(1 << 20);
/// Maximum size of a configuration file.
const MAX_FILE_BYTES: u64 = 4 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    pool: PoolTable,
    controller: ControllerTable,
    storage: Vec<StorageTable>,
    #[serde(default)]
    agent: AgentTable,
    auth: AuthTable,
    #[serde(default)]
    staging: StagingTable,
    #[serde(default)]
    limits: LimitsTable,
    #[serde(default)]
    scrub: ScrubTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolTable {
    name: Name,
    granularity: Size,
    equalize_fragments: Option<bool>,
    #[serde(default)]
    data_protection: DataProtection,
    stripe: Option<Stripe>,
    max_nodes: Option<NonZeroU32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ControllerTable {
    address: ListenAddress,
    directory: AbsolutePath,
    socket: Option<AbsolutePath>,
    audit_log: Option<AbsolutePath>,
    kept_usage: Option<usize>,
    persistent_lifetime: Option<Period>,
    persistent_warning: Option<Period>,
    persistent_grace: Option<Period>,
    operator: Option<User>,
    administrators: Option<AllowedSources>,
    only_user: Option<User>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StorageTable {
    name: Spanned<Name>,
    host: Option<Name>,
    address: Spanned<ListenAddress>,
    directory: Spanned<AbsolutePath>,
    capacity: Spanned<Size>,
    metadata_memory: Option<Size>,
    from: Option<AllowedSources>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentTable {
    directory: Option<AbsolutePath>,
    socket: Option<AbsolutePath>,
    mount_root: Option<AbsolutePath>,
    #[serde(alias = "patience_seconds")]
    storage_timeout_seconds: Option<NonZeroU64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthTable {
    method: Spanned<String>,
    socket: Option<Spanned<AbsolutePath>>,
    key_file: Option<Spanned<AbsolutePath>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StagingTable {
    #[serde(default)]
    below: Vec<AbsolutePath>,
    movers: Option<NonZeroUsize>,
    nodes_per_stage: Option<NonZeroUsize>,
    #[serde(default)]
    read_back: ReadBack,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsTable {
    user_connections: Option<NonZeroUsize>,
    user_data_connections: Option<NonZeroUsize>,
    data_connections: Option<NonZeroUsize>,
    user_sessions: Option<NonZeroUsize>,
    user_open_files: Option<NonZeroUsize>,
    user_requests_per_second: Option<NonZeroU64>,
    user_bytes_per_second: Option<Size>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScrubTable {
    enabled: Option<bool>,
    interval: Option<Period>,
    bytes_per_second: Option<Spanned<Size>>,
}

/// The regular scrub.
fn scrub_options(source: &Source<'_>, table: ScrubTable) -> Result<ScrubOptions, ConfigError> {
    let mut options = ScrubOptions::default();
    if let Some(period) = table.interval {
        options.interval = Some(Duration::from_millis(period.0));
    }
    if table.enabled == Some(false) {
        options.interval = None;
    }
    if let Some(rate) = table.bytes_per_second {
        if rate.get_ref().0 < MIN_SCRUB_RATE {
            return Err(source.error(rate.span(), "a scrub needs at least 1MiB per second"));
        }
        options.bytes_per_second = rate.get_ref().0.0;
    }
    Ok(options)
}

impl From<LimitsTable> for LimitsConfig {
    fn from(table: LimitsTable) -> LimitsConfig {
        let get = |entry: Option<NonZeroUsize>| entry.map(NonZeroUsize::get);
        LimitsConfig {
            user_connections: get(table.user_connections),
            user_data_connections: get(table.user_data_connections),
            data_connections: get(table.data_connections),
            user_sessions: get(table.user_sessions),
            user_open_files: get(table.user_open_files),
            user_requests_per_second: table.user_requests_per_second.map(NonZeroU64::get),
            user_bytes_per_second: table.user_bytes_per_second.map(|size| size.0),
        }
    }
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
        let File { pool, controller, storage, agent, auth, staging, limits, scrub } =
            toml::from_str(text).map_err(|error: toml::de::Error| {
                source.error(error.span().unwrap_or(0..0), error.message())
            })?;
        let or = |path: Option<AbsolutePath>, default: &str| {
            path.map_or_else(|| PathBuf::from(default), |path| path.0)
        };
        let agent_directory = or(agent.directory, "/run/forebay");
        let below = staging.below.iter().map(|path| path.0.display().to_string());
        let storage_timeout = agent.storage_timeout_seconds.map_or(60, NonZeroU64::get);
        Ok(PoolConfig {
            file: file.to_owned(),
            name: pool.name.0,
            granularity: pool.granularity.0,
            equalize_fragments: pool.equalize_fragments.unwrap_or(true),
            stripe: pool.stripe.map_or(Bytes(8 << 20), |stripe| stripe.0),
            max_nodes: pool
                .max_nodes
                .map_or(u32::from(MAX_NODES), |max| max.get().min(u32::from(MAX_NODES))),
            controller: controller.address.0,
            controller_socket: or(controller.socket, "/run/forebay/controller.socket"),
            controller_directory: controller.directory.0,
            audit_log: controller.audit_log.map(|path| path.0),
            kept_usage: controller.kept_usage,
            persistent_lifetime_ms: controller.persistent_lifetime.map(|period| period.0),
            persistent_warning_ms: controller.persistent_warning.map(|period| period.0),
            persistent_grace_ms: controller.persistent_grace.map(|period| period.0),
            operator: controller.operator.map_or(0, |user| user.0),
            administrators: controller.administrators,
            only_user: controller.only_user.map(|user| user.0),
            storage: storage_nodes(&source, storage, pool.granularity.0)?,
            agent_socket: agent
                .socket
                .map_or_else(|| agent_directory.join("agent.socket"), |path| path.0),
            agent_directory,
            mount_root: or(agent.mount_root, "/mnt/forebay"),
            storage_timeout: Duration::from_secs(storage_timeout),
            auth: auth_method(&source, auth)?,
            data_protection: pool.data_protection,
            pfs_roots: below.collect(),
            max_stages_per_node: staging.movers.map_or(4, NonZeroUsize::get),
            max_nodes_per_stage: staging.nodes_per_stage.map_or(8, NonZeroUsize::get),
            read_back: staging.read_back,
            limits: limits.into(),
            scrub: scrub_options(&source, scrub)?,
        })
    }
}

/// The storage nodes, with distinct names and addresses.
fn storage_nodes(
    source: &Source<'_>,
    tables: Vec<StorageTable>,
    granularity: Bytes,
) -> Result<Vec<StorageConfig>, ConfigError> {
    let mut nodes: Vec<StorageConfig> = Vec::new();
    for table in tables {
        let StorageTable { name, host, address, directory, capacity, metadata_memory, from } =
            table;
        let (name_at, address_at) = (name.span(), address.span());
        let directory_at = directory.span();
        let address = address.into_inner().0;
        let name = name.into_inner().0;
        let node = StorageConfig {
            host: host.map_or_else(|| name.clone(), |host| host.0),
            name,
            address,
            directory: directory.into_inner().0,
            capacity: capacity.get_ref().0,
            metadata_memory: metadata_memory.map(|size| size.0),
            allowed_sources: from.unwrap_or_else(|| AllowedSources::only(address.ip())),
        };
        if node.capacity < granularity {
            let reason = "less than one granule of the pool; give more, or lower `granularity`";
            return Err(source.error(capacity.span(), reason));
        }
        if nodes.iter().any(|other| other.name == node.name) {
            let reason = format!("there are two storage nodes `{}`", node.name);
            return Err(source.error(name_at, reason));
        }
        if nodes.iter().any(|other| other.address == node.address) {
            let reason = format!("two storage nodes have the address {}", node.address);
            return Err(source.error(address_at, reason));
        }
        let shares_directory =
            |other: &&StorageConfig| other.host == node.host && other.directory == node.directory;
        if let Some(other) = nodes.iter().find(shares_directory) {
            let reason = format!("`{}` on the same host has this directory", other.name);
            return Err(source.error(directory_at, reason));
        }
        nodes.push(node);
    }
    if nodes.is_empty() {
        return Err(source.error(0..0, "a pool needs a storage node: [[storage]]"));
    }
    Ok(nodes)
}

fn auth_method(source: &Source<'_>, auth: AuthTable) -> Result<AuthMethod, ConfigError> {
    let AuthTable { method, socket, key_file } = auth;
    match (method.get_ref().as_str(), socket, key_file) {
        ("munge", socket, None) => Ok(AuthMethod::Munge(socket.map(|path| path.into_inner().0))),
        ("munge", _, Some(entry)) => {
            Err(source.error(entry.span(), "`key_file` is for method = \"key\""))
        }
        ("key", None, Some(file)) => Ok(AuthMethod::Key(file.into_inner().0)),
        ("key", Some(entry), _) => {
            Err(source.error(entry.span(), "`socket` is for method = \"munge\""))
        }
        ("key", None, None) => {
            let reason = "method = \"key\" needs `key_file`, a file that only root can read";
            Err(source.error(method.span(), reason))
        }
        (other, _, _) => {
            let reason = format!("there is no method `{other}`; write \"munge\" or \"key\"");
            Err(source.error(method.span(), reason))
        }
    }
}
