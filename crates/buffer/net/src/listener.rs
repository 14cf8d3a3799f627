//! Listening sockets.

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

/// Delay after a failure to accept a connection for lack of descriptors or memory.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(10);

/// Listens at `address`. Errors name likely mistakes in the configuration.
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

/// Listens at a Unix socket with these permission bits. Replaces the socket of a killed process.
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
            Socket::Tcp(listener) => Stream::tcp(listener.accept()?.0),
            Socket::Unix(listener, _) => Ok(Stream::Unix(listener.accept()?.0)),
        }
    }
}

/// A listening socket with a thread for each connection. It is closed when dropped.
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

    /// Listens at a Unix socket like [`bind_unix`]. Creates its directory if missing.
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

    /// The TCP address.
    pub fn address(&self) -> Option<SocketAddr> {
        match &*self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Starts to serve every connection on a thread of its own.
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
