//! The directives of a script.

use super::directive::{
    CreatePersistent, DestroyPersistent, Direction, JobInstance, PersistentUse, Stage, Swap,
};

/// The directives of one script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobScript {
    pub(super) jobs: Vec<JobInstance>,
    pub(super) swaps: Vec<Swap>,
    /// A `jobdw` was malformed; its absence is not reported again.
    pub(super) jobs_failed: bool,
    /// `persistentdw`, in the order of the script.
    pub persistents: Vec<PersistentUse>,
    /// `stage_in` and `stage_out`, in the order of the script.
    pub stages: Vec<Stage>,
    /// `create_persistent`.
    pub creates: Vec<CreatePersistent>,
    /// `destroy_persistent`.
    pub destroys: Vec<DestroyPersistent>,
    /// Line numbers of directives after the script's first command, which are ignored.
    pub ignored_directives: Vec<u32>,
}

impl JobScript {
    /// The job's own instance.
    pub fn job(&self) -> Option<&JobInstance> {
        self.jobs.first()
    }

    /// The swap space of the job's compute nodes.
    pub fn swap(&self) -> Option<&Swap> {
        self.swaps.first()
    }

    /// The stages of one direction, in the order of the script.
    pub fn stages(&self, direction: Direction) -> impl Iterator<Item = &Stage> {
        self.stages.iter().filter(move |stage| stage.direction == direction)
    }

    /// Whether the script has no directive at all.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
            && self.swaps.is_empty()
            && self.persistents.is_empty()
            && self.stages.is_empty()
            && self.creates.is_empty()
            && self.destroys.is_empty()
    }
}
