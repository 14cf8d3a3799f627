//! Credits on their way back, batched by the time at which they are due.

use crate::event::{NetEvent, NetQueue};
use crate::port::Upstream;

/// Batches are due at multiples of 2^15 ps (33 ns).
const BATCH_BITS: u32 = 15;
/// Batches that can be open at a time: credits due within 17 us.
const MAX_OPEN_BATCHES: usize = 512;

/// A credit: the channel that gets it, and bytes.
pub(crate) type Credit = (Upstream, u32);

/// Credits due at one moment.
#[derive(Clone, Default)]
struct Batch {
    /// Due at `number` << [`BATCH_BITS`].
    number: u64,
    credits: Vec<Credit>,
}

/// Credits on their way back to the ports of one group. One event returns a whole batch.
#[derive(Clone)]
pub(crate) struct CreditBatches {
    open: Vec<Batch>,
    /// Empty lists for new batches. The most recently used is reused first: it is in the cache.
    spare: Vec<Vec<Credit>>,
}

impl CreditBatches {
    pub fn new() -> Self {
        CreditBatches {
            open: (0..MAX_OPEN_BATCHES).map(|_| Batch::default()).collect(),
            spare: Vec::new(),
        }
    }

    /// Puts a credit into the first batch that is due at `at` or later.
    #[inline]
    pub fn add_credit(&mut self, at: u64, place: Upstream, bytes: u32, queue: &mut impl NetQueue) {
        let number = at.div_ceil(1 << BATCH_BITS);
        let slot = (number % MAX_OPEN_BATCHES as u64) as usize;
        let batch = &mut self.open[slot];
        if batch.credits.is_empty() {
            batch.number = number;
            batch.credits = self.spare.pop().unwrap_or_default();
            let event = NetEvent::Credits(slot as u16);
            queue.push_event(number << BATCH_BITS, NetEvent::KEY_CREDITS, event);
        } else if batch.number != number {
            let late = NetEvent::LateCredit(place.0, bytes);
            queue.push_event(number << BATCH_BITS, NetEvent::KEY_CREDITS + 1, late);
            return;
        }
        batch.credits.push((place, bytes));
    }

    /// Closes the batch of a slot and returns its credits.
    pub fn close_batch(&mut self, slot: u16) -> Vec<Credit> {
        std::mem::take(&mut self.open[usize::from(slot)].credits)
    }

    /// Takes back a list for reuse.
    pub fn recycle(&mut self, mut credits: Vec<Credit>) {
        credits.clear();
        self.spare.push(credits);
    }
}
