//! Addresses of storage daemons.

use crate::ids::Errno;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a storage daemon listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A Unix socket at this path.
    Unix(PathBuf),
    /// A TCP port.
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

    /// The address that [`Display`](fmt::Display) wrote: a path with a `/`, or a TCP address and
    /// port. `EINVAL` for anything else.
    fn from_str(text: &str) -> Result<Address, Errno> {
        if text.contains('/') {
            return Ok(Address::Unix(PathBuf::from(text)));
        }
        text.parse().map(Address::Tcp).map_err(|_| Errno::EINVAL)
    }
}
