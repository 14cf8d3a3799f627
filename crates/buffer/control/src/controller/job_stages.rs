//! What a running job has asked to be staged, by path, and what its processes are told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use forebay_job_script::{BufferPath, Direction, InstanceRef, Stage, StagePath};
use serde::{Deserialize, Serialize};

use super::*;
use crate::messages::*;

/// The last stage of each path in an instance for which a running job has asked for one.
#[derive(Clone, Debug, Default)]
pub(super) struct JobStages {
    last: BTreeMap<(SessionId, BufferPath), StageId>,
}

/// The end of a stage that is in the instance, if a running job has asked for it.
fn asked_for(what: &Stage) -> Option<&BufferPath> {
    let inside = match what.direction {
        Direction::In => &what.destination,
        Direction::Out => &what.source,
    };
    match inside {
        StagePath::Buffer(inside) if what.line == 0 => Some(inside),
        _ => None,
    }
}

impl JobStages {
    /// A stage was asked for; it takes the place of an earlier one of the same path.
    pub fn insert(&mut self, session: SessionId, id: StageId, what: &Stage) {
        if let Some(inside) = asked_for(what) {
            self.last.insert((session, inside.clone()), id);
        }
    }

    /// A session has ended.
    pub fn remove_session(&mut self, session: SessionId) {
        let first = BufferPath {
            instance: InstanceRef::Job,
            path: String::new(),
        };
        let of = self.last.range((session, first)..);
        let of = of.take_while(|((other, _), _)| *other == session);
        let keys: Vec<(SessionId, BufferPath)> = of.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.last.remove(&key);
        }
    }

    /// These stages are not known any more.
    pub fn remove_stages(&mut self, stages: &[StageId]) {
        self.last.retain(|_, id| !stages.contains(id));
    }

    fn get(&self, session: SessionId, path: &BufferPath) -> Option<StageId> {
        self.last.get(&(session, path.clone())).copied()
    }

    /// The stages at a path, at those below it, and at those above it.
    fn about(&self, session: SessionId, path: &BufferPath, found: &mut BTreeSet<StageId>) {
        let below = self.last.range((session, path.clone())..);
        // What is below sorts behind it, but not at once: `a-b` comes between `a` and `a/b`.
        let below = below.take_while(|((of, other), _)| {
            *of == session && other.instance == path.instance && other.path.starts_with(&path.path)
        });
        let within = |other: &BufferPath| Path::new(&other.path).starts_with(&path.path);
        found.extend(
            below
                .filter(|((_, other), _)| within(other))
                .map(|(_, id)| *id),
        );
        let above = Path::new(&path.path).ancestors().skip(1);
        for above in above.filter_map(Path::to_str) {
            let above = BufferPath {
                instance: path.instance.clone(),
                path: above.to_owned(),
            };
            found.extend(self.get(session, &above));
        }
    }
}

/// A stage that a running job has asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedStage {
    /// Its number.
    pub id: StageId,
    /// What and where.
    pub directive: Stage,
    /// How far.
    pub state: StageState,
    /// Files and bytes.
    pub progress: StageProgress,
    /// If it failed: the files that were in the way, as far as they are remembered.
    pub failed_files: Vec<FailedFile>,
}

/// How the files of an instance are striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Striping {
    /// Bytes in a stripe.
    pub size: u64,
    /// Storage nodes that stripes are on.
    pub nodes: u16,
}

/// A job as its own processes may know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    /// Its variables and what they are set to; values end with `/`.
    pub mount_variables: Vec<(String, String)>,
    /// Whether it is mounted, and not about to be unmounted.
    pub mounted: bool,
    /// How the files of its instances are striped.
    pub stripes: Vec<(InstanceRef, Striping)>,
}

impl Controller {
    /// Why another stage of the same path has to end first, if one does.
    pub(super) fn conflicting_stage(&self, session: SessionId, what: &Stage) -> Option<String> {
        let path = asked_for(what)?;
        let stage = self
            .state
            .stages
            .get(self.job_stages.get(session, path)?.0)?;
        let why = match stage.state {
            StageState::Waiting => "waits for the job's end; revoke that first",
            _ if stage.in_progress() => "is being staged already",
            _ => return None,
        };
        Some(format!("{}: {why}", path.path))
    }

    /// A job as its own processes may know it.
    pub fn job_view(&self, token: &str, caller: Owner) -> Result<JobView, Failure> {
        let (_, session) = self.state.authorized_session(token, caller)?;
        let ended = |id: &ActivationId| {
            let row = self.state.activations.get(id.0);
            row.is_none_or(|row| row.ending.is_some())
        };
        let mounted = !session.ending
            && !session.activations.is_empty()
            && !session.activations.iter().all(ended);
        let stripes = |id: InstanceId| {
            let instance = self.state.instances.get(id.0)?;
            let space = self.space_of(session, id)?;
            let place = self.fragment_place(*instance.fragments.first()?, id)?;
            let (size, nodes) = (place.stripe_bytes, place.nodes);
            Some((space, Striping { size, nodes }))
        };
        Ok(JobView {
            mount_variables: self.mount_variables(token, caller)?,
            mounted,
            stripes: self
                .instances_of(session)
                .into_iter()
                .filter_map(stripes)
                .collect(),
        })
    }

    /// The stages that a running job has asked for and that say something about these paths, or
    /// have these numbers; in the order in which they were asked for.
    pub fn requested_stages(
        &self,
        token: &str,
        caller: Owner,
        about: &[BufferPath],
        numbers: &[StageId],
    ) -> Result<Vec<RequestedStage>, Failure> {
        let (session, _) = self.state.authorized_session(token, caller)?;
        let mut found: BTreeSet<StageId> = numbers.iter().copied().collect();
        for path in about {
            self.job_stages.about(session, path, &mut found);
        }
        let shown = |id: StageId| {
            let stage = self.state.stages.get(id.0)?;
            (stage.session == session).then(|| RequestedStage {
                id,
                directive: stage.directive.clone(),
                state: stage.state.clone(),
                progress: self.progress.get(&id).copied().unwrap_or(stage.moved),
                failed_files: stage.failed_files.clone(),
            })
        };
        Ok(found.into_iter().filter_map(shown).collect())
    }
}
