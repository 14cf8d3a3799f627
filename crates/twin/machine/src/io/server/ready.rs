//! Requests that wait for a thread of a server.

use crate::io::job::RequestTag;
use std::collections::VecDeque;

/// The order in which the requests of several jobs get the threads of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerQueues {
    /// In the order of their dispatch.
    #[default]
    Arrival,
    /// One of each job in turn, as far as it has any.
    FairShares,
}

/// Dispatched requests without a thread, in one queue or one for each job.
pub(super) struct ReadyRequests {
    queues: Vec<VecDeque<u32>>,
    /// The queue whose turn is next.
    turn: usize,
}

impl ReadyRequests {
    pub fn new(order: ServerQueues) -> Self {
        let queues = match order {
            ServerQueues::Arrival => 1,
            ServerQueues::FairShares => RequestTag::MAX_JOBS as usize,
        };
        ReadyRequests { queues: vec![VecDeque::new(); queues], turn: 0 }
    }

    pub fn push(&mut self, request: u32, job: u8) {
        let queue = usize::from(job) % self.queues.len();
        self.queues[queue].push_back(request);
    }

    pub fn pop(&mut self) -> Option<u32> {
        let count = self.queues.len();
        let queue =
            (0..count).map(|i| (self.turn + i) % count).find(|i| !self.queues[*i].is_empty())?;
        self.turn = (queue + 1) % count;
        self.queues[queue].pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn popped(order: ServerQueues) -> Vec<u32> {
        let mut ready = ReadyRequests::new(order);
        [(0, 0), (1, 0), (2, 0), (3, 4), (4, 4), (5, 1)]
            .iter()
            .for_each(|(request, job)| ready.push(*request, *job));
        std::iter::from_fn(|| ready.pop()).collect()
    }

    #[test]
    fn fair_queues_serve_one_request_of_each_job_in_turn() {
        assert_eq!(popped(ServerQueues::Arrival), [0, 1, 2, 3, 4, 5]);
        assert_eq!(popped(ServerQueues::FairShares), [0, 5, 3, 1, 4, 2]);
    }
}
