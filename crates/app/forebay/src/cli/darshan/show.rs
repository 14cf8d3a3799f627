//! `forebay darshan show`.

use super::summary::{FileGroup, LogSummary, PhaseSummary, SizeRange, summarize};
use super::{ShowArgs, log_name, open};
use crate::cli::output::to_json;
use crate::cli::remarks;
use crate::console::print_stdout;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_units::human::{bytes, counted, grouped, number, percent, seconds};

/// Phases that are listed; the document has all.
const MOST_PHASES: usize = 20;

pub(super) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let mut log = open(&args.log)?;
    let found = summarize(&mut log, log_name(&args.log), args.files.into())
        .map_err(|error| Failure::Input(format!("{}: {error}", args.log.display())))?;
    match args.json {
        true => print_stdout(&to_json(&found)?),
        false => print_stdout(&text(&found)),
    }
}

fn text(log: &LogSummary) -> String {
    let library = log.library.as_deref().unwrap_or("unknown");
    let hosts = match log.hosts {
        Some(hosts) => counted(hosts.into(), "host"),
        None => "hosts not recorded".into(),
    };
    let share =
        log.io_share.map_or(String::new(), |share| format!(", {} of the run", percent(share)));
    let mut out = format!(
        "{}: Darshan {library}, format {}\nprogram    {}\njob        {} of user {}\nprocesses  {} ({hosts})\n\
         run        {}\nI/O        {} in the slowest processes{share}\n",
        log.log,
        log.format,
        log.program,
        log.job_id,
        log.user_id,
        grouped(log.processes.into()),
        seconds(log.run_seconds),
        seconds(log.slowest_seconds),
    );
    let modules: Vec<&str> = log.modules.iter().map(|module| module.name.as_str()).collect();
    out.push_str(&format!("modules    {}\n", modules.join(", ")));
    out.push_str(&format!("\n{}", interfaces(log)));
    out.push_str(&format!("\n{}", groups("files opened by", &log.sharing)));
    out.push_str(&format!("\n{}", groups("file system", &log.mounts)));
    for one in &log.striping {
        let over =
            format!("{} of {}", counted(one.stripe_count, "target"), bytes(one.stripe_bytes));
        out.push_str(&format!("on Lustre: {} over {over}\n", counted(one.files, "file")));
    }
    if !log.sizes.is_empty() {
        out.push_str(&format!("\n{}", sizes(&log.sizes)));
    }
    if !log.files.is_empty() {
        out.push_str(&format!("\n{}", groups("largest files", &log.files)));
    }
    if !log.phases.is_empty() {
        out.push_str(&format!("\n{}", phases(&log.phases)));
    }
    out + &remarks::text(&remarks::remarks(&log.warnings, &[], &[]))
}

fn interfaces(log: &LogSummary) -> Table {
    let mut table = Table::new([
        Column::text("interface", 0),
        Column::number("files", 0),
        Column::number("opens", 0),
        Column::number("reads", 0),
        Column::number("writes", 0),
        Column::number("read", 0),
        Column::number("written", 0),
        Column::number("time of the slowest", 0),
        Column::number("GB/s", 0),
    ]);
    for one in &log.interfaces {
        table.push([
            one.name.clone(),
            grouped(one.files),
            grouped(one.opens),
            grouped(one.reads),
            grouped(one.writes),
            bytes(one.bytes_read),
            bytes(one.bytes_written),
            seconds(one.slowest_seconds),
            one.gbps.map_or("-".into(), number),
        ]);
    }
    table
}

fn groups(heading: &'static str, groups: &[FileGroup]) -> Table {
    let is_one_each = groups.iter().all(|group| group.files == 1) && heading == "largest files";
    let mut columns = vec![Column::text(heading, 0)];
    if !is_one_each {
        columns.push(Column::number("files", 0));
    }
    columns.extend([Column::number("read", 0), Column::number("written", 0)]);
    let mut table = Table::new(columns);
    for group in groups {
        let mut row = vec![group.name.clone()];
        if !is_one_each {
            row.push(grouped(group.files));
        }
        row.extend([bytes(group.bytes_read), bytes(group.bytes_written)]);
        table.push(row);
    }
    table
}

fn sizes(sizes: &[SizeRange]) -> Table {
    let mut table = Table::new([
        Column::text("requests above", 0),
        Column::number("reads", 0),
        Column::number("writes", 0),
    ]);
    for range in sizes {
        table.push([bytes(range.above_bytes), grouped(range.reads), grouped(range.writes)]);
    }
    table
}

fn phases(phases: &[PhaseSummary]) -> String {
    let mut table = Table::new([
        Column::text("phase", 0),
        Column::text("files", 0),
        Column::number("number", 0),
        Column::number("processes", 0),
        Column::number("begins at", 0),
        Column::number("ends at", 0),
        Column::number("bytes", 0),
        Column::number("requests", 0),
        Column::number("slowest", 0),
        Column::text("simulated as", 0),
    ]);
    for phase in phases.iter().take(MOST_PHASES) {
        let mut lines = phase.ior.iter();
        table.push([
            phase.access.clone(),
            phase.files.clone(),
            grouped(phase.file_count),
            grouped(phase.processes.into()),
            seconds(phase.begin_seconds),
            seconds(phase.end_seconds),
            bytes(phase.bytes),
            grouped(phase.operations),
            seconds(phase.measured_seconds),
            lines.next().map_or("left out", String::as_str).into(),
        ]);
        for line in lines {
            let mut row = vec![String::new(); 9];
            row.push(line.clone());
            table.push(row);
        }
    }
    let mut text = table.to_string();
    if let Some(more) = phases.len().checked_sub(MOST_PHASES).filter(|more| *more > 0) {
        text.push_str(&format!("{}: see --json\n", counted(more as u64, "other phase")));
    }
    text
}
