//! The threads of one run: windows, meetings between them, and who runs which partition.

use crate::Picoseconds;
use crate::barrier::Barrier;
use crate::load_sharing::LoadSharing;
use crate::simulation::{Context, OutgoingMessage, Partition, PartitionCell, Progress, lock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Windows between two looks at how the work is spread over the threads.
const EPOCH: u64 = 256;
/// The same at the beginning, when nothing is known of the work.
const FIRST_EPOCHS: u64 = 32;
/// Windows between two calls of [`Progress::update`].
const PROGRESS_EVERY: u64 = 256;

type Outbox<M> = Mutex<Vec<OutgoingMessage<M>>>;

/// What the threads of one run share.
pub(crate) struct Run<'a, P: Partition> {
    cells: &'a [Mutex<PartitionCell<P>>],
    /// `[partition][thread]`: what a partition sent to the partitions of a thread.
    outboxes: Vec<Vec<Outbox<P::Message>>>,
    lookahead: Picoseconds,
    threads: usize,
    barrier: Barrier,
    /// Earliest pending event of each thread's partitions.
    earliest: Vec<AtomicU64>,
    messages: AtomicU64,
    events: AtomicU64,
    /// Events of the present epoch.
    epoch_events: AtomicU64,
    /// No event is left, or an end was asked for. Set only where all threads will see it before
    /// the same window.
    stop: AtomicBool,
    /// Which thread runs a partition.
    owner: Mutex<Vec<u32>>,
}

/// Breaks the barrier up when its thread panics, so that the others end too.
struct Alarm<'a>(&'a Barrier);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.release_all();
        }
    }
}

impl<'a, P: Partition> Run<'a, P> {
    /// A run of these partitions on so many threads.
    pub fn new(
        cells: &'a [Mutex<PartitionCell<P>>],
        lookahead: Picoseconds,
        threads: usize,
    ) -> Self {
        let outboxes = |_| (0..threads).map(|_| Mutex::new(Vec::new())).collect();
        Run {
            cells,
            outboxes: cells.iter().map(outboxes).collect(),
            lookahead,
            threads,
            barrier: Barrier::new(threads),
            earliest: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            messages: AtomicU64::new(0),
            events: AtomicU64::new(0),
            epoch_events: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            owner: Mutex::new(vec![0; cells.len()]),
        }
    }

