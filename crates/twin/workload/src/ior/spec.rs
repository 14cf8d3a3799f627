//! The options of an IOR test.

use forebay_units::Bytes;

/// The programming interface through which transfers are made (`-a`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `open`, `pwrite`, `pread`, `close`.
    Posix,
    /// `MPI_File_write_at` etc., with `-c` their `_all` forms.
    MpiIo,
}

impl Api {
    /// IOR's name.
    pub fn name(self) -> &'static str {
        match self {
            Api::Posix => "POSIX",
            Api::MpiIo => "MPIIO",
        }
    }
}

/// The task whose data a task reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reorder {
    /// The task itself.
    Own,
    /// `-C`: the task `-Q` nodes further on.
    Constant,
    /// `-Z`: a random task at least `-Q` nodes further on. Each task draws independently, so some
    /// data are read by several tasks and some by none.
    Random,
    /// `-Z -Z`: a random permutation of the tasks; `-Q` has no effect.
    Shuffle,
}

/// The deadline of a phase (`-D`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stonewall {
    /// Seconds after the start of its transfers at which each task stops, after the transfer in
    /// progress. With `collective`, all tasks stop after the same transfer: when task 0 has passed
    /// the deadline.
    pub seconds: u32,
    /// `-O stoneWallingWearOut=1`: after the deadline every task continues until it has made as many
    /// transfers as the furthest task had.
    pub wear_out: bool,
}

/// A given option without effect on a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The option, verbatim.
    pub option: String,
    /// The reason.
    pub text: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.option, self.text)
    }
}

/// One IOR test with consistent options.
///
/// The documentation of each field names the module that implements it: the *access pattern*
/// ([`AccessPattern`](super::AccessPattern): the bytes that each rank moves), the *steps*
/// ([`Ior::steps`]: the order of actions), or the *simulator*, which determines times and costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ior {
    /// Number of the test in the run, from 0.
    pub id: u32,
    /// `-a`: simulator (MPI-IO costs; with `collective`, aggregation).
    pub api: Api,
    /// `-b`, default 1 MiB: contiguous bytes of one task. Access pattern.
    pub block: Bytes,
    /// `-t`, default 256 KiB: bytes of one operation. Access pattern.
    pub transfer: Bytes,
    /// `-s`, default 1: repetitions of the pattern of blocks in the file. Access pattern.
    pub segments: u64,
    /// `-F`: one file per task instead of one for all. Access pattern.
    pub file_per_process: bool,
    /// `-w`, or neither `-w` nor `-r`: run the write phase. Steps.
    pub write: bool,
    /// `-r`, or neither `-w` nor `-r`: run the read phase. Steps.
    pub read: bool,
    /// `-o`, default `testFile`: path of the file, or several paths joined by `@`. Printed in the report; the
    /// file system simulated has no names.
    pub test_file: String,
    /// `-i`, default 1: repetitions. Steps.
    pub repetitions: u32,
    /// `-N`: use only this many processes, the first ones. Access pattern.
    pub tasks: Option<u32>,
    /// `-e`: fsync by each task after its last write, within the timed transfers. Steps.
    pub fsync: bool,
    /// `-Y`: fsync after each write. Simulator.
    pub fsync_per_write: bool,
    /// `-g`: barriers between open, transfers and close. Steps.
    pub barriers: bool,
    /// `-C`, `-Z`: the tasks whose data are read. Access pattern.
    pub reorder: Reorder,
    /// `-Q`, default 1: distance in nodes of `-C` and `-Z`. Access pattern.
    pub node_offset: u32,
    /// `-X`, default 0: seed of `-Z`, and of `-z` where `--random-offset-seed` is not given. A
    /// negative seed gives each repetition another order for `-Z`. Access pattern.
    pub reorder_seed: Option<i32>,
    /// `-z`: transfers of a segment in shuffled order. Access pattern.
    pub random_offsets: bool,
    /// `--random-offset-seed`: seed of `-z`. Access pattern.
    pub offset_seed: Option<i32>,
    /// `-c`: two-phase collective transfers through aggregators, which exchange data with the
    /// tasks and access the file. Takes effect with [`Api::MpiIo`] and one shared file. Simulator.
    pub collective: bool,
    /// `-k`: keep the files. Steps.
    pub keep_file: bool,
    /// `-D`, `-O stoneWallingWearOut=1`. Simulator. In the read phase after a write phase of the
    /// same repetition each task also stops after as many transfers as it wrote (with wear-out: as
    /// many as the furthest task wrote).
    pub stonewall: Option<Stonewall>,
    /// `-O stoneWallingWearOutIterations=N`: end each phase after this many transfers per task. Access pattern.
    pub max_transfers: Option<u64>,
    /// `-d`: seconds to wait before each phase. Steps.
    pub delay_seconds: u32,
    /// `-u`: with `-F`, each file in a directory of its own, which must be made. Steps.
    pub unique_directory: bool,
    /// `-E`: do not remove files before writing them. Steps.
    pub use_existing: bool,
    /// `-m`: a new file (or files) for each repetition. Access pattern.
    pub multi_file: bool,
    /// `-T`: minutes from the start of the test after which no further phase begins. Simulator, at
    /// [`Action::Begin`](super::Action::Begin).
    pub max_minutes: Option<u32>,
    /// `--posix.odirect`: bypass the client's cache. Simulator.
    pub direct_io: bool,
    /// `-A`, default 0: printed in the summary.
    pub reference_number: i32,
    /// `-v`, repeated: printed among the options; no other effect.
    pub verbosity: u32,
    /// Given options without effect on the simulation, to be shown to the user.
    pub notes: Vec<Note>,
}
