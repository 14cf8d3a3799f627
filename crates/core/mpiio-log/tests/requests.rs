//! Requests of a log to its file system.

use forebay_mpiio_log::{
    Datatype, Identity, Limits, LogWriter, View, log_request_bytes, logged_bytes,
};
use std::path::PathBuf;
use std::sync::Arc;

/// System calls for writing that this thread has made.
fn write_calls() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = counts.lines().find_map(|line| line.strip_prefix("syscw: "));
    line.unwrap().parse().unwrap()
}

/// Logs `total` bytes in writes of `length` bytes; returns the number of its requests.
fn requests(length: u64, total: u64) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let target = PathBuf::from("/target");
    let identity = Identity { target, run: "requests".to_owned(), rank: 0, ranks: 1 };
    let mut writer = LogWriter::create(directory.path(), &identity, Limits::default()).unwrap();
    let view = Arc::new(View::new(0, Datatype::Bytes(1)).unwrap());
    let data: Vec<u8> = (0..length).map(|at| (at * 31 / 7) as u8).collect();
    let before = write_calls();
    for position in (0..total).step_by(length as usize) {
        writer.append(&view, position, &data).unwrap();
    }
    writer.flush().unwrap();
    write_calls() - before
}

#[test]
fn writes_of_any_length_are_logged_in_large_requests() {
    let total: u64 = 40 << 20;
    for length in [512, 40_000, 64 << 10, 256 << 10, 1 << 20, 10 << 20] {
        let bytes = total.div_ceil(length) * logged_bytes(length);
        // Further requests: the ends of the three segments, and that of the log.
        let most = bytes.div_ceil(log_request_bytes()) + 8;
        let made = requests(length, total);
        assert!(made > 0 && made <= most, "{length} bytes: {made} requests, at most {most} wanted");
    }
}
