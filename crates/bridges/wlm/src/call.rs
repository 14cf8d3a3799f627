//! Calls of a batch system, and the replies to them.

use std::path::PathBuf;

use forebay_control::controller::ControlStatus;
use forebay_control::messages::StageProgress;
use forebay_job_script::{AccessMode, Capacity};
use forebay_units::Bytes;
use serde::{Deserialize, Deserializer, Serialize};

use crate::script::ScriptReport;

/// A call. The user who makes it must be root or the pool's operator, or make it for a job of
/// their own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "function", rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    /// Check the directives of a script, and report what they request.
    Validate {
        /// The script.
        script: PathBuf,
    },
    /// Report all objects of the pool.
    Show {},
    /// Allocate what a job's script requests. Returns when the job's instance can be used.
    Setup {
        /// Job id.
        job: String,
        /// User id of the job.
        user: u32,
        /// Group id; that of the user if absent.
        #[serde(default)]
        group: Option<u32>,
        /// The script.
        script: PathBuf,
        /// Name of the pool, if the script names none.
        #[serde(default)]
        pool: Option<String>,
        /// The account for which the job's instance counts.
        #[serde(default)]
        account: Option<String>,
        /// Name of the batch system.
        #[serde(default)]
        caller: Option<String>,
    },
    /// Stage in. Returns when everything is staged.
    StageIn {
        /// Job id.
        job: String,
    },
    /// The capacity of the job's instance.
    Capacity {
        /// Job id.
        job: String,
    },
    /// The environment variables for the job's processes.
    Environment {
        /// Job id.
        job: String,
    },
    /// Mount on compute nodes. Returns when all have mounted.
    Mount {
        /// Job id.
        job: String,
        /// Host names of the compute nodes.
        hosts: Vec<String>,
    },
    /// Unmount on all compute nodes. Returns when all have unmounted.
    Unmount {
        /// Job id.
        job: String,
    },
    /// Stage out. Returns when everything is durable at its destination.
    StageOut {
        /// Job id.
        job: String,
    },
    /// Remove a job's instance. Results that are not staged out are staged out first; if that
    /// fails, the job is kept.
    Teardown {
        /// Job id.
        job: String,
        /// Whether to destroy results that are not staged out instead.
        #[serde(default)]
        hurry: bool,
    },
    /// Create a persistent instance.
    CreatePersistent {
        /// Name.
        name: String,
        /// User id of the owner.
        user: u32,
        /// Group id; that of the user if absent.
        #[serde(default)]
        group: Option<u32>,
        /// Capacity, such as `100GiB`.
        #[serde(deserialize_with = "capacity")]
        capacity: Capacity,
        /// Access modes.
        #[serde(default = "striped")]
        access: Vec<AccessMode>,
        /// Name of the pool.
        #[serde(default)]
        pool: Option<String>,
        /// The account for which it counts.
        #[serde(default)]
        account: Option<String>,
        /// Whether any user may use it.
        #[serde(default)]
        public: bool,
        /// Time until it expires, in seconds; that of the pool if absent.
        #[serde(default)]
        lifetime_seconds: Option<u64>,
    },
    /// Destroy a persistent instance.
    DestroyPersistent {
        /// Name.
        name: String,
        /// Whether to destroy data that is still to be staged out.
        #[serde(default)]
        hurry: bool,
    },
}

fn capacity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Capacity, D::Error> {
    let text = String::deserialize(deserializer)?;
    Capacity::parse(&text).map_err(serde::de::Error::custom)
}

fn striped() -> Vec<AccessMode> {
    vec![AccessMode::Striped]
}

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// Done.
    Done {},
    /// The requests of a script.
    Script(Box<ScriptReport>),
    /// The objects of the pool.
    Pool(Box<ControlStatus>),
    /// Data that was staged.
    Staged(Staging),
    /// Capacity of a job's instance.
    Capacity {
        /// Bytes in its granules.
        bytes: Bytes,
        /// Number of storage nodes.
        nodes: u64,
    },
    /// Environment variables, in the order in which they are to be set.
    Environment {
        /// Names and values.
        variables: serde_json::Map<String, serde_json::Value>,
    },
}

/// Data that a job has staged in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Staging {
    /// Files and links.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl From<StageProgress> for Staging {
    fn from(progress: StageProgress) -> Staging {
        Staging { files: progress.files, bytes: progress.bytes }
    }
}
