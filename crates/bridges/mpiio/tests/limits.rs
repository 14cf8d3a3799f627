//! Programs that reach the limits of their logs.

use crate::support;
use std::path::Path;
use std::process::Command;
use support::{Mpi, intercept, run, statistics};

/// Processes of the tests.
const RANKS: usize = 2;

/// A run of the program, which logs its file.
fn program(mpi: Mpi, scratch: &Path, case: &str, count: u64) -> Command {
    let program = mpi.compile("limits.c", &[], scratch);
    let mut command = mpi.launch_for(200, RANKS, &program);
    intercept(&mut command, "*/file.dat", scratch);
    command.arg(scratch.join("file.dat")).arg(case).arg(count.to_string());
    command
}

/// The file of the program in the case `many`, in numbers of 8 bytes.
fn many(count: u64) -> Vec<u64> {
    let end = u64::from_le_bytes(*b"the end\0");
    let mut numbers = vec![0; (count as usize - 1) * RANKS + 1];
    for i in 1..count {
        numbers[i as usize * RANKS] = if i % 1000 == 1 { end } else { i };
    }
    numbers[..RANKS].fill(end);
    numbers
}

#[test]
fn more_writes_than_the_log_has_entries_are_as_fast_as_those_before() {
    // Those behind the last entry that fits go past the log.
    let count = (1 << 20) + 20_000;
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let output = run(&mut program(mpi, scratch.path(), "many", count));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{mpi:?}");
        let statistics = statistics(scratch.path());
        assert!(statistics.count("file.dat", "logged_requests") >= 1 << 20, "{mpi:?}");
        assert!(statistics.count("file.dat", "past_log_requests") > 20_000, "{mpi:?}");
        check_many(mpi, scratch.path(), count);
    }
}

#[test]
fn any_number_of_writes_may_go_past_a_full_log() {
    let count = (1 << 20) + 20_000;
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let mut command = program(mpi, scratch.path(), "many", count);
        let output = run(command.env("FOREBAY_LOG_SIZE", "65536"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{mpi:?}");
        let past_log = statistics(scratch.path()).count("file.dat", "past_log_requests");
        assert!(past_log > 1 << 20, "{mpi:?}: {past_log}");
        check_many(mpi, scratch.path(), count);
    }
}

fn check_many(mpi: Mpi, scratch: &Path, count: u64) {
    let written = std::fs::read(scratch.join("file.dat")).unwrap();
    let expected: Vec<u8> = many(count).into_iter().flat_map(u64::to_le_bytes).collect();
    assert!(written == expected, "{mpi:?}: {} bytes", written.len());
}

#[test]
fn memory_of_a_read_does_not_grow_with_its_pieces() {
    for mpi in Mpi::installed() {
        let scratch = tempfile::tempdir().unwrap();
        let output = run(&mut program(mpi, scratch.path(), "fine", 16));
        let output = String::from_utf8(output.stdout).unwrap();
        let grown = output.strip_prefix("grew by ").and_then(|rest| rest.split_once(" MiB\n"));
        let (grown, rest) = grown.unwrap_or_else(|| panic!("{mpi:?}: {output}"));
        assert_eq!(rest, "", "{mpi:?}");
        assert!(grown.parse::<u64>().unwrap() < 64, "{mpi:?}: {grown} MiB");
        assert!(statistics(scratch.path()).count("file.dat", "log_read_bytes") >= 2 * (16 << 20));
    }
}

/// A file system without `fallocate`, so that its end is found when data is written.
struct SmallDevice<'a>(&'a Path);

impl SmallDevice<'_> {
    /// Mounts it at `at`; `None` if tests may do without it.
    fn mount(at: &Path, bytes: u64) -> Option<SmallDevice<'_>> {
        let image = at.with_extension("img");
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        run(Command::new("mkfs.ext2").arg("-q").arg(&image));
        std::fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext2", "-o", "loop"]).arg(&image).arg(at);
        if mount.status().unwrap().success() {
            return Some(SmallDevice(at));
        }
        assert!(
            std::env::var_os("FOREBAY_WITHOUT_LOOP").is_some_and(|value| value == "1"),
            "loop devices are not available: with FOREBAY_WITHOUT_LOOP=1 a full device of logs is \
             not tested"
        );
        None
    }
}

impl Drop for SmallDevice<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn log_that_cannot_be_completed_on_a_full_device_is_applied_at_the_close() {
    let count = 215;
    for mpi in Mpi::installed() {
        for flush in ["close", "background", "stage-out"] {
            let scratch = tempfile::tempdir().unwrap();
            let scratch = scratch.path();
            let logs = scratch.join("device");
            let Some(device) = SmallDevice::mount(&logs, 4 << 20) else { return };
            let mut command = program(mpi, scratch, "fill", count);
            let output = run(command
                .env("FOREBAY_LOG_DIR", &logs)
                .env("FOREBAY_LOG_SIZE", "67108864")
                .env("FOREBAY_LOG_FLUSH", flush));
            assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{mpi:?}, {flush}");
            let left = forebay_mpiio_log::logs(&logs).unwrap();
            drop(device);
            assert!(left.is_empty(), "{mpi:?}, {flush}: {left:?}");
            assert!(statistics(scratch).count("file.dat", "logged_requests") > count, "{mpi:?}");
            let written = std::fs::read(scratch.join("file.dat")).unwrap();
            assert_eq!(written.len(), count as usize * RANKS * 9000, "{mpi:?}, {flush}");
            for (block, data) in written.chunks(9000).enumerate() {
                let value = b'a' + ((block / RANKS + block % RANKS) % 26) as u8;
                assert!(data.iter().all(|byte| *byte == value), "{mpi:?}, {flush}: block {block}");
            }
        }
    }
}
