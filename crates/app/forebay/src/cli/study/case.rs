//! A case of a study: one measure and one seed.

use super::super::options::study_failure;
use super::super::output::to_json;
use crate::console::print_stderr;
use crate::run_directory::write_file;
use forebay_console::Failure;
use forebay_machine::results::JobsRun;
use forebay_machine::study::{Progress, SimOptions, StudyJob, WarmUps, simulate_jobs_after};
use forebay_machine_file::machine::Machine;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A case that can be simulated.
pub(super) struct Case {
    pub measure: String,
    pub seed: u64,
    pub machine: Machine,
    pub jobs: Vec<StudyJob>,
    pub options: SimOptions,
    /// Everything that decides its result.
    pub inputs: String,
}

/// The result of a case.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct CaseResult {
    inputs: String,
    pub measure: String,
    pub seed: u64,
    pub run: JobsRun,
}

impl Case {
    /// Its file. Measures whose names differ only in other characters than letters and digits have
    /// files of their own.
    fn path(&self, out: &Path) -> PathBuf {
        let (name, seed) = (&self.measure, self.seed);
        let safe: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        match safe == *name {
            true => out.join(format!("case-{safe}-seed{seed}.json")),
            false => {
                let sum = crc32c::crc32c(name.as_bytes());
                out.join(format!("case-{safe}-{sum:08x}-seed{seed}.json"))
            }
        }
    }

    /// Its result in the directory, if that has one of the same inputs; else it is simulated.
    pub fn result(
        &self,
        out: &Path,
        warm_ups: &WarmUps,
        progress: Progress<'_>,
    ) -> Result<CaseResult, Failure> {
        let path = self.path(out);
        let known = std::fs::read_to_string(&path).ok();
        let known = known.and_then(|text| serde_json::from_str::<CaseResult>(&text).ok());
        if let Some(known) = known.filter(|known| known.inputs == self.inputs) {
            print_stderr(format_args!("{}, seed {}: done before", self.measure, self.seed));
            return Ok(known);
        }
        let Case { machine, jobs, options, .. } = self;
        let run = simulate_jobs_after(warm_ups, machine, jobs, options, progress)
            .map_err(|error| study_failure(&error))?;
        let inputs = self.inputs.clone();
        let result = CaseResult { inputs, measure: self.measure.clone(), seed: self.seed, run };
        // A result is there as a whole or not at all.
        let part = path.with_extension("part");
        write_file(&part, to_json(&result)?)?;
        std::fs::rename(&part, &path)
            .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
        print_stderr(format_args!("{}, seed {}: done", self.measure, self.seed));
        Ok(result)
    }
}
