//! The process beside the leader that removes its directory if it is killed.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::home::{self, Home};

/// Waits until standard input is closed, which the leader has the other end of, and removes the
/// leader's directory unless it holds data for a stage-out.
pub fn watch_leader(leader: &Path) {
    let mut sink = Vec::new();
    let _ = std::io::stdin().lock().read_to_end(&mut sink);
    home::remove_leader(leader);
}

/// The process that runs [`watch_leader`]; dropping this ends it.
pub struct Watcher(Child);

impl Watcher {
    /// Starts the process. Without one, a killed leader's directory stays until the user's next
    /// instance, if the leader's host is none of the hosts.
    pub fn start(leader: &Home, program: &Path) -> Option<Watcher> {
        let mut command = Command::new(program);
        command.args(["adhoc", "watch"]).arg(leader.path()).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().ok().map(Watcher)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
