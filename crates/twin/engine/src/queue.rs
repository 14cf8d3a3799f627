//! The event queue of one partition: a wheel of buckets with a heap behind it.
//!
//! Events of the near future are in the buckets of the wheel, one list for each bucket. Inserting one
//! is O(1). Later events are in a binary heap until the wheel reaches them. A bucket is sorted when the
//! clock enters it: first by steps of time, then, within the few events of a step, by insertion. The
//! order of the bucket's events is then known ahead, so that the data of the next ones can be
//! prefetched while one runs. Events move from list to list, so they should be small.
//!
//! The width of the buckets follows the density of events: wide enough that opening a bucket is paid
//! for by several events, narrow enough that a bucket's events fit the cache. The order of events does
//! not depend on it.

use crate::time::Picoseconds;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Least and greatest width of a bucket: 2^13 ps = 8 ns and 2^18 ps = 262 ns.
const MIN_BITS: u32 = 13;
const MAX_BITS: u32 = 18;
/// Width at first: 33 ns.
const FIRST_BITS: u32 = 15;
/// Buckets of the wheel. Of 33 ns each they span 67 us, longer than most packets wait for a congested
/// link.
const BUCKETS: u64 = 2048;
const WORDS: usize = BUCKETS as usize / 64;
/// Buckets of the wheel that can hold events besides the one being opened.
const NEAR: u64 = BUCKETS - 1;
/// Buckets opened between two decisions on their width.
const REVIEW_INTERVAL: u32 = 512;
/// Mean numbers of events of a bucket below which buckets become wider, and above which narrower.
const FEW_EVENTS: u32 = 16;
const MANY_EVENTS: u32 = 128;
/// Steps into which a bucket is divided for sorting.
const STEPS: usize = 32;
/// Events up to which a bucket, or a step of it, is sorted by insertion.
const MAX_INSERTION: usize = 24;
/// Events between the one taken and those that are prefetched, by [`Ahead`].
const FAR_DISTANCE: usize = 12;
const NEAR_DISTANCE: usize = 5;

/// The time at which an event's data are prefetched, in two steps: what the event refers to is in the
/// cache at the second, so that what this refers to can be prefetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// About a dozen events before.
    Far,
    /// About five events before.
    Near,
}

/// An event and its place in the order; half a cache line for events of 16 bytes.
#[derive(Clone, Copy)]
struct Due<E> {
    time: Picoseconds,
    key: u32,
    event: E,
}

const _: () = assert!(size_of::<Due<[u64; 2]>>() == 32);

impl<E> Due<E> {
    #[inline]
    fn order(&self) -> (Picoseconds, u32) {
        (self.time, self.key)
    }

    /// Step of its bucket of 2^`bits` ps.
    #[inline]
    fn step(&self, bits: u32) -> usize {
        (self.time >> (bits - STEPS.trailing_zeros())) as usize % STEPS
    }
}

/// Pending events of one partition, in the order of (time, key, insertion).
#[derive(Clone)]
pub struct Queue<E> {
    /// Events of each bucket, in the order of insertion.
    buckets: Vec<Vec<Due<E>>>,
    /// Empty lists for buckets. The most recently used is reused first: it is in the cache.
    spare: Vec<Vec<Due<E>>>,
    /// One bit for each bucket that is not empty.
    occupied: [u64; WORDS],
    /// A bucket is 2^`bits` ps wide.
    bits: u32,
    /// Number of the first bucket since time 0 (not modulo the wheel) that has not been opened.
    unopened: u64,
    /// Events of the buckets opened, latest first: the next one is popped from the end.
    due: Vec<Due<E>>,
    /// Buckets opened since the last decision on their width, and their events.
    opened: u32,
    opened_events: u32,
    /// Events beyond the wheel, the earliest first.
    far: BinaryHeap<FarEvent<E>>,
    /// Time of the earliest event in `far`.
    far_next: Picoseconds,
    /// Insertions into `far`, to keep their order.
    far_inserted: u64,
    /// Events pending.
    len: usize,
}

impl<E: Copy> Default for Queue<E> {
    fn default() -> Self {
        Queue {
            buckets: (0..BUCKETS).map(|_| Vec::new()).collect(),
            spare: Vec::new(),
            occupied: [0; WORDS],
            bits: FIRST_BITS,
            unopened: 0,
            due: Vec::new(),
            opened: 0,
            opened_events: 0,
            far: BinaryHeap::new(),
            far_next: Picoseconds::MAX,
            far_inserted: 0,
            len: 0,
        }
    }
}

