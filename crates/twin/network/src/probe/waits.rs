//! Waits of packets at links, by the job that caused them.
//!
//! A packet that is ready at a port waits first for credits of its channel and then for the link.
//!
//! - *Link*: in the time from its credits to the start of its transmission the link sends packets
//!   granted before. The packet is delayed by the job of each of them for the part of that time in
//!   which the link sends it.
//! - *Credits*: the packet is delayed by the jobs whose packets held credits of the channel, or waited
//!   for them before it, when it joined the queue: each by the share of its bytes among these.
//!
//! Both parts add up to the wait, to the picosecond. Causes are those at this link: a packet that
//! waits for credits because the next buffer is full of its own job's packets is delayed by its own
//! job, and those by whoever delays them at the next link.

use super::Grant;
use forebay_machine_file::machine::LinkClass;
use std::collections::VecDeque;

/// Jobs that are told apart.
pub const JOBS: usize = 8;

/// Waits in ps by link class (`LinkClass as usize`), waiting job and delaying job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitMatrix {
    /// Waits by cause.
    pub delays: [[[u128; JOBS]; JOBS]; 4],
    /// All waits, counted apart from their causes.
    pub totals: [[u128; JOBS]; 4],
    /// Passages of packets over links, waited or not.
    pub passages: [[u64; JOBS]; 4],
}

impl WaitMatrix {
    /// Adds delays of a packet by each job.
    pub(super) fn add(&mut self, class: LinkClass, job: u8, by: [u64; JOBS]) {
        let row = &mut self.delays[class as usize][usize::from(job)];
        row.iter_mut().zip(by).for_each(|(sum, by)| *sum += u128::from(by));
    }

    /// Adds a wait that jobs caused in proportion to their bytes. The rounding goes to the job with
    /// the most, the first of equals.
    pub(super) fn add_shares(&mut self, class: LinkClass, job: u8, wait: u64, bytes: [u64; JOBS]) {
        let total: u64 = bytes.iter().sum();
        let share = |part: u64| {
            (u128::from(wait) * u128::from(part)).checked_div(u128::from(total)).unwrap_or(0) as u64
        };
        let mut shares = bytes.map(share);
        let most = (0..JOBS).rev().max_by_key(|&j| bytes[j]).unwrap_or(0);
        shares[most] += wait - shares.iter().sum::<u64>();
        self.add(class, job, shares);
    }

    /// Counts a passage with its wait.
    pub(super) fn count(&mut self, class: LinkClass, job: u8, wait: u64) {
        self.totals[class as usize][usize::from(job)] += u128::from(wait);
        self.passages[class as usize][usize::from(job)] += 1;
    }

    /// Adds another group's waits.
    pub fn merge(&mut self, other: &WaitMatrix) {
        let pairs = self.delays.iter_mut().flatten().flatten();
        pairs.zip(other.delays.iter().flatten().flatten()).for_each(|(a, b)| *a += b);
        let totals = self.totals.iter_mut().flatten();
        totals.zip(other.totals.iter().flatten()).for_each(|(a, b)| *a += b);
        let passages = self.passages.iter_mut().flatten();
        passages.zip(other.passages.iter().flatten()).for_each(|(a, b)| *a += b);
    }
}

/// A packet that waits for credits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined {
    /// Time from which it waits, ps.
    pub ready: u64,
    /// Bytes of each job that held credits or waited for them before it.
    pub before: [u64; JOBS],
}

/// Bytes of each job that hold credits of each channel or wait for them, by index of the port.
#[derive(Clone)]
pub(super) struct Holders {
    ports: Vec<Option<Box<[[u64; JOBS]; 16]>>>,
}

impl Holders {
    pub fn new(ports: usize) -> Self {
        Holders { ports: vec![None; ports] }
    }

    /// Adds bytes; returns those of each job before.
    pub fn hold(&mut self, index: usize, channel: u8, job: u8, bytes: u32) -> [u64; JOBS] {
        let channels = self.ports[index].get_or_insert_with(Box::default);
        let held = &mut channels[usize::from(channel)];
        let before = *held;
        held[usize::from(job)] += u64::from(bytes);
        before
    }

    pub fn release(&mut self, index: usize, channel: u8, job: u8, bytes: u32) {
        let Some(channels) = &mut self.ports[index] else {
            unreachable!("a credit of a port that no packet took")
        };
        let held = &mut channels[usize::from(channel)][usize::from(job)];
        assert!(*held >= u64::from(bytes), "more credits than were taken");
        *held -= u64::from(bytes);
    }

