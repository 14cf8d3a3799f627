//! The content of directives.

use serde::{Deserialize, Serialize};

use super::capacity::Capacity;
use forebay_units::Bytes;

/// The way in which clients see an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessMode {
    /// One name space for all clients; files are striped over the storage nodes.
    Striped,
    /// One name space for each client.
    Private,
    /// A complete read-only copy on each storage node; each client reads one of them.
    #[serde(rename = "ldbalance")]
    LoadBalanced,
}

impl AccessMode {
    /// Its keyword in a directive.
    pub fn keyword(self) -> &'static str {
        match self {
            AccessMode::Striped => "striped",
            AccessMode::Private => "private",
            AccessMode::LoadBalanced => "ldbalance",
        }
    }
}

/// Criterion by which the storage nodes of an allocation are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizationStrategy {
    /// As many nodes as granules, emptiest nodes first.
    #[default]
    Bandwidth,
    /// Nodes with the fewest other instances first.
    Interference,
    /// Nodes with the fewest bytes written to their flash first.
    Wear,
}

/// Limits and hints of an instance or of one of its access modes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modifiers {
    /// `MFS`: maximum file size.
    pub max_file_size: Option<Bytes>,
    /// `MFC`: maximum number of files.
    pub max_files: Option<u64>,
    /// `client_cache`.
    pub client_cache: Option<bool>,
    /// `optimization_strategy`.
    pub optimization_strategy: Option<OptimizationStrategy>,
    /// `read_ahead` of a cache.
    pub read_ahead: Option<Bytes>,
    /// `modified_threshold` of a cache: amount of dirty data that starts write-back.
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

/// An access mode with its own modifiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// The mode.
    pub mode: AccessMode,
    /// The modifiers in parentheses after it.
    pub modifiers: Modifiers,
}

/// The type of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceType {
    /// A file system of its own.
    Scratch,
    /// A cache of a directory of the parallel file system.
    Cache {
        /// Absolute path of the directory.
        pfs: String,
    },
}

impl InstanceType {
    /// Its keyword in a directive.
    pub fn keyword(&self) -> &'static str {
        match self {
            InstanceType::Scratch => "scratch",
            InstanceType::Cache { .. } => "cache",
        }
    }
}

/// `jobdw`: an instance that lives as long as the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInstance {
    /// Its capacity.
    pub capacity: Capacity,
    /// Its type.
    pub kind: InstanceType,
    /// Its access modes: at least one, without duplicates.
    pub access: Vec<Access>,
    /// The pool; `None` for the default pool.
    pub pool: Option<String>,
    /// Name or number of the group of users who may use it; `None`: only its owner may.
    pub group: Option<String>,
    /// Modifiers of all access modes.
    pub modifiers: Modifiers,
    /// Line of the directive in the script.
    pub line: u32,
}

impl JobInstance {
    /// Whether it has the access mode `mode`.
    pub fn has_access_mode(&self, mode: AccessMode) -> bool {
        self.access.iter().any(|access| access.mode == mode)
    }
}

/// `persistentdw`: the use of a persistent instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentUse {
    /// Its name.
    pub name: String,
    /// Line of the directive in the script.
    pub line: u32,
}

/// `swap`: swap space of every compute node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// Size for each node.
    pub size: Bytes,
    /// The pool; `None` for the default pool.
    pub pool: Option<String>,
    /// Line of the directive in the script.
    pub line: u32,
}

/// `create_persistent`: an instance that outlives the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePersistent {
    /// Its name.
    pub name: String,
    /// Its capacity.
    pub capacity: Capacity,
    /// Its access modes.
    pub access: Vec<Access>,
    /// The pool; `None` for the default pool.
    pub pool: Option<String>,
    /// Name or number of the group of users who may use it; `None`: only its owner may.
    pub group: Option<String>,
    /// Whether the line was Slurm's `#BB` (Slurm refuses the same directive after `#DW`).
    pub for_slurm: bool,
    /// Line of the directive in the script.
    pub line: u32,
}

/// `destroy_persistent`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyPersistent {
    /// Its name.
    pub name: String,
    /// Destroy it even if data waits for its stage-out.
    pub hurry: bool,
    /// Whether the line was Slurm's `#BB`.
    pub for_slurm: bool,
    /// Line of the directive in the script.
    pub line: u32,
}

/// An instance, as a job script names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceRef {
    /// The job's striped name space, `$DW_JOB_STRIPED`.
    Job,
    /// The job's load-balanced name space, `$DW_JOB_LDBALANCE`: read-only, with a copy on each
    /// of the instance's nodes.
    LoadBalanced,
    /// A persistent instance, `$DW_PERSISTENT_STRIPED_name`.
    Persistent(String),
}

impl InstanceRef {
    /// Its variable in job scripts, with the dollar sign.
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
    /// The logs of MPI-IO writes in a directory, applied to their files
    Log,
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
    /// The direction.
    pub direction: Direction,
    /// The kind.
    pub kind: StageKind,
    /// The source; for a list, the path of the list.
    pub source: StagePath,
    /// The destination: of a file its own path, of a list the directory for the files, of logs a
    /// directory that the files to which they are applied are below.
    pub destination: StagePath,
    /// Line of the directive in the script.
    pub line: u32,
}

impl Stage {
    /// The path on the parallel file system; `None` if only the entries of its list name it.
    pub fn pfs_path(&self) -> Option<&str> {
        [&self.source, &self.destination].into_iter().find_map(|path| match path {
            StagePath::Pfs(path) => Some(path.as_str()),
            StagePath::Buffer(_) => None,
        })
    }

    /// The instance that the stage reads or writes; `None` if only the entries of its list name it.
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
