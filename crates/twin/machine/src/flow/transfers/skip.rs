//! Skipping of steady times.

use super::PhaseTransfers;

impl PhaseTransfers<'_> {
    /// Bytes of transfers that no process has begun.
    pub fn bytes_left(&self) -> f64 {
        let pattern = &self.runs.pattern;
        let of_rank = |next: &u64| pattern.bytes_per_rank() - pattern.bytes_of_first(*next);
        self.next.iter().map(of_rank).sum::<u64>() as f64
    }

    /// Bytes of all processes' runs to one stripe each.
    pub fn bytes_of_stripes(&self) -> f64 {
        let of_each = self.transfers_of_stripe() * self.job.pattern.transfer_bytes();
        of_each as f64 * f64::from(self.job.tasks())
    }

    /// Leaves out transfers of `bytes`: all processes that have transfers left go on with the same stripe, as at
    /// the begin of a phase. What remains to whole stripes counts when time is skipped again.
    pub fn skip(&mut self, bytes: f64) {
        let (of_stripe, pattern, last) =
            (self.transfers_of_stripe(), &self.runs.pattern, self.last);
        let going_on = || self.next.iter().filter(|next| **next < last);
        let begun: u64 = going_on().map(|next| pattern.bytes_of_first(*next)).sum();
        let one_stripe = (of_stripe * self.job.pattern.transfer_bytes()) as f64;
        let one_stripe = one_stripe * going_on().count().max(1) as f64;
        let until = begun as f64 + bytes + self.beyond_stripes;
        let stripes = (until / one_stripe + 0.5).floor().max(0.0);
        self.beyond_stripes = until - stripes * one_stripe;
        let until = last.min(stripes as u64 * of_stripe);
        for next in self.next.iter_mut().filter(|next| **next < last) {
            let (from, to) = (pattern.bytes_of_first(*next), pattern.bytes_of_first(until));
            self.skipped += to as i64 - from as i64;
            *next = until;
        }
    }
}
