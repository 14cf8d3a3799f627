//! Access modes and modifiers: `striped(MFS=10GiB),private`.

use super::capacity;
use super::directive::{Access, AccessMode, InstanceType, Modifiers, OptimizationStrategy};
use super::error::{Findings, Position, closest_match, quote};
use super::fields::{Fields, Value};

/// All modifier keys: those of scratch instances only, those of caches only, those of both.
pub(super) const KEYS: [&str; 10] = [
    "MFS",
    "MFC",
    "read_ahead",
    "modified_threshold",
    "stripe_size",
    "stripe_count",
    "sync_on_close",
    "sync_to_pfs",
    "client_cache",
    "optimization_strategy",
];
/// The part of [`KEYS`] for scratch instances only.
const SCRATCH: std::ops::Range<usize> = 0..2;
/// The part of [`KEYS`] for caches only.
const CACHE: std::ops::Range<usize> = 2..8;

/// Modifiers with the position of each value, for later checks.
#[derive(Default)]
pub(super) struct ParsedModifiers {
    pub values: Modifiers,
    places: Vec<(&'static str, Position)>,
}

/// Takes the modifiers from a directive's fields.
pub(super) fn take_modifiers(fields: &mut Fields<'_>, findings: &mut Findings) -> ParsedModifiers {
    let mut written = ParsedModifiers::default();
    for key in KEYS {
        if let Some(value) = fields.take_value(key) {
            set(&mut written, key, &value, findings);
        }
    }
    written
}

/// Parses `mode{,mode}`, each with optional modifiers in parentheses.
pub(super) fn parse_access_modes(value: &Value, findings: &mut Findings) -> Option<Vec<Access>> {
    let mut found: Vec<Access> = Vec::new();
    let mut rest = value.text.as_str();
    let mut at = value.at;
    loop {
        let length = rest.find([',', '(']).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(length);
        let mode = match word {
            "striped" => AccessMode::Striped,
            "private" => AccessMode::Private,
            "ldbalance" => AccessMode::LoadBalanced,
            other => {
                let known = ["striped", "private", "ldbalance"];
                let remedy = match closest_match(other, &known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "write striped, private or ldbalance, with commas between them and no blanks".to_owned(),
                };
                return findings.refuse(
                    at,
                    format!("unknown access mode {}", quote(other)),
                    remedy,
                );
            }
        };
        if found.iter().any(|access| access.mode == mode) {
            return findings.refuse(
                at,
                format!("access mode `{word}` twice"),
                "keep one of the two",
            );
        }
        at = at.shift_right(word.chars().count());
        let (modifiers, tail, end) = if tail.starts_with('(') {
            let Some((inside, after)) = tail.get(1..).and_then(|t| t.split_once(')')) else {
                return findings.refuse(at, "`(` without `)`", "close the modifiers with `)`");
            };
            let modifiers = parenthesised(inside, at.shift_right(1), findings)?;
            (modifiers, after, at.shift_right(inside.chars().count() + 2))
        } else {
            (ParsedModifiers::default(), tail, at)
        };
        found.push(Access { mode, modifiers: modifiers.values });
        at = end.shift_right(1);
        match tail.strip_prefix(',') {
            Some(more) => rest = more,
            None if tail.is_empty() => return Some(found),
            None => {
                return findings.refuse(
                    end,
                    format!("{} after an access mode", quote(tail)),
                    "put a comma between access modes",
                );
            }
        }
    }
}

fn parenthesised(text: &str, start: Position, findings: &mut Findings) -> Option<ParsedModifiers> {
    let mut written = ParsedModifiers::default();
    let mut at = start;
    for word in text.split(',') {
        let Some((key, value)) = word.split_once('=') else {
            return findings.refuse(
                at,
                format!("{} is not of the form key=value", quote(word)),
                "write modifiers as `MFS=10GiB,client_cache=yes`",
            );
        };
        let Some(known) = KEYS.iter().find(|k| **k == key) else {
            let remedy = match closest_match(key, &KEYS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the modifiers are {}", KEYS.join(", ")),
            };
            return findings.refuse(at, format!("unknown modifier {}", quote(key)), remedy);
        };
        if written.places.iter().any(|(k, _)| k == known) {
            return findings.refuse(at, format!("`{key}` a second time"), "keep one of the two");
        }
        let value = Value { text: value.to_owned(), at: at.shift_right(key.chars().count() + 1) };
        set(&mut written, known, &value, findings);
        at = at.shift_right(word.chars().count() + 1);
    }
    Some(written)
}

fn set(written: &mut ParsedModifiers, key: &'static str, value: &Value, findings: &mut Findings) {
    written.places.push((key, value.at));
    let m = &mut written.values;
    match key {
        "MFS" => m.max_file_size = bytes(value, findings),
        "MFC" => m.max_files = number(value, u64::MAX, findings),
        "client_cache" => m.client_cache = yes(value, findings),
        "read_ahead" => m.read_ahead = bytes(value, findings),
        "modified_threshold" => m.modified_threshold = bytes(value, findings),
        "stripe_size" => m.stripe_size = bytes(value, findings),
        "stripe_count" => {
            m.stripe_count =
                number(value, u64::from(u32::MAX), findings).and_then(|n| u32::try_from(n).ok());
        }
        "sync_on_close" => m.sync_on_close = yes(value, findings),
        "sync_to_pfs" => m.sync_to_pfs = yes(value, findings),
        _ => {
            m.optimization_strategy = match value.text.as_str() {
                "bandwidth" => Some(OptimizationStrategy::Bandwidth),
                "interference" => Some(OptimizationStrategy::Interference),
                "wear" => Some(OptimizationStrategy::Wear),
                other => findings.refuse(
                    value.at,
                    format!("unknown strategy {}", quote(other)),
                    "write bandwidth, interference or wear",
                ),
            }
        }
    }
}

fn bytes(value: &Value, findings: &mut Findings) -> Option<forebay_units::Bytes> {
    findings.accept(value.at, capacity::parse_bytes(&value.text))
}

fn number(value: &Value, most: u64, findings: &mut Findings) -> Option<u64> {
    let digits = value.text.chars().all(|c| c.is_ascii_digit());
    match value.text.parse::<u64>() {
        Ok(number) if digits && (1..=most).contains(&number) => Some(number),
        _ => findings.refuse(
            value.at,
            format!("{} is not a number from 1 to {most}", quote(&value.text)),
            "write digits only",
        ),
    }
}

fn yes(value: &Value, findings: &mut Findings) -> Option<bool> {
    match value.text.as_str() {
        "yes" => Some(true),
        "no" => Some(false),
        other => findings.refuse(
            value.at,
            format!("{} is neither yes nor no", quote(other)),
            "write `yes` or `no`",
        ),
    }
}

/// Checks that the modes and their modifiers fit the type of the instance.
pub(super) fn check_access_modes(
    kind: &InstanceType,
    access: &[Access],
    at: Position,
    findings: &mut Findings,
) {
    let has = |mode| access.iter().any(|access| access.mode == mode);
    match kind {
        InstanceType::Scratch if has(AccessMode::LoadBalanced) && access.len() > 1 => {
            findings.report(at, "access_mode=ldbalance with another mode: its copies are read-only, so the other could write nothing", "write ldbalance alone, or striped, private or both");
        }
        InstanceType::Cache { .. } if has(AccessMode::Private) => {
            findings.report(
                at,
                "access_mode=private with type=cache",
                "write striped or ldbalance; private goes with type=scratch",
            );
        }
        InstanceType::Cache { .. } if access.len() > 1 => {
            findings.report(
                at,
                "two access modes with type=cache",
                "write either striped or ldbalance",
            );
        }
        _ => {}
    }
    for one in access {
        for key in misplaced(kind, &one.modifiers) {
            findings.report(
                at,
                format!(
                    "the modifier `{key}` of `{}` does not go with this type of instance",
                    one.mode.keyword()
                ),
                "remove it",
            );
        }
    }
}

/// Checks that the directive's own modifiers fit the type of the instance.
pub(super) fn check_modifiers(
    kind: &InstanceType,
    written: &ParsedModifiers,
    findings: &mut Findings,
) {
    let wrong = misplaced(kind, &written.values);
    for (key, at) in written.places.iter().filter(|(key, _)| wrong.contains(key)) {
        findings.report(
            *at,
            format!("the modifier `{key}` does not go with this type of instance"),
            match kind {
                InstanceType::Scratch => "remove it; it is for type=cache",
                InstanceType::Cache { .. } => "remove it; it is for type=scratch",
            },
        );
    }
}

fn misplaced(kind: &InstanceType, m: &Modifiers) -> Vec<&'static str> {
    let set: [bool; 8] = [
        m.max_file_size.is_some(),
        m.max_files.is_some(),
        m.read_ahead.is_some(),
        m.modified_threshold.is_some(),
        m.stripe_size.is_some(),
        m.stripe_count.is_some(),
        m.sync_on_close.is_some(),
        m.sync_to_pfs.is_some(),
    ];
    let foreign = match kind {
        InstanceType::Scratch => CACHE,
        InstanceType::Cache { .. } => SCRATCH,
    };
    let keys = (0..).zip(KEYS).zip(set).filter(|((index, _), set)| *set && foreign.contains(index));
    keys.map(|((_, key), _)| key).collect()
}
