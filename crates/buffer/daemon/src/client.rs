//! Requests to a pool's controller: through the agent of this host, on the controller's own host
//! through its socket, over TCP, or within the process.

mod queries;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use forebay_control::controller::{Cause, Failure, Outcome, Request, RequestId};
use forebay_control::messages::Owner;
use forebay_protocol::address::Address;

use crate::config::PoolConfig;
use crate::connection::{Connection, Endpoint, Sender};
use crate::error::DaemonError;
use crate::messages::{FromController, Query, QueryReply, Role, ToController, VERSION};
use crate::request_ids::RequestIds;
use crate::service::Service;
use crate::versions::{check_version, query_for, version_of, version_of_query};
use forebay_net::auth::Authenticator;

/// Capacity of the connection thread's queue, and maximum queries without a reply.
const QUEUE_CAPACITY: usize = 1024;
/// Time for which a lost controller is looked for before its requests fail.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause between attempts to reconnect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);

/// The controller will not reply any more.
fn controller_gone() -> Failure {
    Failure::new(
        Cause::Failed,
        "the pool's controller has stopped, or the connection to it is lost; see earlier messages",
    )
}

/// A client of a pool's controller, on behalf of one user.
pub struct ControllerClient {
    work: SyncSender<Work>,
    caller: Owner,
    host: Option<String>,
    job_api_socket: PathBuf,
    request_ids: RequestIds,
    last_number: AtomicU64,
    _service: Service,
}

type ReplyToRequest = SyncSender<Outcome>;
type ReplyToQuery = SyncSender<Result<QueryReply, Failure>>;

enum Work {
    Request(RequestId, Box<Request>, ReplyToRequest),
    Query(u64, Query, ReplyToQuery),
    /// From the connection of this number.
    Received(u64, Box<FromController>),
    Disconnected(u64),
    Stop,
}

impl ControllerClient {
    /// Connects to the pool that a configuration file describes, for this process's user.
    pub fn open(file: &Path) -> Result<ControllerClient, DaemonError> {
        let config = PoolConfig::read(file)?;
        let candidates = endpoints(&config);
        ControllerClient::connect(candidates, None, config.job_api_socket(), None)
            .map_err(DaemonError::with_context(format!("pool `{}`", config.name)))
    }

    /// Connects over the first endpoint that accepts; for `owner` instead of this process's user if
    /// it is given, as trusted processes may. `host` names the compute node that this process is on.
    pub(crate) fn connect(
        endpoints: Vec<Result<Endpoint, String>>,
        owner: Option<Owner>,
        job_api_socket: PathBuf,
        host: Option<String>,
    ) -> Result<ControllerClient, DaemonError> {
        let role = Role::Client(owner);
        let connection = connect_first(&endpoints, &role).map_err(DaemonError::new)?;
        let request_ids =
            RequestIds::new().map_err(DaemonError::with_context("cannot read /dev/urandom"))?;
        let host = host.or_else(|| connection.welcome.host.clone());
        let (work, inbox) = sync_channel(QUEUE_CAPACITY);
        let worker = Worker {
            endpoints,
            role,
            work: work.clone(),
            current: None,
            version: VERSION,
            generation: 0,
            requests: BTreeMap::new(),
            queries: BTreeMap::new(),
        };
        let stopper = work.clone();
        let service = Service::spawn(
            "client",
            move || drop(stopper.send(Work::Stop)),
            move || {
                worker.run(connection, &inbox);
                Ok(())
            },
        )?;
        Ok(ControllerClient {
            work,
            caller: owner.unwrap_or_else(own_user),
            host,
            job_api_socket,
            request_ids,
            last_number: AtomicU64::new(0),
            _service: service,
        })
    }

    /// The user and group that requests are made for.
    pub fn caller(&self) -> Owner {
        self.caller
    }

    /// The name of this compute node, if it has an agent.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// The socket through which the processes of a job on a compute node ask to stage.
    pub fn job_api_socket(&self) -> &Path {
        &self.job_api_socket
    }

    /// Sends a request, which is retransmitted until the controller replies. The outcome comes
    /// through the channel.
    pub fn submit(&self, request: Request) -> Result<Receiver<Outcome>, Failure> {
        let id = self.request_ids.next_id();
        let (reply, outcome) = sync_channel(1);
        let work = Work::Request(id, Box::new(request), reply);
        self.work.send(work).map_err(|_| controller_gone())?;
        Ok(outcome)
    }

    /// Sends a request and waits for its outcome.
    pub fn request(&self, request: Request) -> Outcome {
        let outcome = self.submit(request)?;
        outcome.recv().unwrap_or_else(|_| Err(controller_gone()))
    }
}

