//! IOR's output format for a simulated run.

use forebay_machine::results::IorPoint;
use forebay_workload::ior::report::{Line, PhaseResult, Report, TestReport};
use forebay_workload::ior::{Access, AccessPattern, Ior};

/// The output of IOR for one node count, without the line for the removal of files.
pub fn text(
    arguments: &[String],
    machine: &str,
    test: &Ior,
    layout: &AccessPattern,
    point: &IorPoint,
) -> String {
    let lines: Vec<Line> = point
        .phases
        .iter()
        .map(|p| {
            Line::Phase(PhaseResult {
                access: if p.access == "read" { Access::Read } else { Access::Write },
                iteration: p.iteration,
                bytes: p.bytes,
                open_seconds: p.open_seconds,
                transfer_seconds: p.transfer_seconds,
                close_seconds: p.close_seconds,
                total_seconds: p.seconds,
                latency_seconds: p.least_mean_seconds,
                stonewall: None,
            })
        })
        .collect();
    let report = TestReport { ior: test, pattern: layout, started_seconds: 0.0, lines: &lines };
    Report { arguments, machine, tests: &[report], finished_seconds: point.run.simulated_seconds }
        .to_string()
}
