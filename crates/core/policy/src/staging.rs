//! Which waiting stage starts next.

use forebay_job_script::Direction;
use forebay_units::{Bytes, Rate};

/// A stage that waits for a mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingStage {
    /// Its number; also the order in which ties are broken.
    pub id: u64,
    /// Which way.
    pub direction: Direction,
    /// Bytes to move, as far as known.
    pub size: Bytes,
    /// When it was asked for, in milliseconds.
    pub since_ms: u64,
    /// When it must be done, in milliseconds: the start of the job that waits for it.
    pub needed_ms: Option<u64>,
}

/// The state of the pool as far as it concerns the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Rate of one mover, for estimating how long a stage takes.
    pub rate: Rate,
    /// Whether requests wait for space, which stage-outs would give back.
    pub short_of_space: bool,
}

/// Longest time that a stage without a deadline is passed over by stages with one.
pub const PATIENCE_MS: u64 = 600_000;

/// The `slots` stages to start now, first one first.
///
/// Order is by the latest moment at which a stage can start and still be done when it is needed;
/// one that nobody waits for has patience, so it is never passed over for ever. When the pool is
/// short of space, stage-outs come first.
pub fn stages_to_start(waiting: &[PendingStage], slots: usize, pressure: &Pressure) -> Vec<u64> {
    let latest_start = |stage: &PendingStage| match stage.needed_ms {
        Some(needed) => {
            let rate = u128::from(pressure.rate.0.max(1));
            let duration = u128::from(stage.size.0) * 1000 / rate;
            needed.saturating_sub(u64::try_from(duration).unwrap_or(u64::MAX))
        }
        None => stage.since_ms.saturating_add(PATIENCE_MS),
    };
    let mut order: Vec<&PendingStage> = waiting.iter().collect();
    order.sort_by_key(|stage| {
        let gives_space = pressure.short_of_space && stage.direction == Direction::Out;
        (!gives_space, latest_start(stage), stage.since_ms, stage.id)
    });
    order.iter().take(slots).map(|stage| stage.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(
        id: u64,
        direction: Direction,
        gigabytes: u64,
        needed_ms: Option<u64>,
    ) -> PendingStage {
        PendingStage {
            id,
            direction,
            size: Bytes(gigabytes * 1_000_000_000),
            since_ms: id,
            needed_ms,
        }
    }

    const CALM: Pressure = Pressure {
        rate: Rate(1_000_000_000),
        short_of_space: false,
    };

    #[test]
    fn what_is_needed_first_and_takes_long_starts_first() {
        let stages = [
            waiting(1, Direction::Out, 1, None),
            waiting(2, Direction::In, 1, Some(100_000)),
            waiting(3, Direction::In, 60, Some(110_000)),
        ];
        assert_eq!(stages_to_start(&stages, 3, &CALM), [3, 2, 1]);
        assert_eq!(stages_to_start(&stages, 1, &CALM), [3]);
    }

    #[test]
    fn a_full_pool_puts_stage_outs_first() {
        let stages = [
            waiting(1, Direction::In, 1, Some(0)),
            waiting(2, Direction::Out, 1, None),
        ];
        assert_eq!(
            stages_to_start(
                &stages,
                2,
                &Pressure {
                    short_of_space: true,
                    ..CALM
                }
            ),
            [2, 1]
        );
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut stages = vec![waiting(1, Direction::Out, 1, None)];
        stages.push(waiting(2, Direction::In, 1, Some(PATIENCE_MS + 2_000_000)));
        assert_eq!(stages_to_start(&stages, 1, &CALM), [1]);
    }
}
