//! A request on its way.

use super::Request;
use crate::credentials::Credentials;
use serde::{Deserialize, Serialize};

/// A request with its place in the slot's order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Number of the request in its slot: one more than that of the one before it.
    pub seq: u64,
    /// On whose behalf; `None` for the peer itself.
    pub caller: Option<Credentials>,
    /// What to do.
    pub request: Request,
}

impl Call {
    /// A call on behalf of the peer itself.
    pub fn new(seq: u64, request: impl Into<Request>) -> Call {
        Call { seq, caller: None, request: request.into() }
    }
}
