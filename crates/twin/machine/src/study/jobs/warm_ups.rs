//! Warm-ups of traffic, and copies of their state.

use crate::group::Group;
use crate::scenario::Scenario;
use crate::study::error::StudyError;
use crate::study::options::SimOptions;
use crate::study::run::{Progress, warm_up};
use forebay_engine::Simulation;
use forebay_units::Time;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// States that are kept at most; then the oldest one is dropped.
const MOST_STATES: usize = 8;

/// The state at the end of a warm-up, once it is simulated.
type State = Arc<Mutex<Option<Simulation<Group>>>>;

/// Warm-ups of the traffic of studies: before their I/O jobs start, the jobs with traffic run for a time. Simulations
/// of which everything is the same until then go on from copies of one state, whatever their I/O jobs are.
/// Results are the same as without copies.
pub struct WarmUps {
    /// Length, ps.
    time: u64,
    /// States by their inputs, the oldest first; `None`: each simulation has its own warm-up.
    states: Option<Mutex<VecDeque<(String, State)>>>,
    simulated: AtomicU64,
    copied: AtomicU64,
}

impl WarmUps {
    /// No warm-up.
    pub fn none() -> WarmUps {
        WarmUps::repeated(Time(0))
    }

    /// Warm-ups of this length, each of which is simulated once.
    pub fn shared(time: Time) -> WarmUps {
        WarmUps { states: Some(Mutex::default()), ..WarmUps::repeated(time) }
    }

    /// Warm-ups of this length that are simulated again for each simulation.
    pub fn repeated(time: Time) -> WarmUps {
        let (simulated, copied) = (AtomicU64::new(0), AtomicU64::new(0));
        WarmUps { time: time.0, states: None, simulated, copied }
    }

    /// Numbers of warm-ups that were simulated, and of simulations that went on from the copy of a state.
    pub fn counts(&self) -> (u64, u64) {
        (self.simulated.load(Ordering::Relaxed), self.copied.load(Ordering::Relaxed))
    }

    /// Length, ps.
    pub(super) fn time(&self) -> u64 {
        self.time
    }

    /// The state of a scenario at the end of its warm-up; `None` without one. Scenarios with the same `inputs`
    /// have the same state.
    pub(super) fn state(
        &self,
        inputs: impl Fn() -> String,
        scenario: &Scenario,
        options: &SimOptions,
        progress: Progress<'_>,
    ) -> Result<Option<Simulation<Group>>, StudyError> {
        if self.time == 0 || scenario.traffic.is_empty() {
            return Ok(None);
        }
        let simulate = || {
            self.simulated.fetch_add(1, Ordering::Relaxed);
            warm_up(scenario, options, self.time, progress)
        };
        let Some(states) = &self.states else { return simulate().map(Some) };
        let known = WarmUps::place(states, inputs());
        // Another simulation that needs this state waits for it here.
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match known.take() {
            Some(state) => state,
            None => simulate()?,
        };
        self.copied.fetch_add(1, Ordering::Relaxed);
        let copy = state.fork(options.threads, Group::copy_with_traffic);
        *known = Some(state);
        Ok(Some(copy))
    }

    /// The place of a state.
    fn place(states: &Mutex<VecDeque<(String, State)>>, inputs: String) -> State {
        let mut states = states.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, state)) = states.iter().find(|(known, _)| *known == inputs) {
            return state.clone();
        }
        if states.len() >= MOST_STATES {
            states.pop_front();
        }
        let state = State::default();
        states.push_back((inputs, state.clone()));
        state
    }
}
