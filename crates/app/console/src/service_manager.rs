//! Notifications to the service manager that has started this process, as in `sd_notify(3)`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable with the address of the service manager's socket.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// State of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// It serves requests.
    Ready,
    /// It is about to exit.
    Stopping,
}

impl ServiceState {
    fn message(self) -> &'static [u8] {
        match self {
            ServiceState::Ready => b"READY=1",
            ServiceState::Stopping => b"STOPPING=1",
        }
    }
}

/// Tells the service manager, if there is one, that this process has changed its state.
///
/// # Errors
/// The socket in `NOTIFY_SOCKET` does not accept the message.
pub fn notify(state: ServiceState) -> io::Result<()> {
    match std::env::var_os(SOCKET_VARIABLE) {
        Some(socket) => notify_at(&socket, state),
        None => Ok(()),
    }
}

/// `socket` is a path, or `@` and the name of an abstract socket.
fn notify_at(socket: &OsStr, state: ServiceState) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.message(), &address)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> Vec<u8> {
        let mut message = [0; 64];
        let length = socket.recv(&mut message).unwrap();
        message[..length].to_vec()
    }

    #[test]
    fn states_arrive_at_sockets_with_a_path_and_at_abstract_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        notify_at(path.as_os_str(), ServiceState::Ready).unwrap();
        assert_eq!(received(&by_path), b"READY=1");

        let name = format!("forebay-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let abstract_socket = UnixDatagram::bind_addr(&address).unwrap();
        notify_at(OsStr::new(&format!("@{name}")), ServiceState::Stopping).unwrap();
        assert_eq!(received(&abstract_socket), b"STOPPING=1");
    }

    #[test]
    fn absent_socket_is_an_error() {
        assert!(notify_at(OsStr::new("/nonexistent/notify"), ServiceState::Ready).is_err());
    }
}
