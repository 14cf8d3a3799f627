//! Addresses of daemons.

use crate::ids::Errno;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The address at which a daemon listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// IP address and TCP port.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

impl std::str::FromStr for Address {
    type Err = Errno;

    /// Parses the text written by [`Display`](fmt::Display): a path with a `/`, or an IP address and
    /// a port. Everything else is `EINVAL`.
    fn from_str(text: &str) -> Result<Address, Errno> {
        if text.contains('/') {
            return Ok(Address::Unix(PathBuf::from(text)));
        }
        text.parse().map(Address::Tcp).map_err(|_| Errno::EINVAL)
    }
}
