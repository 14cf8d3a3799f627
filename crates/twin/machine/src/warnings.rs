//! Warnings about results that say less than they seem to, each with the remedy.

use crate::flow::{burst_of, few_wide_calls, stripes_of_window};
use crate::io::{IoJob, PhaseCounts};
use crate::results::{ClassUse, ResourceUse};
use crate::steady::{State, SteadyState};
use crate::traffic::{Generation, TrafficJob};
use forebay_machine_file::machine::Network;
use forebay_units::Bytes;
use forebay_units::human::counted;
use forebay_workload::ior::Access;
use forebay_workload::traffic::{TrafficPattern, TrafficSpec};

/// Share of a phase above which opens and closes, or ramp-up and tail, are said to decide its rate.
const MAX_SHARE: f64 = 0.1;
/// Transfers of a process below which a warning says that there are few.
const MIN_TRANSFERS: u64 = 8;
/// Packets below which percentiles of their latencies are uncertain: ten are above the 99th.
const MIN_PACKETS: u64 = 1_000;

/// A remedy that changes the test; empty where the test stands for I/O that cannot be changed.
fn change<'a>(job: &IoJob, remedy: &'a str) -> &'a str {
    if job.is_given { "" } else { remedy }
}

/// Warnings about a phase that was simulated with packets. `steady` is its rate without ramp-up and tail, GB/s.
pub(crate) fn of_phase(job: &IoJob, counts: &PhaseCounts, steady: Option<f64>) -> Vec<String> {
    let mut warnings = job.network.warnings();
    let parts = PhaseParts {
        access: counts.access,
        bytes: counts.bytes,
        transfers: counts.transfers.length(),
        total: counts.closes.last.saturating_sub(counts.opens.first),
        steady,
    };
    warnings.extend(of_parts(job, &parts));
    let per_rank = counts.operations / u64::from(job.tasks().max(1));
    warnings.extend(few_transfers(job, counts.access, per_rank));
    warnings
}

/// A phase and its parts, with packets or flows.
pub(crate) struct PhaseParts {
    pub access: Access,
    pub bytes: u64,
    /// From the first begin of a transfer to the last end, ps.
    pub transfers: u64,
    /// From the first open to the last close, ps.
    pub total: u64,
    /// Rate without ramp-up and tail, GB/s.
    pub steady: Option<f64>,
}

/// Warnings about parts of a phase that decide its rate and would not in a longer run.
fn of_parts(job: &IoJob, parts: &PhaseParts) -> Vec<String> {
    let mut warnings = Vec::new();
    let (access, steady) = (parts.access.name(), parts.steady);
    let transfers = parts.transfers.max(1) as f64;
    let outside = 1.0 - transfers / parts.total.max(1) as f64;
    let longer = match steady {
        Some(_) => ": use larger blocks (-b) or more segments (-s), or take the steady rate",
        None => ": use larger blocks (-b) or more segments (-s)",
    };
    let longer = change(job, longer);
    if outside > MAX_SHARE {
        let shared = match job.has_shared_file() {
            true => " (one server does them all for a shared file)",
            false => "",
        };
        warnings.push(format!(
            "opens, closes and barriers take {:.0}% of the {access} phase{shared}{longer}",
            outside * 100.0,
        ));
    }
    // Time that the bytes take at the steady rate, ps.
    let steadily = steady.filter(|rate| *rate > 0.0).map(|rate| parts.bytes as f64 * 1e3 / rate);
    if let Some(steadily) = steadily
        && 1.0 - steadily / transfers > MAX_SHARE
    {
        warnings.push(format!(
            "ramp-up and tail take {:.0}% of the transfers of the {access} phase{longer}",
            (1.0 - steadily / transfers) * 100.0
        ));
    }
    let dirty_limit = job.burst_buffer.dirty_limit;
    let of_a_server = parts.bytes / job.storage.data_servers().len().max(1) as u64;
    let synced = job.ior.fsync || job.ior.fsync_per_write;
    if parts.access == Access::Write && !synced && of_a_server <= dirty_limit.0 {
        warnings.push(format!(
            "the {} that each server is given fit its page cache, which holds {dirty_limit} that are \
             not on flash yet{}",
            Bytes(of_a_server),
            change(
                job,
                ": write more (-b, -s), wait for flash (-e), or reduce the cache as the run is reduced \
                 (burst_buffer.dirty_limit)"
            )
        ));
    }
    warnings
}

