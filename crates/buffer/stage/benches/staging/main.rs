//! Speed of staging, compared with the storage at both ends, in one run: `make bench`, or
//! `cargo bench -p forebay-stage --bench staging -- [options]`.
//!
//! Everything is staged in and out again, and read back both ways. In each round every contestant does
//! its work once, alternately in forward and reverse order; a ratio is the median of the ratios of the
//! rounds, and a rate is the median of the rates. The page cache is empty when a contestant starts, and
//! its work ends when it is on stable storage.
//!
//! The copy phase ends when everything is durable. It is compared with both sides working at the same
//! time without passing data: for a stage-in, some threads read the tree on the parallel file system
//! and others create a tree of the same shape in an instance through the client library; for a
//! stage-out, the instance is read and a tree is written to the parallel file system. Both set owners,
//! permissions and times, and sync. The two sides share processors, and a disk if both ends are on one,
//! as they do in a stage. So a mover that overlaps reading and writing comes close to 1; walking,
//! checksums, the journal and renames are its own costs.
//!
//! For small files that comparison mainly measures the client library and the processors, so it has no
//! target. The target for small files is that the whole stage, including reading back, is as fast as
//! `cp -a`, which is the speed of the underlying file system with such a tree.
//!
//! With `--tcp` the instance is accessed as from another host, from which each request takes a round trip
//! of so many microseconds at least.
//!
//! Reading back is compared with only reading the same files. Each side alone has as many threads as a
//! mover. `cp -a` is followed by `syncfs`.

mod cases;
#[path = "../../../client/benches/buffer/command_line.rs"]
mod command_line;
mod distance;
mod floor;
mod inside;
#[allow(dead_code, reason = "the benchmark of the buffer uses all of it")]
#[path = "../../../client/benches/buffer/report.rs"]
mod report;
mod trees;

use std::process::ExitCode;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Amounts of data, and the way to them.
struct Amounts {
    gibibytes: u64,
    small_files: u64,
    /// The instance is accessed by TCP, as from another host, with this time of a round trip at least.
    tcp: Option<Duration>,
}

const USAGE: &str = "usage: staging [--disk DIRECTORY] [--memory DIRECTORY] [--rounds N] [--gib N] \
    [--files N] [--tcp MICROSECONDS] [--only TEXT] [--json FILE]";

fn measure() -> Outcome<()> {
    let mut amounts = Amounts { gibibytes: 2, small_files: 20_000, tcp: None };
    let arguments = std::env::args().skip(1);
    let options = command_line::parse(arguments, USAGE, "staging.json", |option, _, value| {
        match option {
            "--gib" => amounts.gibibytes = value()?.parse()?,
            "--files" => amounts.small_files = value()?.parse()?,
            "--tcp" => amounts.tcp = Some(Duration::from_micros(value()?.parse()?)),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if amounts.gibibytes == 0 || amounts.small_files == 0 {
        return Err("--gib and --files must be at least 1".into());
    }
    cases::measure_all(&options, &amounts)
}

fn main() -> ExitCode {
    command_line::exit_code(measure())
}
