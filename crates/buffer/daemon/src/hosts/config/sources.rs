//! From where a storage node's daemon may connect to the controller.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use toml::Spanned;

use super::source::{ConfigError, Source};

/// Where a storage node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedSources {
    /// At one of these addresses.
    Addresses(Vec<IpAddr>),
    /// Anywhere: every root of the cluster may say that it is that node.
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
    /// Whether a connection from this address is one of the node's. A MUNGE credential also says
    /// on which host it was made; it says nothing if that host's `munged` knows no address but a
    /// loopback one. Fails with what is wrong.
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

/// What is written, or else the address at which the node is found.
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
            wrong(format!(
                "`{text}` is no address and no host's name, nor \"anywhere\": {error}"
            ))
        })?;
        hosts.extend(found.map(|found| found.ip().to_canonical()));
    }
    if hosts.is_empty() {
        let reason = "`from` names nothing: then the node could never connect";
        return Err(source.error(0..0, reason));
    }
    Ok(AllowedSources::Addresses(hosts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_where_it_is_said_to_be() {
        let [own, other] = [Ipv4Addr::new(10, 0, 0, 11), Ipv4Addr::new(10, 0, 0, 12)];
        let from = AllowedSources::Addresses(vec![own.into()]);
        let permits = |address: Ipv4Addr, origin| from.check(address.into(), origin);
        assert_eq!(permits(own, None), Ok(()));
        assert_eq!(permits(own, Some(own)), Ok(()));
        assert_eq!(permits(own, Some(Ipv4Addr::LOCALHOST)), Ok(()));
        assert_eq!(permits(other, Some(own)), Err("10.0.0.12".to_owned()));
        let passed_on = permits(own, Some(other)).unwrap_err();
        assert!(passed_on.contains("credential of 10.0.0.12"), "{passed_on}");
        assert_eq!(
            AllowedSources::Anywhere.check(other.into(), Some(other)),
            Ok(())
        );
    }
}
