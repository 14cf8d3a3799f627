//! Errors in a job script, with their position and remedy.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A position in a script; both numbers start at 1, columns count characters.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// Line of the script.
    pub line: u32,
    /// Column in the line.
    pub column: u32,
}

impl Position {
    /// The position `characters` further right on the same line.
    pub fn shift_right(self, characters: usize) -> Position {
        let column = self.column.saturating_add(u32::try_from(characters).unwrap_or(u32::MAX));
        Position { column, ..self }
    }
}

/// One error in a job script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {problem}; {remedy}", position.line, position.column)]
pub struct ScriptError {
    /// Its position.
    pub position: Position,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

/// An error in a value: offset in characters, problem, remedy.
pub(super) type ValueError = (usize, String, String);

/// All errors of a script in the order of the script; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptErrors(pub Vec<ScriptError>);

impl fmt::Display for ScriptErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ScriptErrors {}

/// Collects errors, so that all of them are reported at once.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<ScriptError>);

impl Findings {
    /// Adds an error.
    pub fn report(&mut self, at: Position, problem: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(ScriptError { position: at, problem: problem.into(), remedy: remedy.into() });
    }

    /// Adds an error; returns `None` instead of the value that has it.
    pub fn refuse<T>(
        &mut self,
        at: Position,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Option<T> {
        self.report(at, problem, remedy);
        None
    }

    /// The value of a text that begins at `at`, or `None` after adding its error.
    pub fn accept<T>(&mut self, at: Position, parsed: Result<T, ValueError>) -> Option<T> {
        parsed
            .map_err(|(offset, problem, remedy)| {
                self.report(at.shift_right(offset), problem, remedy);
            })
            .ok()
    }

    /// Whether there is no error.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of errors so far.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The errors in the order of the script.
    pub fn into_errors(mut self) -> ScriptErrors {
        assert!(!self.0.is_empty(), "errors of a valid script");
        self.0.sort_by_key(|error| error.position);
        ScriptErrors(self.0)
    }
}

/// A word in backquotes for a message, shortened to 80 characters.
pub(super) fn quote(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut head: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().count() > SHOWN {
        head.push('…');
    }
    format!("`{head}`")
}

/// The one of `known` of which `word` is most likely a misspelling.
pub(super) fn closest_match<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    if word.chars().count() > 40 {
        return None;
    }
    let lower = word.to_lowercase();
    known
        .iter()
        .map(|k| (strsim::levenshtein(&lower, &k.to_lowercase()), *k))
        .filter(|(d, k)| *d <= 1 + k.len() / 4)
        // Of several, one that is cut off.
        .min_by_key(|(d, k)| (*d, !k.to_lowercase().starts_with(&lower)))
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closest_match_finds_typing_errors_only() {
        assert_eq!(closest_match("capcity", &["capacity", "type"]), Some("capacity"));
        assert_eq!(closest_match("TYPE", &["capacity", "type"]), Some("type"));
        assert_eq!(closest_match("colour", &["capacity", "type"]), None);
    }
}
