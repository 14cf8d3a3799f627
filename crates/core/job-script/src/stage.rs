//! `stage_in` and `stage_out`.

use super::directive::{Direction, Stage, StageKind, StagePath};
use super::error::{Findings, Position, quote};
use super::fields::{Fields, Value};
use super::path;

/// Reads a `stage_in` or `stage_out`.
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
        other => {
            findings.report(
                value.at,
                format!("unknown type {}", quote(other)),
                "write `file`, `directory` or `list`",
            );
            None
        }
    });
    let list_anywhere = kind == Some(StageKind::List) && direction == Direction::Out;
    let source =
        source.and_then(|value| side(&value, direction == Direction::Out, list_anywhere, findings));
    let destination =
        destination.and_then(|value| side(&value, direction == Direction::In, false, findings));
    let (kind, (source, source_at), (destination, destination_at)) = (kind?, source?, destination?);
    if kind != StageKind::Directory && (source.slash || path::last_name(&source.path).is_none()) {
        findings.report(
            source_at,
            "the source names a directory, not a file",
            "name the file, or write `type=directory`",
        );
        return None;
    }
    let destination = if kind == StageKind::File && destination.slash {
        let name = path::last_name(&source.path).unwrap_or_default();
        path::append_name(destination.path, name)
    } else {
        destination.path
    };
    if kind == StageKind::File && path::last_name(&destination).is_none() {
        findings.report(
            destination_at,
            "the destination names no file",
            "name the file, or end the directory's name with `/`",
        );
        return None;
    }
    Some(Stage {
        direction,
        kind,
        source: source.path,
        destination,
        line,
    })
}

/// Reads one end of a stage, which must be inside an instance or must not.
fn side(
    value: &Value,
    inside: bool,
    either: bool,
    findings: &mut Findings,
) -> Option<(path::ParsedPath, Position)> {
    match path::parse_path(&value.text) {
        Err((offset, problem, remedy)) => {
            findings.report(value.at.shift_right(offset), problem, remedy);
            None
        }
        Ok(written) if either || inside == matches!(written.path, StagePath::Buffer(_)) => {
            Some((written, value.at))
        }
        Ok(_) if inside => {
            findings.report(value.at, "a path of the parallel file system where one inside an instance is wanted", "begin it with `$DW_JOB_STRIPED/` or `$DW_PERSISTENT_STRIPED_name/`; `stage_in` copies into the instance and `stage_out` out of it");
            None
        }
        Ok(_) => {
            findings.report(value.at, "a path inside an instance where one of the parallel file system is wanted", "write an absolute path; `stage_in` copies into the instance and `stage_out` out of it");
            None
        }
    }
}
