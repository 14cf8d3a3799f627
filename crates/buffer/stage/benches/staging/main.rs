//! How fast staging is, beside what the storage at its ends does alone, in one run: `make bench`, or
//! `cargo bench -p forebay-stage --bench staging -- [options]`.
//!
//! Everything is staged in and out again, and read back both ways. In each round every contestant does
//! its work once, in turn forwards and backwards; a ratio is the median of the rounds' ratios, and a
//! rate is the median of the rounds' rates. Nothing is in memory when a contestant begins, and it has
//! done its work when that is on stable storage.
//!
//! Copying is measured until all is on stable storage, beside the rate of the slower side, which is
//! how fast both sides do their parts at the same time, handing nothing over: for a stage-in, one set
//! of threads reads the tree on the parallel file system and another makes one of the same shape in an
//! instance, through the client library; for a stage-out, the instance is read and a tree written
//! outside. What is made gets owners, permissions and times, and is put on stable storage. As both
//! sides and a mover share the processors here, and with both ends on one disk that disk, they have
//! to share them when they are measured alone. A mover that overlaps reading and writing can do as
//! well but for looking around, checksums, a journal and names that appear when a file is whole; one
//! that does not takes the time of each after the other.
//!
//! With small files that rate is for the most part one of the client library and of the processors. It
//! is shown, but what is wanted of a tree of small files is that the whole of a stage, reading back
//! included, keeps up with `cp -a`, which is what the file system underneath does with such a tree.
//!
//! Reading back is measured beside reading the same files alone. Each side alone has as many threads
//! as a mover copies with. `cp -a` is followed by `syncfs`.

mod cases;
mod floor;
mod inside;
#[allow(dead_code, reason = "the bench of the buffer uses all of it")]
#[path = "../../../client/benches/buffer/report.rs"]
mod report;
mod trees;

use std::path::PathBuf;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What was asked for.
struct Options {
    /// A directory on the disk.
    disk: PathBuf,
    /// A directory in memory.
    memory: PathBuf,
    rounds: usize,
    gibibytes: u64,
    /// Small files.
    files: u64,
    json: PathBuf,
    /// Only cases whose name contains this.
    only: String,
}

const USAGE: &str = "usage: staging [--disk DIRECTORY] [--memory DIRECTORY] [--rounds N] [--gib N] \
    [--files N] [--only TEXT] [--json FILE]";

fn options(mut arguments: impl Iterator<Item = String>) -> Outcome<Options> {
    let here = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut options = Options {
        disk: here.clone(),
        memory: PathBuf::from("/dev/shm"),
        rounds: 3,
        gibibytes: 2,
        files: 20_000,
        json: here.join("staging.json"),
        only: String::new(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--disk" => options.disk = value()?.into(),
            "--memory" => options.memory = value()?.into(),
            "--rounds" => options.rounds = value()?.parse()?,
            "--gib" => options.gibibytes = value()?.parse()?,
            "--files" => options.files = value()?.parse()?,
            "--json" => options.json = value()?.into(),
            "--only" => options.only = value()?,
            "--bench" => {} // cargo says so
            _ => return Err(USAGE.into()),
        }
    }
    if options.rounds == 0 || options.gibibytes == 0 || options.files == 0 {
        return Err("--rounds, --gib and --files take numbers from 1 on".into());
    }
    Ok(options)
}

fn main() -> ExitCode {
    let outcome = options(std::env::args().skip(1)).and_then(|options| cases::all(&options));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
