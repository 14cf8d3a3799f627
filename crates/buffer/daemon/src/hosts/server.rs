//! Listening: connections come, are asked who they are, and get two threads each.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_net::stream::Stream;
use rustix::net::{Shutdown, shutdown};

use super::doors::{Doors, Ticket};
use crate::error::DaemonError;

/// Ends both directions of a connection, for whoever waits for it.
pub fn hang_up(stream: &Stream) {
    // It fails if the other side has ended it already.
    let _ = shutdown(stream, Shutdown::Both);
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A socket that is listened at. Dropping it ends that.
pub struct Listener {
    socket: Arc<Socket>,
    closing: Arc<AtomicBool>,
}

impl Listener {
    /// Listens on TCP.
    pub fn tcp(address: SocketAddr) -> Result<Listener, DaemonError> {
        let bound =
            forebay_net::listener::listen(address).map_err(DaemonError::with_context(address))?;
        Ok(Listener::new(Socket::Tcp(bound)))
    }

    /// Listens at a Unix socket, which everyone may connect to. A socket that is left over there
    /// is removed.
    pub fn unix(path: &Path) -> Result<Listener, DaemonError> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(DaemonError::with_context(parent.display()))?;
        }
        let _ = std::fs::remove_file(path);
        let bound = UnixListener::bind(path).and_then(|bound| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
            Ok(bound)
        });
        let bound = bound.map_err(DaemonError::with_context(path.display()))?;
        Ok(Listener::new(Socket::Unix(bound, path.to_owned())))
    }

    fn new(socket: Socket) -> Listener {
        Listener {
            socket: Arc::new(socket),
            closing: Arc::default(),
        }
    }

    /// Where it listens, on TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match &*self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Serves every connection on a thread of its own, from now on.
    pub fn serve(
        &self,
        doors: Doors,
        each: impl Fn(Arc<Stream>, Ticket) + Send + Sync + Clone + 'static,
    ) -> Result<(), DaemonError> {
        let (socket, closing) = (self.socket.clone(), self.closing.clone());
        let run = move || {
            while !closing.load(Ordering::Acquire) {
                let accepted = match &*socket {
                    Socket::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                        stream.set_nodelay(true)?;
                        Ok(Stream::Tcp(stream))
                    }),
                    Socket::Unix(listener, _) => {
                        listener.accept().map(|(stream, _)| Stream::Unix(stream))
                    }
                };
                match accepted {
                    Ok(stream) => begin(stream, &doors, each.clone()),
                    Err(_) if closing.load(Ordering::Acquire) => {}
                    Err(error) => {
                        // Out of descriptors or memory, or the other side has gone already.
                        tracing::warn!(%error, "a connection cannot be accepted");
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("forebay-accept".into());
        thread
            .spawn(run)
            .map(drop)
            .map_err(DaemonError::with_context("no thread can be made"))
    }
}

fn begin(stream: Stream, doors: &Doors, each: impl Fn(Arc<Stream>, Ticket) + Send + 'static) {
    let stream = Arc::new(stream);
    let ticket = doors.enter(&stream);
    let spawned: io::Result<_> = std::thread::Builder::new()
        .name("forebay-serve".into())
        .spawn(move || each(stream, ticket));
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for a connection");
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        let _ = match &*self.socket {
            Socket::Tcp(listener) => shutdown(listener, Shutdown::Both),
            Socket::Unix(listener, path) => {
                let _ = std::fs::remove_file(path);
                shutdown(listener, Shutdown::Both)
            }
        };
    }
}
