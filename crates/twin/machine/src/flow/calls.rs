//! The duration of a call of a process that has the machine for itself.

use crate::io::IoJob;
use crate::results::Phase;
use crate::study::{Fidelity, JoinedTest, SimOptions, StudyError, simulate_joined};
use forebay_machine_file::machine::Machine;
use forebay_units::Bytes;
use forebay_workload::ior::{Access, Ior, Reorder};

/// Bytes that a lone process moves, unless that is too few or too many calls.
const PROBE_BYTES: u64 = 16 << 20;
/// Fewest and most of its calls.
const PROBE_CALLS: (u64, u64) = (4, 32);

/// Calls of a process that has the machine for itself, in ps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoneCall {
    /// Mean of the transfers.
    pub transfer: f64,
    pub open: u64,
    pub close: u64,
}

/// The calls of each access of a test.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LoneCalls {
    write: Option<LoneCall>,
    read: Option<LoneCall>,
}

impl LoneCalls {
    /// The calls of an access that the test has.
    pub fn of(&self, access: Access) -> LoneCall {
        let call = match access {
            Access::Write => self.write,
            Access::Read => self.read,
        };
        call.unwrap_or_else(|| unreachable!("no {} phase", access.name()))
    }
}

/// Simulates a few transfers of one process on the packet fabric, on a node of the given type.
pub(super) fn lone_calls(
    machine: &Machine,
    job: &IoJob,
    client: &str,
    options: &SimOptions,
) -> Result<LoneCalls, StudyError> {
    let calls = (PROBE_BYTES / job.ior.transfer.0.max(1)).clamp(PROBE_CALLS.0, PROBE_CALLS.1);
    let ior = &job.ior;
    let probe = Ior {
        block: Bytes(ior.transfer.0.saturating_mul(calls)),
        segments: 1,
        file_per_process: true,
        repetitions: 1,
        tasks: None,
        fsync: false,
        reorder: Reorder::Own,
        random_offsets: false,
        max_transfers: None,
        delay_seconds: 0,
        multi_file: false,
        ..ior.clone()
    };
    let alone = SimOptions {
        threads: 1,
        fidelity: Fidelity::Packet,
        groups: None,
        node_kind: (!client.is_empty()).then(|| client.to_string()),
        ..options.clone()
    };
    let test = JoinedTest { ior: probe, calls: job.calls_joined };
    let point = simulate_joined(machine, &test, (1, 1), &alone, &|_, _, _| true)?;
    let of_phase = |access: Access| {
        let phase = point.phases.iter().find(|phase| phase.access == access.name())?;
        Some(lone_call(phase, job.calls_joined))
    };
    Ok(LoneCalls { write: of_phase(Access::Write), read: of_phase(Access::Read) })
}

/// The calls of a phase; a transfer consists of `joined` calls of the program.
fn lone_call(phase: &Phase, joined: u64) -> LoneCall {
    let ps = |seconds: f64| seconds * 1e12;
    LoneCall {
        transfer: ps(phase.operation_seconds.mean * joined as f64).max(1.0),
        open: ps(phase.open_seconds) as u64,
        close: ps(phase.close_seconds) as u64,
    }
}
