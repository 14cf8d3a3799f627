//! The leader: it starts the hosts and the controller, runs a program in the buffer, and ends all.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_client::KEY_VARIABLE;
use forebay_daemon::{ControllerClient, Daemon, PoolConfig};
use forebay_job::{Observer, OnFailure, PoolSelection, RunError, RunOptions, RunReport, run_job};
use forebay_units::{Bytes, human};
use serde::{Deserialize, Serialize};

use crate::configuration::{NodeAddress, Pool, capacity};
use crate::error::{AdhocError, kept_text, step_text};
use crate::fleet::{Fleet, Reach, interrupt_flag};
use crate::home::{self, Home, KEY_FILE};
use crate::messages::{Begin, Prepared, Start, ToNode};
use crate::network::{Beacon, ReservedPort, own_addresses};
use crate::run_watch::RunWatch;
use crate::stages::{StagedItem, job_script};
use crate::watcher::Watcher;

/// The job of an instance: it has one.
pub(crate) const JOB: &str = "job";
/// Variable of the program with the leader's directory.
pub const LEADER_VARIABLE: &str = "FOREBAY_ADHOC";
/// The file in the leader's directory that describes the instance.
const INSTANCE_FILE: &str = "instance.json";
/// Time in which all daemons connect to the controller.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which that is checked.
const CONNECT_INTERVAL: Duration = Duration::from_millis(10);

/// A buffer, and the program that is run in it.
#[derive(Clone, Debug)]
pub struct AdhocOptions {
    /// Hosts with a part of the buffer and a mount.
    pub hosts: Vec<String>,
    /// The local directory on each host.
    pub local: PathBuf,
    /// The way to reach the hosts.
    pub reach: Reach,
    /// The network interface of this host through which the hosts connect to it.
    pub interface: Option<String>,
    /// Bytes on each host. Default: four fifths of the least free space.
    pub size: Option<Bytes>,
    /// Files to stage in.
    pub stages_in: Vec<StagedItem>,
    /// Files to stage out.
    pub stages_out: Vec<StagedItem>,
    /// Treatment of the results if the program fails.
    pub on_failure: OnFailure,
    /// The interception library, if it is installed.
    pub library: Option<PathBuf>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
}

/// An instance, as its leader's directory describes it for a recovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub id: String,
    pub local: PathBuf,
    pub launcher: String,
    pub program: PathBuf,
    pub nodes: Vec<NodeAddress>,
    pub capacity: Bytes,
    pub key: String,
}

impl Instance {
    /// Reads the description in a leader's directory; `None` if the hosts were not ready yet.
    pub fn read(leader: &Path) -> Result<Option<Instance>, String> {
        let file = leader.join(INSTANCE_FILE);
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        let instance = serde_json::from_slice(&text);
        instance.map(Some).map_err(|e| format!("{}: {e}", file.display()))
    }

    fn write(&self, leader: &Home) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|e| e.to_string())?;
        leader.write(INSTANCE_FILE, &text).map(drop)
    }
}

/// Runs a program in a new buffer. Blocks until everything is over and removed; reports progress to
/// `observer`, and handles SIGINT, SIGTERM and SIGHUP.
///
/// # Errors
/// The reason, and what is left.
pub fn run(options: &AdhocOptions, observer: &mut dyn Observer) -> Result<RunReport, AdhocError> {
    let started = Instant::now();
    let interrupted = interrupt_flag();
    home::check_local(&options.local).map_err(AdhocError::Usage)?;
    let id = random_hex::<4>().map_err(AdhocError::Start)?;
    let leader_path = home::leader_path(&options.local, &id);
    let leader = Home::create(leader_path).map_err(AdhocError::Start)?;
    let _watcher = Watcher::start(&leader, &options.reach.program);
    let outcome = Leader::start(options, &id, &leader, &interrupted, observer)
        .and_then(|running| running.run(options, started, observer));
    if matches!(outcome, Err(AdhocError::Kept { .. })) || leader.is_kept() {
        return outcome;
    }
    if let Err(reason) = leader.remove() {
        observer.warning(&format!("not everything could be removed: {reason}"));
    }
    outcome
}

