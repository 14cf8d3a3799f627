//! The simulated cases and their measurements: `validation/cases.toml`, embedded.

use super::status::Basis;
use forebay_console::Failure;
use forebay_machine::study::FileSystem;
use serde::Deserialize;

const TEXT: &str = include_str!("../../../../../validation/cases.toml");

/// The quantity of a run that is compared with the measurement.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// GB/s written.
    WriteRate,
    /// GB/s read.
    ReadRate,
    /// GB/s written, divided by the number of nodes.
    WriteRatePerNode,
    /// Mean of the nodes' acknowledged write rates, in GB/s.
    AcknowledgedWriteRatePerNode,
    /// Writes per second.
    WriteIops,
    /// Reads per second.
    ReadIops,
    /// The point of the sweep at which the write rate reaches 97% of its maximum.
    WriteSaturation,
    /// The point of the sweep at which the read rate reaches 97% of its maximum.
    ReadSaturation,
    /// The write rate at a step of the sweep, divided by that at the first.
    WriteGain,
    /// The read rate at a step of the sweep, divided by that at the first.
    ReadGain,
    /// The limiting resource.
    Limit,
}

impl Measure {
    /// Its description.
    pub fn words(self) -> &'static str {
        match self {
            Measure::WriteRate => "write rate",
            Measure::ReadRate => "read rate",
            Measure::WriteRatePerNode => "write rate / nodes",
            Measure::AcknowledgedWriteRatePerNode => {
                "mean over the nodes of bytes written / time from calls to acknowledgements"
            }
            Measure::WriteIops => "writes a second",
            Measure::ReadIops => "reads a second",
            Measure::WriteSaturation => "where the write rate reaches 97% of its best",
            Measure::ReadSaturation => "where the read rate reaches 97% of its best",
            Measure::WriteGain => "write rate / that of the first step",
            Measure::ReadGain => "read rate / that of the first step",
            Measure::Limit => "the limiting resource",
        }
    }

    /// Whether it is a rate of a run, which changes with the machine without steps.
    pub fn is_rate(self) -> bool {
        match self {
            Measure::WriteRate
            | Measure::ReadRate
            | Measure::WriteRatePerNode
            | Measure::AcknowledgedWriteRatePerNode
            | Measure::WriteIops
            | Measure::ReadIops => true,
            Measure::WriteSaturation
            | Measure::ReadSaturation
            | Measure::WriteGain
            | Measure::ReadGain
            | Measure::Limit => false,
        }
    }

    /// The access that it measures.
    pub fn access(self) -> &'static str {
        match self {
            Measure::ReadRate | Measure::ReadIops | Measure::ReadSaturation | Measure::ReadGain => {
                "read"
            }
            Measure::WriteRate
            | Measure::WriteRatePerNode
            | Measure::AcknowledgedWriteRatePerNode
            | Measure::WriteIops
            | Measure::WriteSaturation
            | Measure::WriteGain
            | Measure::Limit => "write",
        }
    }
}

/// The definition of a rate that the measurement states.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// All bytes / (last close - first open).
    IorBandwidth,
    /// The rate without opens, closes, ramp-up and tail: IOR's bandwidth of a run so long that
    /// these do not count.
    SteadyRate,
    /// All bytes / time of the slowest process in I/O calls: Darshan's `agg_perf_by_slowest`.
    SlowestRank,
}

impl Metric {
    /// Its name in tables.
    pub fn words(self) -> &'static str {
        match self {
            Metric::IorBandwidth => "IOR's bandwidth",
            Metric::SteadyRate => "steady rate",
            Metric::SlowestRank => "Darshan's slowest rank",
        }
    }
}

/// A published measurement with which a case is compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Check {
    /// Its id in `published.csv`.
    pub row: String,
    /// The quantity that is compared.
    pub measure: Measure,
    /// Another possible meaning of the measurement: shown, but without a verdict.
    pub alternative: Option<Measure>,
    /// The step of the sweep, by its label, that a gain compares with the first; the last if not given.
    pub at: Option<String>,
    /// The definition of the rate.
    pub metric: Metric,
    /// Keys of the machine file's parameters that decide the simulated value.
    pub decided_by: Vec<String>,
    /// Parts of the comparison, not of the machine file, that were chosen when the row was known.
    pub settled_in_view: Option<String>,
    /// Percent for rates, a factor for saturation, `None` for a limit and for a row with a range of
    /// repeated measurements, which is its tolerance.
    pub tolerance: Option<f64>,
    /// The expected limiting resource.
    pub expect: Option<String>,
}

