//! Results of the packets of the grid's cases, kept so that an interrupted comparison can go on, and flows can
//! be compared again after a change of their model.

use super::fidelity::GridCase;
use crate::run_directory::write_file;
use forebay_console::Failure;
use forebay_machine::results::{IorPoint, SCHEMA};
use forebay_machine_file::machine::Machine;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A phase of a case, simulated with packets.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PacketPhase {
    /// `write` or `read`.
    pub access: String,
    /// IOR's bandwidth.
    pub gbps: f64,
    /// The limiting resource.
    pub limit: String,
    /// Wall-clock time of the simulation of all phases, seconds.
    pub wall_seconds: f64,
}

impl PacketPhase {
    /// The phases of a simulation.
    pub fn of(point: &IorPoint) -> Vec<PacketPhase> {
        let phase = |phase: &forebay_machine::results::Phase| PacketPhase {
            access: phase.access.clone(),
            gbps: phase.gbps,
            limit: phase.limit.resource.clone(),
            wall_seconds: point.run.wall_seconds,
        };
        point.phases.iter().map(phase).collect()
    }
}

/// The file of a case.
#[derive(Debug, Deserialize, Serialize)]
struct Known {
    /// Everything that decides the result, but the program: of another version, it is not used.
    inputs: String,
    phases: Vec<PacketPhase>,
}

/// A directory with a file for each case.
#[derive(Debug)]
pub struct PacketResults {
    directory: PathBuf,
}

impl PacketResults {
    /// The results in a directory, which is created if there is none.
    ///
    /// # Errors
    /// [`Failure::Input`] if it cannot be created.
    pub fn open(directory: &Path) -> Result<PacketResults, Failure> {
        std::fs::create_dir_all(directory)
            .map_err(|error| Failure::Input(format!("{}: {error}", directory.display())))?;
        Ok(PacketResults { directory: directory.to_owned() })
    }

    /// The result of a case, if it is known.
    pub fn get(&self, case: &GridCase, machine: &Machine, seed: u64) -> Option<Vec<PacketPhase>> {
        let inputs = inputs(case, machine, seed);
        let text = std::fs::read_to_string(self.path(&inputs)).ok()?;
        let known: Known = serde_json::from_str(&text).ok()?;
        (known.inputs == inputs).then_some(known.phases)
    }

    /// Keeps the result of a case.
    ///
    /// # Errors
    /// [`Failure::Failed`] if the file cannot be written.
    pub fn put(
        &self,
        case: &GridCase,
        machine: &Machine,
        seed: u64,
        phases: &[PacketPhase],
    ) -> Result<(), Failure> {
        let inputs = inputs(case, machine, seed);
        let path = self.path(&inputs);
        let known = Known { inputs, phases: phases.to_vec() };
        let text = serde_json::to_string_pretty(&known)
            .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
        // A result is there as a whole or not at all.
        let part = path.with_extension("part");
        write_file(&part, text)?;
        std::fs::rename(&part, &path)
            .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
    }

    fn path(&self, inputs: &str) -> PathBuf {
        self.directory.join(format!("case-{:08x}.json", crc32c::crc32c(inputs.as_bytes())))
    }
}

/// Everything that decides the result of a case.
fn inputs(case: &GridCase, machine: &Machine, seed: u64) -> String {
    let files = machine.files.iter().map(|file| {
        format!("{}: CRC-32C {:08x}\n", file.name, crc32c::crc32c(file.text.as_bytes()))
    });
    let (version, files) = (env!("CARGO_PKG_VERSION"), files.collect::<String>());
    // The use of a case does not decide its result.
    let GridCase { set: _, machine: name, nodes, ppn, ior, stripe_count } = case;
    format!(
        "forebay {version}, schema {SCHEMA}, seed {seed}\n{name} {nodes} {ppn} {stripe_count:?} {ior}\n{files}"
    )
}
