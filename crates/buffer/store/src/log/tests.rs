use super::*;
use crate::storage::{Fault, Memory};

fn fill(log: &mut Log<Memory>, count: u64, sync_every: u64) {
    for i in 0..count {
        log.prepare().unwrap();
        let sequence = log.append(format!("record {i}").as_bytes()).unwrap();
        log.flush().unwrap();
        if sequence.is_multiple_of(sync_every) {
            log.sync_now().unwrap();
        }
    }
}

fn read(storage: &Memory) -> Result<Vec<u64>, RecoverError> {
    let mut seen = Vec::new();
    recover(storage.clone(), 2 * HEADROOM, 0, |sequence, _| {
        seen.push(sequence);
        Ok(())
    })?;
    Ok(seen)
}

#[test]
fn damage_to_a_durable_record_is_reported_and_not_taken_for_a_torn_tail() {
    for record in 0..19 {
        let storage = Memory::new(1);
        let mut log = recover(storage.clone(), 2 * HEADROOM, 0, |_, _| Ok(())).unwrap();
        fill(&mut log, 20, 1);
        storage.damage(log.segment(), record * 32 + 26, 3);
        assert!(
            matches!(read(&storage), Err(RecoverError::Damaged { .. })),
            "{record}"
        );
    }
}

/// Segments so small that they are soon full.
const SMALL: u64 = 64 << 10;

fn fill_until(log: &mut Log<Memory>, wanted: Room) -> u64 {
    let mut count = 0;
    while log.prepare().unwrap() > wanted {
        log.append(&[7; 1000]).unwrap();
        log.flush().unwrap();
        count += 1;
    }
    count
}

fn set_capacity(storage: &Memory, capacity: Option<u64>) {
    storage.set_fault(Fault {
        capacity,
        die_after: None,
    });
}

fn count(storage: &Memory) -> u64 {
    let mut seen = 0;
    recover(storage.clone(), SMALL, 0, |_, _| {
        seen += 1;
        Ok(())
    })
    .unwrap();
    seen
}

#[test]
fn a_full_storage_goes_on_with_what_is_in_reserve_and_says_so() {
    let storage = Memory::new(1);
    let mut log = recover(storage.clone(), SMALL, 0, |_, _| Ok(())).unwrap();
    // Without anything in reserve what is left is spared, whether or not the storage is full.
    assert_eq!(log.prepare().unwrap(), Room::Spare);
    spare::keep_spare(&storage, SMALL).unwrap();
    assert_eq!(log.prepare().unwrap(), Room::Plenty);
    set_capacity(&storage, Some(0));
    let before = fill_until(&mut log, Room::Spare);
    let on_spare = fill_until(&mut log, Room::None);
    let per_segment = SMALL / 1100;
    assert!(before > per_segment / 2, "{before}");
    assert!(on_spare > per_segment / 2, "{on_spare}");
    assert_eq!(count(&storage), before + on_spare);
    // It can be started all the same, again and again.
    let mut starts = 0;
    for _ in 0..100 {
        let mut log = recover(storage.clone(), SMALL, 0, |_, _| Ok(())).unwrap();
        log.prepare_start().unwrap();
        log.append(&[8; 10]).unwrap();
        log.flush().unwrap();
        assert_eq!(log.prepare().unwrap(), Room::None);
        starts += 1;
    }
    assert_eq!(count(&storage), before + on_spare + starts);
    // With space again, all is well.
    set_capacity(&storage, None);
    let mut log = recover(storage.clone(), SMALL, 0, |_, _| Ok(())).unwrap();
    assert_eq!(log.prepare().unwrap(), Room::None);
    spare::keep_spare(&storage, SMALL).unwrap();
    assert_eq!(log.prepare().unwrap(), Room::Plenty);
    let mut more = 0;
    while more < 1000 {
        assert_eq!(log.prepare().unwrap(), Room::Plenty);
        log.append(&[9; 1000]).unwrap();
        more += 1;
    }
    log.flush().unwrap();
    assert_eq!(count(&storage), before + on_spare + starts + more);
}

#[test]
fn more_records_than_there_was_room_for_go_into_further_segments() {
    let storage = Memory::new(1);
    spare::keep_spare(&storage, SMALL).unwrap();
    let mut log = recover(storage.clone(), SMALL, 0, |_, _| Ok(())).unwrap();
    log.prepare().unwrap();
    for _ in 0..500 {
        log.append(&[7; 1000]).unwrap();
    }
    log.flush().unwrap();
    assert_eq!(count(&storage), 500);
    // As long as there is space for those.
    set_capacity(&storage, Some(0));
    let error = loop {
        if let Err(error) = log.append(&[7; 1000]) {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn records_synced_before_a_crash_at_any_write_are_read_back() {
    for seed in 1..2000 {
        let storage = Memory::new(seed * 7919);
        storage.set_fault(Fault {
            die_after: Some(seed % 97 + 1),
            capacity: None,
        });
        let (mut acknowledged, mut written) = (0, 0);
        if let Ok(mut log) = recover(storage.clone(), 2 * HEADROOM, 0, |_, _| Ok(())) {
            loop {
                let run = |log: &mut Log<Memory>| {
                    log.prepare()?;
                    for _ in 0..seed % 5 + 1 {
                        log.append(&vec![1; (seed % 600 + 1) as usize])?;
                    }
                    log.flush()
                };
                if run(&mut log).is_err() {
                    break;
                }
                written = log.last();
                if seed % 3 == 0 {
                    if log.sync_now().is_err() {
                        break;
                    }
                    acknowledged = log.last();
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
        let seen = read(&storage).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(
            seen.len() as u64 >= lowest,
            "seed {seed}: {} < {lowest}",
            seen.len()
        );
        assert_eq!(
            read(&storage).unwrap(),
            seen,
            "seed {seed}: second recovery differs"
        );
    }
}
