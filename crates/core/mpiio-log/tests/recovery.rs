//! Logs after crashes, power failures and damage.

use crate::random;
use forebay_mpiio_log::{
    Alignment, AppendError, DataSource, Identity, Limits, LogWriter, ReplayError, ReplayOptions,
    View, apply, discard, logs, plan, replay, scan,
};
use forebay_random::RandomSequence;
use random::{below, offset, type_map, view};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const LIMITS: Limits =
    Limits { bytes: 64 << 10, entries: 10_000, segment_bytes: 16 << 10, buffer_bytes: 3000 };

fn identity(target: &Path, rank: u32, ranks: u32) -> Identity {
    Identity { target: target.to_owned(), run: "job 7, open 1".into(), rank, ranks }
}

/// A directory with a log directory and the path of a target, which does not exist.
fn directories() -> (TempDir, PathBuf, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let (log, target) = (home.path().join("log"), home.path().join("target"));
    fs::create_dir(&log).unwrap();
    (home, log, target)
}

fn replay_all(log: &Path) -> Result<Vec<forebay_mpiio_log::Replayed>, ReplayError> {
    replay(&[log.to_owned()], &ReplayOptions::default())
}

/// Applies all entries of a writer to a file.
fn flush_to(writer: &LogWriter, target: &File) {
    apply(plan(writer.entries(), 0..u64::MAX, Alignment::default()), writer, target).unwrap();
}

/// A program that writes to a log at random, and the values that each byte of the file had.
struct Program {
    random: RandomSequence,
    views: Vec<Arc<View>>,
    writer: LogWriter,
    target: File,
    /// (number of the write, value) of each byte of the file, in order.
    history: BTreeMap<u64, Vec<(u64, u8)>>,
    writes: u64,
    synced: u64,
    full: u64,
    applied: u64,
    /// Contents of the log that are on stable storage.
    durable: Vec<u8>,
}

impl Program {
    fn new(seed: u64, log: &Path, target: &Path) -> Program {
        let mut random = RandomSequence::new(seed);
        let views = (0..4).map(|i| Arc::new(view(&mut random, i > 0))).collect();
        let mut limits = Limits { bytes: 32 << 10, ..LIMITS };
        limits.buffer_bytes = [0, 500, 3000, 50_000][below(&mut random, 4) as usize];
        let writer = LogWriter::create(log, &identity(target, 0, 1), limits).unwrap();
        let options =
            File::options().read(true).write(true).create(true).truncate(true).open(target);
        let (target, history) = (options.unwrap(), BTreeMap::new());
        let durable = fs::read(writer.path()).unwrap();
        Program {
            random,
            views,
            writer,
            target,
            history,
            writes: 0,
            synced: 0,
            full: 0,
            applied: 0,
            durable,
        }
    }

    /// Releases entries that are in the file. The log is synced if some of them were.
    fn release(&mut self, through: u64) {
        self.writer.release(through).unwrap();
        if self.writer.durable_sequence() > self.applied && through > self.applied {
            self.durable = fs::read(self.writer.path()).unwrap();
        }
        self.applied = self.applied.max(through);
    }

    fn flush_all(&mut self) {
        flush_to(&self.writer, &self.target);
        self.release(self.writer.last_sequence());
    }

    fn step(&mut self) {
        match below(&mut self.random, 30) {
            0 => {
                self.writer.sync().unwrap();
                self.synced = self.writes;
                self.durable = fs::read(self.writer.path()).unwrap();
            }
            1 => self.flush_all(),
            2 => {
                let through = self.writer.seal();
                flush_to(&self.writer, &self.target);
                self.write();
                self.release(through);
            }
            _ => self.write(),
        }
    }

