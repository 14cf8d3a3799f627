//! The bytes that each rank moves, computed by index.

use super::error::AccessPatternError;
use super::spec::{Ior, Reorder};
use forebay_random::{Permutation, RandomStream, below, stream_label};

/// Direction of a phase's transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// From the task to the file.
    Write,
    /// From the file to the task.
    Read,
}

impl Access {
    /// IOR's word.
    pub fn name(self) -> &'static str {
        match self {
            Access::Write => "write",
            Access::Read => "read",
        }
    }
}

/// The processes of a job, on which a test runs. Rank r is on node r / `per_node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processes {
    /// Number of processes.
    pub count: u32,
    /// Processes on one node; the last node may have fewer.
    pub per_node: u32,
    /// Seed of `-z` if the command line gives none.
    pub seed: u64,
}

/// A file of a test: the same number always denotes the same file. With `-F` it is the writing
/// rank, else 0; with `-m` the numbers of each repetition follow those of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// One operation on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transfer {
    /// The file.
    pub file: FileId,
    /// Offset of the first byte in the file.
    pub offset: u64,
    /// Number of bytes: the transfer size of the test, or what is left of the block.
    pub bytes: u64,
}

/// The access pattern of an [`Ior`] test for a number of processes and one repetition. `Copy`; of
/// constant size for any number of ranks and transfers.
#[derive(Clone, Copy, Debug)]
pub struct AccessPattern {
    tasks: u32,
    nodes: u32,
    processes: Processes,
    file_per_process: bool,
    multi_file: bool,
    reorder: Reorder,
    node_offset: u32,
    reorder_seed: i32,
    /// `-z`. With `-F`, each file's block is shuffled separately. On a shared file the transfers of
    /// all tasks in a segment are distributed at random, the same number to each task (IOR draws
    /// the task of each transfer, so that numbers vary). All segments have the same order.
    shuffle: Option<RandomStream>,
    block: u64,
    transfer: u64,
    /// Transfers of one block.
    per_block: u64,
    /// Transfers of one rank in a phase.
    per_rank: u64,
    segments: u64,
    iteration: u32,
    first_file: u64,
}

impl AccessPattern {
    /// The access pattern of a test in a job, for repetition 0.
    ///
    /// # Errors
    /// [`AccessPatternError`] if there are too few processes, or if offsets do not fit into 63 bits.
    pub fn new(ior: &Ior, processes: Processes) -> Result<AccessPattern, AccessPatternError> {
        if processes.count == 0 || processes.per_node == 0 || ior.tasks == Some(0) {
            let text = "IOR needs at least one process, and one process per node";
            return Err(AccessPatternError(text.into()));
        }
        let tasks = ior.tasks.unwrap_or(processes.count);
        if tasks > processes.count {
            return Err(AccessPatternError(format!(
                "-N requests {tasks} tasks, but the job has only {} processes; \
                 lower -N or give the job more nodes or processes per node",
                processes.count
            )));
        }
        let (block, transfer) = (ior.block.0, ior.transfer.0);
        let total = block
            .checked_mul(ior.segments)
            .and_then(|bytes| bytes.checked_mul(u64::from(tasks)))
            .filter(|&bytes| bytes <= i64::MAX as u64);
        if total.is_none() {
            return Err(AccessPatternError(format!(
                "{tasks} tasks with {} segments of {block} bytes each (-s, -b) exceeds the \
                 2^63 bytes that a file offset can address; lower -b or -s, or use fewer tasks",
                ior.segments
            )));
        }
        // The parser refuses sizes of 0; a test constructed by other code may have one.
        let per_block = if transfer == 0 { 0 } else { block.div_ceil(transfer) };
        if ior.random_offsets && !block.is_multiple_of(transfer.max(1)) {
            return Err(AccessPatternError(format!(
                "random offsets (-z) of blocks of {block} bytes (-b), which are not whole transfers of \
                 {transfer} bytes (-t); give a multiple"
            )));
        }
        let transfers = per_block.saturating_mul(ior.segments);
        let seed = match (ior.offset_seed, ior.reorder_seed) {
            (Some(seed), _) | (None, Some(seed)) => i64::from(seed) as u64,
            (None, None) => processes.seed,
        };
        let pattern = AccessPattern {
            tasks,
            nodes: processes.count.div_ceil(processes.per_node),
            processes,
            file_per_process: ior.file_per_process,
            multi_file: ior.multi_file,
            reorder: ior.reorder,
            node_offset: ior.node_offset,
            reorder_seed: ior.reorder_seed.unwrap_or(0),
            shuffle: ior.random_offsets.then(|| RandomStream::new(seed, stream_label("ior -z"))),
            block,
            transfer,
            per_block,
            per_rank: ior.max_transfers.map_or(transfers, |limit| transfers.min(limit)),
            segments: ior.segments,
            iteration: 0,
            first_file: 0,
        };
        if pattern.reorder == Reorder::Random && pattern.excluded() >= u64::from(tasks) {
            return Err(AccessPatternError(format!(
                "-Z with -Q excludes {} tasks, beginning with its own, from each task's reads, \
                 but the run has only {tasks}; lower -Q or raise -N",
                pattern.excluded()
            )));
        }
        Ok(pattern)
    }

