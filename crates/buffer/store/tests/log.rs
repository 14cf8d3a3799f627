//! The log on a simulated disk: damage, full disks, crashes and power cuts.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod support;

use forebay_store::log::spare_segment::ensure_spare_segment;
use forebay_store::log::{HEADROOM_BYTES, Log, LogSpace, RecoveryError, recover_log};
use std::io;
use support::memory_storage::{Fault, MemoryStorage};

fn fill(log: &mut Log<MemoryStorage>, count: u64, sync_every: u64) {
    for i in 0..count {
        log.ensure_headroom().unwrap();
        let sequence = log.append(format!("record {i}").as_bytes()).unwrap();
        log.flush().unwrap();
        if sequence.is_multiple_of(sync_every) {
            log.sync().unwrap();
        }
    }
}

fn open_log(storage: &MemoryStorage, segment_size: u64) -> Log<MemoryStorage> {
    recover_log(storage.clone(), segment_size, 0, |_, _| Ok(())).unwrap()
}

fn recovered_sequences(storage: &MemoryStorage) -> Result<Vec<u64>, RecoveryError> {
    let mut seen = Vec::new();
    recover_log(storage.clone(), 2 * HEADROOM_BYTES, 0, |sequence, _| {
        seen.push(sequence);
        Ok(())
    })?;
    Ok(seen)
}

#[test]
fn damage_to_durable_record_is_an_error_and_not_a_torn_tail() {
    for record in 0..20 {
        let storage = MemoryStorage::new(1);
        let mut log = open_log(&storage, 2 * HEADROOM_BYTES);
        fill(&mut log, 20, 1);
        storage.flip_bit(log.current_segment(), record * 32 + 26, 3);
        assert!(
            matches!(recovered_sequences(&storage), Err(RecoveryError::DamagedRecord { .. })),
            "{record}"
        );
    }
}

/// Segment size that fills quickly.
const SMALL_SEGMENT: u64 = 64 << 10;

fn fill_until(log: &mut Log<MemoryStorage>, wanted: LogSpace) -> u64 {
    let mut count = 0;
    while log.ensure_headroom().unwrap() > wanted {
        log.append(&[7; 1000]).unwrap();
        log.flush().unwrap();
        count += 1;
    }
    count
}

fn set_capacity(storage: &MemoryStorage, capacity_bytes: Option<u64>) {
    storage.set_fault(Fault { capacity_bytes, crash_after_ops: None });
}

fn count_records(storage: &MemoryStorage) -> u64 {
    let mut seen = 0;
    recover_log(storage.clone(), SMALL_SEGMENT, 0, |_, _| {
        seen += 1;
        Ok(())
    })
    .unwrap();
    seen
}

#[test]
fn full_storage_continues_on_spare_segment_and_reports_log_space() {
    let storage = MemoryStorage::new(1);
    let mut log = open_log(&storage, SMALL_SEGMENT);
    // Without a spare segment, only the reserve may be used even if the storage has space.
    assert_eq!(log.ensure_headroom().unwrap(), LogSpace::ReserveOnly);
    ensure_spare_segment(&storage, SMALL_SEGMENT).unwrap();
    assert_eq!(log.ensure_headroom().unwrap(), LogSpace::Normal);
    set_capacity(&storage, Some(0));
    let before = fill_until(&mut log, LogSpace::ReserveOnly);
    let on_spare = fill_until(&mut log, LogSpace::Exhausted);
    let per_segment = SMALL_SEGMENT / 1100;
    assert!(before > per_segment / 2, "{before}");
    assert!(on_spare > per_segment / 2, "{on_spare}");
    assert_eq!(count_records(&storage), before + on_spare);
    // Daemons can still start, repeatedly.
    let mut starts = 0;
    for _ in 0..100 {
        let mut log = open_log(&storage, SMALL_SEGMENT);
        log.ensure_start_headroom().unwrap();
        log.append(&[8; 10]).unwrap();
        log.flush().unwrap();
        assert_eq!(log.ensure_headroom().unwrap(), LogSpace::Exhausted);
        starts += 1;
    }
    assert_eq!(count_records(&storage), before + on_spare + starts);
    // With space available again, the log returns to normal.
    set_capacity(&storage, None);
    let mut log = open_log(&storage, SMALL_SEGMENT);
    assert_eq!(log.ensure_headroom().unwrap(), LogSpace::Exhausted);
    ensure_spare_segment(&storage, SMALL_SEGMENT).unwrap();
    assert_eq!(log.ensure_headroom().unwrap(), LogSpace::Normal);
    let mut more = 0;
    while more < 1000 {
        assert_eq!(log.ensure_headroom().unwrap(), LogSpace::Normal);
        log.append(&[9; 1000]).unwrap();
        more += 1;
    }
    log.flush().unwrap();
    assert_eq!(count_records(&storage), before + on_spare + starts + more);
}

#[test]
fn segment_is_closed_early_only_with_space_for_another_beside_the_spare_one() {
    let storage = MemoryStorage::new(1);
    let mut log = open_log(&storage, SMALL_SEGMENT);
    ensure_spare_segment(&storage, SMALL_SEGMENT).unwrap();
    assert_eq!(log.ensure_headroom().unwrap(), LogSpace::Normal);
    log.append(&[7; 1000]).unwrap();
    set_capacity(&storage, Some(0));
    assert!(!log.close_segment().unwrap());
    assert_eq!(log.ensure_headroom().unwrap(), LogSpace::Normal, "the spare segment is there");
    set_capacity(&storage, None);
    assert!(log.close_segment().unwrap());
    assert_eq!(count_records(&storage), 1);
}

#[test]
fn appends_beyond_headroom_continue_in_new_segments_while_space_lasts() {
    let storage = MemoryStorage::new(1);
    ensure_spare_segment(&storage, SMALL_SEGMENT).unwrap();
    let mut log = open_log(&storage, SMALL_SEGMENT);
    log.ensure_headroom().unwrap();
    for _ in 0..500 {
        log.append(&[7; 1000]).unwrap();
    }
    log.flush().unwrap();
    assert_eq!(count_records(&storage), 500);
    set_capacity(&storage, Some(0));
    let error = loop {
        if let Err(error) = log.append(&[7; 1000]) {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn synced_records_survive_crash_or_power_cut_at_any_write() {
    for seed in 1..2000 {
        let storage = MemoryStorage::new(seed * 7919);
        storage.set_fault(Fault { crash_after_ops: Some(seed % 97 + 1), capacity_bytes: None });
        let (mut acknowledged, mut written) = (0, 0);
        if let Ok(mut log) = recover_log(storage.clone(), 2 * HEADROOM_BYTES, 0, |_, _| Ok(())) {
            loop {
                let write_batch = |log: &mut Log<MemoryStorage>| {
                    log.ensure_headroom()?;
                    for _ in 0..seed % 5 + 1 {
                        log.append(&vec![1; (seed % 600 + 1) as usize])?;
                    }
                    log.flush()
                };
                if write_batch(&mut log).is_err() {
                    break;
                }
                written = log.last_sequence();
                if seed % 3 == 0 {
                    if log.sync().is_err() {
                        break;
                    }
                    acknowledged = log.last_sequence();
                }
            }
        }
        let lowest = if seed % 2 == 0 {
            storage.restart_process();
            written
        } else {
            storage.power_cut();
            acknowledged
        };
        let seen = recovered_sequences(&storage).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(seen.len() as u64 >= lowest, "seed {seed}: {} < {lowest}", seen.len());
        assert_eq!(
            recovered_sequences(&storage).unwrap(),
            seen,
            "seed {seed}: second recovery differs"
        );
    }
}
