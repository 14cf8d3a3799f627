//! The summaries of `forebay run`, `recover` and `stage`.

use std::time::Duration;

use forebay_control::controller::Cause;
use forebay_control::messages::StageProgress;
use forebay_job::{Recovered, Recovery, RunPhase, RunReport};
use forebay_protocol::progress::StagePhase::{self, Copying, Finishing, ReadingBack, Syncing};
use forebay_units::human::{bytes, counted, percent, rate, seconds};

use forebay_console::table::{Column, Table};

/// The time, share and throughput of each phase of a job.
pub fn summary(report: &RunReport) -> String {
    let total: Duration = report.phases.iter().map(|phase| phase.time).sum();
    let total = total.as_secs_f64();
    let mut table = Table::new([
        Column::text("", 0),
        Column::number("time", 0),
        Column::number("share", 0),
        Column::number("files", 0),
        Column::number("data", 0),
        Column::number("rate", 0),
    ]);
    for phase in &report.phases {
        let time = phase.time.as_secs_f64();
        let share = time / total.max(f64::MIN_POSITIVE);
        let mut row = vec![phase.name.to_owned(), seconds(time), percent(share)];
        if phase.moved.files > 0 {
            row.push(phase.moved.files.to_string());
            row.push(bytes(phase.moved.bytes));
            row.push(rate(phase.moved.bytes as f64 / time.max(1e-9)));
        }
        table.push(row);
        table.rows.extend(rows_of_parts(phase));
    }
    table.push(["total".to_owned(), seconds(total)]);
    table.to_string()
}

/// The parts of a phase whose stages have read back what they copied. Several stages run at the
/// same time; the phase's time is divided in proportion to the sums of theirs.
fn rows_of_parts(step: &RunPhase) -> Vec<Vec<String>> {
    let (moved, times) = (&step.moved, &step.moved.times);
    let sum = times.sum().as_secs_f64();
    if moved.read_back.files_total == 0 || sum <= 0.0 {
        return Vec::new();
    }
    let row = |name: &str, phases: &[StagePhase], amount: Option<u64>| {
        let spent: Duration = phases.iter().map(|phase| times.of(*phase)).sum();
        let time = step.time.as_secs_f64() * spent.as_secs_f64() / sum;
        let mut row = vec![format!("  {name}"), seconds(time)];
        if let Some(amount) = amount {
            row.extend([String::new(), String::new(), bytes(amount)]);
            row.push(rate(amount as f64 / time.max(1e-9)));
        }
        row
    };
    vec![
        row("copied, synced", &[Copying, Syncing], Some(moved.bytes)),
        row("read back", &[ReadingBack], Some(moved.read_back.bytes)),
        row("finished", &[Finishing], None),
    ]
}

/// The result of a stage: `staged 3 files, 2.00 GiB`, and the time of reading back, if any.
pub fn staged(moved: &StageProgress) -> String {
    let mut text = format!("staged {}, {}", counted(moved.files, "file"), bytes(moved.bytes));
    if moved.read_back.files_total > 0 {
        let time = |phase| moved.times.of(phase).as_secs_f64();
        text.push_str(&format!(
            "; copied and synced in {}, read back {} in {}",
            seconds(time(Copying) + time(Syncing)),
            bytes(moved.read_back.bytes),
            seconds(time(ReadingBack))
        ));
    }
    text
}

/// The outcome of `forebay recover`, one line per job.
pub fn recovered(list: &[Recovered], pool_option: &str) -> String {
    let mut text = String::new();
    for Recovered { token, recovery } in list {
        let outcome = match recovery {
            Recovery::StagedOut(moved) => {
                format!("staged out {}, {}", counted(moved.files, "file"), bytes(moved.bytes))
            }
            Recovery::WithoutSources(failure) => {
                format!("removed; there was nothing to stage out at some sources: {failure}")
            }
            Recovery::NothingToSave => "had not run; removed".to_owned(),
            Recovery::Discarded => "results discarded, as requested".to_owned(),
            Recovery::WasEnding => "nothing was left to save; removed".to_owned(),
            Recovery::Kept(failure) if failure.cause == Cause::Denied => {
                format!("not touched: {failure}")
            }
            Recovery::Kept(failure) => format!(
                "kept: {failure}; run `forebay recover{pool_option}` again when the cause is removed, or give \
                 the results up with --discard"
            ),
        };
        text.push_str(&format!("job {token}: {outcome}\n"));
    }
    if list.is_empty() {
        text.push_str("nothing to recover\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_protocol::progress::PhaseTimes;
    use forebay_protocol::progress::StageAmount;
    use std::time::Duration;

    #[test]
    fn summary_lists_time_share_and_rate_of_each_phase() {
        let moved = StageProgress {
            files: 3,
            files_total: 3,
            bytes: 3 << 20,
            bytes_total: 3 << 20,
            all_found: true,
            ..StageProgress::default()
        };
        let phase =
            |name, seconds, moved| RunPhase { name, time: Duration::from_secs(seconds), moved };
        let report = RunReport {
            token: "7".into(),
            code: 0,
            kept: false,
            phases: vec![phase("stage in", 1, moved), phase("run", 3, StageProgress::default())],
        };
        let expected = "\
            time  share  files      data        rate
stage in  1.00 s    25%      3  3.00 MiB  3.00 MiB/s
run       3.00 s    75%
total     4.00 s
";
        let text = summary(&report);
        assert_eq!(text.trim_start(), expected.trim_start(), "\n{text}");
    }

    /// Two files, and a link, which is not read back.
    fn read_back() -> StageProgress {
        StageProgress {
            files: 3,
            files_total: 3,
            bytes: 3 << 20,
            bytes_total: 3 << 20,
            all_found: true,
            phase: forebay_protocol::progress::StagePhase::Finishing,
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
    fn summary_divides_a_phase_that_read_back() {
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
stage out          800 ms   100%      3  3.00 MiB  3.75 MiB/s
  copied, synced   500 ms                3.00 MiB  6.00 MiB/s
  read back        250 ms                3.00 MiB  12.0 MiB/s
  finished        50.0 ms
total              800 ms
";
        let text = summary(&report);
        assert_eq!(text.trim_start(), expected.trim_start(), "\n{text}");
        let text = staged(&read_back());
        let expected =
            "staged 3 files, 3.00 MiB; copied and synced in 1.00 s, read back 3.00 MiB in 500 ms";
        assert_eq!(text, expected);
    }
}
