//! Replies to queries.

use std::sync::atomic::Ordering;

use forebay_control::controller::{Cause, ControlStatus, Failure};
use forebay_control::messages::InstanceId;
use forebay_store::daemon::StoreReport;

use super::{Driver, MAX_QUERY_REPLIES};
use crate::activity::{HostActivity, Status};
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
                Query::ControlStatus => {
                    let control = self.control_status();
                    Ok(QueryReply::Status(Box::new(control.into())))
                }
                Query::JobStatus(token) => {
                    Ok(QueryReply::Status(Box::new(self.job_status(&token))))
                }
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
        Status {
            control: self.control_status(),
            activity: self.activity.values().cloned().collect(),
            refused: self.refused.list(&self.policy.allowed_sources),
        }
    }

    fn control_status(&self) -> ControlStatus {
        ControlStatus { process: self.process, ..self.controller.status() }
    }

    /// The status of one job. Of the counters of hosts it has the progress of removing its instances.
    pub(super) fn job_status(&self, token: &str) -> Status {
        let control = ControlStatus { process: self.process, ..self.controller.job_status(token) };
        let is_own =
            |instance: u64| control.instances.iter().any(|own| own.id == InstanceId(instance));
        let removing = |host: &HostActivity| {
            let removals = host.store.as_ref()?.removals.iter();
            let removals: Vec<_> = removals.filter(|row| is_own(row.instance)).copied().collect();
            let store = (!removals.is_empty())
                .then(|| StoreReport { removals, ..StoreReport::default() })?;
            Some(HostActivity {
                host: host.host.clone(),
                at: host.at,
                store: Some(store),
                ..HostActivity::default()
            })
        };
        let activity = self.activity.values().filter_map(removing).collect();
        Status { control, activity, refused: self.refused.list(&self.policy.allowed_sources) }
    }
}
