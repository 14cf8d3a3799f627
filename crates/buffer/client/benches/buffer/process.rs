//! Child processes.

use crate::Outcome;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A process that reads and writes lines. It ends at the end of its input. Dropping it closes the
/// input, and kills the process after 10 s.
pub struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts this program in another role.
    pub fn spawn_role(arguments: &[&str]) -> Outcome<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments);
        Process::start(command)
    }

    pub fn start(mut command: Command) -> Outcome<Process> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        Ok(Process { child, output: BufReader::new(output) })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn write_line(&mut self, line: &str) -> Outcome<()> {
        let input = self.child.stdin.as_mut().ok_or("no input")?;
        writeln!(input, "{line}")?;
        Ok(input.flush()?)
    }

    /// The next line of its output. Fails if the process has ended.
    pub fn read_line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a process ended before its work was complete".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// CPU time of all its threads.
    pub fn cpu(&self) -> Outcome<Duration> {
        let path = format!("/proc/{}/task", self.child.id());
        let mut nanos = 0;
        for task in std::fs::read_dir(path)? {
            // A thread may end meanwhile; the main threads of a daemon do not.
            let stat = std::fs::read_to_string(task?.path().join("schedstat"));
            let first = stat.ok().and_then(|s| s.split(' ').next()?.parse::<u64>().ok());
            nanos += first.unwrap_or(0);
        }
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        for _ in 0..1000 {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
