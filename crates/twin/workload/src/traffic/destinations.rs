//! A traffic pattern fitted to the nodes of a job.

use super::pattern::{TrafficError, TrafficPattern};
use forebay_random::{RandomStream, below, mix, stream_label, unit_interval};

/// The destination of each message, for one pattern and one job: a pure function that takes constant
/// time and does not allocate. At most twelve bytes per node.
#[derive(Clone, Debug)]
pub struct Destinations {
    nodes: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Uniform,
    Groups { groups: Groups, both_sides: bool },
    AllToAll,
    Halo { grid: [u32; 3], axes: [u8; 3], used: u32 },
    HotSpot { hot: u32, share: f64 },
    Permutation { next: Vec<u32> },
}

/// The job's nodes by group, the groups in ring order.
#[derive(Clone, Debug)]
struct Groups {
    /// For each node, its group's number in the ring.
    of: Vec<u32>,
    /// The nodes, group by group.
    members: Vec<u32>,
    /// Start of each group in `members`, and the end of the last.
    begins: Vec<u32>,
}

impl Groups {
    /// The groups of a job, from the machine's group of each of its nodes.
    fn new(group_of: &[u32]) -> Groups {
        let mut numbers = group_of.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        let of: Vec<u32> =
            group_of.iter().map(|g| numbers.partition_point(|number| number < g) as u32).collect();
        let mut members: Vec<u32> = (0..of.len() as u32).collect();
        members.sort_by_key(|&node| of[node as usize]);
        let begins = (0..=numbers.len() as u32)
            .map(|group| members.partition_point(|&node| of[node as usize] < group) as u32)
            .collect();
        Groups { of, members, begins }
    }

    fn count(&self) -> usize {
        self.begins.len() - 1
    }

    fn size(&self, group: usize) -> u32 {
        self.begins[group + 1] - self.begins[group]
    }

    fn member(&self, group: usize, index: u32) -> u32 {
        self.members[(self.begins[group] + index) as usize]
    }
}

impl TrafficPattern {
    /// Fits the pattern to a job: `group_of[i]` is the machine's group of the job's node i. `seed`
    /// determines the order of `permutation`.
    ///
    /// # Errors
    /// If the job has fewer than two nodes, or lacks what the pattern
    /// needs: two groups, a grid of exactly its nodes, at least as many nodes as hot ones.
    pub fn resolve(&self, group_of: &[u32], seed: u64) -> Result<Destinations, TrafficError> {
        let misfit = |problem: String| {
            TrafficError(format!("traffic pattern `{self}` does not fit the job: {problem}"))
        };
        let nodes = u32::try_from(group_of.len())
            .map_err(|_| misfit("it has more than 2^32 nodes".to_string()))?;
        if nodes < 2 {
            return Err(misfit(format!("traffic needs at least 2 nodes, and it has {nodes}")));
        }
        let groups = |both_sides| {
            let groups = Groups::new(group_of);
            match groups.count() {
                0 | 1 => Err(misfit(format!(
                    "it needs nodes in at least 2 groups, and all {nodes} are in one; \
                     use more nodes or another placement"
                ))),
                _ => Ok(Kind::Groups { groups, both_sides }),
            }
        };
        let kind = match *self {
            TrafficPattern::Uniform => Kind::Uniform,
            TrafficPattern::NearestGroup => groups(true)?,
            TrafficPattern::Adversarial => groups(false)?,
            TrafficPattern::AllToAll => Kind::AllToAll,
            TrafficPattern::Halo { grid } => {
                let grid = grid.unwrap_or_else(|| near_cube(nodes));
                if grid.iter().map(|&d| u128::from(d)).product::<u128>() != u128::from(nodes) {
                    let [x, y, z] = near_cube(nodes);
                    return Err(misfit(format!(
                        "the grid must have {nodes} nodes, for example x={x},y={y},z={z}"
                    )));
                }
                let mut axes = [0; 3];
                let mut used = 0;
                for axis in (0..3).filter(|&axis| grid[axis] > 1) {
                    axes[used] = axis as u8;
                    used += 1;
                }
                Kind::Halo { grid, axes, used: used as u32 }
            }
            TrafficPattern::HotSpot { nodes: hot, share } => {
                if hot == 0 || hot > nodes {
                    return Err(misfit(format!("1 to {nodes} of its nodes can be hot, not {hot}")));
                }
                Kind::HotSpot { hot, share }
            }
            TrafficPattern::Permutation => Kind::Permutation { next: random_cycle(nodes, seed) },
        };
        Ok(Destinations { nodes, kind })
    }
}

