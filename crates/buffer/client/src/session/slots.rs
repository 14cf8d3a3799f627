//! The connections of a session for metadata requests, each with one call at a time.

use crate::system::Connection;
use parking_lot::{Condvar, Mutex};

/// Maximum number of connections of a session.
const MAX_SLOTS: u32 = 60;

/// A connection by its number.
#[derive(Debug)]
pub struct Slot {
    pub number: u32,
    /// Sequence number of the last call.
    pub seq: u64,
    pub connection: Option<Connection>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Slot>,
    created: u32,
    /// Threads that wait for a slot.
    waiting: u32,
}

/// The slots of a session.
#[derive(Debug)]
pub struct Slots {
    state: Mutex<State>,
    max: u32,
    released: Condvar,
}

impl Slots {
    pub fn new(max: u32) -> Slots {
        Slots { state: Mutex::default(), max: max.clamp(1, MAX_SLOTS), released: Condvar::new() }
    }

    /// Waits for an idle slot. It must be [released](Slots::release).
    pub fn acquire(&self) -> Slot {
        let mut state = self.state.lock();
        loop {
            if let Some(slot) = state.idle.pop() {
                return slot;
            }
            if state.created < self.max {
                state.created += 1;
                return Slot { number: state.created - 1, seq: 0, connection: None };
            }
            state.waiting += 1;
            self.released.wait(&mut state);
            state.waiting -= 1;
        }
    }

    pub fn release(&self, slot: Slot) {
        let mut state = self.state.lock();
        assert!(state.idle.len() < state.created as usize, "released once");
        debug_assert!(state.idle.iter().all(|idle| idle.number != slot.number));
        state.idle.push(slot);
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.released.notify_one();
        }
    }

    /// Takes an idle slot, if there is one, when the session ends.
    pub fn take_idle(&self) -> Option<Slot> {
        self.state.lock().idle.pop()
    }
}
