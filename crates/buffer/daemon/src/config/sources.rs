//! The addresses from which a storage node may connect to the controller.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use toml::Spanned;

use super::source::{ConfigError, Source};

/// The addresses of a storage node.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        match origin {
            Some(origin)
                if !origin.is_loopback()
                    && !origin.is_unspecified()
                    && !hosts.contains(&IpAddr::V4(origin)) =>
            {
                Err(format!("the MUNGE credential of {origin}"))
            }
            _ => Ok(()),
        }
    }
}

/// The configured addresses; by default the one at which the node listens.
pub(super) fn read(
    source: &Source<'_>,
    written: Option<&[Spanned<String>]>,
    address: SocketAddr,
) -> Result<AllowedSources, ConfigError> {
    let Some(written) = written else {
        return Ok(AllowedSources::Addresses(vec![address.ip().to_canonical()]));
    };
    let mut hosts = Vec::new();
    for host in written {
        let text = host.get_ref();
        if text == "anywhere" {
            return Ok(AllowedSources::Anywhere);
        }
        let wrong = |reason: String| source.error(host.span(), reason);
        let found = (text.as_str(), 0).to_socket_addrs().map_err(|error| {
            wrong(format!("`{text}` is not an address, a host name or \"anywhere\": {error}"))
        })?;
        hosts.extend(found.map(|found| found.ip().to_canonical()));
    }
    if hosts.is_empty() {
        let reason = "`from` is empty, so the node could never connect";
        return Err(source.error(0..0, reason));
    }
    Ok(AllowedSources::Addresses(hosts))
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
