//! Nodes of a pool without storage, mounts and movers: the state machines of the control plane, each
//! with a connection of its own to a real controller.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_control::compute_node::{ComputeEffect, ComputeInput, ComputeNode};
use forebay_control::messages::{Report, UnixMillis};
use forebay_control::storage_node::{MoverOutcome, StorageEffect, StorageInput, StorageNode};
use forebay_net::auth::{Authenticator, PoolKey};
use forebay_net::channel::{Receiver, Sender};
use forebay_net::connection;
use forebay_net::frame;
use forebay_net::handshake::Service;
use forebay_protocol::address::Address;
use forebay_protocol::progress::StageProgress;
use serde_json::{Value, json};

/// Version of the control protocol.
const VERSION: u16 = 9;
const MAX_MESSAGE_BYTES: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
const TICK_INTERVAL: Duration = Duration::from_secs(1);
/// Messages of the controller that wait for a node.
const QUEUE: usize = 64;

/// The name of a compute node.
pub fn compute_name(index: usize) -> String {
    format!("c{index}")
}

/// Connected nodes. Dropping them ends their connections.
pub struct SimulatedNodes {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    fragments: AtomicUsize,
    mounts: AtomicUsize,
}

impl SimulatedNodes {
    /// Storage nodes `s0`, `s1`, … and compute nodes `c0`, `c1`, ….
    pub fn start(
        controller: SocketAddr,
        key: &[u8],
        storage: usize,
        compute: usize,
    ) -> SimulatedNodes {
        let key = Some(PoolKey::new(key).unwrap());
        let auth = Authenticator { key, ..Authenticator::default() };
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let storage = (0..storage).map(|index| json!({"storage": format!("s{index}")}));
        let compute = (0..compute).map(|index| json!({"agent": compute_name(index)}));
        let start = |role: Value| {
            let (auth, stop, counts) = (auth.clone(), stop.clone(), counts.clone());
            std::thread::spawn(move || run(controller, &auth, &role, &stop, &counts))
        };
        let threads = storage.chain(compute).map(start).collect();
        SimulatedNodes { stop, threads, counts }
    }

    /// Fragments of all storage nodes.
    pub fn fragments(&self) -> usize {
        self.counts.fragments.load(Ordering::SeqCst)
    }

    /// Mounts of all compute nodes.
    pub fn mounts(&self) -> usize {
        self.counts.mounts.load(Ordering::SeqCst)
    }
}

impl Drop for SimulatedNodes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn now() -> UnixMillis {
    UnixMillis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64)
}

fn send(sender: &mut Sender, message: &Value) -> io::Result<()> {
    let write = |out: &mut Vec<u8>| Ok(serde_json::to_writer(out, message)?);
    sender.send(&frame::encode_control(MAX_MESSAGE_BYTES, write)?, None)
}

fn receive(receiver: &mut Receiver) -> io::Result<Value> {
    let received = receiver.receive(MAX_MESSAGE_BYTES)?;
    let (_, body) = received.ok_or(io::ErrorKind::ConnectionReset)?;
    Ok(serde_json::from_slice(body)?)
}

/// The state machine of a node.
enum Machine {
    Storage(Box<StorageNode>),
    Compute(Box<ComputeNode>),
}

impl Machine {
    fn new(role: &Value, welcome: &Value) -> Machine {
        if let Some(name) = role["agent"].as_str() {
            return Machine::Compute(Box::new(ComputeNode::new(name.to_owned(), now())));
        }
        let id = serde_json::from_value(welcome["node"].clone()).unwrap();
        let granules = welcome["granules"].as_u64().unwrap();
        let node = StorageNode::restore(id, granules, now(), []).unwrap();
        Machine::Storage(Box::new(node))
    }

    /// Handles the message of the controller, or a tick, and returns the reports to send.
    fn handle(&mut self, message: Option<Value>, counts: &Counts) -> Vec<Report> {
        match (self, message) {
            (Machine::Storage(node), None) => {
                let written = forebay_units::Bytes(0);
                step_storage(node, StorageInput::Tick { written }, counts)
            }
            (Machine::Storage(node), Some(message)) => {
                let command = serde_json::from_value(message["storage_command"].clone()).unwrap();
                step_storage(node, StorageInput::Command(command), counts)
            }
            (Machine::Compute(node), None) => step_compute(node, ComputeInput::Tick, counts),
            (Machine::Compute(node), Some(message)) => {
                let command = serde_json::from_value(message["compute_command"].clone()).unwrap();
                step_compute(node, ComputeInput::Command(command), counts)
            }
        }
    }
}

