//! Phases of a log.

use super::activity::{Activity, Bin, PAUSE, Ranks};
use super::part::{Part, Pattern, Requests};
use crate::ior::Access;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Writes or reads that overlap in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Direction.
    pub access: Access,
    /// Whether processes share files; else each has its own.
    pub is_shared: bool,
    /// Begin, seconds since the program's start.
    pub begin: f64,
    /// End, seconds since the program's start.
    pub end: f64,
    /// The longest time of a process in these calls, seconds.
    pub measured_seconds: f64,
    /// Files.
    pub files: u64,
    /// Processes.
    pub processes: u32,
    /// Requests.
    pub operations: u64,
    /// Bytes.
    pub bytes: u64,
    /// The requests by size; none if the phase is left out.
    pub parts: Vec<Part>,
}

impl Phase {
    /// Bytes that no part has.
    pub fn left_out(&self) -> u64 {
        self.bytes.saturating_sub(self.parts.iter().map(|part| part.bytes).sum())
    }
}

/// Divides activities into phases: those of one direction, of shared files or of others, that overlap in time.
pub(super) fn phases(activities: Vec<Activity>, shared: &HashSet<u64>) -> Vec<Phase> {
    let mut groups = BTreeMap::<(Access, bool), Vec<Activity>>::new();
    for activity in activities {
        let is_shared = shared.contains(&activity.file);
        groups.entry((activity.access, is_shared)).or_default().push(activity);
    }
    let mut found = Vec::new();
    for ((access, is_shared), mut activities) in groups {
        activities.sort_by(|a, b| a.begin.total_cmp(&b.begin));
        let mut present: Vec<Activity> = Vec::new();
        let mut end = f64::NEG_INFINITY;
        for activity in activities {
            if activity.begin > end + PAUSE && !present.is_empty() {
                found.push(phase(access, is_shared, &present));
                present.clear();
                end = f64::NEG_INFINITY;
            }
            end = end.max(activity.end);
            present.push(activity);
        }
        if !present.is_empty() {
            found.push(phase(access, is_shared, &present));
        }
    }
    found.sort_by(|a, b| a.begin.total_cmp(&b.begin).then(a.end.total_cmp(&b.end)));
    found
}

/// The phase of activities, of which there is at least one.
fn phase(access: Access, is_shared: bool, activities: &[Activity]) -> Phase {
    let mut total = Bin::default();
    let mut seconds_of_rank = BTreeMap::<u32, f64>::new();
    let (mut seconds_of_all, mut unnamed) = (0.0, 0);
    let mut files = BTreeSet::new();
    let (mut begin, mut end) = (f64::INFINITY, 0.0_f64);
    for activity in activities {
        total.add(activity.total());
        files.insert(activity.file);
        (begin, end) = (begin.min(activity.begin), end.max(activity.end));
        match activity.ranks {
            Ranks::One(rank) => *seconds_of_rank.entry(rank).or_default() += activity.seconds,
            Ranks::Some(count) => {
                seconds_of_all += activity.seconds;
                unnamed = unnamed.max(count);
            }
        }
    }
    let is_synced = activities.iter().any(|activity| activity.is_synced);
    let pattern = Pattern { access, is_shared, is_synced };
    let slowest = seconds_of_rank.values().copied().fold(0.0, f64::max);
    let named = u32::try_from(seconds_of_rank.len()).unwrap_or(u32::MAX);
    Phase {
        access,
        is_shared,
        begin,
        end,
        measured_seconds: slowest + seconds_of_all,
        files: files.len() as u64,
        processes: named.max(unnamed),
        operations: total.operations,
        bytes: total.bytes,
        parts: parts(activities, pattern),
    }
}

/// The requests of a phase by size, and by the bytes of their processes.
fn parts(activities: &[Activity], pattern: Pattern) -> Vec<Part> {
    let mut found = Vec::new();
    // Large requests first.
    for bin in (0..10).rev() {
        let mut of_rank = BTreeMap::<u32, Bin>::new();
        let mut unnamed = Requests::default();
        for activity in activities.iter().filter(|activity| activity.bins[bin].operations > 0) {
            match activity.ranks {
                Ranks::One(rank) => of_rank.entry(rank).or_default().add(activity.bins[bin]),
                Ranks::Some(count) => {
                    unnamed.processes = unnamed.processes.max(count);
                    unnamed.total.add(activity.bins[bin]);
                }
            }
        }
        found.extend(by_bytes(of_rank).into_iter().map(|requests| Part::new(requests, pattern)));
        if unnamed.total.operations > 0 {
            found.push(Part::new(unnamed, pattern));
        }
    }
    found.retain(|part| part.bytes > 0);
    found
}

/// Processes with similar amounts of data: those with at least half as much as the one with most, then those of
/// the rest, up to four times.
fn by_bytes(of_rank: BTreeMap<u32, Bin>) -> Vec<Requests> {
    const MOST: usize = 4;
    let mut rest: Vec<(u32, Bin)> = of_rank.into_iter().collect();
    let mut found = Vec::new();
    while let Some(most) = rest.iter().map(|(_, bin)| bin.bytes).max() {
        let is_last = found.len() + 1 == MOST;
        let (with_much, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, bin)| is_last || bin.bytes >= most / 2);
        rest = others;
        let mut total = Bin::default();
        with_much.iter().for_each(|(_, bin)| total.add(*bin));
        let ranks: Vec<u32> = with_much.iter().map(|(rank, _)| *rank).collect();
        found.push(Requests { processes: ranks.len() as u32, ranks: Some(ranks), total });
    }
    found
}

/// Least share of all bytes, or of the requests of a process one after another, of a part that is simulated.
const LEAST_SHARE: f64 = 0.01;
/// Requests of a process below which a part with few bytes is left out.
const FEW_REQUESTS: u64 = 8;

/// Removes parts that hardly take time: with less than a hundredth of the bytes, and with few requests of each
/// process or less than a hundredth of them.
pub(super) fn leave_out_small_parts(phases: &mut [Phase]) {
    let requests_of_one = |part: &Part| part.operations.div_ceil(part.processes.into());
    let all = || phases.iter().flat_map(|phase| &phase.parts);
    let bytes: f64 = all().map(|part| part.bytes as f64).sum();
    let requests: f64 = all().map(|part| requests_of_one(part) as f64).sum();
    for phase in phases {
        phase.parts.retain(|part| {
            let of_one = requests_of_one(part);
            part.bytes as f64 >= LEAST_SHARE * bytes
                || of_one >= FEW_REQUESTS && of_one as f64 >= LEAST_SHARE * requests
        });
    }
}
