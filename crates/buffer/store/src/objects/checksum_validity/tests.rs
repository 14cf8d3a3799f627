//! Checksum validity under power failures, crashes and concurrent operations between any two steps.
//!
//! After a power failure, the attribute, the modification time and each block of an object have,
//! independently of each other, any of the values they had since the object was last synced.

use super::*;
use crate::objects::block_checksums::ChecksumBuilder;
use std::cell::{Cell, RefCell};

const BLOCKS: usize = 4;
/// With more files, operations would rarely collide.
const FILES: usize = 2;

/// Values since the last sync, in order; the first is on the medium.
#[derive(Clone, Debug)]
struct History<T>(Vec<T>);

impl<T: Clone> History<T> {
    fn now(&self) -> T {
        self.0.last().unwrap().clone()
    }

    fn set(&mut self, value: T) {
        self.0.push(value);
    }

    fn synced(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }

    fn power_cut(&mut self, random: &Random) {
        let survivor = self.0[random.below(self.0.len())].clone();
        self.0 = vec![survivor];
    }
}

/// xorshift64* (Vigna 2016).
#[derive(Debug)]
struct Random(Cell<u64>);

impl Random {
    fn below(&self, limit: usize) -> usize {
        let mut state = self.0.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.0.set(state);
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn one_in(&self, count: usize) -> bool {
        self.below(count) == 0
    }
}

#[derive(Clone, Debug)]
struct SimulatedFile {
    attribute: History<Option<Vec<u8>>>,
    mtime: History<u64>,
    changes: u64,
    blocks: Vec<History<u8>>,
    /// Descriptors for writing; for each, whether it has changed the modification time.
    writers: Vec<bool>,
    /// Opens for writing in progress in the daemon.
    opening: usize,
}

impl SimulatedFile {
    fn synced(&mut self) {
        self.attribute.synced();
        self.mtime.synced();
        self.blocks.iter_mut().for_each(History::synced);
    }

    fn checksums(&self) -> BlockChecksums {
        let mut builder = ChecksumBuilder::new(BLOCKS as u64, at(self.mtime.now()));
        for block in &self.blocks {
            builder.add_bytes(&[block.now()]);
        }
        builder.finish().unwrap()
    }
}

fn at(time: u64) -> Timestamp {
    Timestamp { secs: time as i64, nanos: 0 }
}

/// Operations that may run concurrently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Concurrency {
    /// All.
    All,
    /// Those that the lock permits during an invalidation.
    Sharing,
    None,
}

struct Host {
    random: Random,
    files: RefCell<Vec<SimulatedFile>>,
    validity: RefCell<std::rc::Rc<ChecksumValidity>>,
    boot: Cell<u128>,
    watermarks: RefCell<History<Watermarks>>,
    clock: Cell<u64>,
    concurrency: Cell<Concurrency>,
    depth: Cell<usize>,
    is_checksumming: Cell<bool>,
    /// Steps until the daemon crashes; 0: it has crashed.
    steps_left: Cell<u64>,
    durable_invalidations: Cell<u64>,
}

struct OpenFile<'a>(&'a Host, usize);

const CRASHED: Errno = Errno::EIO;

