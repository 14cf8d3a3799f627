//! All formats: byte orders, compressions, versions of the log and of its records.

use crate::writer::{Order, Packing, Writer};
use forebay_darshan_log::{
    Access, Api, Component, FileUse, Log, LustreFile, Module, Segment, TraceApi,
};
use std::io::Cursor;

fn open(writer: &Writer) -> Log<Cursor<Vec<u8>>> {
    Log::open(Cursor::new(writer.log())).unwrap()
}

/// The number of LUSTRE, STDIO, DXT_POSIX and DXT_MPIIO in a format.
fn numbers(version: &str) -> [usize; 4] {
    match version {
        "3.00" | "3.10" => [6, 7, 8, 9],
        "3.20" | "3.21" => [7, 8, 9, 10],
        _ => [8, 9, 10, 11],
    }
}

const VERSIONS: [&str; 5] = ["3.00", "3.10", "3.20", "3.21", "3.41"];

#[test]
fn logs_of_all_formats_are_read() {
    for version in VERSIONS {
        for order in [Order::Little, Order::Big] {
            for packing in [Packing::Zlib, Packing::Bzip2, Packing::None] {
                let mut writer = Writer { version, order, packing, ..Writer::default() };
                let [_, stdio, dxt, _] = numbers(version);
                let counters: Vec<i64> = (1..=14).collect();
                let times: Vec<f64> = (1..=15).map(f64::from).collect();
                let records = [
                    writer.record(7, 5, &counters, &times),
                    writer.record(8, -1, &counters, &times),
                ];
                let trace = [
                    writer.trace(7, 3, "nid00042", (1, 2)),
                    writer.segment((0, 100), (1.5, 2.5), true),
                    writer.segment((50, 10), (3.0, 4.0), true),
                    writer.segment((60, 20), (4.0, 4.5), true),
                ];
                writer.modules = vec![(stdio, 2, records.concat()), (dxt, 2, trace.concat())];
                writer.partial = 1 << dxt;
                let context = format!("{version} {order:?} {packing:?}");
                let mut log = open(&writer);
                assert_eq!(log.header().version.to_string(), version);
                let modules =
                    log.header().modules.iter().map(|m| (m.module, m.version, m.is_partial));
                let expected = [(Module::STDIO, 2, false), (Module::DXT_POSIX, 2, true)];
                assert!(modules.eq(expected), "{context}: {:?}", log.header().modules);
                let job = log.job();
                assert_eq!((job.uid, job.job_id, job.processes), (1000, 4711, 8), "{context}");
                let run = if version == "3.41" { 60.5 } else { 61.0 };
                assert_eq!(job.run_seconds, run, "{context}");
                assert_eq!(job.command, "/home/ada/simulate --steps 10");
                assert_eq!(job.metadata("h"), Some("romio_no_indep_rw=true"));
                let names = log.names().unwrap();
                assert_eq!(
                    (names.len(), names.get(7)),
                    (2, Some("/lus/fast/out.dat")),
                    "{context}"
                );
                let mut found = Vec::new();
                assert_eq!(log.records(Api::Stdio, |record| found.push(record.clone())), Ok(0));
                assert_eq!(found.len(), 2, "{context}");
                assert_eq!((found[0].id, found[0].rank, found[1].rank), (7, Some(5), None));
                assert_eq!((&found[0].counters, &found[0].times), (&counters, &times), "{context}");
                let mut segments = Vec::new();
                log.traces(TraceApi::Posix, |file, access, some| {
                    assert_eq!((file.id, file.rank, file.host.as_str()), (7, 3, "nid00042"));
                    segments.extend(some.iter().map(|segment| (access, *segment)));
                })
                .unwrap();
                let segment =
                    |offset, bytes, start, end| Segment { offset: Some(offset), bytes, start, end };
                let expected = [
                    (Access::Write, segment(0, 100, 1.5, 2.5)),
                    (Access::Read, segment(50, 10, 3.0, 4.0)),
                    (Access::Read, segment(60, 20, 4.0, 4.5)),
                ];
                assert_eq!(segments, expected, "{context}");
            }
        }
    }
}

