//! Asking a pool's controller: through the agent of this host, on its own host through its
//! socket, or straight from host to host.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay_job_script::BufferPath;
use forebay_protocol::address::Address;

use super::config::{Identity, PoolConfig};
use super::frame::{Incoming, MAX_BODY, Outgoing};
use super::greet;
use super::messages::{FromController, Query, QueryReply, Role, ToController, Welcome};
use super::server::hang_up;
use super::{ConfigError, DaemonError};
use crate::activity::Status;
use crate::controller_client::{ControllerClient, RequestIds, controller_gone};
use forebay_control::controller::{
    Cause, Failure, JobView, Outcome, Request, RequestId, RequestedStage,
};
use forebay_control::messages::{Owner, StageId};

/// Requests and answers that wait for the connection's thread.
const WAITING: usize = 1024;
/// How long a question may take.
const QUESTION: Duration = Duration::from_secs(10);
/// How long to look for a controller that is gone, before what was asked of it fails.
const GONE: Duration = Duration::from_secs(600);
/// Pause between attempts to connect again.
const PAUSE: Duration = Duration::from_millis(500);

/// A pool over several hosts, as a process that uses it sees it.
pub struct RemoteController {
    work: SyncSender<Work>,
    thread: Option<JoinHandle<()>>,
    caller: Owner,
    host: Option<String>,
    calls_socket: PathBuf,
    ids: RequestIds,
    number: AtomicU64,
}

type TellOutcome = SyncSender<Outcome>;
type TellAnswer = SyncSender<Result<QueryReply, Failure>>;

enum Work {
    Ask(RequestId, Box<Request>, TellOutcome),
    Query(u64, Query, TellAnswer),
    /// From the connection of this number.
    Came(u64, Box<FromController>),
    Broken(u64),
    Stop,
}

impl RemoteController {
    /// Connects to the pool that a file describes.
    pub fn open(file: &Path) -> Result<RemoteController, DaemonError> {
        let config = PoolConfig::read(file)?;
        let own = Owner {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        RemoteController::along(&config, ways(&config), own)
    }

    /// Connects to a pool's controller for someone else, as an agent may.
    pub(crate) fn connect_as(
        config: &PoolConfig,
        identity: &Identity,
        owner: Owner,
    ) -> Result<RemoteController, DaemonError> {
        let way = Way {
            address: Address::Tcp(config.controller),
            role: Role::Client(Some(owner)),
            identity: Ok(identity.clone()),
        };
        RemoteController::along(config, vec![way], owner)
    }

    fn along(
        config: &PoolConfig,
        ways: Vec<Way>,
        caller: Owner,
    ) -> Result<RemoteController, DaemonError> {
        let (out, input, welcome) = connect(&ways)
            .map_err(|reason| DaemonError::new(format!("pool `{}`: {reason}", config.name)))?;
        let ids = RequestIds::new().map_err(DaemonError::with_context("/dev/urandom"))?;
        let (work, inbox) = sync_channel(WAITING);
        let line = Line {
            ways,
            work: work.clone(),
            current: None,
            number: 0,
            asked: BTreeMap::new(),
            queried: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("forebay-client".into())
            .spawn(move || line.run(out, input, &inbox))
            .map_err(DaemonError::with_context("no thread can be made"))?;
        Ok(RemoteController {
            work,
            thread: Some(thread),
            caller,
            calls_socket: config.job_api_socket(),
            host: welcome.host,
            ids,
            number: AtomicU64::new(0),
        })
    }

    /// The name of this compute node, if it has an agent.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    fn query(&self, query: Query) -> Result<QueryReply, Failure> {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, receiver) = sync_channel(1);
        self.work
            .send(Work::Query(number, query, answer))
            .map_err(|_| controller_gone())?;
        receiver.recv_timeout(QUESTION).unwrap_or_else(|_| {
            let reason = "the pool's controller does not answer; it may be starting again";
            Err(Failure::new(Cause::TimedOut, reason))
        })
    }

    /// The socket through which the processes of a job on a compute node ask to stage.
    pub fn job_api_socket(&self) -> &Path {
        &self.calls_socket
    }
}

impl ControllerClient for RemoteController {
    fn caller(&self) -> Owner {
        self.caller
    }

    fn submit(&self, request: Request) -> Result<Receiver<Outcome>, Failure> {
        let id = self.ids.next_id();
        let (answer, receiver) = sync_channel(1);
        self.work
            .send(Work::Ask(id, Box::new(request), answer))
            .map_err(|_| controller_gone())?;
        Ok(receiver)
    }

    fn status(&self) -> Result<Status, Failure> {
        match self.query(Query::Status)? {
            QueryReply::Status(status) => Ok(*status),
            _ => Err(controller_gone()),
        }
    }

    fn mount_variables(&self, token: &str) -> Result<Vec<(String, String)>, Failure> {
        match self.query(Query::MountVariables(token.to_owned()))? {
            QueryReply::MountVariables(paths) => Ok(paths),
            _ => Err(controller_gone()),
        }
    }

    fn job_view(&self, token: &str) -> Result<JobView, Failure> {
        match self.query(Query::Job(token.to_owned()))? {
            QueryReply::Job(job) => Ok(job),
            _ => Err(controller_gone()),
        }
    }