    pub fn is_idle(&self) -> bool {
        let held = self.ports.iter().flatten().flat_map(|channels| channels.iter().flatten());
        held.sum::<u64>() == 0
    }
}

/// The transmissions granted on a link that have not ended: job and end of each run of packets of one
/// job. An idle time before a packet counts as its transmission: it delays a packet that is ready in
/// it because the link had been granted for later.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    runs: VecDeque<(u8, u64)>,
    /// Start of the first run, ps: the end of those before.
    start: u64,
}

impl Backlog {
    /// Time in which the link sends packets of each job between two times, ps.
    pub fn overlaps(&self, from: u64, to: u64) -> [u64; JOBS] {
        let mut by = [0; JOBS];
        let mut begin = self.start;
        for &(job, end) in &self.runs {
            by[usize::from(job)] += end.min(to).saturating_sub(begin.max(from));
            begin = end;
        }
        by
    }

    /// Appends a packet to the schedule after all others. A response that passes others takes the time of its transmission at the end, too, because it
    /// delays the packets that come then.
    pub fn append(&mut self, job: u8, grant: Grant) {
        while let Some(&(_, end)) = self.runs.front()
            && end <= grant.now
        {
            self.start = end;
            self.runs.pop_front();
        }
        let free_at = self.runs.back().map_or(self.start, |(_, end)| *end);
        let end = free_at.max(grant.start) + (grant.end - grant.start);
        match self.runs.back_mut() {
            Some(last) if last.0 == job => last.1 = end,
            Some(_) | None => self.runs.push_back((job, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the first jobs; the others have none.
    fn by(first: &[u64]) -> [u64; JOBS] {
        std::array::from_fn(|job| first.get(job).copied().unwrap_or(0))
    }

    fn grant(ready: u64, start: u64, end: u64) -> Grant {
        Grant { ready, start, end, now: ready }
    }

    /// Two packets of job 0 (0 to 20), one of job 1 (20 to 30): a packet ready at 5 that starts at
    /// 30 is delayed by job 0 for 15 and by job 1 for 10.
    #[test]
    fn wait_for_the_link_is_split_by_the_transmissions_in_it() {
        let mut backlog = Backlog::default();
        for (job, start, end) in [(0, 0, 10), (0, 10, 20), (1, 20, 30)] {
            backlog.append(job, grant(0, start, end));
        }
        assert_eq!(backlog.overlaps(5, 30), by(&[15, 10]));
        assert_eq!(backlog.runs.len(), 2);
        // At 25 the first run is over.
        backlog.append(0, grant(25, 30, 40));
        assert_eq!(backlog.overlaps(25, 40), by(&[10, 5]));
        assert_eq!(backlog.runs.len(), 2);
        // After an idle time nothing is left.
        backlog.append(1, grant(100, 100, 110));
        assert_eq!(backlog.overlaps(100, 110), by(&[0, 10]));
    }

    /// Granted at 0 for 100, when the packet is ready; another one is ready at 20 and starts at 110.
    #[test]
    fn time_before_a_grant_for_later_counts_for_its_job() {
        let mut backlog = Backlog::default();
        backlog.append(1, Grant { ready: 100, start: 100, end: 110, now: 0 });
        assert_eq!(backlog.overlaps(20, 110), by(&[0, 90]));
    }

    #[test]
    fn shares_of_a_wait_for_credits_add_up_to_it() {
        let mut waits = WaitMatrix::default();
        waits.add_shares(LinkClass::Rank1, 2, 100, by(&[1, 2]));
        assert_eq!(waits.delays[LinkClass::Rank1 as usize][2], by(&[33, 67]).map(u128::from));
        waits.add_shares(LinkClass::Rank1, 2, 7, [0; JOBS]);
        assert_eq!(waits.delays[LinkClass::Rank1 as usize][2].iter().sum::<u128>(), 107);
    }

    #[test]
    fn holders_return_the_bytes_before() {
        let mut holders = Holders::new(3);
        assert_eq!(holders.hold(2, 5, 1, 100), [0; JOBS]);
        assert_eq!(holders.hold(2, 5, 0, 30), by(&[0, 100]));
        assert!(!holders.is_idle());
        holders.release(2, 5, 1, 100);
        holders.release(2, 5, 0, 30);
        assert!(holders.is_idle());
    }
}
