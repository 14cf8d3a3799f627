//! The times at which flows end.
//!
//! A change of the rates moves the ends of all flows that it affects, and only the first of all ends is asked for. So
//! ends are stored by the numbers of the flows, with the first of each block of flows: a change costs the same for any
//! number of flows, and the first end of all is found by a look at each block.

use crate::solver::FlowId;

/// In place of a time: never.
pub(crate) const NEVER: u64 = u64::MAX;
/// Flows of a block.
const BLOCK: usize = 64;

/// The end of each flow, ps; [`NEVER`] without one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    of_flow: Vec<u64>,
    blocks: Vec<Block>,
}

/// Flows with consecutive numbers.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The first end of its flows.
    first: u64,
    /// Whether a flow that had this end has got a later one.
    is_stale: bool,
}

impl Ends {
    /// The end of a flow.
    pub fn of(&self, flow: u32) -> u64 {
        self.of_flow.get(flow as usize).copied().unwrap_or(NEVER)
    }

    /// Sets the end of a flow.
    pub fn set(&mut self, flow: u32, end: u64) {
        let flow = flow as usize;
        if self.of_flow.len() <= flow {
            self.of_flow.resize(flow + 1, NEVER);
            let empty = Block { first: NEVER, is_stale: false };
            self.blocks.resize(self.of_flow.len().div_ceil(BLOCK), empty);
        }
        let before = std::mem::replace(&mut self.of_flow[flow], end);
        let block = &mut self.blocks[flow / BLOCK];
        if end <= block.first {
            *block = Block { first: end, is_stale: false };
        } else if before == block.first {
            block.is_stale = true;
        }
    }

    /// The first end of all flows.
    pub fn first(&mut self) -> u64 {
        let mut first = NEVER;
        for (block, flows) in self.blocks.iter_mut().zip(self.of_flow.chunks(BLOCK)) {
            if block.is_stale {
                let of_block = flows.iter().copied().min().unwrap_or(NEVER);
                *block = Block { first: of_block, is_stale: false };
            }
            first = first.min(block.first);
        }
        first
    }

    /// Adds the flows that end at the time `at` to `flows`, in the order of their numbers.
    pub fn flows_at(&self, at: u64, flows: &mut Vec<FlowId>) {
        for (number, block) in self.blocks.iter().enumerate() {
            // That of a stale block is at most the first end of its flows.
            if block.first > at {
                continue;
            }
            let begin = number * BLOCK;
            let end = self.of_flow.len().min(begin + BLOCK);
            let at_time = (begin..end).filter(|flow| self.of_flow[*flow] == at);
            flows.extend(at_time.map(|flow| FlowId(flow as u32)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the ends themselves, after each of many changes.
    #[test]
    fn first_end_is_found_after_any_change() {
        let mut ends = Ends::default();
        assert_eq!(ends.first(), NEVER);
        let mut expected = vec![NEVER; 200];
        let mut random = 1_u64;
        for turn in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let flow = (random >> 33) as usize % expected.len();
            let end = if turn % 5 == 0 { NEVER } else { (random >> 40) % 50 };
            expected[flow] = end;
            ends.set(flow as u32, end);
            if turn % 3 == 0 {
                let first = expected.iter().copied().min().unwrap_or(NEVER);
                assert_eq!(ends.first(), first);
                let mut flows = Vec::new();
                ends.flows_at(first, &mut flows);
                let all = (0..200).filter(|flow| expected[*flow as usize] == first);
                assert!(first == NEVER || flows == all.map(FlowId).collect::<Vec<FlowId>>());
            }
            assert_eq!(ends.of(flow as u32), end);
        }
    }
}
