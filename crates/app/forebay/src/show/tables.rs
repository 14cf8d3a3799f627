//! Tables.

use forebay_control::controller::Cause;
use forebay_control::messages::StageProgress;
use forebay_job::{Recovered, Recovery, RunPhase, RunReport};

use super::{size, time};

/// Rows of cells with two blanks between columns. `align` has a letter for each column: `r` for
/// numbers, which lean to the right, anything else for text.
pub(super) fn table(align: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let right: Vec<bool> = align.chars().map(|c| c == 'r').collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if index > 0 { "  " } else { "" };
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            let (before, after) = match right.get(index) {
                Some(true) => (pad.as_str(), ""),
                _ => ("", pad.as_str()),
            };
            line.extend([gap, before, cell, after]);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Where the time of a job went.
pub fn summary(report: &RunReport) -> String {
    let total: f64 = report
        .phases
        .iter()
        .map(|phase| phase.time.as_secs_f64())
        .sum();
    let mut rows = vec![row(["", "time", "share", "files", "data", "rate"])];
    for phase in &report.phases {
        let seconds = phase.time.as_secs_f64();
        let share = format!("{:.0} %", 100.0 * seconds / total.max(f64::MIN_POSITIVE));
        let mut line = vec![phase.name.to_owned(), time(seconds), share];
        if phase.moved.copied.files > 0 {
            let rate = phase.moved.copied.bytes as f64 / seconds.max(1e-9);
            line.push(phase.moved.copied.files.to_string());
            line.push(size(phase.moved.copied.bytes));
            line.push(format!("{}/s", size(rate as u64)));
        }
        rows.push(line);
        rows.extend(parts(phase));
    }
    rows.push(vec!["total".to_owned(), time(total)]);
    table("lrrrrr", &rows)
}

/// Where the time of a step went whose stages have read back what they copied. Several stages go on at
/// the same time: the step's time is divided as theirs is.
fn parts(step: &RunPhase) -> Vec<Vec<String>> {
    use forebay_stage::Phase::{Copying, Finishing, ReadingBack, Syncing};
    let (moved, times) = (&step.moved, &step.moved.times);
    let all = times.sum().as_secs_f64();
    if moved.read_back.files_total == 0 || all <= 0.0 {
        return Vec::new();
    }
    let part = |name: &str, phases: &[forebay_stage::Phase], bytes: Option<u64>| {
        let spent: f64 = phases
            .iter()
            .map(|phase| times.of(*phase).as_secs_f64())
            .sum();
        let seconds = step.time.as_secs_f64() * spent / all;
        let mut line = vec![format!("  {name}"), time(seconds)];
        if let Some(bytes) = bytes {
            let rate = bytes as f64 / seconds.max(1e-9);
            line.extend([String::new(), String::new(), size(bytes)]);
            line.push(format!("{}/s", size(rate as u64)));
        }
        line
    };
    vec![
        part(
            "copied, synced",
            &[Copying, Syncing],
            Some(moved.copied.bytes),
        ),
        part("read back", &[ReadingBack], Some(moved.read_back.bytes)),
        part("finished", &[Finishing], None),
    ]
}

/// So many files.
pub fn files(count: u64) -> String {
    match count {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    }
}

/// What a stage has done: `staged 3 files, 2.00 GiB`, and if they were read back how long that took.
pub fn staged(moved: &StageProgress) -> String {
    use forebay_stage::Phase::{Copying, ReadingBack, Syncing};
    let mut text = format!(
        "staged {}, {}",
        files(moved.copied.files),
        size(moved.copied.bytes)
    );
    if moved.read_back.files_total > 0 {
        let seconds = |phase| moved.times.of(phase).as_secs_f64();
        text.push_str(&format!(
            "; copied and synced in {}, read back {} in {}",
            time(seconds(Copying) + seconds(Syncing)),
            size(moved.read_back.bytes),
            time(seconds(ReadingBack))
        ));
    }
    text
}

/// What became of interrupted jobs.
pub fn recovered(list: &[Recovered]) -> String {
    let mut text = String::new();
    for Recovered { token, recovery } in list {
        let what = match recovery {
            Recovery::StagedOut(moved) => {
                format!(
                    "staged out {}, {}",
                    files(moved.copied.files),
                    size(moved.copied.bytes)
                )
            }
            Recovery::NothingToSave => "had not run; taken down".to_owned(),
            Recovery::Discarded => "results destroyed, as asked".to_owned(),
            Recovery::Kept(failure) => match failure.cause {
                Cause::Denied => format!("left alone: {failure}"),
                _ => format!(
                    "kept: {failure}; try again when the cause is removed, or give it up with \
                     --discard"
                ),
            },
        };
        text.push_str(&format!("job {token}: {what}\n"));
    }
    if list.is_empty() {
        text.push_str("nothing to recover\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_stage::{PhaseTimes, StageAmount};
    use std::time::Duration;

    #[test]
    fn the_summary_says_where_time_went() {
        let moved = StageProgress {
            copied: StageAmount {
                files: 3,
                files_total: 3,
                bytes: 3 << 20,
                bytes_total: 3 << 20,
            },
            all_found: true,
            ..StageProgress::default()
        };
        let phase = |name, seconds, moved| RunPhase {
            name,
            time: Duration::from_secs(seconds),
            moved,
        };
        let report = RunReport {
            token: "7".into(),
            code: 0,
            kept: false,
            phases: vec![
                phase("stage in", 1, moved),
                phase("run", 3, StageProgress::default()),
            ],
        };
        let expected = "\
           time  share  files      data        rate
stage in  1.0 s   25 %      3  3.00 MiB  3.00 MiB/s
run       3.0 s   75 %
total     4.0 s
";
        let text = summary(&report);
        assert_eq!(text.trim_start(), expected.trim_start(), "\n{text}");
    }

    /// Two files, and a link, which is not read back.
    fn read_back() -> StageProgress {
        StageProgress {
            copied: StageAmount {
                files: 3,
                files_total: 3,
                bytes: 3 << 20,
                bytes_total: 3 << 20,
            },
            all_found: true,
            phase: forebay_stage::Phase::Finishing,
            read_back: StageAmount {
                files: 2,
                files_total: 2,
                bytes: 3 << 20,
                bytes_total: 3 << 20,
            },
            times: PhaseTimes {
                copying: Duration::from_millis(600),
                syncing: Duration::from_millis(400),
                reading_back: Duration::from_millis(500),
                finishing: Duration::from_millis(100),
            },
        }
    }

    #[test]
    fn what_reading_back_took_is_told() {
        let report = RunReport {
            token: "7".into(),
            code: 0,
            kept: false,
            phases: vec![RunPhase {
                name: "stage out",
                // Two stages at once: their times are 1.6 s together.
                time: Duration::from_millis(800),
                moved: read_back(),
            }],
        };
        let expected = "\
                    time  share  files      data        rate
stage out         800 ms  100 %      3  3.00 MiB  3.75 MiB/s
  copied, synced  500 ms                3.00 MiB  6.00 MiB/s
  read back       250 ms                3.00 MiB  12.0 MiB/s
  finished         50 ms
total             800 ms
";
        let text = summary(&report);
        assert_eq!(text.trim_start(), expected.trim_start(), "\n{text}");
        let told = staged(&read_back());
        let expected =
            "staged 3 files, 3.00 MiB; copied and synced in 1.0 s, read back 3.00 MiB in 500 ms";
        assert_eq!(told, expected);
    }
}
