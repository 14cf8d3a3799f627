//! The reduction of Darshan logs to tests of IOR.

use crate::writer::{Packing, Writer};
use forebay_darshan_log::Log;
use forebay_workload::darshan::{FileSet, JobIo, read};
use forebay_workload::ior::Access;
use std::io::Cursor;
use std::path::Path;

/// The I/O of a real log.
fn real(name: &str) -> JobIo {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/darshan-log/tests/data");
    read(&mut Log::open(std::fs::File::open(data.join(name)).unwrap()).unwrap()).unwrap()
}

fn written(writer: &Writer) -> JobIo {
    read(&mut Log::open(Cursor::new(writer.log())).unwrap()).unwrap()
}

/// The tests of all phases on nodes with so many processes each.
fn lines(io: &JobIo, nodes: u32, ppn: u32) -> Vec<String> {
    let parts = io.phases.iter().flat_map(|phase| &phase.parts);
    let line = |part: &forebay_workload::darshan::Part| {
        let of_part = part.distribution(nodes, ppn);
        part.test(of_part).unwrap();
        format!("{}x{}: {}", of_part.0, of_part.1, part.ior_arguments(of_part).join(" "))
    };
    parts.map(line).collect()
}

/// Indices of POSIX counters.
const OPENS: usize = 0;
const READS: usize = 3;
const WRITES: usize = 4;
const MMAPS: usize = 7;
const BYTES_READ: usize = 14;
const BYTES_WRITTEN: usize = 15;
const MAX_BYTE_READ: usize = 16;
const MAX_BYTE_WRITTEN: usize = 17;
const CONSEC_WRITES: usize = 19;
const SEQ_WRITES: usize = 21;
const SIZE_READ_100K_1M: usize = 33;
const SIZE_WRITE_100K_1M: usize = 43;
const FASTEST_RANK_BYTES: usize = 66;
const SLOWEST_RANK_BYTES: usize = 68;
/// Indices of POSIX times.
const READ_START: usize = 1;
const WRITE_START: usize = 2;
const READ_END: usize = 5;
const WRITE_END: usize = 6;
const READ_TIME: usize = 8;
const WRITE_TIME: usize = 9;
const SLOWEST_RANK_TIME: usize = 14;

/// A POSIX record with these counters and times.
fn posix(
    writer: &Writer,
    (id, rank): (i64, i64),
    counters: &[(usize, i64)],
    times: &[(usize, f64)],
) -> Vec<u8> {
    let (mut all, mut all_times) = ([0; 69], [0.0; 17]);
    counters.iter().for_each(|(index, value)| all[*index] = *value);
    times.iter().for_each(|(index, value)| all_times[*index] = *value);
    writer.record(id, rank, &all, &all_times)
}

/// `count` writes of 1 MiB one after another by a process to a file of its own, from `begin` on.
fn writes(writer: &Writer, id: i64, rank: i64, count: i64, begin: f64) -> Vec<u8> {
    let bytes = count << 20;
    let counters = [
        (OPENS, 1),
        (WRITES, count),
        (BYTES_WRITTEN, bytes),
        (MAX_BYTE_WRITTEN, bytes - 1),
        (CONSEC_WRITES, count - 1),
        (SEQ_WRITES, count - 1),
        (SIZE_WRITE_100K_1M, count),
    ];
    let times = [(WRITE_START, begin), (WRITE_END, begin + 1.0), (WRITE_TIME, 0.5)];
    posix(writer, (id, rank), &counters, &times)
}

fn log_of(records: impl Fn(&Writer) -> Vec<u8>) -> Writer {
    let mut writer = Writer { packing: Packing::None, ..Writer::default() };
    writer.modules = vec![(1, 4, records(&writer))];
    writer
}

/// The log's own command line: `-t 8m -b 256m -s 4 -F -C -e -a POSIX -w -k`.
#[test]
fn ior_with_a_file_per_process_becomes_its_own_test() {
    let io = real("ior-48ranks.darshan");
    assert_eq!(lines(&io, 2, 24), ["2x24: -a POSIX -w -F -t 8388608 -b 1073741824 -e"]);
    let phase = &io.phases[0];
    assert_eq!((phase.access, phase.is_shared, phase.files), (Access::Write, false, 48));
    assert_eq!(phase.bytes, 48 << 30);
    assert_eq!(io.written, FileSet { files: 48, bytes: 48 << 30 });
    assert!(!io.has_traces && io.warnings[0].contains("no traces (DXT)"), "{:?}", io.warnings);
    assert_eq!(io.distribution(None, None), None);
    assert_eq!(io.distribution(Some(2), None), Some((2, 24)));
    assert_eq!(io.distribution(None, Some(32)), Some((2, 32)));
    assert_eq!(io.distribution(Some(3), Some(20)), Some((3, 20)));
}

/// VPIC-IO: eight variables of 128 MiB a process, those of all processes side by side in one file. Eighteen small
/// requests of HDF5 are left out.
#[test]
fn strided_writes_to_a_shared_file_alternate() {
    let io = real("vpic-2048ranks.darshan");
    assert_eq!(lines(&io, 64, 32), ["64x32: -a POSIX -w -t 134217728 -b 134217728 -s 8"]);
    assert_eq!(io.phases[0].processes, 2048);
    assert!(io.warnings.iter().any(|text| text.contains("collective MPI-IO")), "{:?}", io.warnings);
}