impl Host {
    fn new(seed: u64) -> Host {
        let file = SimulatedFile {
            attribute: History(vec![None]),
            mtime: History(vec![1]),
            changes: 0,
            blocks: vec![History(vec![0]); BLOCKS],
            writers: Vec::new(),
            opening: 0,
        };
        Host {
            random: Random(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)),
            files: RefCell::new(vec![file; FILES]),
            validity: RefCell::new(
                ChecksumValidity::new(Some(1), Watermarks::default(), false).into(),
            ),
            boot: Cell::new(1),
            watermarks: RefCell::new(History(vec![Watermarks::default()])),
            clock: Cell::new(10),
            concurrency: Cell::new(Concurrency::All),
            depth: Cell::new(0),
            is_checksumming: Cell::new(false),
            steps_left: Cell::new(u64::MAX),
            durable_invalidations: Cell::new(0),
        }
    }

    fn validity(&self) -> std::rc::Rc<ChecksumValidity> {
        self.validity.borrow().clone()
    }

    fn file<T>(&self, index: usize, act: impl FnOnce(&mut SimulatedFile) -> T) -> T {
        act(&mut self.files.borrow_mut()[index])
    }

    /// Called before each operation: the daemon may crash here, or concurrency may run first.
    fn step(&self, concurrency: Concurrency) -> Result<(), Errno> {
        if self.steps_left.get() == 0 {
            return Err(CRASHED);
        }
        self.steps_left.set(self.steps_left.get() - 1);
        if self.depth.get() < 2
            && self.concurrency.get() != Concurrency::None
            && self.random.one_in(4)
        {
            let before = self.concurrency.get();
            if concurrency == Concurrency::Sharing {
                self.concurrency.set(concurrency);
            }
            self.depth.set(self.depth.get() + 1);
            for _ in 0..=self.random.below(4) {
                self.act();
            }
            self.depth.set(self.depth.get() - 1);
            self.concurrency.set(before);
        }
        if self.steps_left.get() == 0 {
            return Err(CRASHED);
        }
        Ok(())
    }

    /// Carry out a random operation.
    fn act(&self) {
        let index = self.random.below(FILES);
        let file = OpenFile(self, index);
        self.clock.set(self.clock.get() + 1);
        let mut outcome = Ok(());
        match self.random.below(9) {
            0 => outcome = self.open(&file),
            1 | 2 => self.write(index),
            3 => self.file(index, |f| {
                f.writers.pop();
            }),
            4 | 5 if self.concurrency.get() == Concurrency::All => {
                outcome = self.as_checksummer(|| self.store_checksums(&file));
            }
            6 if self.concurrency.get() == Concurrency::All => outcome = self.set_time(&file),
            7 if self.concurrency.get() == Concurrency::All => {
                outcome = self.as_checksummer(|| self.record_generation());
            }
            8 if self.random.one_in(2) => self.file(index, SimulatedFile::synced),
            _ => {}
        }
        if outcome.is_err() {
            assert_eq!(self.steps_left.get(), 0, "only a crashed daemon fails");
        }
    }

    /// Operations of the checksummer, which is one thread.
    fn as_checksummer(&self, act: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        if self.is_checksumming.replace(true) {
            return Ok(());
        }
        let outcome = act();
        self.is_checksumming.set(false);
        outcome
    }

    fn open(&self, file: &OpenFile<'_>) -> Result<(), Errno> {
        self.file(file.1, |f| f.opening += 1);
        let invalidated = self.step(Concurrency::All).and_then(|()| {
            let validity = self.validity();
            let is_durable = validity.invalidate(file)?;
            self.durable_invalidations
                .set(self.durable_invalidations.get() + u64::from(is_durable));
            Ok(())
        });
        self.file(file.1, |f| {
            // A crash has closed it.
            f.opening = f.opening.saturating_sub(1);
            if invalidated.is_ok() && self.steps_left.get() > 0 {
                f.writers.push(false);
            }
        });
        invalidated
    }

    fn write(&self, index: usize) {
        let (block, now) = (self.random.below(BLOCKS), self.clock.get());
        let quiet = self.random.one_in(3);
        self.file(index, |file| {
            let Some(has_changed_mtime) = file.writers.last_mut() else {
                return;
            };
            let value = file.blocks[block].now().wrapping_add(1);
            // A memory map changes the time only with the first write to a page.
            if !*has_changed_mtime || !quiet {
                *has_changed_mtime = true;
                file.mtime.set(now);
                file.changes += 1;
            }
            file.blocks[block].set(value);
        });
    }

    fn store_checksums(&self, file: &OpenFile<'_>) -> Result<(), Errno> {
        let validity = self.validity();
        if validity.valid_checksums(file)?.is_some() {
            return Ok(());
        }
        validity.invalidate(file)?;
        if file.has_writers()? == Some(true) {
            return Ok(());
        }
        let state = file.file_state()?;
        let checksums = self.file(file.1, |f| f.checksums());
        self.step(Concurrency::All)?;
        if self.random.one_in(20) {
            // A concurrent writer restores the modification time.
            self.open(file)?;
            self.write(file.1);
            self.file(file.1, |f| f.writers.clear());
            self.set_time_to(file, state.mtime.secs as u64)?;
        }
        let before = self.concurrency.replace(Concurrency::None);
        let stored = validity.store_checksums(file, checksums, state);
        self.concurrency.set(before);
        stored.map(drop)
    }

    fn set_time(&self, file: &OpenFile<'_>) -> Result<(), Errno> {
        // To the current time, or to one that the object had before.
        let known = self.file(file.1, |f| f.mtime.0.clone());
        let time = match self.random.below(3) {
            0 => self.clock.get(),
            _ => known[self.random.below(known.len())],
        };
        self.set_time_to(file, time)
    }

    fn set_time_to(&self, file: &OpenFile<'_>, time: u64) -> Result<(), Errno> {
        let validity = self.validity();
        let before = self.concurrency.replace(Concurrency::None);
        let outcome = validity.set_mtime(file, at(time), || {
            self.step(Concurrency::None)?;
            self.file(file.1, |f| {
                f.mtime.set(time);
                f.changes += 1;
            });
            Ok(())
        });
        self.concurrency.set(before);
        outcome
    }

    fn record_generation(&self) -> Result<(), Errno> {
        let validity = self.validity();
        if !validity.has_unrecorded() {
            return Ok(());
        }
        let watermarks = validity.close_generation().unwrap();
        for index in 0..FILES {
            self.step(Concurrency::All)?;
            self.file(index, SimulatedFile::synced);
        }
        self.step(Concurrency::All)?;
        self.watermarks.borrow_mut().set(watermarks);
        self.step(Concurrency::All)?;
        self.watermarks.borrow_mut().synced();
        Ok(())
    }

    /// The daemon starts, in the current boot of the host.
    fn start(&self) {
        for file in self.files.borrow_mut().iter_mut() {
            file.opening = 0;
        }
        let (boot, watermarks) = (self.boot.get(), self.watermarks.borrow().now());
        *self.validity.borrow_mut() = ChecksumValidity::new(Some(boot), watermarks, true).into();
        self.steps_left.set(if self.random.one_in(2) {
            self.random.below(30) as u64 + 1
        } else {
            u64::MAX
        });
    }

    fn power_cut(&self) {
        for file in self.files.borrow_mut().iter_mut() {
            file.attribute.power_cut(&self.random);
            file.mtime.power_cut(&self.random);
            let blocks = file.blocks.iter_mut();
            blocks.for_each(|block| block.power_cut(&self.random));
            file.writers.clear();
        }
        self.watermarks.borrow_mut().power_cut(&self.random);
        self.boot.set(self.boot.get() + 1);
    }

    /// Check that all valid checksums match the data. Returns how many are valid.
    fn count_valid(&self) -> u64 {
        self.steps_left.set(u64::MAX);
        let before = self.concurrency.replace(Concurrency::None);
        let mut valid = 0;
        for index in 0..FILES {
            let checksums = self.validity().valid_checksums(&OpenFile(self, index)).unwrap();
            if let Some(checksums) = checksums {
                let found = self.file(index, |f| f.checksums());
                assert_eq!(
                    checksums.first_difference(&found),
                    None,
                    "intact data would be reported as damaged"
                );
                valid += 1;
            }
        }
        self.concurrency.set(before);
        valid
    }
}

