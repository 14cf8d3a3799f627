//! `forebay measure`.

use super::pool::size;
use crate::console::{print_stderr, print_stdout};
use crate::measure::{Measurement, probe_mounts};
use crate::run_directory::write_file;
use crate::show::Terminal;
use clap::Args;
use forebay_console::Failure;
use forebay_daemon::config::selected_file;
use forebay_units::Bytes;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
        forebay measure --directory /lus/ada --out rates.toml\n  \
        forebay plan job.sh --pool --rates rates.toml -- -a POSIX -F -w -t 1m -b 4g")]
pub(super) struct MeasureArgs {
    /// The pool's configuration [default: $FOREBAY_POOL, or /etc/forebay/pool.toml]
    #[arg(long, value_name = "FILE")]
    pool: Option<PathBuf>,
    /// A directory of the parallel file system, in which files may be written
    #[arg(long, value_name = "DIR", required_unless_present = "probe")]
    directory: Option<PathBuf>,
    /// Data of each measurement; at most three quarters of a granule
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = probe_size)]
    size: Bytes,
    /// The file of the rates, for `forebay plan --pool --rates` [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Measure what is mounted for this job, and write it to this file: the script of a measurement
    #[arg(long, value_name = "FILE", hide = true)]
    probe: Option<PathBuf>,
}

/// A size as in a directive, or a number of bytes with the unit `B`.
fn probe_size(text: &str) -> Result<Bytes, String> {
    match text.strip_suffix(" B").and_then(|bytes| bytes.parse().ok()) {
        Some(bytes) => Ok(Bytes(bytes)),
        None => size(text),
    }
}

pub(super) fn run(args: MeasureArgs) -> Result<(), Failure> {
    if let Some(out) = &args.probe {
        return probe_mounts(out, args.size.0);
    }
    let pool = selected_file(args.pool);
    let directory = args.directory.unwrap_or_default();
    let directory = std::path::absolute(&directory)
        .map_err(|error| Failure::Input(format!("{}: {error}", directory.display())))?;
    let mut terminal = Terminal::default();
    let measurement = Measurement { pool: &pool, directory: &directory, bytes: args.size.0 };
    let rates = measurement.run(&mut terminal)?;
    let text = toml::to_string(&rates)
        .map_err(|error| Failure::Failed(format!("the rates as TOML: {error}")))?;
    match &args.out {
        None => print_stdout(&text),
        Some(path) => {
            write_file(path, text)?;
            print_stderr(format_args!(
                "{} storage nodes measured; rates are in {}",
                rates.nodes.len(),
                path.display()
            ));
            Ok(())
        }
    }
}
