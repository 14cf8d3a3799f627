//! The point at which a simulated mover that has copied its share of a stage waits for the controller.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::System;
use forebay_control::messages::{ShareDecision, ShareTally};
use forebay_stage::{ProgressCounters, ShareBarrier};

use crate::actor_thread::{self, Machine};

/// The mover of a stage on a node.
pub struct SimMover {
    pub attempt: u32,
    pub counters: Arc<ProgressCounters>,
    pub barrier: Arc<SimBarrier>,
}

/// The tally of a mover, and the decision on it.
#[derive(Debug)]
pub struct SimBarrier {
    state: Mutex<(Option<ShareTally>, Option<ShareDecision>)>,
    machine: Machine,
}

impl SimBarrier {
    pub fn new(machine: Machine) -> Arc<SimBarrier> {
        Arc::new(SimBarrier { state: Mutex::default(), machine })
    }

    /// The tally of the mover, if it waits.
    pub fn tally(&self) -> Option<ShareTally> {
        self.state.lock().unwrap().0
    }

    pub fn release(&self, decision: ShareDecision) {
        self.state.lock().unwrap().1.get_or_insert(decision);
    }
}

impl ShareBarrier for SimBarrier {
    fn wait(&self, tally: &ShareTally, progress: &ProgressCounters) -> Option<ShareDecision> {
        self.state.lock().unwrap().0 = Some(*tally);
        loop {
            if progress.is_cancelled() || actor_thread::is_killed() {
                return None;
            }
            let decision = self.state.lock().unwrap().1;
            if decision.is_some() {
                return decision;
            }
            self.machine.sleep(Duration::from_millis(20));
        }
    }
}
