//! Several processes that use one embedded pool: one serves it, and others join it.
//!
//! Two locked files of the directory order them. A process holds `joining` shared while it joins, and
//! `users` shared as long as it uses the pool. The process that serves the pool holds `joining`
//! exclusively while no other may join; when it has that, and nobody has `users`, it may end. The kernel
//! releases the locks of killed processes.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use forebay_net::auth::Authenticator;
use forebay_net::lock_file::{open_lock_file, try_lock};
use forebay_protocol::address::Address;
use rustix::fs::{FlockOperation, flock};

use super::successor::Successor;
use super::{
    EmbeddedPool, HOST_NAME, JobLock, JobLocked, job_api_socket, pool_error, status_socket,
};
use crate::client::ControllerClient;
use crate::connection::Endpoint;
use crate::error::DaemonError;

/// A pool that another process serves for as long as this exists; if that process is killed, this one
/// may serve it.
pub struct JoinedPool {
    client: ControllerClient,
    directory: PathBuf,
    successor: Successor,
    users: File,
}

impl JoinedPool {
    /// Joins the process that serves the pool in `directory`. `None`: there is none, or it does not
    /// permit it now.
    pub(super) fn join(directory: &Path) -> Result<Option<JoinedPool>, DaemonError> {
        let Some(_joining) = lock_shared(directory, "joining")? else {
            return Ok(None);
        };
        let Some(users) = lock_shared(directory, "users")? else {
            return Ok(None);
        };
        // While `joining` is locked, no process begins to serve the pool for itself alone.
        let Ok(client) = connect(directory) else {
            return Ok(None);
        };
        let successor = Successor::start(directory)?;
        Ok(Some(JoinedPool { client, directory: directory.to_owned(), successor, users }))
    }

    /// Leaves the pool. Returns it if this process serves it by now.
    pub fn leave(self) -> Result<Option<EmbeddedPool>, DaemonError> {
        let JoinedPool { client, directory, successor, users } = self;
        drop(client);
        let served = successor.stop().map_err(|error| pool_error(&directory, error))?;
        // Only now: until it has left, no process ends the service of the pool.
        drop(users);
        Ok(served)
    }

    /// Tries to lock the job `token` for this process.
    pub fn lock_job(&self, token: &str) -> Result<JobLocked, DaemonError> {
        let locked = JobLock::try_lock(&self.directory, token);
        locked.map_err(|error| pool_error(&self.directory, error))
    }

    /// A client of the pool, for this process's user.
    pub fn client(&self) -> &ControllerClient {
        &self.client
    }
}

/// Opens a file and locks it. `None`: another process has locked it exclusively.
fn lock_shared(directory: &Path, name: &str) -> Result<Option<File>, DaemonError> {
    let lock = || {
        let file = open_lock_file(&directory.join(name))?;
        Ok::<_, io::Error>(try_lock(&file, FlockOperation::NonBlockingLockShared)?.then_some(file))
    };
    lock().map_err(DaemonError::with_context(name))
}

fn connect(directory: &Path) -> Result<ControllerClient, DaemonError> {
    let endpoint = Endpoint::Socket {
        address: Address::Unix(status_socket(directory)),
        identity: Authenticator::default(),
    };
    let host = Some(HOST_NAME.to_owned());
    ControllerClient::connect(vec![Ok(endpoint)], None, job_api_socket(directory), host)
}

/// The locks of the process that serves a pool.
pub(super) struct Sharing {
    joining: File,
    users: File,
}

impl Sharing {
    /// No process may join.
    pub fn closed(directory: &Path) -> io::Result<Sharing> {
        let open = |name: &str| open_lock_file(&directory.join(name));
        let sharing = Sharing { joining: open("joining")?, users: open("users")? };
        sharing.close()?;
        Ok(sharing)
    }

    /// From now on processes may join.
    pub fn open(&self) -> io::Result<()> {
        Ok(flock(&self.joining, FlockOperation::Unlock)?)
    }

    /// From now on no process may join. Waits until those that are joining have done so.
    pub fn close(&self) -> io::Result<()> {
        Ok(flock(&self.joining, FlockOperation::LockExclusive)?)
    }

    /// Whether other processes use the pool.
    pub fn has_users(&self) -> io::Result<bool> {
        let is_free = try_lock(&self.users, FlockOperation::NonBlockingLockExclusive)?;
        if is_free {
            flock(&self.users, FlockOperation::Unlock)?;
        }
        Ok(!is_free)
    }
}