/// Whether a process with `per_rank` transfers has too few for a rate that does not depend on their number.
pub(crate) fn are_few_transfers(per_rank: u64) -> bool {
    per_rank < MIN_TRANSFERS
}

/// The warning about a phase in which each process has few transfers, `per_rank`.
fn few_transfers(job: &IoJob, access: Access, per_rank: u64) -> Option<String> {
    let per_rank = per_rank.max(1);
    if !are_few_transfers(per_rank) {
        return None;
    }
    // The last calls of a block may be fewer than those joined before.
    let own = (job.pattern.transfer_bytes() / job.calls_joined).max(1);
    let transfers = (per_rank * job.calls_joined).min(job.pattern.bytes_per_rank().div_ceil(own));
    let joined = match job.calls_joined {
        1 => String::new(),
        _ => format!(" ({per_rank} when the client's cache has joined them)"),
    };
    Some(format!(
        "{} a process in the {} phase{joined}, of which the first and the last are not typical: at least {} give a \
         rate that does not depend on their number, and a steady rate",
        counted(transfers, "transfer"),
        access.name(),
        MIN_TRANSFERS * job.calls_joined,
    ))
}

/// Time of a job beside others, as a multiple of that alone, below which flows do not represent it: the precision of
/// slowdowns is some hundredths. *Settled in view* of the compared jobs.
const MIN_SLOWDOWN: f64 = 0.95;

/// The warning about an I/O job that flows make faster beside others than alone.
pub(crate) fn of_slowdown(slowdown: Option<f64>) -> Option<String> {
    let slowdown = slowdown.filter(|slowdown| *slowdown < MIN_SLOWDOWN)?;
    Some(format!(
        "beside other jobs it takes {slowdown:.2} times its time alone, which cannot be: flows do not \
         represent it there; simulate packets (--fidelity packet)"
    ))
}

/// Size of the transfers of another job, as a multiple of a job's own, from which on its slowdown is uncertain: *settled
/// in view* of pairs of jobs with differences of 13% to 33%, which have 4, 16, 64 and 64.
const MUCH_LARGER: u64 = 16;

/// The warning about an I/O job beside another with much larger transfers on the same storage.
pub(crate) fn of_larger_transfers((own, other): (Bytes, Bytes)) -> Option<String> {
    (other.0 / own.0.max(1) >= MUCH_LARGER).then(|| {
        format!(
            "beside it another job has transfers of {other} on the same storage nodes: how long one of {own} waits for \
             them depends on their order, which flows do not have, and slowdowns were up to 33% too high and 17% too \
             low: simulate packets (--fidelity packet)"
        )
    })
}

/// Part of its rate at which a link between groups carries the bytes of flows, from which on packets are said to wait
/// for it. Such phases of the test sets with differences above 20% have 0.92 to 1: *settled in view* of the first of
/// them.
const NEARLY_FULL: f64 = 0.9;

/// Warnings about a phase that was simulated with flows. `between` is the use of links between groups, if it is known
/// and the phase was not simulated request by request.
pub(crate) fn of_flows(
    job: &IoJob,
    parts: &PhaseParts,
    between: Option<&ResourceUse>,
) -> Vec<String> {
    let access = parts.access;
    let mut warnings = job.network.warnings();
    warnings.extend(of_parts(job, parts));
    warnings.extend(few_transfers(job, access, job.pattern.transfers_per_rank()));
    let (block, make) = (job.pattern.block_bytes(), &job.burst_buffer);
    let of_object = make.stripe.0.min(make.substripe.0);
    if job.has_shared_file() && !job.storage.is_parallel() && block < of_object {
        warnings.push(format!(
            "the processes write or read {} in turn in one file, less than the {} of an object: with flows they \
             stay together in the few objects of a segment, with packets they drift apart, and rates differ by \
             factors: use --fidelity packet",
            Bytes(block),
            Bytes(of_object)
        ));
    }
    if let Some(burst) = burst_of(job, access) {
        warnings.push(format!(
            "if all nodes of group {} {} at the same time, their data need {:.0}% of the links between it and \
             other groups: with packets they wait for these links and hold up others, with flows they do not, and \
             rates of tests in step were up to 40% too high: use --fidelity packet",
            burst.group,
            access.name(),
            burst.load * 100.0
        ));
    }
    if let Some(link) = between.filter(|link| link.peak_utilisation >= NEARLY_FULL) {
        warnings.push(format!(
            "{:.0}% of the rate of {} is in use: with packets others wait behind those that wait for it, with flows \
             they do not, and rates were up to 30% too high: use --fidelity packet",
            link.peak_utilisation * 100.0,
            link.busiest
        ));
    }
    let has_extents = access == Access::Write && job.has_shared_file() && job.storage.is_parallel();
    match few_wide_calls(job, access) {
        Some(wide) if has_extents => warnings.push(format!(
            "{} of each process write one file at {} servers at once: how many locks are called back depends on the \
             order of the processes at each server, which differs from seed to seed, as the rate does by a quarter, and \
             flows were up to 39% too fast: use --fidelity packet{}",
            counted(wide.calls, "call"),
            wide.servers,
            change(job, " and several --seeds, or larger blocks (-b)"),
        )),
        Some(wide) => warnings.push(format!(
            "{} of each process with requests at {} servers at once: the {access} phase ends with the last of them, \
             and flows have some orders and waits of single requests wrong, so that rates were up to 40% too high: use \
             --fidelity packet{}",
            counted(wide.calls, "call"),
            wide.servers,
            change(job, ", or larger blocks (-b)"),
            access = access.name(),
        )),
        None => {}
    }
    warnings
}

