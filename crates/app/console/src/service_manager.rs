//! Notifications to the service manager that has started this process, as in `sd_notify(3)`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Environment variable with the address of the service manager's socket.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// Environment variable with the time after which the service manager ends a service that has not
/// reported that it works, in microseconds.
const WATCHDOG_VARIABLE: &str = "WATCHDOG_USEC";
/// Environment variable with the process to which [`WATCHDOG_VARIABLE`] applies.
const WATCHDOG_PROCESS_VARIABLE: &str = "WATCHDOG_PID";

/// State of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// It serves requests.
    Ready,
    /// It still works.
    Alive,
    /// It is about to exit.
    Stopping,
}

impl ServiceState {
    fn message(self) -> &'static [u8] {
        match self {
            ServiceState::Ready => b"READY=1",
            ServiceState::Alive => b"WATCHDOG=1",
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

/// The service manager's watchdog: it ends this process unless it hears from it in time.
#[derive(Debug)]
pub struct Watchdog {
    interval: Duration,
    last: Option<Instant>,
}

impl Watchdog {
    /// The watchdog that the environment describes, if it is for this process.
    pub fn from_environment() -> Option<Watchdog> {
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_other = |process: u64| process != u64::from(std::process::id());
        if number(WATCHDOG_PROCESS_VARIABLE).is_some_and(is_other) {
            return None;
        }
        let timeout = number(WATCHDOG_VARIABLE).filter(|timeout| *timeout > 0)?;
        Some(Watchdog { interval: Duration::from_micros(timeout) / 3, last: None })
    }

    /// Whether it is time for a report: a third of the watchdog's time has passed since the last.
    pub fn is_due(&self, now: Instant) -> bool {
        self.last.is_none_or(|last| now.saturating_duration_since(last) >= self.interval)
    }

    /// Notes that the service has reported that it works.
    pub fn note_report(&mut self, now: Instant) {
        self.last = Some(now);
    }
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
