//! A buffer between two commands: one starts its leader in the background, the other ends it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::error::{AdhocError, kept_text};
use crate::home;
use crate::leader::LEADER_VARIABLE;

/// Variables that the shell of the user gets.
const VARIABLE_PREFIXES: [&str; 2] = ["FOREBAY_", "DW_"];
/// The file in the leader's directory that ends it.
const STOP_FILE: &str = "stop";
/// Interval at which it is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time in which the directory of a leader that has ended is removed.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Starts `program` with `arguments`, which run [`hold`] in a new buffer, in the background. When the
/// buffer is ready, prints the commands that set its variables in a shell.
///
/// # Errors
/// The program cannot be started.
pub fn start(program: &Path, arguments: &[OsString]) -> Result<ExitCode, AdhocError> {
    let mut command = Command::new(program);
    // An interrupt from the terminal is for the user's next commands.
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let failed = |e: std::io::Error| AdhocError::Start(format!("{}: {e}", program.display()));
    let mut leader = command.spawn().map_err(failed)?;
    let mut text = String::new();
    if let Some(output) = leader.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.map_err(failed)?;
            if line.is_empty() {
                let mut out = std::io::stdout().lock();
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                return Ok(ExitCode::SUCCESS);
            }
            text += &(line + "\n");
        }
    }
    // It has told the reason.
    let status = leader.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0);
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// The program of a buffer that is started in the background: prints the commands that set its
/// variables, and an empty line, and waits for [`stop`].
///
/// # Errors
/// It was not started by a leader.
pub fn hold() -> Result<(), AdhocError> {
    let leader = std::env::var_os(LEADER_VARIABLE)
        .ok_or_else(|| AdhocError::Usage(format!("{LEADER_VARIABLE} is not set")))?;
    let mut text = String::new();
    for (name, value) in std::env::vars() {
        if VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            text += &format!("export {name}='{}'\n", value.replace('\'', r"'\''"));
        }
    }
    text.push('\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let stop = Path::new(&leader).join(STOP_FILE);
    while !stop.exists() {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Ends the buffer of a leader that was started in the background, and waits until its data is
/// staged out and everything is removed.
///
/// # Errors
/// There is none, or its data is kept.
pub fn stop(leader: &Path) -> Result<(), AdhocError> {
    let shown = leader.display();
    if !home::is_leader_path(leader) || !home::is_used(leader) {
        return Err(AdhocError::Usage(format!(
            "{shown}: no leader runs there; `forebay adhoc start` sets {LEADER_VARIABLE} to the \
             directory of one"
        )));
    }
    std::fs::write(leader.join(STOP_FILE), "")
        .map_err(|e| AdhocError::Usage(format!("{shown}: {e}")))?;
    while home::is_used(leader) {
        std::thread::sleep(POLL_INTERVAL);
    }
    // Its lock is among the first files that are removed.
    let ended = Instant::now();
    while leader.exists() && !home::is_marked(leader) && ended.elapsed() < REMOVAL_TIMEOUT {
        std::thread::sleep(POLL_INTERVAL);
    }
    match leader.exists() {
        false => Ok(()),
        true => Err(AdhocError::Start(format!(
            "not everything could be staged out and removed\n{}",
            kept_text(leader)
        ))),
    }
}
