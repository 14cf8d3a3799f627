//! A process that has joined an embedded pool serves it from then on if the one that did is killed.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::{EmbeddedPool, lock};
use crate::error::DaemonError;
use crate::service::Service;

/// Interval at which the pool's lock is tried, which the kernel releases when its process is gone.
const LOCK_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after an attempt to serve the pool that failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Waits for the lock of a pool that another process serves, and serves the pool once it has it. Others
/// that have joined find this process by the same sockets. Dropping it closes a pool that it serves.
pub(super) struct Successor {
    service: Service,
    served: Arc<Mutex<Option<EmbeddedPool>>>,
}

impl Successor {
    /// Begins to wait.
    pub fn start(directory: &Path) -> Result<Successor, DaemonError> {
        let (stop, stopped) = sync_channel(1);
        let served = Arc::new(Mutex::new(None));
        let (directory, slot) = (directory.to_owned(), served.clone());
        let run = move || {
            if let Some(pool) = await_lock(&directory, &stopped) {
                *slot.lock() = Some(pool);
            }
            Ok(())
        };
        let request_stop = move || {
            // A full channel has the request already.
            let _ = stop.try_send(());
        };
        let service = Service::spawn("successor", request_stop, run)?;
        Ok(Successor { service, served })
    }

    /// Stops waiting. Returns the pool if this process serves it.
    pub fn stop(mut self) -> Result<Option<EmbeddedPool>, DaemonError> {
        self.service.stop()?;
        Ok(self.served.lock().take())
    }
}

/// Returns the pool when this process has its lock and serves it; `None` once it is told to stop.
fn await_lock(directory: &Path, stopped: &Receiver<()>) -> Option<EmbeddedPool> {
    let mut pause = LOCK_INTERVAL;
    while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        pause = LOCK_INTERVAL;
        let Some(lock) = lock::try_lock_abandoned(directory) else {
            continue;
        };
        tracing::warn!(pool = %directory.display(), "the process that served the pool is gone");
        let started =
            EmbeddedPool::start(directory, None, lock).and_then(|pool| pool.share().map(|()| pool));
        match started {
            Ok(pool) => return Some(pool),
            Err(error) => {
                tracing::error!(pool = %directory.display(), %error, "cannot serve the pool");
                pause = RETRY_INTERVAL;
            }
        }
    }
    None
}