impl ChecksummedFile for OpenFile<'_> {
    fn read_attribute(&self, into: &mut [u8; MAX_CHECKSUMS_BYTES]) -> Result<Option<usize>, Errno> {
        self.0.step(Concurrency::Sharing)?;
        let attribute = self.0.file(self.1, |f| f.attribute.now());
        Ok(attribute.map(|bytes| {
            into[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        }))
    }

    fn set_attribute(&self, bytes: &[u8]) -> Result<(), Errno> {
        self.0.step(Concurrency::Sharing)?;
        self.0.file(self.1, |f| {
            f.attribute.set(Some(bytes.to_vec()));
            f.changes += 1;
        });
        Ok(())
    }

    fn remove_attribute(&self) -> Result<(), Errno> {
        self.0.step(Concurrency::Sharing)?;
        self.0.file(self.1, |f| {
            f.attribute.set(None);
            f.changes += 1;
        });
        Ok(())
    }

    fn sync_file(&self) -> Result<(), Errno> {
        self.0.step(Concurrency::All)?;
        self.0.file(self.1, SimulatedFile::synced);
        self.0.step(Concurrency::All)
    }

    fn file_state(&self) -> Result<FileState, Errno> {
        self.0.step(Concurrency::Sharing)?;
        Ok(self.0.file(self.1, |f| FileState {
            size: BLOCKS as u64,
            mtime: at(f.mtime.now()),
            ctime: at(f.changes),
        }))
    }

    fn has_writers(&self) -> Result<Option<bool>, Errno> {
        self.0.step(Concurrency::Sharing)?;
        let open = |f: &mut SimulatedFile| f.opening > 0 || !f.writers.is_empty();
        Ok(Some(self.0.file(self.1, open)))
    }
}

#[test]
fn valid_checksums_match_data_after_crashes_and_power_cuts() {
    let seeds = std::env::var("FOREBAY_SEEDS").ok();
    let seeds = seeds.and_then(|count| count.parse().ok()).unwrap_or(5000);
    let (mut valid, mut invalidated) = (0, 0);
    for seed in 1..=seeds {
        let host = Host::new(seed);
        for _ in 0..10 {
            host.start();
            let mut operations = host.random.below(60);
            while operations > 0 {
                operations -= 1;
                host.act();
                if host.steps_left.get() == 0 {
                    host.start(); // a crash: clients keep their descriptors
                    operations = operations.min(host.random.below(12));
                }
            }
            host.count_valid();
            if host.random.one_in(2) {
                host.power_cut();
                host.start();
                valid += host.count_valid();
            }
        }
        invalidated += host.durable_invalidations.get();
    }
    // Otherwise the test exercised nothing.
    assert!(
        valid > seeds / 2 && invalidated > seeds,
        "{valid} valid, {invalidated} invalidated, {seeds} seeds"
    );
}

#[test]
fn only_recorded_generations_are_valid_after_power_cut() {
    let host = Host::new(1);
    host.concurrency.set(Concurrency::None);
    let (first, second) = (OpenFile(&host, 0), OpenFile(&host, 1));
    host.store_checksums(&first).unwrap();
    host.record_generation().unwrap();
    host.store_checksums(&second).unwrap();
    host.file(1, SimulatedFile::synced);
    assert_eq!(host.count_valid(), 2);
    host.power_cut();
    host.start();
    assert_eq!(host.count_valid(), 1);
    assert!(host.validity().valid_checksums(&first).unwrap().is_some());
    // They remain valid after another power failure and a change of the modification time.
    host.steps_left.set(u64::MAX);
    let set = || {
        host.file(0, |f| f.mtime.set(77));
        Ok(())
    };
    host.validity().set_mtime(&first, at(77), set).unwrap();
    host.file(0, SimulatedFile::synced);
    host.power_cut();
    host.start();
    assert_eq!(host.count_valid(), 1);
}