/// A buffer that is running.
pub(crate) struct Leader<'a> {
    home: &'a Home,
    id: String,
    pool: PathBuf,
    hosts: Vec<String>,
    capacity: Bytes,
    fleet: Fleet,
    controller: Daemon,
}

/// `N` random bytes as hexadecimal digits.
fn random_hex<const N: usize>() -> Result<String, String> {
    let bytes = forebay_net::random::random_bytes::<N>();
    let bytes = bytes.map_err(|error| format!("cannot read /dev/urandom: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl<'a> Leader<'a> {
    /// Starts a new buffer.
    fn start(
        options: &AdhocOptions,
        id: &str,
        home: &'a Home,
        interrupted: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Leader<'a>, AdhocError> {
        let mut instance = Instance {
            id: id.to_owned(),
            local: options.local.clone(),
            launcher: options.reach.launcher.words(),
            program: options.reach.program.clone(),
            nodes: Vec::new(),
            capacity: Bytes(0),
            key: random_hex::<32>().map_err(AdhocError::Start)?,
        };
        observer.phase(&format!("start {}", human::counted(options.hosts.len() as u64, "host")));
        let assemble = |instance: &mut Instance, prepared: &[(String, Prepared)]| {
            let leader = common_address(prepared)?;
            instance.nodes = node_addresses(prepared, leader)?;
            let free = prepared.iter().map(|(_, prepared)| prepared.free).min().unwrap_or(0);
            // All hosts contribute equally.
            instance.capacity = capacity(free, options.size)
                .map_err(|e| format!("{}: {e}", options.local.display()))?;
            Ok(leader)
        };
        let plan = Plan { begin: Begin::New, interface: options.interface.as_deref(), interrupted };
        plan.start(&mut instance, &options.hosts, &options.reach, home, observer, assemble)
    }

    /// Runs the program, and ends.
    fn run(
        mut self,
        options: &AdhocOptions,
        started: Instant,
        observer: &mut dyn Observer,
    ) -> Result<RunReport, AdhocError> {
        let total = Bytes(self.capacity.0 * self.hosts.len() as u64);
        let mut exports = vec![("FOREBAY_HOSTS".to_owned(), self.hosts.join(","))];
        let leader = self.home.path().to_string_lossy().into_owned();
        exports.push((LEADER_VARIABLE.to_owned(), leader));
        let key = home::node_path(&options.local, &self.id).join(KEY_FILE);
        exports.push((KEY_VARIABLE.to_owned(), key.to_string_lossy().into_owned()));
        if let Some(library) = &options.library {
            let library = library.to_string_lossy().into_owned();
            exports.push(("FOREBAY_PRELOAD_LIBRARY".to_owned(), library));
        }
        let script = job_script(total, &options.stages_in, &options.stages_out, &exports);
        let script = self.home.write("script", &script).map_err(AdhocError::Start)?;
        let job = RunOptions {
            pool: self.pool(),
            hosts: self.hosts.clone(),
            script,
            arguments: options.program.clone(),
            token: Some(JOB.to_owned()),
            account: None,
            on_failure: options.on_failure,
            metrics: None,
        };
        let handle = self.fleet.handle();
        let lost = AtomicBool::new(false);
        let mut watch = RunWatch {
            inner: observer,
            handle: &handle,
            home: self.home,
            lost: &lost,
            gave_up: false,
            has_results: !options.stages_out.is_empty(),
            has_run: false,
            has_ended: false,
            ready: format!(
                "{} on {}",
                human::bytes(total.0),
                human::counted(self.hosts.len() as u64, "host")
            ),
            started,
        };
        let outcome = with_supervision(&mut self.fleet, &lost, || run_job(&job, &mut watch));
        let has_data = watch.has_run && watch.has_results;
        let is_over = matches!(&outcome, Ok(report) if !report.kept);
        let gave_up = watch.gave_up;
        match self.end(outcome, has_data && !is_over, observer) {
            // Its own interrupt, because nothing else ends the wait for a host that is gone.
            Err(AdhocError::Interrupted) if gave_up => Err(AdhocError::HostLost),
            Err(AdhocError::Kept { leader, .. }) if gave_up => {
                let reason = AdhocError::HostLost.to_string();
                Err(AdhocError::Kept { reason, leader, interrupted: false })
            }
            outcome => outcome,
        }
    }

    /// The configuration of the pool.
    pub(crate) fn pool(&self) -> PoolSelection {
        PoolSelection::Shared(self.pool.clone())
    }

    /// The processes of the hosts.
    pub(crate) fn fleet(&mut self) -> &mut Fleet {
        &mut self.fleet
    }

    /// Ends all hosts and the controller; `keep` says whether data waits for its stage-out.
    pub(crate) fn end<T>(
        self,
        outcome: Result<T, RunError>,
        keep: bool,
        observer: &mut dyn Observer,
    ) -> Result<T, AdhocError> {
        if !keep {
            self.home.clear_kept();
        }
        for left in self.fleet.end(!keep) {
            observer.warning(&format!("something may be left on {left}"));
        }
        if let Err(error) = self.controller.stop() {
            observer.warning(&format!("the controller: {error}"));
        }
        let leader = self.home.path().to_owned();
        match outcome {
            Ok(report) => {
                if keep {
                    observer.warning(&kept_text(&leader));
                }
                Ok(report)
            }
            Err(error) if keep => {
                let interrupted = matches!(error, RunError::Interrupted { .. });
                Err(AdhocError::Kept { reason: step_text(&error), leader, interrupted })
            }
            Err(RunError::Interrupted { .. }) => Err(AdhocError::Interrupted),
            Err(error) => Err(AdhocError::Step(error)),
        }
    }
}

/// Runs `work` while the processes of the hosts are watched over; `lost` is set when one is gone for
/// good.
pub(crate) fn with_supervision<T>(
    fleet: &mut Fleet,
    lost: &AtomicBool,
    work: impl FnOnce() -> T,
) -> T {
    let handle = fleet.handle();
    std::thread::scope(|scope| {
        let note = |text: String| {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "forebay: {text}");
        };
        scope.spawn(move || fleet.supervise(lost, &note));
        let outcome = work();
        handle.stop();
        outcome
    })
}

/// The way in which the hosts are started.
pub(crate) struct Plan<'p> {
    pub begin: Begin,
    pub interface: Option<&'p str>,
    pub interrupted: &'p AtomicBool,
}

