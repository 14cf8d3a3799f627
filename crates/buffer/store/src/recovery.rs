//! Recovery of the state from checkpoint and log, and creation of checkpoints.
//!
//! A checkpoint `checkpoint.<sequence>` holds the state after that record. It is made from the
//! previous checkpoint and closed log segments, never from the running daemon's tables. So another
//! thread can make it, and every checkpoint exercises the recovery code.
//!
//! Checkpoints free the segments they cover, which must be possible on a full storage. Space for
//! the next checkpoint is therefore reserved in `spare.checkpoint`: the size of the last checkpoint
//! plus what the records of one segment can add.

use crate::log::spare_segment::{ensure_spare_segment, reserve_file};
use crate::log::{Log, RecoveryError, recover_log, scan_closed_segments, segment_first_sequence};
use crate::node::{NodeState, Record};
use crate::storage::{Storage, is_out_of_space};
use std::io;

const MAGIC: &[u8; 8] = b"FBAYCKP1";
const TEMPORARY: &str = "checkpoint.tmp";
const SPARE_CHECKPOINT: &str = "spare.checkpoint";

fn checkpoint_name(sequence: u64) -> String {
    format!("checkpoint.{sequence:016x}")
}

fn checkpoint_sequence(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("checkpoint.")?, 16).ok()
}

/// Recover the state. Returns it with the log, open for appending.
pub fn recover_state<S: Storage>(
    storage: S,
    segment_size: u64,
) -> Result<(NodeState, Log<S>), RecoveryError> {
    let (mut state, sequence) = load_checkpoint(&storage)?;
    let log = recover_log(storage, segment_size, sequence, |sequence, bytes| {
        apply_record(&mut state, sequence, bytes)
    })?;
    assert!(log.last_sequence() >= sequence, "the log lags its checkpoint");
    Ok((state, log))
}

fn apply_record(state: &mut NodeState, sequence: u64, bytes: &[u8]) -> Result<(), RecoveryError> {
    let inconsistent = |why: String| RecoveryError::InconsistentRecord { sequence, why };
    let record: Record = postcard::from_bytes(bytes).map_err(|e| inconsistent(e.to_string()))?;
    state.apply(&record).map_err(|why| inconsistent(why.to_owned()))
}

fn newest_checkpoint<S: Storage>(storage: &S) -> io::Result<Option<u64>> {
    let names = storage.list_files()?;
    Ok(names.iter().filter_map(|name| checkpoint_sequence(name)).max())
}

fn load_checkpoint<S: Storage>(storage: &S) -> Result<(NodeState, u64), RecoveryError> {
    let Some(sequence) = newest_checkpoint(storage)? else {
        return Ok((NodeState::default(), 0));
    };
    let name = checkpoint_name(sequence);
    let bytes = storage.read_file(&name)?;
    let damaged = || RecoveryError::DamagedCheckpoint(name.clone());
    let sum = bytes.get(8..12).and_then(|sum| sum.try_into().ok()).map(u32::from_le_bytes);
    let body = bytes.get(12..).ok_or_else(damaged)?;
    if !bytes.starts_with(MAGIC) || sum != Some(crc32c::crc32c(body)) {
        return Err(damaged());
    }
    let state = postcard::from_bytes(body).map_err(|_| damaged())?;
    Ok((state, sequence))
}