/// IOR with HDF5: four processes write a MiB each in four requests, then read it.
#[test]
fn traces_give_hosts_and_patterns() {
    let io = real("ior-hdf5-dxt.darshan");
    assert!(io.has_traces);
    assert_eq!((io.hosts, io.distribution(None, None)), (Some(1), Some((1, 4))));
    let expected =
        ["1x4: -a POSIX -w -t 262144 -b 1048576", "1x4: -a POSIX -r -t 262144 -b 1048576"];
    assert_eq!(lines(&io, 1, 4), expected);
    assert!(!io.warnings.iter().any(|text| text.contains("no traces")), "{:?}", io.warnings);
    assert!(
        io.warnings.iter().any(|text| text.contains("1 file written and read")),
        "{:?}",
        io.warnings
    );
}

/// MACSio: rank 0 writes nearly everything of files with records of all 16 processes.
#[test]
fn shared_record_of_one_writer_is_a_file_of_one_process() {
    let io = real("macsio.darshan");
    let largest = io.phases.iter().max_by_key(|phase| phase.bytes).unwrap();
    assert_eq!(largest.parts[0].processes, 1);
    assert!(!largest.is_shared, "{largest:?}");
}

#[test]
fn activities_apart_in_time_are_phases() {
    let writer = log_of(|w| {
        let checkpoint =
            |id: i64, begin| (0..4).flat_map(move |rank| writes(w, id + rank, rank, 8, begin));
        checkpoint(10, 5.0).chain(checkpoint(20, 5.5)).chain(checkpoint(30, 60.0)).collect()
    });
    let io = written(&writer);
    let phases: Vec<_> =
        io.phases.iter().map(|one| (one.begin, one.end, one.files, one.processes)).collect();
    assert_eq!(phases, [(5.0, 6.5, 8, 4), (60.0, 61.0, 4, 4)]);
    // Each process writes two files in the first phase: one of twice the size.
    let first = "2x2: -a POSIX -w -F -t 1048576 -b 16777216";
    let second = "2x2: -a POSIX -w -F -t 1048576 -b 8388608";
    assert_eq!(lines(&io, 2, 2), [first, second]);
    assert_eq!((io.phases[0].measured_seconds, io.phases[1].measured_seconds), (1.0, 0.5));
    assert!(
        io.warnings.iter().any(|text| text.contains("more files than simulated (8")),
        "{:?}",
        io.warnings
    );
    assert_eq!(io.written, FileSet { files: 12, bytes: 12 * (8 << 20) });
}

/// Processes with very different amounts are tests of their own, on the nodes where they are.
#[test]
fn processes_with_more_data_are_a_part_of_their_own() {
    let writer = log_of(|w| {
        let of = |rank: i64| writes(w, 10 + rank, rank, if rank >= 6 { 100 } else { 10 }, 1.0);
        (0..8).flat_map(of).collect()
    });
    let io = written(&writer);
    let expected = [
        // Ranks 6 and 7 are on the last of four nodes.
        "1x2: -a POSIX -w -F -t 1048576 -b 104857600",
        "3x2: -a POSIX -w -F -t 1048576 -b 10485760",
    ];
    assert_eq!(lines(&io, 4, 2), expected);
}

#[test]
fn files_that_are_only_read_are_input() {
    let writer = log_of(|w| {
        let counters = [
            (OPENS, 8),
            (READS, 64),
            (BYTES_READ, 64 << 20),
            (MAX_BYTE_READ, (8 << 20) - 1),
            (SIZE_READ_100K_1M, 64),
            (FASTEST_RANK_BYTES, 8 << 20),
            (SLOWEST_RANK_BYTES, 8 << 20),
        ];
        let times =
            [(READ_START, 1.0), (READ_END, 2.0), (READ_TIME, 6.0), (SLOWEST_RANK_TIME, 0.8)];
        let mut records = posix(w, (7, -1), &counters, &times);
        records.extend(posix(w, (8, 0), &[(OPENS, 1), (MMAPS, 1)], &[]));
        records
    });
    let io = written(&writer);
    // All eight processes read the same 8 MiB.
    assert_eq!(io.only_read, FileSet { files: 1, bytes: 8 << 20 });
    assert_eq!(io.written, FileSet::default());
    assert_eq!(lines(&io, 8, 1), ["8x1: -a POSIX -r -t 1048576 -b 8388608 -z"]);
    assert!((io.phases[0].measured_seconds - 0.8).abs() < 1e-12);
    assert!(io.warnings.iter().any(|text| text.contains("1 file mapped")), "{:?}", io.warnings);
    assert!(
        io.warnings
            .iter()
            .any(|text| text.contains("1 file of which more was read than they contain")),
        "{:?}",
        io.warnings
    );
}

/// A trace with another number of calls than the counters is not used.
#[test]
fn incomplete_traces_are_replaced_by_counters() {
    let log = |segments: i64| {
        let mut writer = Writer { packing: Packing::None, partial: 1 << 10, ..Writer::default() };
        let mut trace = writer.trace(7, 3, "nid00001", (segments, 0));
        for number in 0..segments {
            let begin = 10.0 * number as f64;
            trace.extend(writer.segment((number << 20, 1 << 20), (begin, begin + 0.25), true));
        }
        writer.modules = vec![(1, 4, writes(&writer, 7, 3, 4, 1.0)), (10, 2, trace)];
        written(&writer)
    };
    // Pauses of almost ten seconds divide a complete trace.
    let complete = log(4);
    assert!(complete.has_traces);
    let begins: Vec<f64> = complete.phases.iter().map(|phase| phase.begin).collect();
    assert_eq!(begins, [0.0, 10.0, 20.0, 30.0]);
    let incomplete = log(3);
    assert!(!incomplete.has_traces);
    assert_eq!(incomplete.phases.len(), 1);
    assert_eq!((incomplete.phases[0].begin, incomplete.phases[0].operations), (1.0, 4));
    let warned = |text: &str| incomplete.warnings.iter().any(|warning| warning.contains(text));
    assert!(warned("the log is incomplete: Darshan's memory for DXT_POSIX was full"));
}