impl Plan<'_> {
    /// Starts the hosts and the controller. `assemble` completes the instance's description when
    /// the hosts have been prepared, and returns this host's address for them.
    pub(crate) fn start<'a>(
        &self,
        instance: &mut Instance,
        hosts: &[String],
        reach: &Reach,
        home: &'a Home,
        observer: &mut dyn Observer,
        assemble: impl FnOnce(&mut Instance, &[(String, Prepared)]) -> Result<SocketAddr, String>,
    ) -> Result<Leader<'a>, AdhocError> {
        let addresses = own_addresses(self.interface).map_err(AdhocError::Usage)?;
        let failed = |e: std::io::Error| AdhocError::Start(format!("cannot listen: {e}"));
        let beacon = Beacon::start(&instance.id).map_err(failed)?;
        let port = ReservedPort::new(0).map_err(failed)?;
        let key = home.write(KEY_FILE, &instance.key).map_err(AdhocError::Start)?;
        let message = Start {
            id: instance.id.clone(),
            key: instance.key.clone(),
            local: instance.local.clone(),
            leader: addresses.iter().map(|ip| SocketAddr::new(*ip, beacon.port())).collect(),
            begin: self.begin,
            keep: home.is_kept(),
        };
        let mut fleet = Fleet::launch(reach, hosts, message).map_err(AdhocError::Usage)?;
        let begin = || -> Result<(PathBuf, Daemon), String> {
            let prepared = fleet.wait_until_prepared(self.interrupted)?;
            report_kept(&prepared, observer);
            let leader = assemble(instance, &prepared)?;
            drop(beacon);
            let controller = SocketAddr::new(leader.ip(), port.port());
            instance.write(home)?;
            let node_home = home::node_path(&instance.local, &instance.id);
            let pool = Pool {
                id: &instance.id,
                nodes: &instance.nodes,
                capacity: instance.capacity,
                controller,
                leader: home.path(),
                home: &node_home,
            };
            let file = home.write("pool.toml", &pool.text(&key))?;
            let config = PoolConfig::read(&file).map_err(|e| e.to_string())?;
            let daemon = Daemon::start_controller(&config).map_err(|e| e.to_string())?;
            let configuration = pool.text(&node_home.join(KEY_FILE));
            fleet.broadcast(&ToNode::Run { configuration });
            fleet.wait_until_running(self.interrupted)?;
            wait_until_connected(&file, self.interrupted)?;
            Ok((file, daemon))
        };
        match begin() {
            Ok((pool, controller)) => Ok(Leader {
                home,
                id: instance.id.clone(),
                pool,
                hosts: hosts.to_owned(),
                capacity: instance.capacity,
                fleet,
                controller,
            }),
            Err(reason) => {
                // Data of an earlier process stays.
                for left in fleet.end(self.begin == Begin::New) {
                    observer.warning(&format!("something may be left on {left}"));
                }
                match self.interrupted.load(Ordering::Relaxed) {
                    true => Err(AdhocError::Interrupted),
                    false => Err(AdhocError::Start(reason)),
                }
            }
        }
    }
}

