//! Drawing of one frame.

use super::frame::{Frame, Instance, Stage, Store};
use crate::show::{instance_state, stage_amount, stage_state, user_name};
use forebay_console::table::{Align, Column, Table};
use forebay_control::controller::StageState;
use forebay_units::human::{bytes, number, percent, rate, seconds};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{self, Paragraph};
use std::time::Duration;

/// Width of a pool's bar in characters.
const BAR: usize = 30;

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// Lines that a table takes with the blank line before it; none without rows.
fn table_height(table: &Table) -> u16 {
    match table.rows.len() {
        0 => 0,
        rows => u16::try_from(rows + 2).unwrap_or(u16::MAX),
    }
}

/// Draws a table; columns without a width share the space that is left.
fn draw_table(table: &Table, canvas: &mut ratatui::Frame<'_>, area: Rect) {
    if table.rows.is_empty() || area.height < 2 {
        return;
    }
    let below_blank_line = Rect { y: area.y + 1, height: area.height - 1, ..area };
    let row = |cells: Vec<String>| {
        let aligned = cells.into_iter().zip(&table.columns);
        widgets::Row::new(aligned.map(|(text, column)| {
            Line::from(text).alignment(match column.align {
                Align::Left => Alignment::Left,
                Align::Right => Alignment::Right,
            })
        }))
    };
    let names = table.columns.iter().map(|column| column.name.to_owned());
    let widths = table.columns.iter().map(|column| match column.width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)),
    });
    let widget = widgets::Table::new(table.rows.iter().cloned().map(row), widths)
        .header(row(names.collect()).style(bold()))
        .column_spacing(2);
    canvas.render_widget(widget, below_blank_line);
}

/// A mean or quantile of latencies.
fn latency(time: Option<Duration>) -> String {
    time.map_or_else(no_value, |time| seconds(time.as_secs_f64()))
}

fn no_value() -> String {
    "-".to_owned()
}

/// The tables below the head.
fn tables(frame: &Frame) -> [Table; 4] {
    [node_table(frame), store_table(frame), instance_table(frame), stage_table(frame)]
}

fn head(frame: &Frame, keys: bool) -> Vec<Line<'static>> {
    let mut first = vec![Span::styled("forebay top", bold())];
    first.push(Span::raw(format!("  {}", frame.name)));
    if let Some(process) = frame.process {
        first.push(Span::raw(format!("  process {process}")));
    } else if !frame.live {
        first.push(Span::raw("  no process has the pool open"));
    }
    if keys {
        let sort = frame.sort.name();
        first.push(Span::raw(format!("  q quit  s sort by: {sort}")));
    }
    let mut lines = vec![Line::from(first)];
    if let Some(problem) = &frame.problem {
        lines.push(Line::styled(problem.clone(), Style::new().add_modifier(Modifier::REVERSED)));
    }
    for pool in &frame.pools {
        let used = pool.quantity.saturating_sub(pool.free);
        let whole = pool.quantity.max(1);
        let share = used as f64 / whole as f64;
        let filled = ((share * BAR as f64).round() as usize).min(BAR);
        let size = |granules: u64| bytes(granules.saturating_mul(pool.granularity.0));
        lines.push(Line::raw(format!(
            "pool {}  [{}{}] {}  {} of {} in use",
            pool.name,
            "#".repeat(filled),
            "-".repeat(BAR - filled),
            percent(share),
            size(used),
            size(pool.quantity),
        )));
    }
    let (jobs, persistent) = frame.sessions;
    lines
        .push(Line::raw(format!("sessions: {jobs} of jobs, {persistent} of persistent instances")));
    lines
}

fn node_table(frame: &Frame) -> Table {
    let mut table = Table::new([
        Column::text("NODE", 18),
        Column::text("POOL", 12),
        Column::text("STATE", 10),
        Column::number("GRANULES", 14),
        Column::number("FRAGMENTS", 9),
    ]);
    for node in &frame.nodes {
        let state = match (node.online, node.drained) {
            _ if node.forgotten => "given up",
            (_, true) => "drained",
            (true, false) => "online",
            (false, false) => "offline",
        };
        table.push([
            node.name.clone(),
            node.pool.clone(),
            state.to_owned(),
            format!("{} of {}", node.used, node.granules),
            node.fragments.to_string(),
        ]);
    }
    table
}

fn store_table(frame: &Frame) -> Table {
    let mut table = Table::new([
        Column::text("STORE", 14),
        Column::number("SESSIONS", 8),
        Column::number("REQUESTS/S", 10),
        Column::number("MEAN", 7),
        Column::number("99%", 7),
        Column::number("IN", 10),
        Column::number("OUT", 10),
        Column::number("LOG/S", 7),
        Column::number("SYNC/S", 6),
        Column::number("MEAN", 7),
    ]);
    for store in &frame.stores {
        table.push(store_row(store));
    }
    table
}

