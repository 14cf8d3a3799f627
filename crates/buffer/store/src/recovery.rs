//! From log and checkpoint back to the state, and from the state to a checkpoint.
//!
//! A checkpoint `checkpoint.<sequence>` holds the state after that record. It is made from the
//! previous one and closed log segments, never from the running daemon's tables, so it can be made
//! in another thread, and every checkpoint exercises what recovery does.
//!
//! Checkpoints free the segments they cover, and that must be possible on a full storage, too. So
//! the space for the next one is kept in `spare.checkpoint`: as much as the last one took and a
//! segment's records may add to it.

use crate::log::spare_segment::{ensure_spare_segment, is_out_of_space, reserve_file};
use crate::log::{self, Log, RecoveryError, segment_first_sequence};
use crate::node::{NodeState, Record};
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
pub fn recover_state<S: Storage>(
    storage: S,
    segment_size: u64,
) -> Result<(NodeState, Log<S>), RecoveryError> {
    let (mut state, sequence) = load_checkpoint(&storage)?;
    let log = log::recover_log(storage, segment_size, sequence, |sequence, bytes| {
        apply(&mut state, sequence, bytes)
    })?;
    Ok((state, log))
}

fn apply(state: &mut NodeState, sequence: u64, bytes: &[u8]) -> Result<(), RecoveryError> {
    let inconsistent = |why: String| RecoveryError::InconsistentRecord { sequence, why };
    let record: Record = postcard::from_bytes(bytes).map_err(|e| inconsistent(e.to_string()))?;
    state
        .apply(&record)
        .map_err(|why| inconsistent(why.to_owned()))
}

fn newest_checkpoint<S: Storage>(storage: &S) -> io::Result<Option<u64>> {
    let names = storage.list_files()?;
    Ok(names
        .iter()
        .filter_map(|name| checkpoint_sequence(name))
        .max())
}

fn load_checkpoint<S: Storage>(storage: &S) -> Result<(NodeState, u64), RecoveryError> {
    let Some(sequence) = newest_checkpoint(storage)? else {
        return Ok((NodeState::default(), 0));
    };
    let name = checkpoint_name(sequence);
    let bytes = storage.read_file(&name)?;
    let damaged = || RecoveryError::DamagedCheckpoint(name.clone());
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
pub fn write_checkpoint<S: Storage>(
    storage: &S,
    segment_start: u64,
) -> Result<bool, RecoveryError> {
    let (mut state, mut sequence) = load_checkpoint(storage)?;
    if sequence + 1 >= segment_start {
        // One who made it may not have come to remove what it covers.
        remove_covered(storage, sequence)?;
        return Ok(false);
    }
    log::scan_closed_segments(storage, sequence, segment_start, |number, bytes| {
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
    storage.write_file(TEMPORARY, 0, &bytes)?;
    storage.truncate_file(TEMPORARY, bytes.len() as u64)?;
    storage.sync_file(TEMPORARY)?;
    storage.rename_file(TEMPORARY, &checkpoint_name(sequence))?;
    remove_covered(storage, sequence)?;
    Ok(true)
}

/// Remove what the checkpoint with this number makes superfluous.
fn remove_covered<S: Storage>(storage: &S, sequence: u64) -> io::Result<()> {
    storage.sync_directory()?;
    for name in storage.list_files()? {
        let old_checkpoint = checkpoint_sequence(&name).is_some_and(|s| s < sequence);
        let old_segment = segment_first_sequence(&name).is_some_and(|first| first <= sequence);
        if old_checkpoint || old_segment {
            storage.remove_file(&name)?;
        }
    }
    Ok(())
}

/// Have a file for a checkpoint of so many bytes: a new one, or the one in reserve.
fn make_room<S: Storage>(storage: &S, bytes: u64) -> io::Result<()> {
    let names = storage.list_files()?;
    let is_there = |wanted: &str| names.iter().any(|name| name == wanted);
    // Left by a daemon that was killed. It may have been what was in reserve.
    if is_there(TEMPORARY) {
        match is_there(SPARE) {
            true => storage.remove_file(TEMPORARY)?,
            false => storage.rename_file(TEMPORARY, SPARE)?,
        }
    }
    let Err(error) = storage.create_file(TEMPORARY, bytes) else {
        return Ok(());
    };
    let enough =
        is_out_of_space(&error) && storage.file_capacity(SPARE).is_ok_and(|room| room >= bytes);
    match enough {
        true => storage.rename_file(SPARE, TEMPORARY),
        false => Err(error),
    }
}

/// Have in reserve what a full storage needs: a segment, and space for a checkpoint. Not while a
/// checkpoint is made.
pub fn ensure_spares<S: Storage>(storage: &S, segment_size: u64) -> io::Result<()> {
    ensure_spare_segment(storage, segment_size)?;
    let last = match newest_checkpoint(storage)? {
        Some(sequence) => storage.file_capacity(&checkpoint_name(sequence))?,
        None => 0,
    };
    // In steps, so that it need not be made anew for every checkpoint.
    let least = last.next_multiple_of(segment_size / 16);
    let there = match storage.list_files()?.iter().any(|name| name == SPARE) {
        true => storage.file_capacity(SPARE)?,
        false => 0,
    };
    if there >= least + segment_size {
        return Ok(());
    }
    let outcome = reserve_file(storage, SPARE, least + segment_size);
    if there > least || !outcome.as_ref().is_err_and(is_out_of_space) {
        return outcome;
    }
    // Less is better than nothing: not every record makes the state larger.
    let less = [2, 4, 8, 16].map(|part| least + segment_size / part);
    let made = less.into_iter().find_map(|bytes| {
        let made = reserve_file(storage, SPARE, bytes);
        (!made.as_ref().is_err_and(is_out_of_space)).then_some(made)
    });
    made.unwrap_or(Ok(())).and(outcome)
}