/// Stripes of each process in a window of a phase that is simulated in part, below which its rate depends on them:
/// *settled in view* of the rates of 1,024 to 8,192 nodes of Trinity Phase II with longer windows.
const MANY_STRIPES: u64 = 16;

/// The warning about a phase of which flows have simulated a window that is too short for its rate.
pub(crate) fn of_window(job: &IoJob, access: Access) -> Option<String> {
    let stripes = stripes_of_window(job.tasks());
    let servers = job.storage.data_servers().len();
    let meet = !job.has_shared_file() && !job.storage.is_parallel() && servers > 1;
    (meet && job.tasks() as usize > servers && stripes < MANY_STRIPES).then(|| {
        format!(
            "the rate of the {} phase is that of {} of each process: processes that follow each other from server to \
             server meet more and more, and with 4 and 16 times as many such rates were up to 19% and 30% lower",
            access.name(),
            counted(stripes, "stripe"),
        )
    })
}

/// Warnings about traffic that was simulated with flows, with the use of the links by class. `accepted` is the share of
/// the offered load that is accepted, if it is saturated.
pub(crate) fn of_traffic_flows(
    network: &Network,
    links: &[ClassUse],
    accepted: Option<f64>,
) -> Vec<String> {
    let mut warnings = network.warnings();
    warnings.extend(accepted.map(|share| {
        format!(
            "saturated: {:.1}% of the offered load is accepted; packets that wait in queues hold up others, so that less is: use --fidelity packet",
            share * 100.0
        )
    }));
    let fullest = links.iter().max_by(|a, b| a.max_utilisation.total_cmp(&b.max_utilisation));
    if let Some(class) = fullest.filter(|class| class.max_utilisation >= NEARLY_FULL) {
        warnings.push(format!(
            "{:.0}% of the rate of a {} link is in use: with packets others wait behind those that wait for it, with \
             flows they do not, and accepted loads were up to 17% too high: use --fidelity packet",
            class.max_utilisation * 100.0,
            class.class
        ));
    }
    warnings
}

/// Warnings about a run of traffic.
pub(crate) fn of_traffic(
    network: &Network,
    spec: &TrafficSpec,
    job: &TrafficJob,
    steady: &SteadyState,
) -> Vec<String> {
    let mut warnings = network.warnings();
    let others = job.nodes.len() as u64 - 1;
    if let Generation::Messages(messages) = job.generation
        && spec.pattern == TrafficPattern::AllToAll
        && messages < others
    {
        warnings.push(format!(
            "all-to-all with {messages} messages of each node reaches the {messages} following \
             nodes only, not all {others} others: send at least {others} (--messages {others})"
        ));
    }
    match steady.state {
        State::Steady => {}
        State::Saturated => warnings.push(format!(
            "saturated: of the bytes offered in the window, {:.1}% are delivered, and the queues \
             grow; the latency depends on the length of the run and is not given",
            100.0 * steady.delivered as f64 / steady.offered.max(1) as f64
        )),
        State::NotSteady => warnings.push(
            "no steady state was found: the latencies change until the end of the run, or it is too \
             short; use more messages (--messages)"
                .to_string(),
        ),
    }
    let packets = steady.latency.packets;
    if steady.state != State::Saturated && packets < MIN_PACKETS {
        warnings.push(format!(
            "the latencies are those of {packets} packets only, and their 99th percentile is \
             uncertain: measure at least {MIN_PACKETS} (--messages)"
        ));
    }
    warnings
}
