//! Numbers of a machine that replace those of its file.

use crate::layers::Layers;
use crate::machine::Machine;
use crate::problem::{MachineError, Problem, suggestion};
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A number that replaces that of the machine file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its dotted key, as `burst_buffer.card_write`.
    pub key: String,
    /// The value as in a machine file, without quotes: `1.5 GB/s`.
    pub value: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// A setting that has been applied.
pub(crate) struct Applied {
    /// Number of the file with the value, among the machine's own and its bases.
    pub(crate) file: usize,
    /// The changed text of that file.
    pub(crate) text: String,
    /// The value that the file had.
    before: String,
}

impl Setting {
    /// Replaces the value in the text of a machine file, or of the base that it has it from.
    ///
    /// # Errors
    /// If the file has no such number, or is not a TOML document.
    pub(crate) fn apply(&self, layers: &Layers) -> Result<Applied, MachineError> {
        let joined = layers.join();
        let root = joined.merged()?;
        let Some(value) = entry_value(&root, &self.key) else {
            let file = joined.file(0);
            let mut known = Vec::new();
            list_keys(&root, "", &mut known);
            let known = suggestion(&self.key, known.iter().map(String::as_str));
            return Err(self.problem(format!("{file} has no number `{}`", self.key), known).into());
        };
        let (file, start) = joined.locate(value.span().start);
        let span: Range<usize> = start..start + value.span().len();
        let text = layers.sources().get(file).map_or("", |source| &source.text);
        let before = text.get(span.clone()).unwrap_or_default().trim_matches('"').to_string();
        let (Some(head), Some(tail)) = (text.get(..span.start), text.get(span.end..)) else {
            unreachable!("the span of a value is within the text")
        };
        Ok(Applied { file, text: format!("{head}{}{tail}", self.literal(value.get_ref())), before })
    }

    /// The value as TOML: in quotes, unless it is a whole number in place of one.
    fn literal(&self, replaced: &DeValue<'_>) -> String {
        let is_integer = replaced.as_integer().is_some() && self.value.parse::<u64>().is_ok();
        if is_integer {
            self.value.clone()
        } else {
            format!("\"{}\"", self.value.replace('\\', "\\\\").replace('"', "\\\""))
        }
    }

    fn problem(&self, message: String, expected: impl Into<String>) -> Problem {
        Problem::in_file(&format!("--set {self}"), message, expected)
    }

    /// Names the setting as the place of the problems that it caused.
    pub(crate) fn claim(&self, error: &mut MachineError) {
        let quoted = format!("`{}`", self.key);
        for problem in error.problems.iter_mut().filter(|p| p.message.contains(&quoted)) {
            problem.file = format!("--set {self}");
            (problem.line, problem.column) = (0, 0);
        }
    }

    /// Records in the machine that a number is not the file's.
    pub(crate) fn record(&self, before: &Applied, machine: &mut Machine) {
        for number in machine.provenance.iter_mut().filter(|p| p.key == self.key) {
            number.source = format!("set on the command line instead of {}", before.before);
            number.calibrated = None;
            number.source_id = None;
            number.settled_in_view = Vec::new();
            number.base = None;
        }
    }
}

/// The value of the entry with a dotted key. A table of a list has its number, from 0 on, in the key.
fn entry_value<'d, 't>(table: &'d DeTable<'t>, key: &str) -> Option<&'d Spanned<DeValue<'t>>> {
    let mut table = table;
    let mut parts = key.split('.');
    while let Some(part) = parts.next() {
        let value = table.get(part)?.get_ref();
        table = match value.as_array() {
            Some(list) => list.get(parts.next()?.parse::<usize>().ok()?)?.get_ref().as_table()?,
            None => value.as_table()?,
        };
    }
    table.get("value")
}

/// The dotted keys of all entries.
fn list_keys(table: &DeTable<'_>, path: &str, keys: &mut Vec<String>) {
    for (key, value) in table {
        let key = match path {
            "" => key.get_ref().to_string(),
            path => format!("{path}.{}", key.get_ref()),
        };
        for (number, item) in value.get_ref().as_array().into_iter().flatten().enumerate() {
            if let Some(table) = item.get_ref().as_table() {
                list_keys(table, &format!("{key}.{number}"), keys);
            }
        }
        if let Some(table) = value.get_ref().as_table() {
            if table.contains_key("value") {
                keys.push(key);
            } else {
                list_keys(table, &key, keys);
            }
        }
    }
}
