//! The daemons of a pool over several hosts.
//!
//! ```text
//! forebay run ── Unix ── agent ──┐
//!                                ├─ TCP ── controller     (controller.redb)
//!                storage node ───┘
//! ```
//!
//! Each daemon drives one state machine with sockets, a clock and a disk. Messages between them
//! may get lost with a connection: commands are retransmitted until they show their effect,
//! reports come every second, and clients retransmit requests without a reply. Data go straight
//! between clients and storage daemons, also while the controller is down.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_control::controller::{Request, Settings};
use forebay_protocol::address::Address;
use forebay_protocol::random::keyed_block;
use forebay_store::daemon;

use crate::activity::StatusSource;
use crate::compute::{self, relay::Relay};
use crate::config::{AllowedSources, PoolConfig, StorageConfig};
use crate::connection::Endpoint;
use crate::control_channel::{connection_limits, listen_tcp, listen_unix};
use crate::controller;
use crate::directory::{create_private_directory, lock_directory, write_atomically};
use crate::error::DaemonError;
use crate::job_api::JobApi;
use crate::mounts::{Mounts, StorageAccess, remove_stale_mounts};
use crate::service::Service;
use crate::storage;
use forebay_net::admission::SharedAdmission;
use forebay_net::auth::Authenticator;
use forebay_net::listener::Listener;

/// Time in which a controller reports its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between ticks of a controller.
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between a node's reports of its counters.
const ACTIVITY_INTERVAL: Duration = Duration::from_secs(1);

/// The application of a changed configuration.
type ReloadAction = Box<dyn Fn(&PoolConfig) -> Result<(), String>>;

/// A running daemon. Dropping it stops it.
pub struct Daemon {
    // Dropped first, so that there are no new connections to a service that stops.
    listeners: Vec<Listener>,
    service: Service,
    status_source: StatusSource,
    /// Applies a changed configuration.
    reload: ReloadAction,
}

impl Daemon {
    /// Starts a pool's controller: restores its state, applies the configuration, and listens.
    pub fn start_controller(config: &PoolConfig) -> Result<Daemon, DaemonError> {
        forebay_net::stream::raise_descriptor_limit();
        forebay_net::memory::limit_retained_memory();
        let home = &config.controller_directory;
        create_private_directory(home, 0o700)?;
        let lock = lock_directory(home)?;
        let identity = config.identity()?;
        let secret = read_secret(home)?;
        let pool_id = keyed_block(&secret, u128::MAX);
        let setup = controller::Setup {
            directory: home.clone(),
            settings: settings(config, secret),
            audit_log: config.audit_log.clone(),
            pool_id: pool_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            allowed_sources: allowed_sources(config),
            administrators: config.administrators.clone(),
            operator: config.operator,
            only_user: config.only_user,
            process: None,
            tick_interval: TICK_INTERVAL,
            lock: Some(lock),
        };
        let controller = controller::start(setup, |restored| {
            for node in restored.status().nodes {
                if config.storage_node(&node.name).is_none() {
                    tracing::warn!(node = node.name, "node is no longer in the configuration");
                }
            }
            Ok(pool_requests(config))
        })?;
        let listeners =
            vec![listen_tcp(config.controller)?, listen_unix(&config.controller_socket, 0o666)?];
        let limits = SharedAdmission::new(connection_limits());
        for listener in &listeners {
            controller.serve(listener, &limits, &identity)?;
        }
        let (port, reload_port) = (controller.port.clone(), controller.port);
        Ok(Daemon {
            listeners,
            service: controller.service,
            status_source: Arc::new(move || port.status(STATUS_TIMEOUT)),
            reload: Box::new(move |config| {
                reload_port.reload(controller::Reload {
                    settings: settings(config, secret),
                    allowed_sources: allowed_sources(config),
                    only_user: config.only_user,
                    requests: pool_requests(config),
                })
            }),
        })
    }

