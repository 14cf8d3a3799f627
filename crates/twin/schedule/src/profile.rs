//! Free nodes and granules over future time.

use crate::time::Millis;

/// What a job needs, relative to the start of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Compute nodes, from its start for `limit`.
    pub nodes: u32,
    /// Granules, from `lead` before its start until `tail` after its limit.
    pub granules: u64,
    /// Expected time of its stage-in; what is left of it for a job that has its burst buffer.
    pub lead: Millis,
    /// Time limit.
    pub limit: Millis,
    /// Expected time of its stage-out.
    pub tail: Millis,
}

impl Need {
    /// The same without a burst buffer; the stage-in still precedes the start.
    pub fn nodes_only(self) -> Need {
        Need { granules: 0, ..self }
    }

    /// End of the time for which it has its burst buffer, if it starts at `start`.
    fn buffer_end(&self, start: Millis) -> Millis {
        start.plus(self.limit).plus(self.tail)
    }
}

/// Nodes and granules that are free from a time on, until the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The time.
    pub at: Millis,
    /// Free nodes.
    pub nodes: u32,
    /// Free granules.
    pub granules: u64,
}

/// Resources that somebody holds until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Nodes,
    pub nodes: u32,
    /// until this time.
    pub nodes_until: Millis,
    /// Granules,
    pub granules: u64,
    /// until this time.
    pub granules_until: Millis,
}

/// Free resources from now on, in steps. After the last step everything is free.
#[derive(Clone, Debug)]
pub struct Profile {
    steps: Vec<Step>,
}

impl Profile {
    /// The profile from `now` on of a machine with `nodes` and `granules`. A holding that should have ended is
    /// expected to end in a millisecond.
    ///
    /// # Panics
    /// If more is held than there is.
    pub fn new(now: Millis, (nodes, granules): (u32, u64), holdings: &[Holding]) -> Profile {
        let soon = now.plus(Millis(1));
        let mut ends: Vec<(Millis, u32, u64)> = Vec::with_capacity(2 * holdings.len());
        for held in holdings {
            if held.nodes > 0 {
                ends.push((held.nodes_until.max(soon), held.nodes, 0));
            }
            if held.granules > 0 {
                ends.push((held.granules_until.max(soon), 0, held.granules));
            }
        }
        let held_nodes: u32 = ends.iter().map(|end| end.1).sum();
        let held_granules: u64 = ends.iter().map(|end| end.2).sum();
        assert!(held_nodes <= nodes, "{held_nodes} nodes are held of {nodes}");
        assert!(held_granules <= granules, "{held_granules} granules are held of {granules}");
        ends.sort_unstable();
        let mut last =
            Step { at: now, nodes: nodes - held_nodes, granules: granules - held_granules };
        let mut steps = vec![last];
        for (at, more_nodes, more_granules) in ends {
            last = Step {
                at,
                nodes: last.nodes + more_nodes,
                granules: last.granules + more_granules,
            };
            match steps.last_mut() {
                Some(step) if step.at == at => *step = last,
                _ => steps.push(last),
            }
        }
        Profile { steps }
    }

