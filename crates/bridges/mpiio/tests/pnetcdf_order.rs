//! Programs over PnetCDF that a log of puts can get wrong: puts that overlap or are filled, a log
//! device without space, programs that are killed, and their reruns.

use crate::support;
use forebay_mpiio_log::{ReplayOptions, replay, scan};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Mpi, intercept, run, statistics};
use tempfile::TempDir;

/// Processes.
const RANKS: usize = 3;

/// A compiled program and the place of its files.
struct Site {
    scratch: TempDir,
    program: PathBuf,
}

impl Site {
    /// `None` if PnetCDF is not installed. Debian builds it for Open MPI.
    fn new() -> Option<Site> {
        let header = "/usr/include/pnetcdf.h";
        if !Mpi::installed().contains(&Mpi::OpenMpi) || !Path::new(header).exists() {
            eprintln!("{header} is not installed; the test is skipped");
            return None;
        }
        let scratch = tempfile::tempdir().unwrap();
        let program = Mpi::OpenMpi.compile("puts.c", &["-lpnetcdf"], scratch.path());
        Some(Site { scratch, program })
    }

    fn path(&self) -> &Path {
        self.scratch.path()
    }

    fn file(&self) -> PathBuf {
        self.path().join("logged.nc")
    }

    /// A run through the log.
    fn logged(&self, action: &str) -> Command {
        let mut command = Mpi::OpenMpi.launch(RANKS, &self.program);
        intercept(&mut command, "logged.nc", self.path());
        command.arg(self.file()).arg(action);
        command
    }

    /// Runs the program until it is killed behind a sync. Returns the logs, which have all data.
    fn kill(&self) -> Vec<PathBuf> {
        assert!(!self.logged("kill").output().unwrap().status.success());
        let logs = std::fs::read_dir(self.path().join("logs")).unwrap();
        let logs: Vec<PathBuf> = logs.map(|entry| entry.unwrap().path()).collect();
        let logs: Vec<PathBuf> =
            logs.into_iter().filter(|path| path.extension().unwrap() == "fblog").collect();
        assert_eq!(logs.len(), RANKS);
        for log in &logs {
            assert!(
                !scan(log).unwrap().slots[0].entries.is_empty(),
                "{} has entries",
                log.display()
            );
        }
        logs
    }

    /// Asserts that the file has the last put of every byte, by a run of the MPI library alone.
    fn check(&self) {
        self.check_run("0");
    }

    /// As [`Site::check`], of a run that puts values of its own.
    fn check_run(&self, number: &str) {
        let mut check = Mpi::OpenMpi.launch(RANKS, &self.program);
        run(check.arg(self.file()).args(["check", number]));
    }

    /// Asserts that at least so many requests were logged in the last run.
    fn assert_logged(&self, least: u64) {
        let logged = statistics(self.path()).count("logged.nc", "logged_requests");
        assert!(logged >= least, "{logged} requests were logged");
    }
}

#[test]
fn last_of_overlapping_puts_of_a_rank_is_in_the_file_and_fills_keep_their_order() {
    let Some(site) = Site::new() else { return };
    run(&mut site.logged("end"));
    site.check();
    // Six puts, a put before and one behind the fills, and the fills.
    site.assert_logged(10 * RANKS as u64);
}

#[test]
fn check_of_the_test_program_finds_a_missing_put() {
    let Some(site) = Site::new() else { return };
    run(&mut site.logged("end"));
    site.assert_logged(1);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(site.file()).unwrap();
    let last = file.metadata().unwrap().len() - 4;
    file.write_all_at(&[0xff; 4], last).unwrap();
    let mut check = Mpi::OpenMpi.launch(RANKS, &site.program);
    assert!(!check.arg(site.file()).arg("check").output().unwrap().status.success());
}

#[test]
fn log_of_a_killed_program_has_its_entries_and_a_replay_restores_the_synced_file() {
    let Some(site) = Site::new() else { return };
    site.kill();
    let replayed = replay(&[site.path().join("logs")], &ReplayOptions::default()).unwrap();
    assert_eq!(replayed.len(), 1);
    assert!(replayed[0].entries >= 10 * RANKS as u64, "{replayed:?}");
    site.check();
}

#[test]
fn rerun_of_a_killed_program_succeeds_and_its_file_is_its_own() {
    let Some(site) = Site::new() else { return };
    site.kill();
    run(site.logged("end").arg("1"));
    site.check_run("1");
    site.assert_logged(10 * RANKS as u64);
    // Nothing is left to be replayed over it.
    replay(&[site.path().join("logs")], &ReplayOptions::default()).unwrap();
    site.check_run("1");
}

#[test]
fn damaged_synced_record_of_a_killed_program_is_noticed_and_nothing_is_applied() {
    let Some(site) = Site::new() else { return };
    let logs = site.kill();
    let place = scan(&logs[1]).unwrap().slots[0].entries[0].place.offset;
    let log = std::fs::OpenOptions::new().read(true).write(true).open(&logs[1]).unwrap();
    let mut byte = [0];
    log.read_exact_at(&mut byte, place).unwrap();
    log.write_all_at(&[byte[0] ^ 1], place).unwrap();
    let before = std::fs::read(site.file()).unwrap();
    assert!(replay(&[site.path().join("logs")], &ReplayOptions::default()).is_err());
    assert!(std::fs::read(site.file()).unwrap() == before, "nothing was applied");
    log.write_all_at(&byte, place).unwrap();
    replay(&[site.path().join("logs")], &ReplayOptions::default()).unwrap();
    site.check();
}

#[test]
fn log_device_without_space_loses_no_acknowledged_put() {
    let Some(site) = Site::new() else { return };
    // A file system for logs that has less space than the data, in a mount namespace of its own.
    let inside = |command: &Command| {
        let mut small = Command::new("unshare");
        small.args(["--map-root-user", "--user", "--mount", "sh", "-c"]);
        small.arg("mount -t tmpfs -o size=2m none \"$FOREBAY_LOG_DIR\" && exec \"$@\"").arg("sh");
        small.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => small.env(name, value),
                None => small.env_remove(name),
            };
        }
        small
    };
    let mount = inside(&{
        let mut nothing = Command::new("true");
        intercept(&mut nothing, "logged.nc", site.path());
        nothing.env_remove("LD_PRELOAD");
        nothing
    })
    .output()
    .unwrap();
    if !mount.status.success() {
        eprintln!("no mount namespaces: {}", String::from_utf8_lossy(&mount.stderr));
        return;
    }
    let mut logged = site.logged("end");
    // The launcher creates no logs.
    logged.env("FOREBAY_LOG_SIZE", (64 << 20).to_string());
    run(&mut inside(&logged));
    site.check();
    let statistics = statistics(site.path());
    let requests = |counter| statistics.count("logged.nc", counter);
    assert!(requests("opened") == RANKS as u64, "{statistics:?}");
    assert!(requests("past_log_requests") > 0, "the log was full: {statistics:?}");
}