fn step_storage(node: &mut StorageNode, input: StorageInput, counts: &Counts) -> Vec<Report> {
    let (mut inputs, mut reports) = (vec![input], Vec::new());
    while let Some(input) = inputs.pop() {
        for effect in node.step(input) {
            match effect {
                StorageEffect::Persist(_) => {}
                StorageEffect::Create(plan) => {
                    counts.fragments.fetch_add(1, Ordering::SeqCst);
                    inputs.push(StorageInput::Created(plan.fragment, Ok(())));
                }
                StorageEffect::Destroy(plan) => {
                    counts.fragments.fetch_sub(1, Ordering::SeqCst);
                    inputs.push(StorageInput::Destroyed(plan.fragment, Ok(())));
                }
                StorageEffect::FenceHosts(plan, _, through) => {
                    inputs.push(StorageInput::HostsFenced(plan.fragment, through, Ok(())));
                }
                StorageEffect::StartMover(plan) => {
                    let outcome = MoverOutcome::Completed(StageProgress::default());
                    inputs.push(StorageInput::MoverEnded(plan.stage, plan.attempt, outcome));
                }
                StorageEffect::StopMover(stage, attempt) => {
                    let outcome = MoverOutcome::Stopped;
                    inputs.push(StorageInput::MoverEnded(stage, attempt, outcome));
                }
                // The mover of a share has completed, too.
                StorageEffect::ReleaseMover(..) => {}
                StorageEffect::Report(report) => reports.push(report),
            }
        }
    }
    reports
}

fn step_compute(node: &mut ComputeNode, input: ComputeInput, counts: &Counts) -> Vec<Report> {
    let (mut inputs, mut reports) = (vec![input], Vec::new());
    while let Some(input) = inputs.pop() {
        for effect in node.step(input) {
            match effect {
                ComputeEffect::Mount(plan) => {
                    counts.mounts.fetch_add(1, Ordering::SeqCst);
                    inputs.push(ComputeInput::Mounted(plan.activation, Ok(())));
                }
                ComputeEffect::Unmount(plan) => {
                    counts.mounts.fetch_sub(1, Ordering::SeqCst);
                    inputs.push(ComputeInput::Unmounted(plan.activation, Ok(())));
                }
                ComputeEffect::Report(report) => reports.push(report),
            }
        }
    }
    reports
}

/// Connects a node and runs it until it is stopped.
fn run(
    controller: SocketAddr,
    auth: &Authenticator,
    role: &Value,
    stop: &AtomicBool,
    counts: &Counts,
) {
    let address = Address::Tcp(controller);
    let (mut sender, mut receiver) =
        connection::connect(&address, Service::Controller, auth, TIMEOUT).unwrap();
    send(&mut sender, &json!({"version": VERSION, "role": role})).unwrap();
    let answer = receive(&mut receiver).unwrap();
    let welcome = answer.get("welcome").unwrap_or_else(|| panic!("{role}: {answer}"));
    let mut machine = Machine::new(role, welcome);
    if let Machine::Storage(node) = &mut machine {
        for report in step_storage(node, StorageInput::Started, counts) {
            send(&mut sender, &json!({ "report": report })).unwrap();
        }
    }
    let (messages, inbox) = sync_channel(QUEUE);
    let read = move || {
        while let Ok(message) = receive(&mut receiver) {
            if messages.send(message).is_err() {
                return;
            }
        }
    };
    let reader = std::thread::spawn(read);
    while !stop.load(Ordering::SeqCst) {
        let message = match inbox.recv_timeout(TICK_INTERVAL) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        for report in machine.handle(message, counts) {
            send(&mut sender, &json!({ "report": report })).unwrap();
        }
    }
    sender.stream().shut_down();
    drop(inbox);
    let _ = reader.join();
}
