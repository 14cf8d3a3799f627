//! Options and files of observations: delays by cause, time series, traces.

use super::output::{Output, OutputArgs};
use crate::console::print_stderr;
use crate::csv_files::to_csv;
use crate::run_directory::check_writable;
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine::observe::{Delays, ObserveOptions, Observed, SeriesTable, Trace};
use forebay_units::human::{percent, seconds};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct ObserveArgs {
    /// Also attribute the waits of packets and requests: whose bytes delayed whom, by class of links
    /// and by server
    #[arg(long, conflicts_with = "sweep")]
    delays: bool,
    /// Also record each job, server and link over time, to series-*.csv in the run directory
    #[arg(long, conflicts_with_all = ["sweep", "no_out"])]
    series: bool,
    /// Links of --series: the N that carried the most, or all
    #[arg(
        long,
        value_name = "N|all",
        default_value = "16",
        requires = "series",
        conflicts_with_all = ["sweep", "no_out"],
        value_parser = link_count
    )]
    series_links: LinkCount,
    /// Write sampled requests and packets to a file in the JSON trace event format, for
    /// ui.perfetto.dev; compressed if it ends in .gz
    #[arg(long, value_name = "FILE", conflicts_with = "sweep")]
    trace: Option<PathBuf>,
    /// Share of the requests and messages in the trace
    #[arg(long, value_name = "1/N", default_value = "1/1000", requires = "trace", value_parser = one_in)]
    trace_sample: u64,
}

/// Number of links whose time series are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LinkCount(usize);

fn link_count(text: &str) -> Result<LinkCount, String> {
    match (text, text.parse()) {
        ("all", _) => Ok(LinkCount(usize::MAX)),
        (_, Ok(count)) if count > 0 => Ok(LinkCount(count)),
        (_, Ok(_) | Err(_)) => Err("write a number of links above 0, or all".to_string()),
    }
}

/// N of `1/N`.
fn one_in(text: &str) -> Result<u64, String> {
    match text.strip_prefix("1/").map(str::parse::<u64>) {
        Some(Ok(n)) if n > 0 => Ok(n),
        Some(_) | None => Err("write a share as 1/1000; 1/1 is everything".to_string()),
    }
}

impl ObserveArgs {
    /// The simulator's options.
    pub(super) fn options(&self) -> ObserveOptions {
        ObserveOptions {
            delays: self.delays,
            series: self.series,
            trace_one_in: if self.trace.is_some() { self.trace_sample } else { 0 },
        }
    }

    /// Checks that a trace is of a single run, and that its file can be written and is no other output.
    pub(super) fn check(
        &self,
        runs: usize,
        seeds: u32,
        output: &OutputArgs,
    ) -> Result<(), Failure> {
        let Some(path) = &self.trace else {
            return Ok(());
        };
        if runs > 1 || seeds > 1 {
            return Err(Failure::Input(format!(
                "--trace {}: a trace is of one run: give one node count, one test and one seed",
                path.display()
            )));
        }
        if path.is_dir() {
            return Err(Failure::Input(format!("--trace {}: it is a directory", path.display())));
        }
        if output.json_is(path) {
            return Err(Failure::Input(format!(
                "--trace {0}: --json writes to {0}, too; name two files",
                path.display()
            )));
        }
        check_writable(path)
    }

    /// Writes the files of a run's observations to `folder`, which is empty for the top; `name` tells
    /// those of several runs apart, and is empty for a single one.
    pub(super) fn write(
        &self,
        output: &Output,
        (folder, name): (&str, &str),
        delays: Option<&Delays>,
        observed: &Observed,
    ) -> Result<(), Failure> {
        if let Some(delays) = delays {
            output.write(folder, &format!("delays{name}.csv"), delays_csv(delays)?)?;
        }
        if let Some(series) = &observed.series {
            for (file, table, most) in [
                ("jobs", &series.jobs, usize::MAX),
                ("servers", &series.servers, usize::MAX),
                ("links", &series.links, self.series_links.0),
            ] {
                let csv = series_csv(table, most)?;
                output.write(folder, &format!("series-{file}{name}.csv"), csv)?;
            }
        }
        if let (Some(path), Some(trace)) = (&self.trace, &observed.trace) {
            let failed = |e| Failure::Failed(format!("--trace {}: {e}", path.display()));
            write_trace(path, trace).inspect_err(|_| remove_part(path)).map_err(failed)?;
            print_stderr(format_args!(
                "trace: {} slices of {} of the messages in {}",
                trace.slices.len(),
                percent(trace.share),
                path.display()
            ));
        }
        Ok(())
    }
}

/// Removes what was written of a trace; not a device or a pipe.
fn remove_part(path: &Path) {
    if path.is_file() {
        let _ = std::fs::remove_file(path);
    }
}

