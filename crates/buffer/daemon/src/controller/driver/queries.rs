//! Replies to queries.

use std::sync::atomic::Ordering;

use forebay_control::controller::{Cause, Failure};

use super::{Driver, MAX_QUERY_REPLIES};
use crate::activity::Status;
use crate::controller::port::ConnectionId;
use crate::messages::{FromController, Query, QueryReply};

impl Driver {
    pub(super) fn query(&mut self, id: ConnectionId, number: u64, query: Query) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let caller = connection.caller;
        let waiting = connection.query_replies.fetch_add(1, Ordering::AcqRel);
        let reply = if waiting >= MAX_QUERY_REPLIES {
            let reason = format!("{MAX_QUERY_REPLIES} replies have not been read; read them first");
            Err(Failure::new(Cause::Busy, reason))
        } else {
            match query {
                Query::Status => Ok(QueryReply::Status(Box::new(self.status()))),
                Query::MountVariables(token) => {
                    self.controller.mount_variables(&token, caller).map(QueryReply::MountVariables)
                }
                Query::Job(token) => self.controller.job_view(&token, caller).map(QueryReply::Job),
                Query::RequestedStages(token, about, numbers) => self
                    .controller
                    .requested_stages(&token, caller, &about, &numbers)
                    .map(QueryReply::RequestedStages),
                Query::Allocation(spec) => {
                    self.controller.plan_allocation(&spec).map(QueryReply::Allocation)
                }
                Query::JobUsage(token) => {
                    Ok(QueryReply::JobUsage(self.controller.job_usage(token.as_deref())))
                }
            }
        };
        self.send(id, FromController::QueryReply(number, reply));
    }

    pub(super) fn status(&self) -> Status {
        let mut control = self.controller.status();
        control.process = self.process;
        Status {
            control,
            activity: self.activity.values().cloned().collect(),
            refused: self.refused.list(&self.policy.allowed_sources),
        }
    }
}
