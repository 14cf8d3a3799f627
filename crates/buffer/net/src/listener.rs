//! Listening sockets at addresses that a configuration names.

use crate::admission::{ConnectionPermit, SharedAdmission};
use crate::stream::Stream;
use rustix::net::{Shutdown, shutdown};
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Delay after a connection that could not be accepted, for lack of descriptors or memory.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// Listens at `address`. The error's text names likely mistakes in the configuration.
pub fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
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

/// Listens at a Unix socket with these permission bits. A socket that a killed process has left
/// there is replaced.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok(listener)
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Socket {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Socket::Tcp(listener) => Stream::accepted(listener.accept()?.0),
            Socket::Unix(listener, _) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }
}

/// A listening socket with a thread for each connection. Dropping it ends the listening.
#[derive(Debug)]
pub struct Listener {
    socket: Arc<Socket>,
    closing: Arc<AtomicBool>,
}

impl Listener {
    /// Listens on TCP.
    pub fn tcp(address: SocketAddr) -> io::Result<Listener> {
        Ok(Listener::new(Socket::Tcp(bind_tcp(address)?)))
    }

    /// Listens at a Unix socket, as [`bind_unix`] does. The folder is created if it is missing.
    pub fn unix(path: &Path, mode: u32) -> io::Result<Listener> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let listener = bind_unix(path, mode)?;
        Ok(Listener::new(Socket::Unix(listener, path.to_owned())))
    }

    fn new(socket: Socket) -> Listener {
        Listener { socket: Arc::new(socket), closing: Arc::default() }
    }

    /// The address, on TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match &*self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Serves every connection on a thread of its own, from now on.
    pub fn serve(
        &self,
        admission: SharedAdmission,
        serve: impl Fn(Arc<Stream>, ConnectionPermit) + Send + Sync + Clone + 'static,
    ) -> io::Result<()> {
        let (socket, closing) = (self.socket.clone(), self.closing.clone());
        let accept = move || {
            while !closing.load(Ordering::Acquire) {
                match socket.accept() {
                    Ok(stream) => start_connection(stream, &admission, serve.clone()),
                    Err(_) if closing.load(Ordering::Acquire) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        std::thread::sleep(ACCEPT_BACKOFF);
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("forebay-accept".into());
        thread.spawn(accept).map(drop)
    }
}

fn start_connection(
    stream: Stream,
    admission: &SharedAdmission,
    serve: impl Fn(Arc<Stream>, ConnectionPermit) + Send + 'static,
) {
    let stream = Arc::new(stream);
    let permit = admission.add(&stream);
    let thread = std::thread::Builder::new().name("forebay-serve".into());
    if let Err(error) = thread.spawn(move || serve(stream, permit)) {
        tracing::warn!(%error, "cannot start a thread for a connection");
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        let _ = match &*self.socket {
            Socket::Tcp(listener) => shutdown(listener, Shutdown::Both),
            Socket::Unix(listener, path) => {
                let _ = fs::remove_file(path);
                shutdown(listener, Shutdown::Both)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_errors_name_a_remedy() {
        let first = bind_tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let taken = bind_tcp(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        assert!(taken.to_string().contains("another port"), "{taken}");
        // An address for documentation (RFC 5737), which no host has.
        let nowhere = bind_tcp("192.0.2.1:7510".parse().unwrap()).unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::AddrNotAvailable);
        assert!(nowhere.to_string().contains("no such address"), "{nowhere}");
    }
}
