//! IOR through the log of MPI-IO on `toy` with a parallel file system, compared with hand calculations.

use crate::toy_lustre;
use forebay_machine::results::{IorPoint, LoggedWrites};
use forebay_machine::study::{
    Fidelity, FileSystem, LogFlush, SimOptions, StudyError, check_ior_fits, simulate_ior,
};
use forebay_workload::ior::Ior;
use toy_lustre::machine_with;

/// One target of 1 GB/s, with four channels that take 4 ms for a command; a storage node that writes 500 MB/s and reads 1 GB/s.
const SLOW: [(&str, &str); 7] = [
    ("pfs.lustre.target_write_iops", "1000"),
    ("pfs.lustre.lock_callback", "0 ms"),
    ("burst_buffer.card_write", "500 MB/s"),
    ("burst_buffer.card_read", "1 GB/s"),
    ("burst_buffer.controllers_per_card", "1"),
    ("burst_buffer.command_gap", "0 us"),
    ("pfs.lustre.window", "1 MiB"),
];
/// 16 MiB of each process, 64 KiB after those of the others.
const STRIDED: &str = "-a MPIIO -w -t 64k -b 64k -s 256";
/// Time that this takes without a log, s.
const PLAIN: f64 = 512.0 * 4.02e-3;

fn ior(line: &str) -> Ior {
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    Ior::parse(&words).unwrap().remove(0)
}

fn options(flush: LogFlush, fidelity: Fidelity) -> SimOptions {
    let file_system = FileSystem::Parallel { stripe_count: Some(1), stripe: None };
    let (log, burst_buffers) = (Some(flush), Some(1));
    SimOptions { log, burst_buffers, file_system, fidelity, ..SimOptions::default() }
}

fn point(
    more: &[(&str, &str)],
    flush: LogFlush,
    fidelity: Fidelity,
    line: &str,
) -> Result<IorPoint, StudyError> {
    let machine = machine_with(&[&SLOW, more].concat());
    simulate_ior(&machine, &ior(line), 2, 2, &options(flush, fidelity), &|_, _, _| true)
}

fn logged(more: &[(&str, &str)], flush: LogFlush, fidelity: Fidelity, line: &str) -> LoggedWrites {
    point(more, flush, fidelity, line).unwrap().logged.unwrap()
}

fn assert_near(found: f64, by_hand: f64, percent: f64, what: &str) {
    let error = 100.0 * (found / by_hand - 1.0);
    assert!(error.abs() < percent, "{what}: {found}, by hand {by_hand}: {error:+.1}%");
}

/// 1,024 requests of 64 KiB, two of each node in turn, which call the lock of the other node back and wait until
/// its two are on disk: 512 turns of 4.02 ms. The logs have 64 MiB, written at 500 MB/s in 134 ms, read at
/// 1 GB/s in 67 ms, and written to the target at 1 GB/s in 67 ms, with one or two callbacks.
#[test]
fn gain_of_strided_writes_is_that_calculated_by_hand() {
    let bytes = f64::from(64 << 20);
    let (log, read, write) = (bytes / 0.5e9, bytes / 1e9, bytes / 1e9);
    for fidelity in [Fidelity::Packet, Fidelity::Flow] {
        let name = fidelity.name();
        let found = logged(&[], LogFlush::Close, fidelity, STRIDED);
        assert_near(found.plain_seconds, PLAIN, 5.0, &format!("{name}, plain"));
        let parts = [&found.log, &found.log_read, &found.file_write].map(|p| p.as_ref().unwrap());
        for (part, by_hand) in parts.iter().zip([log, read, write]) {
            assert_near(part.seconds, by_hand, 15.0, &format!("{name}, {}", part.access));
        }
        assert_near(found.gain, PLAIN / (log + read + write), 10.0, &format!("{name}, gain"));
        assert_eq!(found.seconds, parts.iter().map(|part| part.seconds).sum::<f64>());
        assert_eq!((found.seconds, false), (found.complete_seconds, found.past_log));
        // A record has a head of 56 bytes. A process writes 16 MiB, its part of the file, at once.
        assert_eq!(parts[0].bytes, 4 * 256 * (65_536 + 56));
        assert_eq!((parts[1].bytes, parts[1].operations), (64 << 20, 1_024));
        assert_eq!((parts[2].bytes, parts[2].operations), (64 << 20, 4));
    }
}