    /// Runs to the end; returns the numbers of windows and of messages between partitions.
    pub fn run_to_end(self, progress: &dyn Progress) -> (u64, u64) {
        let windows = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads)
                .map(|t| {
                    let run = &self;
                    scope.spawn(move || run.thread(t, progress))
                })
                .collect();
            let windows = self.thread(0, progress);
            for other in others {
                if let Err(panic) = other.join() {
                    std::panic::resume_unwind(panic);
                }
            }
            windows
        });
        (windows, self.messages.into_inner())
    }

    /// The life of one thread; returns the number of windows.
    ///
    /// Windows come in epochs. Before each epoch thread 0 deals the partitions out anew, or keeps
    /// all of them to itself while the others wait: whichever was quicker of late. Meetings cost
    /// more than they bring where windows hold few events, or where other programs want the
    /// processors. This changes how long a run takes, and nothing else.
    fn thread(&self, me: usize, progress: &dyn Progress) -> u64 {
        let _alarm = Alarm(&self.barrier);
        let mut outbox: Vec<_> = (0..self.threads).map(|_| Vec::new()).collect();
        let mut windows = 0;
        let mut pace = LoadSharing::default();
        for epoch in 0.. {
            // All outboxes are empty here, but for the first epoch, when all queues have events
            // that were put there before.
            if !self.meet() {
                return windows;
            }
            let owner = lock(&self.owner).clone();
            let alone = owner.iter().all(|&o| o == 0);
            if alone && me != 0 {
                if !self.meet() || self.stop.load(Ordering::Relaxed) {
                    return windows;
                }
                continue;
            }
            let meet = || alone || self.meet();
            self.exchange(me, &owner);
            let begun = Instant::now();
            let mut events_of_epoch = 0;
            let length = if epoch < 4 { FIRST_EPOCHS } else { EPOCH };
            for _ in 0..length {
                if !meet() {
                    return windows;
                }
                let earliest = self.earliest.iter().map(|t| t.load(Ordering::Relaxed));
                let start = if alone {
                    self.earliest[0].load(Ordering::Relaxed)
                } else {
                    earliest.min().unwrap_or(u64::MAX)
                };
                if start == Picoseconds::MAX || self.stop.load(Ordering::Relaxed) {
                    self.stop.store(true, Ordering::Relaxed);
                    break;
                }
                let end = start.saturating_add(self.lookahead);
                let mut events = 0;
                for (partition, _) in owner.iter().enumerate().filter(|(_, o)| **o as usize == me) {
                    events += self.run_window(partition, end, &owner, &mut outbox);
                }
                self.events.fetch_add(events, Ordering::Relaxed);
                events_of_epoch += events;
                windows += 1;
                if !meet() {
                    return windows;
                }
                self.exchange(me, &owner);
                if me == 0 && windows % PROGRESS_EVERY == 0 {
                    let events = self.events.load(Ordering::Relaxed);
                    if !progress.update(start, events) {
                        self.stop.store(true, Ordering::Relaxed);
                    }
                }
            }
            self.epoch_events
                .fetch_add(events_of_epoch, Ordering::Relaxed);
            if !self.meet() {
                return windows;
            }
            if self.stop.load(Ordering::Relaxed) {
                return windows;
            }
            if me == 0 {
                let events = self.epoch_events.swap(0, Ordering::Relaxed);
                let share = pace.shares_next_epoch(alone, events, begun.elapsed());
                *lock(&self.owner) = if share && self.threads > 1 {
                    self.weighted_shares()
                } else {
                    vec![0; self.cells.len()]
                };
            }
        }
        windows
    }

    fn meet(&self) -> bool {
        self.threads == 1 || self.barrier.wait()
    }

    /// Runs the events of one partition before `end`. `outbox` has one empty list a thread.
    fn run_window(
        &self,
        partition: usize,
        end: Picoseconds,
        owner: &[u32],
        outbox: &mut [Vec<OutgoingMessage<P::Message>>],
    ) -> u64 {
        let mut cell = lock(&self.cells[partition]);
        let cell = &mut *cell;
        let mut events = 0;
        let mut context = Context::<P> {
            now: cell.last_event,
            queue: &mut cell.queue,
            partition: partition as u32,
            window_end: end,
            outbox,
            owner,
        };
        let state = &mut cell.state;
        while let Some((time, event)) = context
            .queue
            .pop_before_prefetching(end, |event| state.prefetch(event))
        {
            context.now = time;
            state.handle(event, &mut context);
            events += 1;
        }
        cell.last_event = context.now;
        if events > 0 {
            cell.events += events;
            cell.recent += events;
            for (thread, parcels) in outbox.iter_mut().enumerate().filter(|(_, o)| !o.is_empty()) {
                std::mem::swap(parcels, &mut lock(&self.outboxes[partition][thread]));
            }
        }
        events
    }

    /// Hands the messages for this thread's partitions over, in the order of (sender, sending),
    /// and notes the earliest event among them.
    fn exchange(&self, me: usize, owner: &[u32]) {
        let mut mine: Vec<Option<MutexGuard<'_, PartitionCell<P>>>> = owner
            .iter()
            .zip(self.cells)
            .map(|(o, cell)| (*o as usize == me).then(|| lock(cell)))
            .collect();
        let mut messages = 0;
        for outboxes in &self.outboxes {
            for parcel in lock(&outboxes[me]).drain(..) {
                let Some(Some(cell)) = mine.get_mut(parcel.to as usize) else {
                    unreachable!(
                        "a parcel for partition {} in thread {me}'s outbox",
                        parcel.to
                    )
                };
                let cell = &mut **cell;
                cell.state
                    .receive(parcel.at, parcel.message, &mut cell.queue);
                messages += 1;
            }
        }
        self.messages.fetch_add(messages, Ordering::Relaxed);
        let earliest = mine
            .iter()
            .flatten()
            .map(|cell| cell.queue.next_time())
            .min();
        self.earliest[me].store(earliest.unwrap_or(Picoseconds::MAX), Ordering::Relaxed);
    }

    /// Owners by the work of the last windows: the partition with most work goes to the thread
    /// with least, and so on.
    fn weighted_shares(&self) -> Vec<u32> {
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