    fn requested_stages(
        &self,
        token: &str,
        about: &[BufferPath],
        numbers: &[StageId],
    ) -> Result<Vec<RequestedStage>, Failure> {
        let query = Query::RequestedStages(token.to_owned(), about.to_vec(), numbers.to_vec());
        match self.query(query)? {
            QueryReply::RequestedStages(stages) => Ok(stages),
            _ => Err(controller_gone()),
        }
    }
}

impl Drop for RemoteController {
    fn drop(&mut self) {
        let _ = self.work.send(Work::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A way to the controller, and who we are on it.
struct Way {
    address: Address,
    role: Role,
    identity: Result<Identity, ConfigError>,
}

/// All ways, best first.
fn ways(config: &PoolConfig) -> Vec<Way> {
    let local = |path: &Path| Way {
        address: Address::Unix(path.to_owned()),
        role: Role::Client(None),
        identity: Ok(Identity::default()),
    };
    vec![
        local(&config.agent_socket),
        local(&config.controller_socket),
        Way {
            address: Address::Tcp(config.controller),
            role: Role::Client(None),
            identity: config.identity(),
        },
    ]
}

fn connect(ways: &[Way]) -> Result<(Outgoing, Incoming, Welcome), String> {
    let mut failed = Vec::new();
    for way in ways {
        let dialled = match &way.identity {
            Ok(identity) => greet::dial(&way.address, way.role.clone(), identity),
            Err(error) => Err(io::Error::other(error.to_string())),
        };
        match dialled {
            Ok(connected) => return Ok(connected),
            // No agent or controller on this host.
            Err(error)
                if matches!(way.address, Address::Unix(_))
                    && matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                    ) => {}
            Err(error) => failed.push(format!("{}: {error}", way.address)),
        }
    }
    Err(format!(
        "the controller cannot be reached: {}",
        failed.join("; ")
    ))
}

/// The connection's thread.
struct Line {
    ways: Vec<Way>,
    work: SyncSender<Work>,
    current: Option<Outgoing>,
    /// Number of the connection.
    number: u64,
    /// What is not answered yet.
    asked: BTreeMap<RequestId, (Box<Request>, TellOutcome)>,
    queried: BTreeMap<u64, (Query, TellAnswer)>,
}

impl Line {
    fn run(mut self, out: Outgoing, input: Incoming, inbox: &Receiver<Work>) {
        self.take_up(out, input);
        let mut lost: Option<Instant> = None;
        loop {
            let work = match self.current {
                Some(_) => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                None => inbox.recv_timeout(PAUSE),
            };
            match work {
                Ok(Work::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(work) => self.work(work),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.current.is_some() {
                lost = None;
                continue;
            }
            let since = lost.get_or_insert_with(Instant::now);
            match connect(&self.ways) {
                Ok((out, input, _)) => self.take_up(out, input),
                Err(reason) if since.elapsed() > GONE => self.give_up(&reason),
                Err(_) => {}
            }
        }
        self.drop_connection();
    }

    fn work(&mut self, work: Work) {
        match work {
            Work::Ask(id, request, answer) => {
                let message = ToController::Request(id, request.clone());
                self.asked.insert(id, (request, answer));
                self.send(&message);
            }
            Work::Query(number, query, answer) => {
                let message = ToController::Query(number, query.clone());
                // Whoever asked before and has given up is forgotten.
                while self.queried.len() >= WAITING {
                    self.queried.pop_first();
                }
                self.queried.insert(number, (query, answer));
                self.send(&message);
            }
            Work::Came(connection, message) if connection == self.number => {
                // Whoever asked may have given up.
                match *message {
                    FromController::Reply(id, outcome) => {
                        if let Some((_, answer)) = self.asked.remove(&id) {
                            let _ = answer.try_send(outcome);
                        }
                    }
                    FromController::QueryReply(number, told) => {
                        if let Some((_, answer)) = self.queried.remove(&number) {
                            let _ = answer.try_send(told);
                        }
                    }
                    _ => {}
                }
            }
            Work::Broken(connection) if connection == self.number => self.drop_connection(),
            Work::Came(..) | Work::Broken(_) | Work::Stop => {}
        }
    }

    fn drop_connection(&mut self) {
        if let Some(out) = self.current.take() {
            hang_up(out.stream());
        }
    }

    fn send(&mut self, message: &ToController) {
        let Some(out) = &mut self.current else { return };
        if out.send(message).is_err() {
            self.drop_connection();
        }
    }

    /// Uses a new connection, and asks again what is not answered.
    fn take_up(&mut self, out: Outgoing, mut input: Incoming) {
        self.number += 1;
        let (work, number) = (self.work.clone(), self.number);
        let read = move || {
            while let Ok(message) = input.receive(MAX_BODY) {
                if work.send(Work::Came(number, Box::new(message))).is_err() {
                    return;
                }
            }
            let _ = work.send(Work::Broken(number));
        };
        let reader = std::thread::Builder::new().name("forebay-answers".into());
        if reader.spawn(read).is_err() {
            return;
        }
        self.current = Some(out);
        let asked = self.asked.iter();
        let again: Vec<ToController> = asked
            .map(|(id, (request, _))| ToController::Request(*id, request.clone()))
            .chain(
                self.queried
                    .iter()
                    .map(|(number, (query, _))| ToController::Query(*number, query.clone())),
            )
            .collect();
        for message in &again {
            self.send(message);
        }
    }

    fn give_up(&mut self, reason: &str) {
        for (_, (_, answer)) in std::mem::take(&mut self.asked) {
            let _ = answer.try_send(Err(Failure::new(Cause::Failed, reason)));
        }
        self.queried.clear();
    }
}
