//! The I/O of a job.

use crate::error::PlanError;
use forebay_job_script::AccessMode;
use forebay_units::{Bytes, human};
use forebay_workload::ior::{AccessPattern, Ior, Processes, Reorder};

/// A job's I/O and its circumstances.
#[derive(Clone, Debug)]
pub struct Job {
    /// Compute nodes.
    pub nodes: u32,
    /// Processes per node.
    pub ppn: u32,
    /// The test that stands for the I/O.
    pub test: Ior,
    /// Seconds of computation between two repetitions of the test; `None`: it is done once.
    pub interval: Option<f64>,
    /// Seconds that the job runs.
    pub run_time: Option<f64>,
    /// Complete sets of the test's files that exist at a time.
    pub sets: u32,
    /// Bytes that are staged in before the job.
    pub stage_in: Bytes,
    /// Files of the stage-in; `None`: not known, many.
    pub stage_in_files: Option<u64>,
    /// Bytes that are staged out after the job; `None`: one set of the files that the test writes.
    pub stage_out: Option<Bytes>,
    /// Access modes that the job's script requests; none: no script says.
    pub access_modes: Vec<AccessMode>,
}

impl Job {
    /// The test's access pattern.
    pub(crate) fn pattern(&self) -> Result<AccessPattern, PlanError> {
        let too_many = || {
            let (nodes, ppn) = (self.nodes, self.ppn);
            PlanError::Job(format!(
                "{nodes} nodes with {ppn} processes each are too many processes"
            ))
        };
        let count = self.nodes.checked_mul(self.ppn).ok_or_else(too_many)?;
        let processes = Processes { count, per_node: self.ppn, seed: 1 };
        AccessPattern::new(&self.test, processes).map_err(|e| PlanError::Job(e.to_string()))
    }

    /// Bytes of one set of the test's files.
    pub(crate) fn set_bytes(&self) -> Result<u64, PlanError> {
        Ok(self.pattern()?.total_bytes())
    }

    /// Bytes that an instance has to hold: the files with what is staged in, or what is staged out if that
    /// is more.
    ///
    /// # Errors
    /// The test does not fit the processes, or the files are too large for any machine.
    pub fn needed_bytes(&self) -> Result<u64, PlanError> {
        let all = u128::from(self.set_bytes()?) * u128::from(self.sets.max(1))
            + u128::from(self.stage_in.0);
        let all = all.max(u128::from(self.staged_out_bytes()?));
        u64::try_from(all)
            .ok()
            .filter(|all| *all <= 1 << 60)
            .ok_or_else(|| PlanError::Job(format!("the job's files have {all} bytes: too many")))
    }

    /// Bytes that are staged out.
    pub(crate) fn staged_out_bytes(&self) -> Result<u64, PlanError> {
        match self.stage_out {
            Some(bytes) => Ok(bytes.0),
            None if self.test.write => self.set_bytes(),
            None => Ok(0),
        }
    }

    /// Files of the stage-out; `None`: not known, many.
    pub(crate) fn staged_out_files(&self) -> Result<Option<u64>, PlanError> {
        Ok(match self.stage_out {
            Some(_) => None,
            None => Some(self.pattern()?.files().into()),
        })
    }

    /// Whether an access mode suits the test.
    fn suits(&self, mode: AccessMode) -> bool {
        match mode {
            AccessMode::Striped => true,
            AccessMode::Private => self.is_private(),
            // Its files are staged in, and can only be read.
            AccessMode::LoadBalanced => !self.test.write,
        }
    }

    /// The access modes that suit the test: of those that the script requests, if it does, else striped and
    /// private. Striped if no other does.
    pub(crate) fn suitable_modes(&self) -> Vec<AccessMode> {
        let default = [AccessMode::Striped, AccessMode::Private];
        let asked = if self.access_modes.is_empty() { &default } else { &self.access_modes[..] };
        let mut modes: Vec<AccessMode> =
            asked.iter().copied().filter(|mode| self.suits(*mode)).collect();
        if modes.is_empty() {
            modes.push(AccessMode::Striped);
        }
        modes
    }

    /// The access modes to request: those of the script that suit, or striped.
    pub(crate) fn advised_modes(&self) -> Vec<AccessMode> {
        match self.access_modes.is_empty() {
            true => vec![AccessMode::Striped],
            false => self.suitable_modes(),
        }
    }

    /// The reason why the script's access modes are not advised as they are, if they are not.
    pub(crate) fn unsuitable_modes(&self) -> Option<&'static str> {
        let unsuitable = self.access_modes.iter().find(|mode| !self.suits(**mode))?;
        Some(match unsuitable {
            AccessMode::Striped => unreachable!("striped suits each test"),
            AccessMode::Private => {
                "the script's access_mode=private does not suit: compute nodes share files, read those of \
                 others or need staged data"
            }
            AccessMode::LoadBalanced => {
                "the script's access_mode=ldbalance does not suit: its files can only be read, and the test \
                 writes"
            }
        })
    }

    /// Whether each compute node accesses only files that it wrote itself, so that each can have a name
    /// space of its own.
    pub(crate) fn is_private(&self) -> bool {
        let reads_own = !self.test.read || self.test.reorder == Reorder::Own;
        self.test.file_per_process && reads_own && self.stage_in.0 == 0
    }

    /// The share of the run that I/O of `seconds` takes.
    pub(crate) fn share(&self, seconds: f64) -> Option<f64> {
        match (self.interval, self.run_time) {
            (Some(interval), _) => Some(seconds / (interval + seconds)),
            (None, Some(run)) => Some(seconds / run),
            (None, None) => None,
        }
    }

    /// The warning that I/O of `seconds` takes longer than the whole run, in which it happens once.
    pub(crate) fn too_long(&self, seconds: f64) -> Option<String> {
        let run = self.run_time.filter(|run| self.interval.is_none() && seconds >= *run)?;
        Some(format!(
            "I/O of {} does not end within the run of {} (--run-time, or the script's --time)",
            human::seconds(seconds),
            human::seconds(run)
        ))
    }
}

/// IOR's arguments for a checkpoint of `size` by `processes` processes: each writes a file of its own and
/// syncs it. The share of a process is rounded up to whole transfers of 1 MiB.
///
/// # Errors
/// A size of zero, or no processes.
pub fn checkpoint_arguments(size: Bytes, processes: u64) -> Result<Vec<String>, PlanError> {
    if size.0 == 0 || processes == 0 {
        return Err(PlanError::Job("a checkpoint of no bytes: give its size, as 2TiB".into()));
    }
    let mib = size.0.div_ceil(processes).div_ceil(1 << 20);
    let words = format!("-a POSIX -F -w -e -t 1m -b {mib}m");
    Ok(words.split(' ').map(str::to_owned).collect())
}
