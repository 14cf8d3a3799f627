//! Speed of the buffer, compared with the underlying file system and with GlusterFS, in one run:
//! `make bench`, or `cargo bench -p forebay-client --bench buffer -- [options]`.
//!
//! Daemons, mounts and clients are separate processes. In each round every contestant does the same
//! work once, one after another. A ratio is the median of the ratios of the rounds, so that a
//! disturbance of the machine affects both sides; a rate is the median of the rates of the rounds.

mod cases;
mod gluster;
mod process;
mod report;
mod round_trips;
mod site;
#[allow(dead_code)] // the tests use the rest
#[path = "../../tests/support/striped_admin.rs"]
mod striped_admin;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What was asked for.
struct Options {
    /// A directory on the disk.
    disk: PathBuf,
    /// A directory on tmpfs.
    memory: PathBuf,
    rounds: usize,
    /// Work is divided by this.
    divisor: u64,
    json: PathBuf,
    /// Only cases whose name contains this.
    only: String,
    gluster: bool,
}

const USAGE: &str = "usage: buffer [--disk DIRECTORY] [--memory DIRECTORY] [--rounds N] [--quick] \
    [--only TEXT] [--no-gluster] [--json FILE]";

fn options(mut arguments: impl Iterator<Item = String>) -> Outcome<Options> {
    let here = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut options = Options {
        disk: here.clone(),
        memory: PathBuf::from("/dev/shm"),
        rounds: 3,
        divisor: 1,
        json: here.join("buffer.json"),
        only: String::new(),
        gluster: true,
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--disk" => options.disk = value()?.into(),
            "--memory" => options.memory = value()?.into(),
            "--rounds" => options.rounds = value()?.parse()?,
            "--json" => options.json = value()?.into(),
            "--only" => options.only = value()?,
            "--quick" => (options.divisor, options.rounds) = (8, 1),
            "--no-gluster" => options.gluster = false,
            "--bench" => {} // cargo says so
            _ => return Err(USAGE.into()),
        }
    }
    if options.rounds == 0 {
        return Err("--rounds takes a number from 1 on".into());
    }
    Ok(options)
}

fn run() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    match arguments.peek().map(String::as_str) {
        Some("client") => work::client(),
        Some("daemon") => site::daemon(arguments.skip(1)),
        Some("mount") => site::mounted(arguments.skip(1)),
        Some("stream") => work::stream(),
        _ => cases::all(&options(arguments)?),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
