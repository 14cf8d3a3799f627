//! [`Storage`] in memory with power failures: it loses unsynced writes, tears the last of them, fills
//! up and fails on request, all from one seed.

use forebay_store::storage::Storage;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

const SECTOR_BYTES: u64 = 512;

/// Faults to inject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The process crashes during the n-th write, sync or directory operation from now (1: the
    /// next one), which may have been carried out in part.
    pub crash_after_ops: Option<u64>,
    /// Total bytes of all files; more fails with `StorageFull`.
    pub capacity_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct SimulatedFile {
    /// Contents on the medium.
    durable: Vec<u8>,
    /// Writes since the last sync, in order; `None` data truncates the file at the offset.
    pending: Vec<(u64, Option<Vec<u8>>)>,
    reserved: u64,
}

impl SimulatedFile {
    fn current(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for (offset, data) in &self.pending {
            apply_write(&mut bytes, *offset, data.as_deref());
        }
        bytes
    }

    fn capacity(&self) -> u64 {
        self.reserved.max(self.current().len() as u64)
    }
}

fn apply_write(bytes: &mut Vec<u8>, offset: u64, data: Option<&[u8]>) {
    let offset = offset as usize;
    match data {
        None => bytes.truncate(offset),
        Some(data) => {
            if bytes.len() < offset + data.len() {
                bytes.resize(offset + data.len(), 0);
            }
            bytes[offset..offset + data.len()].copy_from_slice(data);
        }
    }
}

#[derive(Debug, Default)]
struct Directory {
    files: Vec<SimulatedFile>,
    /// Names as the process sees them.
    names: BTreeMap<String, usize>,
    /// Names on the medium.
    durable_names: BTreeMap<String, usize>,
    fault: Fault,
    crashed: bool,
    random: u64,
}

/// A simulated directory. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryStorage(Arc<Mutex<Directory>>);

impl MemoryStorage {
    /// An empty directory. All faults are derived from `seed`.
    pub fn new(seed: u64) -> MemoryStorage {
        MemoryStorage(Arc::new(Mutex::new(Directory { random: seed | 1, ..Directory::default() })))
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.0.lock().unwrap()
    }

    /// Inject a fault.
    pub fn set_fault(&self, fault: Fault) {
        self.directory().fault = fault;
    }

    /// Whether the process crashed because of a [`Fault`].
    pub fn has_crashed(&self) -> bool {
        self.directory().crashed
    }

    /// Flip one bit of a file's durable contents, as a failing medium does.
    pub fn flip_bit(&self, name: &str, byte: u64, bit: u8) {
        let mut directory = self.directory();
        if let Some(&id) = directory.names.get(name)
            && let Some(byte) = directory.files[id].durable.get_mut(byte as usize)
        {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// The process restarts without a power failure: all completed writes remain. A capacity fault
    /// remains in effect.
    pub fn restart_process(&self) {
        self.directory().revive();
    }

    /// The power fails and returns. Any subset of the writes since the last sync survives, each in
    /// whole or in part; directory operations survive up to some point. A capacity fault remains
    /// in effect.
    pub fn power_cut(&self) {
        let mut directory = self.directory();
        let directory = &mut *directory;
        directory.revive();
        if next_random(&mut directory.random).is_multiple_of(2) {
            directory.names = directory.durable_names.clone();
        } else {
            directory.durable_names = directory.names.clone();
        }
        for file in &mut directory.files {
            for (offset, data) in std::mem::take(&mut file.pending) {
                match next_random(&mut directory.random) % 4 {
                    0 => {}
                    1 => {
                        // Torn write: a subset of its sectors reaches the medium.
                        if let Some(data) = data {
                            for (at, sector) in split_sectors(offset, &data) {
                                if next_random(&mut directory.random).is_multiple_of(2) {
                                    apply_write(&mut file.durable, at, Some(sector));
                                }
                            }
                        }
                    }
                    _ => apply_write(&mut file.durable, offset, data.as_deref()),
                }
            }
            assert!(file.pending.is_empty());
        }
    }

    /// Carry out an operation, which learns whether the process crashes during it.
    fn mutate<T>(&self, act: impl FnOnce(&mut Directory, bool) -> io::Result<T>) -> io::Result<T> {
        let mut directory = self.directory();
        if directory.crashed {
            return Err(io::Error::other("the simulated process has crashed"));
        }
        let mut crashes = false;
        if let Some(remaining) = &mut directory.fault.crash_after_ops {
            *remaining = remaining.saturating_sub(1);
            crashes = *remaining == 0;
        }
        let result = act(&mut directory, crashes);
        if crashes {
            directory.crashed = true;
            return Err(io::Error::other("the simulated process crashed here"));
        }
        result
    }
}

fn split_sectors(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        (at < data.len()).then(|| {
            let place = offset + at as u64;
            let left = (data.len() - at) as u64;
            let length = (SECTOR_BYTES - place % SECTOR_BYTES).min(left) as usize;
            at += length;
            (place, &data[at - length..at])
        })
    })
}

