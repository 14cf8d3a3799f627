//! Requests to the controller, and its replies.

use serde::{Deserialize, Serialize};

use crate::graph::Job;

/// A request to the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// The caller's workflows; those of all users for root.
    Status,
}

/// The reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To [`Request::Status`]: all jobs, in the order of their ids.
    Status(Vec<Job>),
    /// The request failed, for this reason.
    Failed(String),
}
