//! The limit of the rate of logs, with the logger of a whole process: events logged while another
//! one is handled are dropped by a logger of one thread, and not by that of the process.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use forebay_console::log::{self, LevelFilter, LogArguments};

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    log: LogArguments,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn find(&self, part: &str) -> Option<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().find(|line| line.contains(part)).map(str::to_owned)
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn number_of_suppressed_events_is_logged_before_the_next_one_of_their_place() {
    let lines = Lines::default();
    let writer = lines.clone();
    let arguments = Arguments::parse_from(["test"]);
    log::start_service(&arguments.log, move || writer.clone(), LevelFilter::WARN).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut count = 0;
    while lines.find("were not logged").is_none() {
        assert!(Instant::now() < until, "timeout");
        tracing::warn!(count, "flood");
        count += 1;
        if count > 100 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let line = lines.find("were not logged").unwrap();
    assert!(line.contains("suppressed=") && line.contains("of=\"rate_limit\""), "{line}");
    assert!(lines.find(&format!("count={}", count - 1)).is_some());
}