/// xorshift64* (Vigna 2016).
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

impl Directory {
    fn revive(&mut self) {
        self.crashed = false;
        self.fault.crash_after_ops = None;
    }

    fn id(&self, name: &str) -> io::Result<usize> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no file {name}"));
        self.names.get(name).copied().ok_or_else(missing)
    }

    /// Whether an operation takes effect: always, unless the process crashes during it, which
    /// carries out half of the operations.
    fn takes_effect(&mut self, crashes: bool) -> bool {
        !crashes || next_random(&mut self.random).is_multiple_of(2)
    }

    fn check_capacity(&self, id: usize, length: u64) -> io::Result<()> {
        let Some(capacity) = self.fault.capacity_bytes else {
            return Ok(());
        };
        let others = self.names.values().filter(|other| **other != id);
        let used: u64 = others.map(|other| self.files[*other].capacity()).sum();
        if used + length > capacity { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Storage for MemoryStorage {
    fn list_files(&self) -> io::Result<Vec<String>> {
        Ok(self.directory().names.keys().cloned().collect())
    }

    fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        let directory = self.directory();
        Ok(directory.files[directory.id(name)?].current())
    }

    fn read_file_at(&self, name: &str, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let directory = self.directory();
        let contents = directory.files[directory.id(name)?].current();
        let from = contents.get(offset as usize..).unwrap_or_default();
        let count = from.len().min(bytes.len());
        bytes[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn create_file(&self, name: &str, reserve: u64) -> io::Result<()> {
        self.mutate(|directory, crashes| {
            let id = directory.files.len();
            directory.check_capacity(id, reserve)?;
            if directory.takes_effect(crashes) {
                directory
                    .files
                    .push(SimulatedFile { reserved: reserve, ..SimulatedFile::default() });
                directory.names.insert(name.to_owned(), id);
            }
            Ok(())
        })
    }

    fn write_file(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.mutate(|directory, crashes| {
            let id = directory.id(name)?;
            let end = offset + bytes.len() as u64;
            if end > directory.files[id].reserved {
                directory.check_capacity(id, end)?;
            }
            let kept = match (crashes, bytes.len()) {
                (true, 1..) => (next_random(&mut directory.random) % bytes.len() as u64) as usize,
                _ => bytes.len(),
            };
            directory.files[id].pending.push((offset, Some(bytes[..kept].to_vec())));
            Ok(())
        })
    }

    fn file_capacity(&self, name: &str) -> io::Result<u64> {
        let directory = self.directory();
        Ok(directory.files[directory.id(name)?].capacity())
    }

    fn zero_tail(&self, name: &str, part: Range<u64>, reserve: u64) -> io::Result<u64> {
        assert!(part.start <= part.end);
        self.mutate(|directory, crashes| {
            let id = directory.id(name)?;
            if directory.takes_effect(crashes) {
                directory.files[id].pending.push((part.start, None));
                if directory.check_capacity(id, reserve).is_ok() {
                    let reserved = &mut directory.files[id].reserved;
                    *reserved = (*reserved).max(reserve);
                }
            }
            Ok(directory.files[id].reserved)
        })
    }

    fn truncate_file(&self, name: &str, length: u64) -> io::Result<()> {
        self.mutate(|directory, crashes| {
            let id = directory.id(name)?;
            if directory.takes_effect(crashes) {
                directory.files[id].pending.push((length, None));
                directory.files[id].reserved = length;
            }
            Ok(())
        })
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        self.mutate(|directory, crashes| {
            let id = directory.id(name)?;
            if !crashes {
                let current = directory.files[id].current();
                directory.files[id].durable = current;
                directory.files[id].pending.clear();
            }
            Ok(())
        })
    }

    fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        self.mutate(|directory, crashes| {
            let id = directory.id(from)?;
            if directory.takes_effect(crashes) {
                directory.names.remove(from);
                directory.names.insert(to.to_owned(), id);
            }
            Ok(())
        })
    }

    fn remove_file(&self, name: &str) -> io::Result<()> {
        self.mutate(|directory, crashes| {
            directory.id(name)?;
            if directory.takes_effect(crashes) {
                directory.names.remove(name);
            }
            Ok(())
        })
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.mutate(|directory, crashes| {
            if !crashes {
                directory.durable_names = directory.names.clone();
            }
            Ok(())
        })
    }
}