/// Write a checkpoint that covers all segments before the one that begins with record
/// `segment_start`, and remove the files it replaces. Those segments must be closed. Returns false
/// if the newest checkpoint covers them already.
pub fn write_checkpoint<S: Storage>(
    storage: &S,
    segment_start: u64,
) -> Result<bool, RecoveryError> {
    let (mut state, mut sequence) = load_checkpoint(storage)?;
    if sequence + 1 >= segment_start {
        // The process that wrote it may have crashed before it removed the replaced files.
        remove_covered_files(storage, sequence)?;
        return Ok(false);
    }
    scan_closed_segments(storage, sequence, segment_start, |number, bytes| {
        assert_eq!(number, sequence + 1, "replayed records are contiguous");
        sequence = number;
        apply_record(&mut state, number, bytes)
    })?;
    assert_eq!(sequence + 1, segment_start, "a checkpoint covers all closed segments");
    let body = postcard::to_stdvec(&state)
        .map_err(|error| io::Error::other(format!("cannot encode checkpoint: {error}")))?;
    let mut bytes = Vec::with_capacity(body.len() + 12);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    bytes.extend_from_slice(&body);
    create_temporary(storage, bytes.len() as u64)?;
    storage.write_file(TEMPORARY, 0, &bytes)?;
    storage.truncate_file(TEMPORARY, bytes.len() as u64)?;
    storage.sync_file(TEMPORARY)?;
    storage.rename_file(TEMPORARY, &checkpoint_name(sequence))?;
    remove_covered_files(storage, sequence)?;
    Ok(true)
}

/// Remove the checkpoints and segments that the checkpoint with this sequence number replaces.
fn remove_covered_files<S: Storage>(storage: &S, sequence: u64) -> io::Result<()> {
    storage.sync_directory()?;
    for name in storage.list_files()? {
        let is_old_checkpoint = checkpoint_sequence(&name).is_some_and(|s| s < sequence);
        let is_old_segment = segment_first_sequence(&name).is_some_and(|first| first <= sequence);
        if is_old_checkpoint || is_old_segment {
            storage.remove_file(&name)?;
        }
    }
    Ok(())
}

/// Create the temporary file for a checkpoint of `bytes` bytes, from the reserve if necessary.
fn create_temporary<S: Storage>(storage: &S, bytes: u64) -> io::Result<()> {
    let names = storage.list_files()?;
    let exists = |wanted: &str| names.iter().any(|name| name == wanted);
    // Left behind by a crash; it may have been the reserve.
    if exists(TEMPORARY) {
        if exists(SPARE_CHECKPOINT) {
            storage.remove_file(TEMPORARY)?
        } else {
            storage.rename_file(TEMPORARY, SPARE_CHECKPOINT)?
        }
    }
    let Err(error) = storage.create_file(TEMPORARY, bytes) else {
        return Ok(());
    };
    let has_reserve = |capacity| capacity >= bytes;
    if is_out_of_space(&error) && storage.file_capacity(SPARE_CHECKPOINT).is_ok_and(has_reserve) {
        storage.rename_file(SPARE_CHECKPOINT, TEMPORARY)
    } else {
        Err(error)
    }
}

/// Reserve a segment and space for a checkpoint. Must not run concurrently with
/// [`write_checkpoint`].
pub fn ensure_spares<S: Storage>(storage: &S, segment_size: u64) -> io::Result<()> {
    ensure_spare_segment(storage, segment_size)?;
    let last = match newest_checkpoint(storage)? {
        Some(sequence) => storage.file_capacity(&checkpoint_name(sequence))?,
        None => 0,
    };
    // Rounded up, so that not every checkpoint replaces the reserve.
    let minimum = last.next_multiple_of(segment_size / 16);
    let reserved = if storage.list_files()?.iter().any(|n| n == SPARE_CHECKPOINT) {
        storage.file_capacity(SPARE_CHECKPOINT)?
    } else {
        0
    };
    if reserved >= minimum + segment_size {
        return Ok(());
    }
    let outcome = reserve_file(storage, SPARE_CHECKPOINT, minimum + segment_size);
    if reserved > minimum || !outcome.as_ref().is_err_and(is_out_of_space) {
        return outcome;
    }
    // A smaller reserve is better than none: not every record enlarges the state.
    let smaller = [2, 4, 8, 16].map(|part| minimum + segment_size / part);
    let reserved = smaller.into_iter().find_map(|bytes| {
        let reserved = reserve_file(storage, SPARE_CHECKPOINT, bytes);
        (!reserved.as_ref().is_err_and(is_out_of_space)).then_some(reserved)
    });
    reserved.unwrap_or(Ok(())).and(outcome)
}