fn write_trace(path: &Path, trace: &Trace) -> std::io::Result<()> {
    let file = BufWriter::new(File::create(path)?);
    if path.extension().is_some_and(|e| e == "gz") {
        let mut out = BufWriter::new(GzEncoder::new(file, Compression::fast()));
        trace.write(&mut out)?;
        let encoder = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        encoder.finish()?.flush()
    } else {
        let mut out = file;
        trace.write(&mut out)?;
        out.flush()
    }
}

/// The delays as a table: a row for each class of links and delayed job, a column for each cause.
pub(super) fn delays_text(delays: &Delays) -> String {
    let mut table = Table::new([
        Column::text("waits at", 0),
        Column::text("of", 0),
        Column::number("in all", 0),
        Column::number("per packet", 0),
        Column::text("delayed by", 0),
    ]);
    for class in &delays.network {
        for (i, job) in delays.jobs.iter().enumerate().filter(|(i, _)| class.passages[*i] > 0) {
            let total = class.total_seconds[i];
            table.push([
                format!("{} links", class.class),
                job.clone(),
                seconds(total),
                seconds(total / class.passages[i] as f64),
                causes(&delays.jobs, &class.seconds[i]),
            ]);
        }
    }
    for (i, job) in delays.jobs.iter().enumerate() {
        let mut by = vec![0.0; delays.jobs.len()];
        for server in &delays.servers {
            by.iter_mut().zip(&server.seconds[i]).for_each(|(sum, s)| *sum += s);
        }
        let total: f64 = by.iter().sum();
        if total > 0.0 {
            let causes = causes(&delays.jobs, &by);
            table.push(["servers".into(), job.clone(), seconds(total), String::new(), causes]);
        }
    }
    format!("\n{table}")
}

/// `ior 70%, traffic 30%`.
fn causes(jobs: &[String], by: &[f64]) -> String {
    let total: f64 = by.iter().sum();
    let shares = jobs.iter().zip(by).filter(|(_, s)| **s > 0.0);
    shares.map(|(job, s)| format!("{job} {}", percent(s / total))).collect::<Vec<_>>().join(", ")
}

fn delays_csv(delays: &Delays) -> Result<String, Failure> {
    let classes = delays.network.iter().map(|c| (c.class.clone(), &c.seconds));
    let servers = delays.servers.iter().map(|s| (format!("node {}", s.node), &s.seconds));
    let rows = classes.chain(servers).flat_map(|(place, matrix)| {
        let cells = delays.jobs.iter().zip(matrix).flat_map(|(job, row)| {
            delays.jobs.iter().zip(row).map(move |(by, seconds)| (job, by, *seconds))
        });
        cells.map(move |(job, by, seconds)| (place.clone(), job, by, seconds)).collect::<Vec<_>>()
    });
    to_csv(&["place", "job", "delayed_by", "seconds"], rows)
}

/// A table of series, of the first `most` rows: a row for each name and interval.
fn series_csv(table: &SeriesTable, most: usize) -> Result<String, Failure> {
    let mut heading = vec!["name", "seconds"];
    heading.extend(table.columns);
    let rows = table.rows.iter().take(most).flat_map(|(name, intervals)| {
        intervals.iter().zip(1..).map(move |(values, i)| {
            let end = f64::from(i) * table.interval;
            (name, end, values)
        })
    });
    to_csv(&heading, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_machine::observe::ClassDelays;

    #[test]
    fn delays_are_shown_with_the_share_of_each_cause() {
        let delays = Delays {
            jobs: vec!["traffic".into(), "ior".into()],
            network: vec![ClassDelays {
                class: "rank-1".into(),
                seconds: vec![vec![0.0, 0.0], vec![3e-6, 1e-6]],
                total_seconds: vec![0.0, 4e-6],
                passages: vec![0, 8],
            }],
            servers: Vec::new(),
        };
        let text = delays_text(&delays);
        assert!(text.contains("rank-1 links"), "{text}");
        assert!(text.contains("traffic 75"), "{text}");
        assert!(text.contains("500 ns"), "{text}");
        assert_eq!(text.trim().lines().count(), 2, "{text}");
        let csv = delays_csv(&delays).unwrap();
        assert_eq!(csv.lines().nth(3), Some("rank-1,ior,traffic,3e-6"), "{csv}");
    }

    #[test]
    fn shares_and_counts_are_parsed() {
        assert_eq!(one_in("1/1000"), Ok(1000));
        assert!(one_in("0.001").is_err() && one_in("1/0").is_err());
        assert_eq!(link_count("all"), Ok(LinkCount(usize::MAX)));
        assert!(link_count("0").is_err());
    }
}
