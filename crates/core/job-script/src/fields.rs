//! The words of a directive: `key=value`, flags, and values that several directives have.

use super::capacity::{self, Capacity};
use super::error::{Findings, Position, closest_match, quote};
use super::lexer::Word;
use super::symbols::{Symbols, expand_symbols};

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
    /// The flags that are set.
    flags: Vec<&'static str>,
}

/// What words a directive may have.
pub(super) struct DirectiveForm {
    /// Words that may stand alone.
    pub flags: &'static [&'static str],
    /// Keys of `key=value` words.
    pub keys: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Splits the words of `directive` at their first `=`; refuses unknown and repeated keys.
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

    /// Where the directive's name is.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Whether `flag` is set.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Takes a word without `=`, which may be a flag.
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

    /// Whether `key` may be set to `value`, which is at `at`.
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

    /// The value of `key`, taken out.
    pub fn take_value(&mut self, key: &str) -> Option<Value> {
        let index = self.values.iter().position(|(k, _)| k == key)?;
        Some(self.values.remove(index).1)
    }

    /// The value of `key`, taken out; that it is missing is a mistake, which `example` may mend.
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

    /// The value of `capacity`, which has to be there.
    pub fn require_capacity(&mut self, findings: &mut Findings) -> Option<Capacity> {
        let value = self.require_value("capacity", "100GiB", findings)?;
        capacity::parse_capacity(&value.text)
            .map_err(|(offset, problem, remedy)| {
                findings.report(value.at.shift_right(offset), problem, remedy)
            })
            .ok()
    }

    /// The name of a persistent instance, which has to be there.
    pub fn require_name(&mut self, findings: &mut Findings) -> Option<String> {
        let value = self.require_value("name", "my_data", findings)?;
        if is_valid_name(&value.text) {
            return Some(value.text);
        }
        findings.report(value.at, format!("{} cannot name a persistent instance", quote(&value.text)), format!("use at most {MAX_NAME} letters, digits and `_`, not beginning with a digit: the name becomes part of the variable DW_PERSISTENT_STRIPED_name"));
        None
    }

    /// The name of a pool, if there is one.
    pub fn take_pool(&mut self, findings: &mut Findings) -> Option<String> {
        let value = self.take_value("pool")?;
        let good = value.text.len() <= MAX_NAME
            && value
                .text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if !good {
            findings.report(
                value.at,
                format!("{} cannot name a pool", quote(&value.text)),
                format!("use at most {MAX_NAME} letters, digits and `_-.`"),
            );
            return None;
        }
        Some(value.text)
    }
}

/// Whether `name` can name a persistent instance: it becomes part of a variable's name, and
/// Slurm refuses a digit at its beginning.
pub(super) fn is_valid_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
