//! The aggregators of collective transfers: how many there are, and which processes.

use forebay_machine_file::machine::Aggregators as Rule;

/// The processes that access the file in collective transfers.
#[derive(Clone, Debug)]
pub(crate) struct Aggregators {
    /// The rank of each aggregator.
    ranks: Vec<u32>,
    /// The aggregator of each rank, or `NONE`.
    of_rank: Vec<u32>,
    /// The most aggregators of one node.
    per_node: u32,
}

const NONE: u32 = u32::MAX;

impl Aggregators {
    /// The aggregators of a job of `tasks` processes, `ppn` a node, on a file with stripes on `stripes` servers.
    ///
    /// Fewer than one for each node are on nodes at equal distances; of more, each node has its first process
    /// before any has its second one.
    pub fn new(rule: Rule, tasks: u32, ppn: u32, stripes: u32) -> Self {
        let ppn = ppn.max(1);
        let nodes = tasks.div_ceil(ppn);
        let count = match rule {
            Rule::PerNode => nodes,
            Rule::PerStripe => stripes.clamp(1, tasks.max(1)),
        };
        let ranks: Vec<u32> = if count <= nodes {
            let node = |a: u32| (u64::from(a) * u64::from(nodes) / u64::from(count)) as u32;
            (0..count).map(|a| node(a) * ppn).collect()
        } else {
            let of_turn = |k| (0..nodes).map(move |node| node * ppn + k);
            (0..ppn).flat_map(of_turn).filter(|&r| r < tasks).take(count as usize).collect()
        };
        let mut of_rank = vec![NONE; tasks as usize];
        for (aggregator, &rank) in (0..).zip(&ranks) {
            of_rank[rank as usize] = aggregator;
        }
        let per_node = ranks.iter().map(|rank| rank % ppn + 1).max().unwrap_or(1);
        debug_assert_eq!(ranks.len(), count as usize);
        Aggregators { ranks, of_rank, per_node }
    }

    /// Their number.
    pub fn count(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The most of them on one node, which are the first processes of their nodes.
    pub fn per_node(&self) -> u32 {
        self.per_node
    }

    /// The number of the aggregator that a process is, if it is one.
    pub fn of_rank(&self, rank: u32) -> Option<u32> {
        Some(self.of_rank[rank as usize]).filter(|&aggregator| aggregator != NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranks(rule: Rule, tasks: u32, ppn: u32, stripes: u32) -> Vec<u32> {
        Aggregators::new(rule, tasks, ppn, stripes).ranks
    }

    #[test]
    fn a_node_has_one_or_as_many_as_the_stripes_need() {
        assert_eq!(ranks(Rule::PerNode, 8, 2, 3), [0, 2, 4, 6]);
        assert_eq!(ranks(Rule::PerStripe, 8, 2, 3), [0, 2, 4]);
        assert_eq!(ranks(Rule::PerStripe, 16, 2, 4), [0, 4, 8, 12]);
        assert_eq!(ranks(Rule::PerStripe, 8, 4, 5), [0, 4, 1, 5, 2]);
        // The last node has one process.
        assert_eq!(ranks(Rule::PerStripe, 5, 4, 100), [0, 4, 1, 2, 3]);
    }

    proptest! {
        #[test]
        fn each_is_one_process(tasks in 1u32..200, ppn in 1u32..20, stripes in 1u32..300) {
            let all = Aggregators::new(Rule::PerStripe, tasks, ppn, stripes);
            prop_assert_eq!(all.count(), stripes.min(tasks));
            for aggregator in 0..all.count() {
                let rank = all.ranks[aggregator as usize];
                prop_assert_eq!(all.of_rank(rank), Some(aggregator));
                prop_assert!(rank % ppn < all.per_node());
            }
            let processes = (0..tasks).filter(|&r| all.of_rank(r).is_some()).count();
            prop_assert_eq!(processes, all.count() as usize);
        }
    }
}
