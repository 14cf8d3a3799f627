//! MPI libraries, programs compiled for them, and runs with and without the interception library.

#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::unwrap_used, reason = "support of tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// An MPI library of Debian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpi {
    OpenMpi,
    Mpich,
}

impl Mpi {
    /// The libraries that are installed: all, unless `FOREBAY_TESTS_WITHOUT_MPI` is set.
    pub fn installed() -> Vec<Mpi> {
        let all = [Mpi::OpenMpi, Mpi::Mpich];
        let found: Vec<Mpi> = all.into_iter().filter(|mpi| mpi.is_installed()).collect();
        assert!(
            found.len() == all.len() || std::env::var_os("FOREBAY_TESTS_WITHOUT_MPI").is_some(),
            "of the MPI libraries only {found:?} are installed; `scripts/setup.sh test` installs \
             them, and FOREBAY_TESTS_WITHOUT_MPI=1 skips the tests of those that are missing"
        );
        found
    }

    fn name(self) -> &'static str {
        match self {
            Mpi::OpenMpi => "openmpi",
            Mpi::Mpich => "mpich",
        }
    }

    fn is_installed(self) -> bool {
        Command::new(format!("mpicc.{}", self.name())).arg("--version").output().is_ok()
    }

    /// Compiles a program of this directory's `programs`.
    pub fn compile(self, source: &str, options: &[&str], to: &Path) -> PathBuf {
        let fortran = source.ends_with(".F90");
        let compiler = if fortran { "mpif90" } else { "mpicc" };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let program = to.join(format!("{source}.{}", self.name()));
        let output = Command::new(format!("{compiler}.{}", self.name()))
            .args(["-O1", "-g", "-o"])
            .arg(&program)
            .arg(sources.join(source))
            .args(options)
            .current_dir(to)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    /// A command that runs a program on `ranks` processes, for at most 400 seconds.
    pub fn launch(self, ranks: usize, program: &Path) -> Command {
        self.launch_for(400, ranks, program)
    }

    /// A command that runs a program on `ranks` processes, for at most so many seconds.
    pub fn launch_for(self, seconds: u32, ranks: usize, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &seconds.to_string()]);
        match self {
            Mpi::OpenMpi => command
                .args(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"])
                .args(["--mca", "btl", "self,vader"]),
            Mpi::Mpich => command.arg("mpiexec.mpich"),
        };
        command.arg("-n").arg(ranks.to_string()).arg(program);
        // Open MPI's launchers otherwise create and remove one directory, and can disturb each other.
        if let Some(scratch) = program.parent() {
            command.env("TMPDIR", scratch);
        }
        // ROMIO writes strided data by reading a range, changing and writing it, which undoes what
        // other ranks have written between. Without this its files differ from run to run.
        let hints = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/romio_hints");
        command.env("ROMIO_HINTS", hints);
        for variable in [
            "FOREBAY_MPIIO",
            "FOREBAY_LOG_DIR",
            "FOREBAY_LOG_FLUSH",
            "FOREBAY_LOG_MAPPING",
            "FOREBAY_LOG_SIZE",
        ] {
            command.env_remove(variable);
        }
        command
    }
}

/// The interception library.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // `scripts/test.sh` has built it.
        if std::env::var_os("FOREBAY_TEST_PROGRAMS").is_none_or(|state| state != "built") {
            let output = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--package=forebay-mpiio", "--lib", "--profile=test"])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let test = std::env::current_exe().unwrap();
        let built = test.parent().unwrap().parent().unwrap().join("libforebay_mpiio.so");
        assert!(built.exists(), "{} was not built", built.display());
        built
    })
}

/// Statistics of a run.
#[derive(Debug)]
pub struct Statistics(serde_json::Value);

impl Statistics {
    /// A count of the file whose path ends with `name`.
    pub fn count(&self, name: &str, counter: &str) -> u64 {
        let files = self.0["files"].as_object().unwrap();
        let file = files.iter().find(|(path, _)| path.ends_with(name));
        let (_, counters) = file.unwrap_or_else(|| panic!("{name} was not logged: {self:?}"));
        counters[counter].as_u64().unwrap()
    }

    /// Files that were logged.
    pub fn files(&self) -> Vec<String> {
        self.0["files"].as_object().unwrap().keys().cloned().collect()
    }

    /// Calls of intercepted functions.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        let calls = self.0["calls"].as_object().unwrap();
        calls.iter().map(|(name, count)| (name.clone(), count.as_u64().unwrap())).collect()
    }
}

/// Loads the library into the program of a command, which logs files that match `pattern`.
pub fn intercept(command: &mut Command, pattern: &str, scratch: &Path) {
    let logs = scratch.join("logs");
    std::fs::create_dir_all(&logs).unwrap();
    command
        .env("LD_PRELOAD", library())
        .env("FOREBAY_MPIIO", pattern)
        .env("FOREBAY_LOG_DIR", &logs)
        .env("FOREBAY_MPIIO_STATISTICS", scratch.join("statistics.json"));
}

/// The statistics of the last run that wrote into `scratch`, which must have left no logs.
pub fn statistics(scratch: &Path) -> Statistics {
    let text = std::fs::read(scratch.join("statistics.json")).unwrap();
    let left: Vec<_> = std::fs::read_dir(scratch.join("logs")).unwrap().flatten().collect();
    assert!(left.is_empty(), "the run left logs: {left:?}");
    Statistics(serde_json::from_slice(&text).unwrap())
}

/// Runs a command and returns its output.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Names of the files of a directory.
fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Asserts that a directory has the files of another with the same contents.
pub fn assert_has_files_of(expected: &Path, found: &Path) {
    for name in names(expected) {
        let read = |directory: &Path| std::fs::read(directory.join(&name)).unwrap();
        let (expected, found) = (read(expected), read(found));
        let first = expected.iter().zip(&found).position(|(expected, found)| expected != found);
        assert!(
            expected == found,
            "{}: {} bytes instead of {}, first difference at {first:?}",
            name.display(),
            found.len(),
            expected.len()
        );
    }
}

/// Asserts that two directories have the same files with the same contents.
pub fn assert_equal_files(expected: &Path, found: &Path) {
    assert_eq!(names(expected), names(found));
    assert_has_files_of(expected, found);
}
