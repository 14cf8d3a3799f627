//! Having the kernel read what comes next while what came before is worked on.

use std::num::NonZeroU64;

use rustix::fs::{Advice, fadvise};

use crate::copy::CHUNK;
use crate::end::Body;

/// Bytes that are asked for at a time: of more than the largest request of its device the kernel
/// reads only the beginning.
const STEP: u64 = CHUNK as u64;
/// So far ahead, in steps.
const STEPS: u64 = 4;

/// How far one stretch of a file was asked for.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    asked: u64,
}

impl Ahead {
    /// What is at `at` is about to be read, and then all up to `end`.
    pub fn of(&mut self, body: &dyn Body, at: u64, end: u64) {
        let Some(descriptor) = body.descriptor() else {
            return;
        };
        while let Some((from, length)) = self.due(at, end) {
            // Whatever it did not begin with is read when it is wanted.
            let _ = fadvise(descriptor, from, NonZeroU64::new(length), Advice::WillNeed);
        }
    }

    /// The next bytes to ask for: where, and how many.
    fn due(&mut self, at: u64, end: u64) -> Option<(u64, u64)> {
        let from = self.asked.max(at);
        let to = from.saturating_add(STEP).min(end);
        if to <= from || from >= at.saturating_add(STEPS * STEP) {
            return None;
        }
        self.asked = to;
        Some((from, to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_is_asked_for_once_and_no_further_ahead_than_that() {
        let mut ahead = Ahead::default();
        let (mut at, end) = (10, 10 + 20 * STEP + 5);
        let mut reached = at;
        while at < end {
            while let Some((from, length)) = ahead.due(at, end) {
                assert_eq!(from, reached);
                reached += length;
            }
            assert_eq!(reached, (at + STEPS * STEP).min(end));
            at += STEP;
        }
    }

    proptest! {
        #[test]
        fn never_more_than_there_is(reads: Vec<(u32, u32)>) {
            let mut ahead = Ahead::default();
            for (at, length) in reads {
                let (at, end) = (u64::from(at), u64::from(at) + u64::from(length));
                while let Some((from, length)) = ahead.due(at, end) {
                    prop_assert!(from >= at && (1..=STEP).contains(&length));
                    prop_assert!(from + length <= end && from < at + STEPS * STEP);
                }
            }
        }
    }
}