/// One simulated run or sweep.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    /// Its name.
    pub id: String,
    /// Machine file.
    pub machine: String,
    /// Type of the compute nodes, as the machine file names it; `None`: any.
    pub node_kind: Option<String>,
    /// Compute nodes.
    pub nodes: Vec<u32>,
    /// Processes per node.
    pub ppn: Vec<u32>,
    /// Transfer sizes that replace `TRANSFER` in `ior`.
    #[serde(default)]
    pub transfers: Vec<String>,
    /// File systems; several make a sweep.
    #[serde(default = "burst_buffer")]
    pub file_systems: Vec<CaseFileSystem>,
    /// Targets of a file on the parallel file system; several make a sweep. None: the machine file's.
    #[serde(default)]
    pub stripe_counts: Vec<u32>,
    /// Burst-buffer nodes of the instance; 0 for cases on the parallel file system only.
    #[serde(default)]
    pub burst_buffers: u32,
    /// The part of nodes and burst-buffer nodes that is simulated: one of so many. Rates of all are
    /// multiplied by it.
    #[serde(default = "whole")]
    pub part: u32,
    /// IOR's options.
    pub ior: String,
    /// The differences from the real run.
    pub scaling: String,
    /// Whether it is part of the quick set.
    #[serde(default)]
    pub quick: bool,
    /// The measurements.
    pub check: Vec<Check>,
}

/// The file system of a case.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum CaseFileSystem {
    /// The burst buffer.
    BurstBuffer,
    /// The parallel file system.
    Pfs,
}

/// The file system of a case that names none.
fn burst_buffer() -> Vec<CaseFileSystem> {
    vec![CaseFileSystem::BurstBuffer]
}

/// The part of a case that is simulated in full.
fn whole() -> u32 {
    1
}

/// One run of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Compute nodes.
    pub nodes: u32,
    /// Processes per node.
    pub ppn: u32,
    /// The file system.
    pub file_system: FileSystem,
    /// IOR's options, word by word.
    pub ior: Vec<String>,
    /// The swept value as text: nodes, processes per node, or transfer size.
    pub label: String,
}

impl Case {
    /// The swept quantity.
    pub fn axis(&self) -> &'static str {
        if !self.transfers.is_empty() {
            "transfer"
        } else if self.file_systems.len() > 1 {
            "file system"
        } else if self.stripe_counts.len() > 1 {
            "stripes"
        } else if self.ppn.len() > 1 {
            "processes a node"
        } else {
            "nodes"
        }
    }

    /// The runs of the case, in order.
    pub fn runs(&self) -> Vec<Run> {
        self.stores().into_iter().flat_map(|store| self.runs_on(store)).collect()
    }

    /// The file systems and layouts of the runs, each with its label.
    fn stores(&self) -> Vec<(FileSystem, Option<String>)> {
        let on_pfs =
            |count: Option<u32>| FileSystem::Parallel { stripe_count: count, stripe: None };
        let is_swept = self.stripe_counts.len() > 1;
        let of = |file_system: &CaseFileSystem| match file_system {
            CaseFileSystem::BurstBuffer => vec![(FileSystem::BurstBuffer, None)],
            CaseFileSystem::Pfs if self.stripe_counts.is_empty() => vec![(on_pfs(None), None)],
            CaseFileSystem::Pfs => {
                let counts = self.stripe_counts.iter();
                counts.map(|&n| (on_pfs(Some(n)), is_swept.then(|| n.to_string()))).collect()
            }
        };
        let mut stores: Vec<(FileSystem, Option<String>)> =
            self.file_systems.iter().flat_map(of).collect();
        if self.file_systems.len() > 1 {
            stores.iter_mut().for_each(|(store, label)| *label = Some(store.name().to_string()));
        }
        stores
    }

    /// The runs on a file system.
    fn runs_on(&self, (file_system, store_label): (FileSystem, Option<String>)) -> Vec<Run> {
        let mut runs = Vec::new();
        let transfers: Vec<Option<&String>> = if self.transfers.is_empty() {
            vec![None]
        } else {
            self.transfers.iter().map(Some).collect()
        };
        for nodes in &self.nodes {
            for ppn in &self.ppn {
                for transfer in &transfers {
                    let word = |w: &str| match transfer {
                        Some(t) if w == "TRANSFER" => t.to_string(),
                        _ => w.to_string(),
                    };
                    let label = match (transfer, &store_label) {
                        (Some(t), _) => t.to_string(),
                        (None, Some(store)) => store.clone(),
                        (None, None) if self.ppn.len() > 1 => ppn.to_string(),
                        (None, None) => nodes.to_string(),
                    };
                    let ior = self.ior.split_whitespace().map(word).collect();
                    runs.push(Run { nodes: *nodes, ppn: *ppn, file_system, ior, label });
                }
            }
        }
        runs
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    case: Vec<Case>,
}

