//! The point at which a mover that has copied its share of a stage waits for the controller.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use forebay_control::messages::{ShareDecision, ShareTally};
use forebay_stage::{ProgressCounters, ShareBarrier};
use parking_lot::{Condvar, Mutex};

/// Interval at which a waiting mover looks whether it is cancelled.
const CANCELLATION_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The barrier of one mover.
pub(super) struct MoverBarrier {
    /// Reports to the driver what the mover has copied.
    report: Box<dyn Fn(ShareTally) + Send + Sync>,
    decision: Mutex<Option<ShareDecision>>,
    decided: Condvar,
}

impl fmt::Debug for MoverBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MoverBarrier").field("decision", &self.decision).finish_non_exhaustive()
    }
}

impl MoverBarrier {
    /// The barrier of a mover that has not arrived there. `report` must not block.
    pub fn new(report: impl Fn(ShareTally) + Send + Sync + 'static) -> Arc<MoverBarrier> {
        Arc::new(MoverBarrier {
            report: Box::new(report),
            decision: Mutex::default(),
            decided: Condvar::new(),
        })
    }

    /// Lets the mover continue. The command may be repeated.
    pub fn release(&self, decision: ShareDecision) {
        self.decision.lock().get_or_insert(decision);
        self.decided.notify_all();
    }
}

impl ShareBarrier for MoverBarrier {
    fn wait(&self, tally: &ShareTally, progress: &ProgressCounters) -> Option<ShareDecision> {
        (self.report)(*tally);
        let mut decision = self.decision.lock();
        while decision.is_none() && !progress.is_cancelled() {
            let _ = self.decided.wait_for(&mut decision, CANCELLATION_POLL_INTERVAL);
        }
        *decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn mover_reports_its_tally_and_waits_for_a_decision_or_its_cancellation() {
        let (sender, tallies) = channel();
        let barrier = MoverBarrier::new(move |tally| sender.send(tally).unwrap());
        let (progress, tally) =
            (ProgressCounters::new(), ShareTally { own: 3, ..Default::default() });
        let decision = ShareDecision { complete: true, created: false };
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| barrier.wait(&tally, &progress));
            assert_eq!(tallies.recv().unwrap(), tally);
            assert!(!waiting.is_finished());
            barrier.release(decision);
            assert_eq!(waiting.join().unwrap(), Some(decision));
        });
        let cancelled = MoverBarrier::new(|_| {});
        progress.cancel();
        assert_eq!(cancelled.wait(&tally, &progress), None);
    }
}
