//! CPU time of the controller's state machine, with the encoding of its records, at pools of 100 to
//! 10,000 hosts: `cargo bench --package forebay-control --bench controller`. Sockets, and the commits
//! of the database, which many reports share, are not included.

mod peers;

use std::collections::VecDeque;
use std::time::Duration;

use forebay_control::controller::{
    Controller, ControllerEffect, ControllerInput, Outcome, Request, RequestEnvelope, RequestId,
    Settings, Setup,
};
use forebay_control::messages::{Owner, UnixMillis};
use forebay_job_script::JobScript;
use forebay_units::Bytes;
use peers::Peers;
use rustix::time::{ClockId, clock_gettime};

const ROOT: Owner = Owner { uid: 0, gid: 0 };
/// Storage nodes of the pool.
const NODES: usize = 300;
/// Jobs that are set up, mounted, unmounted and torn down together.
const JOBS: usize = 200;
/// Simulated seconds without requests.
const IDLE_SECONDS: u32 = 10;
/// Numbers of hosts.
const SIZES: [usize; 4] = [100, 1_000, 4_000, 10_000];

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("a thread's time is positive");
    Duration::from_secs(seconds) + Duration::from_nanos(time.tv_nsec.unsigned_abs())
}

/// A controller and its peers.
struct Pool {
    controller: Controller,
    peers: Peers,
    now: u64,
    requests: u128,
    /// CPU time of the controller since the last [`Pool::take_time`].
    spent: Duration,
    /// Bytes of records since then.
    written: usize,
}

impl Pool {
    fn new(hosts: &[String]) -> Pool {
        let settings = Settings { max_user_sessions: JOBS + 1, ..Settings::default() };
        let controller = Controller::restore(settings, Vec::new()).expect("there are no records");
        let mut pool = Pool {
            controller,
            peers: Peers::new(NODES, hosts),
            now: 1_000,
            requests: 0,
            spent: Duration::ZERO,
            written: 0,
        };
        pool.request(Request::AddPool {
            name: "fast".into(),
            granularity: Bytes(1 << 30),
            equalize_fragments: false,
        });
        for node in 0..NODES {
            pool.request(Request::AddNode {
                name: format!("bb{node}"),
                pool: "fast".into(),
                granules: 1_000,
                address: Some(format!("bb{node}.example.org:7511")),
            });
        }
        pool.second();
        pool
    }

    fn request(&mut self, request: Request) {
        self.requests += 1;
        let id = RequestId(self.requests);
        let envelope = RequestEnvelope { id, caller: ROOT, request };
        self.deliver([ControllerInput::Request(Box::new(envelope))]);
    }

    /// A second passes: heartbeats and a tick.
    fn second(&mut self) {
        self.now += 1_000;
        let heartbeats = self.peers.heartbeats();
        self.deliver(heartbeats);
        self.deliver([ControllerInput::Tick]);
    }

    /// Delivers inputs, and the reports that follow.
    fn deliver(&mut self, inputs: impl IntoIterator<Item = ControllerInput>) {
        let mut inputs: VecDeque<ControllerInput> = inputs.into_iter().collect();
        while let Some(input) = inputs.pop_front() {
            let start = cpu_time();
            let effects = self.controller.step(UnixMillis(self.now), input);
            self.spent += cpu_time().saturating_sub(start);
            for effect in effects {
                match effect {
                    ControllerEffect::Persist(changes) => {
                        let sizes = changes.iter().filter_map(|change| change.value.as_ref());
                        self.written += sizes.map(Vec::len).sum::<usize>();
                    }
                    ControllerEffect::Reply(id, outcome) => check(id, &outcome),
                    ControllerEffect::SendToStorageNode(..)
                    | ControllerEffect::SendToComputeNode(..) => {
                        inputs.extend(self.peers.obey(effect));
                    }
                }
            }
        }
    }

    fn take_time(&mut self) -> (Duration, usize) {
        (std::mem::take(&mut self.spent), std::mem::take(&mut self.written))
    }

