//! Transfers between nodes.
//!
//! The service that has the task connects to that of the other node, which opens the files there with
//! the permissions of the task's user. The connection carries the operations of the movers' file
//! system traits: a tree of another node is copied by the same code as one of this node. Both
//! services authenticate each other by the handshake of [`forebay_net`]; calls are encrypted, and
//! data has a keyed checksum.

mod connection;
mod file_system;
mod listener;
mod operations;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::os::unix::io::BorrowedFd;

use forebay_net::auth::{Authenticator, PoolKey};
use forebay_net::munge::Munge;
use forebay_net::record::DataProtection;
use forebay_norns_api::Configuration;

pub(crate) use file_system::RemoteFileSystem;
pub(crate) use listener::listen;
pub(crate) use wire::Session;

/// The way to other nodes: port and credentials.
#[derive(Debug)]
pub(crate) struct Network {
    auth: Authenticator,
    /// The port of a node that is named without one.
    port: u16,
    /// The address for other nodes.
    address: SocketAddr,
}

impl Network {
    /// The network of the configuration; `None` if it names no key and MUNGE is not installed.
    ///
    /// # Errors
    /// If the address or the key file is invalid.
    pub fn new(configuration: &Configuration) -> io::Result<Option<Network>> {
        let auth = match &configuration.key_file {
            Some(file) => {
                let key = PoolKey::read(file).map_err(io::Error::other)?;
                Authenticator { key: Some(key), ..Authenticator::default() }
            }
            None => match Munge::new(configuration.munge_socket.clone()) {
                Ok(munge) => Authenticator { munge: Some(munge), ..Authenticator::default() },
                Err(_) => return Ok(None),
            },
        };
        let auth = Authenticator { data_protection: Some(DataProtection::Integrity), ..auth };
        let port = configuration.remote_port;
        let address = SocketAddr::new(configuration.bind_address, port);
        Ok(Some(Network { auth, port, address }))
    }
}

/// A handle of a node's file system has no descriptor on another node.
const NO_DESCRIPTOR: Option<BorrowedFd<'static>> = None;
