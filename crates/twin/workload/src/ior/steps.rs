//! The steps of a test.

use super::access_pattern::Access;
use super::spec::Ior;

/// One step of a test, taken by all tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Repetition, from 0.
    pub iteration: u32,
    /// The action.
    pub action: Action,
}

/// The action of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A phase begins. If the minutes of [`Ior::max_minutes`] since the test's first step have
    /// passed, all steps up to the matching [`Action::End`] are skipped.
    Begin(Access),
    /// Each task waits for this many seconds.
    Delay(u32),
    /// Files of earlier repetitions are removed, if any, each by the task of
    /// [`super::AccessPattern::file_removed_by`].
    RemoveExisting,
    /// With `-u`: each task creates the directory of its file if there is none.
    MakeDirectories,
    /// No task continues until all have reached this step.
    Barrier,
    /// Each task opens its file; for writing it is created or truncated. Bandwidth counts from the
    /// first task's start.
    Open(Access),
    /// Each task makes its transfers in order, one at a time. With [`Ior::fsync_per_write`] an fsync
    /// follows each write.
    Transfer(Access),
    /// Each task makes its writes durable; the time counts as part of its transfers.
    Fsync,
    /// Each task closes its file. Bandwidth counts to the last task's end.
    Close(Access),
    /// The phase ends: its results are complete.
    End(Access),
    /// Each file is removed by the task of [`super::AccessPattern::file_removed_by`].
    Remove,
}

impl Ior {
    /// Complete sets of the files that exist at the end of the test at most: one of each repetition where each has
    /// files of its own (`-m`) that are kept (`-k`).
    pub fn sets_of_files(&self) -> u32 {
        if self.multi_file && self.keep_file { self.repetitions.max(1) } else { 1 }
    }

    /// The steps of the test in order. Only barriers wait for other tasks: otherwise a task
    /// continues as soon as it has completed a step.
    pub fn steps(&self) -> impl Iterator<Item = Step> + '_ {
        (0..self.repetitions).flat_map(move |iteration| {
            let writing = if self.write { self.phase(Access::Write) } else { Vec::new() };
            let reading = if self.read { self.phase(Access::Read) } else { Vec::new() };
            let ending = if self.keep_file {
                vec![Action::Barrier]
            } else {
                vec![Action::Barrier, Action::Remove, Action::Barrier]
            };
            writing
                .into_iter()
                .chain(reading)
                .chain(ending)
                .map(move |action| Step { iteration, action })
        })
    }

    /// The actions of one phase.
    fn phase(&self, access: Access) -> Vec<Action> {
        let write = access == Access::Write;
        let only_if = |condition: bool, action: Action| condition.then_some(action);
        [
            Some(Action::Begin(access)),
            only_if(
                write && self.unique_directory && self.file_per_process,
                Action::MakeDirectories,
            ),
            only_if(self.delay_seconds > 0, Action::Delay(self.delay_seconds)),
            only_if(write && !self.use_existing, Action::RemoveExisting),
            Some(Action::Barrier),
            Some(Action::Open(access)),
            only_if(self.barriers, Action::Barrier),
            Some(Action::Transfer(access)),
            only_if(write && self.fsync, Action::Fsync),
            only_if(self.barriers, Action::Barrier),
            Some(Action::Close(access)),
            // IOR gathers the results of a phase from all tasks, which synchronises them.
            Some(Action::Barrier),
            Some(Action::End(access)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Action::*;

    fn actions(line: &str) -> Vec<(u32, Action)> {
        let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
        let tests = Ior::parse(&arguments).unwrap();
        tests[0].steps().map(|s| (s.iteration, s.action)).collect()
    }

    #[test]
    fn default_test_writes_reads_and_removes() {
        let (w, r) = (Access::Write, Access::Read);
        let expected = [
            Begin(w),
            RemoveExisting,
            Barrier,
            Open(w),
            Transfer(w),
            Close(w),
            Barrier,
            End(w),
            Begin(r),
            Barrier,
            Open(r),
            Transfer(r),
            Close(r),
            Barrier,
            End(r),
            Barrier,
            Remove,
            Barrier,
        ];
        assert_eq!(actions(""), expected.map(|a| (0, a)));
    }

    #[test]
    fn options_add_their_steps() {
        let w = Access::Write;
        let expected = [
            Begin(w),
            MakeDirectories,
            Delay(3),
            Barrier,
            Open(w),
            Barrier,
            Transfer(w),
            Fsync,
            Barrier,
            Close(w),
            Barrier,
            End(w),
            Barrier,
        ];
        let twice: Vec<_> = (0..2).flat_map(|i| expected.map(|a| (i, a))).collect();
        assert_eq!(actions("-w -F -u -d 3 -E -g -e -k -i 2"), twice);
    }

    #[test]
    fn read_only_test_has_no_fsync_and_no_removal() {
        let steps = actions("-r -e -k");
        assert!(!steps.iter().any(|(_, a)| matches!(a, Fsync | RemoveExisting | Remove)));
    }
}
