//! From the words of a directive line to the directive.

use super::JobScript;
use super::access::{self, Modifiers};
use super::capacity;
use super::directive::*;
use super::error::{Findings, Position, nearest, quoted};
use super::stage::stage;
use super::symbols::{Symbols, expand};
use super::words::{DIRECTIVES, DirectiveLine, Marker, Word};

/// Longest name of a pool or a persistent instance, in bytes.
const MAX_NAME: usize = 64;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub text: String,
    pub at: Position,
}

/// The `key=value` words and flags of one directive.
pub(super) struct Fields<'a> {
    directive: &'a str,
    /// Where the directive's name is: the place of what is missing.
    at: Position,
    values: Vec<(String, Value)>,
    /// Keys that a refused word probably meant: their absence is no second mistake.
    misspelt: Vec<String>,
}

impl Fields<'_> {
    /// The value of `key`, taken out.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        let index = self.values.iter().position(|(k, _)| k == key)?;
        Some(self.values.remove(index).1)
    }

    pub fn require(&mut self, key: &str, example: &str, findings: &mut Findings) -> Option<Value> {
        let value = self.take(key);
        if value.is_none() && !self.misspelt.iter().any(|k| k == key) {
            findings.add(
                self.at,
                format!("`{}` without `{key}=`", self.directive),
                format!("add `{key}={example}`"),
            );
        }
        value
    }
}

/// Reads one directive line into `script`.
pub(super) fn directive(
    line: &DirectiveLine<'_>,
    symbols: Option<&Symbols>,
    script: &mut JobScript,
    findings: &mut Findings,
) {
    let Some((name, rest)) = line.words.split_first() else {
        findings.add(
            line.at,
            format!("`{}` without a directive", line.marker.text()),
            format!("write one of {}", DIRECTIVES.join(", ")),
        );
        return;
    };
    if line.marker == Marker::Bb && !matches!(name.text, "create_persistent" | "destroy_persistent")
    {
        findings.add(
            name.at,
            format!("{} after `#BB`", quoted(name.text)),
            if DIRECTIVES.contains(&name.text) {
                "write `#DW`; `#BB` takes create_persistent and destroy_persistent"
            } else {
                "`#BB` takes create_persistent and destroy_persistent"
            },
        );
        return;
    }
    let (positional, flags, keys): (usize, &[&str], Vec<&str>) = match name.text {
        "jobdw" => (
            0,
            &[],
            ["capacity", "type", "access_mode", "pool", "pfs"]
                .into_iter()
                .chain(access::KEYS)
                .collect(),
        ),
        "persistentdw" => (0, &[], vec!["name"]),
        "swap" => (1, &[], vec!["pool"]),
        "stage_in" | "stage_out" => (0, &[], vec!["type", "source", "destination"]),
        "create_persistent" if line.marker == Marker::Bb => (
            0,
            &[],
            vec!["name", "capacity", "access", "access_mode", "pool", "type"],
        ),
        "create_persistent" => (
            0,
            &[],
            vec!["name", "capacity", "type", "access_mode", "pool"],
        ),
        "destroy_persistent" => (0, &["hurry"], vec!["name"]),
        other => {
            let remedy = match nearest(other, &DIRECTIVES) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write one of {}", DIRECTIVES.join(", ")),
            };
            findings.add(
                name.at,
                format!("unknown directive {}", quoted(other)),
                remedy,
            );
            return;
        }
    };
    let positional_words = rest.get(..positional.min(rest.len())).unwrap_or_default();
    let rest = rest.get(positional_words.len()..).unwrap_or_default();
    let mut fields = Fields {
        directive: name.text,
        at: name.at,
        values: Vec::new(),
        misspelt: Vec::new(),
    };
    let set_flags = collect(rest, flags, &keys, symbols, &mut fields, findings);
    let number = line.at.line;
    let bb = line.marker == Marker::Bb;
    match name.text {
        "jobdw" => script.jobs.extend(jobdw(&mut fields, number, findings)),
        "persistentdw" => {
            if let Some(name) = named(&mut fields, findings) {
                script
                    .persistents
                    .push(PersistentUse { name, line: number });
            }
        }
        "swap" => script
            .swaps
            .extend(swap(positional_words, &mut fields, number, findings)),
        "stage_in" => script
            .stages
            .extend(stage(Direction::In, &mut fields, number, findings)),
        "stage_out" => script
            .stages
            .extend(stage(Direction::Out, &mut fields, number, findings)),
        "create_persistent" => script
            .creates
            .extend(create(&mut fields, bb, number, findings)),
        _ => {
            if let Some(name) = named(&mut fields, findings) {
                let hurry = set_flags.contains(&"hurry");
                script.destroys.push(DestroyPersistent {
                    name,
                    hurry,
                    for_slurm: bb,
                    line: number,
                });
            }
        }
    }
}

