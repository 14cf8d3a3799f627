//! `forebay measure`.

use super::output::check_output_file;
use super::pool::size;
use crate::console::{print_stderr, print_stdout};
use crate::measure::{Measurement, probe_mounts};
use crate::run_directory::write_file;
use crate::show::Terminal;
use clap::Args;
use forebay_console::Failure;
use forebay_daemon::config::selected_file;
use forebay_units::Bytes;
use forebay_units::human::{counted, percent};
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
    /// Data of each measurement; at most three quarters of a granule [default: that, up to 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = probe_size)]
    size: Option<Bytes>,
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
    let size = args.size.map(|size| size.0);
    if let Some(out) = &args.probe {
        let missing = || Failure::Input("--probe needs --size".to_owned());
        return probe_mounts(out, size.ok_or_else(missing)?);
    }
    if let Some(out) = &args.out {
        check_output_file("--out", out)?;
    }
    let pool = selected_file(args.pool);
    let directory = args.directory.unwrap_or_default();
    let directory = std::path::absolute(&directory)
        .map_err(|error| Failure::Input(format!("{}: {error}", directory.display())))?;
    let mut terminal = Terminal::default();
    let measurement = Measurement { pool: &pool, directory: &directory, bytes: size };
    let rates = measurement.run(&mut terminal)?;
    if let Some((rate, spread)) = rates.greatest_spread() {
        print_stderr(format_args!(
            "each rate is the median of {} measurements; those of {rate} differ most, by {}",
            rates.repetitions,
            percent(spread)
        ));
    }
    let text = toml::to_string(&rates)
        .map_err(|error| Failure::Failed(format!("the rates as TOML: {error}")))?;
    match &args.out {
        None => print_stdout(&text),
        Some(path) => {
            write_file(path, text)?;
            print_stderr(format_args!(
                "{} measured; rates are in {}",
                counted(rates.nodes.len() as u64, "storage node"),
                path.display()
            ));
            Ok(())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use forebay_plan::MeasuredRates;

    const OLD: &str = "pool = \"flash\"\nhost = \"n1\"\nbytes = 1000\npfs_write = 5\npfs_read = 6\n\
        [[node]]\nname = \"n1\"\nis_local = true\nsend = 1\nwrite = 2\nread = 3\nstage_in = 4\n\
        stage_out = 5\nstage_in_seconds = 0.1\nstage_out_seconds = 0.2\n";

    #[test]
    fn rates_without_repetitions_are_read() {
        let rates: MeasuredRates = toml::from_str(OLD).unwrap();
        assert_eq!((rates.repetitions, rates.greatest_spread()), (1, None));
        assert!(rates.check().is_ok());
    }

    #[test]
    fn spreads_are_written_and_read() {
        let spread = "[node.spread]\nsend = 0.1\nwrite = 0.4\nread = 0.2\nstage_in = 0.0\n\
            stage_out = 0.3\n";
        let text = format!("repetitions = 3\npfs_spread = [0.1, 0.2]\n{OLD}{spread}");
        let rates: MeasuredRates = toml::from_str(&text).unwrap();
        assert_eq!(rates.greatest_spread(), Some(("write of node n1".into(), 0.4)));
        let again: MeasuredRates = toml::from_str(&toml::to_string(&rates).unwrap()).unwrap();
        assert_eq!(again, rates);
    }
}