/// Tells the user what earlier instances have left.
fn report_kept(prepared: &[(String, Prepared)], observer: &mut dyn Observer) {
    for (host, prepared) in prepared {
        for path in &prepared.kept {
            observer.note(&format!(
                "{host}: {} of an earlier instance holds data that waits for its stage-out; \
                 `forebay adhoc recover` stages it out",
                path.display()
            ));
        }
    }
}

/// Waits until the controller knows all storage daemons as running.
fn wait_until_connected(pool: &Path, interrupted: &AtomicBool) -> Result<(), String> {
    let started = Instant::now();
    let client = ControllerClient::open(pool).map_err(|e| e.to_string())?;
    loop {
        let status = client.status().map_err(|e| e.to_string())?;
        let absent = status.nodes.iter().filter(|node| !node.online);
        let absent: Vec<&str> = absent.map(|node| node.name.as_str()).collect();
        if absent.is_empty() {
            return Ok(());
        }
        if started.elapsed() > CONNECT_TIMEOUT {
            return Err(format!("{} cannot connect to this host", absent.join(", ")));
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err("interrupted while the hosts were started".to_owned());
        }
        std::thread::sleep(CONNECT_INTERVAL);
    }
}

/// The first address of this host that all hosts have reached.
pub(crate) fn common_address(prepared: &[(String, Prepared)]) -> Result<SocketAddr, String> {
    let (_, first) = prepared.first().ok_or("there are no hosts")?;
    let reaches = |prepared: &Prepared, address| {
        prepared.routes.iter().any(|(reached, _)| *reached == address)
    };
    let mut common = first
        .routes
        .iter()
        .map(|(reached, _)| *reached)
        .filter(|address| prepared.iter().all(|(_, prepared)| reaches(prepared, *address)));
    // Other hosts would take the loopback address for their own.
    let (local, other): (Vec<_>, Vec<_>) = common.by_ref().partition(|a| a.ip().is_loopback());
    other.into_iter().chain(local).next().ok_or_else(|| {
        "no address of this host is reachable from all hosts; name the interface of a network \
         that they share with --interface"
            .to_owned()
    })
}

/// The addresses of the storage daemons in the network through which `leader` is reached.
fn node_addresses(
    prepared: &[(String, Prepared)],
    leader: SocketAddr,
) -> Result<Vec<NodeAddress>, String> {
    let address = |(host, prepared): &(String, Prepared)| {
        let mut routes = prepared.routes.iter();
        let (_, own) = routes.find(|(reached, _)| *reached == leader)?;
        let address = SocketAddr::new(*own, prepared.port);
        Some(NodeAddress { host: host.clone(), address })
    };
    let nodes: Option<Vec<NodeAddress>> = prepared.iter().map(address).collect();
    let nodes = nodes.ok_or("a host has no address towards this one")?;
    for (index, node) in nodes.iter().enumerate() {
        if let Some(other) = nodes[..index].iter().find(|other| other.address == node.address) {
            return Err(format!(
                "{} and {} have the address {}; are they one host",
                other.host, node.host, node.address
            ));
        }
    }
    Ok(nodes)
}
