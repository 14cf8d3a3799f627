//! The processes on all hosts, as the leader sees them: they are started by the launcher, restarted
//! when they are killed, and ended together.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::launcher::Launcher;
use crate::messages::{Begin, FromNode, MAX_LINE, Prepared, Start, ToNode};

/// Interval of signs of life to the nodes.
const SIGN_OF_LIFE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which an interrupt is noticed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time in which the processes must start on all hosts.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// Time in which the processes must end.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum restarts of the process on one host.
const MAX_RESTARTS: u32 = 3;
/// Events that are not processed yet.
const EVENT_CAPACITY: usize = 1024;

/// The state of a host's process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Prepared(Prepared),
    Running,
    /// It has ended as it said it would; the reason if that was a failure.
    Ended(Option<String>),
    /// Its launcher has ended without a word of it.
    Lost(String),
}

/// A host's process.
struct Member {
    host: String,
    state: State,
    /// The launcher.
    child: Child,
    input: Option<ChildStdin>,
    /// Number of the present process: messages of earlier ones are ignored.
    generation: u32,
}

enum Event {
    /// A message of a process; `None` when its output is closed.
    Node { member: usize, generation: u32, message: Option<FromNode> },
    /// There is data that must be staged out; answered when all processes have been told.
    Keep(SyncSender<()>),
    /// [`Fleet::supervise`] is to return.
    Stop,
}

/// The result of processing an event.
enum Change {
    None,
    /// The state of this member may have changed.
    Member(usize),
    Stop,
}

/// Messages to a fleet that is supervised, from other threads.
#[derive(Clone, Debug)]
pub struct FleetHandle(SyncSender<Event>);

impl FleetHandle {
    /// Tells all processes that there is data that must be staged out.
    pub fn keep(&self) {
        let (told, answer) = sync_channel(1);
        if self.0.send(Event::Keep(told)).is_ok() {
            let _ = answer.recv();
        }
    }

    /// Ends the supervision.
    pub fn stop(&self) {
        let _ = self.0.send(Event::Stop);
    }
}

/// The processes on all hosts. Dropping it ends them; what they keep then is as if the leader were
/// killed.
pub struct Fleet {
    launcher: Launcher,
    program: PathBuf,
    start: Start,
    /// The message with which a process that was restarted runs.
    run: Option<ToNode>,
    members: Vec<Member>,
    events: SyncSender<Event>,
    inbox: Receiver<Event>,
    last_sign: Instant,
}

/// The way in which to reach the hosts.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The launcher.
    pub launcher: Launcher,
    /// The path of this program on all hosts.
    pub program: PathBuf,
}

impl Fleet {
    /// Starts the processes.
    ///
    /// # Errors
    /// The launcher cannot be started.
    pub fn launch(reach: &Reach, hosts: &[String], start: Start) -> Result<Fleet, String> {
        let (events, inbox) = sync_channel(EVENT_CAPACITY);
        let mut fleet = Fleet {
            launcher: reach.launcher.clone(),
            program: reach.program.clone(),
            start,
            run: None,
            members: Vec::new(),
            events,
            inbox,
            last_sign: Instant::now(),
        };
        for (index, host) in hosts.iter().enumerate() {
            let first = ToNode::Start(fleet.start.clone());
            let (child, input) = fleet.spawn(index, host, 0, &first)?;
            let host = host.clone();
            let state = State::Starting;
            fleet.members.push(Member { host, state, child, input, generation: 0 });
        }
        Ok(fleet)
    }

