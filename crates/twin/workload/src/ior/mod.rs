//! IOR by its own command line: options, scripts, transfers, steps and output.
//!
//! The semantics are those of IOR 4.1 (<https://github.com/hpc/ior>). [`Ior::parse`] turns
//! arguments into tests; [`Layout`] says for each rank and index which bytes are moved;
//! [`Ior::steps`] lists what all ranks do in turn; [`report`] prints results as IOR prints them.

mod access_pattern;
mod builder;
mod check;
mod command_line;
mod error;
mod options;
pub mod report;
mod script;
mod size;
mod steps;
mod transfer_stream;

pub use access_pattern::{Access, AccessPattern, FileId, NodeOrder, Processes};
pub use error::{AccessPatternError, IorError, OptionLocation};
pub use options::help;
pub use steps::{Action, Step};
pub use transfer_stream::{Transfer, TransferCursor, TransferStream};

use forebay_units::Bytes;
use serde::Serialize;

/// The programming interface through which transfers are made (`-a`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Api {
    /// `open`, `pwrite`, `pread`, `close`.
    #[serde(rename = "POSIX")]
    Posix,
    /// `MPI_File_write_at` and its like, their `_all` forms with `-c`.
    #[serde(rename = "MPIIO")]
    MpiIo,
}

impl Api {
    /// The name as IOR writes it.
    pub fn name(self) -> &'static str {
        match self {
            Api::Posix => "POSIX",
            Api::MpiIo => "MPIIO",
        }
    }
}

/// Whose data a task reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reorder {
    /// What it wrote itself.
    Own,
    /// `-C`: what the task `-Q` nodes further on wrote.
    Constant,
    /// `-Z`: what a random task wrote, at least `-Q` nodes further on. Each task draws by itself,
    /// so some data are read by several tasks and some by none.
    Random,
    /// `-Z -Z`: a random permutation of the tasks; `-Q` plays no part.
    Shuffle,
}

/// When to stop a phase that is not through (`-D`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stonewall {
    /// Seconds after the start of its transfers at which each task stops after the transfer under
    /// way. With `collective`, all tasks stop after the same transfer: when task 0 has passed the
    /// deadline.
    pub seconds: u32,
    /// `-O stoneWallingWearOut=1`: after the deadline every task goes on until it has made as many
    /// transfers as the furthest one had.
    pub wear_out: bool,
}

/// An option that was given and changes nothing in a simulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The option as given.
    pub option: String,
    /// Why it has no effect.
    pub text: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.option, self.text)
    }
}

/// One IOR test, its options checked against each other.
///
/// The fields say which module honours them: the *layout* ([`Layout`]: which bytes each rank
/// moves), the *steps* ([`Ior::steps`]: what happens in which order), or the *simulator*, which
/// alone knows times and costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ior {
    /// Number of the test in the run, from 0.
    pub id: u32,
    /// `-a`: simulator (MPI-IO costs; with `collective`, aggregation).
    pub api: Api,
    /// `-b`, default 1 MiB: contiguous bytes of one task. Layout.
    pub block: Bytes,
    /// `-t`, default 256 KiB: bytes of one operation. Layout.
    pub transfer: Bytes,
    /// `-s`, default 1: how often the pattern of blocks repeats in the file. Layout.
    pub segments: u64,
    /// `-F`: one file per task instead of one for all. Layout.
    pub file_per_process: bool,
    /// `-w`, or neither `-w` nor `-r`: run the write phase. Steps.
    pub write: bool,
    /// `-r`, or neither `-w` nor `-r`: run the read phase. Steps.
    pub read: bool,
    /// `-o`, default `testFile`: path of the file, or several paths joined by `@`, which files of
    /// tasks take in turn. Layout ([`Ior::file_name`]).
    pub test_file: String,
    /// `-i`, default 1: repetitions. Steps.
    pub repetitions: u32,
    /// `-N`: use only the first so many processes. Layout.
    pub tasks: Option<u32>,
    /// `-e`: fsync by each task after its last write, within the timed transfers. Steps.
    pub fsync: bool,
    /// `-Y`: fsync after each write. Simulator.
    pub fsync_per_write: bool,
    /// `-g`: barriers between open, transfers and close. Steps.
    pub barriers: bool,
    /// `-C`, `-Z`: whose data are read. Layout.
    pub reorder: Reorder,
    /// `-Q`, default 1: distance in nodes of `-C` and `-Z`. Layout.
    pub node_offset: u32,
    /// `-X`, default 0: seed of `-Z`, and of `-z` where `--random-offset-seed` is not given. A
    /// negative one gives each repetition another order for `-Z`. Layout.
    pub reorder_seed: Option<i32>,
    /// `-z`: transfers of a segment in shuffled order. Layout.
    pub random_offsets: bool,
    /// `--random-offset-seed`: seed of `-z`. Layout.
    pub offset_seed: Option<i32>,
    /// `-c`: collective transfers, in two phases: through aggregators, which exchange data with the
    /// tasks and access the file. Of effect with [`Api::MpiIo`] and one shared file. Simulator.
    pub collective: bool,
    /// `-k`: leave the files. Steps.
    pub keep_file: bool,
    /// `-D`, `-O stoneWallingWearOut=1`. Simulator. In the read phase after a write phase of the
    /// same repetition each task also stops after as many transfers as it wrote itself (with
    /// wear-out, that is as many as the furthest task wrote).
    pub stonewall: Option<Stonewall>,
    /// `-O stoneWallingWearOutIterations=N`: end each phase after so many transfers per task. Layout.
    pub max_transfers: Option<u64>,
    /// `-d`: seconds to wait before each phase. Steps.
    pub delay_seconds: u32,
    /// `-u`: with `-F`, each file in a directory of its own. Layout ([`Ior::file_name`]); steps
    /// (the directory has to be made).
    pub unique_directory: bool,
    /// `-E`: do not remove files before writing them. Steps.
    pub use_existing: bool,
    /// `-m`: a new file (or files) for each repetition. Layout.
    pub multi_file: bool,
    /// `-T`: minutes from the start of the test after which no further phase begins. Simulator, at
    /// [`Action::Begin`].
    pub max_minutes: Option<u32>,
    /// `--posix.odirect`: past the client's cache. Simulator.
    pub direct_io: bool,
    /// `-A`, default 0: printed in the summary.
    pub reference_number: i32,
    /// `-v`, repeated: printed among the options; changes nothing else.
    pub verbosity: u32,
    /// Options given that have no effect on the simulation, to be told to the user.
    pub notes: Vec<Note>,
}

impl Ior {
    /// Reads an IOR command line (without the program's name). Several tests come of a script
    /// (`-f`); otherwise it is one.
    ///
    /// # Errors
    /// The first thing wrong, with its place and what would be right; [`IorError::Help`] for `-h`.
    pub fn parse(arguments: &[String]) -> Result<Vec<Ior>, IorError> {
        command_line::parse(arguments)
    }
}
