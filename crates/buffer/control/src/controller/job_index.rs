//! Index of the stages that running jobs have requested, by path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use forebay_job_script::{BufferPath, Direction, Stage, StagePath};

use crate::messages::{SessionId, StageId};

/// For each path in an instance, the last stage that a running job has requested there.
#[derive(Clone, Debug, Default)]
pub(super) struct JobStages {
    last: BTreeMap<(SessionId, BufferPath), StageId>,
}

/// The end of a stage that is in the instance, if a running job has requested the stage.
pub(super) fn requested_path(directive: &Stage) -> Option<&BufferPath> {
    let inside = match directive.direction {
        Direction::In => &directive.destination,
        Direction::Out => &directive.source,
    };
    match inside {
        // Directives of the script have a line number.
        StagePath::Buffer(inside) if directive.line == 0 => Some(inside),
        StagePath::Buffer(_) | StagePath::Pfs(_) => None,
    }
}

impl JobStages {
    /// Adds a stage; it replaces an earlier one of the same path.
    pub fn insert(&mut self, session: SessionId, id: StageId, directive: &Stage) {
        if let Some(inside) = requested_path(directive) {
            self.last.insert((session, inside.clone()), id);
        }
    }

    /// Removes stages.
    pub fn remove_stages(&mut self, stages: &[StageId]) {
        let stages: BTreeSet<&StageId> = stages.iter().collect();
        self.last.retain(|_, id| !stages.contains(id));
    }

    /// The stage at a path.
    pub fn get(&self, session: SessionId, path: &BufferPath) -> Option<StageId> {
        self.last.get(&(session, path.clone())).copied()
    }

    /// Adds the stages at a path, below it and above it to `found`.
    pub fn find_related(
        &self,
        session: SessionId,
        path: &BufferPath,
        found: &mut BTreeSet<StageId>,
    ) {
        let below = self.last.range((session, path.clone())..);
        // Paths below sort after it, but not directly: `a-b` comes between `a` and `a/b`.
        let below = below.take_while(|((of, other), _)| {
            *of == session && other.instance == path.instance && other.path.starts_with(&path.path)
        });
        let within = |other: &BufferPath| Path::new(&other.path).starts_with(&path.path);
        let below = below.filter(|((_, other), _)| within(other));
        found.extend(below.map(|(_, id)| *id));
        let above = Path::new(&path.path).ancestors().skip(1);
        for above in above.filter_map(Path::to_str) {
            let above = BufferPath { instance: path.instance.clone(), path: above.to_owned() };
            found.extend(self.get(session, &above));
        }
    }
}
