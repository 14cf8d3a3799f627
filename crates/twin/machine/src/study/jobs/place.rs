//! The nodes and storage nodes of the jobs of a study.

use super::flows::fidelity_of;
use super::{IoWork, JobWork, MOST_JOBS, StorageChoice, StudyJob, companies};
use crate::observe::JobLabels;
use crate::pool::{Instance, StoragePool};
use crate::scenario::Scenario;
use crate::storage::{FileSystem, Storage};
use crate::study::error::StudyError;
use crate::study::fabric::fabric_for;
use crate::study::ior_job::{burst_buffer, ior_job_on, storage};
use crate::study::joined::JoinedTest;
use crate::study::options::{Fidelity, SimOptions};
use crate::study::traffic::traffic_job;
use crate::traffic::Generation;
use forebay_job_script::{Capacity, OptimizationStrategy};
use forebay_machine_file::machine::{BurstBuffer, Machine, NodeKind};
use forebay_random::{hash, stream_label};
use forebay_units::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Jobs with their nodes and instances.
pub(super) struct PlacedJobs<'a> {
    pub jobs: &'a [StudyJob],
    /// The machine without jobs.
    pub idle: Scenario,
    machine: &'a Machine,
    options: &'a SimOptions,
    /// Nodes of each job.
    nodes: Vec<Vec<u32>>,
    /// The storage of each I/O job.
    storage: Vec<Option<(Storage, BurstBuffer)>>,
    /// The fidelity of simulations of several jobs.
    pub fidelity: Fidelity,
    /// Time for which traffic runs before the jobs with I/O, ps.
    pub warm_up: u64,
}

impl<'a> PlacedJobs<'a> {
    pub fn place(
        machine: &'a Machine,
        jobs: &'a [StudyJob],
        options: &'a SimOptions,
        warm_up: u64,
    ) -> Result<Self, StudyError> {
        if jobs.is_empty() || jobs.len() > MOST_JOBS {
            return Err(StudyError::Limit(format!(
                "{} jobs: a study has 1 to {MOST_JOBS}",
                jobs.len()
            )));
        }
        let mut placer = options.placer(machine)?;
        let mut nodes = Vec::new();
        for job in jobs {
            nodes.push(match job.groups {
                None => placer.place_job(job.nodes, job.placement)?,
                Some(groups) => {
                    check_groups(machine, groups)?;
                    placer.place_job_in(groups, job.nodes, job.placement)?
                }
            });
        }
        let mut idle = options.idle_scenario(machine)?;
        let names = jobs.iter().map(|job| job.name.clone()).collect();
        let labels = JobLabels::new(names, &nodes, machine.nodes.len(), &idle.topology);
        idle.labels = Some(Arc::new(labels));
        let storage = storage_of(machine, jobs, options)?;
        let fidelity = Fidelity::Packet;
        let mut placed =
            PlacedJobs { jobs, idle, machine, options, nodes, storage, fidelity, warm_up };
        let all: Vec<usize> = (0..jobs.len()).collect();
        let scenario = placed.scenario(&all, Generation::UntilOtherEnds, 0)?;
        match (jobs, scenario.io.as_slice()) {
            ([_], [_]) => drop(fabric_for(&scenario, options)?),
            _ => placed.fidelity = fidelity_of(&scenario, options)?,
        }
        Ok(placed)
    }

    /// Whether a job is one of I/O.
    pub fn is_io(&self, job: usize) -> bool {
        is_io(&self.jobs[job])
    }

    /// Simulations of a study at most: each I/O job alone, each company, and traffic alone for each company
    /// that it is in.
    pub fn count_simulations(&self) -> usize {
        let all = companies(self.jobs.len());
        let io = (0..self.jobs.len()).filter(|job| self.is_io(*job)).count();
        let with_traffic =
            all.iter().map(|jobs| jobs.iter().filter(|job| !self.is_io(**job)).count());
        (io + all.len() + with_traffic.sum::<usize>()).max(1)
    }

    /// Rate of the links of a job's nodes together, bytes per second.
    pub fn link_rate(&self, job: usize) -> f64 {
        let nodes = &self.nodes[job];
        self.machine.link_rate(nodes).0 as f64 * nodes.len() as f64
    }

