//! The addresses from which a storage node may connect to the controller.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};

use serde::Deserialize;

/// The addresses of a storage node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub enum AllowedSources {
    /// One of these.
    Addresses(Vec<IpAddr>),
    /// Any: root of any host of the cluster can connect as that node.
    Anywhere,
}

impl fmt::Display for AllowedSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AllowedSources::Addresses(hosts) = self else {
            return f.write_str("anywhere");
        };
        for (index, host) in hosts.iter().enumerate() {
            write!(f, "{}{host}", if index > 0 { " or " } else { "" })?;
        }
        Ok(())
    }
}

impl AllowedSources {
    /// This address alone.
    pub(super) fn only(address: IpAddr) -> AllowedSources {
        AllowedSources::Addresses(vec![address.to_canonical()])
    }

    /// The addresses; `None`: any.
    pub fn addresses(&self) -> Option<&[IpAddr]> {
        match self {
            AllowedSources::Addresses(addresses) => Some(addresses),
            AllowedSources::Anywhere => None,
        }
    }

    /// Checks that a connection from this address may be the node's. A MUNGE credential also has
    /// the address of the host that made it, unless that host's `munged` knows only a loopback one.
    /// The error is the address that is not allowed.
    pub fn check(&self, address: IpAddr, origin: Option<Ipv4Addr>) -> Result<(), String> {
        let AllowedSources::Addresses(hosts) = self else {
            return Ok(());
        };
        if !hosts.contains(&address) {
            return Err(format!("{address}"));
        }
        let is_foreign = |origin: &Ipv4Addr| {
            let is_local = origin.is_loopback() || origin.is_unspecified();
            !is_local && !hosts.contains(&IpAddr::V4(*origin))
        };
        match origin.filter(is_foreign) {
            Some(origin) => Err(format!("the MUNGE credential of {origin}")),
            None => Ok(()),
        }
    }
}

impl TryFrom<Vec<String>> for AllowedSources {
    type Error = String;

    fn try_from(written: Vec<String>) -> Result<AllowedSources, String> {
        let mut hosts = Vec::new();
        for text in &written {
            if text == "anywhere" {
                return Ok(AllowedSources::Anywhere);
            }
            let found = (text.as_str(), 0).to_socket_addrs().map_err(|error| {
                format!("`{text}` is not an address, a host name or \"anywhere\": {error}")
            })?;
            hosts.extend(found.map(|found| found.ip().to_canonical()));
        }
        match hosts.is_empty() {
            true => Err("`from` is empty, so the node could never connect".to_owned()),
            false => Ok(AllowedSources::Addresses(hosts)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_from_an_address_of_another_node_is_refused() {
        let [own, other] = [Ipv4Addr::new(10, 0, 0, 11), Ipv4Addr::new(10, 0, 0, 12)];
        let from = AllowedSources::Addresses(vec![own.into()]);
        let permits = |address: Ipv4Addr, origin| from.check(address.into(), origin);
        assert_eq!(permits(own, None), Ok(()));
        assert_eq!(permits(own, Some(own)), Ok(()));
        assert_eq!(permits(own, Some(Ipv4Addr::LOCALHOST)), Ok(()));
        assert_eq!(permits(other, Some(own)), Err("10.0.0.12".to_owned()));
        let forwarded = permits(own, Some(other)).unwrap_err();
        assert!(forwarded.contains("credential of 10.0.0.12"), "{forwarded}");
        assert_eq!(AllowedSources::Anywhere.check(other.into(), Some(other)), Ok(()));
    }
}
