//! Sessions of clients on the storage nodes of a pool, listed and evicted by an administrator.

use std::os::unix::net::UnixStream;
use std::path::Path;

use forebay_client::{Admin, ClientOptions};
use forebay_protocol::SessionId;
use forebay_protocol::address::Address;
use forebay_protocol::message::SessionInfo;
use std::time::Duration;

use crate::cluster::client_options;
use crate::config::PoolConfig;
use crate::directory::socket_path;
use crate::error::DaemonError;

/// Storage nodes that are asked at a time.
const MAX_IN_FLIGHT: usize = 32;
/// Time for which a node may not reply.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A storage daemon.
#[derive(Clone, Debug)]
pub struct StorageDaemon {
    /// Name of its node.
    pub node: String,
    address: Address,
    options: ClientOptions,
}

/// The storage daemons of a pool over several hosts.
///
/// # Errors
/// This host has no credentials.
pub fn daemons_of(config: &PoolConfig) -> Result<Vec<StorageDaemon>, DaemonError> {
    let identity = config.identity()?;
    let options = ClientOptions { timeout: TIMEOUT, ..client_options(config, &identity) };
    let daemon = |node: &crate::config::StorageConfig| StorageDaemon {
        node: node.name.clone(),
        address: Address::Tcp(node.address),
        options: options.clone(),
    };
    Ok(config.storage.iter().map(daemon).collect())
}

/// The storage daemon of the embedded pool in a directory, while a process has it open.
pub fn daemon_of_embedded(directory: &Path) -> Option<StorageDaemon> {
    let socket = socket_path(directory, "socket");
    UnixStream::connect(&socket).ok()?;
    Some(StorageDaemon {
        node: "embedded".to_owned(),
        address: Address::Unix(socket),
        options: ClientOptions { timeout: TIMEOUT, ..ClientOptions::default() },
    })
}

impl StorageDaemon {
    /// All sessions of clients.
    ///
    /// # Errors
    /// The daemon cannot be reached, or does not accept this user or host as administrator.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, String> {
        self.administer(Admin::sessions)
    }

    /// Ends sessions. When this returns, no request of theirs is carried out any more.
    ///
    /// # Errors
    /// As [`sessions`](Self::sessions).
    pub fn evict(&self, sessions: &[SessionId]) -> Result<(), String> {
        self.administer(|admin| admin.evict_sessions(sessions))
    }

    fn administer<T>(
        &self,
        action: impl FnOnce(&Admin) -> Result<T, forebay_protocol::Errno>,
    ) -> Result<T, String> {
        let admin = Admin::connect(self.address.clone(), self.options.clone());
        admin.and_then(|admin| action(&admin)).map_err(|errno| {
            let hint = match errno {
                forebay_protocol::Errno::EACCES => {
                    "; sessions are administered by root on a host of `controller.administrators`"
                }
                _ => "",
            };
            format!("storage node {}: {errno}{hint}", self.node)
        })
    }
}

/// Carries out an action for each element, some at a time. The results are in the elements' order.
pub fn for_each<T: Sync, R: Send>(elements: &[T], action: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let mut results = Vec::with_capacity(elements.len());
    for part in elements.chunks(MAX_IN_FLIGHT) {
        std::thread::scope(|scope| {
            let running: Vec<_> =
                part.iter().map(|element| scope.spawn(|| action(element))).collect();
            let joined = running.into_iter().map(|thread| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            results.extend(joined);
        });
    }
    results
}
