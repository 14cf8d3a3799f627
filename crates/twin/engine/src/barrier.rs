//! A barrier for threads that synchronise every few microseconds.

use crate::cell::lock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Polls of a waiting thread before it yields the processor.
const MAX_SPINS: u32 = 1_000;
/// Yields of a waiting thread before it sleeps.
const MAX_YIELDS: u32 = 200;

/// Spins at first, since the other threads are usually at most a few microseconds behind; sleeps
/// when they are not, as on a machine with fewer free cores than threads.
pub(crate) struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    sleepers: Mutex<()>,
    wake: Condvar,
    /// Set when a thread panicked: the others must not wait for it.
    broken: AtomicBool,
}

impl Barrier {
    pub(crate) fn new(threads: usize) -> Self {
        Barrier {
            threads,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            sleepers: Mutex::new(()),
            wake: Condvar::new(),
            broken: AtomicBool::new(false),
        }
    }

    /// Waits for all threads; false if one of them panicked.
    pub(crate) fn wait(&self) -> bool {
        let round = self.round.load(Ordering::Acquire);
        let arrived = self.arrived.fetch_add(1, Ordering::AcqRel) + 1;
        debug_assert!(arrived <= self.threads, "{arrived} threads at a barrier");
        if arrived == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            let _sleepers = lock(&self.sleepers);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            self.wake.notify_all();
        } else {
            let passed = || self.round.load(Ordering::Acquire) != round || self.is_broken();
            let mut polls = 0;
            while !passed() {
                polls += 1;
                if polls < MAX_SPINS {
                    std::hint::spin_loop();
                } else if polls < MAX_SPINS + MAX_YIELDS {
                    std::thread::yield_now();
                } else {
                    let mut sleepers = lock(&self.sleepers);
                    while !passed() {
                        sleepers = self.wake.wait(sleepers).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        }
        !self.is_broken()
    }

    /// Releases all threads that wait now or later.
    pub(crate) fn release_all(&self) {
        let _sleepers = lock(&self.sleepers);
        self.broken.store(true, Ordering::Release);
        self.wake.notify_all();
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}
