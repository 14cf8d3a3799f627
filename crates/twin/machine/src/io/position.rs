//! The test's position: repetition and direction of the current phase, the same in all groups.

use super::collective::{CollectiveCall, Readers};
use super::job::{IoJob, RequestTag};
use super::pieces::Piece;
use forebay_workload::ior::{Access, AccessPattern, FileId, Reorder};

/// The current phase of a test.
pub(crate) struct TestPosition {
    /// The access pattern of the current repetition.
    pub pattern: AccessPattern,
    pub access: Access,
    /// The readers of each rank's data, where collective transfers are not of each rank's own.
    readers: Option<Readers>,
}

impl TestPosition {
    pub fn new(job: &IoJob) -> Self {
        TestPosition { pattern: job.pattern, access: Access::Write, readers: None }
    }

    /// Enters a phase.
    pub fn enter_phase(&mut self, iteration: u32, access: Access, job: &IoJob) {
        self.access = access;
        self.pattern = job.pattern.for_iteration(iteration);
        let reordered = access == Access::Read && job.ior.reorder != Reorder::Own;
        self.readers = (job.is_collective() && reordered).then(|| Readers::new(&self.pattern));
    }

    /// A collective call of this phase.
    pub fn collective_call(&self, call: u64, job: &IoJob) -> CollectiveCall<'_> {
        CollectiveCall::new(job, &self.pattern, call, self.readers.as_ref())
    }

    /// The file and the bytes of a request.
    pub fn piece(&self, tag: RequestTag, job: &IoJob) -> (FileId, Piece) {
        let nth = tag.request as usize;
        let (file, piece) = if job.is_collective() {
            let call = self.collective_call(tag.call, job);
            let aggregator = job.aggregators.of_rank(tag.rank);
            let mut pieces = aggregator.into_iter().flat_map(|a| call.pieces(a, job));
            (self.pattern.file(tag.rank, self.access), pieces.nth(nth))
        } else {
            let transfer = self.pattern.transfer(tag.rank, self.access, tag.call);
            let mut pieces = job.pieces(transfer.offset, transfer.bytes);
            (transfer.file, pieces.nth(nth))
        };
        let Some(piece) = piece else { unreachable!("a request beyond its transfer: {tag:?}") };
        (file, piece)
    }
}
