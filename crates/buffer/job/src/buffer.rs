//! The buffer that a job runs on: an embedded pool, or one over several hosts.

use std::path::PathBuf;
use std::time::Duration;

use super::RunError;
use forebay_control::controller::Request;
use forebay_daemon::Control;
use forebay_daemon::activity::Source;
use forebay_daemon::activity::Status;
use forebay_daemon::embedded::{self, HOST, Pool, PoolOptions};
use forebay_daemon::hosts::{Remote, ServeError};

/// Which pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// One in a directory, for this process alone.
    Embedded(PoolOptions),
    /// The one over several hosts that this file describes.
    Shared(PathBuf),
}

impl From<ServeError> for RunError {
    fn from(error: ServeError) -> RunError {
        RunError::Shared(error)
    }
}

/// A pool in use.
pub enum Buffer {
    /// One in a directory.
    Embedded(Pool),
    /// One over several hosts.
    Shared(Remote),
}

impl Buffer {
    /// Opens an embedded pool, or connects to a shared one.
    pub fn open(which: &Which) -> Result<Buffer, RunError> {
        Ok(match which {
            Which::Embedded(options) => Buffer::Embedded(Pool::open(options)?),
            Which::Shared(file) => Buffer::Shared(Remote::open(file)?),
        })
    }

    /// The same for those who have nothing to do in a pool that is not there yet: none is made.
    pub fn open_existing(which: &Which) -> Result<Buffer, RunError> {
        if let Which::Embedded(options) = which {
            embedded::is_there(options)?;
        }
        Buffer::open(which)
    }

    /// Its controller.
    pub fn control(&self) -> &dyn Control {
        match self {
            Buffer::Embedded(pool) => pool.asker(),
            Buffer::Shared(remote) => remote,
        }
    }

    /// The host that mounts when no other is named, if there is one.
    pub fn host(&self) -> Option<&str> {
        match self {
            Buffer::Embedded(_) => Some(HOST),
            Buffer::Shared(remote) => remote.host(),
        }
    }

    /// The status of this pool, which is `which`, again and again, for another thread; an embedded
    /// one answers within `patience` or not at all.
    pub fn source(&self, which: &Which, patience: Duration) -> Source {
        match self {
            Buffer::Embedded(pool) => {
                let asker = pool.asker().clone();
                Box::new(move || asker.status_within(patience))
            }
            Buffer::Shared(_) => {
                let which = which.clone();
                Box::new(move || status(&which).map_err(|error| error.to_string()))
            }
        }
    }

    /// Gives it back: an embedded pool is made durable and unmounted.
    pub fn close(self) -> Result<(), RunError> {
        match self {
            Buffer::Embedded(pool) => Ok(pool.close()?),
            Buffer::Shared(_) => Ok(()),
        }
    }
}

/// The status of a pool; of an embedded one whether or not a process uses it.
pub fn status(which: &Which) -> Result<Status, RunError> {
    match which {
        Which::Embedded(options) => Ok(embedded::status(options)?),
        Which::Shared(file) => {
            let remote = Remote::open(file)?;
            remote
                .status()
                .map_err(|failure| RunError::Step("status", failure))
        }
    }
}

/// Asks one thing of a pool and waits until it is done.
pub fn order(which: &Which, step: &'static str, request: Request) -> Result<(), RunError> {
    let buffer = match request {
        Request::CreatePersistent { .. } => Buffer::open(which)?,
        _ => Buffer::open_existing(which)?,
    };
    let outcome = buffer.control().ask(request);
    buffer.close()?;
    outcome
        .map(drop)
        .map_err(|failure| RunError::Step(step, failure))
}
