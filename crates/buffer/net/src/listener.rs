//! Listening at an address that a configuration names.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};

/// Listens at `address`. What is likely to be wrong with the configuration is in the error's text.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "another program listens there: end it, or name another port",
            ErrorKind::AddrNotAvailable => {
                "this host has no such address: start the daemon on the host that has it, or \
                 correct the address"
            }
            ErrorKind::PermissionDenied => {
                "ports below 1024 are for root: start the daemon as root, or name another port"
            }
            _ => return error,
        };
        io::Error::new(error.kind(), remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let first = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let taken = listen(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        assert!(taken.to_string().contains("another port"), "{taken}");
        // An address for documentation (RFC 5737), which no host has.
        let nowhere = listen("192.0.2.1:7510".parse().unwrap()).unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::AddrNotAvailable);
        assert!(nowhere.to_string().contains("no such address"), "{nowhere}");
    }
}