    /// Load that a job with traffic offers, as a share of the rate of its nodes' links; 0 for one with I/O.
    pub fn offered_load(&self, job: usize) -> f64 {
        match &self.jobs[job].work {
            JobWork::Traffic(spec) => spec.load,
            JobWork::Io(_) => 0.0,
        }
    }

    /// The time in which the messages of the jobs with traffic are generated, the longest, ps.
    pub fn traffic_span(&self) -> Result<u64, StudyError> {
        let mut longest = 0;
        for (job, nodes) in self.jobs.iter().zip(&self.nodes) {
            if let JobWork::Traffic(spec) = &job.work {
                let mean = spec.arrivals(self.machine.link_rate(nodes))?.mean();
                longest = longest.max(spec.messages.saturating_mul(mean.0));
            }
        }
        Ok(longest)
    }

    /// The scenario of some of the jobs. Traffic is counted by parts of `span` ps.
    pub fn scenario(
        &self,
        jobs: &[usize],
        generation: Generation,
        span: u64,
    ) -> Result<Scenario, StudyError> {
        let mut scenario = self.idle.clone();
        for &number in jobs {
            let nodes = self.nodes[number].clone();
            // A job has the same random numbers and files whichever others there are.
            match &self.jobs[number].work {
                JobWork::Io(work) => {
                    let place = scenario.io.len() as u8;
                    let job = self.io_job(number, work, nodes, place)?;
                    scenario.io.push(Arc::new(job));
                }
                JobWork::Traffic(spec) => {
                    let place = scenario.traffic.len() as u8;
                    let seed = match self.order_among_traffic(number) {
                        0 => self.options.seed,
                        nth => hash(self.options.seed, stream_label("traffic job"), nth),
                    };
                    let span = (span > 0).then_some(span as f64);
                    let mut job = traffic_job(self.machine, spec, nodes, seed, generation, span)?;
                    (job.number, job.counted_from) = (place, self.warm_up);
                    scenario.traffic.push(Arc::new(job));
                }
            }
        }
        Ok(scenario)
    }

    fn io_job(
        &self,
        number: usize,
        work: &IoWork,
        nodes: Vec<u32>,
        place: u8,
    ) -> Result<crate::io::IoJob, StudyError> {
        let Some(storage) = self.storage[number].clone() else {
            unreachable!("an I/O job without storage")
        };
        let test = JoinedTest::new(self.machine, &work.ior, self.options);
        let mut job = ior_job_on(&self.idle, &test, nodes, work.ppn, self.options, storage)?;
        (job.number, job.start) = (place, self.warm_up.saturating_add(work.start.0));
        job.rate_limit = work.rate_limit;
        // Files of different jobs are different files and begin at different servers.
        job.pattern = job.pattern.with_first_file(number as u64 * FILES_OF_A_JOB);
        Ok(job)
    }

    /// Bytes of a transfer of an I/O job, and of the largest one of those of `jobs` with which it shares storage nodes;
    /// `None` if there are none, or for one with traffic.
    pub fn transfers_beside(&self, number: usize, jobs: &[usize]) -> Option<(Bytes, Bytes)> {
        let transfer = |job: usize| match &self.jobs[job].work {
            JobWork::Io(work) => Some(work.ior.transfer),
            JobWork::Traffic(_) => None,
        };
        let others = jobs.iter().filter(|job| **job != number && self.share_storage(number, **job));
        Some((transfer(number)?, others.filter_map(|job| transfer(*job)).max()?))
    }

    /// Whether two jobs have a storage node, or the parallel file system, in common.
    fn share_storage(&self, one: usize, other: usize) -> bool {
        let nodes = |job: usize| -> BTreeSet<u32> {
            let storage = self.storage[job].iter();
            storage.flat_map(|(storage, _)| storage.data_servers().iter().map(|s| s.node)).collect()
        };
        !nodes(one).is_disjoint(&nodes(other))
    }

