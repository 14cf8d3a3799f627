//! A barrier for threads that meet every few microseconds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// How often a waiting thread looks before it lets others have the processor.
const SPINS: u32 = 1_000;
/// How often it lets others run before it goes to sleep.
const YIELDS: u32 = 200;

/// Spins at first, since the others are usually a few microseconds behind; sleeps when they are
/// not, as on a machine with fewer free cores than threads.
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

    /// Waits for all threads; false when one of them will never come.
    pub(crate) fn wait(&self) -> bool {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            let _sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            self.wake.notify_all();
        } else {
            let passed = || self.round.load(Ordering::Acquire) != round || self.is_broken();
            let mut looks = 0;
            while !passed() {
                looks += 1;
                if looks < SPINS {
                    std::hint::spin_loop();
                } else if looks < SPINS + YIELDS {
                    std::thread::yield_now();
                } else {
                    let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
                    while !passed() {
                        sleepers = self
                            .wake
                            .wait(sleepers)
                            .unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        }
        !self.is_broken()
    }

    /// Lets all waiting threads go, now and from now on.
    pub(crate) fn release_all(&self) {
        let _sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        self.broken.store(true, Ordering::Release);
        self.wake.notify_all();
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}
