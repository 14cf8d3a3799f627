//! What is wrong in a job script, where, and what would be right.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A place in a script: both numbers count from one, columns in characters.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// Line of the script.
    pub line: u32,
    /// Character in the line.
    pub column: u32,
}

impl Position {
    /// The place `characters` further right on the same line.
    pub fn shift_right(self, characters: usize) -> Position {
        let column = self
            .column
            .saturating_add(u32::try_from(characters).unwrap_or(u32::MAX));
        Position { column, ..self }
    }
}

/// One mistake in a job script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Where it is.
    pub position: Position,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.position;
        write!(
            f,
            "line {line}, column {column}: {}; {}",
            self.problem, self.remedy
        )
    }
}

/// Every mistake found in one script, in the order of the script; never empty.
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

/// Collects mistakes while reading goes on, so that a reader sees all of them at once.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<ScriptError>);

impl Findings {
    /// Notes a mistake.
    pub fn report(&mut self, at: Position, problem: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(ScriptError {
            position: at,
            problem: problem.into(),
            remedy: remedy.into(),
        });
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are so far.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The mistakes in the order of the script.
    pub fn into_errors(mut self) -> ScriptErrors {
        self.0.sort_by_key(|error| error.position);
        ScriptErrors(self.0)
    }
}

/// Text of a word for a message: whole when short, else its head.
pub(super) fn quote(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut head: String = text
        .chars()
        .take(SHOWN)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().count() > SHOWN {
        head.push('…');
    }
    format!("`{head}`")
}

/// The one of `known` that `word` most likely meant, if any is near.
pub(super) fn closest_match<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    if word.chars().count() > 40 {
        return None;
    }
    let lower = word.to_lowercase();
    known
        .iter()
        .map(|k| (distance(&lower, &k.to_lowercase()), *k))
        .filter(|(d, k)| *d <= 1 + k.len() / 4)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (y, above) in b.iter().zip(row.iter_mut().skip(1)) {
            let cost = (diagonal + usize::from(x != *y))
                .min(left + 1)
                .min(*above + 1);
            diagonal = *above;
            *above = cost;
            left = cost;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }

    #[test]
    fn nearest_finds_typing_errors_only() {
        assert_eq!(
            closest_match("capcity", &["capacity", "type"]),
            Some("capacity")
        );
        assert_eq!(closest_match("TYPE", &["capacity", "type"]), Some("type"));
        assert_eq!(closest_match("colour", &["capacity", "type"]), None);
    }
}
