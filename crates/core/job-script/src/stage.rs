//! `stage_in` and `stage_out`.

use super::directive::{BufferPath, Direction, InstanceRef, Stage, StageKind, StagePath};
use super::error::{Findings, Position, ValueError, quote};
use super::fields::{Fields, Value};
use super::path::{self, ParsedPath};

/// A path with its position in the script.
type End = (ParsedPath, Position);

impl Stage {
    /// A stage that no script contains, between `pfs_path` on the parallel file system and
    /// `instance_path`, which is relative to the root of `instance`. Its line is 0.
    ///
    /// # Errors
    /// The problem of a path and the remedy.
    pub fn new(
        direction: Direction,
        kind: StageKind,
        instance: InstanceRef,
        pfs_path: &str,
        instance_path: &str,
    ) -> Result<Stage, String> {
        let message =
            |(_, problem, remedy): ValueError| -> String { format!("{problem}; {remedy}") };
        for path in [pfs_path, instance_path] {
            let blank = |c: char| c.is_whitespace() || c.is_control();
            if path.contains(blank) {
                let quoted = quote(path);
                return Err(format!("{quoted} contains blanks, which a stage's path cannot"));
            }
        }
        let pfs = path::parse_pfs_path(pfs_path).map_err(message)?;
        let relative = path::parse_relative_path(instance_path, 0).map_err(message)?;
        let inside = ParsedPath {
            path: StagePath::Buffer(BufferPath { instance, path: relative }),
            slash: instance_path.is_empty() || instance_path.ends_with('/'),
        };
        let (source, destination) = match direction {
            Direction::In => (pfs, inside),
            Direction::Out => (inside, pfs),
        };
        let start = Position::default();
        let mut findings = Findings::default();
        let stage =
            build_stage(direction, kind, (source, start), (destination, start), 0, &mut findings);
        stage.ok_or_else(|| {
            let errors = findings.into_errors().0.into_iter();
            let messages: Vec<String> =
                errors.map(|error| format!("{}; {}", error.problem, error.remedy)).collect();
            debug_assert!(!messages.is_empty(), "a refused stage has a reason");
            messages.join("\n")
        })
    }
}

/// Parses a `stage_in` or `stage_out`.
pub(super) fn parse_stage(
    direction: Direction,
    fields: &mut Fields<'_>,
    line: u32,
    findings: &mut Findings,
) -> Option<Stage> {
    let kind = fields.require_value("type", "file", findings);
    let (inside, outside) = ("$DW_JOB_STRIPED/name", "/pfs/name");
    let (from, to) = match direction {
        Direction::In => (outside, inside),
        Direction::Out => (inside, outside),
    };
    let source = fields.require_value("source", from, findings);
    let destination = fields.require_value("destination", to, findings);
    let kind = kind.and_then(|value| match value.text.as_str() {
        "file" => Some(StageKind::File),
        "directory" => Some(StageKind::Directory),
        "list" => Some(StageKind::List),
        "log" => Some(StageKind::Log),
        other => findings.refuse(
            value.at,
            format!("unknown type {}", quote(other)),
            "write `file`, `directory`, `list` or, to stage out, `log`",
        ),
    });
    // The list of a stage-out may be in the instance or on the parallel file system.
    let list_out = kind == Some(StageKind::List) && direction == Direction::Out;
    let source_inside = direction == Direction::Out;
    let source = source.and_then(|value| parse_end(&value, source_inside, list_out, findings));
    let destination =
        destination.and_then(|value| parse_end(&value, !source_inside, false, findings));
    build_stage(direction, kind?, source?, destination?, line, findings)
}

/// Checks that both ends fit the kind of the stage.
fn build_stage(
    direction: Direction,
    kind: StageKind,
    (source, source_at): End,
    (destination, destination_at): End,
    line: u32,
    findings: &mut Findings,
) -> Option<Stage> {
    if kind == StageKind::Log && direction == Direction::In {
        return findings.refuse(
            source_at,
            "logs are not staged in",
            "write `stage_out type=log`, which applies them to their files",
        );
    }
    let is_file = matches!(kind, StageKind::File | StageKind::List);
    if is_file && (source.slash || path::last_name(&source.path).is_none()) {
        return findings.refuse(
            source_at,
            "the source names a directory, not a file",
            "name the file, or write `type=directory`",
        );
    }
    let destination = if kind == StageKind::File && destination.slash {
        let name = path::last_name(&source.path).unwrap_or_default();
        path::append_name(destination.path, name)
    } else {
        destination.path
    };
    if kind == StageKind::File && path::last_name(&destination).is_none() {
        return findings.refuse(
            destination_at,
            "the destination names no file",
            "name the file, or end the directory's name with `/`",
        );
    }
    let stage = Stage { direction, kind, source: source.path, destination, line };
    debug_assert!(
        kind == StageKind::List || stage.instance().is_some(),
        "one end of a stage is in an instance"
    );
    Some(stage)
}

/// Parses one end of a stage, which must be inside an instance if `inside` and outside otherwise,
/// unless `either` is allowed.
fn parse_end(value: &Value, inside: bool, either: bool, findings: &mut Findings) -> Option<End> {
    match path::parse_path(&value.text) {
        Err((offset, problem, remedy)) => {
            findings.refuse(value.at.shift_right(offset), problem, remedy)
        }
        Ok(parsed) if either || inside == matches!(parsed.path, StagePath::Buffer(_)) => {
            Some((parsed, value.at))
        }
        Ok(_) if inside => findings.refuse(
            value.at,
            "a path of the parallel file system where a path inside an instance is expected",
            "begin it with `$DW_JOB_STRIPED/` or `$DW_PERSISTENT_STRIPED_name/`; `stage_in` \
                 copies into the instance and `stage_out` out of it",
        ),
        Ok(_) => findings.refuse(
            value.at,
            "a path inside an instance where a path of the parallel file system is expected",
            "write an absolute path; `stage_in` copies into the instance and `stage_out` out \
                 of it",
        ),
    }
}
