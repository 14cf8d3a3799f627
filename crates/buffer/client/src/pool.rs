//! A limited number of items that threads share, one thread at a time.

use parking_lot::{Condvar, Mutex};
use std::time::Instant;

#[derive(Debug)]
struct State<T> {
    idle: Vec<T>,
    created: u32,
    /// Threads that wait for an item.
    waiting: u32,
}

/// Items that are created when they are first needed.
#[derive(Debug)]
pub struct Pool<T> {
    state: Mutex<State<T>>,
    max: u32,
    released: Condvar,
}

impl<T> Pool<T> {
    /// A pool of at most `max` items.
    pub fn new(max: u32) -> Pool<T> {
        assert!(max > 0);
        let state = State { idle: Vec::new(), created: 0, waiting: 0 };
        Pool { state: Mutex::new(state), max, released: Condvar::new() }
    }

    /// Waits for an idle item, or creates one by its number. It must be [released](Pool::release).
    pub fn acquire(&self, create: impl FnOnce(u32) -> T) -> T {
        let acquired = self.acquire_until(None, create);
        acquired.unwrap_or_else(|| unreachable!("a wait without an end ends with an item"))
    }

    /// As [`acquire`](Pool::acquire); `None` if no item is idle by `deadline`.
    pub fn acquire_until(
        &self,
        deadline: Option<Instant>,
        create: impl FnOnce(u32) -> T,
    ) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(item) = state.idle.pop() {
                return Some(item);
            }
            if state.created < self.max {
                state.created += 1;
                return Some(create(state.created - 1));
            }
            state.waiting += 1;
            let is_late = match deadline {
                None => {
                    self.released.wait(&mut state);
                    false
                }
                Some(deadline) => self.released.wait_until(&mut state, deadline).timed_out(),
            };
            state.waiting -= 1;
            if is_late && state.idle.is_empty() {
                return None;
            }
        }
    }

    pub fn release(&self, item: T) {
        let mut state = self.state.lock();
        assert!(state.idle.len() < state.created as usize, "released once");
        state.idle.push(item);
        // Notifying is a system call, also when no thread waits.
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.released.notify_one();
        }
    }

    /// Takes an idle item, if there is one, when no more are needed.
    pub fn take_idle(&self) -> Option<T> {
        self.state.lock().idle.pop()
    }
}