    fn write(&mut self) {
        let view = Arc::clone(&self.views[below(&mut self.random, 4) as usize]);
        let position = below(&mut self.random, 60);
        let long = below(&mut self.random, 12) == 0;
        let length = 1 + below(&mut self.random, if long { 20_000 } else { 300 });
        self.writes += 1;
        let data: Vec<u8> = (0..length).map(|i| (self.writes * 31 + i / 7) as u8).collect();
        match self.writer.append(&view, position, &data) {
            Ok(_) => {}
            Err(AppendError::Full) => {
                self.full += 1;
                self.flush_all();
                self.writer.append(&view, position, &data).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
        let map = type_map(view.filetype());
        for (i, value) in data.iter().enumerate() {
            let offset = offset(&view, &map, position + i as u64);
            self.history.entry(offset).or_default().push((self.writes, *value));
        }
    }

    /// Checks the file after a replay: each byte has its value of the last sync or a later one.
    /// Returns the earliest and latest number of writes after which the file could look so.
    fn check(&self, seed: u64, file: &[u8]) {
        for (offset, values) in &self.history {
            let before = values.iter().rev().find(|(write, _)| *write <= self.synced);
            let mut allowed = values.iter().filter(|(write, _)| *write > self.synced);
            let value = file.get(*offset as usize).copied();
            let is_right = match before {
                Some((_, before)) => value == Some(*before),
                None => value.is_none_or(|value| value == 0),
            };
            assert!(
                is_right || allowed.any(|(_, later)| value == Some(*later)),
                "seed {seed}: byte {offset} is {value:?}, not one of {values:?}"
            );
        }
    }
}

/// The file after a replay of copies of the log and the target.
fn replayed(log: &[u8], program: &Program, home: &Path) -> Vec<u8> {
    let copy = home.join("copy");
    let directory = home.join("copied logs");
    fs::create_dir_all(&directory).unwrap();
    fs::copy(home.join("target"), &copy).unwrap();
    let path = directory.join(program.writer.path().file_name().unwrap());
    fs::write(&path, log).unwrap();
    let scanned = scan(&path).unwrap();
    assert!(!scanned.is_damaged(), "{:?}", scanned.slots);
    let file = File::options().write(true).open(&copy).unwrap();
    let entries: Vec<_> = scanned.entries().cloned().collect();
    apply(plan(&entries, 0..u64::MAX, Alignment::default()), &scanned.reader, &file).unwrap();
    fs::read(copy).unwrap()
}

#[test]
fn synced_writes_survive_a_kill_and_a_power_failure_at_any_time() {
    let (mut kills, mut full, mut synced) = (0, 0, 0);
    for seed in 0..25 {
        let (home, log, target) = directories();
        let mut program = Program::new(seed, &log, &target);
        for _ in 0..80 {
            program.step();
            let bytes = fs::read(program.writer.path()).unwrap();
            if below(&mut program.random, 8) > 0 {
                continue;
            }
            kills += 1;
            synced += u64::from(program.synced > 0);
            program.check(seed, &replayed(&bytes, &program, home.path()));
            // After a power failure each page has its contents of the last sync or later ones.
            let mut mixed = bytes;
            for (page, old) in mixed.chunks_mut(4096).zip(program.durable.chunks(4096)) {
                if below(&mut program.random, 2) == 0 {
                    page[..old.len()].copy_from_slice(old);
                }
            }
            if below(&mut program.random, 2) == 0 {
                mixed.truncate(program.durable.len());
            }
            if program.writer.durable_sequence() > 0 {
                program.check(seed, &replayed(&mixed, &program, home.path()));
            }
        }
        full += program.full;
        // At the end everything is in the file.
        flush_to(&program.writer, &program.target);
        program.synced = program.writes;
        program.check(seed, &fs::read(&target).unwrap());
        program.writer.discard().unwrap();
        assert!(logs(&log).unwrap().is_empty());
    }
    assert!(
        kills > 150 && full > 10 && synced > 100,
        "{kills} kills, {full} full, {synced} synced"
    );
}

/// A log with ten synced writes of 100 bytes and, behind them, two that are not.
fn twelve_writes(log: &Path, target: &Path) -> LogWriter {
    let mut writer = LogWriter::create(log, &identity(target, 0, 1), LIMITS).unwrap();
    let bytes = Arc::new(View::bytes(0));
    for i in 0..12 {
        writer.append(&bytes, i * 100, &[i as u8 + 1; 100]).unwrap();
        if i == 9 {
            writer.sync().unwrap();
        }
    }
    writer.flush().unwrap();
    writer
}

/// Flips a bit in the data of an entry.
fn flip(writer: &LogWriter, entry: usize) {
    let file = File::options().read(true).write(true).open(writer.path()).unwrap();
    let mut byte = [0];
    let at = writer.entries()[entry].place.offset + 50;
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

#[test]
fn damage_of_a_synced_record_is_reported_and_nothing_is_replayed() {
    let (_home, log, target) = directories();
    let writer = twelve_writes(&log, &target);
    flip(&writer, 3);
    let sequence = writer.entries()[3].order.sequence;
    drop(writer);
    let path = logs(&log).unwrap().remove(0);
    let slot = scan(&path).unwrap().slots.remove(0);
    assert_eq!(slot.damage.len(), 1);
    assert_eq!((slot.damage[0].first, slot.damage[0].last), (sequence, sequence));
    assert!(matches!(replay_all(&log), Err(ReplayError::Damaged(_))));
    assert!(!target.exists(), "nothing was written");
    let options = ReplayOptions { skip_damaged: true, ..ReplayOptions::default() };
    let replayed = replay(std::slice::from_ref(&log), &options).unwrap().remove(0);
    assert_eq!((replayed.entries, replayed.skipped), (11, 1));
    let file = fs::read(&target).unwrap();
    let expected: Vec<u8> = (0..12).flat_map(|i| [if i == 3 { 0 } else { i + 1 }; 100]).collect();
    assert_eq!(file, expected);
    assert_eq!(logs(&log).unwrap(), [path], "the damaged log is kept");
}

#[test]
fn torn_record_behind_the_last_sync_ends_the_log() {
    let (_home, log, target) = directories();
    let writer = twelve_writes(&log, &target);
    flip(&writer, 10);
    drop(writer);
    let slot = scan(&logs(&log).unwrap()[0]).unwrap().slots.remove(0);
    assert_eq!((slot.entries.len(), slot.dropped, slot.damage.len()), (10, 1, 0));
    let replayed = replay_all(&log).unwrap().remove(0);
    assert_eq!(replayed.entries, 10);
    assert_eq!(fs::read(&target).unwrap().len(), 1000);
}

#[test]
fn damage_of_any_record_of_a_closed_log_is_noticed() {
    for entry in 0..12 {
        let (_home, log, target) = directories();
        let writer = twelve_writes(&log, &target);
        flip(&writer, entry);
        writer.close().unwrap();
        assert!(matches!(replay_all(&log), Err(ReplayError::Damaged(_))), "entry {entry}");
    }
}

#[test]
fn lost_end_of_a_closed_log_is_noticed() {
    let (_home, log, target) = directories();
    let writer = twelve_writes(&log, &target);
    let end = writer.entries()[9].place.offset;
    writer.close().unwrap();
    let path = logs(&log).unwrap().remove(0);
    File::options().write(true).open(&path).unwrap().set_len(end).unwrap();
    let slot = scan(&path).unwrap().slots.remove(0);
    // The records of the segment and of the view precede those of the writes.
    let missing: Vec<_> = slot.damage.iter().flat_map(|d| d.first..=d.last).collect();
    assert_eq!(missing, [12, 13, 14]);
}

#[test]
fn replay_is_idempotent_and_leaves_later_changes_alone() {
    let (_home, log, target) = directories();
    twelve_writes(&log, &target).close().unwrap();
    let path = logs(&log).unwrap().remove(0);
    let before = fs::read(&path).unwrap();
    let replayed = replay_all(&log).unwrap().remove(0);
    assert_eq!((replayed.entries, replayed.applied.writes, replayed.applied.bytes), (12, 1, 1200));
    assert!(logs(&log).unwrap().is_empty());
    let file = fs::read(&target).unwrap();
    assert!(replay_all(&log).unwrap().is_empty());
    // A replay that was interrupted before the log was marked is repeated.
    fs::write(&path, &before).unwrap();
    replay_all(&log).unwrap();
    assert_eq!(fs::read(&target).unwrap(), file);
}

#[test]
fn replay_with_lost_removal_changes_nothing() {
    let (_home, log, target) = directories();
    let writer = twelve_writes(&log, &target);
    flush_to(&writer, &File::create(&target).unwrap());
    let path = writer.path().to_owned();
    // The open descriptor shows what the removed file contained last.
    let open = File::open(&path).unwrap();
    writer.discard().unwrap();
    let mut contents = vec![0; open.metadata().unwrap().len() as usize];
    open.read_exact_at(&mut contents, 0).unwrap();
    fs::write(&path, contents).unwrap();
    fs::write(&target, "new").unwrap();
    assert_eq!(replay_all(&log).unwrap()[0].entries, 0);
    assert_eq!(fs::read(&target).unwrap(), b"new");
}

#[test]
fn log_in_use_is_neither_replayed_nor_discarded() {
    let (_home, log, target) = directories();
    let writer = twelve_writes(&log, &target);
    assert!(matches!(replay_all(&log), Err(ReplayError::InUse(_))));
    assert!(matches!(discard(&log, None), Err(ReplayError::InUse(_))));
    drop(writer);
    let discarded = discard(&log, None).unwrap();
    assert_eq!(discarded[0].contents.as_ref().unwrap().bytes(), 1200);
    assert!(logs(&log).unwrap().is_empty() && !target.exists());
}

#[test]
fn rerun_with_the_same_identity_gets_a_log_of_its_own() {
    let (_home, log, target) = directories();
    drop(twelve_writes(&log, &target));
    let mut second = LogWriter::create(&log, &identity(&target, 0, 1), LIMITS).unwrap();
    second.append(&Arc::new(View::bytes(0)), 0, b"later").unwrap();
    second.close().unwrap();
    assert_eq!(logs(&log).unwrap().len(), 2);
    replay_all(&log).unwrap();
    assert_eq!(fs::read(&target).unwrap()[..6], *b"later\x01");
}

#[test]
fn later_epoch_of_a_lower_rank_wins() {
    let (_home, log, target) = directories();
    let bytes = Arc::new(View::bytes(0));
    let mut writers: Vec<_> = (0..2)
        .map(|rank| LogWriter::create(&log, &identity(&target, rank, 3), LIMITS).unwrap())
        .collect();
    writers[1].append(&bytes, 0, b"111111").unwrap();
    writers[0].append(&bytes, 0, b"00").unwrap();
    writers[0].set_epoch(1);
    writers[0].append(&bytes, 4, b"00").unwrap();
    writers.into_iter().for_each(|writer| writer.close().unwrap());
    let replayed = replay_all(&log).unwrap().remove(0);
    assert_eq!((replayed.logs, replayed.missing_ranks), (2, vec![2]));
    // In epoch 0 the higher rank comes later.
    assert_eq!(fs::read(&target).unwrap(), b"111100");
}

#[test]
fn processes_of_a_node_share_a_log() {
    let (_home, log, target) = directories();
    let first = LogWriter::create_shared(&log, &identity(&target, 4, 8), 3, LIMITS).unwrap();
    let path = first.path().to_owned();
    let mut writers = vec![first];
    for slot in 1..3 {
        writers.push(LogWriter::join(&path, slot, 4 + slot, LIMITS).unwrap());
    }
    assert!(LogWriter::join(&path, 3, 7, LIMITS).is_err(), "there are three slots");
    let bytes = Arc::new(View::bytes(0));
    // 12 KB of each process: every second write begins a segment.
    for i in 0..30_u64 {
        let rank = i % 3;
        writers[rank as usize].append(&bytes, i * 6000, &[1 + i as u8; 6000]).unwrap();
    }
    let expected: Vec<u8> = (0..30).flat_map(|i| [1 + i; 6000]).collect();
    let last = writers[2].entries().last().unwrap();
    let mut read = vec![0; last.length as usize];
    writers[2].read_at(last.place, &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 30));
    writers.into_iter().for_each(|writer| writer.close().unwrap());
    assert_eq!(logs(&log).unwrap().len(), 1);
    let scanned = scan(&path).unwrap();
    let ranks: Vec<_> = scanned.slots.iter().map(|slot| (slot.rank, slot.closed)).collect();
    assert_eq!(ranks, [(4, true), (5, true), (6, true)]);
    let replayed = replay_all(&log).unwrap().remove(0);
    assert_eq!(replayed.missing_ranks, [0, 1, 2, 3, 7]);
    assert_eq!(fs::read(&target).unwrap(), expected);
}

#[test]
fn full_log_refuses_a_write_as_a_whole_and_works_again_after_a_flush() {
    let (_home, log, target) = directories();
    let mut writer = LogWriter::create(&log, &identity(&target, 0, 1), LIMITS).unwrap();
    let bytes = Arc::new(View::bytes(0));
    writer.append(&bytes, 0, &[1; 40_000]).unwrap();
    let entries = writer.entries().len();
    // 24 KB are left in four segments of 16 KiB.
    assert!(matches!(writer.append(&bytes, 40_000, &[2; 30_000]), Err(AppendError::Full)));
    assert_eq!(writer.entries().len(), entries);
    writer.append(&bytes, 40_000, &[2; 20_000]).unwrap();
    assert_eq!(writer.used_bytes(), LIMITS.bytes);
    let file = File::create(&target).unwrap();
    flush_to(&writer, &file);
    writer.reset().unwrap();
    assert_eq!((writer.used_bytes(), writer.entries().len()), (0, 0));
    writer.append(&bytes, 0, &[3; 60_000]).unwrap();
    let length = fs::metadata(writer.path()).unwrap().len();
    assert_eq!(length, 8192 + LIMITS.bytes, "the segments are used again");
    let few = Limits { entries: 3, ..LIMITS };
    let mut writer = LogWriter::create(&log, &identity(&target, 0, 1), few).unwrap();
    let written = (0..10).take_while(|i| writer.append(&bytes, *i, &[1]).is_ok()).count();
    assert_eq!(written, 3);
}

#[test]
fn view_that_exceeds_a_segment_is_refused() {
    use forebay_mpiio_log::{Block, Datatype};
    let (_home, log, target) = directories();
    let mut writer = LogWriter::create(&log, &identity(&target, 0, 1), LIMITS).unwrap();
    // Distances that are not regular.
    let block = |i: i64| Block { displacement: i * i, length: 1 };
    let blocks: Vec<_> = (1..8000).map(block).collect();
    let element = Arc::new(Datatype::Bytes(1));
    let view = Arc::new(View::new(0, Datatype::Indexed { blocks, element }).unwrap());
    let error = writer.append(&view, 0, b"x").unwrap_err();
    assert!(matches!(error, AppendError::ViewTooLarge { .. }), "{error}");
    writer.append(&Arc::new(View::bytes(0)), 0, b"x").unwrap();
}

#[test]
fn segment_defines_the_views_of_its_entries() {
    let (_home, log, target) = directories();
    let mut writer = LogWriter::create(&log, &identity(&target, 0, 1), LIMITS).unwrap();
    let view = Arc::new(View::bytes(1000));
    for i in 0..5 {
        writer.append(&view, i * 10_000, &[i as u8; 10_000]).unwrap();
    }
    // The first segments are released; the view was defined in them first.
    let through = writer.entries()[2].order.sequence;
    writer.release(through).unwrap();
    let left = writer.entries().len();
    writer.close().unwrap();
    let scanned = scan(&logs(&log).unwrap()[0]).unwrap();
    assert_eq!(scanned.entries().count(), left);
    assert!(!scanned.is_damaged() && scanned.entries().all(|entry| *entry.view == *view));
}

#[test]
fn invalid_identities_and_limits_are_refused() {
    let (_home, log, _) = directories();
    let create = |target: &str, limits| {
        let error =
            LogWriter::create(&log, &identity(Path::new(target), 0, 1), limits).unwrap_err();
        error.to_string()
    };
    assert!(create("file", LIMITS).contains("not absolute"));
    assert!(create(&format!("/{}", "x".repeat(5000)), LIMITS).contains("exceed"));
    let odd = Limits { segment_bytes: 20_000, ..LIMITS };
    assert!(create("/file", odd).contains("multiple of 4096"));
    assert!(logs(&log).unwrap().is_empty(), "a failed creation leaves nothing");
}

#[test]
fn foreign_files_are_no_logs() {
    let (_home, log, target) = directories();
    fs::write(log.join("a.fblog"), "").unwrap();
    assert!(replay_all(&log).unwrap().is_empty(), "a blank log");
    assert!(logs(&log).unwrap().is_empty(), "was removed");
    fs::write(log.join("a.fblog"), [7; 9000]).unwrap();
    assert!(matches!(replay_all(&log), Err(ReplayError::Scan { .. })));
    drop(twelve_writes(&log, &target));
    let path = logs(&log).unwrap().remove(1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    fs::write(&path, bytes).unwrap();
    let error = scan(&path).unwrap_err().to_string();
    assert!(error.contains("version 9") && error.contains("reads version 2"), "{error}");
}

#[test]
fn long_writes_of_any_length_fit_or_are_refused_as_a_whole() {
    let (_home, log, target) = directories();
    let limits = Limits { bytes: 3 << 20, segment_bytes: 1 << 20, ..LIMITS };
    let view = Arc::new(View::bytes(0));
    let data: Vec<u8> = (0..2_000_000_u32).map(|i| (i / 251) as u8).collect();
    let (mut refused, mut long) = (0, 0);
    for seed in 0..30 {
        let mut random = RandomSequence::new(seed);
        let mut writer = LogWriter::create(&log, &identity(&target, 0, 1), limits).unwrap();
        let mut position = 0;
        loop {
            // Around the lengths of records and segments, too.
            let length = match below(&mut random, 3) {
                0 => (1 << 18) * (1 + below(&mut random, 6)) + below(&mut random, 200) - 100,
                1 => 1 + below(&mut random, 5000),
                _ => 1 + below(&mut random, 2_000_000),
            };
            let before = writer.entries().len();
            match writer.append(&view, position, &data[..length as usize]) {
                Ok(_) => long += u32::from(writer.entries().len() - before > 3),
                Err(AppendError::Full) => {
                    assert_eq!(writer.entries().len(), before);
                    refused += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
            position += length;
        }
        let logged: u64 = writer.entries().iter().map(|entry| entry.length).sum();
        assert_eq!(logged, position, "seed {seed}");
        assert!(writer.used_bytes() <= limits.bytes);
        writer.close().unwrap();
        let scanned = scan(&logs(&log).unwrap()[0]).unwrap();
        assert!(!scanned.is_damaged() && scanned.bytes() == position);
        discard(&log, None).unwrap();
    }
    assert!(refused == 30 && long > 10, "{long} writes of several records");
}

#[test]
fn logs_of_a_file_that_was_replaced_stay_until_that_is_requested() {
    let (_home, log, target) = directories();
    fs::write(&target, "old").unwrap();
    twelve_writes(&log, &target).close().unwrap();
    fs::remove_file(&target).unwrap();
    // The clocks of a node and of a file system may differ by a second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    fs::write(&target, "new").unwrap();
    if fs::metadata(&target).unwrap().created().is_err() {
        eprintln!("the file system keeps no times of creation; the test is skipped");
        return;
    }
    let left = replay_all(&log).unwrap().remove(0).left;
    assert_eq!(left, Some(forebay_mpiio_log::Left::Replaced));
    assert_eq!(fs::read(&target).unwrap(), b"new");
    assert_eq!(logs(&log).unwrap().len(), 1);
    let options = ReplayOptions { replaced: true, ..ReplayOptions::default() };
    assert_eq!(replay(std::slice::from_ref(&log), &options).unwrap()[0].entries, 12);
    assert_eq!(fs::read(&target).unwrap().len(), 1200);
    assert!(logs(&log).unwrap().is_empty());
}

#[test]
fn log_in_use_does_not_stop_the_replay_of_another_file() {
    let (home, log, target) = directories();
    let other = home.path().join("other");
    let _in_use = twelve_writes(&log, &other);
    twelve_writes(&log, &target).close().unwrap();
    let options = ReplayOptions { target: Some(target.clone()), ..ReplayOptions::default() };
    assert_eq!(replay(std::slice::from_ref(&log), &options).unwrap().len(), 1);
    assert_eq!(fs::read(&target).unwrap().len(), 1200);
}

#[test]
fn replay_that_created_the_file_and_was_interrupted_is_repeated() {
    let (home, log, _) = directories();
    let target = home.path().join("directory").join("target");
    twelve_writes(&log, &target).close().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(matches!(replay_all(&log), Err(ReplayError::Target { .. })));
    // As the interrupted replay leaves it: empty, and younger than the logs.
    fs::create_dir(home.path().join("directory")).unwrap();
    fs::write(&target, "").unwrap();
    assert_eq!(replay_all(&log).unwrap()[0].entries, 12);
    assert_eq!(fs::read(&target).unwrap().len(), 1200);
}
