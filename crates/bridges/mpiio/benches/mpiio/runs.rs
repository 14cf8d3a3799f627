//! Runs of a program: plain, through the log, or with the burst-buffer driver of PnetCDF.

use crate::Outcome;
use crate::cases::{Case, Mpi};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Processes of a program.
pub const RANKS: usize = 4;

/// The way in which a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The MPI library alone.
    Plain,
    /// Through the log, which is applied when the file is closed.
    Logged,
    /// Through the log, which is applied after that.
    Background,
    /// With PnetCDF's driver.
    Driver,
}

impl Mode {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Logged => "logged",
            Mode::Background => "background",
            Mode::Driver => "driver",
        }
    }
}

/// The places of a run.
#[derive(Debug)]
pub struct Site {
    pub mpi: Mpi,
    /// Directory of the files, on the file system that is measured.
    pub files: PathBuf,
    /// Directory of logs.
    pub logs: PathBuf,
    pub scratch: PathBuf,
    /// The interception library.
    pub library: PathBuf,
}

/// A measured run.
#[derive(Clone, Debug)]
pub struct Run {
    /// From the opening to the end of the close.
    pub seconds: f64,
    pub bytes: u64,
    /// Statistics of the interception library; `Null` without it.
    pub statistics: serde_json::Value,
}

impl Site {
    /// Path of the file that a mode writes.
    fn file(&self, mode: Mode) -> PathBuf {
        self.files.join(format!("{}.nc", mode.name()))
    }

    fn prepare(&self, command: &mut Command, case: &Case, mode: Mode, pnetcdf: bool) {
        command.arg(case.pattern).arg(self.file(mode));
        // The installation that has the driver writes without MPI-IO unless told otherwise.
        let mut hints = if pnetcdf { "nc_driver=mpiio".to_owned() } else { String::new() };
        match mode {
            Mode::Plain => {}
            Mode::Driver => {
                hints = format!(
                    "nc_burst_buf=enable;nc_burst_buf_dirname={};nc_burst_buf_overwrite=enable",
                    self.logs.display()
                );
            }
            Mode::Logged | Mode::Background => {
                let flush = if mode == Mode::Logged { "close" } else { "background" };
                command
                    .env("LD_PRELOAD", &self.library)
                    .env("FOREBAY_MPIIO", "*.nc")
                    .env("FOREBAY_LOG_DIR", &self.logs)
                    .env("FOREBAY_LOG_FLUSH", flush)
                    .env("FOREBAY_MPIIO_STATISTICS", self.scratch.join("statistics.json"));
            }
        }
        if !hints.is_empty() {
            command.env("PNETCDF_HINTS", hints);
        }
    }

    /// Runs a program; the file of an earlier run of this mode is removed before.
    pub fn run(&self, program: &Path, case: &Case, mode: Mode, pnetcdf: bool) -> Outcome<Run> {
        self.remove(mode)?;
        let mut command = self.mpi.launch(RANKS, program);
        self.prepare(&mut command, case, mode, pnetcdf);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last().unwrap_or_default();
        let measured = last.split_once(' ').and_then(|(seconds, bytes)| {
            Some((seconds.parse::<f64>().ok()?, bytes.parse::<u64>().ok()?))
        });
        let (true, Some((seconds, bytes))) = (output.status.success(), measured) else {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{command:?}: {}\n{text}{errors}", output.status).into());
        };
        let logged = matches!(mode, Mode::Logged | Mode::Background);
        let statistics =
            if logged { self.statistics(case, mode)? } else { serde_json::Value::Null };
        Ok(Run { seconds, bytes, statistics })
    }

    /// The counts of the file in the last run, which must have been intercepted.
    fn statistics(&self, case: &Case, mode: Mode) -> Outcome<serde_json::Value> {
        let text = std::fs::read(self.scratch.join("statistics.json"))?;
        let all: serde_json::Value = serde_json::from_slice(&text)?;
        let counts = all["files"][self.file(mode).to_string_lossy().as_ref()].clone();
        let direct = case.direct && mode == Mode::Logged;
        let counter = if direct { "past_log_requests" } else { "logged_requests" };
        if counts[counter].as_u64().is_none_or(|count| count == 0) {
            return Err(format!("{}: no {counter}: {all}", case.name).into());
        }
        Ok(counts)
    }

    /// Removes the file that a mode has written.
    pub fn remove(&self, mode: Mode) -> Outcome<()> {
        match std::fs::remove_file(self.file(mode)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Fails if the files of two modes differ.
    pub fn compare(&self, one: Mode, other: Mode) -> Outcome<()> {
        let open = |mode| std::fs::File::open(self.file(mode));
        let (mut first, mut second) = (BufReader::with_capacity(1 << 20, open(one)?), open(other)?);
        let (mut expected, mut found) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        let mut offset = 0;
        loop {
            let length = first.read(&mut expected)?;
            second.read_exact(&mut found[..length])?;
            if expected[..length] != found[..length] {
                return Err(format!("{one:?} and {other:?} differ behind byte {offset}").into());
            }
            if length == 0 {
                let rest = second.read(&mut found)?;
                return if rest == 0 { Ok(()) } else { Err("a file is longer".into()) };
            }
            offset += length;
        }
    }
}
