//! Problems of machine files, with their position.

use std::fmt;
use std::ops::Range;

/// One problem of a file and the expected input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the file (`machines/toy.toml`, or its node map).
    pub file: String,
    /// Line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Column in characters, from 1; 0 for the file as a whole.
    pub column: usize,
    /// The problem, quoting the text.
    pub message: String,
    /// The expected input.
    pub expected: String,
}

impl Problem {
    /// A problem at a byte offset of `text`.
    pub(crate) fn at_offset(
        file: &str,
        text: &str,
        offset: usize,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Problem {
        let (line, column) = line_and_column(text, offset);
        Problem {
            file: file.to_owned(),
            line,
            column,
            message: message.into(),
            expected: expected.into(),
        }
    }

    /// A problem with the file as a whole.
    pub(crate) fn in_file(
        file: &str,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Problem {
        Problem {
            file: file.to_owned(),
            line: 0,
            column: 0,
            message: message.into(),
            expected: expected.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}; expected {}", self.file, self.message, self.expected)
        } else {
            let Problem { file, line, column, message, expected } = self;
            write!(f, "{file}:{line}:{column}: {message}; expected {expected}")
        }
    }
}

/// All problems of a machine file, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError {
    /// At least one problem.
    pub problems: Vec<Problem>,
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for MachineError {}

impl From<Problem> for MachineError {
    fn from(problem: Problem) -> MachineError {
        MachineError { problems: vec![problem] }
    }
}

/// Line and column (in characters), both from 1, of a byte offset; an offset beyond the end or
/// inside a character is rounded down.
pub(crate) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = text.get(..offset).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let line = before.matches('\n').count() + 1;
    let column = before.get(line_start..).unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// The name of a file without its directory.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// At most 40 characters of the text at a span, on one line, for a message.
pub(crate) fn excerpt(text: &str, span: &Range<usize>) -> String {
    let found = text.get(span.clone()).unwrap_or_default();
    let line = found.lines().next().unwrap_or_default().trim_end();
    let mut short: String = line.chars().take(40).collect();
    if short.len() < found.trim_end().len() {
        short.push('…');
    }
    short
}

/// Maximum number of known names that are listed beside the nearest one.
const MAX_LISTED: usize = 20;

/// The nearest of `known`, with the whole list if it is short; the list alone if none is near.
pub(crate) fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let nearest = known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(name, k), *k))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, k)| *distance <= 2.max(k.chars().count() / 3));
    match nearest {
        Some((_, near)) if known.len() > MAX_LISTED => format!("`{near}`"),
        Some((_, near)) => format!("`{near}` (known here: {})", known.join(", ")),
        None if known.is_empty() => "nothing here".to_owned(),
        None => format!("one of {}", known.join(", ")),
    }
}