/// POSIX records of version 4 have all counters; those of earlier versions lack some, and version 1 has four
/// more. The counter with the number n (from 1) of version 4 has the value n.
#[test]
fn old_records_are_converted() {
    let new: Vec<i64> = (1..=69).collect();
    let without: Vec<i64> =
        new.iter().copied().filter(|n| ![2, 3, 11, 12, 13].contains(n)).collect();
    let mut first = without.clone();
    first.splice(6..6, [0, 0, 0, 0]);
    let times: Vec<f64> = (1..=17).map(f64::from).collect();
    let old_times: Vec<f64> = times.iter().copied().filter(|n| ![4.0, 5.0].contains(n)).collect();
    let cases = [
        (1, &first, &old_times),
        (2, &without, &old_times),
        (3, &without, &times),
        (4, &new, &times),
    ];
    for (version, counters, times) in cases {
        let mut writer = Writer { version: "3.10", ..Writer::default() };
        let mut records = writer.record(7, 0, counters, times);
        if version == 1 {
            // Of a file that was also opened with fopen.
            let mut streams = counters.clone();
            streams[6] = 1;
            records.extend(writer.record(7, 1, &streams, times));
        }
        writer.modules = vec![(1, version, records)];
        let mut log = open(&writer);
        let mut found = Vec::new();
        let left_out = log.records(Api::Posix, |record| found.push(record.clone()));
        assert_eq!(left_out, Ok(u64::from(version == 1)));
        assert_eq!(found.len(), 1);
        let record = &found[0];
        let expected: Vec<i64> = (1..=69)
            .map(|n| match n {
                2 | 3 | 11 | 12 if version < 4 => -1,
                13 if version < 4 => 0,
                n => n,
            })
            .collect();
        assert_eq!(record.counters, expected, "version {version}");
        assert_eq!(record.counter("OPENS"), Some(1));
        assert_eq!(record.counter("FASTEST_RANK"), Some(66));
        assert_eq!(
            record.time("CLOSE_START_TIMESTAMP"),
            Some(if version < 3 { -1.0 } else { 4.0 })
        );
        assert_eq!(record.time("SLOWEST_RANK_TIME"), Some(15.0));
        let file = FileUse::of(record);
        assert_eq!((file.opens, file.read.operations, file.write.operations), (1, 4, 5));
        assert_eq!(file.read.sizes, std::array::from_fn(|bin| 30 + bin as u64));
        assert_eq!(file.common_sizes, [(58, 62), (59, 63), (60, 64), (61, 65)]);
    }
}

#[test]
fn traces_of_version_1_of_mpi_io_have_no_offsets() {
    for (version, offset) in [(1, None), (2, Some(64))] {
        let mut writer = Writer { version: "3.21", ..Writer::default() };
        let trace = [writer.trace(7, 0, "n1", (1, 0)), writer.segment((64, 8), (0.0, 1.0), false)];
        writer.modules = vec![(numbers("3.21")[3], version, trace.concat())];
        let mut offsets = Vec::new();
        open(&writer)
            .traces(TraceApi::MpiIo, |_, _, segments| {
                offsets.extend(segments.iter().map(|s| s.offset))
            })
            .unwrap();
        assert_eq!(offsets, [offset], "version {version}");
    }
}