    /// Starts the storage node of this name: recovers the data in its directory, serves clients,
    /// and connects to the controller.
    pub fn start_storage(config: &PoolConfig, name: &str) -> Result<Daemon, DaemonError> {
        let node = config.storage_node(name).ok_or_else(|| {
            let file = config.file.display();
            DaemonError::new(format!(
                "{file}: there is no storage node `{name}`; name one of [[storage]] with --name"
            ))
        })?;
        let identity = config.identity()?;
        let home = &node.directory;
        // Clients on this host need the socket in it; everything else in it is closed to them.
        create_private_directory(home, 0o711)?;
        let lock = lock_directory(home)?;
        create_private_directory(&home.join("journals"), 0o700)?;
        let mut store = daemon::StoreOptions::new(home.join("flash"));
        store.socket = node.socket();
        store.tcp = Some(node.address);
        store.key = identity.key.clone();
        store.munge = identity.munge.clone();
        store.data_protection = config.data_protection;
        store.trusted_hosts = trusted_hosts(config);
        config.limits.apply(&mut store, config.storage_timeout);
        store.scrub = config.scrub.clone();
        // The default is for the only storage node of a host.
        let nodes_of_host = config.storage_nodes_of(&node.host).count() as u64;
        store.limits.metadata_bytes = match node.metadata_memory {
            Some(bytes) => bytes.0,
            None => store.limits.metadata_bytes / nodes_of_host,
        };
        let setup = storage::Setup {
            name: name.to_owned(),
            host: name.to_owned(),
            directory: home.clone(),
            store,
            address: node.address.to_string(),
            client: client_options(config, &identity),
            activity_interval: ACTIVITY_INTERVAL,
            lock: Some(lock),
        };
        let storage = storage::start(setup, controller_endpoint(config, &identity), || {})?;
        Ok(Daemon {
            listeners: Vec::new(),
            service: storage.service,
            status_source: storage.status_source,
            reload: Box::new(|_| Ok(())),
        })
    }

    /// Starts the agent of the compute node of this name: removes mounts that an earlier agent
    /// left, listens to the host's processes, and connects to the controller.
    pub fn start_agent(config: &PoolConfig, name: &str) -> Result<Daemon, DaemonError> {
        let identity = config.identity()?;
        let home = &config.agent_directory;
        create_private_directory(home, 0o755)?;
        let lock = lock_directory(home)?;
        let mounts_directory = home.join("mounts");
        create_private_directory(&mounts_directory, 0o755)?;
        remove_stale_mounts(&mounts_directory, &config.mount_root);
        let own = config.storage_nodes_of(name);
        let access = StorageAccess {
            own: own.map(|node| (node.address.to_string(), Address::Unix(node.socket()))).collect(),
            options: client_options(config, &identity),
        };
        let mounts = Mounts::new(mounts_directory.clone(), name.to_owned(), access);
        let endpoint = controller_endpoint(config, &identity);
        let job_api =
            Arc::new(JobApi::new(endpoint.clone(), config.job_api_socket(), mounts_directory));
        let relay =
            Relay { controller: Address::Tcp(config.controller), identity, host: name.to_owned() };
        let agent_listener = listen_unix(&config.agent_socket, 0o666)?;
        let limits = SharedAdmission::new(connection_limits());
        agent_listener
            .serve(limits, move |stream, permit| relay.serve(stream, permit))
            .map_err(DaemonError::with_context("cannot start a thread"))?;
        let job_api_listener = listen_unix(&config.job_api_socket(), 0o666)?;
        job_api.serve(&job_api_listener)?;
        let setup = compute::Setup {
            name: name.to_owned(),
            mounts: Arc::new(mounts.without_sessions()),
            job_api,
            activity_interval: ACTIVITY_INTERVAL,
            lock: Some(lock),
        };
        let agent = compute::start(setup, endpoint)?;
        Ok(Daemon {
            listeners: vec![agent_listener, job_api_listener],
            service: agent.service,
            status_source: agent.status_source,
            reload: Box::new(|_| Ok(())),
        })
    }

