//! `forebay top`: a pool, live in the terminal.

mod draw;
mod frame;

use forebay_console::Failure;
use forebay_daemon::activity::Status;
use frame::{Frame, History, Sort};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Reads the status, as `forebay status` does.
pub type Source<'a> = &'a mut dyn FnMut() -> Result<Status, String>;

/// Interval at which a wait for keys checks for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Width in columns of a frame that is printed without a terminal.
const WIDTH: u16 = 120;

/// Options of `forebay top`.
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// Name of the pool in the first line.
    pub name: String,
    /// Interval between frames.
    pub interval: Duration,
    /// Print one frame, with rates over one interval, and exit.
    pub once: bool,
}

/// Shows a pool until the user quits. Without a terminal, or with `once`, returns one frame as
/// text instead.
pub fn top(options: &TopOptions, source: Source<'_>) -> Result<Option<String>, Failure> {
    let first = source().map_err(Failure::Failed)?;
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if options.once || !terminal {
        let mut history = History::default();
        history.add(first, Instant::now());
        std::thread::sleep(options.interval);
        history.add(source().map_err(Failure::Failed)?, Instant::now());
        return print(&history.frame(&options.name, Sort::default())).map(Some);
    }
    show_live(options, first, source).map(|()| None)
}

/// A frame as text.
fn print(frame: &Frame) -> Result<String, Failure> {
    let fail = |error| Failure::Failed(format!("cannot draw the frame: {error}"));
    let height = draw::height(frame);
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, height)).map_err(fail)?;
    terminal.draw(|canvas| draw::draw(canvas, frame, false)).map_err(fail)?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..WIDTH).filter_map(|x| Some(buffer.cell((x, y))?.symbol())).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}

fn show_live(options: &TopOptions, first: Status, source: Source<'_>) -> Result<(), Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stopped.clone())
            .map_err(|error| Failure::Failed(format!("cannot catch signals: {error}")))?;
    }
    let fail = |error| Failure::Failed(format!("cannot use the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(fail)?;
    let mut history = History::default();
    history.add(first, Instant::now());
    let mut sort = Sort::default();
    let mut last_status = Instant::now();
    let mut problem = None;
    let outcome = loop {
        let mut frame = history.frame(&options.name, sort);
        frame.problem.clone_from(&problem);
        if let Err(error) = terminal.draw(|canvas| draw::draw(canvas, &frame, true)) {
            break Err(fail(error));
        }
        let left = options.interval.saturating_sub(last_status.elapsed());
        match read_key(left.min(POLL_INTERVAL)) {
            Ok(Some(Key::Quit)) => break Ok(()),
            Ok(Some(Key::Sort)) => sort = sort.next(),
            Ok(None) => {}
            Err(error) => break Err(fail(error)),
        }
        if stopped.load(Ordering::Relaxed) {
            break Ok(());
        }
        if last_status.elapsed() >= options.interval {
            last_status = Instant::now();
            problem = match source() {
                Ok(status) => {
                    history.add(status, last_status);
                    None
                }
                Err(reason) => Some(reason),
            };
        }
    };
    ratatui::try_restore().map_err(fail)?;
    outcome
}

enum Key {
    Quit,
    Sort,
}

fn read_key(timeout: Duration) -> std::io::Result<Option<Key>> {
    // A terminal that was closed is always readable; crossterm would loop on it forever.
    let stdin = std::io::stdin();
    let mut input = [PollFd::new(&stdin, PollFlags::IN)];
    let wait =
        Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    match poll(&mut input, Some(&wait)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    if input[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        return Ok(Some(Key::Quit));
    }
    if !event::poll(Duration::ZERO)? {
        return Ok(None);
    }
    let Event::Key(key) = event::read()? else {
        return Ok(None); // resized: the next frame has the new size
    };
    if key.kind == KeyEventKind::Release {
        return Ok(None);
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('c') if control => Some(Key::Quit),
        KeyCode::Char('s') => Some(Key::Sort),
        _ => None,
    })
}