    /// The access pattern of another repetition, counted from 0: other files with `-m`, another
    /// order with `-Z` and a negative `-X`.
    pub fn for_iteration(self, iteration: u32) -> AccessPattern {
        AccessPattern { iteration, ..self }
    }

    /// The same pattern on other files: their numbers begin at `first`, for a test beside others.
    pub fn with_first_file(self, first: u64) -> AccessPattern {
        AccessPattern { first_file: first, ..self }
    }

    /// The number of its first file.
    pub fn first_file(&self) -> u64 {
        self.first_file
    }

    /// Participating tasks: ranks `0..tasks()`.
    pub fn tasks(&self) -> u32 {
        self.tasks
    }

    /// Nodes of the job.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Processes on the job's first node (IOR's `clients per node`).
    pub fn processes_per_node(&self) -> u32 {
        self.processes.per_node.min(self.processes.count)
    }

    /// The node of a rank, as an index into the job's nodes.
    pub fn node_of(&self, rank: u32) -> u32 {
        rank / self.processes.per_node
    }

    /// Transfers of each rank in one phase without a deadline (`-D`).
    pub fn transfers_per_rank(&self) -> u64 {
        self.per_rank
    }

    /// Bytes of one transfer.
    pub fn transfer_bytes(&self) -> u64 {
        self.transfer
    }

    /// Bytes of the first `count` transfers of a rank in one phase.
    pub fn bytes_of_first(&self, count: u64) -> u64 {
        let per_block = self.per_block.max(1);
        count / per_block * self.block + count % per_block * self.transfer
    }

    /// Bytes of each rank in one phase without a deadline (`-D`).
    pub fn bytes_per_rank(&self) -> u64 {
        self.bytes_of_first(self.per_rank)
    }

    /// Bytes of the transfer number `index` of a rank in a phase.
    #[inline]
    pub fn length_of(&self, index: u64) -> u64 {
        let before = index % self.per_block.max(1) * self.transfer;
        self.transfer.min(self.block - before)
    }

    /// Contiguous bytes of one rank in a segment.
    pub fn block_bytes(&self) -> u64 {
        self.block
    }

    /// Final size of all files of one repetition: tasks × segments × block.
    pub fn total_bytes(&self) -> u64 {
        u64::from(self.tasks) * self.segments * self.block
    }

    /// Files of one repetition.
    pub fn files(&self) -> u32 {
        if self.file_per_process { self.tasks } else { 1 }
    }