impl Destinations {
    /// Nodes of the job.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The dimensions of `halo`'s grid.
    pub fn grid(&self) -> Option<[u32; 3]> {
        if let Kind::Halo { grid, .. } = self.kind { Some(grid) } else { None }
    }

    /// Messages after which a pattern that takes its destinations in turn begins again; 1 for the others.
    pub fn period(&self) -> u64 {
        match &self.kind {
            Kind::AllToAll => u64::from(self.nodes - 1),
            Kind::Halo { used, .. } => u64::from(2 * used).max(1),
            Kind::Uniform
            | Kind::Groups { .. }
            | Kind::HotSpot { .. }
            | Kind::Permutation { .. } => 1,
        }
    }

    /// The destination of message number `message` (from 0) of the job's node `node`; `random` is a
    /// fresh random number, used by the random patterns only. `node` must be below
    /// [`Destinations::nodes`]; so is the result, which is never `node`.
    #[inline]
    pub fn destination(&self, node: u32, message: u64, random: u64) -> u32 {
        let n = self.nodes;
        match &self.kind {
            Kind::Uniform => self.other(node, random),
            Kind::Groups { groups, both_sides } => {
                let count = groups.count();
                let group = groups.of[node as usize] as usize;
                let after = if group + 1 == count { 0 } else { group + 1 };
                let before = if group == 0 { count - 1 } else { group - 1 };
                let there = groups.size(after);
                // With two groups both sides are the same group.
                let either = if *both_sides && count > 2 { groups.size(before) } else { 0 };
                let draw = below(random, u64::from(there) + u64::from(either)) as u32;
                if draw < there {
                    groups.member(after, draw)
                } else {
                    groups.member(before, draw - there)
                }
            }
            Kind::AllToAll => {
                let step = 1 + message % u64::from(n - 1);
                ((u64::from(node) + step) % u64::from(n)) as u32
            }
            Kind::Halo { grid, axes, used } => {
                let turn = (message % u64::from(2 * used)) as usize;
                let axis = axes[turn / 2] as usize;
                let extent = grid[axis];
                let stride: u32 = grid[..axis].iter().product();
                let here = node / stride % extent;
                let there = match turn % 2 {
                    0 if here + 1 == extent => 0,
                    0 => here + 1,
                    _ if here == 0 => extent - 1,
                    _ => here - 1,
                };
                node - here * stride + there * stride
            }
            Kind::HotSpot { hot, share } => {
                let second = mix(random);
                if unit_interval(random) > *share {
                    return self.other(node, second);
                }
                let spot = |k: u64| (k * u64::from(n) / u64::from(*hot)) as u32;
                let drawn = spot(below(second, u64::from(*hot)));
                if drawn != node {
                    drawn
                } else if *hot == 1 {
                    self.other(node, second)
                } else {
                    // One of the other hot nodes, with equal probabilities.
                    let own = below(second, u64::from(*hot));
                    let step = 1 + below(mix(second), u64::from(*hot - 1));
                    spot((own + step) % u64::from(*hot))
                }
            }
            Kind::Permutation { next } => next[node as usize],
        }
    }

    /// A random node that is not `node`.
    #[inline]
    fn other(&self, node: u32, random: u64) -> u32 {
        let draw = below(random, u64::from(self.nodes - 1)) as u32;
        draw + u32::from(draw >= node)
    }
}

/// Three factors of `n`, ascending: the largest as small as possible, then the second largest.
fn near_cube(n: u32) -> [u32; 3] {
    let divisors: Vec<u32> =
        (1..=n.isqrt()).filter(|d| n.is_multiple_of(*d)).flat_map(|d| [d, n / d]).collect();
    let mut best = [1, 1, n];
    for &largest in &divisors {
        for &middle in divisors.iter().filter(|&&d| d <= largest && (n / largest).is_multiple_of(d))
        {
            let smallest = n / largest / middle;
            if smallest <= middle && (largest, middle) < (best[2], best[1]) {
                best = [smallest, middle, largest];
            }
        }
    }
    best
}

/// For each node the next one in a random cycle through all (Sattolo's algorithm).
fn random_cycle(nodes: u32, seed: u64) -> Vec<u32> {
    let random = RandomStream::new(seed, stream_label("traffic permutation"));
    let mut next: Vec<u32> = (0..nodes).collect();
    for i in (1..next.len()).rev() {
        next.swap(i, below(random.at(i as u64), i as u64) as usize);
    }
    next
}
