//! Damaged logs, and logs made to harm, give errors or other numbers, and never a panic.

use crate::real_logs::{data, directory};
use crate::writer::{Packing, Writer};
use forebay_darshan_log::{Api, FileUse, Log, Performance, TraceApi};
use proptest::prelude::*;
use std::io::Cursor;

/// Reads everything in a log.
fn read_all(log: Vec<u8>) {
    let Ok(mut log) = Log::open(Cursor::new(log)) else { return };
    let _ = log.names();
    for api in Api::ALL {
        let mut performance = Performance::default();
        let _ = log.records(api, |record| performance.add(&FileUse::of(record)));
        let _ = (performance.rate(), performance.sharing());
    }
    for api in [TraceApi::Posix, TraceApi::MpiIo] {
        let _ = log.traces(api, |_, _, _| {});
    }
    let _ = log.lustre(|_| {});
}

/// A log with records of all modules that are read, uncompressed so that changed bytes reach the records.
fn uncompressed() -> Vec<u8> {
    let mut writer = Writer { packing: Packing::None, ..Writer::default() };
    let posix = writer.record(7, 3, &[1; 69], &[0.5; 17]);
    let mpi_io = writer.record(7, -1, &[1; 51], &[0.5; 17]);
    let stdio = writer.record(8, 0, &[1; 14], &[0.5; 15]);
    let mut lustre = writer.integers([7, 2, 1, 2, 1 << 20, 2, 0, 0, 0, -1, 0]);
    lustre.extend([0; 16]);
    lustre.extend(writer.integers([4, 5]));
    let trace = |thread| {
        let segment = |at| writer.segment((at, 8), (0.0, 1.0), thread);
        [writer.trace(7, 3, "n1", (1, 2)), segment(0), segment(8), segment(16)].concat()
    };
    let (dxt_posix, dxt_mpi_io) = (trace(true), trace(false));
    writer.modules = vec![
        (1, 4, posix),
        (2, 3, mpi_io),
        (8, 2, lustre),
        (9, 2, stdio),
        (10, 2, dxt_posix),
        (11, 2, dxt_mpi_io),
    ];
    writer.log()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_bytes_of_records_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
        is_cut in prop::bool::weighted(0.2),
    ) {
        let mut log = uncompressed();
        for (at, value) in changes {
            let at = at.index(log.len());
            log[at] = value;
        }
        if is_cut {
            log.truncate(cut.index(log.len()));
        }
        read_all(log);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn changed_bytes_of_real_logs_never_panic(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let logs: Vec<_> = directory(&data("")).collect();
        let mut log = std::fs::read(&logs[which.index(logs.len())]).unwrap();
        for (at, value) in changes {
            let at = at.index(log.len());
            log[at] = value;
        }
        read_all(log);
    }
}

/// Each number of a record with an extreme value: counts of segments, components, lengths.
#[test]
fn extreme_numbers_never_panic_and_need_little_memory() {
    let log = uncompressed();
    for at in (0..log.len() - 8).step_by(4) {
        for value in [i64::MIN, -1, i64::MAX, 1 << 40] {
            let mut log = log.clone();
            log[at..at + 8].copy_from_slice(&value.to_le_bytes());
            read_all(log);
        }
    }
}

/// A few kilobytes that are gigabytes when decompressed: the reader stops at its limit of 4 GiB for a region, and
/// keeps none of it. Not in the usual runs, since it takes a while.
#[test]
#[ignore = "decompresses 4 GiB"]
fn decompression_is_limited() {
    let mut writer = Writer { streams: 1, ..Writer::default() };
    let zeros = vec![0; 64 << 20];
    writer.modules = vec![(9, 2, zeros)];
    let one = writer.log();
    let records = Log::open(Cursor::new(one.clone())).unwrap();
    let region = *records.header().module(forebay_darshan_log::Module::STDIO).unwrap();
    let stream = one[one.len() - region.bytes as usize..].to_vec();
    let mut log = one;
    for _ in 0..70 {
        log.extend(&stream);
    }
    // The length of the region with number 9 is in the second half of its map.
    let at = 32 + 16 + 9 * 16 + 8;
    let bytes = 71 * stream.len() as u64;
    log[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
    let error = Log::open(Cursor::new(log)).unwrap().records(Api::Stdio, |_| {}).unwrap_err();
    assert!(error.to_string().contains("more than 4294967296 bytes"), "{error}");
}
