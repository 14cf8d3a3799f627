//! The event queue of one partition: a timing wheel with a heap behind it.
//!
//! Events within [`HORIZON`] of the clock are in the slots of a wheel; inserting one and taking
//! the next are O(1). Later events are in a binary heap until the wheel reaches them. A slot is
//! sorted when the clock enters it; it holds a few events.

use crate::time::Picoseconds;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A slot is 2^11 ps = 2.048 ns wide.
const SLOT_BITS: u32 = 11;
/// Slots of the wheel.
const SLOTS: u64 = 2048;
const WORDS: usize = SLOTS as usize / 64;
/// Span of the wheel: 4.2 us.
const HORIZON: Picoseconds = SLOTS << SLOT_BITS;
const NONE: u32 = u32::MAX;

/// An event and its place in a list; one cache line for payloads of up to 48 bytes.
#[repr(align(64))]
struct Node<E> {
    time: Picoseconds,
    key: u32,
    next: u32,
    event: E,
}

const _: () = assert!(size_of::<Node<[u32; 12]>>() == 64);

/// An event of the open slot: its place in the order, and its node.
#[derive(Clone, Copy)]
struct Due {
    time: Picoseconds,
    key: u32,
    node: u32,
}

/// Pending events of one partition, in the order of (time, key, insertion).
pub struct Queue<E> {
    nodes: Vec<Node<E>>,
    /// Head of the list of unused nodes.
    free: u32,
    /// Head of each slot's list, newest first.
    slots: Vec<u32>,
    /// One bit for each slot that is not empty.
    occupied: [u64; WORDS],
    /// Number of the open slot since time 0 (not modulo the wheel).
    open: u64,
    /// Events of the open slot, latest first: the next one is popped from the end.
    due: Vec<Due>,
    /// Events beyond the wheel: (time, key, insertion, node).
    far: BinaryHeap<Reverse<(Picoseconds, u32, u64, u32)>>,
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
            nodes: Vec::new(),
            free: NONE,
            slots: vec![NONE; SLOTS as usize],
            occupied: [0; WORDS],
            open: 0,
            due: Vec::new(),
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
        let node = self.allocate(time, key, event);
        self.len += 1;
        let slot = time >> SLOT_BITS;
        if slot <= self.open {
            debug_assert!(slot == self.open || self.due.is_empty(), "event in the past");
            self.insert_due(Due { time, key, node });
        } else if slot < self.open + SLOTS {
            self.link(slot, node);
        } else {
            self.far.push(Reverse((time, key, self.far_inserted, node)));
            self.far_inserted += 1;
            self.far_next = self.far_next.min(time);
        }
    }

    /// Takes the next event if its time is before `end`. Calls `prefetch` with each event some time
    /// before it is taken, in no particular order.
    #[inline]
    pub fn pop_before(
        &mut self,
        end: Picoseconds,
        prefetch: impl FnMut(&E),
    ) -> Option<(Picoseconds, E)> {
        if self.due.is_empty() {
            if !self.open_next(end) {
                return None;
            }
            self.prefetch_ahead(prefetch);
        }
        let due = *self.due.last()?;
        if due.time >= end {
            return None;
        }
        self.due.pop();
        self.len -= 1;
        let node = &mut self.nodes[due.node as usize];
        node.next = self.free;
        self.free = due.node;
        Some((due.time, node.event))
    }

    /// Time of the next event, [`Picoseconds::MAX`] if there is none.
    pub fn next_time(&self) -> Picoseconds {
        if let Some(due) = self.due.last() {
            return due.time;
        }
        let near = match self.next_occupied() {
            None => Picoseconds::MAX,
            Some(slot) => {
                let mut earliest = Picoseconds::MAX;
                let mut node = self.slots[(slot % SLOTS) as usize];
                while node != NONE {
                    earliest = earliest.min(self.nodes[node as usize].time);
                    node = self.nodes[node as usize].next;
                }
                earliest
            }
        };
        near.min(self.far_next)
    }

    /// Events pending.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn allocate(&mut self, time: Picoseconds, key: u32, event: E) -> u32 {
        let index = self.free;
        if index != NONE {
            let node = &mut self.nodes[index as usize];
            self.free = node.next;
            node.time = time;
            node.key = key;
            node.event = event;
            index
        } else {
            let index = self.nodes.len() as u32;
            assert!(index != NONE, "more than 2^32 - 1 events pending in one partition");
            self.nodes.push(Node { time, key, next: NONE, event });
            index
        }
    }

    #[inline]
    fn link(&mut self, slot: u64, node: u32) {
        let index = (slot % SLOTS) as usize;
        self.nodes[node as usize].next = self.slots[index];
        self.slots[index] = node;
        self.occupied[index / 64] |= 1 << (index % 64);
    }

    /// Inserts an event into the open slot: it runs after all events of the same time and key.
    fn insert_due(&mut self, due: Due) {
        let place = self.due.partition_point(|d| (d.time, d.key) > (due.time, due.key));
        self.due.insert(place, due);
    }

    /// Number of the first slot after the open one that holds events.
    #[inline]
    fn next_occupied(&self) -> Option<u64> {
        self.next_occupied_after(self.open)
    }

    /// Number of the first slot of the wheel after slot `before` that holds events.
    #[inline]
    fn next_occupied_after(&self, before: u64) -> Option<u64> {
        let from = before + 1;
        let start = (from % SLOTS) as usize;
        let (mut word, bit) = (start / 64, start % 64);
        let mut bits = self.occupied[word] & (!0 << bit);
        for _ in 0..=WORDS {
            if bits != 0 {
                let index = (word * 64) as u64 + u64::from(bits.trailing_zeros());
                return Some(from + (index + SLOTS - start as u64) % SLOTS);
            }
            word = (word + 1) % WORDS;
            bits = self.occupied[word];
        }
        None
    }

    /// Opens the next slot that holds an event before `end`; false if there is none.
    fn open_next(&mut self, end: Picoseconds) -> bool {
        let near = self.next_occupied();
        let far = (self.far_next != Picoseconds::MAX).then_some(self.far_next >> SLOT_BITS);
        let slot = match (near, far) {
            (None, None) => return false,
            (Some(slot), None) | (None, Some(slot)) => slot,
            (Some(a), Some(b)) => a.min(b),
        };
        if slot << SLOT_BITS >= end {
            return false;
        }
        debug_assert!(slot > self.open || self.far_next >> SLOT_BITS == slot);
        self.open = slot;
        if self.far_next < (slot << SLOT_BITS).saturating_add(HORIZON) {
            self.refill_wheel();
        }
        let index = (slot % SLOTS) as usize;
        let mut node = std::mem::replace(&mut self.slots[index], NONE);
        self.occupied[index / 64] &= !(1 << (index % 64));
        // The list runs from the newest to the oldest: after a stable sort by descending time and
        // key, the oldest of equals is last and popped first.
        while node != NONE {
            let Node { time, key, next, .. } = self.nodes[node as usize];
            self.due.push(Due { time, key, node });
            node = next;
        }
        let due = &mut self.due[..];
        if due.len() > 24 {
            due.sort_by_key(|d| Reverse((d.time, d.key)));
        } else {
            for i in 1..due.len() {
                let (mut j, moving) = (i, due[i]);
                while j > 0 && (due[j - 1].time, due[j - 1].key) < (moving.time, moving.key) {
                    due[j] = due[j - 1];
                    j -= 1;
                }
                due[j] = moving;
            }
        }
        true
    }

    /// Calls `soon` with the events of the slot just opened, and prefetches those of later slots. A
    /// list's links are in the cache lines to be fetched, so the first event of a list is fetched two
    /// slots ahead, and the second, which the first points to, one slot ahead.
    #[inline]
    fn prefetch_ahead(&self, mut soon: impl FnMut(&E)) {
        for due in &self.due {
            soon(&self.nodes[due.node as usize].event);
        }
        let Some(near) = self.next_occupied() else {
            return;
        };
        if let Some(first) = self.head(near) {
            soon(&first.event);
            if let Some(second) = self.nodes.get(first.next as usize) {
                prefetch(second);
            }
        }
        if let Some(further) = self.next_occupied_after(near)
            && let Some(first) = self.head(further)
        {
            prefetch(first);
        }
    }

    /// The newest event of a slot.
    #[inline]
    fn head(&self, slot: u64) -> Option<&Node<E>> {
        self.nodes.get(self.slots[(slot % SLOTS) as usize] as usize)
    }

    /// Moves the events that the wheel now reaches from the heap into it. They were inserted before
    /// any event of the same time that went directly into the wheel, and slots keep that order.
    #[cold]
    fn refill_wheel(&mut self) {
        while let Some(&Reverse((time, _, _, node))) = self.far.peek() {
            let slot = time >> SLOT_BITS;
            if slot >= self.open + SLOTS {
                break;
            }
            self.far.pop();
            self.link(slot, node);
        }
        self.far_next = self.far.peek().map_or(Picoseconds::MAX, |Reverse((time, ..))| *time);
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
