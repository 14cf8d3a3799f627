//! The job's processes: a process group, which ends with the script.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// Time between SIGTERM and SIGKILL for the job's processes.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which the processes are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running script.
pub(crate) struct JobProcess {
    child: Child,
    group: Option<Pid>,
}

impl JobProcess {
    /// Starts the script with its arguments and these variables.
    pub fn start(
        script: &Path,
        arguments: &[OsString],
        environment: &[(String, String)],
    ) -> io::Result<JobProcess> {
        let script = std::fs::canonicalize(script)?;
        let mut command = command(&script)?;
        command.args(arguments).envs(environment.iter().map(|(k, v)| (k, v))).process_group(0);
        if io::stdin().is_terminal() {
            // A group in the background may not read the terminal.
            command.stdin(Stdio::null());
        }
        let die_with_parent = || {
            // If this process is killed, nothing stages out what the script still writes.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
                .map_err(io::Error::from)
        };
        // SAFETY: the closure makes one system call, which is allowed between fork and exec, and
        // touches no memory of the parent.
        unsafe { command.pre_exec(die_with_parent) };
        let child = command.spawn().map_err(|error| match missing_interpreter(&script) {
            Some(interpreter) if error.kind() == io::ErrorKind::NotFound => {
                let reason = format!("its interpreter `{interpreter}` does not exist");
                io::Error::new(error.kind(), reason)
            }
            _ => error,
        })?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(JobProcess { child, group })
    }

    /// Waits for the script, and returns its exit status, or `None` if it was interrupted. When it
    /// returns, the job has no processes left.
    pub fn wait(&mut self, is_interrupted: impl Fn() -> bool) -> io::Result<Option<i32>> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if is_interrupted() {
                break None;
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        self.end_group();
        Ok(status.map(exit_code))
    }

    /// Terminates what is left of the group, then kills it.
    fn end_group(&mut self) {
        let Some(group) = self.group else { return };
        if kill_process_group(group, Signal::TERM).is_ok() {
            let asked = Instant::now();
            loop {
                // Reaps the script itself once it has ended.
                let _ = self.child.try_wait();
                if test_kill_process_group(group).is_err() {
                    return;
                }
                if asked.elapsed() > TERMINATION_TIMEOUT {
                    break;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// The command that starts a script: the script itself if it is executable, or else the
/// interpreter that it names, or the shell.
fn command(script: &Path) -> io::Result<Command> {
    if std::fs::metadata(script)?.permissions().mode() & 0o111 != 0 {
        return Ok(Command::new(script));
    }
    let line = interpreter_line(script)?;
    // As the kernel does it: one interpreter, and at most one argument, blanks and all.
    let mut words = line.splitn(2, |byte| byte.is_ascii_whitespace());
    let interpreter = words.next().filter(|word| !word.is_empty()).unwrap_or(b"/bin/sh");
    let mut command = Command::new(OsStr::from_bytes(interpreter));
    if let Some(argument) = words.next() {
        command.arg(OsStr::from_bytes(argument.trim_ascii()));
    }
    command.arg(script);
    Ok(command)
}

/// The words behind `#!` in the first line of a script; the shell if there are none.
fn interpreter_line(script: &Path) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    BufReader::new(std::fs::File::open(script)?).read_until(b'\n', &mut first)?;
    Ok(first.strip_prefix(b"#!").unwrap_or(b"/bin/sh").trim_ascii().to_vec())
}

/// The interpreter that a script names, if it does not exist.
fn missing_interpreter(script: &Path) -> Option<String> {
    let line = interpreter_line(script).ok()?;
    let name = line.split(u8::is_ascii_whitespace).next()?;
    let path = Path::new(OsStr::from_bytes(name));
    (!path.exists()).then(|| path.display().to_string())
}

/// The exit status as a shell reports it.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
