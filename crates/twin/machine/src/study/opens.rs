//! The order in which the processes of a job have opened their files.

use super::error::StudyError;
use super::ior::joined_scenario;
use super::joined::JoinedTest;
use super::options::{Fidelity, SimOptions};
use super::run::run;
use crate::io::IoJob;
use crate::observe::ObserveOptions;
use forebay_machine_file::machine::Machine;
use forebay_units::Bytes;
use forebay_workload::ior::Ior;

/// Bytes that each process writes after its open.
const BYTES: Bytes = Bytes(4096);

/// The ranks of a job with a shared file in the order in which their opens end, which depends on the way of
/// their messages to the metadata server: simulated with packets, and with as little data as possible.
///
/// # Errors
/// Those of a simulation of the job.
pub(crate) fn order_of_opens(
    machine: &Machine,
    job: &IoJob,
    options: &SimOptions,
) -> Result<Vec<u32>, StudyError> {
    let ior = Ior {
        block: BYTES,
        transfer: BYTES,
        segments: 1,
        repetitions: 1,
        write: true,
        read: false,
        max_transfers: None,
        delay_seconds: 0,
        ..job.ior.clone()
    };
    let options = SimOptions {
        threads: 1,
        fidelity: Fidelity::Packet,
        observe: ObserveOptions::default(),
        ..options.clone()
    };
    let test = JoinedTest { ior, calls: 1 };
    let scenario = joined_scenario(machine, &test, job.nodes.len() as u32, job.ppn, &options)?;
    let outcome = run(&scenario, &options, &|_, _, _| true)?;
    let ios = outcome.groups.iter().filter_map(|group| group.io.as_ref());
    let mut opens: Vec<(u64, u32)> = ios.flat_map(|io| io.opens(0)).collect();
    assert_eq!(opens.len(), job.tasks() as usize, "an open of each process");
    opens.sort_unstable();
    Ok(opens.into_iter().map(|(_, rank)| rank).collect())
}
