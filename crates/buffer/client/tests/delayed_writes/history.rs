//! Random histories of one file through two mounts: after each operation every mount shows the same file as the
//! model, a sequence of bytes.

use super::Site;
use super::support::faulty_network::FaultyNetwork;
use super::support::network_pool::NetworkPool;
use super::support::noise;
use forebay_random::RandomSequence;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Operations of a history.
const OPERATIONS: u32 = 60;
/// Largest length of the file, in bytes.
const MAX_LENGTH: u64 = 1 << 20;

/// A program on one mount, with the file that it has open.
struct Program {
    path: PathBuf,
    /// Open for reading and writing, or not open.
    file: Option<File>,
    /// Where its next sequential write goes.
    next: u64,
}

impl Program {
    fn file(&mut self) -> &File {
        let open = || OpenOptions::new().read(true).write(true).open(&self.path).unwrap();
        self.file.get_or_insert_with(open)
    }
}

struct History {
    programs: [Program; 2],
    model: Vec<u8>,
    random: RandomSequence,
}

impl History {
    fn below(&mut self, bound: u64) -> u64 {
        u64::from(self.random.below(bound as u32))
    }

    /// Random bytes, which differ from those before.
    fn data(&mut self, length: u64) -> Vec<u8> {
        let seed = self.below(1 << 30);
        noise(length, seed)
    }

    fn write(&mut self, who: usize, data: &[u8], offset: u64) {
        self.programs[who].file().write_all_at(data, offset).unwrap();
        let end = offset as usize + data.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset as usize..end].copy_from_slice(data);
        self.programs[who].next = end as u64;
    }

    /// Small sequential writes.
    fn write_pieces(&mut self, who: usize) {
        if self.below(4) == 0 || self.programs[who].next >= MAX_LENGTH {
            self.programs[who].next = self.below(self.model.len() as u64 + 1);
        }
        // Nothing is delayed while the other program has the file open, and for some time after a recall.
        if self.below(2) == 0 {
            self.programs[1 - who].file = None;
            std::thread::sleep(std::time::Duration::from_millis(260));
        }
        let length = [100, 1000, 4096, 8192][self.below(4) as usize];
        for _ in 0..self.below(70) {
            let data = self.data(length);
            let next = self.programs[who].next;
            self.write(who, &data, next);
        }
    }

    fn act(&mut self, who: usize) -> &'static str {
        let length = self.model.len() as u64;
        let path = self.programs[who].path.clone();
        match self.below(16) {
            0..=5 => {
                self.write_pieces(who);
                "small writes"
            }
            6 => {
                let (size, offset) = (self.below(100_000), self.below(MAX_LENGTH));
                let data = self.data(size + 1);
                self.write(who, &data, offset);
                "write anywhere"
            }
            7 => {
                let size = self.below(length + 5000);
                self.programs[who].file().set_len(size).unwrap();
                self.model.resize(size as usize, 0);
                "ftruncate"
            }
            8 => {
                let size = self.below(length + 5000);
                rustix::fs::ftruncate(OpenOptions::new().write(true).open(&path).unwrap(), size)
                    .unwrap();
                self.model.resize(size as usize, 0);
                "ftruncate of another open file"
            }
            9 => {
                drop(OpenOptions::new().write(true).truncate(true).open(&path).unwrap());
                self.model.clear();
                "truncate by open"
            }
            10 => {
                let size = self.below(3000) + 1;
                let data = self.data(size);
                let mut file = OpenOptions::new().append(true).open(&path).unwrap();
                file.write_all(&data).unwrap();
                self.model.extend_from_slice(&data);
                "append"
            }
            11 => {
                let (offset, size) = (self.below(length + 1), self.below(20_000) + 1);
                use rustix::fs::FallocateFlags;
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let file = self.programs[who].file();
                if size.is_multiple_of(2) {
                    rustix::fs::fallocate(file, punch, offset, size).unwrap();
                    let end = (offset + size).min(length);
                    self.model[offset as usize..end as usize].fill(0);
                } else {
                    rustix::fs::fallocate(file, FallocateFlags::empty(), offset, size).unwrap();
                    self.model.resize(length.max(offset + size) as usize, 0);
                }
                "fallocate"
            }
            12 => {
                self.programs[who].file().sync_data().unwrap();
                "fdatasync"
            }
            13 => {
                self.programs[who].file = None;
                "close"
            }
            14 => {
                let other = path.with_extension("other");
                fs::rename(&path, &other).unwrap();
                fs::rename(&other, &path).unwrap();
                "rename"
            }
            _ => {
                // The time for which no lease is requested after a recall.
                std::thread::sleep(std::time::Duration::from_millis(260));
                "pause"
            }
        }
    }

    /// Compares what a mount shows with the model.
    fn check(&mut self, who: usize) {
        let length = self.model.len() as u64;
        let (offset, way) = (self.below(length + 1), self.below(5));
        let model = &self.model;
        let program = &mut self.programs[who];
        let path = program.path.clone();
        let compare = |file: &File, offset: u64, size: usize| {
            let mut found = vec![0; size];
            let count = file.read_at(&mut found, offset).unwrap();
            let end = model.len().min(offset as usize + size);
            assert!(found[..count] == model[offset as usize..end], "data from {offset} on");
        };
        match way {
            0 => assert_eq!(fs::metadata(&path).unwrap().len(), length),
            1 => assert!(fs::read(&path).unwrap() == *model),
            2 => assert_eq!(program.file().metadata().unwrap().len(), length),
            3 => compare(program.file(), offset, 70_000),
            _ => {
                let mut file = program.file();
                assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), length);
            }
        }
    }
}

fn run(nodes: usize, seed: u64) {
    // With a slow network, requests that do not wait for delayed writes overtake them.
    let network = FaultyNetwork::new(if seed.is_multiple_of(2) { 0 } else { 1500 }, 0);
    let site = Site::with(NetworkPool::new(nodes), &network);
    let (here, there) = site.file("file");
    File::create(&here).unwrap();
    let program = |path: &Path| Program { path: path.to_owned(), file: None, next: 0 };
    let mut history = History {
        programs: [program(&here), program(&there)],
        model: Vec::new(),
        random: RandomSequence::new(seed),
    };
    let mut log = Vec::new();
    for _ in 0..OPERATIONS {
        let who = history.below(2) as usize;
        log.push((who, history.act(who)));
        let observer = history.below(3) as usize;
        if observer < 2 {
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                history.check(observer);
            }));
            if let Err(panic) = checked {
                eprintln!("{nodes} nodes, seed {seed}, mount {observer}: {log:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    for who in 0..2 {
        history.programs[who].file = None;
        assert!(fs::read(&history.programs[who].path).unwrap() == history.model);
    }
    drop(history);
    site.end();
}

/// The seeds of `FOREBAY_FIRST_SEED` and `FOREBAY_SEEDS`, by default `usual`.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("FOREBAY_FIRST_SEED").unwrap_or(1);
    first..first + number("FOREBAY_SEEDS").unwrap_or(usual)
}

#[test]
fn random_histories_of_two_mounts_on_one_node() {
    seeds(6).for_each(|seed| run(1, seed));
}

#[test]
fn random_histories_of_two_mounts_on_three_nodes() {
    seeds(2).for_each(|seed| run(3, seed));
}
