//! A frame on the screen.

use super::frame::{Frame, Instance, Stage, Store, bytes, count, latency};
use crate::show::{instance_state, size, stage_state, time, user};
use forebay_control::controller::{Lifetime, StageState};
use forebay_job_script::Direction;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table};

/// Columns of a pool's bar.
const BAR: usize = 30;

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// A table: headings, widths (0: what is left) and alignments of its columns, rows.
struct Block {
    columns: Vec<(&'static str, u16, Alignment)>,
    rows: Vec<Vec<String>>,
}

impl Block {
    /// A heading that begins with `>` is one of numbers, which lean to the right.
    fn new(columns: &[(&'static str, u16)], rows: Vec<Vec<String>>) -> Block {
        let columns = columns.iter().map(|(name, width)| {
            let right = name.starts_with('>');
            let align = if right {
                Alignment::Right
            } else {
                Alignment::Left
            };
            (name.trim_start_matches('>'), *width, align)
        });
        Block {
            columns: columns.collect(),
            rows,
        }
    }

    /// Lines it takes, with the blank one before it.
    fn height(&self) -> u16 {
        match self.rows.len() {
            0 => 0,
            rows => u16::try_from(rows + 2).unwrap_or(u16::MAX),
        }
    }

    fn draw(&self, canvas: &mut ratatui::Frame<'_>, area: Rect) {
        if self.rows.is_empty() || area.height < 2 {
            return;
        }
        let below = Rect {
            y: area.y + 1,
            height: area.height - 1,
            ..area
        };
        let cells = |texts: Vec<String>| {
            let aligned = texts.into_iter().zip(&self.columns);
            Row::new(aligned.map(|(text, (_, _, align))| Line::from(text).alignment(*align)))
        };
        let names = self.columns.iter().map(|(name, _, _)| (*name).to_owned());
        let table = Table::new(
            self.rows.iter().cloned().map(cells),
            self.columns.iter().map(|(_, width, _)| match width {
                0 => Constraint::Fill(1),
                width => Constraint::Length(*width),
            }),
        )
        .header(cells(names.collect()).style(bold()))
        .column_spacing(2);
        canvas.render_widget(table, below);
    }
}

/// The parts below the first lines.
fn blocks(frame: &Frame) -> [Block; 4] {
    [nodes(frame), stores(frame), instances(frame), stages(frame)]
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
        let sort = frame.sort.word();
        first.push(Span::raw(format!("  q quit  s sort by: {sort}")));
    }
    let mut lines = vec![Line::from(first)];
    if let Some(problem) = &frame.problem {
        lines.push(Line::styled(
            problem.clone(),
            Style::new().add_modifier(Modifier::REVERSED),
        ));
    }
    for pool in &frame.pools {
        let used = pool.quantity.saturating_sub(pool.free);
        let whole = pool.quantity.max(1);
        let share = used as f64 / whole as f64;
        let filled = ((share * BAR as f64).round() as usize).min(BAR);
        let of = |granules: u64| size(granules.saturating_mul(pool.granularity.0));
        lines.push(Line::raw(format!(
            "pool {}  [{}{}] {:.0} %  {} of {} in use",
            pool.name,
            "#".repeat(filled),
            "-".repeat(BAR - filled),
            100.0 * share,
            of(used),
            of(pool.quantity),
        )));
    }
    let (jobs, persistent) = frame.sessions;
    lines.push(Line::raw(format!(
        "sessions: {jobs} of jobs, {persistent} of persistent instances"
    )));
    lines
}

fn nodes(frame: &Frame) -> Block {
    let rows = frame.nodes.iter().map(|node| {
        let state = match (node.online, node.drained) {
            _ if node.forgotten => "given up",
            (_, true) => "drained",
            (true, false) => "online",
            (false, false) => "offline",
        };
        vec![
            node.name.clone(),
            node.pool.clone(),
            state.to_owned(),
            format!("{} of {}", node.used, node.granules),
            node.fragments.to_string(),
        ]
    });
    Block::new(
        &[
            ("NODE", 18),
            ("POOL", 12),
            ("STATE", 10),
            (">GRANULES", 14),
            (">FRAGMENTS", 9),
        ],
        rows.collect(),
    )
}

fn stores(frame: &Frame) -> Block {
    let row = |store: &Store| {
        let mut cells = vec![store.host.clone()];
        cells.push(store.sessions.map_or_else(String::new, |n| n.to_string()));
        cells.extend(match &store.rates {
            Some(rates) => [
                count(rates.requests),
                latency(rates.mean),
                latency(rates.most),
                bytes(rates.received),
                bytes(rates.sent),
                count(rates.records),
                count(rates.syncs),
                latency(rates.sync),
            ],
            None => std::array::from_fn(|_| "-".to_owned()),
        });
        cells
    };
    Block::new(
        &[
            ("STORE", 14),
            (">SESSIONS", 8),
            (">REQUESTS/S", 10),
            (">MEAN", 7),
            (">99 %", 7),
            (">IN", 10),
            (">OUT", 10),
            (">LOG/S", 7),
            (">SYNC/S", 6),
            (">MEAN", 7),
        ],
        frame.stores.iter().map(row).collect(),
    )
}

fn instances(frame: &Frame) -> Block {
    let row = |instance: &Instance| {
        let status = &instance.status;
        let capacity = status.capacity.0;
        let used = match instance.used {
            Some(used) => format!(
                "{} {:3.0} %",
                size(used),
                100.0 * used as f64 / capacity.max(1) as f64
            ),
            None => "?".to_owned(),
        };
        let (rate, mean) = match instance.operations {
            Some((rate, mean)) => (count(rate), latency(mean)),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let session = instance.session.as_ref();
        let whose = match session {
            Some(session) if session.lifetime == Lifetime::Job => "job",
            Some(_) => "persistent",
            None => "",
        };
        vec![
            status.label.clone(),
            whose.to_owned(),
            session.map_or_else(String::new, |s| user(s.owner.uid)),
            instance_state(status).to_owned(),
            used,
            size(capacity),
            rate,
            mean,
            bytes(instance.written),
        ]
    };
    Block::new(
        &[
            ("INSTANCE", 0),
            ("OF", 10),
            ("USER", 8),
            ("STATE", 13),
            (">USED", 14),
            (">SIZE", 8),
            (">OPS/S", 7),
            (">MEAN", 7),
            (">WRITTEN", 10),
        ],
        frame.instances.iter().map(row).collect(),
    )
}

fn stages(frame: &Frame) -> Block {
    let row = |stage: &Stage| {
        let progress = stage.status.progress;
        let moved = match stage.status.state {
            StageState::Running => progress.present(),
            _ => progress.copied,
        };
        let way = match stage.status.direction {
            Direction::In => "in",
            Direction::Out => "out",
        };
        let open = if progress.all_found { "" } else { "+" };
        let done = stage.status.state == StageState::Done;
        let share = match moved.bytes_total {
            _ if done => 1.0,
            0 => 0.0,
            total => moved.bytes as f64 / total as f64,
        };
        vec![
            stage.status.token.clone(),
            format!("{way}, line {}", stage.status.line),
            format!("{}/{}{open}", moved.files, moved.files_total),
            format!("{}/{}{open}", size(moved.bytes), size(moved.bytes_total)),
            format!("{:.0} %", 100.0 * share),
            stage.rate.map_or_else(|| "-".to_owned(), bytes),
            stage
                .left
                .map_or_else(|| "-".to_owned(), |left| time(left.as_secs_f64())),
            stage_state(&stage.status).to_owned(),
        ]
    };
    Block::new(
        &[
            ("STAGE OF", 0),
            ("WAY", 11),
            (">FILES", 13),
            (">DATA", 20),
            (">DONE", 5),
            (">RATE", 10),
            (">TO GO", 10),
            ("STATE", 12),
        ],
        frame.stages.iter().map(row).collect(),
    )
}

/// Why stages failed.
fn reasons(frame: &Frame) -> Vec<Line<'static>> {
    let reason = |stage: &Stage| match &stage.status.state {
        StageState::Failed(reason) => {
            let (token, line) = (&stage.status.token, stage.status.line);
            let text = format!("stage of {token}, line {line}, failed: {reason}");
            Some(Line::raw(text))
        }
        _ => None,
    };
    frame.stages.iter().filter_map(reason).collect()
}

/// Lines that a whole frame takes.
pub fn height(frame: &Frame) -> u16 {
    let blocks: u16 = blocks(frame)
        .iter()
        .fold(0, |sum, block| sum.saturating_add(block.height()));
    let head = u16::try_from(head(frame, false).len()).unwrap_or(u16::MAX);
    let reasons = u16::try_from(reasons(frame).len()).unwrap_or(u16::MAX);
    head.saturating_add(blocks).saturating_add(reasons)
}

/// Draws a frame; `keys` says which keys there are.
pub fn draw(canvas: &mut ratatui::Frame<'_>, frame: &Frame, keys: bool) {
    let head = head(frame, keys);
    let blocks = blocks(frame);
    let mut heights = vec![u16::try_from(head.len()).unwrap_or(u16::MAX)];
    heights.extend(blocks.iter().map(Block::height));
    let parts = heights.into_iter().map(Constraint::Length);
    let areas = Layout::vertical(parts.chain([Constraint::Fill(1)])).split(canvas.area());
    let mut areas = areas.iter();
    let reasons = reasons(frame);
    if let Some(area) = areas.next() {
        canvas.render_widget(Paragraph::new(head), *area);
    }
    for (block, area) in blocks.iter().zip(&mut areas) {
        block.draw(canvas, *area);
    }
    if let Some(area) = areas.next() {
        canvas.render_widget(Paragraph::new(reasons), *area);
    }
}
