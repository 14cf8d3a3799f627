//! A TOML document in which every number carries its source.
//!
//! A number is written as an entry `{ value = …, from = "id" }`, where `id` names a text of the
//! `[sources]` table, or `{ value = …, assumed = "reason" }`. `calibrated = "row"` names the
//! measurement to which the value was fitted, `settled_in_view = ["row", …]` the measurements that were
//! known when it was chosen and that it decides, `note = "…"` is a remark. All problems are collected, so
//! that they are reported at once.

use crate::layers::JoinedText;
use crate::machine::Provenance;
use crate::problem::Problem;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A value and its span in the file.
#[derive(Clone, Debug)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

/// A file being parsed: its text with those of its bases, and the problems and sources found so far.
pub(crate) struct Document<'t> {
    pub(crate) file: &'t str,
    pub(crate) text: &'t str,
    joined: &'t JoinedText,
    problems: RefCell<Vec<(usize, Problem)>>,
    provenance: RefCell<Vec<(usize, Provenance)>>,
    sources: RefCell<BTreeMap<String, Located<String>>>,
    used_sources: RefCell<BTreeSet<String>>,
}

impl<'t> Document<'t> {
    pub(crate) fn new(joined: &'t JoinedText) -> Document<'t> {
        Document {
            file: joined.file(0),
            text: &joined.text,
            joined,
            problems: RefCell::default(),
            provenance: RefCell::default(),
            sources: RefCell::default(),
            used_sources: RefCell::default(),
        }
    }

    /// Adds a problem at a byte offset.
    pub(crate) fn add_problem(
        &self,
        offset: usize,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) {
        let problem = self.joined.problem_at(offset, message, expected);
        self.problems.borrow_mut().push((offset, problem));
    }

    /// Adds a problem; returns `None` instead of the value that has it.
    pub(crate) fn refuse<T>(
        &self,
        offset: usize,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Option<T> {
        self.add_problem(offset, message, expected);
        None
    }

    /// Number and path of the file that a position is in: 0 for the machine's own, then its bases.
    pub(crate) fn file_at(&self, offset: usize) -> (usize, &'t str) {
        let (number, _) = self.joined.locate(offset);
        (number, self.joined.file(number))
    }

    /// Adds a problem of another file, to which `offset` of this one refers.
    pub(crate) fn add_foreign_problem(&self, offset: usize, problem: Problem) {
        self.problems.borrow_mut().push((offset, problem));
    }

    pub(crate) fn has_no_problems(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// The problems in the order of the file, and the provenance in the order of the file.
    pub(crate) fn into_findings(self) -> (Vec<Problem>, Vec<Provenance>) {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(offset, _)| *offset);
        let mut provenance = self.provenance.into_inner();
        provenance.sort_by_key(|(offset, _)| *offset);
        (
            problems.into_iter().map(|(_, p)| p).collect(),
            provenance.into_iter().map(|(_, p)| p).collect(),
        )
    }

    /// Adds the provenance of the value at a byte offset.
    pub(crate) fn add_provenance(&self, offset: usize, provenance: Provenance) {
        self.provenance.borrow_mut().push((offset, provenance));
    }

    /// The text of a source, which is then used; otherwise the known ids.
    pub(crate) fn use_source(&self, id: &str) -> Result<String, Vec<String>> {
        let sources = self.sources.borrow();
        let source = sources.get(id).ok_or_else(|| sources.keys().cloned().collect::<Vec<_>>())?;
        self.used_sources.borrow_mut().insert(id.to_owned());
        Ok(source.value.clone())
    }

    /// Adds a source.
    pub(crate) fn add_source(&self, id: String, text: Located<String>) {
        self.sources.borrow_mut().insert(id, text);
    }

    /// Reports sources without a reference. Numbers that the file replaces may have left those of its bases
    /// without one.
    pub(crate) fn check_unused_sources(&self) {
        let used = self.used_sources.borrow();
        for (id, at) in self.sources.borrow().iter() {
            if !used.contains(id) && self.file_at(at.span.start).0 == 0 {
                self.add_problem(
                    at.span.start,
                    format!("source `{id}` is not used by any number"),
                    format!("an entry with `from = \"{id}\"`, or no such source"),
                );
            }
        }
    }
}