impl<E: Copy> Queue<E> {
    /// Adds an event. Among events of the same time the smaller key runs first, and among equal
    /// keys the one inserted first.
    ///
    /// `time` must not lie before the event last popped; debug builds check that.
    #[inline]
    pub fn push(&mut self, time: Picoseconds, key: u32, event: E) {
        self.len += 1;
        self.insert(Due { time, key, event });
    }

    /// Takes the next event if its time is before `end`. Calls `prefetch` with most events twice before
    /// they are taken.
    #[inline]
    pub fn pop_before(
        &mut self,
        end: Picoseconds,
        mut prefetch: impl FnMut(&E, Ahead),
    ) -> Option<(Picoseconds, E)> {
        if self.due.is_empty() {
            if !self.open_next(end) {
                return None;
            }
            self.prefetch_first(&mut prefetch);
        }
        let due = *self.due.last()?;
        if due.time >= end {
            return None;
        }
        self.due.pop();
        self.len -= 1;
        let left = self.due.len();
        if let Some(ahead) = self.due.get(left.wrapping_sub(FAR_DISTANCE)) {
            prefetch(&ahead.event, Ahead::Far);
        }
        if let Some(ahead) = self.due.get(left.wrapping_sub(NEAR_DISTANCE)) {
            prefetch(&ahead.event, Ahead::Near);
        }
        Some((due.time, due.event))
    }

    /// Time of the next event, [`Picoseconds::MAX`] if there is none.
    pub fn next_time(&self) -> Picoseconds {
        if let Some(due) = self.due.last() {
            return due.time;
        }
        let next = self.next_occupied(self.unopened);
        let near = next.and_then(|bucket| self.list(bucket).iter().map(|due| due.time).min());
        near.unwrap_or(Picoseconds::MAX).min(self.far_next)
    }

    /// Events pending.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    fn insert(&mut self, due: Due<E>) {
        let bucket = due.time >> self.bits;
        if bucket.wrapping_sub(self.unopened) < NEAR {
            self.insert_near(bucket, due);
        } else if bucket < self.unopened {
            debug_assert!(bucket + 1 == self.unopened || self.due.is_empty(), "event in the past");
            self.insert_due(due);
        } else {
            self.insert_far(due);
        }
    }

    /// Inserts an event beyond the wheel.
    #[cold]
    fn insert_far(&mut self, due: Due<E>) {
        self.far_next = self.far_next.min(due.time);
        self.far.push(FarEvent { due, number: self.far_inserted });
        self.far_inserted += 1;
    }

    /// Appends an event to a bucket of the wheel.
    #[inline(always)]
    fn insert_near(&mut self, bucket: u64, due: Due<E>) {
        let index = (bucket % BUCKETS) as usize;
        let list = &mut self.buckets[index];
        if list.is_empty() {
            *list = self.spare.pop().unwrap_or_default();
            self.occupied[index / 64] |= 1 << (index % 64);
        }
        list.push(due);
    }

    /// Inserts an event of a bucket that is open: it runs after all events of the same time and key.
    #[inline(never)]
    fn insert_due(&mut self, due: Due<E>) {
        let place = self.due.partition_point(|d| d.order() > due.order());
        self.due.insert(place, due);
    }

    /// Number of the first bucket of the wheel from bucket `from` on that holds events.
    #[inline]
    fn next_occupied(&self, from: u64) -> Option<u64> {
        let start = (from % BUCKETS) as usize;
        let (mut word, bit) = (start / 64, start % 64);
        let mut bits = self.occupied[word] & (!0 << bit);
        for _ in 0..=WORDS {
            if bits != 0 {
                let index = (word * 64) as u64 + u64::from(bits.trailing_zeros());
                return Some(from + (index + BUCKETS - start as u64) % BUCKETS);
            }
            word = (word + 1) % WORDS;
            bits = self.occupied[word];
        }
        None
    }

    /// Opens the next bucket that holds an event before `end`; false if there is none.
    fn open_next(&mut self, end: Picoseconds) -> bool {
        if self.opened == REVIEW_INTERVAL {
            self.review_width();
        }
        let near = self.next_occupied(self.unopened);
        let far = (self.far_next != Picoseconds::MAX).then_some(self.far_next >> self.bits);
        let bucket = match (near, far) {
            (None, None) => return false,
            (Some(bucket), None) | (None, Some(bucket)) => bucket,
            (Some(a), Some(b)) => a.min(b),
        };
        if bucket << self.bits >= end {
            return false;
        }
        debug_assert!(bucket >= self.unopened, "bucket {bucket} opened again");
        self.unopened = bucket + 1;
        self.refill_wheel();
        let index = (bucket % BUCKETS) as usize;
        let mut list = std::mem::take(&mut self.buckets[index]);
        self.occupied[index / 64] &= !(1 << (index % 64));
        self.opened += 1;
        self.opened_events += list.len() as u32;
        sort_latest_first(&list, self.bits, &mut self.due);
        list.clear();
        self.spare.push(list);
        true
    }

    /// Doubles or halves the width of the buckets if those opened last had few or many events.
    #[cold]
    fn review_width(&mut self) {
        debug_assert!(self.due.is_empty());
        let mean = self.opened_events / self.opened;
        (self.opened, self.opened_events) = (0, 0);
        let bits = if mean < FEW_EVENTS && self.bits < MAX_BITS {
            self.unopened /= 2;
            self.bits + 1
        } else if mean > MANY_EVENTS && self.bits > MIN_BITS {
            self.unopened *= 2;
            self.bits - 1
        } else {
            return;
        };
        // Events of the same time and key are in one bucket, in the order in which they are moved.
        let mut moving = Vec::new();
        for list in &mut self.buckets {
            moving.append(list);
        }
        self.occupied = [0; WORDS];
        self.bits = bits;
        moving.into_iter().for_each(|due| self.insert(due));
        self.refill_wheel();
    }

    /// Prefetches the data of the first events of the bucket just opened. Where it has few, also those
    /// of the next bucket's events and of the one after it.
    #[inline]
    fn prefetch_first(&self, prefetch: &mut impl FnMut(&E, Ahead)) {
        for due in self.due.iter().rev().take(FAR_DISTANCE) {
            prefetch(&due.event, Ahead::Far);
        }
        for due in self.due.iter().rev().take(NEAR_DISTANCE) {
            prefetch(&due.event, Ahead::Near);
        }
        if self.due.len() > FAR_DISTANCE {
            return;
        }
        let Some(next) = self.next_occupied(self.unopened) else {
            return;
        };
        for due in self.list(next).iter().take(NEAR_DISTANCE) {
            prefetch(&due.event, Ahead::Near);
        }
        if let Some(further) = self.next_occupied(next + 1) {
            for due in self.list(further).iter().take(NEAR_DISTANCE) {
                prefetch(&due.event, Ahead::Far);
            }
        }
    }

    fn list(&self, bucket: u64) -> &[Due<E>] {
        &self.buckets[(bucket % BUCKETS) as usize]
    }

    /// Moves the events that the wheel now reaches from the heap into it. They were inserted before
    /// any event of the same time that went directly into the wheel, and buckets keep that order.
    #[inline]
    fn refill_wheel(&mut self) {
        let end = (self.unopened + NEAR).saturating_mul(1 << self.bits);
        if self.far_next < end {
            self.take_far(end);
        }
    }

    #[cold]
    fn take_far(&mut self, end: Picoseconds) {
        while let Some(&FarEvent { due, .. }) = self.far.peek()
            && due.time < end
        {
            self.far.pop();
            self.insert_near(due.time >> self.bits, due);
        }
        self.far_next = self.far.peek().map_or(Picoseconds::MAX, |far| far.due.time);
    }
}

