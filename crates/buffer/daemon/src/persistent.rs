//! Sessions with a pool's instances for mounts outside jobs.

use std::path::Path;

use forebay_client::Fs;
use forebay_control::controller::{EvacuationStatus, EvacuationStep, InstanceStatus};
use forebay_protocol::address::Address;
use forebay_protocol::message::ClientHost;

use crate::client::ControllerClient;
use crate::cluster::{client_options, host_name};
use crate::config::PoolConfig;
use crate::error::DaemonError;

/// Attaches the instance `name`, a persistent instance's name, of the pool that the configuration
/// `file` describes. `EACCES` from the storage nodes unless the caller may use it.
///
/// The controller does not know of the session: it ends with an error when the instance is destroyed,
/// or moves to other storage nodes.
pub fn attach_persistent(file: &Path, name: &str) -> Result<Fs, DaemonError> {
    let config = PoolConfig::read(file)?;
    let identity = config.identity()?;
    let status = ControllerClient::open(file)?.status();
    let status = status.map_err(DaemonError::with_context(format!("pool `{}`", config.name)))?;
    // One that has moved has the same name as its old data, as long as these are being removed.
    let mut named = status.instances.iter().filter(|instance| instance.replaces.is_none());
    let instance = named.rfind(|instance| instance.label == name);
    let instance = instance.ok_or_else(|| {
        DaemonError::new(format!("pool `{}` has no instance `{name}`", config.name))
    })?;
    if let Some(reason) = &instance.broken {
        return Err(DaemonError::new(format!("instance `{name}` cannot be used: {reason}")));
    }
    let is_moving = |moving: &EvacuationStatus| {
        moving.instance == instance.id
            && matches!(moving.step, EvacuationStep::Preparing | EvacuationStep::Copying)
    };
    if status.evacuations.iter().any(is_moving) {
        return Err(DaemonError::new(format!(
            "instance `{name}` moves to other storage nodes; `forebay status` shows how far it is. \
             Mount it when it has moved"
        )));
    }
    let online =
        status.nodes.iter().filter(|node| node.online && instance.nodes.contains(&node.id));
    // One storage node names the others.
    let address = online.filter_map(|node| address_of(&config, &node.name)).next();
    let address = address.ok_or_else(|| offline(name, instance))?;
    let mut options = client_options(&config, &identity);
    options.client = ClientHost { host: host_name(), mount: instance.mount_generation };
    Fs::attach(address.clone(), instance.id, options)
        .map_err(DaemonError::with_context(format!("instance `{name}` at {address}")))
}

/// The address of a storage node: its socket, if it is on this host.
fn address_of(config: &PoolConfig, node: &str) -> Option<Address> {
    let storage = config.storage_node(node)?;
    let socket = storage.socket();
    let is_here = storage.host == host_name() && socket.exists();
    Some(if is_here { Address::Unix(socket) } else { Address::Tcp(storage.address) })
}

fn offline(name: &str, instance: &InstanceStatus) -> DaemonError {
    let count = instance.nodes.len();
    DaemonError::new(format!("none of the {count} storage nodes of instance `{name}` is online"))
}
