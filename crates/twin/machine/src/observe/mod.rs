//! Observation of single packets and requests in a run: whose bytes delayed whom, use of jobs, servers
//! and links over time, a sampled trace. A run without it does none of the work.

mod collect;
mod delays;
mod requests;
mod series;
mod trace;

pub(crate) use collect::observed;
pub use delays::{ClassDelays, Delays, ServerDelays};
pub(crate) use requests::{IoObserver, Span, Stage};
pub use series::{SeriesTable, TimeSeries};
pub use trace::{Slice, Trace};

use crate::event::PacketKind;
use forebay_network::{JobsOfNodes, JobsOfPackets, ProbeOptions, Sampler, Topology};
use std::sync::Arc;

/// Observations of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObserveOptions {
    /// Attribute delays to jobs.
    pub delays: bool,
    /// Record jobs, servers and links over time.
    pub series: bool,
    /// Record the packets and requests of one of this many messages; 0: none.
    pub trace_one_in: u64,
}

/// Records of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Jobs, servers and links over time.
    pub series: Option<TimeSeries>,
    /// Sampled packets and requests.
    pub trace: Option<Trace>,
}

/// Records of a trace in all groups together: with at most two slices of some 150 bytes each, less
/// than 500 MB of text.
const MOST_RECORDS: usize = 1_200_000;

impl ObserveOptions {
    /// Whether anything is observed.
    pub(crate) fn is_any(&self) -> bool {
        self.delays || self.series || self.trace_one_in > 0
    }

    /// Sampler and size of each group's buffer of passages: five sixths of the records, because a
    /// request has several times more of them than stages.
    fn passages(&self, groups: u16) -> Option<(Sampler, usize)> {
        self.buffer(MOST_RECORDS / 6 * 5, groups)
    }

    /// The same of the buffer of stages.
    fn stages(&self, groups: u16) -> Option<(Sampler, usize)> {
        self.buffer(MOST_RECORDS / 6, groups)
    }

    fn buffer(&self, most: usize, groups: u16) -> Option<(Sampler, usize)> {
        let each = most / usize::from(groups.max(1));
        (self.trace_one_in > 0).then(|| (Sampler::one_in(self.trace_one_in), each))
    }

    /// The options of the fabric of a group.
    pub(crate) fn probe(&self, groups: u16, labels: Option<&JobLabels>) -> ProbeOptions {
        let mut job_of_kind = [0; 16];
        for kind in PacketKind::all() {
            job_of_kind[usize::from(kind.number())] = kind.job() as u8;
        }
        ProbeOptions {
            jobs: match labels {
                Some(labels) => JobsOfPackets::OfNodes(labels.nodes.clone()),
                None => JobsOfPackets::OfKinds(job_of_kind),
            },
            waits: self.delays,
            series: self.series,
            trace: self.passages(groups),
        }
    }
}

/// Names and nodes of the jobs of a study, by which delays are attributed instead of by [`Job`].
#[derive(Clone, Debug)]
pub(crate) struct JobLabels {
    pub names: Vec<String>,
    nodes: Arc<JobsOfNodes>,
}

impl JobLabels {
    /// The names and nodes of the jobs on a machine of `nodes` nodes.
    pub fn new(names: Vec<String>, jobs: &[Vec<u32>], nodes: usize, topology: &Topology) -> Self {
        let mut senders = vec![None; nodes];
        for (job, of_job) in (0..).zip(jobs) {
            of_job.iter().for_each(|node| senders[*node as usize] = Some(job));
        }
        let of_node = |(node, job): (u32, &Option<u8>)| {
            vec![*job; topology.count_interfaces_of(node) as usize]
        };
        let receivers = (0..).zip(&senders).flat_map(of_node).collect();
        JobLabels { names, nodes: Arc::new(JobsOfNodes { senders, receivers }) }
    }
}

/// The jobs of a run that are told apart, and within IOR its two kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Job {
    /// Synthetic traffic.
    Traffic,
    /// IOR: requests, their data and answers.
    Ior,
    /// IOR's MPI: barriers and other collective operations, and data between processes and aggregators.
    IorMpi,
    /// A job of collective operations.
    Collective,
}

impl Job {
    /// All jobs, by number.
    pub const ALL: [Job; 4] = [Job::Traffic, Job::Ior, Job::IorMpi, Job::Collective];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Job::Traffic => "traffic",
            Job::Ior => "ior",
            Job::IorMpi => "ior-mpi",
            Job::Collective => "collective",
        }
    }
}