/// All cases.
pub fn all() -> Result<Vec<Case>, Failure> {
    toml::from_str::<Document>(TEXT)
        .map(|d| d.case)
        .map_err(|e| Failure::Failed(format!("validation/cases.toml: {e}")))
}

impl Check {
    /// The parts on which the standing of its row depends.
    pub fn basis(&self) -> Basis<'_> {
        Basis {
            row: &self.row,
            decided_by: &self.decided_by,
            settled_in_view: self.settled_in_view.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::published::measurement;
    use forebay_machine_file::machine::Machine;
    use forebay_workload::ior::Ior;

    #[test]
    fn every_case_parses_and_has_its_measurements() {
        let table = crate::validate::published::all().unwrap();
        for case in all().unwrap() {
            let sweeps = [
                case.nodes.len(),
                case.ppn.len(),
                case.transfers.len(),
                case.file_systems.len(),
                case.stripe_counts.len(),
            ];
            assert!(sweeps.iter().filter(|n| **n > 1).count() <= 1, "{}: one sweep", case.id);
            assert!(!case.scaling.is_empty(), "{}", case.id);
            let uses = |file_system| case.file_systems.contains(&file_system);
            let of_pool = uses(CaseFileSystem::BurstBuffer).then_some(&case.burst_buffers);
            let parts = case.nodes.iter().chain(of_pool);
            assert!(parts.copied().all(|n| n % case.part == 0 && n > 0), "{}: part", case.id);
            assert!(case.part == 1 || !uses(CaseFileSystem::Pfs), "{}: part of a PFS", case.id);
            if let Some(kind) = &case.node_kind {
                let machine = Machine::load(&case.machine).unwrap();
                let nodes = machine.nodes_of_type(kind).len();
                assert!(case.nodes.iter().all(|&n| n as usize <= nodes), "{}: {kind}", case.id);
            }
            let text = format!("1/{}", case.part);
            assert!(case.part == 1 || case.scaling.contains(&text), "{}: {text}", case.id);
            for run in case.runs() {
                let tests = Ior::parse(&run.ior).unwrap();
                assert_eq!(tests.len(), 1);
                for check in &case.check {
                    let access = check.measure.access();
                    assert!(if access == "write" { tests[0].write } else { tests[0].read });
                }
            }
            for check in &case.check {
                let row = measurement(&check.row, &table).unwrap();
                if let Some(at) = &check.at {
                    assert!(case.runs().iter().any(|run| run.label == *at), "{}: {at}", check.row);
                }
                match check.measure {
                    Measure::Limit => assert!(check.expect.is_some(), "{}", check.row),
                    _ => {
                        assert!(
                            row.number().is_some()
                                && check.tolerance.is_some() != row.band().is_some(),
                            "{}",
                            check.row
                        );
                    }
                }
                if !row.machine.is_empty() {
                    assert_eq!(row.machine, case.machine, "{}", check.row);
                    let nodes = match uses(CaseFileSystem::BurstBuffer) {
                        true => case.burst_buffers.to_string(),
                        false => row.storage_nodes.clone(),
                    };
                    assert_eq!(row.storage_nodes, nodes, "{}", check.row);
                }
            }
        }
    }

    #[test]
    fn sweep_of_stripes_and_file_systems_sets_the_file_system_of_each_run() {
        let case = all().unwrap().into_iter().find(|c| c.id == "kaust-stripes").unwrap();
        let labels: Vec<String> = case.runs().into_iter().map(|run| run.label).collect();
        assert_eq!(labels, ["1", "2", "4", "5", "10"]);
        assert_eq!(case.axis(), "stripes");
        let case = all().unwrap().into_iter().find(|c| c.id == "kaust-nga").unwrap();
        let runs: Vec<_> = case.runs().into_iter().map(|r| (r.label, r.file_system)).collect();
        let pfs = FileSystem::Parallel { stripe_count: Some(144), stripe: None };
        assert_eq!(
            runs,
            [("pfs".to_string(), pfs), ("burst-buffer".to_string(), FileSystem::BurstBuffer)]
        );
    }

    #[test]
    fn sweep_replaces_the_transfer_size() {
        let case = all().unwrap().into_iter().find(|c| c.id == "transfer-size").unwrap();
        let runs = case.runs();
        assert_eq!(runs[0].label, "4k");
        assert!(runs[0].ior.contains(&"4k".to_string()));
        assert!(runs.iter().all(|r| !r.ior.contains(&"TRANSFER".to_string())));
        assert_eq!(case.axis(), "transfer");
    }
}