/// Splits words at their first `=`, refuses unknown and repeated keys, and returns the flags met.
fn collect<'f>(
    words: &[Word<'_>],
    flags: &[&'f str],
    keys: &[&str],
    symbols: Option<&Symbols>,
    fields: &mut Fields<'_>,
    findings: &mut Findings,
) -> Vec<&'f str> {
    let mut met = Vec::new();
    let mut stopped = false;
    for word in words {
        let Some((key, value)) = word.text.split_once('=') else {
            match flags.iter().find(|flag| **flag == word.text) {
                Some(flag) => met.push(*flag),
                None => {
                    let remedy = match (keys.contains(&word.text), flags.first()) {
                        (true, _) => format!("write `{}=…`, without a blank before `=`", word.text),
                        (false, Some(flag)) => format!("only `{flag}` may stand alone"),
                        (false, None) => {
                            "write `key=value`, without blanks around `=` or inside the value"
                                .to_owned()
                        }
                    };
                    if keys.contains(&word.text) {
                        fields.misspelt.push(word.text.to_owned());
                    }
                    findings.add(
                        word.at,
                        format!("{} is not of the form key=value", quoted(word.text)),
                        remedy,
                    );
                }
            }
            continue;
        };
        let at = word.at.right(key.chars().count() + 1);
        if !keys.contains(&key) {
            let remedy = match nearest(key, keys) {
                Some(near) => {
                    fields.misspelt.push(near.to_owned());
                    format!("did you mean `{near}`?")
                }
                None => format!("it takes {}", keys.join(", ")),
            };
            findings.add(
                word.at,
                format!("`{}` has no key {}", fields.directive, quoted(key)),
                remedy,
            );
            continue;
        }
        if fields.values.iter().any(|(k, _)| k == key) {
            findings.add(
                word.at,
                format!("`{key}` a second time in this directive"),
                "keep one of the two",
            );
            continue;
        }
        if value.is_empty() {
            fields.misspelt.push(key.to_owned());
            findings.add(
                at,
                format!("`{key}=` without a value"),
                "write the value directly after `=`",
            );
            continue;
        }
        let text = match symbols {
            Some(symbols) => expand(symbols, value, at, &mut stopped, findings),
            None => value.to_owned(),
        };
        fields.values.push((key.to_owned(), Value { text, at }));
    }
    met
}

fn jobdw(fields: &mut Fields<'_>, line: u32, findings: &mut Findings) -> Option<JobInstance> {
    let capacity = fields.require("capacity", "100GiB", findings);
    let kind = fields.require("type", "scratch", findings);
    let modes = fields.require("access_mode", "striped", findings);
    let pool = pool(fields, findings);
    let pfs = fields.take("pfs");
    let modifiers = access::of_fields(fields, findings);
    let capacity = capacity.and_then(|value| read_capacity(&value, findings));
    let kind = match kind {
        None => None,
        Some(value) => match (value.text.as_str(), pfs) {
            ("scratch", None) => Some(InstanceType::Scratch),
            ("scratch", Some(pfs)) => {
                findings.add(
                    pfs.at,
                    "`pfs=` with type=scratch",
                    "remove it, or write type=cache",
                );
                None
            }
            ("cache", Some(pfs)) if pfs.text.starts_with('/') => {
                Some(InstanceType::Cache { pfs: pfs.text })
            }
            ("cache", Some(pfs)) => {
                findings.add(
                    pfs.at,
                    format!("{} is not an absolute path", quoted(&pfs.text)),
                    "name the directory of the parallel file system, beginning with `/`",
                );
                None
            }
            ("cache", None) => {
                findings.add(
                    value.at,
                    "type=cache without `pfs=`",
                    "add `pfs=` and the directory it caches",
                );
                None
            }
            (other, _) => {
                findings.add(
                    value.at,
                    format!("unknown type {}", quoted(other)),
                    "write `scratch` or `cache`",
                );
                None
            }
        },
    };
    let modes_at = modes.as_ref().map(|value| value.at);
    let access = modes.and_then(|value| access::modes(&value, findings));
    if let (Some(kind), Some(access), Some(at)) = (&kind, &access, modes_at) {
        access::check(kind, access, at, findings);
        access::check_modifiers(kind, &modifiers, findings);
    }
    Some(JobInstance {
        capacity: capacity?,
        kind: kind?,
        access: access?,
        pool,
        modifiers: Modifiers::values(modifiers),
        line,
    })
}

