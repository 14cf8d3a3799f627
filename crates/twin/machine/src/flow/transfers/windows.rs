//! The parts of a long phase that are simulated, and stand for all of it.
//!
//! Files in rotated rounds have their first round at servers that follow each other from file to file, so that processes
//! that write files of their own are spread evenly; later rounds begin at hashed servers, where processes meet. The
//! rates of both differ by more than a third, so that each has a window of its own.

use super::{PhaseTransfers, stripes_of_window};
use forebay_policy::layout::StripeOrder;

/// A part of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::flow) struct Window {
    /// Its first transfer of each process.
    pub first: u64,
    /// The share of the phase's transfers for which it stands.
    pub share: f64,
}

impl PhaseTransfers<'_> {
    /// The windows of the phase, should it be simulated in part: one in its middle, or one in the middle of the first
    /// round of the files and one in the middle of the others.
    pub fn windows(&self) -> Vec<Window> {
        let middle = Window { first: self.at_stripe(self.last / 2), share: 1.0 };
        let Some(round) = self.first_round() else { return vec![middle] };
        let window = (stripes_of_window(self.job.tasks()) + 1) * self.transfers_of_stripe();
        if round < window || self.last < round + window {
            return vec![middle];
        }
        let share = round as f64 / self.last as f64;
        // Not into the next round, and not beyond the end.
        let first = self.at_stripe((round - window) / 2);
        let later = self.at_stripe(round + (self.last - round - window) / 2);
        vec![Window { first, share }, Window { first: later, share: 1.0 - share }]
    }

    /// Transfers of a process to the first round of its file, where later rounds are in another order.
    fn first_round(&self) -> Option<u64> {
        let (job, make) = (self.job, &self.job.burst_buffer);
        let is_rotated = make.stripe_order == StripeOrder::Rotated && !job.storage.is_parallel();
        let servers = job.storage.data_servers().len() as u64;
        let has_rounds = is_rotated && !job.has_shared_file() && servers > 1;
        has_rounds.then(|| servers * make.stripe.0 / job.pattern.transfer_bytes().max(1))
    }

    /// Transfers of a process to one stripe.
    pub(super) fn transfers_of_stripe(&self) -> u64 {
        (self.job.burst_buffer.stripe.0 / self.job.pattern.transfer_bytes()).max(1)
    }

    /// The transfer with which the stripe of a transfer begins.
    fn at_stripe(&self, transfer: u64) -> u64 {
        transfer / self.transfers_of_stripe() * self.transfers_of_stripe()
    }
}
