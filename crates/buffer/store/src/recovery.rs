//! Recovery of the state from checkpoint and log, and creation of checkpoints.
//!
//! A checkpoint `checkpoint.<sequence>` holds the state after that record. It is made from the
//! previous checkpoint and closed log segments, never from the running daemon's tables. So another
//! thread can make it, and every checkpoint exercises the recovery code.
//!
//! The checkpoint from which the newest one was made is kept, with the segments since then. If the
//! newest one is damaged, the state is recovered from these. They are given up when the storage is full.
//!
//! Checkpoints free the segments they cover, which must be possible on a full storage. Space for
//! the next checkpoint is therefore reserved in `spare.checkpoint`: the size of the last checkpoint
//! plus what the records of one segment can add.

use crate::checkpoint::{checkpoint_bytes, is_whole, read_state, write_state};
use crate::log::spare_segment::{ensure_spare_segment, reserve_file};
use crate::log::{Log, RecoveryError, recover_log, scan_closed_segments, segment_first_sequence};
use crate::node::{NodeState, Record};
use crate::storage::{Storage, is_out_of_space};
use std::io;

const TEMPORARY: &str = "checkpoint.tmp";
const SPARE_CHECKPOINT: &str = "spare.checkpoint";

/// File name of the checkpoint that covers the records up to `sequence`.
pub fn checkpoint_name(sequence: u64) -> String {
    format!("checkpoint.{sequence:016x}")
}

/// The last record that a checkpoint covers, from its file name.
pub fn checkpoint_sequence(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_prefix("checkpoint.")?, 16).ok()
}

/// Recover the state. Returns it with the log, open for appending.
pub fn recover_state<S: Storage>(
    storage: S,
    segment_size: u64,
) -> Result<(NodeState, Log<S>), RecoveryError> {
    let Loaded { mut state, sequence } = load_checkpoint(&storage)?;
    let log = recover_log(storage, segment_size, sequence, |sequence, bytes| {
        apply_record(&mut state, sequence, bytes)
    })?;
    assert!(log.last_sequence() >= sequence, "the log lags its checkpoint");
    Ok((state, log))
}

/// Apply an encoded record to the state.
pub fn apply_record(
    state: &mut NodeState,
    sequence: u64,
    bytes: &[u8],
) -> Result<(), RecoveryError> {
    let inconsistent = |why: String| RecoveryError::InconsistentRecord { sequence, why };
    let record: Record = postcard::from_bytes(bytes).map_err(|e| inconsistent(e.to_string()))?;
    state.apply(&record).map_err(|why| inconsistent(why.to_owned()))
}

/// The checkpoints, as the last records that they cover, in ascending order.
pub fn list_checkpoints<S: Storage>(storage: &S) -> io::Result<Vec<u64>> {
    let names = storage.list_files()?;
    let mut found: Vec<u64> = names.iter().filter_map(|name| checkpoint_sequence(name)).collect();
    found.sort_unstable();
    Ok(found)
}

/// The state of a checkpoint.
pub struct Loaded {
    /// The state.
    pub state: NodeState,
    /// The last record that it includes; 0 without a checkpoint.
    pub sequence: u64,
}