/// The program waits for the logs alone, 134 ms, and the file is complete later. A mover applies the logs
/// one merged write after another, 16 MiB at 1 GB/s each way, which no other process overlaps.
#[test]
fn program_waits_for_the_log_alone_if_that_is_applied_later() {
    let close = logged(&[], LogFlush::Close, Fidelity::Packet, STRIDED);
    let background = logged(&[], LogFlush::Background, Fidelity::Packet, STRIDED);
    assert_near(background.gain, PLAIN / 0.134, 12.0, "background");
    assert_eq!(background.complete_seconds, close.complete_seconds);
    let later = logged(&[], LogFlush::StageOut, Fidelity::Packet, STRIDED);
    assert_near(later.seconds, background.seconds, 1.0, "stage-out");
    let write = later.file_write.as_ref().unwrap();
    assert_eq!((write.bytes, write.operations), (64 << 20, 4));
    assert!(later.complete_seconds > 1.05 * close.complete_seconds, "{later:?}");
}

/// A call of 1 ms: each process makes 256. Their records fill 16 requests of 1 MiB and the begin of another
/// one, so that 17 requests of equal length are charged with 16 calls each, rounded up. Of calls of 512
/// bytes, 2,048 take 10 us each, and 1,846 of them fill a request.
#[test]
fn calls_take_their_time_before_the_requests_to_the_log() {
    let slow = [("client.mpi_overhead", "1 ms"), ("burst_buffer.card_write", "2 GB/s")];
    let found = logged(&slow, LogFlush::Background, Fidelity::Packet, STRIDED);
    // The card takes a request of 0.99 MB in 0.49 ms (that the four processes' requests do not wait for each
    // other was settled in view).
    let of_writes = 17.0 * (16e-3 + 0.49e-3);
    assert_near(found.log.unwrap().transfer_seconds, of_writes, 5.0, "calls of 64 KiB");
    let small = [("client.mpi_overhead", "10 us"), ("burst_buffer.card_write", "2 GB/s")];
    let line = "-a MPIIO -w -t 512 -b 512 -s 2048";
    let found = logged(&small, LogFlush::Background, Fidelity::Packet, line);
    let log = found.log.unwrap();
    assert_eq!(log.bytes, 4 * 2_048 * (512 + 56));
    assert_near(log.transfer_seconds, 2_048.0 * 10e-6, 15.0, "calls of 512 bytes");
}

/// Calls of 8 MiB go to the file at once if the log is applied at close, and to the log otherwise.
#[test]
fn large_writes_go_past_a_log_that_is_applied_at_close() {
    let line = "-a MPIIO -w -t 8m -b 16m";
    let found = logged(&[], LogFlush::Close, Fidelity::Packet, line);
    assert!(found.past_log && found.log.is_none() && found.log_read.is_none());
    assert_near(found.gain, 1.0, 0.1, "gain");
    assert!(!logged(&[], LogFlush::Background, Fidelity::Packet, line).past_log);
}

/// With a file of each process, each applies its own log to its file.
#[test]
fn files_of_processes_get_their_own_logs() {
    let line = "-a MPIIO -F -w -t 64k -b 16m -e";
    let found = logged(&[], LogFlush::Close, Fidelity::Packet, line);
    let parts = [&found.log_read, &found.file_write].map(|part| part.as_ref().unwrap());
    assert_eq!(parts.map(|part| (part.bytes, part.operations)), [(64 << 20, 1_024), (64 << 20, 4)]);
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let machine = machine_with(&SLOW);
    let with = |threads: usize| {
        let options = SimOptions { threads, ..options(LogFlush::Close, Fidelity::Packet) };
        let line = ior("-a MPIIO -c -w -r -t 40000 -b 120000 -s 16");
        simulate_ior(&machine, &line, 12, 2, &options, &|_, _, _| true).unwrap().logged
    };
    assert_eq!(with(1), with(3));
}

/// Test, flush, and what the refusal says.
#[test]
fn tests_that_the_log_does_not_have_are_refused() {
    let machine = machine_with(&SLOW);
    for (line, flush, text) in [
        ("-w -t 64k -b 64k", LogFlush::Close, "add -a MPIIO"),
        ("-a MPIIO -r -t 64k -b 64k", LogFlush::Close, "add -w"),
        ("-a MPIIO -w -D 3", LogFlush::Close, "deadlines"),
        ("-a MPIIO -w -r", LogFlush::StageOut, "leave out -r"),
        ("-a MPIIO -w -t 1m -b 200g", LogFlush::Background, "half of the instance"),
    ] {
        let options = options(flush, Fidelity::Flow);
        let error = check_ior_fits(&machine, &ior(line), 2, 2, &options).unwrap_err();
        assert!(error.to_string().contains(text), "{line}: {error}");
    }
}