fn swap(
    words: &[Word<'_>],
    fields: &mut Fields<'_>,
    line: u32,
    findings: &mut Findings,
) -> Option<Swap> {
    let pool = pool(fields, findings);
    let Some(word) = words.first() else {
        findings.add(
            fields.at,
            "`swap` without a size",
            "write the size for each compute node, such as `swap 8GiB`",
        );
        return None;
    };
    // A bare number counts GiB: that is what Slurm reads there.
    let bare = word.text.chars().all(|c| c.is_ascii_digit());
    let text = if bare {
        format!("{}GiB", word.text)
    } else {
        word.text.to_owned()
    };
    match capacity::read_bytes(&text) {
        Ok(size) => Some(Swap { size, pool, line }),
        Err((offset, problem, remedy)) => {
            findings.add(word.at.right(offset), problem, remedy);
            None
        }
    }
}

fn create(
    fields: &mut Fields<'_>,
    bb: bool,
    line: u32,
    findings: &mut Findings,
) -> Option<CreatePersistent> {
    let name = named(fields, findings);
    let capacity = fields.require("capacity", "100GiB", findings);
    let capacity = capacity.and_then(|value| read_capacity(&value, findings));
    let pool = pool(fields, findings);
    let kind = if bb {
        fields.take("type")
    } else {
        fields.require("type", "scratch", findings)
    };
    match kind.as_ref().map(|value| (value.text.as_str(), value.at)) {
        None | Some(("scratch", _)) => {}
        Some(("cache", at)) => findings.add(
            at,
            "a persistent instance cannot be a cache",
            "write `type=scratch`",
        ),
        Some((other, at)) => findings.add(
            at,
            format!("unknown type {}", quoted(other)),
            "write `type=scratch`",
        ),
    }
    let modes = if bb {
        let first = fields.take("access");
        let second = fields.take("access_mode");
        if let (Some(_), Some(second)) = (&first, &second) {
            findings.add(
                second.at,
                "both `access=` and `access_mode=`",
                "keep one of the two",
            );
        }
        first.or(second)
    } else {
        fields.require("access_mode", "striped", findings)
    };
    let access = match modes {
        None => vec![Access {
            mode: AccessMode::Striped,
            modifiers: Default::default(),
        }],
        Some(value) => {
            let access = access::modes(&value, findings)?;
            access::check(&InstanceType::Scratch, &access, value.at, findings);
            if access.iter().any(|a| a.mode == AccessMode::LoadBalanced) {
                findings.add(value.at, "a persistent instance with access_mode=ldbalance: its copies are read-only, so no job could fill it", "write striped, private or both; ldbalance goes with `jobdw` and `stage_in`");
            }
            access
        }
    };
    Some(CreatePersistent {
        name: name?,
        capacity: capacity?,
        access,
        pool,
        for_slurm: bb,
        line,
    })
}

fn read_capacity(value: &Value, findings: &mut Findings) -> Option<capacity::Capacity> {
    capacity::read(&value.text)
        .map_err(|(offset, problem, remedy)| findings.add(value.at.right(offset), problem, remedy))
        .ok()
}

/// Whether `name` can name a persistent instance: it becomes part of a variable's name, and
/// Slurm refuses a digit at its beginning.
pub(super) fn valid_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn named(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<String> {
    let value = fields.require("name", "my_data", findings)?;
    if valid_name(&value.text) {
        return Some(value.text);
    }
    findings.add(value.at, format!("{} cannot name a persistent instance", quoted(&value.text)), format!("use at most {MAX_NAME} letters, digits and `_`, not beginning with a digit: the name becomes part of the variable DW_PERSISTENT_STRIPED_name"));
    None
}

fn pool(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<String> {
    let value = fields.take("pool")?;
    let good = value.text.len() <= MAX_NAME
        && value
            .text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if !good {
        findings.add(
            value.at,
            format!("{} cannot name a pool", quoted(&value.text)),
            format!("use at most {MAX_NAME} letters, digits and `_-.`"),
        );
        return None;
    }
    Some(value.text)
}
