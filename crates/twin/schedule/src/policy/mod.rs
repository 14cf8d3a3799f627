//! Scheduling policies: what begins now, as a pure function of the queue, the jobs that hold resources, and
//! the time.
//!
//! A job *begins* when it gets its burst buffer: its stage-in starts, or the job itself if it has none. From
//! then on it is *committed*: it holds its burst buffer, and gets nodes before all jobs that have not begun.

mod backfill;
mod conservative;
mod plan;

use crate::profile::{Holding, Need, Profile};
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Jobs begin in the order of arrival.
    Fcfs,
    /// EASY backfilling: later jobs begin if they do not delay the nodes of the first one that waits. Its burst
    /// buffer is not reserved.
    Easy,
    /// EASY backfilling with nodes and burst buffer reserved for the first job.
    EasyBb,
    /// As `easy-bb`; jobs are backfilled in the order of their time limits.
    Sjf,
    /// Every job has a reservation of nodes and burst buffer, which later jobs do not delay.
    Conservative,
    /// A plan of the waiting jobs, improved by simulated annealing.
    Plan,
}

impl Policy {
    /// All policies, with their names.
    pub const NAMES: [(&str, Policy); 6] = [
        ("fcfs", Policy::Fcfs),
        ("easy", Policy::Easy),
        ("easy-bb", Policy::EasyBb),
        ("sjf", Policy::Sjf),
        ("conservative", Policy::Conservative),
        ("plan", Policy::Plan),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let named = Policy::NAMES.iter().find(|(_, policy)| *policy == self);
        named.map_or("", |(name, _)| name)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let named = Policy::NAMES.iter().find(|(name, _)| *name == text);
        named.map(|(_, policy)| *policy).ok_or_else(|| {
            let known: Vec<&str> = Policy::NAMES.iter().map(|(name, _)| *name).collect();
            format!("{text:?} is not a policy; known are {}", known.join(", "))
        })
    }
}

/// Parameters of [`Policy::Plan`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanOptions {
    /// Exponent of the waiting times in the sum that a plan makes small.
    pub exponent: f64,
    /// Waiting jobs that are planned, in the order of arrival; those after them are backfilled.
    pub depth: usize,
    /// Seed of simulated annealing.
    pub seed: u64,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions { exponent: 2.0, depth: 32, seed: 1 }
    }
}

/// A job in the queue, or one that is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its index among all jobs.
    pub job: usize,
    /// Its arrival.
    pub arrival: Millis,
    /// Its nodes, burst buffer and times.
    pub need: Need,
    /// Its reserved start, with [`Policy::Conservative`].
    pub reserved: Option<Millis>,
}

/// The state of queue and machine for a policy's decision.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The time.
    pub now: Millis,
    /// Nodes and granules of the machine.
    pub total: (u32, u64),
    /// Jobs that run or are staged out, with their expected ends.
    pub holdings: &'a [Holding],
    /// Jobs that have begun and do not have nodes, in the order in which they began. Their granules are not free.
    pub committed: &'a [Waiting],
    /// Jobs that have not begun, in the order of arrival.
    pub queue: &'a [Waiting],
    /// Whether something has ended or begun since the last decision, besides arrivals.
    pub has_changed: bool,
}

/// The resource that delays a job whose nodes are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Its burst buffer does not fit.
    Buffer,
    /// Its stage-in has not ended.
    StageIn,
}

/// The decision of a policy: the jobs that begin and start now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Jobs of the queue that begin, in this order.
    pub begin: Vec<usize>,
    /// Committed jobs that get their nodes.
    pub start: Vec<usize>,
    /// Reserved starts: of the first job that waits, or of all jobs.
    pub reservations: Vec<(usize, Millis)>,
    /// Jobs that would begin or start now without a burst buffer, or with one that is filled.
    pub delayed: Vec<(usize, Delay)>,
}

/// A decision that is being made: the profile with what has been decided.
struct Draft {
    now: Millis,
    profile: Profile,
    decision: Decision,
    /// Whether a committed job waits for nodes beyond its stage-in.
    has_waiting_commitment: bool,
    /// Jobs in stage-in, with their needs and planned starts.
    staging: Vec<(usize, Need, Millis)>,
}

