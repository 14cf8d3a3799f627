//! Standard output, standard error, logs and text tables of the programs.
//!
//! A reader that has closed its end (`| head`) ends neither a job nor a daemon, as the panics of
//! `println!` and `eprintln!` would.

mod failure;
mod journal;
pub mod log;
mod log_file;
pub mod manual;
mod rate_limit;
pub mod service_manager;
pub mod table;

pub use failure::Failure;

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

/// Text whose control characters are written as in a string of Rust, such as `\u{1b}`: names of files
/// and jobs come from all users, and must not control the reader's terminal. Line ends and tabs stay.
pub fn without_controls(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) { clean.extend(c.escape_default()) } else { clean.push(c) }
    }
    Cow::Owned(clean)
}

/// Prints a line to standard error, [without control characters](without_controls); failures are
/// ignored.
pub fn print_stderr(line: impl Display) {
    let _ = writeln!(stderr(), "{}", without_controls(&line.to_string()));
}

/// Prints to standard output, [without control characters](without_controls). A closed pipe is not an
/// error.
///
/// # Errors
/// Standard output cannot be written to, for example because it is a file on a full disk.
pub fn print_stdout(text: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    let written = out.write_all(without_controls(text).as_bytes()).and_then(|()| out.flush());
    written.or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_names_are_shown_and_not_obeyed() {
        let name = "a\x1b]0;title\x07\u{9b}31m\r\u{85}é\t.\n";
        let shown = "a\\u{1b}]0;title\\u{7}\\u{9b}31m\\r\\u{85}é\t.\n";
        assert_eq!(without_controls(name), shown);
        assert!(matches!(without_controls("plain\n"), Cow::Borrowed(_)));
    }
}
