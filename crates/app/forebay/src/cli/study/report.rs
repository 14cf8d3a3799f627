//! The report of a study, in Markdown.

use super::super::replicates::joined_notes;
use super::file::{JobEntry, StudyFile};
use super::summary::{
    BesideSummary, DelaySummary, JobSummary, MeasureSummary, SetSummary, Summary,
};
use forebay_machine::estimate::Estimate;
use forebay_machine::study::Fidelity;
use forebay_units::human::{counted, number, percent, seconds};
use std::fmt::Write;

/// The report.
pub(super) fn report(study: &StudyFile, summary: &Summary) -> String {
    let mut out = format!("# {}\n\nMachine: {}.", study.title, study.machine);
    let _ = match study.seeds {
        1 => writeln!(out, " Seed {}.\n", study.seed),
        count => writeln!(
            out,
            " Means of {count} seeds from {} on; ± is half of the 95% confidence interval.\n",
            study.seed
        ),
    };
    for job in &study.job {
        let _ = writeln!(out, "- {}: {}", job.name, described(job));
    }
    let of_flows = summary.measures.iter().filter(|one| one.fidelity == Fidelity::Flow.name());
    let which = match of_flows.count() {
        0 => None,
        count if count == summary.measures.len() => Some("Simulated"),
        _ => Some("Partly simulated"),
    };
    if let Some(which) = which {
        let _ = writeln!(out, "\n{which} with flows instead of packets (docs/flow.md).");
    }
    let Some(none) = summary.measures.first() else { return out };
    if !none.together.is_empty() {
        let of_flows = which.map_or("", |_| "; with flows, accepted load alone / together");
        let _ = write!(
            out,
            "\n## Slowdown without a measure\n\nI/O: time beside the job of the column / alone. Traffic: \
             mean latency{of_flows}. In brackets: the share of an I/O job's time in which the other ran, if \
             not all.\n\n{}",
            matrix(summary, none)
        );
    }
    if let [_] = summary.jobs.as_slice() {
        let _ = write!(out, "\n## Measures\n\n{}{}", of_one_job(summary), warnings(summary));
        return out;
    }
    let _ = write!(
        out,
        "\n## All jobs together\n\nTime of I/O, or mean latency of messages{}. Gain: over the time or \
         latency{} together without a measure.\n\n{}",
        which.map_or("", |_| ", with flows their accepted load"),
        which.map_or("", |_| " or load"),
        measures(summary)
    );
    if summary.measures.iter().any(has_rates) {
        let _ = write!(out, "\n## Rates of I/O, GB/s\n\n{}", rates(summary));
    }
    if let Some(collisions) = collisions(summary) {
        let _ = write!(
            out,
            "\n## Collisions in the network\n\nDelays of packets by those of another job, summed over \
             packets, with all jobs together.\n\n{collisions}"
        );
    }
    if let Some(waits) = added_waits(summary) {
        let of_flows = which.map_or("", |_| " With flows: of calls, summed over processes.");
        let _ = write!(
            out,
            "\n## Collisions of I/O\n\nWaits of requests with all jobs together, without those of the job \
             alone, summed over requests; less than 0 where it waited longer alone, since it waits elsewhere \
             now.{of_flows}\n\n{waits}"
        );
    }
    out.push_str(&warnings(summary));
    out
}

/// A warning about a job's I/O that differs from others in more than its numbers.
struct Remark<'a> {
    job: &'a str,
    text: &'a str,
    /// The measure with which it is found first.
    measure: &'a str,
    is_alone: bool,
    /// How often it is found again.
    further: usize,
}

