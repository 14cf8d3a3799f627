//! The threads of one run: windows, synchronisation, assignment of partitions to threads.

use crate::barrier::Barrier;
use crate::cell::{PartitionCell, lock};
use crate::load_sharing::LoadSharing;
use crate::partition::{Context, OutgoingMessage, Partition};
use crate::time::Picoseconds;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Windows between two assignments of partitions to threads.
const EPOCH_WINDOWS: u64 = 256;
/// The same for the first [`FIRST_EPOCHS`], when the partitions' work is not known yet.
const FIRST_EPOCH_WINDOWS: u64 = 32;
const FIRST_EPOCHS: u32 = 4;
/// Windows between two calls of [`Progress`].
const PROGRESS_INTERVAL_WINDOWS: u64 = 256;

/// Receives the simulated time reached and the number of events executed so far, from one of a run's
/// threads; returns whether the run continues.
pub type Progress<'a> = &'a (dyn Fn(Picoseconds, u64) -> bool + Sync);

/// Messages that a partition has sent in the present window.
struct Outbox<M> {
    /// There are some. Changed and read on different sides of a barrier.
    filled: AtomicBool,
    /// Those to the partitions of each thread.
    lists: Vec<Mutex<Vec<OutgoingMessage<M>>>>,
}

/// State shared by the threads of one run.
pub(crate) struct Run<'a, P: Partition> {
    cells: &'a [Mutex<PartitionCell<P>>],
    /// By partition.
    outboxes: Vec<Outbox<P::Message>>,
    lookahead: Picoseconds,
    /// No window ends after this time.
    until: Picoseconds,
    threads: usize,
    barrier: Barrier,
    /// Earliest pending event of each thread's partitions.
    earliest: Vec<AtomicU64>,
    messages: AtomicU64,
    events: AtomicU64,
    /// Events of the current epoch.
    epoch_events: AtomicU64,
    /// No window is left, or the run was stopped. Set only where all threads see it before the same
    /// window.
    stop: AtomicBool,
    /// The shared epoch ends after this window. Set only where all threads see it after the same barrier.
    gives_up: AtomicBool,
    /// The thread that runs each partition.
    owner: Mutex<Vec<u32>>,
}

/// State of one thread of a run.
struct Worker<M> {
    thread: usize,
    /// One list per thread; all are empty between windows.
    outbox: Vec<Vec<OutgoingMessage<M>>>,
    windows: u64,
}

/// How an epoch is run.
struct Epoch<'a> {
    /// By one thread.
    alone: bool,
    /// Windows at most.
    windows: u64,
    /// Whether to end it early, for the thread that decides.
    gives_up: &'a dyn Fn() -> bool,
}

/// A partition of the thread that runs it.
struct OwnPartition<'a, P: Partition> {
    cell: MutexGuard<'a, PartitionCell<P>>,
    /// Time of its earliest pending event.
    next: Picoseconds,
    /// It has received messages since `next` was found.
    has_received: bool,
}

/// Releases the other threads from the barrier when this one panics.
struct ReleaseOnPanic<'a>(&'a Barrier);

impl Drop for ReleaseOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.release_all();
        }
    }
}

impl<'a, P: Partition> Run<'a, P> {
    /// A run of these partitions on `threads` threads, to the last window that ends by the time `until`.
    pub fn new(
        cells: &'a [Mutex<PartitionCell<P>>],
        lookahead: Picoseconds,
        threads: usize,
        until: Picoseconds,
    ) -> Self {
        let lists = || (0..threads).map(|_| Mutex::new(Vec::new())).collect();
        let outbox = |_| Outbox { filled: AtomicBool::new(false), lists: lists() };
        Run {
            cells,
            outboxes: cells.iter().map(outbox).collect(),
            lookahead,
            until,
            threads,
            barrier: Barrier::new(threads),
            earliest: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            messages: AtomicU64::new(0),
            events: AtomicU64::new(0),
            epoch_events: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            gives_up: AtomicBool::new(false),
            owner: Mutex::new(vec![0; cells.len()]),
        }
    }

