//! Command lines of the two benchmarks, buffer and staging.

use crate::Outcome;
use std::path::PathBuf;
use std::process::ExitCode;

/// The options that both benchmarks have.
pub struct Options {
    /// A directory on the disk.
    pub disk: PathBuf,
    /// A directory on tmpfs.
    pub memory: PathBuf,
    pub rounds: usize,
    /// Only cases whose name contains this are measured.
    pub only: String,
    pub json: PathBuf,
}

/// Returns the value of the option that is being parsed.
pub type Value<'a> = &'a mut dyn FnMut() -> Outcome<String>;

/// Parses a command line. The results are written to the file `json` unless another one is named.
/// `other` handles further options, and returns `false` for unknown ones.
pub fn parse(
    mut arguments: impl Iterator<Item = String>,
    usage: &'static str,
    json: &str,
    mut other: impl FnMut(&str, &mut Options, Value<'_>) -> Outcome<bool>,
) -> Outcome<Options> {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut options = Options {
        json: directory.join(json),
        disk: directory,
        memory: PathBuf::from("/dev/shm"),
        rounds: 3,
        only: String::new(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| usage.into());
        match argument.as_str() {
            "--disk" => options.disk = value()?.into(),
            "--memory" => options.memory = value()?.into(),
            "--rounds" => options.rounds = value()?.parse()?,
            "--only" => options.only = value()?,
            "--json" => options.json = value()?.into(),
            "--bench" => {} // added by cargo
            option if other(option, &mut options, &mut value)? => {}
            _ => return Err(usage.into()),
        }
    }
    if options.rounds == 0 {
        return Err("--rounds must be at least 1".into());
    }
    Ok(options)
}

/// Reports an error, and returns the exit code of the benchmark.
pub fn exit_code(outcome: Outcome<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
