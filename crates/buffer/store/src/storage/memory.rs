//! Files in memory that behave as on a disk which may lose power at any write.

use super::Storage;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What goes wrong next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The process dies in the middle of the n-th write, sync or name change from now (1: the
    /// next). A write may have been carried out in part by then.
    pub crash_after_ops: Option<u64>,
    /// Bytes that all files together may take; more fails with `StorageFull`.
    pub capacity_bytes: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    /// What is on the medium for sure.
    synced: Vec<u8>,
    /// Writes since, in order; `None` data is a truncation to the offset.
    pending: Vec<(u64, Option<Vec<u8>>)>,
    reserved: u64,
}

impl Contents {
    fn current(&self) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for (offset, data) in &self.pending {
            apply(&mut bytes, *offset, data.as_deref());
        }
        bytes
    }
}

fn apply(bytes: &mut Vec<u8>, offset: u64, data: Option<&[u8]>) {
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
struct State {
    files: Vec<Contents>,
    /// Names as the process sees them, and as they are on the medium.
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    fault: Fault,
    dead: bool,
    random: u64,
}

/// A simulated directory. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryStorage(Arc<Mutex<State>>);

impl MemoryStorage {
    /// An empty directory whose misfortunes follow from `seed`.
    pub fn new(seed: u64) -> MemoryStorage {
        MemoryStorage(Arc::new(Mutex::new(State {
            random: seed | 1,
            ..State::default()
        })))
    }

    /// What goes wrong from now on.
    pub fn set_fault(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    /// Has the process died of a [`Fault`]?
    pub fn has_crashed(&self) -> bool {
        self.lock().dead
    }

    /// Flip one bit of a file, as a failing medium does.
    pub fn flip_bit(&self, name: &str, byte: u64, bit: u8) {
        let mut state = self.lock();
        if let Some(&id) = state.names.get(name)
            && let Some(byte) = state.files[id].synced.get_mut(byte as usize)
        {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// The process ends but the machine does not: everything written stays. What is full stays so.
    pub fn restart_process(&self) {
        self.lock().revive();
    }

    /// The power fails and returns. Of the writes since the last sync any subset survives, in
    /// whole or in part; of the changes of names, those up to some point. What is full stays so.
    pub fn power_cut(&self) {
        let mut state = self.lock();
        let state = &mut *state;
        state.revive();
        if next(&mut state.random).is_multiple_of(2) {
            state.names = state.synced_names.clone();
        } else {
            state.synced_names = state.names.clone();
        }
        for file in &mut state.files {
            for (offset, data) in std::mem::take(&mut file.pending) {
                match next(&mut state.random) % 4 {
                    0 => {}
                    1 => {
                        // Torn: only some of its 512-byte sectors arrive.
                        if let Some(data) = data {
                            for (at, sector) in sectors(offset, &data) {
                                if next(&mut state.random).is_multiple_of(2) {
                                    apply(&mut file.synced, at, Some(sector));
                                }
                            }
                        }
                    }
                    _ => apply(&mut file.synced, offset, data.as_deref()),
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mutate<T>(&self, act: impl FnOnce(&mut State, bool) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.lock();
        if state.dead {
            return Err(io::Error::other("the simulated process is dead"));
        }
        let mut dies = false;
        if let Some(left) = &mut state.fault.crash_after_ops {
            *left = left.saturating_sub(1);
            dies = *left == 0;
        }
        let result = act(&mut state, dies);
        if dies {
            state.dead = true;
            return Err(io::Error::other("the simulated process died here"));
        }
        result
    }
}

fn sectors(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        (at < data.len()).then(|| {
            let place = offset + at as u64;
            let length = (512 - place % 512).min((data.len() - at) as u64) as usize;
            at += length;
            (place, &data[at - length..at])
        })
    })
}

/// xorshift64* (Vigna 2016).
fn next(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {name}"))
}

impl State {
    fn revive(&mut self) {
        self.dead = false;
        self.fault.crash_after_ops = None;
    }

    fn id(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| missing(name))
    }

    fn check_room(&self, id: usize, length: u64) -> io::Result<()> {
        let Some(capacity) = self.fault.capacity_bytes else {
            return Ok(());
        };
        let others: u64 = self
            .names
            .values()
            .filter(|other| **other != id)
            .map(|other| {
                let file = &self.files[*other];
                file.reserved.max(file.current().len() as u64)
            })
            .sum();
        if others + length > capacity {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

impl Storage for MemoryStorage {
    fn list_files(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn read_file(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.lock();
        Ok(state.files[state.id(name)?].current())
    }

    fn create_file(&self, name: &str, reserve: u64) -> io::Result<()> {
        self.mutate(|state, dies| {
            let id = state.files.len();
            state.check_room(id, reserve)?;
            if !dies || next(&mut state.random).is_multiple_of(2) {
                state.files.push(Contents {
                    reserved: reserve,
                    ..Contents::default()
                });
                state.names.insert(name.to_owned(), id);
            }
            Ok(())
        })
    }

    fn write_file(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.mutate(|state, dies| {
            let id = state.id(name)?;
            let end = offset + bytes.len() as u64;
            if end > state.files[id].reserved {
                state.check_room(id, end)?;
            }
            let keep = match (dies, bytes.len()) {
                (true, 1..) => (next(&mut state.random) % bytes.len() as u64) as usize,
                _ => bytes.len(),
            };
            state.files[id]
                .pending
                .push((offset, Some(bytes[..keep].to_vec())));
            Ok(())
        })
    }

    fn file_capacity(&self, name: &str) -> io::Result<u64> {
        let state = self.lock();
        let file = &state.files[state.id(name)?];
        Ok(file.reserved.max(file.current().len() as u64))
    }

    fn zero_tail(&self, name: &str, part: Range<u64>, reserve: u64) -> io::Result<u64> {
        self.mutate(|state, dies| {
            let id = state.id(name)?;
            if !dies || next(&mut state.random).is_multiple_of(2) {
                state.files[id].pending.push((part.start, None));
                if state.check_room(id, reserve).is_ok() {
                    state.files[id].reserved = state.files[id].reserved.max(reserve);
                }
            }
            Ok(state.files[id].reserved)
        })
    }

    fn truncate_file(&self, name: &str, length: u64) -> io::Result<()> {
        self.mutate(|state, dies| {
            let id = state.id(name)?;
            if !dies || next(&mut state.random).is_multiple_of(2) {
                state.files[id].pending.push((length, None));
                state.files[id].reserved = length;
            }
            Ok(())
        })
    }

    fn sync_file(&self, name: &str) -> io::Result<()> {
        self.mutate(|state, dies| {
            let id = state.id(name)?;
            if !dies {
                let current = state.files[id].current();
                state.files[id].synced = current;
                state.files[id].pending.clear();
            }
            Ok(())
        })
    }

    fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        self.mutate(|state, dies| {
            let id = state.id(from)?;
            if !dies || next(&mut state.random).is_multiple_of(2) {
                state.names.remove(from);
                state.names.insert(to.to_owned(), id);
            }
            Ok(())
        })
    }

    fn remove_file(&self, name: &str) -> io::Result<()> {
        self.mutate(|state, dies| {
            state.id(name)?;
            if !dies || next(&mut state.random).is_multiple_of(2) {
                state.names.remove(name);
            }
            Ok(())
        })
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.mutate(|state, dies| {
            if !dies {
                state.synced_names = state.names.clone();
            }
            Ok(())
        })
    }
}
