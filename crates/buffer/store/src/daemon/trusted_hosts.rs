//! The hosts whose root is trusted to administer the daemon, and to be another storage daemon.

use forebay_protocol::address::Address;
use forebay_protocol::placement::Placement;
use std::net::IpAddr;

/// Hosts with rights beyond those of a client. Root of any other host that is authenticated is a
/// client: it mounts instances, and acts for the users of these mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedHosts {
    /// Hosts from which instances are created and removed.
    pub administrators: Vec<IpAddr>,
    /// Hosts of storage daemons, in addition to those that an instance's placement names.
    pub storage: Vec<IpAddr>,
}

impl TrustedHosts {
    /// Whether root of this host may administer.
    pub fn may_administer(&self, host: IpAddr) -> bool {
        self.administrators.contains(&host.to_canonical())
    }

    /// Whether a daemon on this host may be another node of an instance with this placement.
    pub fn may_be_peer(&self, host: IpAddr, placement: &Placement) -> bool {
        let host = host.to_canonical();
        let is_there = |peer: &String| match peer.parse() {
            Ok(Address::Tcp(address)) => address.ip().to_canonical() == host,
            Ok(Address::Unix(_)) | Err(_) => false,
        };
        self.storage.contains(&host) || placement.peers.iter().any(is_there)
    }
}