/// The warnings about the I/O of each job, alone and beside all others; empty if there are none. Those that differ in
/// their numbers only are one line.
fn warnings(summary: &Summary) -> String {
    let mut remarks: Vec<Remark<'_>> = Vec::new();
    for (number, job) in summary.jobs.iter().enumerate() {
        for measure in &summary.measures {
            let beside = beside(measure, number);
            let alone = beside.map_or(&measure.alone[number], |one| &one.alone).warnings.iter();
            let together = beside.into_iter().flat_map(|one| &one.together.warnings);
            let all = alone.map(|text| (text, true)).chain(together.map(|text| (text, false)));
            for (text, is_alone) in all {
                let same = |one: &&mut Remark<'_>| one.job == job && is_same(one.text, text);
                match remarks.iter_mut().find(same) {
                    Some(known) => known.further += 1,
                    None => {
                        let measure = &measure.name;
                        remarks.push(Remark { job, text, measure, is_alone, further: 0 });
                    }
                }
            }
        }
    }
    let line = |one: &Remark<'_>| {
        let with_others = if one.is_alone { "alone" } else { "together" };
        let further = match one.further {
            0 => String::new(),
            count => format!(", and {} more", counted(count as u64, "time")),
        };
        format!("- {} ({}, {with_others}{further}): {}\n", one.job, one.measure, one.text)
    };
    match remarks.is_empty() {
        true => String::new(),
        false => {
            let lines: String = remarks.iter().map(line).collect();
            format!("\n## Warnings\n\nOf each, the first; summary.json has all.\n\n{lines}")
        }
    }
}

/// Whether two texts differ in numbers only.
fn is_same(one: &str, other: &str) -> bool {
    let words = |text: &str| text.replace(|letter: char| letter.is_ascii_digit(), "");
    words(one) == words(other)
}

fn described(job: &JobEntry) -> String {
    let nodes = job.nodes;
    match (&job.ior, &job.traffic) {
        (Some(ior), _) => {
            let each = match job.ppn.unwrap_or(1) {
                1 => "1 process".to_string(),
                several => format!("{several} processes"),
            };
            format!("{nodes} nodes with {each} each run `ior {ior}`")
        }
        (None, Some(traffic)) => format!(
            "{nodes} nodes send {} messages of {} at a load of {}",
            traffic.pattern, traffic.message, traffic.load
        ),
        (None, None) => format!("{nodes} nodes"),
    }
}

/// A table in Markdown, with columns as wide as their widest cells; all but the first `text` columns have
/// numbers.
fn table(text: usize, header: &[&str], rows: &[Vec<String>]) -> String {
    // A bar in a name would be the end of its cell.
    let escaped = |cell: &str| cell.replace('|', "\\|");
    let header: Vec<String> = header.iter().map(|cell| escaped(cell)).collect();
    let escaped = |row: &Vec<String>| row.iter().map(|cell| escaped(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(escaped).collect();
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count().max(3)).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let mut line = |cells: Vec<&str>| {
        out.push('|');
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let _ = match column < text {
                true => write!(out, " {cell:<width$} |"),
                false => write!(out, " {cell:>width$} |"),
            };
        }
        out.push('\n');
    };
    line(header.iter().map(String::as_str).collect());
    let dashes: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, width)| match column < text {
            true => "-".repeat(*width),
            false => format!("{}:", "-".repeat(width - 1)),
        })
        .collect();
    line(dashes.iter().map(String::as_str).collect());
    rows.iter().for_each(|row| line(row.iter().map(String::as_str).collect()));
    out
}

/// A mean, with its interval if there is one.
fn shown(estimate: Option<&Estimate>, missing: &str, text: impl Fn(f64) -> String) -> String {
    match estimate {
        None => missing.to_string(),
        Some(Estimate { mean, half_width: Some(half), .. }) => {
            // Rounding errors of equal values are no interval.
            let half = if *half < mean.abs() * 1e-9 { 0.0 } else { *half };
            format!("{} ±{}", text(*mean), text(half))
        }
        Some(estimate) => text(estimate.mean),
    }
}

const SATURATED: &str = "saturated";

/// Slowdown of the job of a row beside the job of a column, and beside all.
fn matrix(summary: &Summary, none: &MeasureSummary) -> String {
    let names = &summary.jobs;
    let beside = |job: usize, others: &SetSummary| -> Option<String> {
        let of_job: &BesideSummary = others.jobs.iter().find(|one| one.job == job)?;
        let text = shown(of_job.slowdown.as_ref(), SATURATED, number);
        Some(match of_job.overlap < 0.995 {
            true => format!("{text} ({})", percent(of_job.overlap)),
            false => text,
        })
    };
    let pair = |job: usize, other: usize| {
        let set = none.together.iter().find(|set| {
            job != other
                && set.jobs.len() == 2
                && [job, other].iter().all(|one| set.jobs.iter().any(|of| of.job == *one))
        });
        set.and_then(|set| beside(job, set)).unwrap_or_else(|| "–".into())
    };
    let mut header: Vec<String> = vec!["slowdown of".into()];
    header.extend(names.iter().map(|name| format!("beside {name}")));
    let with_all = names.len() > 2;
    if with_all {
        header.push("beside all".into());
    }
    let row = |(job, name): (usize, &String)| {
        let mut cells = vec![name.clone()];
        cells.extend((0..names.len()).map(|other| pair(job, other)));
        if with_all {
            cells.extend(none.all().and_then(|set| beside(job, set)));
        }
        cells
    };
    let rows: Vec<Vec<String>> = names.iter().enumerate().map(row).collect();
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    table(1, &header, &rows)
}

