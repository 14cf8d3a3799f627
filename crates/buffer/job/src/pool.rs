//! The buffer that a job runs on: an embedded pool, or one over several hosts.

use std::path::PathBuf;
use std::time::Duration;

use super::RunError;
use forebay_control::controller::Request;
use forebay_daemon::ControllerClient;
use forebay_daemon::activity::Status;
use forebay_daemon::activity::StatusSource;
use forebay_daemon::embedded::{self, EmbeddedPool, EmbeddedPoolOptions, HOST_NAME};
use forebay_daemon::hosts::{DaemonError, RemoteController};

/// Which pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolSelection {
    /// One in a directory, for this process alone.
    Embedded(EmbeddedPoolOptions),
    /// The one over several hosts that this file describes.
    Shared(PathBuf),
}

impl From<DaemonError> for RunError {
    fn from(error: DaemonError) -> RunError {
        RunError::Shared(error)
    }
}

/// A pool in use.
pub enum PoolHandle {
    /// One in a directory.
    Embedded(EmbeddedPool),
    /// One over several hosts.
    Shared(RemoteController),
}

impl PoolHandle {
    /// Opens an embedded pool, or connects to a shared one.
    pub fn open(which: &PoolSelection) -> Result<PoolHandle, RunError> {
        Ok(match which {
            PoolSelection::Embedded(options) => PoolHandle::Embedded(EmbeddedPool::open(options)?),
            PoolSelection::Shared(file) => PoolHandle::Shared(RemoteController::open(file)?),
        })
    }

    /// The same for those who have nothing to do in a pool that is not there yet: none is made.
    pub fn open_existing(which: &PoolSelection) -> Result<PoolHandle, RunError> {
        if let PoolSelection::Embedded(options) = which {
            embedded::check_exists(options)?;
        }
        PoolHandle::open(which)
    }

    /// Its controller.
    pub fn controller(&self) -> &dyn ControllerClient {
        match self {
            PoolHandle::Embedded(pool) => pool.asker(),
            PoolHandle::Shared(remote) => remote,
        }
    }

    /// The host that mounts when no other is named, if there is one.
    pub fn host(&self) -> Option<&str> {
        match self {
            PoolHandle::Embedded(_) => Some(HOST_NAME),
            PoolHandle::Shared(remote) => remote.host(),
        }
    }

    /// The status of this pool, which is `which`, again and again, for another thread; an embedded
    /// one answers within `patience` or not at all.
    pub fn status_source(&self, which: &PoolSelection, patience: Duration) -> StatusSource {
        match self {
            PoolHandle::Embedded(pool) => {
                let asker = pool.asker().clone();
                Box::new(move || asker.status_within(patience))
            }
            PoolHandle::Shared(_) => {
                let which = which.clone();
                Box::new(move || pool_status(&which).map_err(|error| error.to_string()))
            }
        }
    }

    /// Gives it back: an embedded pool is made durable and unmounted.
    pub fn close(self) -> Result<(), RunError> {
        match self {
            PoolHandle::Embedded(pool) => Ok(pool.close()?),
            PoolHandle::Shared(_) => Ok(()),
        }
    }
}

/// The status of a pool; of an embedded one whether or not a process uses it.
pub fn pool_status(which: &PoolSelection) -> Result<Status, RunError> {
    match which {
        PoolSelection::Embedded(options) => Ok(embedded::status(options)?),
        PoolSelection::Shared(file) => {
            let remote = RemoteController::open(file)?;
            remote
                .status()
                .map_err(|failure| RunError::Step("status", failure))
        }
    }
}

/// Asks one thing of a pool and waits until it is done.
pub fn request_once(
    which: &PoolSelection,
    step: &'static str,
    request: Request,
) -> Result<(), RunError> {
    let buffer = match request {
        Request::CreatePersistent { .. } => PoolHandle::open(which)?,
        _ => PoolHandle::open_existing(which)?,
    };
    let outcome = buffer.controller().request(request);
    buffer.close()?;
    outcome
        .map(drop)
        .map_err(|failure| RunError::Step(step, failure))
}
