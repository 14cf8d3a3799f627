//! IOR through the log of MPI-IO: the write phase of a test whose processes log their writes, and the
//! application of the logs to the file.
//!
//! The log turns one access pattern into three, each of which is simulated as a test of its own: large
//! sequential writes of each process to a log of its own on the burst buffer; reads of the logs in the
//! order of the file; merged writes of consecutive parts of the file, whole stripes, one part for each
//! process. A process reads the data of a merged write before it writes it, and the processes do so in
//! step, so that the times of the three add up.

use super::error::StudyError;
use super::ior::{ior_scenario, joined_scenario, simulate_joined, simulate_test};
use super::joined::{JoinedTest, lustre_of};
use super::options::{Fidelity, SimOptions};
use super::run::Progress;
use crate::observe::ObserveOptions;
use crate::results::{IorPoint, LoggedWrites, Phase};
use crate::storage::FileSystem;
use forebay_machine_file::machine::{Client, Machine};
use forebay_mpiio_log::{
    Alignment, PAST_LOG, alignment_for, log_read_bytes, log_request_bytes, logged_bytes,
};
use forebay_units::{Bytes, Time};
use forebay_workload::ior::{Access, AccessPattern, Api, Ior, Processes, Reorder};

/// The time at which a log is applied to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFlush {
    /// Before the file is closed.
    Close,
    /// After that, by a thread of each process.
    Background,
    /// After the job, by one mover.
    StageOut,
}

impl LogFlush {
    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            LogFlush::Close => "close",
            LogFlush::Background => "background",
            LogFlush::StageOut => "stage-out",
        }
    }
}

/// The tests that a logged test becomes.
#[derive(Debug)]
struct LoggedTest {
    /// Writes to the logs, with the program's calls in each of them.
    log: JoinedTest,
    /// Reads of the logs, and writes to the file.
    read: Ior,
    write: Ior,
    /// Nodes, and processes on each, that apply the logs.
    appliers: (u32, u32),
    /// Program's calls, and bytes of data, in a write to a log.
    calls: u64,
    data: u64,
}

/// A test through the log.
#[derive(Debug)]
enum Logged {
    /// All writes go to the file, one after another.
    PastLog(Ior),
    ThroughLog(Box<LoggedTest>),
}

impl Logged {
    /// # Errors
    /// [`StudyError::Log`] for options that the log, or its model, does not have.
    fn new(
        machine: &Machine,
        ior: &Ior,
        (nodes, ppn): (u32, u32),
        flush: LogFlush,
        options: &SimOptions,
    ) -> Result<Logged, StudyError> {
        check_options(ior, flush)?;
        let direct =
            Ior { read: false, write: true, collective: false, repetitions: 1, ..ior.clone() };
        if flush == LogFlush::Close && ior.transfer.0.min(ior.block.0) >= PAST_LOG {
            return Ok(Logged::PastLog(direct));
        }
        let count = nodes.saturating_mul(ppn);
        let processes = Processes { count, per_node: ppn, seed: options.seed };
        let pattern = AccessPattern::new(ior, processes)?;
        let plain = Ior {
            api: Api::Posix,
            segments: 1,
            reorder: Reorder::Own,
            random_offsets: false,
            delay_seconds: 0,
            unique_directory: false,
            multi_file: false,
            keep_file: true,
            direct_io: false,
            max_minutes: None,
            ..direct
        };
        let (log, calls, data) = log_test(&plain, ior, &pattern);
        let stripe = match (options.file_system, lustre_of(machine)) {
            (FileSystem::Parallel { stripe, .. }, Some((_, lustre))) => {
                stripe.unwrap_or(lustre.stripe).0
            }
            (FileSystem::BurstBuffer | FileSystem::Parallel { .. }, _) => {
                Alignment::default().stripe
            }
        };
        let parts = Parts::new(ior, &pattern, flush, alignment_for(stripe));
        let appliers = if flush == LogFlush::StageOut { (1, 1) } else { (nodes, ppn) };
        Ok(Logged::ThroughLog(Box::new(LoggedTest {
            log: JoinedTest { ior: log, calls },
            read: parts.reads(&plain, ior, &pattern),
            write: parts.writes(&plain, ior),
            appliers,
            calls,
            data,
        })))
    }
}

/// Checks that a test can be simulated through the log.
fn check_options(ior: &Ior, flush: LogFlush) -> Result<(), StudyError> {
    let refused = |text: &str| Err(StudyError::Log(text.to_string()));
    if ior.api != Api::MpiIo {
        return refused("the log is one of MPI-IO: add -a MPIIO");
    }
    if !ior.write {
        return refused("only writes are logged: add -w");
    }
    if ior.stonewall.is_some() || ior.max_transfers.is_some() || ior.max_minutes.is_some() {
        return refused(
            "a test through the log writes all its data: leave out deadlines (-D, -T) and \
             stoneWallingWearOutIterations",
        );
    }
    if ior.read && flush == LogFlush::StageOut {
        return refused(
            "logs that are applied after the job leave nothing in the file that it could read: \
             leave out -r, or apply them at close or in the background",
        );
    }
    Ok(())
}