/// The user and group of this process.
pub(crate) fn own_user() -> Owner {
    Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

/// All endpoints of a cluster's controller, best first.
fn endpoints(config: &PoolConfig) -> Vec<Result<Endpoint, String>> {
    let local = |path: &Path| {
        Ok(Endpoint::Socket {
            address: Address::Unix(path.to_owned()),
            identity: Authenticator::default(),
        })
    };
    let remote = config
        .identity()
        .map(|identity| Endpoint::Socket { address: Address::Tcp(config.controller), identity });
    vec![
        local(&config.agent_socket),
        local(&config.controller_socket),
        remote.map_err(|error| format!("{}: {error}", config.controller)),
    ]
}

/// Connects to the first endpoint that accepts.
fn connect_first(
    endpoints: &[Result<Endpoint, String>],
    role: &Role,
) -> Result<Connection, String> {
    let mut failed = Vec::new();
    for endpoint in endpoints {
        let endpoint = match endpoint {
            Ok(endpoint) => endpoint,
            Err(error) => {
                failed.push(error.clone());
                continue;
            }
        };
        let error = match endpoint.connect(role.clone()) {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        let absent =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        // A host without agent or controller has no socket.
        if !(absent && endpoint.is_local_socket() && endpoints.len() > 1) {
            failed.push(format!("{endpoint}: {error}"));
        }
    }
    Err(format!("the controller is unreachable: {}", failed.join("; ")))
}

/// The connection's thread.
struct Worker {
    endpoints: Vec<Result<Endpoint, String>>,
    role: Role,
    work: SyncSender<Work>,
    current: Option<Sender>,
    /// Version of the messages that the controller speaks.
    version: u16,
    /// Number of the current connection.
    generation: u64,
    /// Requests and queries without a reply.
    requests: BTreeMap<RequestId, (Box<Request>, ReplyToRequest)>,
    queries: BTreeMap<u64, (Query, ReplyToQuery)>,
}

impl Worker {
    fn run(mut self, connection: Connection, inbox: &Receiver<Work>) {
        self.use_connection(connection);
        let can_reconnect = |endpoint: &Result<Endpoint, String>| match endpoint {
            Ok(endpoint) => endpoint.can_reconnect(),
            Err(_) => false,
        };
        let can_reconnect = self.endpoints.iter().any(can_reconnect);
        let mut lost: Option<Instant> = None;
        loop {
            let work = match self.current {
                Some(_) => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                None => inbox.recv_timeout(RECONNECT_INTERVAL),
            };
            match work {
                Ok(Work::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(work) => self.handle_work(work),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.current.is_some() {
                lost = None;
                continue;
            }
            if !can_reconnect {
                return;
            }
            let since = lost.get_or_insert_with(Instant::now);
            match connect_first(&self.endpoints, &self.role) {
                Ok(connection) => self.use_connection(connection),
                Err(reason) if since.elapsed() > RECONNECT_TIMEOUT => self.fail_all(&reason),
                Err(_) => {}
            }
        }
    }

    fn handle_work(&mut self, work: Work) {
        match work {
            Work::Request(id, request, reply) => {
                if let Err(failure) = check_version(version_of(&request), self.version) {
                    let _ = reply.try_send(Err(failure));
                    return;
                }
                let message = ToController::Request(id, request.clone());
                self.requests.insert(id, (request, reply));
                self.send(&message);
            }
            Work::Query(number, query, reply) => {
                if let Err(failure) = check_version(version_of_query(&query), self.version) {
                    let _ = reply.try_send(Err(failure));
                    return;
                }
                let message = ToController::Query(number, query_for(query.clone(), self.version));
                // The oldest have timed out.
                while self.queries.len() >= QUEUE_CAPACITY {
                    self.queries.pop_first();
                }
                self.queries.insert(number, (query, reply));
                self.send(&message);
            }
            Work::Received(generation, message) => {
                if generation == self.generation {
                    self.handle_message(*message);
                }
            }
            Work::Disconnected(generation) => {
                if generation == self.generation {
                    self.current = None;
                }
            }
            Work::Stop => {}
        }
    }

    fn handle_message(&mut self, message: FromController) {
        // The thread that asked may have given up; then nothing takes the reply.
        match message {
            FromController::Reply(id, outcome) => {
                if let Some((_, reply)) = self.requests.remove(&id) {
                    let _ = reply.try_send(outcome);
                }
            }
            FromController::QueryReply(number, answer) => {
                if let Some((_, reply)) = self.queries.remove(&number) {
                    let _ = reply.try_send(answer);
                }
            }
            FromController::StorageCommand(_) | FromController::ComputeCommand(_) => {
                tracing::warn!("protocol error: the controller sent a command to a client");
                self.current = None;
            }
        }
    }

    fn send(&mut self, message: &ToController) {
        if let Some(sender) = &mut self.current
            && sender.send(message).is_err()
        {
            self.current = None;
        }
    }

    /// Switches to a new connection, and retransmits what has no reply.
    fn use_connection(&mut self, connection: Connection) {
        self.generation += 1;
        // Within a process both sides are of this release.
        self.version = connection.welcome.version.unwrap_or(VERSION);
        let (work, generation) = (self.work.clone(), self.generation);
        let mut receiver = connection.receiver;
        let read = move || {
            while let Ok(message) = receiver.receive() {
                let work_item = Work::Received(generation, Box::new(message));
                if work.send(work_item).is_err() {
                    return;
                }
            }
            let _ = work.send(Work::Disconnected(generation));
        };
        let reader = std::thread::Builder::new().name("forebay-replies".into());
        if reader.spawn(read).is_err() {
            return;
        }
        self.current = Some(connection.sender);
        let requests = self.requests.iter();
        let requests =
            requests.map(|(id, (request, _))| ToController::Request(*id, request.clone()));
        let queries = self.queries.iter();
        let queries = queries.map(|(number, (query, _))| {
            ToController::Query(*number, query_for(query.clone(), self.version))
        });
        let unanswered: Vec<ToController> = requests.chain(queries).collect();
        for message in &unanswered {
            self.send(message);
        }
    }

    fn fail_all(&mut self, reason: &str) {
        for (_, (_, reply)) in std::mem::take(&mut self.requests) {
            let _ = reply.try_send(Err(Failure::new(Cause::Failed, reason)));
        }
        self.queries.clear();
    }
}
