//! Storage daemons of this process. A client in the same process has its calls carried out by its own
//! thread, where a socket would have to wake the daemon's thread, and that the client's.
//!
//! The connection is a pair of sockets nevertheless: replies, descriptors and the end of a connection
//! come through it, and so do calls that another thread has to carry out.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// The number of a connection at its daemon.
pub type ConnectionNumber = u64;

/// The way that a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is carried out, or waits for something else than a thread. The reply comes through the socket.
    Accepted,
    /// It must be sent through the socket, because this thread may not carry it out.
    NeedsSocket,
    /// This one and all later ones must be sent through the socket: the daemon's threads have given the
    /// connection to another one, have closed it, or have ended.
    NotServed,
}

/// A storage daemon of this process.
pub trait InProcessService: Debug + Send + Sync {
    /// Takes a new connection, of which `socket` is the daemon's end. `None`: this thread may not use
    /// the service.
    fn accept(&self, socket: UnixStream) -> io::Result<Option<ConnectionNumber>>;
    /// Carries out the call in `frame`, as if it had come through the socket of the connection.
    fn deliver(&self, connection: ConnectionNumber, frame: &[u8]) -> Delivery;
}

/// The services of this process, by the paths of their sockets.
static SERVICES: Mutex<BTreeMap<PathBuf, Weak<dyn InProcessService>>> = Mutex::new(BTreeMap::new());

/// Makes a service known for as long as this exists.
#[derive(Debug)]
pub struct Registration(PathBuf);

/// Makes the service known that listens on the socket `path`.
pub fn register(path: &Path, service: Weak<dyn InProcessService>) -> Registration {
    SERVICES.lock().insert(path.to_owned(), service);
    Registration(path.to_owned())
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut services = SERVICES.lock();
        // The next service on this socket may have begun before this one has ended.
        if services.get(&self.0).is_some_and(|service| service.strong_count() == 0) {
            services.remove(&self.0);
        }
    }
}

/// A client's end of a connection to a service of this process.
#[derive(Debug)]
pub(crate) struct InProcessCalls {
    service: Arc<dyn InProcessService>,
    number: ConnectionNumber,
}

impl InProcessCalls {
    /// Connects to the service that listens on the socket `path`, if it is in this process and this
    /// thread may use it.
    pub fn connect(path: &Path) -> io::Result<Option<(UnixStream, InProcessCalls)>> {
        let found = SERVICES.lock().get(path).and_then(Weak::upgrade);
        let Some(service) = found else {
            return Ok(None);
        };
        let (own, other) = UnixStream::pair()?;
        let number = service.accept(other)?;
        Ok(number.map(|number| (own, InProcessCalls { service, number })))
    }

    /// Carries out the call in `frame`.
    pub fn deliver(&self, frame: &[u8]) -> Delivery {
        self.service.deliver(self.number, frame)
    }
}