/// The writes to the logs: all records of a process, one after another, in its own log. Returns the program's
/// calls, and the bytes of their data, in each write.
fn log_test(plain: &Ior, ior: &Ior, pattern: &AccessPattern) -> (Ior, u64, u64) {
    let call = ior.transfer.0.min(ior.block.0);
    let whole = pattern.bytes_per_rank();
    let record = logged_bytes(call);
    let in_block = |calls: u64| calls.saturating_mul(logged_bytes(call));
    let of_block = in_block(ior.block.0 / call.max(1)) + logged_bytes(ior.block.0 % call.max(1));
    let log_bytes = of_block.saturating_mul(ior.segments);
    let request = match ior.fsync_per_write {
        true => record,
        false => log_request_bytes(),
    };
    // As few requests as that allows, of equal length: calls are charged to each alike.
    let requests = log_bytes.div_ceil(request).max(1);
    let ior = Ior {
        file_per_process: true,
        block: Bytes(log_bytes),
        transfer: Bytes(log_bytes.div_ceil(requests)),
        ..plain.clone()
    };
    (ior, pattern.transfers_per_rank().div_ceil(requests), whole.div_ceil(requests))
}

/// The parts of the files that processes bring from the logs into the files.
struct Parts {
    processes: u32,
    /// Bytes of each part.
    bytes: u64,
    alignment: Alignment,
    /// The parts are in files of their own.
    apart: bool,
}

impl Parts {
    fn new(ior: &Ior, pattern: &AccessPattern, flush: LogFlush, alignment: Alignment) -> Parts {
        let total = pattern.total_bytes();
        let (processes, bytes, apart) = match (flush, ior.file_per_process) {
            (LogFlush::StageOut, _) => (1, total, false),
            (LogFlush::Close | LogFlush::Background, true) => {
                (pattern.tasks(), pattern.bytes_per_rank(), true)
            }
            (LogFlush::Close | LogFlush::Background, false) => {
                let stripe = alignment.stripe;
                let part =
                    total.div_ceil(pattern.tasks().into()).next_multiple_of(stripe).min(total);
                (total.div_ceil(part) as u32, part, false)
            }
        };
        Parts { processes, bytes, alignment, apart }
    }

    /// The merged writes.
    fn writes(&self, plain: &Ior, ior: &Ior) -> Ior {
        Ior {
            file_per_process: self.apart,
            tasks: Some(self.processes),
            block: Bytes(self.bytes),
            transfer: Bytes(self.alignment.largest.min(self.bytes)),
            // The file is synced once if the logs were.
            fsync: ior.fsync || ior.fsync_per_write,
            fsync_per_write: false,
            ..plain.clone()
        }
    }

    /// The reads of the logs.
    fn reads(&self, plain: &Ior, ior: &Ior, pattern: &AccessPattern) -> Ior {
        let call = ior.transfer.0.min(ior.block.0);
        // Of each log, a merged write has what its process wrote there.
        let window = self.alignment.largest.min(self.bytes);
        let logs = match ior.file_per_process {
            true => 1,
            false => window.div_ceil(ior.block.0.max(1)).min(pattern.tasks().into()),
        };
        let consecutive = if ior.random_offsets { call } else { (window / logs.max(1)).max(call) };
        let read = log_read_bytes(call, consecutive).min(self.bytes);
        Ior {
            file_per_process: true,
            tasks: Some(self.processes),
            write: false,
            read: true,
            block: Bytes(self.bytes),
            transfer: Bytes(read),
            fsync: false,
            fsync_per_write: false,
            ..plain.clone()
        }
    }
}

/// A machine whose clients take the time of logging `calls` calls with `data` bytes before each request to
/// the log: the call, and a copy of the data.
fn logging_machine(machine: &Machine, calls: u64, data: u64) -> Machine {
    let mut machine = machine.clone();
    let charge = |client: &mut Client| {
        let calls = client.mpi_overhead.0.saturating_mul(calls);
        let copy = client.copy_rate.time_for(Bytes(data)).0;
        client.call_overhead = Time(client.call_overhead.0 + calls + copy);
    };
    charge(&mut machine.client);
    machine.client_types.iter_mut().for_each(|of_type| charge(&mut of_type.client));
    machine
}

/// The options of a part of the simulation.
fn part_options(options: &SimOptions, file_system: FileSystem) -> SimOptions {
    let observe = ObserveOptions::default();
    SimOptions { log: None, each_link: false, observe, file_system, ..options.clone() }
}

