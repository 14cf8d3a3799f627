//! Replays of more writes than there is memory for.

use crate::random;
use forebay_mpiio_log::{EntryMemory, Identity, Limits, LogWriter, ReplayOptions, View, replay};
use forebay_random::RandomSequence;
use random::{below, view};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const RANKS: u32 = 3;

/// Logs overlapping writes of several ranks in several epochs.
fn log_writes(seed: u64, logs: &Path, target: &Path) {
    fs::create_dir(logs).unwrap();
    let mut random = RandomSequence::new(seed);
    let views: Vec<_> =
        (0..3).map(|_| Arc::new(view(&mut random, seed.is_multiple_of(2)))).collect();
    let limits =
        Limits { bytes: 4 << 20, entries: 10_000, segment_bytes: 16 << 10, buffer_bytes: 3000 };
    let writer = |rank| {
        let run = "job 7".to_owned();
        let identity = Identity { target: target.to_owned(), run, rank, ranks: RANKS };
        LogWriter::create(logs, &identity, limits).unwrap()
    };
    let mut writers: Vec<_> = (0..RANKS).map(writer).collect();
    for write in 0..900 {
        for writer in &mut writers {
            writer.set_epoch(write / 90);
            let data = vec![below(&mut random, 255) as u8 + 1; 1 + below(&mut random, 30) as usize];
            let view = &views[below(&mut random, 3) as usize];
            let position = below(&mut random, 200);
            if view.contains(position, data.len() as u64) {
                writer.append(view, position, &data).unwrap();
            }
        }
    }
    writers.into_iter().for_each(|writer| writer.close().unwrap());
}

fn replayed(logs: &Path, target: &Path, memory: EntryMemory) -> (u64, u64, Vec<u8>) {
    let options = ReplayOptions { memory, ..ReplayOptions::default() };
    let run = replay(&[logs.to_owned()], &options).unwrap().remove(0);
    let content = fs::read(target).unwrap();
    fs::remove_file(target).unwrap();
    (run.entries, run.applied.writes, content)
}

#[test]
fn logs_that_are_replayed_in_batches_leave_the_same_file() {
    let mut more_writes = 0;
    for seed in 0..12 {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("target");
        let replay = |name: &str, memory| {
            let logs = home.path().join(name);
            log_writes(seed, &logs, &target);
            replayed(&logs, &target, memory)
        };
        let (entries, writes, content) = replay("at once", EntryMemory::default());
        assert!(entries > 1000 && content.len() > 20, "seed {seed}");
        for limit in [1, 5_000, 100_000] {
            let batches = replay(&limit.to_string(), EntryMemory::new(limit));
            assert_eq!(batches.0, entries, "seed {seed}, {limit} bytes");
            assert!(batches.2 == content, "seed {seed}, {limit} bytes");
            more_writes += u64::from(batches.1 > 3 * writes);
        }
    }
    assert!(more_writes > 12, "{more_writes} replays have several batches");
}

#[test]
fn writes_behind_a_torn_record_are_in_no_batch() {
    let home = tempfile::tempdir().unwrap();
    let (logs, target) = (home.path().join("logs"), home.path().join("target"));
    let mut contents = Vec::new();
    for memory in [EntryMemory::default(), EntryMemory::new(300)] {
        fs::create_dir(&logs).unwrap();
        let identity = Identity { target: target.clone(), run: "1".into(), rank: 0, ranks: 1 };
        let mut writer = LogWriter::create(&logs, &identity, Limits::default()).unwrap();
        let bytes = Arc::new(View::bytes(0));
        for at in 0..40 {
            writer.append(&bytes, at, &[at as u8 + 1]).unwrap();
            if at == 20 {
                writer.sync().unwrap();
            }
        }
        let (path, place) = (writer.path().to_owned(), writer.entries()[30].place.offset);
        drop(writer);
        let mut log = fs::read(&path).unwrap();
        log[place as usize] ^= 1;
        fs::write(&path, log).unwrap();
        contents.push(replayed(&logs, &target, memory));
        fs::remove_dir(&logs).unwrap();
    }
    assert_eq!((contents[0].0, contents[0].2.len()), (30, 30));
    assert_eq!((contents[1].0, &contents[1].2), (30, &contents[0].2));
}
