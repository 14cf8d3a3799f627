//! A daemon's thread: started once, stopped once.

use std::thread::JoinHandle;

use crate::error::DaemonError;

/// A thread that runs a driver until it is stopped or fails. Dropping it stops it.
pub(crate) struct Service {
    name: &'static str,
    request_stop: Box<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Service {
    /// Runs `run` on a thread called `name`. `request_stop` must make `run` return soon, from
    /// any thread and any number of times.
    pub fn spawn(
        name: &'static str,
        request_stop: impl Fn() + Send + Sync + 'static,
        run: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<Service, DaemonError> {
        let run = move || {
            run().inspect_err(|reason| tracing::error!(reason, service = name, "service failed"))
        };
        let thread = std::thread::Builder::new()
            .name(format!("forebay-{name}"))
            .spawn(run)
            .map_err(DaemonError::with_context("cannot start a thread"))?;
        Ok(Service { name, request_stop: Box::new(request_stop), thread: Some(thread) })
    }

    /// Whether the thread has returned: it failed, or something else stopped it.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the thread and waits for it.
    ///
    /// # Errors
    /// The reason for which the driver had failed. A second call succeeds.
    pub fn stop(&mut self) -> Result<(), DaemonError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        (self.request_stop)();
        match thread.join() {
            Ok(outcome) => outcome.map_err(DaemonError::new),
            Err(_) => Err(DaemonError::new(format!("{} thread panicked", self.name))),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