/// Read the newest checkpoint, or, if that is damaged, the one before.
pub fn load_checkpoint<S: Storage>(storage: &S) -> Result<Loaded, RecoveryError> {
    let found = list_checkpoints(storage)?;
    let mut damage = None;
    for sequence in found.into_iter().rev() {
        match read_state(storage, &checkpoint_name(sequence)) {
            Ok(state) => {
                if let Some(damage) = damage {
                    tracing::error!(error = %damage, used = checkpoint_name(sequence),
                        "the newest checkpoint is damaged: the one before it is used, with the log \
                         since then; check the device");
                }
                return Ok(Loaded { state, sequence });
            }
            Err(error @ RecoveryError::DamagedCheckpoint(_)) => {
                damage.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    // Without any checkpoint, the log begins with the first record.
    match damage {
        Some(damage) if !begins_with_first_record(storage)? => Err(damage),
        damage => {
            if let Some(error) = damage {
                tracing::error!(%error, "the only checkpoint is damaged: the whole log is used; \
                    check the device");
            }
            Ok(Loaded { state: NodeState::default(), sequence: 0 })
        }
    }
}

fn begins_with_first_record<S: Storage>(storage: &S) -> io::Result<bool> {
    let names = storage.list_files()?;
    Ok(names.iter().any(|name| segment_first_sequence(name) == Some(1)))
}

/// Write a checkpoint that covers all segments before the one that begins with record
/// `segment_start`, and remove the files that it makes superfluous. Those segments must be closed.
/// Returns false if the newest checkpoint covers them already.
pub fn write_checkpoint<S: Storage>(
    storage: &S,
    segment_start: u64,
) -> Result<bool, RecoveryError> {
    let Loaded { mut state, sequence: base } = load_checkpoint(storage)?;
    let mut sequence = base;
    if sequence + 1 >= segment_start {
        // The process that wrote it may have crashed before it removed superfluous files.
        remove_superfluous(storage, (previous_checkpoint(storage, sequence)?, sequence))?;
        return Ok(false);
    }
    scan_closed_segments(storage, sequence, segment_start, |number, bytes| {
        assert_eq!(number, sequence + 1, "replayed records are contiguous");
        sequence = number;
        apply_record(&mut state, number, bytes)
    })?;
    assert_eq!(sequence + 1, segment_start, "a checkpoint covers all closed segments");
    let installed = install_checkpoint(storage, &state, sequence);
    if installed.as_ref().is_err_and(is_out_of_space) && give_up_older_generation(storage)? {
        install_checkpoint(storage, &state, sequence)?;
    } else {
        installed?;
    }
    remove_superfluous(storage, (base, sequence))?;
    Ok(true)
}

/// Write the checkpoint of a state after record `sequence`.
pub fn install_checkpoint<S: Storage>(
    storage: &S,
    state: &NodeState,
    sequence: u64,
) -> io::Result<()> {
    let bytes = checkpoint_bytes(state)?;
    create_temporary(storage, bytes)?;
    write_state(storage, TEMPORARY, state)?;
    storage.truncate_file(TEMPORARY, bytes)?;
    storage.sync_file(TEMPORARY)?;
    storage.rename_file(TEMPORARY, &checkpoint_name(sequence))?;
    storage.sync_directory()
}

/// The newest undamaged checkpoint before the one of `sequence`, or 0.
fn previous_checkpoint<S: Storage>(storage: &S, sequence: u64) -> io::Result<u64> {
    let older = list_checkpoints(storage)?.into_iter().rev().filter(|other| *other < sequence);
    for candidate in older {
        if is_whole(storage, &checkpoint_name(candidate))? {
            return Ok(candidate);
        }
    }
    Ok(0)
}

/// Remove all checkpoints but the one of `newest` and the `base` from which it was made, and the
/// segments that `base` covers. Base 0 is the beginning of the log.
fn remove_superfluous<S: Storage>(storage: &S, (base, newest): (u64, u64)) -> io::Result<()> {
    storage.sync_directory()?;
    for name in storage.list_files()? {
        let is_old_checkpoint = checkpoint_sequence(&name).is_some_and(|s| s < newest && s != base);
        let is_old_segment = segment_first_sequence(&name).is_some_and(|first| first <= base);
        if is_old_checkpoint || is_old_segment {
            storage.remove_file(&name)?;
        }
    }
    Ok(())
}

/// Remove the older checkpoint and the segments that the newest covers. Returns whether there were any.
fn give_up_older_generation<S: Storage>(storage: &S) -> io::Result<bool> {
    let Some(newest) = list_checkpoints(storage)?.pop() else {
        return Ok(false);
    };
    let names = storage.list_files()?;
    let covered = |name: &String| {
        checkpoint_sequence(name).is_some_and(|s| s < newest)
            || segment_first_sequence(name).is_some_and(|first| first <= newest)
    };
    // It must not be given up for a damaged one.
    if !names.iter().any(covered) || !is_whole(storage, &checkpoint_name(newest))? {
        return Ok(false);
    }
    tracing::warn!("disk full: the older checkpoint and its log segments are removed");
    remove_superfluous(storage, (newest, newest))?;
    Ok(true)
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
    let reserved = reserve_spares(storage, segment_size);
    if reserved.as_ref().is_err_and(is_out_of_space) && give_up_older_generation(storage)? {
        return reserve_spares(storage, segment_size);
    }
    reserved
}

fn reserve_spares<S: Storage>(storage: &S, segment_size: u64) -> io::Result<()> {
    ensure_spare_segment(storage, segment_size)?;
    let last = match list_checkpoints(storage)?.pop() {
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
    let wanted = minimum + segment_size;
    if (wanted..=wanted.saturating_mul(2)).contains(&reserved) {
        return Ok(());
    }
    if reserved > wanted {
        // The state has become smaller.
        return storage.truncate_file(SPARE_CHECKPOINT, wanted);
    }
    let outcome = reserve_file(storage, SPARE_CHECKPOINT, wanted);
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