impl Draft {
    /// Gives committed jobs their nodes, or the earliest time at which they have them.
    fn new(situation: &Situation<'_>) -> Draft {
        let now = situation.now;
        let held: Vec<Holding> = situation.holdings.to_vec();
        let mut profile = Profile::new(now, situation.total, &held);
        let mut decision = Decision::default();
        let mut has_waiting_commitment = false;
        let mut staging = Vec::new();
        // Their granules are held, whenever they start: first all of them, then the starts.
        let held: u64 = situation.committed.iter().map(|job| job.need.granules).sum();
        profile.take_granules((now, Millis::NEVER), held);
        for Waiting { job, need, .. } in situation.committed {
            let ready = now.plus(need.lead);
            let nodes = need.nodes_only();
            let start = profile.earliest(ready, &nodes);
            profile.take(start, &nodes);
            profile.release_granules(start.plus(need.limit).plus(need.tail), need.granules);
            if need.lead > Millis::ZERO {
                staging.push((*job, *need, start));
            }
            if start == now {
                decision.start.push(*job);
            } else if start > ready {
                has_waiting_commitment = true;
                decision.reservations.push((*job, start));
            }
        }
        Draft { now, profile, decision, has_waiting_commitment, staging }
    }

    /// Begins a job, whose nodes the profile has from `start` on.
    fn begin(&mut self, waiting: &Waiting, start: Millis) {
        self.decision.begin.push(waiting.job);
        if waiting.need.lead > Millis::ZERO {
            self.staging.push((waiting.job, waiting.need, start));
        }
    }

    /// Notes the jobs in stage-in whose nodes nobody uses meanwhile, and returns the decision.
    fn finish(mut self) -> Decision {
        for (job, need, start) in self.staging {
            let nodes = Need { lead: Millis::ZERO, ..need.nodes_only() };
            self.profile.give_back(start, &nodes);
            if self.profile.fits(self.now, &nodes) {
                self.decision.delayed.push((job, Delay::StageIn));
            }
            self.profile.take(start, &nodes);
        }
        self.decision
    }

    /// Begins a job if it can start as soon as its stage-in is done.
    fn begin_if_possible(&mut self, waiting: &Waiting) -> bool {
        let Waiting { job, need, .. } = waiting;
        let free = self.profile.now();
        // Most jobs do not fit, and most of them for this reason.
        if need.lead == Millis::ZERO && need.nodes > free.nodes {
            return false;
        }
        let start = self.now.plus(need.lead);
        if need.granules <= free.granules && self.profile.fits(start, need) {
            self.profile.take(start, need);
            self.begin(waiting, start);
            return true;
        }
        if need.granules > 0 && self.profile.fits(start, &need.nodes_only()) {
            self.decision.delayed.push((*job, Delay::Buffer));
        }
        false
    }

    /// Begins the stage-in of a job that will start later, if its burst buffer is free until then and for its
    /// reservation. `is_taken`: the profile has its reservation.
    fn begin_early(&mut self, waiting: &Waiting, start: Millis, is_taken: bool) -> bool {
        let need = &waiting.need;
        if need.lead == Millis::ZERO {
            return false;
        }
        let until = match is_taken {
            true => start.since(need.lead),
            false => start.plus(need.limit).plus(need.tail),
        };
        if !self.profile.has_granules(self.now, until, need.granules) {
            return false;
        }
        self.profile.take_granules((self.now, until), need.granules);
        self.begin(waiting, start);
        true
    }
}

/// Decides which jobs begin and start now.
pub fn decide(policy: Policy, options: &PlanOptions, situation: &Situation<'_>) -> Decision {
    let mut draft = Draft::new(situation);
    match policy {
        Policy::Fcfs => backfill::decide(&mut draft, situation, backfill::Kind::FCFS),
        Policy::Easy => backfill::decide(&mut draft, situation, backfill::Kind::EASY),
        Policy::EasyBb => backfill::decide(&mut draft, situation, backfill::Kind::EASY_BB),
        Policy::Sjf => backfill::decide(&mut draft, situation, backfill::Kind::SJF),
        Policy::Conservative => conservative::decide(&mut draft, situation),
        Policy::Plan => plan::decide(&mut draft, situation, options),
    }
    draft.finish()
}
