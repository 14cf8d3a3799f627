//! Stages that make no progress, such as those of a user whose directory on the parallel file system
//! does not respond. Their movers wait, and are not counted among those of their node, so that the
//! stages of others go on.

use std::collections::BTreeMap;

use super::stage_table::StageTable;
use crate::messages::{StageId, StageProgress, UnixMillis};

/// Time without progress after which a stage counts as stalled. It may go on at any time.
const STALL_MS: u64 = 60_000;
/// So many times the movers of a node may be stalled without taking one from others: each is a thread
/// with its buffers.
const MAX_STALLED_FACTOR: usize = 3;

/// When the stages with a mover have last made progress, as this process has seen it.
#[derive(Clone, Debug, Default)]
pub(super) struct StalledStages {
    last: BTreeMap<StageId, (StageProgress, UnixMillis)>,
}

impl StalledStages {
    /// Notes the progress of all stages with a mover.
    pub(super) fn observe(&mut self, stages: &StageTable, now: UnixMillis) {
        let last = std::mem::take(&mut self.last);
        let moving = stages.in_progress().filter(|(_, stage)| stage.state.has_mover());
        for (id, stage) in moving {
            let progress = stages.progress(id, stage);
            let known = last.get(&id).filter(|(known, _)| *known == progress);
            let since = known.map_or(now, |(_, since)| *since);
            self.last.insert(id, (progress, since));
        }
    }

    /// Whether a stage has a mover that has made no progress for [`STALL_MS`].
    pub(super) fn contains(&self, id: StageId, now: UnixMillis) -> bool {
        self.last.get(&id).is_some_and(|(_, since)| now.ms_since(*since) >= STALL_MS)
    }
}

/// The movers of a node that count against its limit of `max`.
pub(super) fn counted_movers(moving: usize, stalled: usize, max: usize) -> usize {
    moving + stalled.saturating_sub(max.saturating_mul(MAX_STALLED_FACTOR))
}
