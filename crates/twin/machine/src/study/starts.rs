//! The times at which the processes of a job begin their transfers.

use super::error::StudyError;
use super::ior_job::ior_job_on;
use super::joined::JoinedTest;
use super::options::{Fidelity, SimOptions};
use super::run::run;
use crate::io::IoJob;
use crate::observe::ObserveOptions;
use crate::scenario::Scenario;
use forebay_machine_file::machine::Machine;
use forebay_units::Bytes;
use forebay_workload::ior::{Access, Action, Ior, Step};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that each process writes after its open.
const BYTES: Bytes = Bytes(4096);

/// The times, by rank, at which each process of a job begins its transfers in the phases with each access, ps, from the
/// first of them on. They depend on the way of messages to and from the metadata servers, and on those of the barriers
/// before and, with `-g`, after the opens: simulated with packets, with as little data as possible, up to the end of
/// the last transfers. Reads follow writes, also those of a test without writes.
///
/// # Errors
/// Those of a simulation of the job.
pub(crate) fn starts_of_transfers(
    machine: &Machine,
    job: &IoJob,
    options: &SimOptions,
) -> Result<BTreeMap<Access, Vec<u64>>, StudyError> {
    let reads = job.steps.iter().any(|step| step.action == Action::Transfer(Access::Read));
    let ior = Ior {
        block: BYTES,
        transfer: BYTES,
        segments: 1,
        repetitions: 1,
        write: true,
        read: reads,
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
    let idle = options.idle_scenario(machine)?;
    let storage = (job.storage.clone(), job.burst_buffer.clone());
    let mut opening = ior_job_on(&idle, &test, job.nodes.clone(), job.ppn, &options, storage)?;
    opening.pattern = opening.pattern.with_first_file(job.pattern.first_file());
    end_after_transfers(&mut opening.steps);
    let scenario = Scenario { io: vec![Arc::new(opening)], ..idle };
    let outcome = run(&scenario, &options, &|_, _, _| true)?;
    let ios = outcome.groups.iter().filter_map(|group| group.io.as_ref());
    let mut starts: Vec<(u32, [u64; 2])> = ios.flat_map(|io| io.starts_of_transfers(0)).collect();
    assert_eq!(starts.len(), job.tasks() as usize, "a start of each process");
    starts.sort_unstable();
    let of_phase = |phase: usize| {
        let first = starts.iter().map(|(_, at)| at[phase]).min().unwrap_or(0);
        starts.iter().map(|(_, at)| at[phase] - first).collect()
    };
    let mut all = BTreeMap::from([(Access::Write, of_phase(0))]);
    if reads {
        all.insert(Access::Read, of_phase(1));
    }
    Ok(all)
}

/// Leaves out the steps after the first barrier behind the last transfers: before it, a process that closes its file may
/// hold up the open of another one.
fn end_after_transfers(steps: &mut Vec<Step>) {
    let is_transfer = |step: &Step| matches!(step.action, Action::Transfer(_));
    let last = steps.iter().rposition(is_transfer).unwrap_or(0);
    let after = steps[last..].iter().position(|step| step.action == Action::Barrier);
    if let Some(after) = after {
        steps.truncate(last + after + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps_of(line: &str) -> Vec<Action> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let mut steps: Vec<Step> = Ior::parse(&words).unwrap()[0].steps().collect();
        end_after_transfers(&mut steps);
        steps.into_iter().map(|step| step.action).collect()
    }

    #[test]
    fn steps_end_with_the_first_barrier_after_the_last_transfers() {
        let (write, read) = (Access::Write, Access::Read);
        let steps = steps_of("-w -r");
        assert!(steps.ends_with(&[Action::Transfer(read), Action::Close(read), Action::Barrier]));
        assert!(steps.contains(&Action::End(write)) && !steps.contains(&Action::Remove));
        let steps = steps_of("-w -g");
        assert!(steps.ends_with(&[Action::Transfer(write), Action::Barrier]), "{steps:?}");
    }
}
