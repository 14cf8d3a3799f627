//! The I/O of a job.

use crate::error::PlanError;
use crate::work::Work;
use forebay_job_script::AccessMode;
use forebay_units::{Bytes, human};
use forebay_workload::darshan::FileSet;
use forebay_workload::ior::Access;

/// A job's I/O and its circumstances.
#[derive(Clone, Debug)]
pub struct Job {
    /// Compute nodes.
    pub nodes: u32,
    /// Processes per node.
    pub ppn: u32,
    /// The I/O.
    pub work: Work,
    /// Seconds of computation between two repetitions of the I/O; `None`: it is done once.
    pub interval: Option<f64>,
    /// Seconds that the job runs.
    pub run_time: Option<f64>,
    /// Complete sets of the files that exist at a time; more if the test itself keeps more.
    pub sets: u32,
    /// Bytes that are staged in before the job.
    pub stage_in: Bytes,
    /// Files of the stage-in; `None`: not known, many.
    pub stage_in_files: Option<u64>,
    /// Bytes that are staged out after the job; `None`: one set of the files that are written.
    pub stage_out: Option<Bytes>,
    /// Access modes that the job's script requests; none: no script says.
    pub access_modes: Vec<AccessMode>,
    /// The pool that the job's script names; `None`: the default pool.
    pub pool: Option<String>,
}

impl Job {
    /// A job that does its I/O once, stages nothing in, and has no script.
    pub fn new(nodes: u32, ppn: u32, work: Work) -> Job {
        Job {
            nodes,
            ppn,
            work,
            interval: None,
            run_time: None,
            sets: 1,
            stage_in: Bytes(0),
            stage_in_files: None,
            stage_out: None,
            access_modes: Vec::new(),
            pool: None,
        }
    }

    /// Nodes and processes per node.
    pub(crate) fn distribution(&self) -> (u32, u32) {
        (self.nodes, self.ppn)
    }

    /// One set of the files.
    pub(crate) fn files(&self) -> Result<FileSet, PlanError> {
        self.work.files(self.distribution())
    }

    /// Complete sets of the files that exist at a time: those of the job, or those that the test itself keeps if they
    /// are more.
    pub(crate) fn sets(&self) -> u32 {
        let of_test = match &self.work {
            Work::Test(test) => test.sets_of_files(),
            Work::Log(_) => 1,
        };
        self.sets.max(of_test)
    }

    /// Bytes that an instance has to hold: the files with what is staged in, or what is staged out if that
    /// is more.
    ///
    /// # Errors
    /// The test does not fit the processes, or the files are too large for any machine.
    pub fn needed_bytes(&self) -> Result<u64, PlanError> {
        let all =
            u128::from(self.files()?.bytes) * u128::from(self.sets()) + u128::from(self.stage_in.0);
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
            None if self.work.has(Access::Write) => Ok(self.files()?.bytes),
            None => Ok(0),
        }
    }

    /// Files of the stage-out; `None`: not known, many.
    pub(crate) fn staged_out_files(&self) -> Result<Option<u64>, PlanError> {
        Ok(match self.stage_out {
            Some(_) => None,
            None => Some(self.files()?.files),
        })
    }

    /// Whether an access mode suits the I/O.
    fn suits(&self, mode: AccessMode) -> bool {
        match mode {
            AccessMode::Striped => true,
            AccessMode::Private => self.is_private(),
            // Its files are staged in, and can only be read.
            AccessMode::LoadBalanced => !self.work.has(Access::Write),
        }
    }

    /// The access modes that suit the I/O: of those that the script requests, if it does, else striped and
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
            AccessMode::Striped => unreachable!("striped suits all I/O"),
            AccessMode::Private => {
                "the script's access_mode=private does not suit: compute nodes share files, read those of \
                 others or need staged data"
            }
            AccessMode::LoadBalanced => {
                "the script's access_mode=ldbalance does not suit: its files can only be read, and the job \
                 writes"
            }
        })
    }

    /// Whether each compute node accesses only files that it wrote itself, so that each can have a name
    /// space of its own.
    pub(crate) fn is_private(&self) -> bool {
        self.work.is_private() && self.stage_in.0 == 0
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
