//! The `#NORNS` directives at the head of a batch script, and the mapping files that they name.
//!
//! ```text
//! #NORNS stage_in  lustre://mesh nvme0://mesh mapping.dat
//! #NORNS stage_out nvme0://out lustre://results
//! #NORNS persist   store nvme0://tables
//! #NORNS persist   share nvme0://tables group:climate
//! ```
//!
//! Text becomes a [`NornsScript`] or a [`Mapping`], or a list of all errors with line, column and
//! remedy. Source: the slides of NEXTGenIO on its system software, which are all that is published of
//! the workflow options. Nothing here accesses files: the caller lists directories.

mod directives;
mod location;
mod mapping;

pub use directives::{
    MAX_DIRECTIVES, NornsScript, Persist, PersistAction, Principal, Stage, StageDirection,
};
pub use location::{Location, Variables};
pub use mapping::{FoundFile, Input, MAX_MAPPING_BYTES, Mapping, MappingRow, Pattern};

use forebay_job_script::{Position, ScriptError, ScriptErrors};

/// Errors of one text, in its order.
#[derive(Debug, Default)]
struct Findings(Vec<ScriptError>);

impl Findings {
    fn report(&mut self, at: Position, problem: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(ScriptError { position: at, problem: problem.into(), remedy: remedy.into() });
    }

    /// The value, or `None` after adding its error.
    fn accept<T>(&mut self, at: Position, parsed: Result<T, (String, String)>) -> Option<T> {
        parsed.map_err(|(problem, remedy)| self.report(at, problem, remedy)).ok()
    }

    /// The value, if there were no errors.
    fn finish<T>(self, value: T) -> Result<T, ScriptErrors> {
        if self.0.is_empty() { Ok(value) } else { Err(ScriptErrors(self.0)) }
    }
}

/// A word in backquotes for a message, shortened to 80 characters.
fn quote(text: &str) -> String {
    const SHOWN: usize = 80;
    let head: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    let end = if text.chars().count() > SHOWN { "…" } else { "" };
    format!("`{head}{end}`")
}

/// ` (did you mean …?)`, if `word` looks like a misspelling of one of `known`.
fn suggestion(word: &str, known: &[&str]) -> String {
    let distance = |known: &&str| strsim::levenshtein(&word.to_lowercase(), known);
    let nearest = known.iter().copied().min_by_key(distance);
    match nearest.filter(|known| distance(known) <= 1 + known.len() / 4) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("write one of {}", known.join(", ")),
    }
}
