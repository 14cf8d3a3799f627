//! Blocking code in virtual time. Each actor (a mount, a mover, a process of a job) is a thread. One
//! thread runs at a time: it is resumed by the simulation, which provides the reply or the time that it
//! waits for, and the simulation continues when it blocks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_client::{Channel, Connection, System};
use forebay_net::auth::Authenticator;
use forebay_net::connection::Response;
use forebay_protocol::address::Address;
use forebay_protocol::{Call, Reply};

/// Id of an actor.
pub type ActorId = u64;
/// A connection of a client.
pub type LinkId = u64;

/// An actor and what it waits for.
pub type ActorWait = (ActorId, WaitFor);

/// Event that an actor waits for.
#[allow(clippy::large_enum_variant, reason = "one value for each actor that waits")]
pub enum WaitFor {
    Connect(Address, Duration),
    Receive(LinkId, Option<Duration>),
    Sleep(Duration),
    /// It has ended with this outcome.
    End(std::thread::Result<Outcome>),
}

/// Outcome of an actor.
pub enum Outcome {
    Nothing,
    Node(forebay_control::storage_node::StorageInput),
    Host(forebay_control::compute_node::ComputeInput),
}

/// A reply with its payload.
pub type SimReply = Box<(u64, Reply, Vec<u8>)>;

/// The event with which an actor is resumed.
pub enum Turn {
    Resume,
    Connected(io::Result<LinkId>),
    Replied(io::Result<SimReply>),
    /// Its machine has crashed.
    Killed,
}

/// Actions of actors that do not block.
pub enum ActorOutput {
    Send(LinkId, Box<Call>, Vec<u8>),
    Close(LinkId),
}

/// State shared by the simulation and all actors.
#[derive(Debug)]
pub struct Shared {
    /// Names threads.
    seed: u64,
    /// Nanoseconds.
    clock: AtomicU64,
    base: Instant,
    out: Mutex<VecDeque<ActorOutput>>,
}

impl std::fmt::Debug for ActorOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ActorOutput")
    }
}

impl Shared {
    pub fn new(seed: u64) -> Arc<Shared> {
        Arc::new(Shared {
            seed,
            clock: AtomicU64::new(0),
            base: Instant::now(),
            out: Mutex::default(),
        })
    }

    pub fn set(&self, nanoseconds: u64) {
        self.clock.store(nanoseconds, Ordering::Relaxed);
    }

    pub fn nanoseconds(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub fn take_outputs(&self) -> VecDeque<ActorOutput> {
        std::mem::take(&mut *self.out.lock().unwrap())
    }
}

/// The state of an actor's thread.
pub struct ActorContext {
    id: ActorId,
    waits: Sender<ActorWait>,
    turns: Mutex<Receiver<Turn>>,
    killed: AtomicBool,
    shared: Arc<Shared>,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<ActorContext>>> = const { RefCell::new(None) };
    /// Seconds that have passed since the actor was killed: its timeouts must expire.
    static TIME_AFTER_DEATH: RefCell<u64> = const { RefCell::new(0) };
}

fn context() -> Option<Arc<ActorContext>> {
    let context = CURRENT.with_borrow(Clone::clone);
    context.filter(|context| !context.killed.load(Ordering::Relaxed))
}

/// Whether the actor of this thread was killed, or there is none.
pub fn is_killed() -> bool {
    context().is_none()
}

fn machine_crashed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the simulated machine has crashed")
}

impl ActorContext {
    /// Waits until the actor is resumed.
    fn wait(&self) -> Turn {
        let turn = self.turns.lock().unwrap().recv().unwrap_or(Turn::Killed);
        if matches!(turn, Turn::Killed) {
            self.killed.store(true, Ordering::Relaxed);
        }
        turn
    }

    fn wait_for(&self, event: WaitFor) -> Turn {
        let _ = self.waits.send((self.id, event));
        self.wait()
    }
}

/// Starts an actor, which does not run before it is resumed.
pub fn start_actor(
    id: ActorId,
    shared: &Arc<Shared>,
    waits: &Sender<ActorWait>,
    turns: Receiver<Turn>,
    act: impl FnOnce() -> Outcome + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let context = Arc::new(ActorContext {
        id,
        waits: waits.clone(),
        turns: Mutex::new(turns),
        killed: AtomicBool::new(false),
        shared: shared.clone(),
    });
    let run = move || {
        CURRENT.set(Some(context.clone()));
        context.wait();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        let _ = context.waits.send((context.id, WaitFor::End(outcome)));
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    let thread = thread.name(format!("seed {}", shared.seed));
    thread.spawn(run).unwrap()
}

/// The simulated machine of the calling actor, for the client library.
#[derive(Clone, Debug)]
pub struct Machine(pub Arc<Shared>);

impl Machine {
    pub fn time(&self) -> Instant {
        let after_death = if is_killed() {
            TIME_AFTER_DEATH.with_borrow_mut(|seconds| {
                *seconds += 3600;
                *seconds
            })
        } else {
            0
        };
        self.0.base + Duration::from_nanos(self.0.nanoseconds()) + Duration::from_secs(after_death)
    }
}

impl System for Machine {
    fn now(&self) -> Instant {
        self.time()
    }

    fn sleep(&self, time: Duration) {
        if let Some(context) = context() {
            context.wait_for(WaitFor::Sleep(time));
        }
    }

    fn connect(
        &self,
        address: &Address,
        _auth: &Authenticator,
        timeout: Duration,
    ) -> io::Result<Connection> {
        let context = context().ok_or_else(machine_crashed)?;
        match context.wait_for(WaitFor::Connect(address.clone(), timeout)) {
            Turn::Connected(connected) => {
                let timeout = Mutex::new(None);
                let (id, shared) = (connected?, context.shared.clone());
                Ok(Box::new(SimConnection { id, shared, timeout }))
            }
            _ => Err(machine_crashed()),
        }
    }
}

/// One connection.
#[derive(Debug)]
struct SimConnection {
    id: LinkId,
    shared: Arc<Shared>,
    timeout: Mutex<Option<Duration>>,
}

impl Channel for SimConnection {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        let context = context().ok_or_else(machine_crashed)?;
        let out = ActorOutput::Send(self.id, Box::new(call.clone()), payload.to_vec());
        context.shared.out.lock().unwrap().push_back(out);
        Ok(())
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        loop {
            let context = context().ok_or_else(machine_crashed)?;
            let timeout = *self.timeout.lock().unwrap();
            let Turn::Replied(reply) = context.wait_for(WaitFor::Receive(self.id, timeout)) else {
                return Err(machine_crashed());
            };
            let (reply_seq, reply, payload) = *reply?;
            if reply_seq == seq {
                into[..payload.len()].copy_from_slice(&payload);
                return Ok(Response {
                    reply,
                    payload: payload.len(),
                    descriptor: None,
                    cacheable: false,
                });
            }
        }
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        *self.timeout.lock().unwrap() = timeout;
        Ok(())
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        let mut out = self.shared.out.lock().unwrap();
        out.push_back(ActorOutput::Close(self.id));
    }
}
