//! IOR's output format for a simulated run.

use forebay_machine::results::{IorPoint, Phase};
use forebay_workload::ior::report::{PhaseResult, Report};
use forebay_workload::ior::{Access, AccessPattern, Ior};

/// The output of IOR for one node count.
pub fn text(
    arguments: &[String],
    machine: &str,
    ior: &Ior,
    pattern: &AccessPattern,
    point: &IorPoint,
) -> String {
    let result = |phase: &Phase| PhaseResult {
        access: if phase.access == "read" { Access::Read } else { Access::Write },
        iteration: phase.iteration,
        bytes: phase.bytes,
        open_seconds: phase.open_seconds,
        transfer_seconds: phase.transfer_seconds,
        close_seconds: phase.close_seconds,
        total_seconds: phase.seconds,
        latency_seconds: phase.least_mean_seconds,
    };
    let phases: Vec<PhaseResult> = point.phases.iter().map(result).collect();
    let finished_seconds = point.run.simulated_seconds;
    Report { arguments, machine, ior, pattern, phases: &phases, finished_seconds }.to_string()
}