    /// Everything that decides the state at the end of the warm-up of a scenario of some of the jobs.
    pub fn warm_up_inputs(&self, jobs: &[usize], scenario: &Scenario) -> String {
        let with_traffic: Vec<usize> =
            jobs.iter().copied().filter(|job| !self.is_io(*job)).collect();
        let of_jobs = with_traffic.iter().map(|&job| {
            let (order, nodes) = (self.order_among_traffic(job), &self.nodes[job]);
            format!("{order} {nodes:?} {:?}\n", self.jobs[job].work)
        });
        let of_jobs: String = of_jobs.collect();
        // Delays are attributed to all jobs by their nodes.
        let labels = scenario.observe.is_any().then_some(&self.nodes);
        let (machine, network, seed) = (&scenario.machine, &scenario.network, self.options.seed);
        let (observe, until) = (&scenario.observe, self.warm_up);
        format!("{until} {seed} {observe:?} {labels:?}\n{of_jobs}{machine:?}\n{network:?}")
    }

    /// The number of jobs with traffic before a job.
    fn order_among_traffic(&self, number: usize) -> u64 {
        (0..number).filter(|job| !self.is_io(*job)).count() as u64
    }
}

/// Whether a job is one of I/O.
fn is_io(job: &StudyJob) -> bool {
    matches!(job.work, JobWork::Io(_))
}

/// Numbers of files are that far apart from job to job.
const FILES_OF_A_JOB: u64 = (1 << 40) + 1;

fn check_groups(machine: &Machine, (first, last): (u32, u32)) -> Result<(), StudyError> {
    if first > last || last >= machine.network.groups {
        return Err(StudyError::Machine(format!(
            "groups {first} to {last}: {} has the groups 0 to {}",
            machine.name,
            machine.network.groups - 1
        )));
    }
    Ok(())
}

/// The storage of each I/O job: first those with nodes of their own, in the order of the jobs.
fn storage_of(
    machine: &Machine,
    jobs: &[StudyJob],
    options: &SimOptions,
) -> Result<Vec<Option<(Storage, BurstBuffer)>>, StudyError> {
    let mut all = vec![None; jobs.len()];
    let mut taken = BTreeSet::new();
    for separate in [true, false] {
        for (place, job) in all.iter_mut().zip(jobs) {
            let JobWork::Io(work) = &job.work else { continue };
            if work.storage.separate != separate {
                continue;
            }
            if let FileSystem::Parallel { .. } = options.file_system {
                *place = Some(storage(machine, options)?);
                continue;
            }
            let make = burst_buffer(machine)?;
            let instance = allocate(machine, &make, job, &work.storage, &taken)?;
            if separate {
                taken.extend(instance.nodes().iter().copied());
            }
            *place = Some((Storage::of_instance(instance, &make), make));
        }
    }
    Ok(all)
}

/// An instance for a job on nodes that are not `taken`.
fn allocate(
    machine: &Machine,
    make: &BurstBuffer,
    job: &StudyJob,
    choice: &StorageChoice,
    taken: &BTreeSet<u32>,
) -> Result<Instance, StudyError> {
    if let Some(groups) = choice.groups {
        check_groups(machine, groups)?;
    }
    let in_groups = |node| {
        choice.groups.is_none_or(|(first, last)| (first..=last).contains(&machine.group_of(node)))
    };
    let mut pool = StoragePool::new(machine, make, make.stripe);
    let mut of_group = vec![0; machine.network.groups as usize];
    let mut offered = BTreeSet::new();
    for node in machine.nodes_of_kind(NodeKind::BurstBuffer) {
        let count = &mut of_group[machine.group_of(node) as usize];
        let is_full = choice.per_group.is_some_and(|most| *count >= most);
        if in_groups(node) && !taken.contains(&node) && !is_full {
            *count += 1;
            offered.insert(node);
        }
    }
    pool.offer_only(|node| offered.contains(&node));
    let offered = pool.count_offered();
    let requested = choice.nodes.unwrap_or(offered);
    pool.allocate(Capacity::Nodes(requested), OptimizationStrategy::Bandwidth).map_err(|_| {
        StudyError::Machine(format!(
            "job `{}` requests {requested} storage nodes; {} has {offered} for it: give it fewer, or \
             other jobs fewer of their own",
            job.name, machine.name
        ))
    })
}
