//! Requests of a job script, for its user and for the batch system.

use std::path::Path;

use forebay_control::controller::{
    ControlStatus, InstanceSpec, PlannedAllocation, Setup, mount_variable,
};
use forebay_job::{RunError, read_directives, read_script, script_warnings, setup_of};
use forebay_job_script::{
    AccessMode, BufferPath, Capacity, InstanceType, JobScript, Stage, StageKind, StagePath,
};
use serde::Serialize;

use crate::error::{ErrorKind, WlmError};

/// Requests of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScriptReport {
    /// The job's own instance.
    pub instance: Option<RequestedInstance>,
    /// Names of the persistent instances that it uses.
    pub persistent: Vec<String>,
    /// Persistent instances that it creates.
    pub creates: Vec<RequestedInstance>,
    /// Names of the persistent instances that it destroys.
    pub destroys: Vec<String>,
    /// Stages, in the script's order.
    pub stages: Vec<RequestedStage>,
    /// Names of the environment variables that the job gets; those of a persistent instance depend on
    /// its access modes, which the pool knows.
    pub variables: Vec<String>,
    /// Problems that do not stop the job.
    pub warnings: Vec<String>,
}

/// A requested instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestedInstance {
    /// Line of the directive.
    pub line: u32,
    /// Name, if it is persistent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Requested capacity, as in a directive.
    pub requested: String,
    /// Access modes.
    pub access: Vec<AccessMode>,
    /// Name of the pool, if the directive names one.
    pub pool: Option<String>,
    /// Allocation that it would get; absent if the controller was not asked.
    #[serde(flatten)]
    pub allocation: Option<PlannedAllocation>,
    #[serde(skip)]
    pub(crate) spec: InstanceSpec,
}

/// A requested stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RequestedStage {
    /// Line of the directive.
    pub line: u32,
    /// `in` or `out`.
    pub direction: &'static str,
    /// File, directory or list.
    pub kind: StageKind,
    /// Source, with the variable of its instance if it is in the buffer.
    pub source: String,
    /// Destination, likewise.
    pub destination: String,
}

/// Everything that a script requests.
#[derive(Clone, Debug)]
pub struct Requested {
    /// Its directives.
    pub directives: JobScript,
    /// The setup of its job.
    pub setup: Setup,
}

impl Requested {
    /// Reads a script in which the batch system has replaced the `%` symbols.
    ///
    /// # Errors
    /// The script cannot be read, is not valid, or requests something that is not supported.
    /// Messages do not name the file: it is a copy of the batch system's, unknown to the user.
    pub fn read(script: &Path) -> Result<Requested, WlmError> {
        Requested::of(read_directives(script, None))
    }

    /// Reads a script that is not submitted yet, with the `%` symbols replaced as in a job that is submitted
    /// here; `job` stands for its id.
    ///
    /// # Errors
    /// As [`read`](Requested::read).
    pub fn read_before_submission(script: &Path, job: &str) -> Result<Requested, WlmError> {
        Requested::of(read_script(script, job))
    }

    fn of(directives: Result<JobScript, RunError>) -> Result<Requested, WlmError> {
        let directives = directives.map_err(|error| {
            let message = match error {
                RunError::Script(_, errors) => errors.to_string(),
                RunError::Unsupported(_, reason) => reason,
                RunError::Unreadable(_, error) => format!("the script cannot be read: {error}"),
                other => other.to_string(),
            };
            WlmError::new(ErrorKind::Invalid, message)
        })?;
        let setup = setup_of(&directives)
            .map_err(|error| WlmError::new(ErrorKind::Invalid, error.to_string()))?;
        Ok(Requested { directives, setup })
    }
}

/// Reports the requests of a script.
pub fn report_script(requested: &Requested) -> ScriptReport {
    let Requested { directives, setup } = requested;
    let line = directives.job().map_or(0, |job| job.line);
    let instance = setup.instance.clone().map(|spec| requested_instance(line, None, spec));
    let creates = directives.creates.iter().map(|created| {
        let access = created.access.clone();
        let spec = InstanceSpec::scratch(created.capacity, access, created.pool.clone());
        requested_instance(created.line, Some(created.name.clone()), spec)
    });
    let own = setup.instance.iter().flat_map(|spec| {
        spec.access.iter().map(|access| mount_variable(&spec.kind, access.mode, None))
    });
    ScriptReport {
        instance,
        persistent: setup.persistents.clone(),
        creates: creates.collect(),
        destroys: directives.destroys.iter().map(|one| one.name.clone()).collect(),
        stages: setup.stages.iter().map(requested_stage).collect(),
        variables: own.collect(),
        warnings: script_warnings(directives).collect(),
    }
}

impl ScriptReport {
    /// Adds the variables of the persistent instances that the script uses, and a warning for each
    /// that does not exist now.
    pub(crate) fn add_persistent_instances(&mut self, status: &ControlStatus) {
        for name in &self.persistent {
            match status.persistent_instance(name) {
                Some(instance) => self.variables.extend(instance.modes.iter().map(|mode| {
                    mount_variable(&InstanceType::Scratch, *mode, Some(name))
                })),
                None => self.warnings.push(format!(
                    "there is no persistent instance `{name}` now: the job fails unless another job creates it first"
                )),
            }
        }
    }
}

fn requested_instance(line: u32, name: Option<String>, spec: InstanceSpec) -> RequestedInstance {
    RequestedInstance {
        line,
        name,
        requested: match spec.capacity {
            Capacity::Bytes(bytes) => bytes.to_string(),
            Capacity::Nodes(count) => format!("{count}nodes"),
        },
        access: spec.access.iter().map(|access| access.mode).collect(),
        pool: spec.pool.clone(),
        allocation: None,
        spec,
    }
}

fn requested_stage(stage: &Stage) -> RequestedStage {
    let text = |path: &StagePath| match path {
        StagePath::Pfs(path) => path.clone(),
        StagePath::Buffer(BufferPath { instance, path }) => {
            format!("{}/{path}", instance.variable())
        }
    };
    RequestedStage {
        line: stage.line,
        direction: stage.direction.name(),
        kind: stage.kind,
        source: text(&stage.source),
        destination: text(&stage.destination),
    }
}