/// Checks that a test fits a machine with its logs.
pub(super) fn check_logged(
    machine: &Machine,
    ior: &Ior,
    (nodes, ppn): (u32, u32),
    flush: LogFlush,
    options: &SimOptions,
) -> Result<(), StudyError> {
    let to_file = part_options(options, options.file_system);
    let to_log = part_options(options, FileSystem::BurstBuffer);
    match Logged::new(machine, ior, (nodes, ppn), flush, options)? {
        Logged::PastLog(direct) => ior_scenario(machine, &direct, nodes, ppn, &to_file).map(drop),
        Logged::ThroughLog(test) => {
            let scenario = joined_scenario(machine, &test.log, nodes, ppn, &to_log)?;
            check_space(&scenario.io[0])?;
            let (nodes, ppn) = test.appliers;
            ior_scenario(machine, &test.read, nodes, ppn, &to_log)?;
            ior_scenario(machine, &test.write, nodes, ppn, &to_file).map(drop)
        }
    }
}

/// Checks that the logs fit the half of the instance that they may use.
fn check_space(job: &crate::io::IoJob) -> Result<(), StudyError> {
    let (bytes, space) = (job.pattern.total_bytes(), job.storage.capacity.0 / 2);
    if bytes > space {
        return Err(StudyError::Capacity(format!(
            "the logs have {}, and may use {}, half of the instance: use more burst-buffer nodes, a smaller \
             block (-b), fewer segments (-s) or fewer processes",
            Bytes(bytes),
            Bytes(space)
        )));
    }
    Ok(())
}

/// Simulates the write phase of a test through the log; `plain` is the test without.
pub(super) fn simulate_logged(
    machine: &Machine,
    ior: &Ior,
    (nodes, ppn): (u32, u32),
    flush: LogFlush,
    options: &SimOptions,
    plain: &IorPoint,
    progress: Progress<'_>,
) -> Result<LoggedWrites, StudyError> {
    // The parts are compared with the test without a log: at the same level of detail.
    let fidelity = match plain.fidelity == Fidelity::Flow.name() {
        true => Fidelity::Flow,
        false => Fidelity::Packet,
    };
    let options = &SimOptions { fidelity, ..options.clone() };
    let to_file = part_options(options, options.file_system);
    let to_log = part_options(options, FileSystem::BurstBuffer);
    let of_plain = plain.phases.iter().filter(|phase| phase.access == Access::Write.name());
    let Some(of_plain) = of_plain.max_by(|a, b| a.gbps.total_cmp(&b.gbps)) else {
        unreachable!("the options were checked: the test writes")
    };
    let parts = match Logged::new(machine, ior, (nodes, ppn), flush, options)? {
        Logged::PastLog(direct) => {
            let write = simulate_test(machine, &direct, (nodes, ppn), &to_file, progress)?;
            [None, None, Some(only_phase(write))]
        }
        Logged::ThroughLog(test) => {
            let third = |number: f64| {
                move |time, done: f64, events| progress(time, (number + done) / 3.0, events)
            };
            let busy = logging_machine(machine, test.calls, test.data);
            let log = simulate_joined(&busy, &test.log, (nodes, ppn), &to_log, &third(0.0))?;
            let read = simulate_test(machine, &test.read, test.appliers, &to_log, &third(1.0))?;
            let write = simulate_test(machine, &test.write, test.appliers, &to_file, &third(2.0))?;
            [log, read, write].map(|point| Some(only_phase(point)))
        }
    };
    Ok(logged_writes(flush, of_plain, parts))
}

/// The phase of a test that has one.
fn only_phase(point: IorPoint) -> Phase {
    let phase = point.phases.into_iter().next();
    phase.unwrap_or_else(|| unreachable!("a test without a phase"))
}

/// The document from the phases: logging, reading of the logs, writing of the file.
fn logged_writes(
    flush: LogFlush,
    plain: &Phase,
    [log, log_read, file_write]: [Option<Phase>; 3],
) -> LoggedWrites {
    let seconds_of = |phase: &Option<Phase>| phase.as_ref().map_or(0.0, |phase| phase.seconds);
    let complete = seconds_of(&log) + seconds_of(&log_read) + seconds_of(&file_write);
    let seconds = match flush {
        LogFlush::Close => complete,
        // All its processes open the file in any case.
        LogFlush::Background | LogFlush::StageOut => seconds_of(&log) + plain.open_seconds,
    };
    LoggedWrites {
        flush: flush.name().to_string(),
        past_log: log.is_none(),
        seconds,
        complete_seconds: complete,
        gbps: plain.bytes as f64 / seconds / 1e9,
        plain_seconds: plain.seconds,
        gain: plain.seconds / seconds,
        log,
        log_read,
        file_write,
    }
}
