//! Blocking code in the simulation: one actor runs at a time, and the simulation waits until it blocks.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::actor_thread::{self, ActorId, Turn, WaitFor};
use crate::machines::MachineId;
use crate::network::Wake;
use crate::world::{Event, MS, World};

/// Blocking code that runs on a machine.
pub struct Actor {
    pub place: MachineId,
    /// The number of the event that it waits for.
    pub wait: u64,
    turns: Sender<Turn>,
    thread: JoinHandle<()>,
}

impl World {
    /// Starts blocking code on a machine.
    pub fn start_actor(
        &mut self,
        place: MachineId,
        act: impl FnOnce() -> actor_thread::Outcome + Send + 'static,
    ) -> ActorId {
        self.next_actor += 1;
        let id = self.next_actor;
        let (turns, receiver) = channel();
        let thread = actor_thread::start_actor(id, &self.shared, &self.waits.0, receiver, act);
        let actor = Actor { place, wait: 0, turns, thread };
        self.actors.insert(id, actor);
        let when = self.now + 1000 + self.random.below(MS);
        self.schedule(when, Event::Wake(id, 0, Wake::Slept));
        id
    }

    /// The event that an actor waits for occurs: the actor runs until it waits again.
    pub fn wake(&mut self, id: ActorId, wait: u64, wake: Wake) {
        let Some(actor) = self.actors.get(&id).filter(|actor| actor.wait == wait) else {
            return;
        };
        let _ = actor.turns.send(wake.turn());
        let wait_for = self.next_wait(id);
        self.flush();
        match wait_for {
            WaitFor::End(outcome) => self.actor_ended(id, outcome),
            wait_for => self.actor_waits(id, wait_for),
        }
    }

    fn next_wait(&mut self, id: ActorId) -> WaitFor {
        let timeout = Duration::from_secs(60);
        let (from, wait_for) = self
            .waits
            .1
            .recv_timeout(timeout)
            .unwrap_or_else(|_| panic!("an actor blocks outside the simulation"));
        assert_eq!(from, id, "one actor runs at a time");
        wait_for
    }

    fn actor_ended(&mut self, id: ActorId, outcome: std::thread::Result<actor_thread::Outcome>) {
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

    /// An actor's machine has crashed: all further operations fail at once.
    pub fn kill(&mut self, id: ActorId) {
        let Some(actor) = self.actors.get(&id) else {
            return;
        };
        let _ = actor.turns.send(Turn::Killed);
        match self.next_wait(id) {
            WaitFor::End(Err(panic)) => std::panic::resume_unwind(panic),
            WaitFor::End(Ok(_)) => {}
            _ => panic!("a killed actor waits for an event"),
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
