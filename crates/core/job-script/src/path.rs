//! The two ends of a stage: paths of the parallel file system and paths inside an instance.

use super::directive::{BufferPath, InstanceRef, StagePath};
use super::error::{ValueError, quote};
use super::fields::is_valid_name;

/// Maximum length of a path (PATH_MAX of Linux without the terminating zero).
const MAX_PATH_BYTES: usize = 4095;
/// Maximum length of a component (NAME_MAX of Linux).
const MAX_NAME_BYTES: usize = 255;

/// A path, and whether it was written with a trailing `/`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ParsedPath {
    pub path: StagePath,
    pub slash: bool,
}

/// Parses a path of either kind; one that begins with `$` is inside an instance.
pub(super) fn parse_path(text: &str) -> Result<ParsedPath, ValueError> {
    check_length(text)?;
    if text.starts_with(['"', '\'']) {
        return Err((
            0,
            "a quotation mark in a path".into(),
            "write the path without quotation marks; it cannot contain blanks".into(),
        ));
    }
    match text.strip_prefix('$') {
        Some(rest) => parse_instance_path(rest),
        None => parse_pfs_path(text),
    }
}

/// Parses an absolute path of the parallel file system.
pub(super) fn parse_pfs_path(text: &str) -> Result<ParsedPath, ValueError> {
    check_length(text)?;
    if !text.starts_with('/') {
        return Err((
            0,
            format!("{} is neither absolute nor inside an instance", quote(text)),
            "begin it with `/` (`%d/` for the job's working directory) or with `$DW_JOB_STRIPED/`"
                .into(),
        ));
    }
    check_names(text, 0)?;
    Ok(ParsedPath { path: StagePath::Pfs(text.to_owned()), slash: text.ends_with('/') })
}

/// Parses `VARIABLE/path` or `{VARIABLE}/path`.
fn parse_instance_path(rest: &str) -> Result<ParsedPath, ValueError> {
    let (variable, tail, before_tail) = if let Some(braced) = rest.strip_prefix('{') {
        let Some((variable, tail)) = braced.split_once('}') else {
            return Err((1, "`{` without `}`".into(), "write `${DW_JOB_STRIPED}/…`".into()));
        };
        (variable, tail, variable.chars().count() + 3)
    } else {
        let length = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').count();
        // These characters are one byte each, so the count is also the byte offset.
        let (variable, tail) = rest.split_at(length);
        (variable, tail, length + 1)
    };
    let instance = parse_variable(variable)?;
    if !tail.is_empty() && !tail.starts_with('/') {
        return Err((
            before_tail,
            format!("{} follows the variable's name directly", quote(tail)),
            "put a `/` between them".into(),
        ));
    }
    let path = parse_relative_path(tail, before_tail)?;
    Ok(ParsedPath {
        path: StagePath::Buffer(BufferPath { instance, path }),
        slash: tail.is_empty() || tail.ends_with('/'),
    })
}

/// Normalizes a path from an instance's root; `start` is its offset in the whole path.
pub(super) fn parse_relative_path(text: &str, start: usize) -> Result<String, ValueError> {
    check_length(text)?;
    check_names(text, start)?;
    let mut column = start;
    let mut names = Vec::new();
    for name in text.split('/') {
        if name == ".." {
            return Err((
                column,
                format!("{} leaves the instance with `..`", quote(text)),
                "write the path from the instance's root, without `..`".into(),
            ));
        }
        column += name.chars().count() + 1;
        if !name.is_empty() && name != "." {
            names.push(name);
        }
    }
    Ok(names.join("/"))
}

/// The instance that a variable stands for.
fn parse_variable(variable: &str) -> Result<InstanceRef, ValueError> {
    const PERSISTENT: &str = "DW_PERSISTENT_STRIPED_";
    let staged = "stage through `$DW_JOB_STRIPED` or `$DW_PERSISTENT_STRIPED_name`";
    match variable {
        "DW_JOB_STRIPED" => return Ok(InstanceRef::Job),
        "DW_JOB_LDBALANCE" => return Ok(InstanceRef::LoadBalanced),
        "DW_JOB_PRIVATE" => {
            return Err((
                0,
                "a private name space cannot be staged: there is one on every compute node".into(),
                staged.into(),
            ));
        }
        "DW_JOB_STRIPED_CACHE" | "DW_JOB_LDBAL_CACHE" => {
            return Err((
                0,
                "a cache cannot be staged: it fetches and writes back automatically".into(),
                staged.into(),
            ));
        }
        _ => {}
    }
    match variable.strip_prefix(PERSISTENT) {
        Some(name) if is_valid_name(name) => Ok(InstanceRef::Persistent(name.to_owned())),
        Some(name) => Err((
            1 + PERSISTENT.len(),
            format!("{} is not the name of a persistent instance", quote(name)),
            "put its name behind `$DW_PERSISTENT_STRIPED_`".into(),
        )),
        None => Err((
            0,
            format!("{} is not a variable of the burst buffer", quote(&format!("${variable}"))),
            format!(
                "other variables are not replaced in directives: write the path itself on the \
                 parallel file system, and {staged}"
            ),
        )),
    }
}

fn check_length(path: &str) -> Result<(), ValueError> {
    if path.len() <= MAX_PATH_BYTES {
        return Ok(());
    }
    Err((0, format!("the path is longer than {MAX_PATH_BYTES} bytes"), "shorten it".into()))
}

fn check_names(path: &str, start: usize) -> Result<(), ValueError> {
    let mut column = start;
    for name in path.split('/') {
        if name.len() > MAX_NAME_BYTES {
            return Err((
                column,
                format!("a name of more than {MAX_NAME_BYTES} bytes"),
                "shorten it".into(),
            ));
        }
        column += name.chars().count() + 1;
    }
    Ok(())
}

/// The last name of a path, if it has one.
pub(super) fn last_name(path: &StagePath) -> Option<&str> {
    let text = match path {
        StagePath::Pfs(text) => text,
        StagePath::Buffer(inside) => &inside.path,
    };
    text.rsplit('/').find(|name| !name.is_empty()).filter(|name| *name != "." && *name != "..")
}

/// `path` with `name` below it.
pub(super) fn append_name(path: StagePath, name: &str) -> StagePath {
    match path {
        StagePath::Pfs(text) => StagePath::Pfs(format!("{}/{name}", text.trim_end_matches('/'))),
        StagePath::Buffer(BufferPath { instance: space, path }) if path.is_empty() => {
            StagePath::Buffer(BufferPath { instance: space, path: name.to_owned() })
        }
        StagePath::Buffer(BufferPath { instance: space, path }) => {
            StagePath::Buffer(BufferPath { instance: space, path: format!("{path}/{name}") })
        }
    }
}
