//! The order in which queued stages start.

use forebay_job_script::Direction;

/// A stage that waits for a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingStage {
    /// Its number, by which ties are broken.
    pub id: u64,
    /// In or out.
    pub direction: Direction,
    /// Time of its request, in milliseconds.
    pub since_ms: u64,
}

/// The stages in the order in which they start: first requested, first started. When the pool is
/// short of space, stage-outs come first, since they free space.
pub fn start_order(pending: &[PendingStage], short_of_space: bool) -> Vec<u64> {
    let mut order: Vec<&PendingStage> = pending.iter().collect();
    order.sort_by_key(|stage| {
        let frees_space = short_of_space && stage.direction == Direction::Out;
        (!frees_space, stage.since_ms, stage.id)
    });
    order.iter().map(|stage| stage.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(id: u64, direction: Direction, since_ms: u64) -> PendingStage {
        PendingStage { id, direction, since_ms }
    }

    #[test]
    fn stages_start_in_the_order_of_their_requests() {
        let stages = [
            pending(1, Direction::Out, 30),
            pending(2, Direction::In, 10),
            pending(4, Direction::In, 20),
            pending(3, Direction::Out, 20),
        ];
        assert_eq!(start_order(&stages, false), [2, 3, 4, 1]);
    }

    #[test]
    fn full_pool_starts_stage_outs_first() {
        let stages = [pending(1, Direction::In, 0), pending(2, Direction::Out, 5)];
        assert_eq!(start_order(&stages, true), [2, 1]);
    }
}
