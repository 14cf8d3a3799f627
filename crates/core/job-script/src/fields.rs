//! The arguments of a directive: `key=value`, flags, and values common to several directives.

use super::capacity::{self, Capacity};
use super::error::{Findings, Position, closest_match, quote};
use super::lexer::Word;
use super::symbols::{Symbols, expand_symbols};

/// Maximum length of the name of a pool or a persistent instance, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A value and its position.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub text: String,
    pub at: Position,
}

/// The `key=value` words and flags of one directive.
pub(super) struct Fields<'a> {
    directive: &'a str,
    /// Position of the directive's name, at which missing keys are reported.
    at: Position,
    values: Vec<(String, Value)>,
    /// Keys that a refused word probably meant; their absence is not reported again.
    misspelt: Vec<String>,
    /// The flags that were given.
    flags: Vec<&'static str>,
}

/// The arguments that a directive takes.
pub(super) struct DirectiveForm {
    /// Flags.
    pub flags: &'static [&'static str],
    /// Keys of `key=value` words.
    pub keys: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Splits the words of `directive` at the first `=`; refuses unknown and repeated keys.
    pub fn parse(
        directive: &Word<'a>,
        words: &[Word<'_>],
        form: &DirectiveForm,
        symbols: Option<&Symbols>,
        findings: &mut Findings,
    ) -> Fields<'a> {
        let mut fields = Fields {
            directive: directive.text,
            at: directive.at,
            values: Vec::new(),
            misspelt: Vec::new(),
            flags: Vec::new(),
        };
        let mut stopped = false;
        for word in words {
            if word.text.starts_with('#') {
                findings.report(
                    word.at,
                    "a comment behind a directive".to_owned(),
                    "put it on a line of its own",
                );
                break;
            }
            let Some((key, value)) = word.text.split_once('=') else {
                fields.lone(word, form, findings);
                continue;
            };
            let at = word.at.shift_right(key.chars().count() + 1);
            if !fields.fits(word, key, value, at, form, findings) {
                continue;
            }
            let text = match symbols {
                Some(symbols) => expand_symbols(symbols, value, at, &mut stopped, findings),
                None => value.to_owned(),
            };
            fields.values.push((key.to_owned(), Value { text, at }));
        }
        fields
    }

    /// Position of the directive's name.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Whether `flag` was given.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Handles a word without `=`, which may be a flag.
    fn lone(&mut self, word: &Word<'_>, form: &DirectiveForm, findings: &mut Findings) {
        if let Some(flag) = form.flags.iter().find(|flag| **flag == word.text) {
            self.flags.push(flag);
            return;
        }
        let remedy = match (form.keys.contains(&word.text), form.flags.first()) {
            (true, _) => {
                self.misspelt.push(word.text.to_owned());
                format!("write `{}=…`, without a blank before `=`", word.text)
            }
            (false, Some(flag)) => format!("only `{flag}` may stand alone"),
            (false, None) => {
                "write `key=value`, without blanks around `=` or inside the value".to_owned()
            }
        };
        findings.report(
            word.at,
            format!("{} is not of the form key=value", quote(word.text)),
            remedy,
        );
    }

    /// Whether `key` is known, not repeated, and has a value.
    fn fits(
        &mut self,
        word: &Word<'_>,
        key: &str,
        value: &str,
        at: Position,
        form: &DirectiveForm,
        findings: &mut Findings,
    ) -> bool {
        if !form.keys.contains(&key) {
            let remedy = match closest_match(key, &form.keys) {
                Some(near) => {
                    self.misspelt.push(near.to_owned());
                    format!("did you mean `{near}`?")
                }
                None => format!("it takes {}", form.keys.join(", ")),
            };
            findings.report(
                word.at,
                format!("`{}` has no key {}", self.directive, quote(key)),
                remedy,
            );
            return false;
        }
        if self.values.iter().any(|(k, _)| k == key) {
            findings.report(
                word.at,
                format!("`{key}` a second time in this directive"),
                "keep one of the two",
            );
            return false;
        }
        if value.is_empty() {
            self.misspelt.push(key.to_owned());
            findings.report(
                at,
                format!("`{key}=` without a value"),
                "write the value directly after `=`",
            );
            return false;
        }
        true
    }

    /// Removes and returns the value of `key`.
    pub fn take_value(&mut self, key: &str) -> Option<Value> {
        let index = self.values.iter().position(|(k, _)| k == key)?;
        Some(self.values.remove(index).1)
    }

    /// Removes and returns the value of `key`, or reports that it is missing with `example`.
    pub fn require_value(
        &mut self,
        key: &str,
        example: &str,
        findings: &mut Findings,
    ) -> Option<Value> {
        let value = self.take_value(key);
        if value.is_none() && !self.misspelt.iter().any(|k| k == key) {
            findings.report(
                self.at,
                format!("`{}` without `{key}=`", self.directive),
                format!("add `{key}={example}`"),
            );
        }
        value
    }

    /// The value of the required key `capacity`.
    pub fn require_capacity(&mut self, findings: &mut Findings) -> Option<Capacity> {
        let value = self.require_value("capacity", "100GiB", findings)?;
        findings.accept(value.at, capacity::parse_capacity(&value.text))
    }

    /// The value of the required key `name`: that of a persistent instance.
    pub fn require_name(&mut self, findings: &mut Findings) -> Option<String> {
        let value = self.require_value("name", "my_data", findings)?;
        let checked = check_persistent_name(&value.text);
        findings.accept(value.at, checked.map_err(|(problem, remedy)| (0, problem, remedy)))?;
        Some(value.text)
    }

    /// The value of the optional key `group`: the name or number of a group.
    pub fn take_group(&mut self, findings: &mut Findings) -> Option<String> {
        let value = self.take_value("group")?;
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '$');
        if value.text.is_empty() || !value.text.chars().all(is_allowed) {
            return findings.refuse(
                value.at,
                format!("{} cannot name a group", quote(&value.text)),
                "write the name or number of a group of users",
            );
        }
        Some(value.text)
    }

    /// The value of the optional key `pool`.
    pub fn take_pool(&mut self, findings: &mut Findings) -> Option<String> {
        let value = self.take_value("pool")?;
        let good = value.text.len() <= MAX_NAME_BYTES
            && value
                .text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if !good {
            return findings.refuse(
                value.at,
                format!("{} cannot name a pool", quote(&value.text)),
                format!("use at most {MAX_NAME_BYTES} letters, digits and `_-.`"),
            );
        }
        Some(value.text)
    }
}

/// Checks the name of a persistent instance.
///
/// # Errors
/// The problem and its remedy.
pub fn check_persistent_name(name: &str) -> Result<(), (String, String)> {
    if is_valid_name(name) {
        return Ok(());
    }
    let problem = format!("{} cannot name a persistent instance", quote(name));
    let remedy = format!(
        "use at most {MAX_NAME_BYTES} letters, digits and `_`, not beginning with a digit: the name becomes \
         part of the variable DW_PERSISTENT_STRIPED_name"
    );
    Err((problem, remedy))
}

/// Whether `name` is a valid name of a persistent instance: it becomes part of a variable's name,
/// and Slurm refuses a leading digit.
pub(super) fn is_valid_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