    /// Starts the process of a host, and sends it its first message.
    fn spawn(
        &self,
        index: usize,
        host: &str,
        generation: u32,
        first: &ToNode,
    ) -> Result<(Child, Option<ChildStdin>), String> {
        let arguments = ["adhoc", "node", host];
        let mut command = self.launcher.command(host, &self.program, &arguments);
        // An interrupt from the terminal is for the leader.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| cannot_start(&command, &error))?;
        let mut input = child.stdin.take();
        // A process that has ended already is noticed by its output.
        let _ = input.as_mut().map(|input| write_line(input, &line_of(first)));
        if let Some(output) = child.stdout.take() {
            let events = self.events.clone();
            let read = move || {
                let mut output = BufReader::new(output);
                let mut line = Vec::new();
                let event = |message| Event::Node { member: index, generation, message };
                loop {
                    line.clear();
                    // A launcher may also print what is no text.
                    match output.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
                        Ok(0) | Err(_) => break,
                        Ok(_) => {}
                    }
                    if let Some(message) =
                        FromNode::parse(String::from_utf8_lossy(&line).trim_end())
                        && events.send(event(Some(message))).is_err()
                    {
                        return;
                    }
                }
                let _ = events.send(event(None));
            };
            let thread = std::thread::Builder::new().name("forebay-node".into());
            thread.spawn(read).map_err(|error| format!("cannot start a thread: {error}"))?;
        }
        Ok((child, input))
    }

    /// Sends a message to all processes.
    pub fn broadcast(&mut self, message: &ToNode) {
        match message {
            ToNode::Run { .. } => self.run = Some(message.clone()),
            ToNode::Keep => self.start.keep = true,
            ToNode::Start(_) | ToNode::End { .. } => {}
        }
        let line = line_of(message);
        for input in self.members.iter_mut().filter_map(|member| member.input.as_mut()) {
            // One that has ended is noticed by its output.
            let _ = write_line(input, &line);
        }
    }

    /// For messages from other threads while it is supervised.
    pub fn handle(&self) -> FleetHandle {
        FleetHandle(self.events.clone())
    }

    /// Processes an event, if there is one soon.
    fn poll(&mut self) -> Change {
        if self.last_sign.elapsed() >= SIGN_OF_LIFE_INTERVAL {
            self.last_sign = Instant::now();
            for input in self.members.iter_mut().filter_map(|member| member.input.as_mut()) {
                let _ = write_line(input, "");
            }
        }
        match self.inbox.recv_timeout(POLL_INTERVAL) {
            Ok(Event::Node { member, generation, message }) => {
                if self.members[member].generation != generation {
                    return Change::None;
                }
                self.handle_message(member, message);
                Change::Member(member)
            }
            Ok(Event::Keep(told)) => {
                self.broadcast(&ToNode::Keep);
                let _ = told.send(());
                Change::None
            }
            Ok(Event::Stop) => Change::Stop,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Change::None,
        }
    }

    fn handle_message(&mut self, index: usize, message: Option<FromNode>) {
        let member = &mut self.members[index];
        member.state = match (message, &member.state) {
            (Some(FromNode::Prepared(prepared)), _) => State::Prepared(prepared),
            (Some(FromNode::Running), _) => State::Running,
            (Some(FromNode::Failed(reason)), _) => State::Ended(Some(reason)),
            (Some(FromNode::Ended { .. }), State::Ended(reason)) => State::Ended(reason.clone()),
            (Some(FromNode::Ended { .. }), _) => State::Ended(None),
            (None, State::Ended(reason)) => {
                member.input = None;
                State::Ended(reason.clone())
            }
            (None, State::Starting | State::Prepared(_) | State::Running | State::Lost(_)) => {
                member.input = None;
                let status = member.child.wait();
                let status = status.map_or_else(|e| e.to_string(), |status| status.to_string());
                State::Lost(status)
            }
        };
    }

    /// Waits until `reached` holds for the states of all hosts.
    fn wait(
        &mut self,
        interrupted: &AtomicBool,
        reached: impl Fn(&State) -> bool,
    ) -> Result<(), String> {
        let started = Instant::now();
        while !self.members.iter().all(|member| reached(&member.state)) {
            self.poll();
            let failed: Vec<String> = self.members.iter().filter_map(|m| self.failure(m)).collect();
            if !failed.is_empty() {
                return Err(failed.join("\n"));
            }
            if interrupted.load(Ordering::Relaxed) {
                return Err("interrupted while the hosts were started".to_owned());
            }
            if started.elapsed() > START_TIMEOUT {
                let waiting = self.members.iter().filter(|member| !reached(&member.state));
                let waiting: Vec<&str> = waiting.map(|member| member.host.as_str()).collect();
                return Err(format!(
                    "no answer from {} within {} s; the launcher `{}` must pass standard input and \
                     output",
                    waiting.join(", "),
                    START_TIMEOUT.as_secs(),
                    self.launcher.words()
                ));
            }
        }
        Ok(())
    }

    /// The reason for which a host cannot take part, if there is one.
    fn failure(&self, member: &Member) -> Option<String> {
        let host = &member.host;
        match &member.state {
            State::Ended(Some(reason)) => Some(format!("{host}: {reason}")),
            State::Ended(None) => Some(format!("{host}: ended by a signal")),
            State::Lost(status) => Some(format!(
                "{host}: the launcher `{}` has ended ({status}) before the storage daemon was \
                 running; its messages are above",
                self.launcher.words()
            )),
            State::Starting | State::Prepared(_) | State::Running => None,
        }
    }

    /// Waits until all hosts are prepared, and returns what they found, in the order of the hosts.
    ///
    /// # Errors
    /// The hosts that cannot take part, each with the reason.
    pub fn wait_until_prepared(
        &mut self,
        interrupted: &AtomicBool,
    ) -> Result<Vec<(String, Prepared)>, String> {
        self.wait(interrupted, |state| matches!(state, State::Prepared(_)))?;
        let prepared = |member: &Member| match &member.state {
            State::Prepared(prepared) => Some((member.host.clone(), prepared.clone())),
            State::Starting | State::Running | State::Ended(_) | State::Lost(_) => None,
        };
        Ok(self.members.iter().filter_map(prepared).collect())
    }

    /// Waits until the daemons of all hosts run.
    ///
    /// # Errors
    /// As of [`wait_until_prepared`](Self::wait_until_prepared).
    pub fn wait_until_running(&mut self, interrupted: &AtomicBool) -> Result<(), String> {
        self.wait(interrupted, |state| *state == State::Running)
    }

    /// Watches over the processes until [`FleetHandle::stop`], and restarts those that are killed.
    /// Tells the user through `note`.
    pub fn supervise(&mut self, note: &dyn Fn(String)) {
        let mut restarts = vec![0; self.members.len()];
        loop {
            let index = match self.poll() {
                Change::Member(index) => index,
                Change::None => continue,
                Change::Stop => return,
            };
            let host = self.members[index].host.clone();
            match self.members[index].state.clone() {
                State::Lost(status) if restarts[index] < MAX_RESTARTS => {
                    restarts[index] += 1;
                    note(format!(
                        "{host}: the storage daemon was killed ({status}); restarting it"
                    ));
                    if let Err(reason) = self.restart(index) {
                        note(format!("{host}: cannot be restarted: {reason}"));
                    }
                }
                State::Lost(status) => {
                    note(format!("{host}: lost ({status}); its files are not accessible"));
                }
                // Two messages: that it ends, and that its output is closed.
                State::Ended(_) if self.members[index].input.is_some() => {}
                State::Ended(reason) => {
                    let reason = reason.unwrap_or_else(|| "a signal".to_owned());
                    note(format!("{host}: ended ({reason}); its files are not accessible"));
                }
                State::Prepared(_) => {
                    if let (Some(run), Some(input)) =
                        (self.run.clone(), self.members[index].input.as_mut())
                    {
                        let _ = write_line(input, &line_of(&run));
                    }
                }
                State::Running => note(format!("{host}: the storage daemon runs again")),
                State::Starting => {}
            }
        }
    }

    fn restart(&mut self, index: usize) -> Result<(), String> {
        let generation = self.members[index].generation + 1;
        let host = self.members[index].host.clone();
        // The addresses are known.
        let (begin, leader) = (Begin::Resume, Vec::new());
        let first = ToNode::Start(Start { begin, leader, ..self.start.clone() });
        let (child, input) = self.spawn(index, &host, generation, &first)?;
        let member = &mut self.members[index];
        (member.child, member.input) = (child, input);
        (member.state, member.generation) = (State::Starting, generation);
        Ok(())
    }

    /// Ends the processes, which remove their directories or keep them. Returns the hosts on which
    /// something may be left, each with the reason.
    pub fn end(mut self, remove: bool) -> Vec<String> {
        self.broadcast(&ToNode::End { remove });
        let started = Instant::now();
        let is_open = |member: &Member| member.input.is_some();
        while self.members.iter().any(is_open) && started.elapsed() < END_TIMEOUT {
            self.poll();
        }
        let mut left: Vec<String> = Vec::new();
        for member in &self.members {
            match &member.state {
                State::Lost(status) => left.push(format!("{}: lost ({status})", member.host)),
                State::Ended(Some(reason)) => left.push(format!("{}: {reason}", member.host)),
                State::Ended(None) | State::Starting | State::Prepared(_) | State::Running => {}
            }
        }
        for member in self.members.iter_mut().filter(|member| member.input.is_some()) {
            left.push(format!("{}: did not end within {} s", member.host, END_TIMEOUT.as_secs()));
            let _ = member.child.kill();
        }
        for member in &mut self.members {
            let _ = member.child.wait();
        }
        left
    }
}

fn line_of(message: &ToNode) -> String {
    // Has no map with keys other than strings, so that it can be represented.
    serde_json::to_string(message).unwrap_or_default()
}

fn write_line(input: &mut ChildStdin, line: &str) -> std::io::Result<()> {
    input.write_all(format!("{line}\n").as_bytes())
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    let program = command.get_program().to_string_lossy();
    format!("the launcher `{program}` cannot be started: {error}; name another with --launcher")
}

/// A flag that SIGINT, SIGTERM and SIGHUP set.
pub fn interrupt_flag() -> Arc<AtomicBool> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Registering fails only for signals that cannot be caught.
        let _ = signal_hook::flag::register(signal, flag.clone());
    }
    flag
}