/// An event beyond the wheel, and its number among those inserted there.
#[derive(Clone)]
struct FarEvent<E> {
    due: Due<E>,
    number: u64,
}

impl<E> FarEvent<E> {
    fn order(&self) -> (Picoseconds, u32, u64) {
        (self.due.time, self.due.key, self.number)
    }
}

/// The earliest event is the greatest.
impl<E> Ord for FarEvent<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.order().cmp(&self.order())
    }
}

impl<E> PartialOrd for FarEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for FarEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<E> Eq for FarEvent<E> {}

/// Sorts the events of a bucket by descending (time, key) into `due`, which is empty. `list` runs from
/// the oldest to the newest; of equals the oldest comes last.
fn sort_latest_first<E: Copy>(list: &[Due<E>], bits: u32, due: &mut Vec<Due<E>>) {
    due.extend(list.iter().rev());
    if list.len() > MAX_INSERTION {
        let mut places = [0u32; STEPS];
        for event in list {
            places[event.step(bits)] += 1;
        }
        if places.iter().any(|&count| count as usize > MAX_INSERTION) {
            due.sort_by_key(|d| Reverse(d.order()));
            return;
        }
        let mut first = 0;
        for place in places.iter_mut().rev() {
            first += std::mem::replace(place, first);
        }
        for event in list.iter().rev() {
            let place = &mut places[event.step(bits)];
            due[*place as usize] = *event;
            *place += 1;
        }
    }
    for i in 1..due.len() {
        let (mut j, moving) = (i, due[i]);
        while j > 0 && due[j - 1].order() < moving.order() {
            due[j] = due[j - 1];
            j -= 1;
        }
        due[j] = moving;
    }
}

/// Prefetches a cache line.
#[inline]
pub fn prefetch<T>(item: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault, whatever the address; and `item` is a
    // valid reference.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = item;
}
