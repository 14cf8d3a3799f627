//! What directives say, as values.

use serde::{Deserialize, Serialize};

use super::capacity::Capacity;
use forebay_units::Bytes;

/// How the clients of an instance see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessMode {
    /// One name space for all clients, files striped over the servers.
    Striped,
    /// One name space for each client.
    Private,
    /// Read-only copies, a whole one on each server; each client reads from one of them.
    #[serde(rename = "ldbalance")]
    LoadBalanced,
}

impl AccessMode {
    /// The word in a directive.
    pub fn keyword(self) -> &'static str {
        match self {
            AccessMode::Striped => "striped",
            AccessMode::Private => "private",
            AccessMode::LoadBalanced => "ldbalance",
        }
    }
}

/// What an allocation is chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizationStrategy {
    /// Over many servers.
    Bandwidth,
    /// On servers that few others use.
    Interference,
    /// On the servers whose flash is least worn.
    Wear,
}

/// Limits and hints of an instance or of one of its access modes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modifiers {
    /// `MFS`: largest file.
    pub max_file_size: Option<Bytes>,
    /// `MFC`: most files.
    pub max_files: Option<u64>,
    /// `client_cache`.
    pub client_cache: Option<bool>,
    /// `optimization_strategy`.
    pub optimization_strategy: Option<OptimizationStrategy>,
    /// `read_ahead` of a cache.
    pub read_ahead: Option<Bytes>,
    /// `modified_threshold` of a cache: dirty data that starts write-back.
    pub modified_threshold: Option<Bytes>,
    /// `stripe_size` of a cache.
    pub stripe_size: Option<Bytes>,
    /// `stripe_count` of a cache.
    pub stripe_count: Option<u32>,
    /// `sync_on_close` of a cache.
    pub sync_on_close: Option<bool>,
    /// `sync_to_pfs` of a cache.
    pub sync_to_pfs: Option<bool>,
}

/// An access mode with what holds for it alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The mode.
    pub mode: AccessMode,
    /// What stands in parentheses behind it.
    pub modifiers: Modifiers,
}

/// What an instance is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceType {
    /// A file system of its own.
    Scratch,
    /// A cache before a directory of the parallel file system.
    Cache {
        /// That directory, absolute.
        pfs: String,
    },
}

/// `jobdw`: an instance that lives as long as the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInstance {
    /// How much.
    pub capacity: Capacity,
    /// What for.
    pub kind: InstanceType,
    /// How it is seen: distinct modes, at least one.
    pub access: Vec<Access>,
    /// From which pool; the default pool if none is named.
    pub pool: Option<String>,
    /// What holds for all modes.
    pub modifiers: Modifiers,
    /// Line of the directive.
    pub line: u32,
}

impl JobInstance {
    /// Whether `mode` is among its access modes.
    pub fn has_access_mode(&self, mode: AccessMode) -> bool {
        self.access.iter().any(|access| access.mode == mode)
    }
}

/// `persistentdw`: the use of a persistent instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentUse {
    /// Its name.
    pub name: String,
    /// Line of the directive.
    pub line: u32,
}

/// `swap`: swap space of every compute node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// How much for each node.
    pub size: Bytes,
    /// From which pool.
    pub pool: Option<String>,
    /// Line of the directive.
    pub line: u32,
}

/// `create_persistent`: an instance that outlives the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePersistent {
    /// Its name.
    pub name: String,
    /// How much.
    pub capacity: Capacity,
    /// How it is seen.
    pub access: Vec<Access>,
    /// From which pool.
    pub pool: Option<String>,
    /// Whether the line was Slurm's `#BB` (Slurm refuses the same directive after `#DW`).
    pub for_slurm: bool,
    /// Line of the directive.
    pub line: u32,
}

/// `destroy_persistent`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyPersistent {
    /// Its name.
    pub name: String,
    /// Destroy it even if data in it still waits for its stage-out.
    pub hurry: bool,
    /// Whether the line was Slurm's `#BB`.
    pub for_slurm: bool,
    /// Line of the directive.
    pub line: u32,
}

/// Which instance a path is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceRef {
    /// The job's striped name space, `$DW_JOB_STRIPED`.
    Job,
    /// The job's load-balanced name space, `$DW_JOB_LDBALANCE`: read-only to the job, and copied
    /// to each of the instance's nodes.
    LoadBalanced,
    /// A persistent instance's, `$DW_PERSISTENT_STRIPED_name`.
    Persistent(String),
}

impl InstanceRef {
    /// The variable by which scripts name it, with its dollar sign.
    pub fn variable(&self) -> String {
        match self {
            InstanceRef::Job => "$DW_JOB_STRIPED".to_owned(),
            InstanceRef::LoadBalanced => "$DW_JOB_LDBALANCE".to_owned(),
            InstanceRef::Persistent(name) => format!("$DW_PERSISTENT_STRIPED_{name}"),
        }
    }
}

/// A path inside an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BufferPath {
    /// The instance.
    pub instance: InstanceRef,
    /// Relative to the instance's root: no leading or trailing `/`, no `.`, `..` or empty
    /// component; empty for the root itself.
    pub path: String,
}

/// One end of a stage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StagePath {
    /// An absolute path of the parallel file system.
    Pfs(String),
    /// A path inside an instance.
    Buffer(BufferPath),
}

/// The kind of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum StageKind {
    /// One file
    File,
    /// A directory tree
    Directory,
    /// The files named in a list, one per line
    List,
}

/// The direction of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the parallel file system into the instance
    In,
    /// From the instance to the parallel file system
    Out,
}

impl Direction {
    /// `in` or `out`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }
}

/// `stage_in` or `stage_out`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Which way.
    pub direction: Direction,
    /// What.
    pub kind: StageKind,
    /// From where. For a list: where the list is.
    pub source: StagePath,
    /// To where. For a file the file's own path, for a list the directory that gets the files.
    pub destination: StagePath,
    /// Line of the directive.
    pub line: u32,
}

impl Stage {
    /// The instance the stage reads or writes.
    pub fn instance(&self) -> Option<&InstanceRef> {
        let end = match self.direction {
            Direction::In => &self.destination,
            Direction::Out => &self.source,
        };
        match (end, &self.source) {
            (StagePath::Buffer(path), _) | (StagePath::Pfs(_), StagePath::Buffer(path)) => {
                Some(&path.instance)
            }
            _ => None,
        }
    }
}
