//! The threads that receive the kernel's requests. When most of them have waited for long, for example
//! for a storage node that does not reply, further requests are carried out by additional threads, so
//! that others are still received.

use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time after which an operation is taken to wait for something that may not come soon.
const LONG: Duration = Duration::from_millis(50);
/// Most additional threads. Beyond that, receiving threads wait as well.
const MAX_ADDITIONAL: usize = 1024;
/// Time for which an additional thread waits for its next operation.
const IDLE_TIME: Duration = Duration::from_secs(1);

thread_local! {
    /// Index of this thread among those that receive requests of one mount, plus 1.
    static INDEX: Cell<usize> = const { Cell::new(0) };
}

type Operation = Box<dyn FnOnce() + Send>;

/// The additional threads, and operations that idle ones are about to carry out.
#[derive(Default)]
struct Additional {
    operations: VecDeque<Operation>,
    idle: usize,
    count: usize,
}

impl Additional {
    fn check(&self) {
        assert!(self.idle <= self.count && self.count <= MAX_ADDITIONAL);
        assert!(self.operations.len() <= self.idle, "each operation has a thread");
    }
}

impl fmt::Debug for Additional {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Additional").field("idle", &self.idle).field("count", &self.count).finish()
    }
}

/// The receiving threads of one mount, and the additional ones.
#[derive(Debug)]
pub struct BusyThreads {
    started: Instant,
    /// Time at which each receiving thread began its operation, in nanoseconds since `started`; 0: it
    /// has none.
    since_ns: Box<[AtomicU64]>,
    /// Receiving threads that have received a request.
    known: AtomicUsize,
    additional: Mutex<Additional>,
    has_operation: Condvar,
}

/// An operation in progress on a receiving thread.
#[derive(Debug)]
pub struct Receiving<'a>(Option<&'a AtomicU64>);

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        if let Some(since_ns) = self.0 {
            since_ns.store(0, Ordering::Relaxed);
        }
    }
}

impl BusyThreads {
    /// `threads` that receive requests.
    pub fn new(threads: usize) -> BusyThreads {
        BusyThreads {
            started: Instant::now(),
            since_ns: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            known: AtomicUsize::new(0),
            additional: Mutex::default(),
            has_operation: Condvar::new(),
        }
    }

    /// An operation begins on this thread.
    pub fn begin(&self) -> Receiving<'_> {
        let index = match INDEX.get() {
            0 => {
                let index = self.known.fetch_add(1, Ordering::Relaxed) + 1;
                INDEX.set(index);
                index
            }
            index => index,
        };
        let own = self.since_ns.get(index - 1);
        if let Some(since_ns) = own {
            since_ns.store(self.now_ns(), Ordering::Relaxed);
        }
        Receiving(own)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Whether all receiving threads have operations, or all but one, of which half take long. A thread
    /// that asks has one.
    pub fn are_scarce(&self) -> bool {
        let begun = || self.since_ns.iter().map(|since| since.load(Ordering::Relaxed));
        let busy = begun().filter(|since_ns| *since_ns > 0).count();
        if busy == self.since_ns.len() {
            return true;
        }
        if busy + 1 < self.since_ns.len() {
            return false;
        }
        let long_ago = self.now_ns().saturating_sub(LONG.as_nanos() as u64);
        let long = begun().filter(|since_ns| (1..long_ago).contains(since_ns)).count();
        2 * long >= self.since_ns.len()
    }

    /// Carries out an operation on an additional thread, or on this one if there are too many.
    pub fn carry_out(self: &Arc<BusyThreads>, operation: Operation) {
        let mut additional = self.additional.lock();
        if additional.operations.len() < additional.idle {
            additional.operations.push_back(operation);
            additional.check();
            self.has_operation.notify_one();
            return;
        }
        if additional.count == MAX_ADDITIONAL {
            drop(additional);
            return operation();
        }
        additional.count += 1;
        drop(additional);
        let threads = self.clone();
        let serve = move || threads.serve(operation);
        if let Err(error) = std::thread::Builder::new().name("forebay-mount".into()).spawn(serve) {
            // The kernel gets `EIO` for the request, whose reply is dropped.
            tracing::error!(%error, "cannot start a thread");
            self.additional.lock().count -= 1;
        }
    }

    /// Carries out an operation, and then others until none comes for a while.
    fn serve(&self, first: Operation) {
        let mut next = Some(first);
        while let Some(operation) = next {
            operation();
            let mut additional = self.additional.lock();
            additional.idle += 1;
            let has_none = |additional: &mut Additional| additional.operations.is_empty();
            self.has_operation.wait_while_for(&mut additional, has_none, IDLE_TIME);
            next = additional.operations.pop_front();
            additional.idle -= 1;
            additional.count -= usize::from(next.is_none());
            additional.check();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::JoinHandle;

    /// Threads that carry out an operation each until the sender is dropped.
    fn operate(threads: &Arc<BusyThreads>, count: usize) -> (Sender<()>, Vec<JoinHandle<()>>) {
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let begun = Arc::new(Barrier::new(count + 1));
        let start = |_| {
            let (threads, held, begun) = (threads.clone(), held.clone(), begun.clone());
            std::thread::spawn(move || {
                let _receiving = threads.begin();
                begun.wait();
                let _ = held.lock().recv();
            })
        };
        let started = (0..count).map(start).collect();
        begun.wait();
        (release, started)
    }

    fn end((release, threads): (Sender<()>, Vec<JoinHandle<()>>)) {
        drop(release);
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    }

    #[test]
    fn threads_are_scarce_when_others_have_waited_for_long() {
        let threads = Arc::new(BusyThreads::new(4));
        let began = Instant::now();
        let waiting = operate(&threads, 2);
        let first = threads.begin();
        let scarce = threads.are_scarce();
        assert!(!scarce || began.elapsed() >= LONG, "the others have just begun");
        drop(first);
        std::thread::sleep(2 * LONG);
        let _second = threads.begin();
        assert!(threads.are_scarce());
        end(waiting);
        assert!(!threads.are_scarce(), "they are free again");
    }

    #[test]
    fn last_thread_is_scarce() {
        let threads = Arc::new(BusyThreads::new(2));
        let waiting = operate(&threads, 1);
        let _last = threads.begin();
        assert!(threads.are_scarce());
        end(waiting);
    }

    #[test]
    fn additional_threads_serve_operations_at_once_and_end_when_idle() {
        let threads = Arc::new(BusyThreads::new(1));
        let (done, results) = channel();
        let (release, held) = channel::<()>();
        let name = done.clone();
        threads.carry_out(Box::new(move || {
            let _ = held.recv();
            let _ = name.send(0);
        }));
        // The first one waits, so these need threads of their own, one after another.
        for number in 1..20 {
            let done = done.clone();
            threads.carry_out(Box::new(move || {
                let _ = done.send(number);
            }));
            assert_eq!(results.recv(), Ok(number));
        }
        assert!((2..=20).contains(&threads.additional.lock().count));
        assert!(release.send(()).is_ok());
        assert_eq!(results.recv(), Ok(0));
        while threads.additional.lock().count > 0 {
            std::thread::sleep(LONG);
        }
        let additional = threads.additional.lock();
        assert!(additional.idle == 0 && additional.operations.is_empty());
    }
}
