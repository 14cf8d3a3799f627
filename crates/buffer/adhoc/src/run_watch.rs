//! The progress of the job, from which the leader learns that its program runs.

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
    pub has_results: bool,
    pub has_run: bool,
    pub ready: String,
    pub started: Instant,
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
        self.inner.phase(name);
    }

    fn progress(&mut self, stages: &[StageStatus]) {
        self.inner.progress(stages);
    }

    fn removal(&mut self, removed: u64, files: u64) {
        self.inner.removal(removed, files);
    }

    fn note(&mut self, text: &str) {
        self.inner.note(text);
    }

    fn warning(&mut self, text: &str) {
        self.inner.warning(text);
    }
}
