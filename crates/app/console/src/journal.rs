//! Log lines for the systemd journal: each begins with its priority, `<4>` for a warning, as in
//! `sd-daemon(3)`.

use std::io::{self, Write};
use std::os::fd::AsFd;

use tracing_subscriber::fmt::MakeWriter;

/// Environment variable with the device and inode of the journal's stream.
const STREAM_VARIABLE: &str = "JOURNAL_STREAM";

/// Whether standard error is a stream of the journal.
pub fn is_stderr_in_journal() -> bool {
    std::env::var(STREAM_VARIABLE).is_ok_and(|stream| is_stream(io::stderr(), &stream))
}

/// Whether `file` is `DEVICE:INODE`.
fn is_stream(file: impl AsFd, stream: &str) -> bool {
    let Ok(found) = rustix::fs::fstat(file) else {
        return false;
    };
    let mut numbers = stream.split(':').map(|number| number.parse::<u64>().ok());
    numbers.next() == Some(Some(found.st_dev)) && numbers.next() == Some(Some(found.st_ino))
}

/// Writer of log lines with priorities.
#[derive(Clone, Debug)]
pub struct JournalWriter<W>(W);

impl<W> JournalWriter<W> {
    /// Writes to what `inner` makes.
    pub fn new(inner: W) -> JournalWriter<W> {
        JournalWriter(inner)
    }
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for JournalWriter<W> {
    type Writer = LineWriter<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        LineWriter { inner: self.0.make_writer(), prefix: "" }
    }

    fn make_writer_for(&'a self, event: &tracing::Metadata<'_>) -> Self::Writer {
        LineWriter { inner: self.0.make_writer_for(event), prefix: priority(event.level()) }
    }
}

fn priority(level: &tracing::Level) -> &'static str {
    match *level {
        tracing::Level::ERROR => "<3>",
        tracing::Level::WARN => "<4>",
        tracing::Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Writer of one log line.
#[derive(Debug)]
pub struct LineWriter<W> {
    inner: W,
    /// Written before the line.
    prefix: &'static str,
}

impl<W: Write> Write for LineWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.prefix.is_empty() {
            return self.inner.write(line);
        }
        // In one call, so that other processes' lines do not come between.
        let prefix = std::mem::take(&mut self.prefix);
        self.inner.write_all(&[prefix.as_bytes(), line].concat())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed step fails the test")]
mod tests {
    use super::*;

    #[test]
    fn stream_is_recognized_by_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let found = rustix::fs::fstat(&file).unwrap();
        let [device, inode] = [found.st_dev, found.st_ino];
        assert!(is_stream(&file, &format!("{device}:{inode}")));
        for other in [format!("{device}:{}", inode + 1), format!("{device}"), String::new()] {
            assert!(!is_stream(&file, &other), "{other}");
        }
    }
}
