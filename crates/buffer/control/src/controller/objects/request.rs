//! Accepted requests, and what they wait for.

use serde::{Deserialize, Serialize};

use crate::controller::request::Outcome;
use crate::messages::{ActivationId, SessionId, StageId, UnixMillis};

/// Condition that an accepted request waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// The session's instance can be used.
    Ready(SessionId),
    /// All these stages are done.
    Staged(Vec<StageId>),
    /// None of these stages is in progress.
    Stopped(Vec<StageId>),
    /// These activations are mounted on all their compute nodes.
    Mounted(Vec<ActivationId>),
    /// These activations are mounted nowhere.
    Unmounted(Vec<ActivationId>),
    /// The session is torn down, on all storage nodes that can be reached.
    TornDown(SessionId),
}

/// An accepted request, and its outcome once there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Time of acceptance.
    pub accepted: UnixMillis,
    /// While it waits: time at which it is answered at the latest. After that: time until which its
    /// answer is remembered.
    pub deadline: UnixMillis,
    /// The user who made it; `None` in records of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Progress.
    pub progress: RequestProgress,
}

impl RequestRecord {
    /// The answer, once there is one.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.progress {
            RequestProgress::Pending(_) => None,
            RequestProgress::Answered(outcome) => Some(outcome),
        }
    }
}

/// Progress of an accepted request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestProgress {
    /// It waits.
    Pending(Wait),
    /// It was answered.
    Answered(Outcome),
}
