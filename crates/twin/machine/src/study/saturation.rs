//! The search for the greatest load that a network accepts.

use super::error::StudyError;
use super::options::SimOptions;
use super::run::Progress;
use super::traffic::simulate_traffic;
use crate::results::{SaturationSearch, SaturationStep, TrafficRun};
use forebay_machine_file::machine::Machine;
use forebay_workload::traffic::TrafficSpec;

/// Bisections: the result is within 1/128 of the node link's rate.
const STEPS: u32 = 7;
/// Below this share of the offered load, a load is refused even if the queues do not grow all the
/// time.
const ACCEPTED: f64 = 0.95;

/// Searches the greatest load that the network accepts, by bisection between 0 and the whole rate of
/// the node link. The result is the run at that load, with all simulated loads.
///
/// # Errors
/// As [`simulate_traffic`]; [`StudyError::Limit`] if no load is accepted.
pub fn find_saturation(
    machine: &Machine,
    spec: &TrafficSpec,
    options: &SimOptions,
    progress: Progress<'_>,
) -> Result<TrafficRun, StudyError> {
    let mut search = SaturationSearch { accepted: 0.0, refused: None, steps: Vec::new() };
    let mut best = None;
    let mut load = 1.0;
    for step in 0..=STEPS {
        let spec = TrafficSpec { load, ..spec.clone() };
        let run = simulate_traffic(machine, &spec, options, &|time, done, events| {
            progress(time, (f64::from(step) + done) / f64::from(STEPS + 1), events)
        })?;
        search.steps.push(SaturationStep {
            offered_load: load,
            accepted_load: run.accepted_load,
            state: run.state.clone(),
            latency_mean_ns: run.latency_ns.as_ref().map(|l| l.mean),
        });
        let refused = run.is_saturated() || run.accepted_load < ACCEPTED * run.window_offered_load;
        if refused {
            search.refused = Some(load);
        } else {
            search.accepted = load;
            best = Some(run);
        }
        let Some(above) = search.refused else {
            break;
        };
        load = f64::midpoint(search.accepted, above);
    }
    match best {
        Some(mut run) => {
            run.saturation = Some(search);
            Ok(run)
        }
        None => Err(StudyError::Limit(format!(
            "the network accepts no load of at least {load:.4} of the node link's rate: use more \
             messages (--messages), so that a steady state is reached"
        ))),
    }
}
