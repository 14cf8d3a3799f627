//! Stages and their states.

use forebay_job_script::{Stage, StageKind, StagePath};
use forebay_policy::pool::NodeId;
use forebay_protocol::Errno;
use serde::{Deserialize, Serialize};

use crate::controller::request::Lifetime;
use crate::controller::shares::StageShare;
use crate::messages::{FailedFile, FragmentId, InstanceId, SessionId, StageProgress, UnixMillis};

/// State of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    /// Not yet to start.
    Waiting,
    /// To start when a mover is free.
    Queued,
    /// Its node moves data.
    Running,
    /// Its node is asked to stop.
    Cancelling,
    /// Moved, and durable at its destination.
    Done,
    /// Failed for this reason; the source is untouched.
    Failed(String),
    /// Stopped.
    Cancelled,
}

impl StageState {
    /// Whether a mover works on it or is about to.
    pub fn is_in_progress(&self) -> bool {
        match self {
            StageState::Queued | StageState::Running | StageState::Cancelling => true,
            StageState::Waiting
            | StageState::Done
            | StageState::Failed(_)
            | StageState::Cancelled => false,
        }
    }

    /// Whether its node has a mover for it.
    pub fn has_mover(&self) -> bool {
        self.is_in_progress() && *self != StageState::Queued
    }

    /// Whether nothing is left to move.
    pub fn is_settled(&self) -> bool {
        matches!(self, StageState::Done | StageState::Cancelled)
    }
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRecord {
    /// Its session.
    pub session: SessionId,
    /// Its instance.
    pub instance: InstanceId,
    /// The replica that it fills, if the instance is load-balanced.
    pub replica: Option<FragmentId>,
    /// Source and destination.
    pub directive: Stage,
    /// The storage node that moves the data; of several, the one with the first share.
    pub node: Option<NodeId>,
    /// The shares of the storage nodes that move the data together; empty if one node moves all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<StageShare>,
    /// Number of the current attempt.
    pub attempt: u32,
    /// State.
    pub state: StageState,
    /// Time at which it was last queued.
    pub queued: UnixMillis,
    /// Progress at the end of the last attempt.
    pub moved: StageProgress,
    /// Files that could not be staged in a failed attempt, as far as they are remembered.
    pub failed_files: Vec<FailedFile>,
    /// Number of the last attempts that have failed because the source does not exist.
    #[serde(default)]
    pub without_source: u8,
    /// The instance of which this is a complete copy, if it is the copy of an evacuation. The
    /// directive then is a description only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_of: Option<InstanceId>,
}

impl StageRecord {
    /// A stage that waits until it is queued.
    pub(in crate::controller) fn waiting(
        session: SessionId,
        instance: InstanceId,
        directive: Stage,
        now: UnixMillis,
    ) -> StageRecord {
        StageRecord {
            session,
            instance,
            replica: None,
            directive,
            node: None,
            shares: Vec::new(),
            attempt: 0,
            state: StageState::Waiting,
            queued: now,
            moved: StageProgress::default(),
            failed_files: Vec::new(),
            without_source: 0,
            copy_of: None,
        }
    }

    /// The storage nodes that move its data: that of share 0 first.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let one = self.node.filter(|_| self.shares.is_empty());
        one.into_iter().chain(self.shares.iter().map(|share| share.node))
    }

    /// The storage nodes that have a mover for it, if it has movers.
    pub(in crate::controller) fn busy_nodes(&self) -> impl Iterator<Item = NodeId> {
        let has_ended = |node: &NodeId| {
            self.shares.iter().any(|share| share.node == *node && share.end.is_some())
        };
        self.nodes().filter(move |node| !has_ended(node))
    }

    /// The share of a storage node.
    pub(in crate::controller) fn share_of(&self, node: NodeId) -> Option<u32> {
        let index = self.shares.iter().position(|share| share.node == node);
        index.and_then(|index| u32::try_from(index).ok())
    }

    /// Whether it is a stage-out that holds no results back, because its last attempts have failed since
    /// nothing has been written at its source. For a job once is not enough: the user may want to save
    /// files at another path. In a persistent instance no script will write there and try again.
    pub(in crate::controller) fn has_no_source(&self, lifetime: Lifetime) -> bool {
        let attempts = match lifetime {
            Lifetime::Persistent => 1,
            Lifetime::Job => 2,
        };
        self.without_source >= attempts && matches!(self.state, StageState::Failed(_))
    }

    /// The path of its source, for messages.
    pub(in crate::controller) fn source_path(&self) -> String {
        match &self.directive.source {
            StagePath::Buffer(source) => format!("{}/{}", source.instance.variable(), source.path),
            StagePath::Pfs(path) => path.clone(),
        }
    }

    /// Whether these files of a failed attempt show that the source, a file or directory that the
    /// directive has named, does not exist.
    pub(in crate::controller) fn lacks_source(&self, failed: &[FailedFile]) -> bool {
        let missing =
            |file: &FailedFile| file.errno == Errno::ENOENT.0 && file.path == self.source_path();
        matches!(self.directive.source, StagePath::Buffer(_))
            && matches!(self.directive.kind, StageKind::File | StageKind::Directory)
            && matches!(failed, [file] if missing(file))
    }
}
