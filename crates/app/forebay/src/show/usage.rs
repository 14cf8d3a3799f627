//! Statistics of jobs.

use forebay_console::table::{Column, Table};
use forebay_control::controller::{JobUsage, StageUsage};
use forebay_control::messages::UnixMillis;
use forebay_units::human;

use super::status::user_name;

/// A table of jobs and persistent instances.
pub fn job_usage(rows: &[JobUsage], now: UnixMillis) -> String {
    let mut table = Table::new([
        Column::text("job", 0),
        Column::text("kind", 0),
        Column::text("user", 0),
        Column::text("state", 0),
        Column::number("for", 0),
        Column::number("capacity", 0),
        Column::number("peak", 0),
        Column::number("read", 0),
        Column::number("written", 0),
        Column::number("metadata ops", 0),
        Column::number("staged in", 0),
        Column::number("staged out", 0),
    ]);
    for row in rows {
        let milliseconds = row.ended.unwrap_or(now).ms_since(row.created);
        table.push([
            row.token.clone(),
            row.lifetime.as_str().to_owned(),
            user_name(row.owner.uid),
            if row.ended.is_some() { "ended" } else { "present" }.to_owned(),
            human::seconds(milliseconds as f64 / 1e3),
            human::bytes(row.capacity.0),
            human::bytes(row.peak_used.0),
            human::bytes(row.io.read),
            human::bytes(row.io.written),
            human::grouped(row.io.metadata),
            stages(&row.staged_in),
            stages(&row.staged_out),
        ]);
    }
    table.to_string()
}

/// Bytes and time of stages, and the number of those that failed.
fn stages(usage: &StageUsage) -> String {
    if usage.done + usage.failed == 0 {
        return "-".to_owned();
    }
    let seconds = human::seconds(usage.milliseconds as f64 / 1e3);
    let failed = match usage.failed {
        0 => String::new(),
        failed => format!(", {failed} failed"),
    };
    format!("{} in {seconds}{failed}", human::bytes(usage.bytes))
}
