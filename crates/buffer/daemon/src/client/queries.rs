//! Queries of a client.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use forebay_control::controller::{
    Cause, ControlStatus, Failure, InstanceSpec, JobUsage, JobView, PlannedAllocation,
    RequestedStage,
};
use forebay_control::messages::StageId;
use forebay_job_script::BufferPath;
use forebay_protocol::staging::{JOB_VARIABLE, SOCKET_VARIABLE};

use super::{ControllerClient, Work, controller_gone};
use crate::activity::Status;
use crate::messages::{Query, QueryReply};

/// Time for the reply to a query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

impl ControllerClient {
    fn query(&self, query: Query, timeout: Duration) -> Result<QueryReply, Failure> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let (reply, receiver) = sync_channel(1);
        self.work.send(Work::Query(number, query, reply)).map_err(|_| controller_gone())?;
        receiver.recv_timeout(timeout).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Disconnected => controller_gone(),
                RecvTimeoutError::Timeout => {
                    let reason = "timeout: no reply from the pool's controller; it may be \
                                  restarting";
                    Failure::new(Cause::TimedOut, reason)
                }
            })
        })
    }

    /// Pools, nodes, sessions, instances and stages, and the nodes' counters.
    pub fn status(&self) -> Result<Status, Failure> {
        self.status_within(QUERY_TIMEOUT)
    }

    /// As [`status`](Self::status), with a timeout.
    pub fn status_within(&self, timeout: Duration) -> Result<Status, Failure> {
        self.status_query(Query::Status, timeout)
    }

    /// As [`status`](Self::status), without the nodes' counters if the controller can leave them out.
    pub fn control_status(&self) -> Result<ControlStatus, Failure> {
        Ok(self.status_query(Query::ControlStatus, QUERY_TIMEOUT)?.control)
    }

    /// The part of the [`status`](Self::status) that concerns a job or persistent instance: its session,
    /// its stages, its instances and their nodes, nodes that are offline and hosts that are refused. A
    /// controller of an earlier release replies with the whole status.
    pub fn job_status(&self, token: &str) -> Result<Status, Failure> {
        self.status_query(Query::JobStatus(token.to_owned()), QUERY_TIMEOUT)
    }

    fn status_query(&self, query: Query, timeout: Duration) -> Result<Status, Failure> {
        match self.query(query, timeout)? {
            QueryReply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// The environment variables that name the mount points of a session's job, with their values.
    fn mount_variables(&self, token: &str) -> Result<Vec<(String, String)>, Failure> {
        match self.query(Query::MountVariables(token.to_owned()), QUERY_TIMEOUT)? {
            QueryReply::MountVariables(variables) => Ok(variables),
            other => Err(unexpected(&other)),
        }
    }

    /// The environment variables for the processes of a session's job: its mounts, and how they ask
    /// to stage.
    pub fn job_environment(&self, token: &str) -> Result<Vec<(String, String)>, Failure> {
        let mut environment = self.mount_variables(token)?;
        let socket = self.job_api_socket.display().to_string();
        environment.push((JOB_VARIABLE.to_owned(), token.to_owned()));
        environment.push((SOCKET_VARIABLE.to_owned(), socket));
        Ok(environment)
    }

    /// A job, as its own processes may see it.
    pub fn job_view(&self, token: &str) -> Result<JobView, Failure> {
        match self.query(Query::Job(token.to_owned()), QUERY_TIMEOUT)? {
            QueryReply::Job(job) => Ok(job),
            other => Err(unexpected(&other)),
        }
    }

    /// The stages that a running job has requested, as
    /// [`Controller::requested_stages`](forebay_control::controller::Controller::requested_stages)
    /// selects them.
    pub fn requested_stages(
        &self,
        token: &str,
        paths: &[BufferPath],
        ids: &[StageId],
    ) -> Result<Vec<RequestedStage>, Failure> {
        let query = Query::RequestedStages(token.to_owned(), paths.to_vec(), ids.to_vec());
        match self.query(query, QUERY_TIMEOUT)? {
            QueryReply::RequestedStages(stages) => Ok(stages),
            other => Err(unexpected(&other)),
        }
    }

    /// Statistics of the jobs and persistent instances of this name, or of all, by the time of their
    /// set-up.
    pub fn job_usage(&self, token: Option<&str>) -> Result<Vec<JobUsage>, Failure> {
        match self.query(Query::JobUsage(token.map(str::to_owned)), QUERY_TIMEOUT)? {
            QueryReply::JobUsage(usage) => Ok(usage),
            other => Err(unexpected(&other)),
        }
    }

    /// The allocation that an instance would get, as
    /// [`Controller::plan_allocation`](forebay_control::controller::Controller::plan_allocation)
    /// computes it.
    pub fn plan_allocation(
        &self,
        spec: InstanceSpec,
        timeout: Duration,
    ) -> Result<PlannedAllocation, Failure> {
        match self.query(Query::Allocation(Box::new(spec)), timeout)? {
            QueryReply::Allocation(allocation) => Ok(allocation),
            other => Err(unexpected(&other)),
        }
    }
}

/// The controller replied to another query than was sent.
fn unexpected(reply: &QueryReply) -> Failure {
    let kind = match reply {
        QueryReply::Status(_) => "status",
        QueryReply::MountVariables(_) => "mount variables",
        QueryReply::Job(_) => "job",
        QueryReply::RequestedStages(_) => "stages",
        QueryReply::Allocation(_) => "allocation",
        QueryReply::JobUsage(_) => "usage",
    };
    Failure::new(
        Cause::Failed,
        format!("protocol error: the controller replied with {kind} to another query"),
    )
}
