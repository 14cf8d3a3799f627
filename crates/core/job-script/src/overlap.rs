//! Stages of one direction run at the same time, so no two of them may write the same path, and none may
//! write into a directory that another one stages as a whole.

use std::collections::BTreeMap;

use super::directive::{Direction, InstanceRef, Stage, StageKind, StagePath};
use super::error::{Findings, Position};

/// Where a destination is: in an instance, or on the parallel file system.
type Place<'a> = (Direction, Option<&'a InstanceRef>);

/// The names of a path, without those that do not matter.
type Names<'a> = Vec<&'a str>;

/// Reports each stage whose destination overlaps with that of an earlier line.
pub(super) fn check_destinations(stages: &[Stage], findings: &mut Findings) {
    let mut by_place: BTreeMap<Place<'_>, Destinations<'_>> = BTreeMap::new();
    for stage in stages {
        let (place, names) = destination(stage);
        by_place.entry(place).or_default().0.entry(names).or_default().push(stage);
    }
    let mut overlaps: Vec<(&Stage, &Stage, Relation)> =
        by_place.values().flat_map(Destinations::overlaps).collect();
    overlaps.sort_by_key(|(first, second, _)| (second.line, first.line));
    overlaps.dedup_by_key(|(_, second, _)| second.line);
    for (first, second, relation) in overlaps {
        let line = first.line;
        let (problem, remedy) = match relation {
            Relation::Same => (
                format!("the destination is that of the stage of line {line}"),
                "give each its own destination",
            ),
            Relation::Inside => (
                format!("the destination is inside that of the stage of line {line}"),
                "name a destination outside; stages run at the same time",
            ),
            Relation::Around => (
                format!("the stage of line {line} has its destination inside this one"),
                "name a destination beside that one; stages run at the same time",
            ),
        };
        findings.report(Position { line: second.line, column: 1 }, problem, remedy);
    }
}

fn destination(stage: &Stage) -> (Place<'_>, Names<'_>) {
    let (instance, text) = match &stage.destination {
        StagePath::Buffer(inside) => (Some(&inside.instance), inside.path.as_str()),
        StagePath::Pfs(text) => (None, text.as_str()),
    };
    let names = text.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    ((stage.direction, instance), names)
}

/// How the destination of a later line overlaps with that of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Same,
    Inside,
    Around,
}

/// The stages of each destination of one place.
#[derive(Default)]
struct Destinations<'a>(BTreeMap<Names<'a>, Vec<&'a Stage>>);

impl<'a> Destinations<'a> {
    /// The earlier stage, the later one, and the relation of the later one's destination.
    fn overlaps(&self) -> Vec<(&'a Stage, &'a Stage, Relation)> {
        let mut overlaps = Vec::new();
        for (names, stages) in &self.0 {
            for (index, second) in stages.iter().enumerate() {
                let first = stages.iter().take(index).find(|first| same_is_refused(first, second));
                overlaps.extend(first.map(|first| (*first, *second, Relation::Same)));
            }
            // A name behind a symbolic link and `..` is not known to be inside.
            if names.contains(&"..") {
                continue;
            }
            for length in 0..names.len() {
                let Some(around) = self.0.get(&names[..length]) else {
                    continue;
                };
                for inner in stages {
                    let outer = around.iter().find(|outer| inside_is_refused(outer, inner));
                    overlaps.extend(outer.map(|outer| match outer.line < inner.line {
                        true => (*outer, *inner, Relation::Inside),
                        false => (*inner, *outer, Relation::Around),
                    }));
                }
            }
        }
        overlaps
    }
}

/// Whether two stages cannot have one destination. Lists and logs name their files themselves, and
/// write them into a directory, which they can share.
fn same_is_refused(first: &Stage, second: &Stage) -> bool {
    use StageKind::{Directory, File, List, Log};
    match (first.kind, second.kind) {
        (List | Log, List | Log) | (Directory, Log) | (Log, Directory) => false,
        (File | Directory, _) | (_, File | Directory) => true,
    }
}

/// Whether a stage cannot have its destination inside that of another one.
fn inside_is_refused(outer: &Stage, inner: &Stage) -> bool {
    match outer.kind {
        StageKind::File => true,
        StageKind::Directory => inner.kind != StageKind::Log,
        StageKind::List | StageKind::Log => false,
    }
}