fn store_row(store: &Store) -> Vec<String> {
    let mut row = vec![store.host.clone()];
    row.push(store.sessions.map_or_else(String::new, |n| n.to_string()));
    row.extend(match &store.rates {
        Some(rates) => [
            number(rates.requests),
            latency(rates.mean),
            latency(rates.quantile_99),
            rate(rates.received),
            rate(rates.sent),
            number(rates.records),
            number(rates.syncs),
            latency(rates.sync),
        ],
        None => std::array::from_fn(|_| no_value()),
    });
    row
}

fn instance_table(frame: &Frame) -> Table {
    let mut table = Table::new([
        Column::text("INSTANCE", 0),
        Column::text("OF", 10),
        Column::text("USER", 8),
        Column::text("STATE", 13),
        Column::number("USED", 14),
        Column::number("SIZE", 8),
        Column::number("OPS/S", 7),
        Column::number("MEAN", 7),
        Column::number("WRITTEN", 10),
    ]);
    for instance in &frame.instances {
        table.push(instance_row(instance));
    }
    table
}

fn instance_row(instance: &Instance) -> Vec<String> {
    let status = &instance.status;
    let capacity = status.capacity.0;
    let used = match instance.used {
        Some(used) => {
            let share = used as f64 / capacity.max(1) as f64;
            format!("{} {:>4}", bytes(used), percent(share))
        }
        None => "?".to_owned(),
    };
    let (operations, mean) = match instance.operations {
        Some((operations, mean)) => (number(operations), latency(mean)),
        None => (no_value(), no_value()),
    };
    let session = instance.session.as_ref();
    let holder = session.map_or("", |session| session.lifetime.as_str());
    vec![
        status.label.clone(),
        holder.to_owned(),
        session.map_or_else(String::new, |s| user_name(s.owner.uid)),
        instance_state(status).to_owned(),
        used,
        bytes(capacity),
        operations,
        mean,
        rate(instance.written),
    ]
}

fn stage_table(frame: &Frame) -> Table {
    let mut table = Table::new([
        Column::text("STAGE OF", 0),
        Column::text("DIRECTION", 11),
        Column::number("FILES", 13),
        Column::number("DATA", 20),
        Column::number("DONE", 5),
        Column::number("RATE", 10),
        Column::number("LEFT", 10),
        Column::text("STATE", 12),
    ]);
    for stage in &frame.stages {
        table.push(stage_row(stage));
    }
    table
}

fn stage_row(stage: &Stage) -> Vec<String> {
    let progress = stage.status.progress;
    let moved = stage_amount(&stage.status);
    let open = if progress.all_found { "" } else { "+" };
    let share = match moved.bytes_total {
        _ if stage.status.state == StageState::Done => 1.0,
        0 => 0.0,
        total => moved.bytes as f64 / total as f64,
    };
    let direction = stage.status.direction.name();
    vec![
        stage.status.token.clone(),
        format!("{direction}, line {}", stage.status.line),
        format!("{}/{}{open}", moved.files, moved.files_total),
        format!("{}/{}{open}", bytes(moved.bytes), bytes(moved.bytes_total)),
        percent(share),
        stage.rate.map_or_else(no_value, rate),
        latency(stage.left),
        stage_state(&stage.status).to_owned(),
    ]
}

/// The reasons of failed stages.
fn failure_reasons(frame: &Frame) -> Vec<Line<'static>> {
    let reason = |stage: &Stage| {
        let StageState::Failed(reason) = &stage.status.state else {
            return None;
        };
        let (token, line) = (&stage.status.token, stage.status.line);
        Some(Line::raw(format!("stage of {token}, line {line}, failed: {reason}")))
    };
    frame.stages.iter().filter_map(reason).collect()
}

/// Height of a whole frame in lines.
pub fn height(frame: &Frame) -> u16 {
    let tables = tables(frame);
    let tables = tables.iter().map(table_height);
    let head = u16::try_from(head(frame, false).len()).unwrap_or(u16::MAX);
    let reasons = u16::try_from(failure_reasons(frame).len()).unwrap_or(u16::MAX);
    tables.fold(head.saturating_add(reasons), u16::saturating_add)
}

/// Draws a frame; `keys` adds a list of the keys.
pub fn draw(canvas: &mut ratatui::Frame<'_>, frame: &Frame, keys: bool) {
    let head = head(frame, keys);
    let tables = tables(frame);
    let mut heights = vec![u16::try_from(head.len()).unwrap_or(u16::MAX)];
    heights.extend(tables.iter().map(table_height));
    let parts = heights.into_iter().map(Constraint::Length);
    let areas = Layout::vertical(parts.chain([Constraint::Fill(1)])).split(canvas.area());
    let mut areas = areas.iter();
    let reasons = failure_reasons(frame);
    if let Some(area) = areas.next() {
        canvas.render_widget(Paragraph::new(head), *area);
    }
    for (table, area) in tables.iter().zip(&mut areas) {
        draw_table(table, canvas, *area);
    }
    if let Some(area) = areas.next() {
        canvas.render_widget(Paragraph::new(reasons), *area);
    }
}