    /// The rank that wrote the data that this rank moves: itself when writing.
    ///
    /// A bijection of the ranks except with a single `-Z`, where each rank draws independently, as
    /// in IOR, and some data are read by several ranks.
    pub fn data_owner(&self, rank: u32, access: Access) -> u32 {
        let tasks = u64::from(self.tasks);
        let stream = || {
            let (seed, turn) = match self.reorder_seed {
                seed if seed < 0 => (u64::from(seed.unsigned_abs()), self.iteration),
                seed => (seed as u64, 0),
            };
            RandomStream::of_unit(seed, stream_label("ior -Z"), turn.into())
        };
        let rank = u64::from(rank);
        let owner = match (access, self.reorder) {
            (Access::Write, _) | (Access::Read, Reorder::Own) => rank,
            (Access::Read, Reorder::Constant) => (rank + self.distance() % tasks) % tasks,
            (Access::Read, Reorder::Random) => {
                let nearest = self.excluded();
                (rank + nearest + below(stream().at(rank), tasks - nearest)) % tasks
            }
            (Access::Read, Reorder::Shuffle) => Permutation::new(tasks, stream().at(0)).apply(rank),
        };
        owner as u32
    }

    /// `-C`: distance in ranks to the owner of the data read.
    fn distance(&self) -> u64 {
        u64::from(self.node_offset) * u64::from(self.processes_per_node())
    }

    /// `-Z`: number of ranks, beginning with its own, from which a rank does not read.
    fn excluded(&self) -> u64 {
        u64::from(self.node_offset.min(self.nodes - 1)) * u64::from(self.processes_per_node())
    }

    /// The file that a rank opens for a phase.
    pub fn file(&self, rank: u32, access: Access) -> FileId {
        self.file_written_by(self.data_owner(rank, access))
    }

    fn file_written_by(&self, rank: u32) -> FileId {
        let first =
            if self.multi_file { u64::from(self.iteration) * u64::from(self.files()) } else { 0 };
        FileId(self.first_file + first + if self.file_per_process { u64::from(rank) } else { 0 })
    }

    /// The file that a rank removes at the end of a repetition, if any: its own with `-F`; the
    /// shared file is removed by rank 0.
    pub fn file_removed_by(&self, rank: u32) -> Option<FileId> {
        (self.file_per_process || rank == 0).then(|| self.file_written_by(rank))
    }

    /// The transfer number `index` of a rank in a phase; `index` is below
    /// [`AccessPattern::transfers_per_rank`].
    #[inline]
    pub fn transfer(&self, rank: u32, access: Access, index: u64) -> Transfer {
        debug_assert!(index < self.per_rank, "transfer {index} of {}", self.per_rank);
        let owner = self.data_owner(rank, access);
        let tasks_in_file = if self.file_per_process { 1 } else { u64::from(self.tasks) };
        let own_blocks = if self.file_per_process { 0 } else { u64::from(owner) };
        let per_block = self.per_block.max(1);
        let mut place = own_blocks * self.block + index % per_block * self.transfer;
        if let Some(stream) = self.shuffle {
            let key = stream.at(if self.file_per_process { owner.into() } else { 0 });
            let transfers = Permutation::new(tasks_in_file * self.per_block, key);
            place = transfers.apply(place / self.transfer) * self.transfer;
        }
        let segment_begins = index / per_block * tasks_in_file * self.block;
        Transfer {
            file: self.file_written_by(owner),
            offset: segment_begins + place,
            bytes: self.length_of(index),
        }
    }

    /// Transfers of a rank from number `index` on that follow each other in a file without a gap: at
    /// least one, and not always all.
    pub fn contiguous_transfers(&self, index: u64) -> u64 {
        let rest = self.per_rank - index;
        match (self.shuffle, self.file_per_process) {
            (Some(_), _) => rest.min(1),
            (None, true) => rest,
            (None, false) => rest.min(self.per_block - index % self.per_block.max(1)),
        }
    }
}
