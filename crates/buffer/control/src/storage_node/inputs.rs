//! Inputs and effects of a storage node.

use forebay_units::Bytes;

use crate::messages::{
    FragmentId, FragmentPlan, HostFence, Report, ShareDecision, ShareTally, StageFailure, StageId,
    StagePlan, StageProgress, StampedCommand, StorageCommand,
};
use crate::records::Change;

/// Input of a storage node.
#[derive(Clone, Debug)]
pub enum StorageInput {
    /// The node starts; first input after [`StorageNode::restore`](super::StorageNode::restore).
    Started,
    /// A command from the controller.
    Command(StampedCommand<StorageCommand>),
    /// [`StorageEffect::Create`] was carried out.
    Created(FragmentId, Result<(), String>),
    /// [`StorageEffect::FenceHosts`] was carried out for the fences up to this one.
    HostsFenced(FragmentId, u64, Result<(), String>),
    /// [`StorageEffect::Destroy`] was carried out.
    Destroyed(FragmentId, Result<(), String>),
    /// Progress of a mover on an attempt of a stage.
    MoverProgress(StageId, u32, StageProgress),
    /// The mover of an attempt has copied its share of the stage, and waits.
    ShareCopied(StageId, u32, ShareTally),
    /// A mover ended its attempt of a stage.
    MoverEnded(StageId, u32, MoverOutcome),
    /// A heartbeat is due; about once a second.
    Tick {
        /// Bytes that this process has written to flash since it started.
        written: Bytes,
    },
}

/// Outcome of a mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoverOutcome {
    /// All data is on stable storage.
    Completed(StageProgress),
    /// The stage failed.
    Failed(StageFailure),
    /// [`StorageEffect::StopMover`] stopped the mover.
    Stopped,
}

/// Effect of a step of a storage node. The effects of a step are carried out in order.
#[derive(Clone, Debug)]
pub enum StorageEffect {
    /// Make these records durable before what follows.
    Persist(Vec<Change>),
    /// Create a fragment, unless it exists already.
    Create(FragmentPlan),
    /// Destroy a fragment, if it exists.
    Destroy(FragmentPlan),
    /// Refuse mounts of these hosts. The fences up to the given one hold then.
    FenceHosts(FragmentPlan, Vec<HostFence>, u64),
    /// Start a mover; it resumes an attempt that was interrupted.
    StartMover(StagePlan),
    /// Stop the mover of this attempt; [`StorageInput::MoverEnded`] follows if it runs.
    StopMover(StageId, u32),
    /// Let the mover of this attempt, which has copied its share of the stage, continue.
    ReleaseMover(StageId, u32, ShareDecision),
    /// Send a report to the controller.
    Report(Report),
}
