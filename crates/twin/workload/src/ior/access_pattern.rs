//! The bytes that each rank moves, computed by index.

use super::error::AccessPatternError;
use super::spec::{Ior, Reorder};
use super::transfer_stream::{FileId, Transfer, TransferStream};
use forebay_random::{Permutation, RandomStream, below, stream_label};

/// Direction of a phase's transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
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

/// Assignment of ranks to the nodes of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeOrder {
    /// Rank r on node r / processes per node.
    #[default]
    Block,
    /// Rank r on node r mod nodes.
    Cyclic,
}

/// The processes of a job, on which a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processes {
    /// Number of processes.
    pub count: u32,
    /// Processes on one node; the last node may have fewer.
    pub per_node: u32,
    /// Their assignment to nodes.
    pub order: NodeOrder,
    /// Seed of `-z` if the command line gives none.
    pub seed: u64,
}

/// Order of the transfers of a segment.
#[derive(Clone, Copy, Debug)]
enum Order {
    Sequential,
    /// `-z`. With `-F`, each file's block is shuffled separately. On a shared file the transfers of
    /// all tasks in a segment are distributed at random, the same number to each task (IOR draws the
    /// task of each transfer, so that numbers vary). All segments have the same order.
    Shuffled(RandomStream),
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
    order: Order,
    block: u64,
    transfer: u64,
    /// Transfers of one block.
    per_block: u64,
    /// Transfers of one rank in a phase.
    per_rank: u64,
    segments: u64,
    iteration: u32,
}

impl AccessPattern {
    /// The access pattern of a test in a job, for repetition 0.
    ///
    /// # Errors
    /// [`AccessPatternError`] if there are too few processes, or if offsets do not fit into 63 bits.
    pub fn new(ior: &Ior, processes: Processes) -> Result<AccessPattern, AccessPatternError> {
        if processes.count == 0 || processes.per_node == 0 || ior.tasks == Some(0) {
            return Err(AccessPatternError::NoProcesses);
        }
        let tasks = ior.tasks.unwrap_or(processes.count);
        if tasks > processes.count {
            return Err(AccessPatternError::TooFewProcesses {
                asked: tasks,
                processes: processes.count,
            });
        }
        let (block, transfer) = (ior.block.0, ior.transfer.0);
        let total = block
            .checked_mul(ior.segments)
            .and_then(|bytes| bytes.checked_mul(u64::from(tasks)))
            .filter(|&bytes| bytes <= i64::MAX as u64);
        if total.is_none() {
            return Err(AccessPatternError::TooLarge {
                what: format!(
                    "{tasks} tasks with {} segments of {block} bytes each (-s, -b)",
                    ior.segments
                ),
            });
        }
        // The parser refuses sizes of 0; a test constructed by other code may have one.
        let per_block = block.checked_div(transfer).unwrap_or(0);
        let transfers = per_block * ior.segments;
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
            order: if ior.random_offsets {
                Order::Shuffled(RandomStream::new(seed, stream_label("ior -z")))
            } else {
                Order::Sequential
            },
            block,
            transfer,
            per_block,
            per_rank: ior.max_transfers.map_or(transfers, |limit| transfers.min(limit)),
            segments: ior.segments,
            iteration: 0,
        };
        if pattern.reorder == Reorder::Random && pattern.excluded() >= u64::from(tasks) {
            return Err(AccessPatternError::OffsetTooFar { excluded: pattern.excluded(), tasks });
        }
        Ok(pattern)
    }

    /// The access pattern of another repetition, counted from 0: other files with `-m`, another
    /// order with `-Z` and a negative `-X`.
    pub fn for_iteration(self, iteration: u32) -> AccessPattern {
        AccessPattern { iteration, ..self }
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
        match self.processes.order {
            NodeOrder::Block => self.processes.per_node.min(self.processes.count),
            NodeOrder::Cyclic => self.processes.count.div_ceil(self.nodes),
        }
    }

    /// The node of a rank, as an index into the job's nodes.
    pub fn node_of(&self, rank: u32) -> u32 {
        match self.processes.order {
            NodeOrder::Block => rank / self.processes.per_node,
            NodeOrder::Cyclic => rank % self.nodes,
        }
    }

    /// Transfers of each rank in one phase without a deadline (`-D`).
    pub fn transfers_per_rank(&self) -> u64 {
        self.per_rank
    }

    /// Bytes of one transfer.
    pub fn transfer_bytes(&self) -> u64 {
        self.transfer
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
            RandomStream::new(seed + u64::from(turn), stream_label("ior -Z"))
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

    /// `-C`: distance in ranks to the owner of the data read; with cyclic order, the next rank is on
    /// the next node.
    fn distance(&self) -> u64 {
        let ranks_to_next_node = match self.processes.order {
            NodeOrder::Block => self.processes_per_node(),
            NodeOrder::Cyclic => 1,
        };
        u64::from(self.node_offset) * u64::from(ranks_to_next_node)
    }

    /// `-Z`: number of ranks, beginning with its own, from which a rank does not read. IOR counts
    /// whole nodes here even with cyclic order.
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
        FileId(first + if self.file_per_process { u64::from(rank) } else { 0 })
    }

    /// The file that a rank removes at the end of a repetition, if any: its own with `-F`; the
    /// shared file is removed by rank 0.
    pub fn file_removed_by(&self, rank: u32) -> Option<FileId> {
        (self.file_per_process || rank == 0).then(|| self.file_written_by(rank))
    }

    /// All transfers of one rank in one phase.
    pub fn stream(&self, rank: u32, access: Access) -> TransferStream {
        let owner = u64::from(self.data_owner(rank, access));
        let tasks = u64::from(self.tasks);
        let (span, first) = if self.file_per_process { (1, 0) } else { (tasks, owner) };
        let shuffle = match self.order {
            Order::Sequential => None,
            Order::Shuffled(stream) => {
                let key = stream.at(if self.file_per_process { owner } else { 0 });
                Some(Permutation::new(span * self.per_block, key))
            }
        };
        TransferStream {
            file: self.file_written_by(owner as u32),
            transfer: self.transfer,
            per_block: self.per_block,
            count: self.per_rank,
            segment: span * self.block,
            first: first * self.per_block,
            shuffle,
        }
    }

    /// One transfer of one rank; `index` is below [`AccessPattern::transfers_per_rank`]. For many
    /// transfers of a rank, [`AccessPattern::stream`] is faster.
    pub fn transfer(&self, rank: u32, access: Access, index: u64) -> Transfer {
        self.stream(rank, access).transfer(index)
    }
}

impl Ior {
    /// The path of a file, by IOR's naming: with `-F` `testFile.00000003`, with `-u` and `-F`
    /// `directory/3/testFile.00000003`, with `-m` followed by the repetition: `testFile.00000003.1`.
    pub fn file_name(&self, pattern: &AccessPattern, file: FileId) -> String {
        let files = u64::from(pattern.files());
        let (iteration, rank) = (file.0 / files, file.0 % files);
        let names: Vec<&str> = self.test_file.split('@').collect();
        let mut name = String::new();
        if self.file_per_process {
            let path = names[rank as usize % names.len()];
            match path.rsplit_once('/').filter(|_| self.unique_directory) {
                Some((directory, base)) => name.push_str(&format!("{directory}/{rank}/{base}")),
                None if self.unique_directory => name.push_str(&format!("{rank}/{path}")),
                None => name.push_str(path),
            }
            name.push_str(&format!(".{rank:08}"));
        } else {
            name.push_str(names[0]);
        }
        if self.multi_file {
            name.push_str(&format!(".{iteration}"));
        }
        name
    }
}
