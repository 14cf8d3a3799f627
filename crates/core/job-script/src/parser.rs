//! Parses the words of a directive line.

use super::access;
use super::directive::{DestroyPersistent, Direction, PersistentUse};
use super::error::{Findings, closest_match, quote};
use super::fields::{DirectiveForm, Fields};
use super::instances::{parse_create_persistent, parse_jobdw, parse_swap};
use super::lexer::{DIRECTIVES, DirectiveLine, Marker, Word};
use super::script::JobScript;
use super::stage::parse_stage;
use super::symbols::Symbols;

/// Parses one directive line into `script`.
pub(super) fn parse_directive(
    line: &DirectiveLine<'_>,
    symbols: Option<&Symbols>,
    script: &mut JobScript,
    findings: &mut Findings,
) {
    let Some((name, rest)) = line.words.split_first() else {
        findings.report(
            line.at,
            format!("`{}` without a directive", line.marker.text()),
            format!("write one of {}", DIRECTIVES.join(", ")),
        );
        return;
    };
    let bb = line.marker == Marker::Bb;
    let form = match find_form(name, bb) {
        Ok(form) => form,
        Err((problem, remedy)) => {
            findings.report(name.at, problem, remedy);
            return;
        }
    };
    // `swap` takes a size without a key.
    let alone = if name.text == "swap" { 1 } else { 0 };
    let (size, words) = rest.split_at(alone.min(rest.len()));
    let mut fields = Fields::parse(name, words, &form, symbols, findings);
    let (fields, number) = (&mut fields, line.at.line);
    match name.text {
        "jobdw" => script.jobs.extend(parse_jobdw(fields, number, findings)),
        "persistentdw" => script
            .persistents
            .extend(fields.require_name(findings).map(|name| PersistentUse { name, line: number })),
        "swap" => script.swaps.extend(parse_swap(size, fields, number, findings)),
        "stage_in" => script.stages.extend(parse_stage(Direction::In, fields, number, findings)),
        "stage_out" => script.stages.extend(parse_stage(Direction::Out, fields, number, findings)),
        "create_persistent" => {
            script.creates.extend(parse_create_persistent(fields, bb, number, findings))
        }
        _ => script.destroys.extend(fields.require_name(findings).map(|name| DestroyPersistent {
            name,
            hurry: fields.has_flag("hurry"),
            for_slurm: bb,
            line: number,
        })),
    }
}

/// The arguments of a directive, or the problem with its name and the remedy.
fn find_form(name: &Word<'_>, bb: bool) -> Result<DirectiveForm, (String, String)> {
    if bb && !matches!(name.text, "create_persistent" | "destroy_persistent") {
        let known = DIRECTIVES.contains(&name.text);
        let advice = if known { "write `#DW`; " } else { "" };
        return Err((
            format!("{} after `#BB`", quote(name.text)),
            format!("{advice}`#BB` takes create_persistent and destroy_persistent"),
        ));
    }
    form(name.text, bb).ok_or_else(|| {
        let remedy = match closest_match(name.text, &DIRECTIVES) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write one of {}", DIRECTIVES.join(", ")),
        };
        (format!("unknown directive {}", quote(name.text)), remedy)
    })
}

/// The arguments of a directive; `None` if there is no such directive.
fn form(directive: &str, bb: bool) -> Option<DirectiveForm> {
    let keys: &[&'static str] = match directive {
        "jobdw" => &["capacity", "type", "access_mode", "pool", "pfs", "group"],
        "persistentdw" | "destroy_persistent" => &["name"],
        "swap" => &["pool"],
        "stage_in" | "stage_out" => &["type", "source", "destination"],
        "create_persistent" if bb => &["name", "capacity", "access", "access_mode", "pool", "type"],
        "create_persistent" => &["name", "capacity", "type", "access_mode", "pool", "group"],
        _ => return None,
    };
    let mut keys = keys.to_vec();
    if directive == "jobdw" {
        keys.extend(access::KEYS);
    }
    let flags: &[&'static str] = match directive {
        "destroy_persistent" => &["hurry"],
        _ => &[],
    };
    Some(DirectiveForm { flags, keys })
}
