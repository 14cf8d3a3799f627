//! Slurm's replacement symbols in the values of directives.
//!
//! `%%` is a percent sign, `%A` the array's job id, `%a` the task's index in the array, `%d` the
//! working directory, `%j` the job id, `%u` the user's name, `%x` the job's name; after `\\`
//! nothing more is replaced in the directive.

use super::error::{Findings, Position};

/// The values of the symbols in one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// `%j`, and `%A` of a job that is in no array.
    pub job_id: String,
    /// `%A` and `%a` of a job array's task.
    pub array: Option<(String, String)>,
    /// `%d`.
    pub work_dir: String,
    /// `%u`.
    pub user: String,
    /// `%x`.
    pub job_name: String,
}

/// Replaces the symbols in `value`, which begins at `at`. `stopped` is set after `\\`; from then
/// on, text of the directive is left unchanged.
pub(super) fn expand_symbols(
    symbols: &Symbols,
    value: &str,
    at: Position,
    stopped: &mut bool,
    findings: &mut Findings,
) -> String {
    let mut result = String::with_capacity(value.len());
    let mut characters = value.chars().enumerate().peekable();
    while let Some((index, c)) = characters.next() {
        if *stopped {
            result.push(c);
            continue;
        }
        let next = characters.peek().map(|(_, c)| *c);
        match (c, next) {
            ('\\', Some('\\')) => {
                characters.next();
                *stopped = true;
            }
            ('%', Some(symbol)) => {
                characters.next();
                match meaning(symbols, symbol) {
                    Ok(text) => result.push_str(text),
                    Err((problem, remedy)) => {
                        findings.report(at.shift_right(index), problem, remedy)
                    }
                }
            }
            ('%', None) => findings.report(
                at.shift_right(index),
                "a percent sign at the end of a value",
                "write `%%` for a percent sign",
            ),
            _ => result.push(c),
        }
    }
    result
}

fn meaning(symbols: &Symbols, symbol: char) -> Result<&str, (String, &'static str)> {
    match symbol {
        '%' => Ok("%"),
        'A' => Ok(symbols.array.as_ref().map_or(&symbols.job_id, |(id, _)| id)),
        'a' => symbols.array.as_ref().map(|(_, task)| task.as_str()).ok_or((
            "`%a` is the index in a job array, but this job is in none".to_owned(),
            "use `%j`, or submit the script with `--array`",
        )),
        'd' => Ok(&symbols.work_dir),
        'j' => Ok(&symbols.job_id),
        'u' => Ok(&symbols.user),
        'x' => Ok(&symbols.job_name),
        other => Err((
            format!("`%{}` stands for nothing", other.escape_debug()),
            "use %%, %A, %a, %d, %j, %u or %x; `%%` is a percent sign and `\\\\` ends replacement",
        )),
    }
}
