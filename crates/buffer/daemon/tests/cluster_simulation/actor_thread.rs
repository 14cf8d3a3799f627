//! Blocking code in virtual time. Each actor (a mount, a mover, a process of a job) is a thread. One
//! thread runs at a time: it is given the turn, and gives it back when it blocks. Whatever it waits
//! for, a reply or time, comes from the simulation.

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

/// What an actor waits for.
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

/// What an actor receives with the turn.
pub enum Turn {
    Go,
    Linked(io::Result<LinkId>),
    Said(io::Result<SimReply>),
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
        f.write_str("Out")
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

/// An actor's side.
pub struct ActorContext {
    id: ActorId,
    asks: Sender<ActorWait>,
    turns: Mutex<Receiver<Turn>>,
    killed: AtomicBool,
    shared: Arc<Shared>,
}

thread_local! {
    static SEAT: RefCell<Option<Arc<ActorContext>>> = const { RefCell::new(None) };
    /// Time passes for dead actors, so that their timeouts expire.
    static AFTERLIFE: RefCell<u64> = const { RefCell::new(0) };
}

fn seat() -> Option<Arc<ActorContext>> {
    let seat = SEAT.with_borrow(Clone::clone);
    seat.filter(|seat| !seat.killed.load(Ordering::Relaxed))
}

/// Whether the actor of this thread is dead, or there is none.
pub fn is_dead() -> bool {
    seat().is_none()
}

fn dead() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the simulated machine has crashed")
}

impl ActorContext {
    /// Waits for the turn.
    fn wait(&self) -> Turn {
        let turn = self.turns.lock().unwrap().recv().unwrap_or(Turn::Killed);
        if matches!(turn, Turn::Killed) {
            self.killed.store(true, Ordering::Relaxed);
        }
        turn
    }

    fn ask(&self, ask: WaitFor) -> Turn {
        let _ = self.asks.send((self.id, ask));
        self.wait()
    }
}

/// Starts an actor, which does not run before it is given the turn.
pub fn begin(
    id: ActorId,
    shared: &Arc<Shared>,
    asks: &Sender<ActorWait>,
    turns: Receiver<Turn>,
    act: impl FnOnce() -> Outcome + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let seat = Arc::new(ActorContext {
        id,
        asks: asks.clone(),
        turns: Mutex::new(turns),
        killed: AtomicBool::new(false),
        shared: shared.clone(),
    });
    let run = move || {
        SEAT.set(Some(seat.clone()));
        seat.wait();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        let _ = seat.asks.send((seat.id, WaitFor::End(outcome)));
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
        let dead = if is_dead() {
            AFTERLIFE.with_borrow_mut(|late| {
                *late += 3600;
                *late
            })
        } else {
            0
        };
        self.0.base + Duration::from_nanos(self.0.nanoseconds()) + Duration::from_secs(dead)
    }
}

impl System for Machine {
    fn now(&self) -> Instant {
        self.time()
    }

    fn sleep(&self, time: Duration) {
        if let Some(seat) = seat() {
            seat.ask(WaitFor::Sleep(time));
        }
    }

    fn connect(
        &self,
        address: &Address,
        _auth: &Authenticator,
        patience: Duration,
    ) -> io::Result<Connection> {
        let seat = seat().ok_or_else(dead)?;
        match seat.ask(WaitFor::Connect(address.clone(), patience)) {
            Turn::Linked(linked) => {
                let timeout = Mutex::new(None);
                let (id, shared) = (linked?, seat.shared.clone());
                Ok(Box::new(Wire { id, shared, timeout }))
            }
            _ => Err(dead()),
        }
    }
}

/// One connection.
#[derive(Debug)]
struct Wire {
    id: LinkId,
    shared: Arc<Shared>,
    timeout: Mutex<Option<Duration>>,
}

impl Channel for Wire {
    fn send(&mut self, call: &Call, payload: &[u8]) -> io::Result<()> {
        let seat = seat().ok_or_else(dead)?;
        let out = ActorOutput::Send(self.id, Box::new(call.clone()), payload.to_vec());
        seat.shared.out.lock().unwrap().push_back(out);
        Ok(())
    }

    fn receive(&mut self, seq: u64, into: &mut [u8]) -> io::Result<Response> {
        loop {
            let seat = seat().ok_or_else(dead)?;
            let timeout = *self.timeout.lock().unwrap();
            let Turn::Said(said) = seat.ask(WaitFor::Receive(self.id, timeout)) else {
                return Err(dead());
            };
            let (answered, reply, payload) = *said?;
            if answered == seq {
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

    fn set_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        *self.timeout.lock().unwrap() = patience;
        Ok(())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let mut out = self.shared.out.lock().unwrap();
        out.push_back(ActorOutput::Close(self.id));
    }
}