    /// Sets a job up on `nodes` storage nodes.
    fn set_up(&mut self, token: &str, nodes: usize) {
        let script = format!("#DW jobdw capacity={nodes}GiB type=scratch access_mode=striped\n");
        let script = JobScript::parse(&script, None).expect("the script is valid");
        self.request(Request::Setup {
            token: token.to_owned(),
            owner: ROOT,
            creator: "bench".into(),
            setup: Setup::from_script(&script),
        });
    }

    fn activate(&mut self, token: &str, hosts: &[String]) {
        let token = token.to_owned();
        self.request(Request::Activate { token, hosts: hosts.to_vec(), creator: None });
    }

    fn deactivate(&mut self, token: &str) {
        self.request(Request::Deactivate { token: token.to_owned(), creator: None });
    }

    fn tear_down(&mut self, token: &str) {
        let token = token.to_owned();
        self.request(Request::Teardown { token, creator: None, hurry: true });
        self.second();
    }
}

fn check(id: RequestId, outcome: &Outcome) {
    if let Err(failure) = outcome {
        panic!("request {id}: {failure}");
    }
}

fn report(what: &str, hosts: usize, (time, bytes): (Duration, usize)) {
    let seconds = time.as_secs_f64();
    println!("{hosts:>7}  {what:<44} {seconds:>9.3} s  {:>8.2} MB of records", bytes as f64 / 1e6);
}

/// One job on all hosts and nodes, then many jobs that share the hosts.
fn run(hosts: usize) {
    let names: Vec<String> = (0..hosts).map(|host| format!("nid{host:05}")).collect();
    let mut pool = Pool::new(&names);
    pool.set_up("1", NODES);
    assert_eq!(pool.peers.fragments(), NODES);
    pool.take_time();
    pool.activate("1", &names);
    assert_eq!(pool.peers.mounts(), hosts, "all hosts have mounted");
    report("mount on all hosts", hosts, pool.take_time());
    for _ in 0..IDLE_SECONDS {
        pool.second();
    }
    let (spent, bytes) = pool.take_time();
    report("heartbeats, a second", hosts, (spent / IDLE_SECONDS, bytes));
    pool.deactivate("1");
    assert_eq!(pool.peers.mounts(), 0, "all hosts have unmounted");
    report("unmount", hosts, pool.take_time());
    pool.tear_down("1");
    assert_eq!(pool.peers.fragments(), 0);
    pool.take_time();

    let tokens: Vec<String> = (0..JOBS).map(|job| format!("{}", job + 2)).collect();
    for token in &tokens {
        pool.set_up(token, NODES);
    }
    assert_eq!(pool.peers.fragments(), JOBS * NODES);
    report("set-up of 200 jobs on 300 nodes each", hosts, pool.take_time());
    let share = (hosts / JOBS).max(1);
    for (job, token) in tokens.iter().enumerate() {
        let first = (job * share) % hosts;
        pool.activate(token, &names[first..first + share]);
    }
    assert_eq!(pool.peers.mounts(), JOBS * share);
    report("mounts of 200 jobs", hosts, pool.take_time());
    for _ in 0..IDLE_SECONDS {
        pool.second();
    }
    let (spent, bytes) = pool.take_time();
    report("heartbeats, a second, 200 jobs", hosts, (spent / IDLE_SECONDS, bytes));
    for token in &tokens {
        pool.deactivate(token);
    }
    assert_eq!(pool.peers.mounts(), 0);
    report("unmounts of 200 jobs", hosts, pool.take_time());
    for token in &tokens {
        pool.tear_down(token);
    }
    assert_eq!(pool.peers.fragments(), 0);
    report("teardown of 200 jobs, a second each", hosts, pool.take_time());
}

fn main() {
    println!("{NODES} storage nodes; CPU time of the controller");
    for hosts in SIZES {
        run(hosts);
    }
}
