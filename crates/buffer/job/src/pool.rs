//! The pool that a job runs on: an embedded one, or one over several hosts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_control::controller::{JobUsage, Request, is_valid_token};
use forebay_daemon::ControllerClient;
use forebay_daemon::activity::{Status, StatusSource};
use forebay_daemon::embedded::{
    self, EmbeddedPool, EmbeddedPoolOptions, JobLocked, JoinedPool, OpenPool,
};

use crate::error::RunError;

/// The pool to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolSelection {
    /// One in a directory, of this host and user.
    Embedded(EmbeddedPoolOptions),
    /// The one over several hosts that this file describes.
    Shared(PathBuf),
}

/// An open pool.
#[allow(clippy::large_enum_variant, reason = "a process has one")]
pub enum PoolHandle {
    /// One in a directory, which this process serves.
    Embedded(EmbeddedPool),
    /// One in a directory, which another process serves, or served until it was killed.
    Joined(JoinedPool),
    /// One over several hosts.
    Shared(ControllerClient),
}

impl PoolHandle {
    /// Opens an embedded pool, which is created if need be, or connects to a pool's controller.
    pub fn open(selection: &PoolSelection) -> Result<PoolHandle, RunError> {
        PoolHandle::open_waiting(selection, &mut |_| false)
    }

    /// As [`open`](Self::open). While another process has an embedded pool for itself, `wait` is
    /// asked, with the reason, whether to go on waiting.
    pub fn open_waiting(
        selection: &PoolSelection,
        wait: &mut dyn FnMut(&str) -> bool,
    ) -> Result<PoolHandle, RunError> {
        Ok(match selection {
            PoolSelection::Embedded(options) => match OpenPool::open(options, wait)? {
                OpenPool::Served(pool) => PoolHandle::Embedded(pool),
                OpenPool::Joined(pool) => PoolHandle::Joined(pool),
            },
            PoolSelection::Shared(file) => PoolHandle::Shared(ControllerClient::open(file)?),
        })
    }

    /// Opens a pool that exists.
    pub fn open_existing(selection: &PoolSelection) -> Result<PoolHandle, RunError> {
        if let PoolSelection::Embedded(options) = selection {
            embedded::check_exists(options)?;
        }
        PoolHandle::open(selection)
    }

    /// A client of its controller.
    pub fn controller(&self) -> &ControllerClient {
        match self {
            PoolHandle::Embedded(pool) => pool.client(),
            PoolHandle::Joined(pool) => pool.client(),
            PoolHandle::Shared(client) => client,
        }
    }

    /// Tries to lock a job of an embedded pool for this process. `None`: the pool is over several hosts,
    /// where other hosts could not see the lock.
    pub(crate) fn lock_job(&self, token: &str) -> Result<Option<JobLocked>, RunError> {
        if !is_valid_token(token) {
            // The controller refuses it.
            return Ok(None);
        }
        Ok(match self {
            PoolHandle::Embedded(pool) => Some(pool.lock_job(token)?),
            PoolHandle::Joined(pool) => Some(pool.lock_job(token)?),
            PoolHandle::Shared(_) => None,
        })
    }

    /// A source of the status of this pool, which was opened as `selection`, for another thread.
    /// An embedded one replies within `timeout` or fails.
    pub fn status_source(&self, selection: &PoolSelection, timeout: Duration) -> StatusSource {
        match self {
            PoolHandle::Embedded(pool) => pool.status_source(timeout),
            PoolHandle::Joined(_) | PoolHandle::Shared(_) => {
                let selection = selection.clone();
                Arc::new(move || pool_status(&selection).map_err(|error| error.to_string()))
            }
        }
    }

    /// Leaves it. Returns the pool if this process serves it.
    pub(crate) fn into_served(self) -> Result<Option<EmbeddedPool>, RunError> {
        Ok(match self {
            PoolHandle::Embedded(pool) => Some(pool),
            PoolHandle::Joined(pool) => pool.leave()?,
            PoolHandle::Shared(_) => None,
        })
    }

    /// Closes it: an embedded pool is made durable and unmounted.
    pub fn close(self) -> Result<(), RunError> {
        Ok(self.into_served()?.map_or(Ok(()), EmbeddedPool::close)?)
    }
}

/// The status of a pool; of an embedded one whether or not a process has it open.
pub fn pool_status(selection: &PoolSelection) -> Result<Status, RunError> {
    match selection {
        PoolSelection::Embedded(options) => Ok(embedded::status(options)?),
        PoolSelection::Shared(file) => {
            let client = ControllerClient::open(file)?;
            let status = client.status();
            status.map_err(|failure| RunError::Step("status", failure))
        }
    }
}

/// Statistics of the jobs and persistent instances of this name, or of all; of an embedded pool
/// whether or not a process has it open.
pub fn job_usage(
    selection: &PoolSelection,
    token: Option<&str>,
) -> Result<Vec<JobUsage>, RunError> {
    match selection {
        PoolSelection::Embedded(options) => Ok(embedded::job_usage(options, token)?),
        PoolSelection::Shared(file) => {
            let usage = ControllerClient::open(file)?.job_usage(token);
            usage.map_err(|failure| RunError::Step("usage", failure))
        }
    }
}

/// Opens a pool, carries out one request, and closes it. `step` names it in errors.
pub fn request_once(
    selection: &PoolSelection,
    step: &'static str,
    request: Request,
) -> Result<(), RunError> {
    let creates_data = matches!(request, Request::CreatePersistent { .. });
    let pool = match creates_data {
        true => PoolHandle::open(selection)?,
        false => PoolHandle::open_existing(selection)?,
    };
    let outcome = pool.controller().request(request);
    pool.close()?;
    outcome.map(drop).map_err(|failure| RunError::Step(step, failure))
}
