//! Views of a running job, and of the stages that it has requested, for the processes of the job.

use std::collections::BTreeSet;

use forebay_job_script::{AccessMode, BufferPath, InstanceRef, InstanceType, Stage};
use serde::{Deserialize, Serialize};

use super::job_index::requested_path;
use super::machine::Controller;
use super::objects::{Session, StageState};
use super::request::Failure;
use crate::messages::{
    ActivationId, FailedFile, InstanceId, Owner, SessionId, StageId, StageProgress,
};

/// A stage that a running job has requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedStage {
    /// Id.
    pub id: StageId,
    /// Source and destination.
    pub directive: Stage,
    /// State.
    pub state: StageState,
    /// Progress.
    pub progress: StageProgress,
    /// If it failed: the files that could not be staged, as far as they are remembered.
    pub failed_files: Vec<FailedFile>,
}

/// Striping of an instance's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Striping {
    /// Bytes in a stripe.
    pub size: u64,
    /// Number of storage nodes with stripes.
    pub nodes: u16,
}

/// A job, as its own processes may know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Its environment variables and the mount points that they name; these end with `/`.
    pub mount_variables: Vec<(String, String)>,
    /// Whether it is mounted and is to stay so.
    pub mounted: bool,
    /// Striping of its instances.
    pub striping: Vec<(InstanceRef, Striping)>,
}

impl Controller {
    /// Reason why a stage cannot be requested before another one of the same path has ended, if so.
    pub(super) fn conflicting_stage(
        &self,
        session: SessionId,
        directive: &Stage,
    ) -> Option<String> {
        let path = requested_path(directive)?;
        let stages = &self.state.stages;
        let stage = stages.get(stages.job_stages().get(session, path)?)?;
        if stage.state == StageState::Waiting {
            let reason = "deferred to the end of the job; revoke that first";
            return Some(format!("{}: {reason}", path.path));
        }
        let in_progress = stage.state.is_in_progress();
        in_progress.then(|| format!("{}: already being staged", path.path))
    }

    /// A failed stage that a new one of the same path takes the place of: it is not tried again at
    /// the end of the job.
    pub(super) fn failed_predecessor(
        &self,
        session: SessionId,
        directive: &Stage,
    ) -> Option<StageId> {
        let stages = &self.state.stages;
        let id = stages.job_stages().get(session, requested_path(directive)?)?;
        let earlier = stages.get(id)?;
        let same = (earlier.directive.direction, earlier.directive.kind)
            == (directive.direction, directive.kind);
        (same && matches!(earlier.state, StageState::Failed(_))).then_some(id)
    }

    /// A job, as its own processes may know it.
    pub fn job_view(&self, token: &str, caller: Owner) -> Result<JobView, Failure> {
        let (_, session) =
            self.state.sessions.authorized(token, self.with_operator_rights(caller))?;
        let is_mounted = |id: &ActivationId| {
            let activation = self.state.sessions.activation(*id);
            activation.is_some_and(|activation| activation.ending.is_none())
        };
        let striping = |id: InstanceId| {
            let instance = self.state.storage.instance(id)?;
            let instance_ref = self.instance_ref_of(session, id)?;
            let place = self.fragment_place(*instance.fragments.first()?, id)?;
            let (size, nodes) = (place.stripe_bytes, place.nodes);
            Some((instance_ref, Striping { size, nodes }))
        };
        let instances = self.instances_of(session).into_iter();
        Ok(JobView {
            mount_variables: self.mount_variables_of(session),
            mounted: !session.ending && session.activations.iter().any(is_mounted),
            striping: instances.filter_map(striping).collect(),
        })
    }

    /// The environment variables of a job and the mount points that they name; these end with `/`.
    pub fn mount_variables(
        &self,
        token: &str,
        caller: Owner,
    ) -> Result<Vec<(String, String)>, Failure> {
        let (_, session) =
            self.state.sessions.authorized(token, self.with_operator_rights(caller))?;
        Ok(self.mount_variables_of(session))
    }

    fn mount_variables_of(&self, session: &Session) -> Vec<(String, String)> {
        let configurations = session.configurations.iter();
        let variable = |id| {
            let row = self.state.storage.configuration(id)?;
            let instance = self.state.storage.instance(row.instance);
            let label = instance.map(|instance| instance.label.as_str());
            let persistent = label.filter(|_| session.instance != Some(row.instance));
            let name = mount_variable(&row.kind, row.mode, persistent);
            Some((name, self.mount_path(session, id)?))
        };
        configurations.filter_map(|id| variable(*id)).collect()
    }

    /// The stages that a running job has requested and that concern one of `paths` (at, below or
    /// above it), or have one of `ids`; in the order in which they were requested.
    pub fn requested_stages(
        &self,
        token: &str,
        caller: Owner,
        paths: &[BufferPath],
        ids: &[StageId],
    ) -> Result<Vec<RequestedStage>, Failure> {
        let (session, _) =
            self.state.sessions.authorized(token, self.with_operator_rights(caller))?;
        let stages = &self.state.stages;
        let mut found: BTreeSet<StageId> = ids.iter().copied().collect();
        for path in paths {
            stages.job_stages().find_related(session, path, &mut found);
        }
        let requested = |id: StageId| {
            let stage = stages.get(id).filter(|stage| stage.session == session)?;
            Some(RequestedStage {
                id,
                directive: stage.directive.clone(),
                state: stage.state.clone(),
                progress: stages.progress(id, stage),
                failed_files: stage.failed_files.clone(),
            })
        };
        Ok(found.into_iter().filter_map(requested).collect())
    }
}

/// The environment variable that names the mount point of an access mode.
pub fn mount_variable(kind: &InstanceType, mode: AccessMode, persistent: Option<&str>) -> String {
    match (persistent, kind, mode) {
        (Some(name), _, AccessMode::Private) => format!("DW_PERSISTENT_PRIVATE_{name}"),
        (Some(name), _, _) => format!("DW_PERSISTENT_STRIPED_{name}"),
        (None, InstanceType::Cache { .. }, AccessMode::LoadBalanced) => "DW_JOB_LDBAL_CACHE".into(),
        (None, InstanceType::Cache { .. }, _) => "DW_JOB_STRIPED_CACHE".into(),
        (None, InstanceType::Scratch, AccessMode::Private) => "DW_JOB_PRIVATE".into(),
        // DataWarp balances the load of caches only; this name is ours.
        (None, InstanceType::Scratch, AccessMode::LoadBalanced) => "DW_JOB_LDBALANCE".into(),
        (None, InstanceType::Scratch, _) => "DW_JOB_STRIPED".into(),
    }
}
