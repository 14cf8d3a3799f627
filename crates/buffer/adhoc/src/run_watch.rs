//! The progress of the job, from which the leader learns that its program runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use forebay_control::controller::StageStatus;
use forebay_job::Observer;
use forebay_units::human;

use crate::fleet::FleetHandle;
use crate::home::Home;

/// Passes on the progress of the job, and makes the hosts keep their data once its program runs.
pub struct RunWatch<'a> {
    pub inner: &'a mut dyn Observer,
    pub handle: &'a FleetHandle,
    pub home: &'a Home,
    /// Whether a host is gone for good.
    pub lost: &'a AtomicBool,
    /// Whether the job was interrupted because of that.
    pub gave_up: bool,
    pub has_results: bool,
    pub has_run: bool,
    pub has_ended: bool,
    pub ready: String,
    pub started: Instant,
}

impl RunWatch<'_> {
    /// Interrupts the job if its program has ended and a host is lost, for which it would wait.
    fn give_up_if_lost(&mut self) {
        if self.has_ended && !self.gave_up && self.lost.load(Ordering::Acquire) {
            self.gave_up = true;
            let own = rustix::process::getpid();
            if let Err(error) = rustix::process::kill_process(own, rustix::process::Signal::TERM) {
                self.inner.warning(&format!("cannot interrupt the job: {error}"));
            }
        }
    }
}

impl Observer for RunWatch<'_> {
    fn phase(&mut self, name: &str) {
        if name == "run" {
            self.has_run = true;
            if self.has_results {
                if let Err(reason) = self.home.mark_kept() {
                    self.inner.warning(&reason);
                }
                self.handle.keep();
            }
            let seconds = human::seconds(self.started.elapsed().as_secs_f64());
            self.inner.note(&format!("ready after {seconds}: {}", self.ready));
        }
        self.has_ended = self.has_run && name != "run";
        self.inner.phase(name);
        self.give_up_if_lost();
    }

    fn progress(&mut self, stages: &[StageStatus]) {
        self.inner.progress(stages);
    }

    fn removal(&mut self, removed: u64, files: u64) {
        self.inner.removal(removed, files);
    }

    fn note(&mut self, text: &str) {
        // Called when a step stalls.
        self.give_up_if_lost();
        self.inner.note(text);
    }

    fn warning(&mut self, text: &str) {
        self.inner.warning(text);
    }
}
