//! From log and checkpoint back to the state, and from the state to a checkpoint.
//!
//! A checkpoint `checkpoint.<sequence>` holds the state after that record. It is made from the
//! previous one and closed log segments, never from the running daemon's tables, so it can be made
//! in another thread, and every checkpoint exercises what recovery does.
//!
//! Checkpoints free the segments they cover, and that must be possible on a full storage, too. So
//! the space for the next one is kept in `spare.checkpoint`: as much as the last one took and a
//! segment's records may add to it.

use crate::log::spare::{is_full, keep_spare, set_aside};
use crate::log::{self, Log, RecoverError, segment_first};
use crate::shard::{Record, State};
use crate::storage::Storage;
use std::io;

const MAGIC: &[u8; 8] = b"FBAYCKP1";
const TEMPORARY: &str = "checkpoint.tmp";
/// Space for a checkpoint.
const SPARE: &str = "spare.checkpoint";

fn checkpoint_name(sequence: u64) -> String {
    format!("checkpoint.{sequence:016x}")
}

fn checkpoint_sequence(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("checkpoint.")?, 16).ok()
}

/// Read the state back. Returns it with the log, open for appending.
pub fn recover<S: Storage>(storage: S, segment_size: u64) -> Result<(State, Log<S>), RecoverError> {
    let (mut state, sequence) = load_checkpoint(&storage)?;
    let log = log::recover(storage, segment_size, sequence, |sequence, bytes| {
        apply(&mut state, sequence, bytes)
    })?;
    Ok((state, log))
}

fn apply(state: &mut State, sequence: u64, bytes: &[u8]) -> Result<(), RecoverError> {
    let inconsistent = |why: String| RecoverError::Inconsistent { sequence, why };
    let record: Record = postcard::from_bytes(bytes).map_err(|e| inconsistent(e.to_string()))?;
    state
        .apply(&record)
        .map_err(|why| inconsistent(why.to_owned()))
}

fn newest_checkpoint<S: Storage>(storage: &S) -> io::Result<Option<u64>> {
    let names = storage.list()?;
    Ok(names
        .iter()
        .filter_map(|name| checkpoint_sequence(name))
        .max())
}

fn load_checkpoint<S: Storage>(storage: &S) -> Result<(State, u64), RecoverError> {
    let Some(sequence) = newest_checkpoint(storage)? else {
        return Ok((State::default(), 0));
    };
    let name = checkpoint_name(sequence);
    let bytes = storage.read(&name)?;
    let damaged = || RecoverError::Checkpoint(name.clone());
    let sum = bytes
        .get(8..12)
        .and_then(|sum| sum.try_into().ok())
        .map(u32::from_le_bytes);
    let body = bytes.get(12..).ok_or_else(damaged)?;
    if !bytes.starts_with(MAGIC) || sum != Some(crc32c::crc32c(body)) {
        return Err(damaged());
    }
    let state = postcard::from_bytes(body).map_err(|_| damaged())?;
    Ok((state, sequence))
}

/// Make a checkpoint that covers all segments before the one that starts with record
/// `segment_start`, and remove what it makes superfluous. Returns whether there was anything to
/// cover. The segments must not be written to any more.
pub fn checkpoint<S: Storage>(storage: &S, segment_start: u64) -> Result<bool, RecoverError> {
    let (mut state, mut sequence) = load_checkpoint(storage)?;
    if sequence + 1 >= segment_start {
        // One who made it may not have come to remove what it covers.
        remove_covered(storage, sequence)?;
        return Ok(false);
    }
    log::scan(storage, sequence, segment_start, |number, bytes| {
        sequence = number;
        apply(&mut state, number, bytes)
    })?;
    let body = postcard::to_stdvec(&state)
        .map_err(|error| io::Error::other(format!("cannot encode a checkpoint: {error}")))?;
    let mut bytes = Vec::with_capacity(body.len() + 12);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    make_room(storage, bytes.len() as u64)?;
    storage.write(TEMPORARY, 0, &bytes)?;
    storage.cut(TEMPORARY, bytes.len() as u64)?;
    storage.sync(TEMPORARY)?;
    storage.rename(TEMPORARY, &checkpoint_name(sequence))?;
    remove_covered(storage, sequence)?;
    Ok(true)
}

/// Remove what the checkpoint with this number makes superfluous.
fn remove_covered<S: Storage>(storage: &S, sequence: u64) -> io::Result<()> {
    storage.sync_names()?;
    for name in storage.list()? {
        let old_checkpoint = checkpoint_sequence(&name).is_some_and(|s| s < sequence);
        let old_segment = segment_first(&name).is_some_and(|first| first <= sequence);
        if old_checkpoint || old_segment {
            storage.remove(&name)?;
        }
    }
    Ok(())
}

/// Have a file for a checkpoint of so many bytes: a new one, or the one in reserve.
fn make_room<S: Storage>(storage: &S, bytes: u64) -> io::Result<()> {
    let names = storage.list()?;
    let is_there = |wanted: &str| names.iter().any(|name| name == wanted);
    // Left by a daemon that was killed. It may have been what was in reserve.
    if is_there(TEMPORARY) {
        match is_there(SPARE) {
            true => storage.remove(TEMPORARY)?,
            false => storage.rename(TEMPORARY, SPARE)?,
        }
    }
    let Err(error) = storage.create(TEMPORARY, bytes) else {
        return Ok(());
    };
    let enough = is_full(&error) && storage.room(SPARE).is_ok_and(|room| room >= bytes);
    match enough {
        true => storage.rename(SPARE, TEMPORARY),
        false => Err(error),
    }
}

/// Have in reserve what a full storage needs: a segment, and space for a checkpoint. Not while a
/// checkpoint is made.
pub fn keep_spares<S: Storage>(storage: &S, segment_size: u64) -> io::Result<()> {
    keep_spare(storage, segment_size)?;
    let last = match newest_checkpoint(storage)? {
        Some(sequence) => storage.room(&checkpoint_name(sequence))?,
        None => 0,
    };
    // In steps, so that it need not be made anew for every checkpoint.
    let least = last.next_multiple_of(segment_size / 16);
    let there = match storage.list()?.iter().any(|name| name == SPARE) {
        true => storage.room(SPARE)?,
        false => 0,
    };
    if there >= least + segment_size {
        return Ok(());
    }
    let outcome = set_aside(storage, SPARE, least + segment_size);
    if there > least || !outcome.as_ref().is_err_and(is_full) {
        return outcome;
    }
    // Less is better than nothing: not every record makes the state larger.
    let less = [2, 4, 8, 16].map(|part| least + segment_size / part);
    let made = less.into_iter().find_map(|bytes| {
        let made = set_aside(storage, SPARE, bytes);
        (!made.as_ref().is_err_and(is_full)).then_some(made)
    });
    made.unwrap_or(Ok(())).and(outcome)
}
