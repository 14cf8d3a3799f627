//! The rules under power cuts, kills and others' interference between any two steps.
//!
//! Of each object a power cut forgets attribute, time of last change and each block by themselves:
//! any of the values they had since the object was last synced may be what is there afterwards.

use super::*;
use crate::objects::block_checksums::ChecksumBuilder;
use std::cell::{Cell, RefCell};

const BLOCKS: usize = 4;
/// More would meet each other less often.
const FILES: usize = 2;

/// What something was since it was last synced; the first is on the medium.
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
        let left = self.0[random.below(self.0.len())].clone();
        self.0 = vec![left];
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
struct Contents {
    attribute: History<Option<Vec<u8>>>,
    mtime: History<u64>,
    changes: u64,
    blocks: Vec<History<u8>>,
    /// Descriptors for writing; of each, whether it has changed the time of last change.
    handed_out: Vec<bool>,
    /// Those that the daemon has not handed out yet.
    opening: usize,
}

impl Contents {
    fn synced(&mut self) {
        self.attribute.synced();
        self.mtime.synced();
        self.blocks.iter_mut().for_each(History::synced);
    }

    fn seal(&self) -> BlockChecksums {
        let mut maker = ChecksumBuilder::new(BLOCKS as u64, at(self.mtime.now()));
        for block in &self.blocks {
            maker.add_bytes(&[block.now()]);
        }
        maker.finish().unwrap()
    }
}

fn at(time: u64) -> Timestamp {
    Timestamp {
        secs: time as i64,
        nanos: 0,
    }
}

/// How far others may interfere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// With anything.
    All,
    /// With what the lock lets through that whoever breaks a seal holds.
    Sharing,
    None,
}

struct World {
    random: Random,
    files: RefCell<Vec<Contents>>,
    lasting: RefCell<std::rc::Rc<ChecksumValidity>>,
    boot: Cell<u128>,
    marks: RefCell<History<Watermarks>>,
    clock: Cell<u64>,
    others: Cell<Others>,
    depth: Cell<usize>,
    sealing: Cell<bool>,
    /// Steps until the daemon is killed; 0: it is dead.
    left: Cell<u64>,
    durable_breaks: Cell<u64>,
}

struct File<'a>(&'a World, usize);

const KILLED: Errno = Errno::EIO;

