//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use forebay_job_script::Capacity;
use forebay_units::Bytes;
use forebay_wlm::{ErrorKind, WlmError};

/// A function of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Function {
    /// Validate the directives of a script
    JobProcess,
    /// Create the session and the instance of a job
    Setup,
    /// Stage in
    DataIn,
    /// Capacity of a job's instance, as JSON
    RealSize,
    /// Write the environment variables of a job into a file
    Paths,
    /// Mount on the job's compute nodes
    PreRun,
    /// Unmount
    PostRun,
    /// Stage out
    DataOut,
    /// End a job or destroy a persistent instance
    Teardown,
    /// Create a persistent instance
    CreatePersistent,
    /// Remove the unused instances of jobs that have ended in Slurm
    Reclaim,
    /// Pools, as JSON
    #[value(name = "pools", alias = "show_pools")]
    ShowPools,
    /// Instances, as JSON
    ShowInstances,
    /// Sessions, as JSON
    ShowSessions,
    /// Configurations, as JSON
    ShowConfigurations,
}

#[derive(Debug, Parser)]
#[command(
    name = "dw_wlm_cli",
    version,
    about = "DataWarp's interface for batch systems, on a Forebay pool",
    after_help = "The pool is that of FOREBAY_POOL, or of /etc/forebay/pool.toml. Slurm's plugin \
                  burst_buffer/datawarp runs this command: GetSysState=/usr/bin/dw_wlm_cli in \
                  burst_buffer.conf."
)]
pub struct Arguments {
    /// The function to carry out
    #[arg(short, long, value_enum)]
    pub function: Function,
    /// Job id, or name of a persistent instance
    #[arg(short, long)]
    token: Option<String>,
    /// The job's script
    #[arg(short, long, value_name = "FILE")]
    job: Option<PathBuf>,
    /// Name of the batch system
    #[arg(short, long)]
    pub caller: Option<String>,
    /// User id
    #[arg(short, long, value_name = "UID")]
    user: Option<u32>,
    /// Group id
    #[arg(short, long, value_name = "GID")]
    pub groupid: Option<u32>,
    /// Account for which the instance counts [default: that of the job, if the caller is SLURM]
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Pool and size
    #[arg(short = 'C', long, value_name = "POOL:SIZE")]
    capacity: Option<String>,
    /// Access modes of a persistent instance
    #[arg(short, long, value_name = "MODE", default_value = "striped")]
    access: String,
    /// Type of a persistent instance
    #[arg(short = 'T', long = "type", value_name = "TYPE", default_value = "scratch")]
    kind: String,
    /// File for the environment variables
    #[arg(long, value_name = "FILE")]
    pathfile: Option<PathBuf>,
    /// File with the names of the compute nodes
    #[arg(long, value_name = "FILE")]
    pub nodehostnamefile: Option<PathBuf>,
    /// File with the ids of the compute nodes, as ranges
    #[arg(long, value_name = "FILE", conflicts_with = "nodehostnamefile")]
    pub nidlistfile: Option<PathBuf>,
    /// Destroy results that are not staged out
    #[arg(long)]
    pub hurry: bool,
}

impl Arguments {
    fn required<T: Clone>(&self, value: &Option<T>, option: &str) -> Result<T, WlmError> {
        value.clone().ok_or_else(|| {
            let function = self.function.to_possible_value();
            let function = function.as_ref().map_or("", |value| value.get_name());
            WlmError::new(ErrorKind::Invalid, format!("function {function} needs {option}"))
        })
    }

    /// Job id, or name of a persistent instance.
    pub fn token(&self) -> Result<String, WlmError> {
        self.required(&self.token, "--token")
    }

    /// The job's script.
    pub fn job(&self) -> Result<PathBuf, WlmError> {
        self.required(&self.job, "--job")
    }

    /// User id.
    pub fn user(&self) -> Result<u32, WlmError> {
        self.required(&self.user, "--user")
    }

    /// File for the environment variables.
    pub fn pathfile(&self) -> Result<PathBuf, WlmError> {
        self.required(&self.pathfile, "--pathfile")
    }

    /// The pool in `--capacity`.
    pub fn pool(&self) -> Option<String> {
        let (pool, _) = self.capacity.as_deref()?.split_once(':')?;
        (!pool.is_empty() && pool != "(null)").then(|| pool.to_owned())
    }

    /// The size in `--capacity`; a number without a unit is in bytes.
    pub fn requested_capacity(&self) -> Result<Capacity, WlmError> {
        let text = self.required(&self.capacity, "--capacity")?;
        let size = text.rsplit_once(':').map_or(text.as_str(), |(_, size)| size);
        if let Ok(bytes) = size.parse() {
            return Ok(Capacity::Bytes(Bytes(bytes)));
        }
        Capacity::parse(size).map_err(|error| WlmError::new(ErrorKind::Invalid, error))
    }

    /// The access modes of an instance of type scratch.
    ///
    /// # Errors
    /// `--type` is another one.
    pub fn scratch_access(&self) -> Result<&str, WlmError> {
        if self.kind == "scratch" {
            return Ok(&self.access);
        }
        let text = format!("type={} is not supported; write type=scratch", self.kind);
        Err(WlmError::new(ErrorKind::Invalid, text))
    }
}
