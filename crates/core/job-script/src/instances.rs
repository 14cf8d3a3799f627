//! Directives that request storage: `jobdw`, `swap` and `create_persistent`.

use super::access;
use super::capacity;
use super::directive::{Access, AccessMode, CreatePersistent, InstanceType, JobInstance, Swap};
use super::error::{Findings, closest_match, quote};
use super::fields::{Fields, Value};
use super::lexer::Word;

/// Parses a `jobdw`.
pub(super) fn parse_jobdw(
    fields: &mut Fields<'_>,
    line: u32,
    findings: &mut Findings,
) -> Option<JobInstance> {
    let capacity = fields.require_capacity(findings);
    let kind = fields.require_value("type", "scratch", findings);
    let modes = fields.require_value("access_mode", "striped", findings);
    let pool = fields.take_pool(findings);
    let group = fields.take_group(findings);
    let pfs = fields.take_value("pfs");
    let modifiers = access::take_modifiers(fields, findings);
    let kind = kind.and_then(|value| instance_type(&value, pfs, findings));
    let modes_at = modes.as_ref().map(|value| value.at);
    let access = modes.and_then(|value| access::parse_access_modes(&value, findings));
    if let (Some(kind), Some(access), Some(at)) = (&kind, &access, modes_at) {
        access::check_access_modes(kind, access, at, findings);
        access::check_modifiers(kind, &modifiers, findings);
    }
    Some(JobInstance {
        capacity: capacity?,
        kind: kind?,
        access: access?,
        pool,
        group,
        modifiers: modifiers.values,
        line,
    })
}

/// The instance type `value`; a cache needs the directory `pfs`.
fn instance_type(
    value: &Value,
    pfs: Option<Value>,
    findings: &mut Findings,
) -> Option<InstanceType> {
    match (value.text.as_str(), pfs) {
        ("scratch", None) => Some(InstanceType::Scratch),
        ("scratch", Some(pfs)) => findings.refuse(pfs.at, "`pfs=` with type=scratch", "remove it"),
        ("cache", Some(pfs)) if pfs.text.starts_with('/') => {
            Some(InstanceType::Cache { pfs: pfs.text })
        }
        ("cache", Some(pfs)) => findings.refuse(
            pfs.at,
            format!("{} is not an absolute path", quote(&pfs.text)),
            "name the directory of the parallel file system, beginning with `/`",
        ),
        ("cache", None) => findings.refuse(
            value.at,
            "type=cache without `pfs=`",
            "write type=scratch and stage files in and out; `forebay run` supports no caches",
        ),
        (other, _) => findings.refuse(
            value.at,
            format!("unknown type {}", quote(other)),
            match closest_match(other, &["scratch", "cache"]) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write `type=scratch`".to_owned(),
            },
        ),
    }
}

/// Parses a `swap`, whose size is the only one of `words`.
pub(super) fn parse_swap(
    words: &[Word<'_>],
    fields: &mut Fields<'_>,
    line: u32,
    findings: &mut Findings,
) -> Option<Swap> {
    let pool = fields.take_pool(findings);
    let Some(word) = words.first() else {
        return findings.refuse(
            fields.position(),
            "`swap` without a size",
            "write the size for each compute node, such as `swap 8GiB`",
        );
    };
    // A number without a unit is in GiB, as in Slurm.
    let bare = word.text.chars().all(|c| c.is_ascii_digit());
    let text = if bare { format!("{}GiB", word.text) } else { word.text.to_owned() };
    let size = findings.accept(word.at, capacity::parse_bytes(&text))?;
    Some(Swap { size, pool, line })
}

/// Parses a `create_persistent`; `bb` after `#BB`.
pub(super) fn parse_create_persistent(
    fields: &mut Fields<'_>,
    bb: bool,
    line: u32,
    findings: &mut Findings,
) -> Option<CreatePersistent> {
    let name = fields.require_name(findings);
    let capacity = fields.require_capacity(findings);
    let pool = fields.take_pool(findings);
    let group = fields.take_group(findings);
    check_scratch(fields, bb, findings);
    let access = persistent_access(fields, bb, findings)?;
    Some(CreatePersistent {
        name: name?,
        capacity: capacity?,
        access,
        pool,
        group,
        for_slurm: bb,
        line,
    })
}

/// Checks the type of a persistent instance.
fn check_scratch(fields: &mut Fields<'_>, bb: bool, findings: &mut Findings) {
    let kind = if bb {
        fields.take_value("type")
    } else {
        fields.require_value("type", "scratch", findings)
    };
    match kind.as_ref().map(|value| (value.text.as_str(), value.at)) {
        None | Some(("scratch", _)) => {}
        Some(("cache", at)) => {
            findings.report(at, "a persistent instance cannot be a cache", "write `type=scratch`")
        }
        Some((other, at)) => {
            findings.report(at, format!("unknown type {}", quote(other)), "write `type=scratch`")
        }
    }
}

/// The access modes of a persistent instance; striped by default.
fn persistent_access(
    fields: &mut Fields<'_>,
    bb: bool,
    findings: &mut Findings,
) -> Option<Vec<Access>> {
    let modes = if bb {
        let first = fields.take_value("access");
        let second = fields.take_value("access_mode");
        if let (Some(_), Some(second)) = (&first, &second) {
            findings.report(second.at, "both `access=` and `access_mode=`", "keep one of the two");
        }
        first.or(second)
    } else {
        fields.require_value("access_mode", "striped", findings)
    };
    let Some(value) = modes else {
        return Some(vec![Access { mode: AccessMode::Striped, modifiers: Default::default() }]);
    };
    let access = access::parse_access_modes(&value, findings)?;
    access::check_access_modes(&InstanceType::Scratch, &access, value.at, findings);
    if access.iter().any(|a| a.mode == AccessMode::LoadBalanced) {
        findings.report(value.at, "a persistent instance with access_mode=ldbalance: its copies are read-only, so no job could fill it", "write striped, private or both; ldbalance goes with `jobdw` and `stage_in`");
    }
    Some(access)
}
