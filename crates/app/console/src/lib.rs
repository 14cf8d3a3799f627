//! Standard output, standard error, logs and text tables of the programs.
//!
//! A reader that has closed its end (`| head`) ends neither a job nor a daemon, as the panics of
//! `println!` and `eprintln!` would.

mod failure;
pub mod log;
pub mod table;

pub use failure::Failure;

use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

/// Prints a line to standard error; failures are ignored.
pub fn print_stderr(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}

/// Prints to standard output. A closed pipe is not an error.
///
/// # Errors
/// Standard output cannot be written to, for example because it is a file on a full disk.
pub fn print_stdout(text: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}