    /// Runs to the end; returns the numbers of windows and of messages between partitions.
    pub fn run_to_end(self, progress: Progress<'_>) -> (u64, u64) {
        let windows = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads)
                .map(|thread| {
                    let run = &self;
                    scope.spawn(move || run.run_thread(thread, progress))
                })
                .collect();
            let windows = self.run_thread(0, progress);
            for other in others {
                if let Err(panic) = other.join() {
                    std::panic::resume_unwind(panic);
                }
            }
            windows
        });
        (windows, self.messages.into_inner())
    }

    /// The main function of one thread; returns the number of windows it ran.
    ///
    /// Windows are grouped into epochs. Before each epoch thread 0 reassigns the partitions, or
    /// keeps all of them to itself while the others wait: whichever was faster recently. Barriers
    /// cost more than they gain where windows hold few events, or where other programs need the
    /// processors. The choice affects wall-clock time only.
    fn run_thread(&self, thread: usize, progress: Progress<'_>) -> u64 {
        let _guard = ReleaseOnPanic(&self.barrier);
        let mut worker =
            Worker { thread, outbox: (0..self.threads).map(|_| Vec::new()).collect(), windows: 0 };
        let mut sharing = LoadSharing::default();
        for epoch in 0.. {
            // All outboxes are empty here, except before the first epoch, when queues hold the
            // events that were inserted before the run.
            if !self.meet() {
                break;
            }
            let owner = lock(&self.owner).clone();
            let alone = owner.iter().all(|&o| o == 0);
            let started = if alone && thread != 0 {
                None // thread 0 runs this epoch
            } else {
                let started = Instant::now();
                let windows =
                    if epoch < FIRST_EPOCHS { FIRST_EPOCH_WINDOWS } else { EPOCH_WINDOWS };
                let before = self.events.load(Ordering::Relaxed);
                let gives_up = || {
                    let events = self.events.load(Ordering::Relaxed) - before;
                    thread == 0 && !alone && sharing.gives_up(events, started.elapsed())
                };
                let mode = Epoch { alone, windows, gives_up: &gives_up };
                if !self.run_epoch(&mut worker, &owner, &mode, progress) {
                    break;
                }
                Some(started)
            };
            if !self.meet() || self.stop.load(Ordering::Relaxed) {
                break;
            }
            if let (0, Some(started)) = (thread, started) {
                self.gives_up.store(false, Ordering::Relaxed);
                let events = self.epoch_events.swap(0, Ordering::Relaxed);
                let share = sharing.shares_next_epoch(alone, events, started.elapsed());
                *lock(&self.owner) = if share && self.threads > 1 {
                    self.weighted_owners()
                } else {
                    vec![0; self.cells.len()]
                };
            }
        }
        worker.windows
    }

    /// Runs the windows of an epoch of a thread's partitions, without barriers if it runs alone; false if another
    /// thread panicked.
    fn run_epoch(
        &self,
        worker: &mut Worker<P::Message>,
        owner: &[u32],
        epoch: &Epoch<'_>,
        progress: Progress<'_>,
    ) -> bool {
        let (thread, alone) = (worker.thread, epoch.alone);
        let meet = || alone || self.meet();
        let mut epoch_events = 0;
        let mut own = self.lock_partitions(thread, owner);
        self.publish_earliest(thread, &mut own);
        for _ in 0..epoch.windows {
            if !meet() {
                return false;
            }
            let earliest = if alone { &self.earliest[..1] } else { &self.earliest };
            let earliest = earliest.iter().map(|t| t.load(Ordering::Relaxed)).min();
            let start = earliest.unwrap_or(Picoseconds::MAX);
            let is_over = match self.until {
                Picoseconds::MAX => start == Picoseconds::MAX,
                until => start.saturating_add(self.lookahead) > until,
            };
            if is_over || self.stop.load(Ordering::Relaxed) {
                self.stop.store(true, Ordering::Relaxed);
                break;
            }
            let mut events = 0;
            for (partition, slot) in (0..).zip(&mut own) {
                if let Some(own) = slot {
                    events += self.run_window(partition, own, start, owner, &mut worker.outbox);
                }
            }
            self.events.fetch_add(events, Ordering::Relaxed);
            epoch_events += events;
            worker.windows += 1;
            if (epoch.gives_up)() {
                self.gives_up.store(true, Ordering::Relaxed);
            }
            if !meet() {
                return false;
            }
            let ends = self.gives_up.load(Ordering::Relaxed);
            self.exchange_messages(thread, &mut own);
            self.publish_earliest(thread, &mut own);
            if thread == 0 && worker.windows % PROGRESS_INTERVAL_WINDOWS == 0 {
                let goes_on = progress(start, self.events.load(Ordering::Relaxed));
                self.stop.fetch_or(!goes_on, Ordering::Relaxed);
            }
            if ends {
                break;
            }
        }
        self.epoch_events.fetch_add(epoch_events, Ordering::Relaxed);
        true
    }

    fn meet(&self) -> bool {
        self.threads == 1 || self.barrier.wait()
    }

    /// Locks the partitions of a thread for an epoch.
    fn lock_partitions(&self, thread: usize, owner: &[u32]) -> Vec<Option<OwnPartition<'a, P>>> {
        let own = |cell| OwnPartition { cell: lock(cell), next: 0, has_received: true };
        let is_own = |o: u32| o as usize == thread;
        owner.iter().zip(self.cells).map(|(o, cell)| is_own(*o).then(|| own(cell))).collect()
    }

    /// Records the earliest pending event of a thread's partitions.
    fn publish_earliest(&self, thread: usize, own: &mut [Option<OwnPartition<'_, P>>]) {
        let mut earliest = Picoseconds::MAX;
        for own in own.iter_mut().flatten() {
            if std::mem::take(&mut own.has_received) {
                own.next = own.cell.queue.next_time();
            }
            earliest = earliest.min(own.next);
        }
        self.earliest[thread].store(earliest, Ordering::Relaxed);
    }

    /// Runs the events of one partition in the window that begins at `start`. `outbox` has one
    /// empty list per thread.
    fn run_window(
        &self,
        partition: u32,
        own: &mut OwnPartition<'_, P>,
        start: Picoseconds,
        owner: &[u32],
        outbox: &mut [Vec<OutgoingMessage<P::Message>>],
    ) -> u64 {
        let end = start.saturating_add(self.lookahead);
        let shared = &self.outboxes[partition as usize];
        shared.filled.store(false, Ordering::Relaxed);
        if own.next >= end {
            return 0;
        }
        let cell = &mut *own.cell;
        let mut events = 0;
        let mut context = Context {
            now: start,
            queue: &mut cell.queue,
            partition,
            window_end: end,
            outbox,
            owner,
        };
        let state = &mut cell.state;
        while let Some((time, event)) =
            context.queue.pop_before(end, |event, ahead| state.prefetch(event, ahead))
        {
            assert!(
                time >= context.now,
                "event of partition {partition} at {time} ps, before {} ps in the window from \
                 {start} ps",
                context.now
            );
            context.now = time;
            state.handle(event, &mut context);
            events += 1;
        }
        debug_assert!(events > 0, "no event of partition {partition} before {end} ps");
        cell.last_event = context.now;
        cell.events += events;
        cell.recent += events;
        own.next = cell.queue.next_time();
        for (list, shared_list) in outbox.iter_mut().zip(&shared.lists) {
            if !list.is_empty() {
                std::mem::swap(list, &mut lock(shared_list));
                shared.filled.store(true, Ordering::Relaxed);
            }
        }
        events
    }

    /// Delivers the messages for this thread's partitions in the order of (sender, sending).
    fn exchange_messages(&self, thread: usize, own: &mut [Option<OwnPartition<'_, P>>]) {
        let mut messages = 0;
        for outbox in &self.outboxes {
            if !outbox.filled.load(Ordering::Relaxed) {
                continue;
            }
            for OutgoingMessage { to, at, message } in lock(&outbox.lists[thread]).drain(..) {
                let Some(Some(own)) = own.get_mut(to as usize) else {
                    unreachable!("a message for partition {to} in thread {thread}'s outbox")
                };
                let cell = &mut *own.cell;
                cell.state.receive(at, message, &mut cell.queue);
                own.has_received = true;
                messages += 1;
            }
        }
        self.messages.fetch_add(messages, Ordering::Relaxed);
    }

    /// Assigns partitions by their recent work: the partition with most work goes to the thread
    /// with least, and so on.
    fn weighted_owners(&self) -> Vec<u32> {
        let mut work: Vec<(u64, usize)> = self
            .cells
            .iter()
            .enumerate()
            .map(|(index, cell)| (std::mem::take(&mut lock(cell).recent), index))
            .collect();
        work.sort_by_key(|&(work, index)| (std::cmp::Reverse(work), index));
        let mut load = vec![0; self.threads];
        let mut owner = vec![0; self.cells.len()];
        for (work, partition) in work {
            let thread = (0..self.threads).min_by_key(|&t| load[t]).unwrap_or(0);
            load[thread] += work + 1;
            owner[partition] = thread as u32;
        }
        owner
    }
}
