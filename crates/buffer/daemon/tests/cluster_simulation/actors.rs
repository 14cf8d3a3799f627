//! Blocking code in the simulation: one actor runs at a time, and the simulation waits until it blocks.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::actor_thread::{self, ActorId, Turn, WaitFor};
use crate::machines::MachineId;
use crate::network::Wake;
use crate::world::{Event, MS, World};

/// Blocking code that runs somewhere.
pub struct Actor {
    pub place: MachineId,
    /// Which of its questions it waits for.
    pub wait: u64,
    turns: Sender<Turn>,
    thread: JoinHandle<()>,
}

impl World {
    /// Blocking code begins to run on a machine.
    pub fn begin(
        &mut self,
        place: MachineId,
        act: impl FnOnce() -> actor_thread::Outcome + Send + 'static,
    ) -> ActorId {
        self.next_actor += 1;
        let id = self.next_actor;
        let (turns, receiver) = channel();
        let thread = actor_thread::begin(id, &self.shared, &self.asks.0, receiver, act);
        let actor = Actor { place, wait: 0, turns, thread };
        self.actors.insert(id, actor);
        let when = self.now + 1000 + self.random.below(MS);
        self.schedule(when, Event::Wake(id, 0, Wake::Slept));
        id
    }

    /// An actor gets what it waits for, and runs until it waits again.
    pub fn wake(&mut self, id: ActorId, wait: u64, wake: Wake) {
        let Some(actor) = self.actors.get(&id).filter(|actor| actor.wait == wait) else {
            return;
        };
        let _ = actor.turns.send(wake.turn());
        let ask = self.next_ask(id);
        self.flush();
        match ask {
            WaitFor::End(outcome) => self.ended(id, outcome),
            ask => self.asked(id, ask),
        }
    }

    fn next_ask(&mut self, id: ActorId) -> WaitFor {
        let patience = Duration::from_secs(60);
        let (from, ask) =
            self.asks.1.recv_timeout(patience).unwrap_or_else(|_| {
                panic!("an actor waits for something that is not of this world")
            });
        assert_eq!(from, id, "two actors run at a time");
        ask
    }

    fn ended(&mut self, id: ActorId, outcome: std::thread::Result<actor_thread::Outcome>) {
        let Some(actor) = self.actors.remove(&id) else {
            return;
        };
        let _ = actor.thread.join();
        if let MachineId::Host(index) = actor.place {
            self.hosts[index].using.remove(&id);
        }
        match (outcome, actor.place) {
            (Ok(actor_thread::Outcome::Node(input)), MachineId::Node(index)) => {
                self.storage_effect_done(index, input)
            }
            (Ok(actor_thread::Outcome::Host(input)), MachineId::Host(index)) => {
                self.compute_effect_done(index, input)
            }
            (Ok(_), _) => {}
            (Err(panic), _) => std::panic::resume_unwind(panic),
        }
    }

    /// An actor's machine has crashed: all it tries from now on fails at once.
    pub fn kill(&mut self, id: ActorId) {
        let Some(actor) = self.actors.get(&id) else {
            return;
        };
        let _ = actor.turns.send(Turn::Killed);
        match self.next_ask(id) {
            WaitFor::End(Err(panic)) => std::panic::resume_unwind(panic),
            WaitFor::End(Ok(_)) => {}
            _ => panic!("a dead actor asks for something"),
        }
        if let Some(actor) = self.actors.remove(&id) {
            let _ = actor.thread.join();
        }
    }

    pub fn kill_all(&mut self, place: MachineId) {
        let here = self.actors.iter().filter(|(_, actor)| actor.place == place);
        for id in here.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.kill(id);
        }
        self.flush();
    }
}