    /// The address at which it listens on TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listeners.iter().find_map(Listener::address)
    }

    /// Its status or its counters, for other threads.
    pub fn status_source(&self) -> StatusSource {
        self.status_source.clone()
    }

    /// Applies a configuration made by [`PoolConfig::reloaded`]. Only a controller changes.
    ///
    /// # Errors
    /// The first reason for which a part of the configuration is refused; the other parts apply.
    pub fn reload(&self, config: &PoolConfig) -> Result<(), String> {
        (self.reload)(config)
    }

    /// Whether it has failed: its database or its storage did, or its directory belongs to
    /// another pool.
    pub fn has_ended(&self) -> bool {
        self.service.has_ended()
    }

    /// Stops it, makes everything durable, and unmounts what it has mounted.
    ///
    /// # Errors
    /// The reason for which it had failed.
    pub fn stop(mut self) -> Result<(), DaemonError> {
        self.listeners.clear();
        self.service.stop()
    }
}

/// The name of this host, as the kernel has it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn controller_endpoint(config: &PoolConfig, identity: &Authenticator) -> Endpoint {
    Endpoint::Socket { address: Address::Tcp(config.controller), identity: identity.clone() }
}

pub(crate) fn client_options(
    config: &PoolConfig,
    identity: &Authenticator,
) -> forebay_client::ClientOptions {
    forebay_client::ClientOptions {
        timeout: config.storage_timeout,
        key: identity.key.clone(),
        munge: identity.munge.clone(),
        data_protection: identity.data_protection,
        ..forebay_client::ClientOptions::default()
    }
}

/// The hosts whose root may administer a storage daemon, and whose daemons are others of the pool's.
fn trusted_hosts(config: &PoolConfig) -> Option<daemon::TrustedHosts> {
    let administrators = config.administrators.as_ref()?.addresses()?;
    let storage = config.storage.iter().filter_map(|node| node.allowed_sources.addresses());
    Some(daemon::TrustedHosts {
        administrators: administrators.to_vec(),
        storage: storage.flatten().copied().collect(),
    })
}

fn allowed_sources(config: &PoolConfig) -> BTreeMap<String, AllowedSources> {
    let sources = |node: &StorageConfig| (node.name.clone(), node.allowed_sources.clone());
    config.storage.iter().map(sources).collect()
}

fn settings(config: &PoolConfig, secret: [u8; 32]) -> Settings {
    let default = Settings::default();
    Settings {
        mount_root: config.mount_root.display().to_string(),
        operator: config.operator,
        max_stages_per_node: config.max_stages_per_node,
        max_nodes_per_stage: config.max_nodes_per_stage,
        max_nodes: config.max_nodes,
        stripe_bytes: config.stripe.0,
        secret,
        pfs_roots: config.pfs_roots.clone(),
        read_back: config.read_back,
        max_kept_usage: config.kept_usage.unwrap_or(default.max_kept_usage),
        persistent_lifetime_ms: config.persistent_lifetime_ms,
        persistent_warning_ms: config
            .persistent_warning_ms
            .unwrap_or(default.persistent_warning_ms),
        persistent_grace_ms: config.persistent_grace_ms.unwrap_or(default.persistent_grace_ms),
        ..default
    }
}

/// The requests that make pool and nodes as configured.
fn pool_requests(config: &PoolConfig) -> Vec<Request> {
    let pool = Request::AddPool {
        name: config.name.clone(),
        granularity: config.granularity,
        equalize_fragments: config.equalize_fragments,
    };
    let nodes = config.storage.iter().map(|node| Request::AddNode {
        name: node.name.clone(),
        pool: config.name.clone(),
        granules: node.capacity.0 / config.granularity.0.max(1),
        address: Some(node.address.to_string()),
    });
    std::iter::once(pool).chain(nodes).collect()
}

/// The pool's secret, which is created with the pool.
fn read_secret(home: &Path) -> Result<[u8; 32], DaemonError> {
    let file = home.join("secret");
    match std::fs::read(&file) {
        Ok(bytes) => bytes
            .try_into()
            .map_err(|_| DaemonError::new(format!("{}: damaged: not 32 bytes", file.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if home.join("controller.redb").exists() {
                return Err(DaemonError::new(format!(
                    "{}: missing, but there is a controller.redb; restore both together",
                    file.display()
                )));
            }
            forebay_net::random::random_bytes()
                .and_then(|secret| write_atomically(&file, &secret, 0o600).map(|()| secret))
                .map_err(DaemonError::with_context(file.display()))
        }
        Err(error) => Err(DaemonError::with_context(file.display())(error)),
    }
}
