//! The threads that receive the kernel's requests. When most of them have waited for long, for example
//! for a storage node that does not reply, further requests are carried out by threads of their own,
//! so that others are still received.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time after which an operation is taken to wait for something that may not come soon.
const LONG: Duration = Duration::from_millis(50);
/// Most additional threads. Beyond that, receiving threads wait as well.
const MAX_ADDITIONAL: usize = 1024;

thread_local! {
    /// Index of this thread among those that receive requests of one mount, plus 1.
    static INDEX: Cell<usize> = const { Cell::new(0) };
}

/// The receiving threads of one mount.
#[derive(Debug)]
pub struct BusyThreads {
    started: Instant,
    /// Time at which each thread began its operation, in nanoseconds since `started`; 0: it has none.
    since_ns: Box<[AtomicU64]>,
    /// Threads that have received a request.
    known: AtomicUsize,
    additional: AtomicUsize,
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

/// Permission for an additional thread.
#[derive(Debug)]
pub struct Additional(Arc<BusyThreads>);

impl Drop for Additional {
    fn drop(&mut self) {
        let before = self.0.additional.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a thread ends once");
    }
}

impl BusyThreads {
    /// `threads` that receive requests.
    pub fn new(threads: usize) -> BusyThreads {
        BusyThreads {
            started: Instant::now(),
            since_ns: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            known: AtomicUsize::new(0),
            additional: AtomicUsize::new(0),
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

    /// Whether all threads have operations, or all but one, of which half take long. A thread that
    /// asks has one.
    fn is_scarce(&self) -> bool {
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

    /// Permission to carry out the operation of this thread on another one, if receiving threads are
    /// scarce.
    pub fn additional(self: &Arc<BusyThreads>) -> Option<Additional> {
        if !self.is_scarce() {
            return None;
        }
        let permitted =
            self.additional.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count < MAX_ADDITIONAL).then_some(count + 1)
            });
        permitted.is_ok().then(|| Additional(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::JoinHandle;

    /// Threads that have an operation for this time.
    fn operate(threads: &Arc<BusyThreads>, count: usize, time: Duration) -> Vec<JoinHandle<()>> {
        let operate = move |threads: Arc<BusyThreads>| {
            let _receiving = threads.begin();
            std::thread::sleep(time);
        };
        let started: Vec<_> = (0..count)
            .map(|_| {
                let threads = threads.clone();
                std::thread::spawn(move || operate(threads))
            })
            .collect();
        std::thread::sleep(LONG / 5);
        started
    }

    #[test]
    fn additional_threads_are_permitted_when_others_have_waited_for_long() {
        let threads = Arc::new(BusyThreads::new(4));
        let waiting = operate(&threads, 2, 4 * LONG);
        let first = threads.begin();
        assert!(threads.additional().is_none(), "the others have just begun");
        drop(first);
        std::thread::sleep(2 * LONG);
        let _second = threads.begin();
        let permitted = threads.additional();
        assert!(permitted.is_some());
        assert_eq!(threads.additional.load(Ordering::Relaxed), 1);
        drop(permitted);
        assert_eq!(threads.additional.load(Ordering::Relaxed), 0);
        assert!(waiting.into_iter().all(|thread| thread.join().is_ok()));
        assert!(threads.additional().is_none(), "they are free again");
    }

    #[test]
    fn last_thread_gives_its_operation_to_another_one() {
        let threads = Arc::new(BusyThreads::new(2));
        let waiting = operate(&threads, 1, LONG);
        let _last = threads.begin();
        assert!(threads.additional().is_some());
        assert!(waiting.into_iter().all(|thread| thread.join().is_ok()));
    }
}
