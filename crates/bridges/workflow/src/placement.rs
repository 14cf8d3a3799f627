//! Data on the nodes: where they are, the nodes that a job prefers for them, and the transfers that it
//! needs elsewhere. Pure functions.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The data that a job left on one of its nodes: the job and the node's rank.
pub type Part = (u32, u32);

/// The data of a workflow on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Directories in the user's directory of each dataspace: ids of workflows that became one.
    pub directories: BTreeSet<u32>,
    /// Bytes in files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// The jobs, with the ranks of their nodes, that left the data.
    #[serde(with = "parts_as_list")]
    pub parts: BTreeSet<Part>,
}

/// JSON has no keys of two numbers, but lists of them.
mod parts_as_list {
    use super::{BTreeSet, Part};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(parts: &BTreeSet<Part>, to: S) -> Result<S::Ok, S::Error> {
        parts.iter().collect::<Vec<_>>().serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<BTreeSet<Part>, D::Error> {
        Ok(Vec::<Part>::deserialize(from)?.into_iter().collect())
    }
}

/// The data of a workflow by node.
pub type Holdings = BTreeMap<String, Holding>;

/// A transfer of everything that a node holds of a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// The node that has the data.
    pub from: String,
    /// Its directories.
    pub directories: BTreeSet<u32>,
    /// Bytes to copy.
    pub bytes: u64,
    /// The parts that the node held when the transfer was planned.
    #[serde(with = "parts_as_list")]
    pub parts: BTreeSet<Part>,
    /// The data there are a later state of all that the target has: their files replace those of the
    /// target. Otherwise a file that both have is an error.
    pub replaces: bool,
}

/// Takes nodes until they hold all of `needed`, each time the one with most of what is missing; of
/// equal ones that with more bytes.
fn cover(holdings: &Holdings, needed: &BTreeSet<Part>, limit: usize) -> Vec<String> {
    let mut missing = needed.clone();
    let mut chosen: Vec<String> = Vec::new();
    while !missing.is_empty() && chosen.len() < limit {
        let gain = |holding: &Holding| holding.parts.intersection(&missing).count();
        let candidates = holdings.iter().filter(|(_, holding)| holding.files > 0);
        // The first of equal ones by name.
        let best = candidates.rev().max_by_key(|(_, holding)| (gain(holding), holding.bytes));
        let Some((node, holding)) = best.filter(|(_, holding)| gain(holding) > 0) else { break };
        missing.retain(|part| !holding.parts.contains(part));
        chosen.push(node.clone());
    }
    assert!(chosen.len() <= limit);
    chosen
}

/// The nodes that a job on `count` nodes prefers, because they hold the data that it needs.
pub fn preferred_nodes(holdings: &Holdings, needed: &BTreeSet<Part>, count: usize) -> Vec<String> {
    cover(holdings, needed, count)
}

/// The transfers to each of a job's nodes, so that these together hold what the job needs. Nodes that
/// hold nothing get data first.
pub fn plan_pulls(
    holdings: &Holdings,
    needed: &BTreeSet<Part>,
    nodes: &[String],
) -> BTreeMap<String, Vec<Pull>> {
    let mut missing = needed.clone();
    for holding in nodes.iter().filter_map(|node| holdings.get(node)) {
        missing.retain(|part| !holding.parts.contains(part));
    }
    let mut targets: Vec<(u64, &String)> = nodes
        .iter()
        .map(|node| (holdings.get(node).map_or(0, |holding| holding.bytes), node))
        .collect();
    targets.sort_by_key(|(bytes, _)| *bytes);
    let elsewhere: Holdings = holdings
        .iter()
        .filter(|(node, _)| !nodes.contains(node))
        .map(|(node, holding)| (node.clone(), holding.clone()))
        .collect();
    let mut pulls: BTreeMap<String, Vec<Pull>> = BTreeMap::new();
    let sources = cover(&elsewhere, &missing, usize::MAX);
    for (from, (_, target)) in sources.iter().zip(targets.iter().cycle()) {
        let source = &elsewhere[from];
        let at_target = holdings.get(*target).map(|holding| &holding.parts);
        let others = pulls.entry((*target).clone()).or_default();
        let replaces =
            others.is_empty() && at_target.is_none_or(|parts| parts.is_subset(&source.parts));
        others.push(Pull {
            from: from.clone(),
            directories: source.directories.clone(),
            bytes: source.bytes,
            parts: source.parts.clone(),
            replaces,
        });
    }
    pulls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holdings(entries: &[(&str, u64, &[Part])]) -> Holdings {
        let holding = |(node, bytes, parts): &(&str, u64, &[Part])| {
            let parts = parts.iter().copied().collect();
            let directories = BTreeSet::from([1]);
            (
                (*node).to_owned(),
                Holding { directories, bytes: *bytes, files: bytes.min(&1).to_owned(), parts },
            )
        };
        entries.iter().map(holding).collect()
    }

    fn needed(parts: &[Part]) -> BTreeSet<Part> {
        parts.iter().copied().collect()
    }

    #[test]
    fn nodes_with_most_of_the_data_are_preferred_up_to_the_number_needed() {
        let holdings = holdings(&[
            ("n1", 10, &[(1, 0)]),
            ("n2", 20, &[(1, 1), (2, 0)]),
            ("n3", 30, &[(1, 1)]),
            ("n4", 0, &[(1, 0), (1, 1), (2, 0)]),
        ]);
        let all = needed(&[(1, 0), (1, 1), (2, 0)]);
        assert_eq!(preferred_nodes(&holdings, &all, 1), ["n2"]);
        assert_eq!(preferred_nodes(&holdings, &all, 4), ["n2", "n1"]);
        assert_eq!(preferred_nodes(&holdings, &needed(&[(1, 1)]), 4), ["n3"], "more bytes");
        assert!(preferred_nodes(&holdings, &needed(&[(9, 0)]), 4).is_empty());
    }

    #[test]
    fn only_what_the_jobs_nodes_do_not_hold_is_moved_first_to_empty_nodes() {
        let holdings = holdings(&[
            ("n1", 10, &[(1, 0)]),
            ("n2", 20, &[(1, 1)]),
            ("n3", 30, &[(1, 1), (2, 0)]),
        ]);
        let all = needed(&[(1, 0), (1, 1)]);
        let nodes = ["n1".to_owned(), "n5".to_owned()];
        let pulls = plan_pulls(&holdings, &all, &nodes);
        assert_eq!(pulls.keys().collect::<Vec<_>>(), ["n5"]);
        assert_eq!((pulls["n5"][0].from.as_str(), pulls["n5"][0].replaces), ("n3", true));
        let both = ["n1".to_owned(), "n2".to_owned()];
        assert!(plan_pulls(&holdings, &all, &both).is_empty());
        // The state of n3 does not include that of n1.
        let pulls = plan_pulls(&holdings, &all, &nodes[..1]);
        assert!(!pulls["n1"][0].replaces);
    }
}