    /// What is free now.
    pub fn now(&self) -> Step {
        self.steps[0]
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Index of the step that holds a time, which is not before the first one.
    fn index_at(&self, time: Millis) -> usize {
        self.steps.partition_point(|step| step.at <= time).saturating_sub(1)
    }

    /// The end of the last step in `[from, until)` of which `lacks` is true: no start before it fits.
    fn last_lack(
        &self,
        (from, until): (Millis, Millis),
        lacks: impl Fn(&Step) -> bool,
    ) -> Option<Millis> {
        if from >= until {
            return None;
        }
        let first = self.index_at(from);
        let end = first + self.steps[first..].partition_point(|step| step.at < until);
        let last = (first..end).rev().find(|&index| lacks(&self.steps[index]))?;
        Some(self.steps.get(last + 1).map_or(Millis::NEVER, |step| step.at))
    }

    /// The first start after `start` at which what is missing for one at `start` may be there; `None` if a
    /// start at `start` fits.
    fn next_start(&self, start: Millis, need: &Need) -> Option<Millis> {
        let nodes = self.last_lack((start, start.plus(need.limit)), |step| step.nodes < need.nodes);
        if nodes.is_some() {
            return nodes;
        }
        let begin = start.since(need.lead).max(self.steps[0].at);
        let buffer =
            self.last_lack((begin, need.buffer_end(start)), |step| step.granules < need.granules);
        buffer.map(|end| end.plus(need.lead))
    }

    /// Whether a job that starts at `start` has what it needs.
    pub fn fits(&self, start: Millis, need: &Need) -> bool {
        self.next_start(start, need).is_none()
    }

    /// The earliest start, not before `from`, at which a job has what it needs; [`Millis::NEVER`] if it
    /// requests more than there is.
    pub fn earliest(&self, from: Millis, need: &Need) -> Millis {
        let mut start = from;
        while start < Millis::NEVER {
            match self.next_start(start, need) {
                None => break,
                Some(next) => start = next,
            }
        }
        start
    }

    /// Whether `granules` are free in all of `[from, until)`.
    pub fn has_granules(&self, from: Millis, until: Millis, granules: u64) -> bool {
        self.last_lack((from, until), |step| step.granules < granules).is_none()
    }

    /// Takes what a job that starts at `start` needs.
    ///
    /// # Panics
    /// If it is not there.
    pub fn take(&mut self, start: Millis, need: &Need) {
        self.change((start, start.plus(need.limit)), |step| {
            assert!(step.nodes >= need.nodes, "{} nodes taken of {step:?}", need.nodes);
            step.nodes -= need.nodes;
        });
        self.take_granules((start.since(need.lead), need.buffer_end(start)), need.granules);
    }

    /// Gives back what [`Profile::take`] took.
    pub fn give_back(&mut self, start: Millis, need: &Need) {
        self.change((start, start.plus(need.limit)), |step| step.nodes += need.nodes);
        if need.granules > 0 {
            self.change((start.since(need.lead), need.buffer_end(start)), |step| {
                step.granules += need.granules;
            });
        }
    }

    /// Takes `granules` in `[from, until)`.
    ///
    /// # Panics
    /// If they are not there.
    pub fn take_granules(&mut self, span: (Millis, Millis), granules: u64) {
        if granules > 0 {
            self.change(span, |step| {
                assert!(step.granules >= granules, "{granules} granules taken of {step:?}");
                step.granules -= granules;
            });
        }
    }

    /// Frees `granules` from a time on that were taken for ever.
    pub fn release_granules(&mut self, from: Millis, granules: u64) {
        if granules > 0 {
            self.change((from, Millis::NEVER), |step| step.granules += granules);
        }
    }

    /// Applies a change to all steps in `[from, until)`.
    fn change(&mut self, (from, until): (Millis, Millis), mut change: impl FnMut(&mut Step)) {
        let from = from.max(self.steps[0].at);
        if from >= until {
            return;
        }
        let first = self.split(from);
        let end = match until {
            Millis::NEVER => self.steps.len(),
            until => self.split(until),
        };
        self.steps[first..end].iter_mut().for_each(&mut change);
    }

    /// Makes a step begin at `time`, and returns its index.
    fn split(&mut self, time: Millis) -> usize {
        let index = self.index_at(time);
        if self.steps[index].at == time {
            return index;
        }
        self.steps.insert(index + 1, Step { at: time, ..self.steps[index] });
        index + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(nodes: u32, granules: u64, lead: u64, limit: u64, tail: u64) -> Need {
        Need { nodes, granules, lead: Millis(lead), limit: Millis(limit), tail: Millis(tail) }
    }

    /// Of 10 nodes and 10 granules, 8 nodes are held until 100, and 9 granules until 50.
    fn profile() -> Profile {
        let held =
            Holding { nodes: 8, nodes_until: Millis(100), granules: 9, granules_until: Millis(50) };
        Profile::new(Millis(10), (10, 10), &[held])
    }

    #[test]
    fn job_starts_when_nodes_and_buffer_are_free() {
        let profile = profile();
        assert_eq!(profile.earliest(Millis(10), &need(2, 1, 0, 5, 0)), Millis(10));
        assert_eq!(profile.earliest(Millis(10), &need(3, 1, 0, 5, 0)), Millis(100));
        assert_eq!(profile.earliest(Millis(10), &need(2, 2, 0, 5, 0)), Millis(50));
        // The stage-in of 7 ms can begin at 50.
        assert_eq!(profile.earliest(Millis(17), &need(2, 2, 7, 5, 0)), Millis(57));
        // It runs from 93 to 100 while the nodes are not free yet.
        assert_eq!(profile.earliest(Millis(17), &need(3, 2, 7, 5, 0)), Millis(100));
        assert_eq!(profile.earliest(Millis(10), &need(11, 0, 0, 5, 0)), Millis::NEVER);
    }

    #[test]
    fn taken_resources_are_missing_until_they_are_given_back() {
        let mut profile = profile();
        let later = need(10, 10, 20, 30, 10);
        profile.take(Millis(100), &later);
        // Nodes from 100 to 130, granules from 80 to 140.
        assert!(profile.fits(Millis(10), &need(2, 1, 0, 70, 0)));
        assert!(!profile.fits(Millis(10), &need(2, 1, 0, 71, 0)));
        assert!(profile.fits(Millis(10), &need(2, 0, 0, 90, 0)));
        assert!(!profile.fits(Millis(10), &need(2, 0, 0, 91, 0)));
        assert!(!profile.fits(Millis(10), &need(2, 1, 0, 60, 11)));
        assert_eq!(profile.earliest(Millis(10), &need(2, 1, 0, 71, 0)), Millis(140));
        profile.give_back(Millis(100), &later);
        assert!(profile.fits(Millis(10), &need(2, 1, 0, 1000, 0)));
    }

    #[test]
    fn holdings_that_should_have_ended_end_in_a_millisecond() {
        let held =
            Holding { nodes: 1, nodes_until: Millis(3), granules: 0, granules_until: Millis::ZERO };
        let profile = Profile::new(Millis(10), (1, 0), &[held]);
        assert_eq!(profile.now().nodes, 0);
        assert_eq!(profile.earliest(Millis(10), &need(1, 0, 0, 5, 0)), Millis(11));
    }
}
