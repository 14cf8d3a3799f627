//! What a command says. Who listens may have gone away (`| head`): that ends neither a job nor a
//! daemon, as the panics of `println!` and `eprintln!` would.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};

use crate::failure::Failure;

/// Says a line on standard error, if anybody listens.
pub fn print_stderr(line: impl Display) {
    let _ = writeln!(stderr(), "{line}");
}

/// Prints to standard output. A reader that has gone away is no error.
///
/// # Errors
/// [`Failure::Failed`] if standard output cannot be written to, such as a file on a full disk.
pub fn print_stdout(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Failure::Failed(format!(
            "cannot write to standard output: {e}"
        ))),
        Ok(()) => Ok(()),
    }
}
