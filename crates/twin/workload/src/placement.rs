//! The compute nodes of a machine that a job gets, in rank order.

use forebay_machine_file::machine::{Machine, NodeKind};
use forebay_random::{RandomStream, below, stream_label};
use std::fmt;
use std::str::FromStr;

/// The choice of a job's nodes among the free nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The first run of consecutive free compute nodes that is long enough; if there is none, the
    /// free nodes with the lowest numbers.
    Contiguous,
    /// Nodes drawn at random, in the order drawn: neighbours in rank are far apart.
    RandomNodes,
    /// Routers drawn at random; all free nodes of each in turn, by number.
    RandomRouters,
    /// Groups drawn at random; all free nodes of each in turn, by number.
    RandomGroups,
}

impl Placement {
    /// All placements.
    pub const ALL: [Placement; 4] = [
        Placement::Contiguous,
        Placement::RandomNodes,
        Placement::RandomRouters,
        Placement::RandomGroups,
    ];

    /// The name in commands and result documents.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Contiguous => "contiguous",
            Placement::RandomNodes => "random-nodes",
            Placement::RandomRouters => "random-routers",
            Placement::RandomGroups => "random-groups",
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        Placement::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| {
            let names = Placement::ALL.map(Placement::name).join(", ");
            PlacementError(format!("unknown placement `{text}`; use one of {names}"))
        })
    }
}

/// The reason why a job cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlacementError(String);

/// One free compute node.
#[derive(Clone, Copy)]
struct Free {
    /// Number among the machine's compute nodes.
    rank: u32,
    node: u32,
    router: u32,
    group: u32,
}

/// Places jobs on a machine one after another; each node goes to at most one job.
pub struct Placer {
    machine: String,
    compute: u32,
    /// Ascending by node number.
    free: Vec<Free>,
    seed: u64,
    jobs: u64,
}

impl Placer {
    /// A placer for a machine whose compute nodes are all free.
    pub fn new(machine: &Machine, seed: u64) -> Placer {
        let routers = machine.routers_per_group().max(1);
        let free: Vec<Free> = (0..)
            .zip(machine.nodes_of_kind(NodeKind::Compute))
            .map(|(rank, node)| {
                let router = machine.nodes[node as usize].router;
                Free { rank, node, router, group: router / routers }
            })
            .collect();
        Placer { machine: machine.name.clone(), compute: free.len() as u32, free, seed, jobs: 0 }
    }

    /// Restricts the placer to the free nodes of the groups `first` to `last`.
    pub fn keep_groups(&mut self, first: u32, last: u32) {
        self.free.retain(|node| (first..=last).contains(&node.group));
    }

    /// Restricts the placer to the free ones of these nodes, which ascend.
    pub fn keep_nodes(&mut self, nodes: &[u32]) {
        debug_assert!(nodes.is_sorted());
        self.free.retain(|free| nodes.binary_search(&free.node).is_ok());
    }

    /// As [`Placer::place_job`], on free nodes of the groups `first` to `last` only.
    ///
    /// # Errors
    /// As [`Placer::place_job`].
    pub fn place_job_in(
        &mut self,
        (first, last): (u32, u32),
        nodes: u32,
        how: Placement,
    ) -> Result<Vec<u32>, PlacementError> {
        let all = std::mem::take(&mut self.free);
        let (inside, outside) =
            all.into_iter().partition(|free| (first..=last).contains(&free.group));
        self.free = inside;
        let free = self.free_nodes();
        let job = self.place_job(nodes, how).map_err(|error| match nodes > free {
            true => PlacementError(format!(
                "the groups {first} to {last} of {} have {free} free compute nodes; the job requests \
                 {nodes}",
                self.machine
            )),
            false => error,
        });
        self.free.extend::<Vec<Free>>(outside);
        self.free.sort_by_key(|free| free.rank);
        job
    }

    /// Number of free compute nodes.
    pub fn free_nodes(&self) -> u32 {
        self.free.len() as u32
    }

    /// Takes `nodes` nodes for a job and returns their numbers in rank order. The choice depends on
    /// the seed, and on the number and the nodes of the jobs placed before.
    ///
    /// # Errors
    /// [`PlacementError`] if `nodes` is 0 or more than are free; no node is taken then.
    pub fn place_job(&mut self, nodes: u32, how: Placement) -> Result<Vec<u32>, PlacementError> {
        if nodes == 0 {
            return Err(PlacementError("a job needs at least one node".into()));
        }
        if nodes > self.free_nodes() {
            return Err(PlacementError(format!(
                "{} has {} compute nodes, of which {} are free; the job requests {nodes}",
                self.machine,
                self.compute,
                self.free_nodes()
            )));
        }
        let random = RandomStream::of_unit(self.seed, stream_label("placement"), self.jobs);
        self.jobs += 1;
        let count = nodes as usize;
        // Positions in the list of free nodes, in rank order.
        let chosen: Vec<usize> = match how {
            Placement::Contiguous => {
                let first = self.first_run(count);
                (first..first + count).collect()
            }
            Placement::RandomNodes => {
                let mut all: Vec<usize> = (0..self.free.len()).collect();
                shuffle(&mut all, count, random);
                all.truncate(count);
                all
            }
            Placement::RandomRouters => self.by_location(count, random, |f| f.router),
            Placement::RandomGroups => self.by_location(count, random, |f| f.group),
        };
        let job = chosen.iter().map(|&i| self.free[i].node).collect();
        let mut taken = vec![false; self.free.len()];
        chosen.iter().for_each(|&i| taken[i] = true);
        let mut taken = taken.into_iter();
        self.free.retain(|_| taken.next() == Some(false));
        Ok(job)
    }

    /// The start of the first run of `count` free nodes; 0 if there is none.
    fn first_run(&self, count: usize) -> usize {
        self.free
            .windows(count)
            .position(|run| (run[count - 1].rank - run[0].rank) as usize == count - 1)
            .unwrap_or(0)
    }

    /// The first `count` free nodes, with the locations given by `location_of` in random order.
    fn by_location(
        &self,
        count: usize,
        random: RandomStream,
        location_of: impl Fn(&Free) -> u32,
    ) -> Vec<usize> {
        // Node numbers are ordered by router and group in most machines, but a machine file may
        // order them otherwise.
        let mut all: Vec<usize> = (0..self.free.len()).collect();
        all.sort_by_key(|&i| location_of(&self.free[i]));
        let mut locations: Vec<&[usize]> = all
            .chunk_by(|&a, &b| location_of(&self.free[a]) == location_of(&self.free[b]))
            .collect();
        let count_of_locations = locations.len();
        shuffle(&mut locations, count_of_locations, random);
        locations.concat().into_iter().take(count).collect()
    }
}

/// Moves `count` random elements in random order to the front (Fisher and Yates).
fn shuffle<T>(list: &mut [T], count: usize, random: RandomStream) {
    for i in 0..count.min(list.len()) {
        let rest = (list.len() - i) as u64;
        list.swap(i, i + below(random.at(i as u64), rest) as usize);
    }
}