/// Each job with each measure.
fn measures(summary: &Summary) -> String {
    let header = ["measure", "job", "alone", "together", "slowdown", "gain"];
    let mut rows = Vec::new();
    let none = summary.measures.first();
    for measure in &summary.measures {
        for (job, name) in summary.jobs.iter().enumerate() {
            let beside = beside(measure, job);
            let alone = beside.map_or(&measure.alone[job], |one| &one.alone);
            let together = beside.map(|one| &one.together);
            let gain = none.and_then(|none| gain(none, measure, job));
            rows.push(vec![
                measure.name.clone(),
                name.clone(),
                time_or_load(measure, alone),
                together.map_or("–".into(), |together| time_or_load(measure, together)),
                beside.map_or("–".into(), |one| shown(one.slowdown.as_ref(), SATURATED, number)),
                gain.map_or("–".into(), percent),
            ]);
        }
    }
    table(2, &header, &rows)
}

/// The time of a job; with flows, whose messages have no latency, the accepted load of a job with traffic.
fn time_or_load(measure: &MeasureSummary, job: &JobSummary) -> String {
    let is_of_flows = measure.fidelity == Fidelity::Flow.name();
    match (&job.time, &job.accepted_load) {
        (None, Some(load)) if is_of_flows => format!("load {}", shown(Some(load), "", number)),
        _ => shown(job.time.as_ref(), SATURATED, seconds),
    }
}

/// The only job with each measure.
fn of_one_job(summary: &Summary) -> String {
    let header = ["measure", "limit", "time", "gain", "write GB/s", "read GB/s"];
    let none = summary.measures.first();
    let row = |measure: &MeasureSummary| {
        let job = &measure.alone[0];
        let gain = none.and_then(|none| gain(none, measure, 0));
        vec![
            measure.name.clone(),
            joined_notes(job.limits.iter().map(String::as_str)),
            shown(job.time.as_ref(), SATURATED, seconds),
            gain.map_or("–".into(), percent),
            shown(job.write_gbps.as_ref(), "–", number),
            shown(job.read_gbps.as_ref(), "–", number),
        ]
    };
    let rows: Vec<Vec<String>> = summary.measures.iter().map(row).collect();
    table(2, &header, &rows)
}

/// A job beside all others.
fn beside(measure: &MeasureSummary, job: usize) -> Option<&BesideSummary> {
    measure.all()?.jobs.iter().find(|one| one.job == job)
}

/// The part by which a job is faster with a measure than without; of traffic with flows, by which more of it is
/// accepted.
fn gain(none: &MeasureSummary, measure: &MeasureSummary, job: usize) -> Option<f64> {
    let times = time_together(none, job).zip(time_together(measure, job));
    let loads = load_together(none, job).zip(load_together(measure, job));
    let by_time = times.map(|(of, own)| of / own);
    by_time.or(loads.map(|(of, own)| own / of)).map(|gain| gain - 1.0)
}

/// Mean accepted load of a job beside all others, with flows.
fn load_together(measure: &MeasureSummary, job: usize) -> Option<f64> {
    let is_of_flows = measure.fidelity == Fidelity::Flow.name();
    let together = beside(measure, job).filter(|_| is_of_flows)?;
    together.together.accepted_load.as_ref().map(|load| load.mean)
}

/// Mean time or latency of a job beside all others, or alone if there are none.
fn time_together(measure: &MeasureSummary, job: usize) -> Option<f64> {
    let time = match beside(measure, job) {
        Some(beside) => &beside.together.time,
        None => &measure.alone.get(job)?.time,
    };
    time.as_ref().map(|time| time.mean)
}

