use super::*;
use crate::storage::{Fault, Memory};

fn fill(log: &mut Log<Memory>, count: u64, sync_every: u64) {
    for i in 0..count {
        log.prepare().unwrap();
        let sequence = log.append(format!("record {i}").as_bytes());
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

#[test]
fn a_full_storage_refuses_before_anything_changes() {
    let storage = Memory::new(1);
    let mut log = recover(storage.clone(), 2 * HEADROOM, 0, |_, _| Ok(())).unwrap();
    storage.set_fault(Fault {
        capacity: Some(2 * HEADROOM),
        die_after: None,
    });
    let payload = vec![7; MAX_RECORD];
    let mut count = 0;
    while log.prepare().is_ok() {
        log.append(&payload);
        log.flush().unwrap();
        count += 1;
    }
    assert_eq!(read(&storage).unwrap().len(), count);
    storage.set_fault(Fault::default());
    log.prepare().unwrap();
    log.append(b"more");
    log.flush().unwrap();
    assert_eq!(read(&storage).unwrap().len(), count + 1);
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
                        log.append(&vec![1; (seed % 600 + 1) as usize]);
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