#[test]
fn striping_of_both_versions_is_read() {
    let mut writer = Writer { version: "3.10", ..Writer::default() };
    let old = writer.integers([7, -1, 248, 5, -1, 1 << 20, 3, 10, 20, 30]);
    writer.modules = vec![(numbers("3.10")[0], 1, old)];
    let whole = Component { stripe_bytes: 1 << 20, stripe_count: 3, begin: 0, end: None };
    let mut files = Vec::new();
    open(&writer).lustre(|file| files.push(file.clone())).unwrap();
    let old = LustreFile { id: 7, rank: None, components: vec![whole], targets: vec![10, 20, 30] };
    assert_eq!(files, [old]);

    // Two components, and one that Darshan reserved and did not use.
    let mut writer = Writer::default();
    let mut new = writer.integers([7, 2, 3, 4]);
    for (stripe, count, begin, end) in
        [(1 << 20, 1, 0, 1 << 22), (1 << 22, 2, 1 << 22, -1), (-1, 0, 0, 0)]
    {
        new.extend(writer.integers([stripe, count, 0, 0, begin, end, 0]));
        new.extend([0; 16]);
    }
    new.extend(writer.integers([4, 5, 6, 0]));
    writer.modules = vec![(8, 2, new)];
    let mut files = Vec::new();
    open(&writer).lustre(|file| files.push(file.clone())).unwrap();
    let component = |stripe_bytes, stripe_count, begin, end| Component {
        stripe_bytes,
        stripe_count,
        begin,
        end,
    };
    let components =
        vec![component(1 << 20, 1, 0, Some(1 << 22)), component(1 << 22, 2, 1 << 22, None)];
    assert_eq!(files, [LustreFile { id: 7, rank: Some(2), components, targets: vec![4, 5, 6] }]);
}

#[test]
fn a_path_is_on_the_mount_with_the_longest_path() {
    let log = open(&Writer::default());
    let mount = |path| log.job().mount_of(path).map(|mount| mount.path.as_str());
    assert_eq!(mount("/lus/fast/out.dat"), Some("/lus/fast"));
    assert_eq!(mount("/lus/fastest"), Some("/lus"));
    assert_eq!(mount("/lustre"), Some("/"));
}

/// Errors name the region, the place and what would be right.
#[test]
fn errors_say_where_and_what() {
    let error =
        |log: Vec<u8>| Log::open(Cursor::new(log)).err().map(|e| e.to_string()).unwrap_or_default();
    let good = Writer::default().log();
    assert_eq!(
        error(Vec::new()),
        "header at byte 0: not a Darshan log: no version such as 3.21 at its begin"
    );
    let with = |at: usize, bytes: &[u8]| {
        let mut log = good.clone();
        log[at..at + bytes.len()].copy_from_slice(bytes);
        log
    };
    assert!(
        error(with(0, b"2.05")).contains("format is 2.05; 3.00 to 3.41"),
        "{}",
        error(with(0, b"2.05"))
    );
    assert!(error(with(8, b"x")).contains("byte 8: not a Darshan log"));
    assert!(error(with(16, &[9])).contains("byte 16: compression 9"));
    assert!(error(good[..700].to_vec()).contains("byte 700: the log ends here; 1328"));
    // zlib data begin behind the header.
    assert!(error(with(1328, b"abcd")).contains("job record at byte 1328: no valid zlib data"));
    let mut writer = Writer { processes: 0, ..Writer::default() };
    assert!(error(writer.log()).contains("0 processes"));

    writer.processes = 4;
    writer.modules = vec![(9, 2, writer.record(7, 4, &[0; 14], &[0.0; 15]))];
    let rank = open(&writer).records(Api::Stdio, |_| {}).unwrap_err().to_string();
    assert!(
        rank.starts_with("STDIO records at byte ")
            && rank.contains("rank 4; the program had the ranks 0 to 3")
    );
    writer.modules = vec![(9, 3, Vec::from([1]))];
    let version = open(&writer).records(Api::Stdio, |_| {}).unwrap_err().to_string();
    assert!(version.contains("version 3 of STDIO records is not known"), "{version}");
    writer.modules = vec![(9, 2, vec![0; 100])];
    let cut = open(&writer).records(Api::Stdio, |_| {}).unwrap_err().to_string();
    assert!(cut.contains("ends within a record: 100 bytes instead of 248"), "{cut}");
}