impl World {
    fn new(seed: u64) -> World {
        let file = Contents {
            attribute: History(vec![None]),
            mtime: History(vec![1]),
            changes: 0,
            blocks: vec![History(vec![0]); BLOCKS],
            handed_out: Vec::new(),
            opening: 0,
        };
        World {
            random: Random(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)),
            files: RefCell::new(vec![file; FILES]),
            lasting: RefCell::new(
                ChecksumValidity::new(Some(1), Watermarks::default(), false).into(),
            ),
            boot: Cell::new(1),
            marks: RefCell::new(History(vec![Watermarks::default()])),
            clock: Cell::new(10),
            others: Cell::new(Others::All),
            depth: Cell::new(0),
            sealing: Cell::new(false),
            left: Cell::new(u64::MAX),
            durable_breaks: Cell::new(0),
        }
    }

    fn lasting(&self) -> std::rc::Rc<ChecksumValidity> {
        self.lasting.borrow().clone()
    }

    fn file<T>(&self, index: usize, act: impl FnOnce(&mut Contents) -> T) -> T {
        act(&mut self.files.borrow_mut()[index])
    }

    /// Something is about to be done: the daemon may be killed here, or others come first.
    fn step(&self, others: Others) -> Result<(), Errno> {
        if self.left.get() == 0 {
            return Err(KILLED);
        }
        self.left.set(self.left.get() - 1);
        if self.depth.get() < 2 && self.others.get() != Others::None && self.random.one_in(4) {
            let before = self.others.get();
            if others == Others::Sharing {
                self.others.set(others);
            }
            self.depth.set(self.depth.get() + 1);
            for _ in 0..=self.random.below(4) {
                self.act();
            }
            self.depth.set(self.depth.get() - 1);
            self.others.set(before);
        }
        if self.left.get() == 0 {
            return Err(KILLED);
        }
        Ok(())
    }

    /// Someone does something.
    fn act(&self) {
        let index = self.random.below(FILES);
        let file = File(self, index);
        self.clock.set(self.clock.get() + 1);
        let mut done = Ok(());
        match self.random.below(9) {
            0 => done = self.open(&file),
            1 | 2 => self.write(index),
            3 => self.file(index, |f| {
                f.handed_out.pop();
            }),
            4 | 5 if self.others.get() == Others::All => {
                done = self.by_the_sealer(|| self.seal(&file));
            }
            6 if self.others.get() == Others::All => done = self.set_time(&file),
            7 if self.others.get() == Others::All => {
                done = self.by_the_sealer(|| self.cover());
            }
            8 if self.random.one_in(2) => self.file(index, Contents::synced),
            _ => {}
        }
        if done.is_err() {
            assert_eq!(self.left.get(), 0, "only a dead daemon fails");
        }
    }

    /// One thread does these.
    fn by_the_sealer(&self, act: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        if self.sealing.replace(true) {
            return Ok(());
        }
        let done = act();
        self.sealing.set(false);
        done
    }

    fn open(&self, file: &File<'_>) -> Result<(), Errno> {
        self.file(file.1, |f| f.opening += 1);
        let broken = self.step(Others::All).and_then(|()| {
            let lasting = self.lasting();
            if lasting.begin_invalidation(file)? == Invalidation::SyncNeeded {
                self.durable_breaks.set(self.durable_breaks.get() + 1);
                lasting.finish_invalidation(file)?;
            }
            Ok(())
        });
        self.file(file.1, |f| {
            // A kill has closed it.
            f.opening = f.opening.saturating_sub(1);
            if broken.is_ok() && self.left.get() > 0 {
                f.handed_out.push(false);
            }
        });
        broken
    }

    fn write(&self, index: usize) {
        let (block, now) = (self.random.below(BLOCKS), self.clock.get());
        let quiet = self.random.one_in(3);
        self.file(index, |file| {
            let Some(told) = file.handed_out.last_mut() else {
                return;
            };
            let value = file.blocks[block].now().wrapping_add(1);
            // Through a memory map only the first change of a page shows.
            if !*told || !quiet {
                *told = true;
                file.mtime.set(now);
                file.changes += 1;
            }
            file.blocks[block].set(value);
        });
    }

    fn seal(&self, file: &File<'_>) -> Result<(), Errno> {
        let lasting = self.lasting();
        if lasting.valid_checksums(file)?.is_some() {
            return Ok(());
        }
        lasting.invalidate(file)?;
        if file.has_writers()? == Some(true) {
            return Ok(());
        }
        let state = file.file_state()?;
        let seal = self.file(file.1, |f| f.seal());
        self.step(Others::All)?;
        if self.random.one_in(20) {
            // Someone writes meanwhile, and covers it up.
            self.open(file)?;
            self.write(file.1);
            self.file(file.1, |f| f.handed_out.clear());
            self.set_time_to(file, state.mtime.secs as u64)?;
        }
        let before = self.others.replace(Others::None);
        let put = lasting.store_checksums(file, seal, state);
        self.others.set(before);
        put.map(drop)
    }

    fn set_time(&self, file: &File<'_>) -> Result<(), Errno> {
        // To the time it has, to one it had, or to another.
        let known = self.file(file.1, |f| f.mtime.0.clone());
        let time = match self.random.below(3) {
            0 => self.clock.get(),
            _ => known[self.random.below(known.len())],
        };
        self.set_time_to(file, time)
    }

    fn set_time_to(&self, file: &File<'_>, time: u64) -> Result<(), Errno> {
        let lasting = self.lasting();
        let before = self.others.replace(Others::None);
        let done = lasting.set_mtime(file, at(time), || {
            self.step(Others::None)?;
            self.file(file.1, |f| {
                f.mtime.set(time);
                f.changes += 1;
            });
            Ok(())
        });
        self.others.set(before);
        done
    }

    fn cover(&self) -> Result<(), Errno> {
        let lasting = self.lasting();
        if !lasting.has_unrecorded() {
            return Ok(());
        }
        let marks = lasting.close_generation().unwrap();
        for index in 0..FILES {
            self.step(Others::All)?;
            self.file(index, Contents::synced);
        }
        self.step(Others::All)?;
        self.marks.borrow_mut().set(marks);
        self.step(Others::All)?;
        self.marks.borrow_mut().synced();
        Ok(())
    }

    /// The daemon starts, on a host that was started anew or not.
    fn start(&self) {
        for file in self.files.borrow_mut().iter_mut() {
            file.opening = 0;
        }
        let (boot, marks) = (self.boot.get(), self.marks.borrow().now());
        *self.lasting.borrow_mut() = ChecksumValidity::new(Some(boot), marks, true).into();
        self.left.set(match self.random.one_in(2) {
            true => self.random.below(30) as u64 + 1,
            false => u64::MAX,
        });
    }

    fn power_cut(&self) {
        for file in self.files.borrow_mut().iter_mut() {
            file.attribute.power_cut(&self.random);
            file.mtime.power_cut(&self.random);
            let blocks = file.blocks.iter_mut();
            blocks.for_each(|block| block.power_cut(&self.random));
            file.handed_out.clear();
        }
        self.marks.borrow_mut().power_cut(&self.random);
        self.boot.set(self.boot.get() + 1);
    }

    /// No seal that is believed says anything wrong. Returns how many there are.
    fn check(&self) -> u64 {
        self.left.set(u64::MAX);
        let before = self.others.replace(Others::None);
        let mut held = 0;
        for index in 0..FILES {
            let seal = self.lasting().valid_checksums(&File(self, index)).unwrap();
            if let Some(seal) = seal {
                let found = self.file(index, |f| f.seal());
                assert_eq!(
                    seal.first_difference(&found),
                    None,
                    "whole data count as damaged"
                );
                held += 1;
            }
        }
        self.others.set(before);
        held
    }
}

