//! The `#DW` and `#BB` directives at the head of a batch script.
//!
//! Text becomes a [`JobScript`], or a list of all errors with line, column and remedy. Parsing
//! stops at the first line that is neither blank nor a comment. A trailing backslash continues a
//! directive on the next line, which may repeat the marker:
//!
//! ```text
//! #DW stage_in type=file source=/pfs/user/input \
//! #DW          destination=$DW_JOB_STRIPED/input
//! ```
//!
//! Sources: Cray DataWarp's user documentation, its design slides (CUG 2016) and the public Slurm
//! plugin. Keys, units and numbers must match exactly: nothing is guessed, rounded or ignored.

mod access;
mod capacity;
mod directive;
mod error;
mod fields;
mod instances;
mod lexer;
mod overlap;
mod parser;
mod path;
mod script;
mod stage;
mod symbols;
mod validate;

pub use capacity::Capacity;
pub use directive::{
    Access, AccessMode, BufferPath, CreatePersistent, DestroyPersistent, Direction, InstanceRef,
    InstanceType, JobInstance, Modifiers, OptimizationStrategy, PersistentUse, Stage, StageKind,
    StagePath, Swap,
};
pub use error::{Position, ScriptError, ScriptErrors};
pub use fields::check_persistent_name;
pub use lexer::{MAX_DIRECTIVES, MAX_LINE_BYTES};
pub use script::JobScript;
pub use symbols::Symbols;

use error::Findings;

impl JobScript {
    /// Parses the head of a script. `symbols` replaces Slurm's `%` symbols; `None` leaves percent
    /// signs alone, for a script in which Slurm has already replaced them.
    pub fn parse(text: &str, symbols: Option<&Symbols>) -> Result<JobScript, ScriptErrors> {
        let mut findings = Findings::default();
        let mut script = JobScript::default();
        let (lines, unread) = lexer::directive_lines(text, &mut findings);
        script.ignored_directives = unread;
        for line in &lines {
            let before = script.jobs.len();
            if !line.malformed {
                parser::parse_directive(line, symbols, &mut script, &mut findings);
            }
            let job = line.words.first().is_some_and(|word| word.text == "jobdw");
            script.jobs_failed |= job && script.jobs.len() == before;
        }
        validate::validate_script(&script, &mut findings);
        if findings.is_empty() { Ok(script) } else { Err(findings.into_errors()) }
    }
}

/// The entries of a list for `type=list`: one path per line; blank lines and lines that begin with
/// `#` are skipped. Errors have the line in the list.
pub fn parse_list(text: &str) -> Result<Vec<StagePath>, ScriptErrors> {
    let mut findings = Findings::default();
    let mut entries = Vec::new();
    for (line, entry) in (1u32..).zip(text.split('\n')) {
        let entry = entry.strip_suffix('\r').unwrap_or(entry);
        if entry.trim().is_empty() || entry.starts_with('#') {
            continue;
        }
        let at = Position { line, column: 1 };
        if entry.contains(|c: char| c.is_control()) {
            findings.report(at, "a control character in a path", "write one path a line");
            continue;
        }
        let parsed = findings.accept(at, path::parse_path(entry));
        entries.extend(parsed.map(|parsed| parsed.path));
    }
    if findings.is_empty() { Ok(entries) } else { Err(findings.into_errors()) }
}
