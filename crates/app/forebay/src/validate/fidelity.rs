//! The grid of cases on which flows are compared with packets: `validation/flow.toml`, embedded.

use forebay_console::Failure;
use serde::{Deserialize, Serialize};

const TEXT: &str = include_str!("../../../../../validation/flow.toml");

/// The use of a case.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Set {
    /// Known while the model of flows was built.
    Build,
    /// Chosen before they were simulated, and known while a later part of the model was built.
    Seen,
    /// Simulated for the first time when the model was finished.
    Test,
}

impl Set {
    /// All sets.
    pub const ALL: [Set; 3] = [Set::Build, Set::Seen, Set::Test];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Set::Build => "build",
            Set::Seen => "seen",
            Set::Test => "test",
        }
    }
}

/// Kind of simulation of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CaseKind {
    /// A test of IOR, whose rates are compared.
    Ior,
    /// Traffic alone, whose accepted load is compared.
    Traffic,
    /// Two jobs at the same time, whose slowdowns are compared.
    Pairs,
}

/// Cases that differ in node counts, processes a node, transfer sizes, and one or many files.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Group {
    set: Set,
    machine: String,
    nodes: Vec<u32>,
    ppn: Vec<u32>,
    transfers: Vec<String>,
    block: String,
    /// Targets of a file on the parallel file system; empty: the burst buffer.
    #[serde(default)]
    stripe_counts: Vec<u32>,
    /// Whether its cases take seconds.
    #[serde(default)]
    quick: bool,
}

/// Traffic alone that differs in patterns and loads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TrafficGroup {
    set: Set,
    machine: String,
    /// Nodes that send and receive; `None`: all.
    nodes: Option<u32>,
    patterns: Vec<String>,
    loads: Vec<f64>,
    message: String,
    /// Messages of each node.
    messages: u64,
}

/// Two jobs at the same time on the same storage nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Pair {
    set: Set,
    machine: String,
    storage_nodes: u32,
    jobs: [PairedJob; 2],
}

/// A job of a pair.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PairedJob {
    /// Compute nodes.
    pub nodes: u32,
    /// Processes per node.
    pub ppn: u32,
    /// IOR's options.
    pub ior: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    group: Vec<Group>,
    traffic: Vec<TrafficGroup>,
    pair: Vec<Pair>,
}

/// A case that is no single test of IOR.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkCase {
    /// Its use.
    pub set: Set,
    /// Machine file.
    pub machine: String,
    /// Load that is simulated.
    pub load: NetworkLoad,
}

impl NetworkCase {
    /// Kind of its simulation.
    pub fn kind(&self) -> CaseKind {
        match self.load {
            NetworkLoad::Traffic { .. } => CaseKind::Traffic,
            NetworkLoad::Pair { .. } => CaseKind::Pairs,
        }
    }
}

/// Load of a [`NetworkCase`].
#[derive(Clone, Debug, PartialEq)]
pub enum NetworkLoad {
    /// Traffic alone.
    Traffic {
        /// Nodes; `None`: all.
        nodes: Option<u32>,
        /// Its pattern.
        pattern: String,
        /// Offered load, as a part of the rate of the nodes' links.
        load: f64,
        /// Size of a message.
        message: String,
        /// Messages of each node.
        messages: u64,
    },
    /// Two jobs that share so many storage nodes.
    Pair {
        /// Storage nodes of both.
        storage_nodes: u32,
        /// The jobs.
        jobs: [PairedJob; 2],
    },
}

/// The cases of the grid that are no single tests of IOR; none of them takes seconds only.
///
/// # Errors
/// [`Failure::Failed`] if the embedded file is wrong.
pub fn network_cases() -> Result<Vec<NetworkCase>, Failure> {
    let file = file()?;
    let mut cases = Vec::new();
    for group in &file.traffic {
        for (pattern, &load) in
            group.patterns.iter().flat_map(|p| group.loads.iter().map(move |load| (p, load)))
        {
            let load = NetworkLoad::Traffic {
                nodes: group.nodes,
                pattern: pattern.clone(),
                load,
                message: group.message.clone(),
                messages: group.messages,
            };
            cases.push(NetworkCase { set: group.set, machine: group.machine.clone(), load });
        }
    }
    for Pair { set, machine, storage_nodes, jobs } in file.pair {
        cases.push(NetworkCase { set, machine, load: NetworkLoad::Pair { storage_nodes, jobs } });
    }
    Ok(cases)
}

fn file() -> Result<File, Failure> {
    toml::from_str(TEXT).map_err(|e| Failure::Failed(format!("validation/flow.toml: {e}")))
}

/// One case: a test with a write and a read phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridCase {
    /// Its use.
    pub set: Set,
    /// Machine file.
    pub machine: String,
    /// Compute nodes.
    pub nodes: u32,
    /// Processes per node.
    pub ppn: u32,
    /// IOR's options.
    pub ior: String,
    /// Targets of a file on the parallel file system; `None`: the burst buffer.
    pub stripe_count: Option<u32>,
}

impl Group {
    /// The file systems of its cases: targets of a file on the parallel file system, or the burst buffer.
    fn file_systems(&self) -> Vec<Option<u32>> {
        match self.stripe_counts.is_empty() {
            true => vec![None],
            false => self.stripe_counts.iter().copied().map(Some).collect(),
        }
    }
}

/// The cases of the grid; with `quick`, those that take seconds.
///
/// # Errors
/// [`Failure::Failed`] if the embedded file is wrong.
pub fn grid(quick: bool) -> Result<Vec<GridCase>, Failure> {
    let mut cases = Vec::new();
    for group in file()?.group.iter().filter(|group| group.quick || !quick) {
        for (&nodes, &ppn) in group.nodes.iter().flat_map(|n| group.ppn.iter().map(move |p| (n, p)))
        {
            for (transfer, stripe_count) in group
                .transfers
                .iter()
                .flat_map(|t| group.file_systems().into_iter().map(move |count| (t, count)))
            {
                for files in [" -F", ""] {
                    cases.push(GridCase {
                        set: group.set,
                        machine: group.machine.clone(),
                        nodes,
                        ppn,
                        ior: format!("-w -r -t {transfer} -b {}{files}", group.block),
                        stripe_count,
                    });
                }
            }
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_case_of_the_test_set_is_in_another_set() {
        let cases = grid(false).unwrap();
        let of_set = |set| cases.iter().filter(move |case| case.set == set);
        assert!(of_set(Set::Build).count() > 20 && of_set(Set::Test).count() > 20);
        let others = || of_set(Set::Build).chain(of_set(Set::Seen));
        for test in of_set(Set::Test) {
            let same = |case: &&GridCase| GridCase { set: Set::Test, ..(*case).clone() } == *test;
            assert!(!others().any(|case| same(&case)), "{test:?}");
        }
    }
}