impl ChecksummedFile for File<'_> {
    fn read_attribute(&self, into: &mut [u8; MAX_CHECKSUMS_BYTES]) -> Result<Option<usize>, Errno> {
        self.0.step(Others::Sharing)?;
        let attribute = self.0.file(self.1, |f| f.attribute.now());
        Ok(attribute.map(|bytes| {
            into[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        }))
    }

    fn set_attribute(&self, bytes: &[u8]) -> Result<(), Errno> {
        self.0.step(Others::Sharing)?;
        self.0.file(self.1, |f| {
            f.attribute.set(Some(bytes.to_vec()));
            f.changes += 1;
        });
        Ok(())
    }

    fn remove_attribute(&self) -> Result<(), Errno> {
        self.0.step(Others::Sharing)?;
        self.0.file(self.1, |f| {
            f.attribute.set(None);
            f.changes += 1;
        });
        Ok(())
    }

    fn sync_file(&self) -> Result<(), Errno> {
        self.0.step(Others::All)?;
        self.0.file(self.1, Contents::synced);
        self.0.step(Others::All)
    }

    fn file_state(&self) -> Result<FileState, Errno> {
        self.0.step(Others::Sharing)?;
        Ok(self.0.file(self.1, |f| FileState {
            size: BLOCKS as u64,
            mtime: at(f.mtime.now()),
            ctime: at(f.changes),
        }))
    }

    fn has_writers(&self) -> Result<Option<bool>, Errno> {
        self.0.step(Others::Sharing)?;
        let open = |f: &mut Contents| f.opening > 0 || !f.handed_out.is_empty();
        Ok(Some(self.0.file(self.1, open)))
    }
}

#[test]
fn a_seal_that_is_believed_is_right() {
    let seeds = std::env::var("FOREBAY_SEEDS").ok();
    let seeds = seeds.and_then(|count| count.parse().ok()).unwrap_or(5000);
    let (mut held, mut broken) = (0, 0);
    for seed in 1..=seeds {
        let world = World::new(seed);
        for _ in 0..10 {
            world.start();
            let mut acts = world.random.below(60);
            while acts > 0 {
                acts -= 1;
                world.act();
                if world.left.get() == 0 {
                    world.start(); // killed: clients keep their descriptors
                    acts = acts.min(world.random.below(12));
                }
            }
            world.check();
            if world.random.one_in(2) {
                world.power_cut();
                world.start();
                held += world.check();
            }
        }
        broken += world.durable_breaks.get();
    }
    // Else nothing was tried.
    assert!(
        held > seeds / 2 && broken > seeds,
        "{held} held, {broken} broken, {seeds} seeds"
    );
}

#[test]
fn what_is_recorded_holds_over_a_power_cut_and_what_is_not_does_not() {
    let world = World::new(1);
    world.others.set(Others::None);
    let (first, second) = (File(&world, 0), File(&world, 1));
    world.seal(&first).unwrap();
    world.cover().unwrap();
    world.seal(&second).unwrap();
    world.file(1, Contents::synced);
    assert_eq!(world.check(), 2);
    world.power_cut();
    world.start();
    assert_eq!(world.check(), 1);
    assert!(world.lasting().valid_checksums(&first).unwrap().is_some());
    // It holds as well after another one, and another time leaves it as it is.
    world.left.set(u64::MAX);
    let set = || {
        world.file(0, |f| f.mtime.set(77));
        Ok(())
    };
    world.lasting().set_mtime(&first, at(77), set).unwrap();
    world.file(0, Contents::synced);
    world.power_cut();
    world.start();
    assert_eq!(world.check(), 1);
}