fn has_rates(measure: &MeasureSummary) -> bool {
    measure.alone.iter().any(|job| job.write_gbps.is_some() || job.read_gbps.is_some())
}

/// Rates of the I/O jobs.
fn rates(summary: &Summary) -> String {
    let header = ["measure", "job", "write alone", "together", "read alone", "together"];
    let mut rows = Vec::new();
    for measure in &summary.measures {
        for (job, name) in summary.jobs.iter().enumerate() {
            let (alone, together) = (&measure.alone[job], beside(measure, job));
            if alone.write_gbps.is_none() && alone.read_gbps.is_none() {
                continue;
            }
            let text = |rate: Option<&Estimate>| shown(rate, "–", number);
            rows.push(vec![
                measure.name.clone(),
                name.clone(),
                text(alone.write_gbps.as_ref()),
                text(together.and_then(|one| one.together.write_gbps.as_ref())),
                text(alone.read_gbps.as_ref()),
                text(together.and_then(|one| one.together.read_gbps.as_ref())),
            ]);
        }
    }
    table(2, &header, &rows)
}

/// Delays in the network by other jobs; `None` if there are no two jobs, or no packets.
fn collisions(summary: &Summary) -> Option<String> {
    let none = summary.measures.first()?.all()?;
    // By link class, one column each; a row for each pair of jobs and measure.
    let mut classes: Vec<&str> = Vec::new();
    for delay in &none.delays {
        if !classes.contains(&delay.links.as_str()) {
            classes.push(&delay.links);
        }
    }
    if classes.is_empty() {
        return None;
    }
    let mut header = vec!["measure", "delayed", "by"];
    header.extend(&classes);
    let mut rows = Vec::new();
    for measure in &summary.measures {
        let delays = measure.all().map_or(&[][..], |set| &set.delays);
        for pair in delays.iter().filter(|delay| Some(&delay.links.as_str()) == classes.first()) {
            let mut cells = vec![measure.name.clone(), pair.job.clone(), pair.by.clone()];
            cells.extend(classes.iter().map(|class| {
                let same = |other: &&DelaySummary| {
                    other.links == *class && other.job == pair.job && other.by == pair.by
                };
                delays.iter().find(same).map_or("–".into(), |delay| seconds(delay.seconds))
            }));
            rows.push(cells);
        }
    }
    Some(table(3, &header, &rows))
}

/// Waits that other jobs added to those of I/O jobs; `None` if there are none.
fn added_waits(summary: &Summary) -> Option<String> {
    let mut header = vec!["measure", "job"];
    let mut rows = Vec::new();
    for measure in &summary.measures {
        for one in measure.all().map_or(&[][..], |set| &set.jobs) {
            if one.added_waits.is_empty() {
                continue;
            }
            if header.len() == 2 {
                header.extend(one.added_waits.iter().map(|(resource, _)| *resource));
            }
            let mut cells = vec![measure.name.clone(), summary.jobs[one.job].clone()];
            cells.extend(one.added_waits.iter().map(|(_, added)| signed_seconds(*added)));
            rows.push(cells);
        }
    }
    (!rows.is_empty()).then(|| table(2, &header, &rows))
}

fn signed_seconds(value: f64) -> String {
    if value < 0.0 { format!("-{}", seconds(-value)) } else { seconds(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_has_the_unit_once_and_no_rounding_errors() {
        let estimate = |mean: f64, half: f64| Estimate {
            half_width: Some(half),
            ..Estimate::of("load", "", vec![mean, mean]).unwrap()
        };
        assert_eq!(shown(Some(&estimate(0.9, 2.23e-15)), "", number), "0.90 ±0.00");
        assert_eq!(shown(Some(&estimate(0.9, 0.2)), "", number), "0.90 ±0.20");
        assert_eq!(shown(None, SATURATED, number), SATURATED);
    }

    #[test]
    fn bar_in_a_name_does_not_end_its_cell() {
        let text = table(1, &["a|b", "x"], &[vec!["c|d".into(), "1".into()]]);
        assert_eq!(text, "| a\\|b |   x |\n| ---- | --: |\n| c\\|d |   1 |\n");
    }
}
