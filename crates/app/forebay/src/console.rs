//! Standard output and standard error of the command, which share the screen with progress.

use crate::progress::suspend;
use forebay_console::Failure;
use std::fmt::Display;
use std::io::{self, Write, stderr};
use std::process::ExitCode;

/// Prints a line to standard error; failures are ignored.
pub fn print_stderr(line: impl Display) {
    suspend(|| forebay_console::print_stderr(line));
}

/// Prints to standard output. A closed pipe is not an error.
///
/// # Errors
/// [`Failure::Failed`] if standard output cannot be written to.
pub fn print_stdout(text: &str) -> Result<(), Failure> {
    suspend(|| forebay_console::print_stdout(text))
        .map_err(|error| Failure::Failed(format!("cannot write to standard output: {error}")))
}

/// Standard error for log lines.
#[derive(Debug)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        suspend(|| stderr().write(line))
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

/// Prints the error of a command.
pub fn print_failure(failure: &Failure) -> ExitCode {
    print_stderr(format_args!("error: {failure}"));
    ExitCode::from(failure.exit_code())
}

/// Prints the output of a command that has succeeded.
pub fn print_answer(text: &str) -> ExitCode {
    match print_stdout(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => print_failure(&failure),
    }
}
