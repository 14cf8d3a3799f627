//! The I/O of a job: one test, or the phases of a Darshan log.

use crate::error::PlanError;
use forebay_units::Bytes;
use forebay_workload::darshan::{FileSet, JobIo, Part};
use forebay_workload::ior::{Access, AccessPattern, Ior, Processes, Reorder};

/// The I/O of a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// A test by all processes.
    Test(Box<Ior>),
    /// Tests one after another, which stand for the phases of a log.
    Log(LoggedWork),
}

/// The I/O of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedWork {
    /// The tests; each is there once.
    pub tests: Vec<LoggedTest>,
    /// The files that the program wrote.
    pub written: FileSet,
}

/// A test that stands for parts of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LoggedTest {
    /// The test.
    pub test: Ior,
    /// Its nodes.
    pub nodes: u32,
    /// Its processes per node.
    pub ppn: u32,
    /// Parts of the log that it stands for.
    pub times: u32,
}

impl LoggedWork {
    /// The I/O of a log, whose job has so many nodes and processes on each.
    ///
    /// # Errors
    /// The log has nothing to simulate, or numbers beyond those of IOR.
    pub fn of(io: &JobIo, (nodes, ppn): (u32, u32)) -> Result<LoggedWork, PlanError> {
        let mut tests: Vec<LoggedTest> = Vec::new();
        for part in io.phases.iter().flat_map(|phase| &phase.parts) {
            let found = logged_test(part, part.distribution(nodes, ppn))?;
            let is_same = |known: &&mut LoggedTest| {
                (&known.test, known.nodes, known.ppn) == (&found.test, found.nodes, found.ppn)
            };
            match tests.iter_mut().find(is_same) {
                Some(known) => known.times += 1,
                None => tests.push(found),
            }
        }
        if tests.is_empty() {
            return Err(PlanError::Job("the log has no transfers to simulate".into()));
        }
        Ok(LoggedWork { tests, written: io.written })
    }

    /// The test that moves most bytes.
    fn largest(&self) -> Option<&Ior> {
        let bytes = |one: &&LoggedTest| one.pattern().map_or(0, |pattern| pattern.total_bytes());
        self.tests.iter().max_by_key(bytes).map(|one| &one.test)
    }
}

fn logged_test(part: &Part, (nodes, ppn): (u32, u32)) -> Result<LoggedTest, PlanError> {
    let test = part.test((nodes, ppn)).map_err(|error| PlanError::Job(error.to_string()))?;
    Ok(LoggedTest { test, nodes, ppn, times: 1 })
}

impl LoggedTest {
    fn pattern(&self) -> Result<AccessPattern, PlanError> {
        pattern(&self.test, self.nodes, self.ppn)
    }
}

/// The access pattern of a test.
fn pattern(test: &Ior, nodes: u32, ppn: u32) -> Result<AccessPattern, PlanError> {
    let too_many = || {
        PlanError::Job(format!("{nodes} nodes with {ppn} processes each are too many processes"))
    };
    let count = nodes.checked_mul(ppn).ok_or_else(too_many)?;
    let processes = Processes { count, per_node: ppn, seed: 1 };
    AccessPattern::new(test, processes).map_err(|error| PlanError::Job(error.to_string()))
}

impl Work {
    /// The tests of a job with so many nodes and processes on each.
    pub(crate) fn tests(&self, (nodes, ppn): (u32, u32)) -> Vec<LoggedTest> {
        match self {
            Work::Test(test) => {
                let test = test.as_ref().clone();
                vec![LoggedTest { test, nodes, ppn, times: 1 }]
            }
            Work::Log(log) => log.tests.clone(),
        }
    }

    /// One set of the files: those of the test, or those that the logged program wrote.
    pub(crate) fn files(&self, (nodes, ppn): (u32, u32)) -> Result<FileSet, PlanError> {
        match self {
            Work::Test(test) => {
                let pattern = pattern(test, nodes, ppn)?;
                Ok(FileSet { files: pattern.files().into(), bytes: pattern.total_bytes() })
            }
            Work::Log(log) => Ok(log.written),
        }
    }

    /// Bytes that move in a direction.
    pub(crate) fn bytes_moved(
        &self,
        access: Access,
        distribution: (u32, u32),
    ) -> Result<f64, PlanError> {
        let mut bytes = 0.0;
        for one in self.tests(distribution) {
            if is_done(&one.test, access) {
                let repetitions = f64::from(one.test.repetitions) * f64::from(one.times);
                bytes += one.pattern()?.total_bytes() as f64 * repetitions;
            }
        }
        Ok(bytes)
    }

    /// Whether there are transfers in a direction.
    pub(crate) fn has(&self, access: Access) -> bool {
        match self {
            Work::Test(test) => is_done(test, access),
            Work::Log(log) => log.tests.iter().any(|one| is_done(&one.test, access)),
        }
    }

    /// Whether processes share files.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Work::Test(test) => !test.file_per_process,
            Work::Log(log) => log.tests.iter().any(|one| !one.test.file_per_process),
        }
    }

    /// Whether each compute node accesses only files that it wrote itself. A log does not say whose files a process
    /// reads.
    pub(crate) fn is_private(&self) -> bool {
        match self {
            Work::Test(test) => {
                test.file_per_process && (!test.read || test.reorder == Reorder::Own)
            }
            Work::Log(_) => !self.is_shared() && !self.has(Access::Read),
        }
    }

    /// Bytes of a transfer: of a log those of the test that moves most bytes.
    pub(crate) fn transfer(&self) -> Bytes {
        match self {
            Work::Test(test) => test.transfer,
            Work::Log(log) => log.largest().map_or(Bytes::ZERO, |test| test.transfer),
        }
    }

    /// The work with other tests.
    pub fn with_tests(self, change: impl Fn(Ior) -> Ior) -> Work {
        match self {
            Work::Test(test) => Work::Test(Box::new(change(*test))),
            Work::Log(log) => {
                let changed = |one: LoggedTest| LoggedTest { test: change(one.test), ..one };
                let tests = log.tests.into_iter().map(changed).collect();
                Work::Log(LoggedWork { tests, ..log })
            }
        }
    }

    /// Each test.
    pub fn each_test(&self) -> Vec<&Ior> {
        match self {
            Work::Test(test) => vec![test],
            Work::Log(log) => log.tests.iter().map(|one| &one.test).collect(),
        }
    }
}

fn is_done(test: &Ior, access: Access) -> bool {
    match access {
        Access::Write => test.write,
        Access::Read => test.read,
    }
}
