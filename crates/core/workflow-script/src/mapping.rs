//! Mapping files: the files that each node of a job gets.

use std::collections::{BTreeMap, BTreeSet};

use forebay_job_script::{Position, ScriptErrors};
use regex::{Regex, RegexBuilder};

use crate::location::{Location, Variables};
use crate::{Findings, quote};

/// Maximum length of a mapping file, in bytes.
pub const MAX_MAPPING_BYTES: u64 = 1 << 20;
/// Maximum size of a compiled regular expression, in bytes.
const MAX_EXPRESSION_BYTES: usize = 1 << 20;
/// Maximum number of inputs of a mapping file.
const MAX_INPUTS: usize = 1024;
/// Maximum number of files of one rank.
const MAX_FILES: usize = 100_000;

/// The component of an input's path that has a regular expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    expression: Regex,
    /// The path below it; empty if the component is the last one.
    pub rest: String,
}

impl Pattern {
    /// The text that the expression matches in an entry of the directory, if the entry matches.
    pub fn matched<'a>(&self, name: &'a str) -> Option<&'a str> {
        let captures = self.expression.captures(name)?;
        captures.get(1).map(|found| found.as_str())
    }
}

/// A declared input.
#[derive(Clone, Debug)]
pub struct Input {
    /// Line of the mapping file.
    pub line: u32,
    /// The file, or the directory whose entries are compared with the pattern.
    pub location: Location,
    /// The regular expression, if there is one.
    pub pattern: Option<Pattern>,
}

/// The files of one node rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingRow {
    /// Line of the mapping file.
    pub line: u32,
    /// Index of the node in the job's node list.
    pub rank: u32,
    /// The directory for the files.
    pub target: Location,
    /// Indices of files.
    pub indices: Vec<u64>,
}

/// A mapping file.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// Declared inputs.
    pub inputs: Vec<Input>,
    /// A row for each rank that gets files.
    pub rows: Vec<MappingRow>,
}

/// A file that belongs to an input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundFile {
    /// Index of the input.
    pub input: usize,
    /// Text that the expression matched; empty for an input without one.
    pub matched: String,
    /// The file.
    pub location: Location,
}

impl Mapping {
    /// Parses a mapping file. `variables` replace `${HOME}` and so on.
    pub fn parse(text: &str, variables: &Variables) -> Result<Mapping, ScriptErrors> {
        let mut findings = Findings::default();
        let mut mapping = Mapping::default();
        let mut in_list = false;
        let mut has_list = false;
        for (line, content) in (1u32..).zip(text.lines()) {
            let bare = content.trim();
            let column = u32::try_from(content.len() - content.trim_start().len()).unwrap_or(0) + 1;
            let at = Position { line, column };
            if bare.is_empty() || bare.starts_with('#') {
                continue;
            }
            if in_list || (!has_list && bare.starts_with('[')) {
                has_list = true;
                in_list = !mapping.add_inputs(bare, at, variables, &mut findings);
            } else if has_list {
                mapping.add_row(bare, at, variables, &mut findings);
            } else {
                let remedy = "write `['lustre://in/part%[0-9]+%.dat'];` before the rows";
                findings.report(at, "the mapping declares no inputs", remedy);
                return findings.finish(mapping);
            }
        }
        if in_list {
            let at = Position { line: u32::try_from(text.lines().count()).unwrap_or(0), column: 1 };
            findings.report(at, "the list of inputs does not end", "end it with `];`");
        } else if !has_list {
            let at = Position { line: 1, column: 1 };
            let remedy = "write `['lustre://in/part%[0-9]+%.dat'];` and a row for each node";
            findings.report(at, "the mapping is empty", remedy);
        }
        findings.finish(mapping)
    }

    /// Adds the inputs of a line of the list; returns whether the list ends here.
    fn add_inputs(
        &mut self,
        line: &str,
        at: Position,
        variables: &Variables,
        findings: &mut Findings,
    ) -> bool {
        let mut rest = line.strip_prefix('[').unwrap_or(line);
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let offset = line.len() - rest.len();
            let here = at.shift_right(line[..offset].chars().count());
            if rest.is_empty() {
                return false;
            }
            if let Some(end) = rest.strip_prefix(']') {
                if end.trim() != ";" {
                    findings.report(
                        here,
                        "the list of inputs ends with `];`",
                        "write `];` and nothing after it",
                    );
                }
                return true;
            }
            let quoted = rest.strip_prefix(['\'', '"']).and_then(|inner| {
                inner.find(rest.chars().next()?).map(|end| (&inner[..end], &inner[end + 1..]))
            });
            let Some((uri, after)) = quoted else {
                findings.report(here, "an input is not in quotes", "write `'lustre://in/a.dat'`");
                return rest.contains(']');
            };
            rest = after;
            if self.inputs.len() == MAX_INPUTS {
                let problem = format!("more than {MAX_INPUTS} inputs");
                findings.report(here, problem, "use a regular expression");
                return true;
            }
            let input = findings.accept(here, parse_input(uri, here.line, variables));
            self.inputs.extend(input);
        }
    }

    fn add_row(
        &mut self,
        line: &str,
        at: Position,
        variables: &Variables,
        findings: &mut Findings,
    ) {
        let fields: Vec<&str> = line.trim_end_matches(';').split(';').map(str::trim).collect();
        let [rank, target, indices] = fields[..] else {
            let remedy = "write rank, dataspace and files, such as `0;nvme0://;0,5`";
            findings.report(at, "a row has three fields separated by semicolons", remedy);
            return;
        };
        let Ok(rank) = rank.parse::<u32>() else {
            let problem = format!("{} is no rank of a node", quote(rank));
            findings.report(at, problem, "write a number from 0");
            return;
        };
        let Some(target) = findings.accept(at, Location::parse(target)) else { return };
        let mut numbers = Vec::new();
        for index in indices.split(',').map(str::trim) {
            match index.parse::<u64>() {
                Ok(number) => numbers.push(number),
                Err(_) => {
                    let problem = format!("{} is no index of a file", quote(index));
                    findings.report(
                        at,
                        problem,
                        "write numbers separated by commas, such as `0,5`",
                    );
                    return;
                }
            }
        }
        let target = target.expand(variables);
        self.rows.push(MappingRow { line: at.line, rank, target, indices: numbers });
    }

    /// The files of a rank, with the directories for them. `found` are the files of all inputs. The
    /// index of a file is the number that its regular expression matched; if it matched something
    /// else, the position among its input's matches in alphabetical order; and for an input without
    /// an expression the position of the input. An index may select files of several inputs.
    ///
    /// # Errors
    /// An index of the rank selects no file, or more files than can be mapped.
    pub fn files_of(
        &self,
        rank: u32,
        found: &[FoundFile],
    ) -> Result<Vec<(Location, Location)>, String> {
        let by_index = self.index(found);
        let mut files = Vec::new();
        for row in self.rows.iter().filter(|row| row.rank == rank) {
            for index in &row.indices {
                let Some(selected) = by_index.get(index) else {
                    return Err(format!(
                        "line {}: no input has a file with index {index}; the indices are {}",
                        row.line,
                        list_of(by_index.keys())
                    ));
                };
                files.extend(
                    selected.iter().map(|file| (file.location.clone(), row.target.clone())),
                );
                if files.len() > MAX_FILES {
                    return Err(format!(
                        "line {}: more than {MAX_FILES} files are mapped to rank {rank}",
                        row.line
                    ));
                }
            }
        }
        Ok(files)
    }

    fn index<'a>(&self, found: &'a [FoundFile]) -> BTreeMap<u64, BTreeSet<&'a FoundFile>> {
        let mut by_index: BTreeMap<u64, BTreeSet<&FoundFile>> = BTreeMap::new();
        for (number, input) in self.inputs.iter().enumerate() {
            let files: BTreeSet<&FoundFile> =
                found.iter().filter(|file| file.input == number).collect();
            let numbers: Option<Vec<u64>> =
                files.iter().map(|file| file.matched.parse().ok()).collect();
            for (position, file) in files.iter().enumerate() {
                let index = match (&input.pattern, &numbers) {
                    (None, _) => number as u64,
                    (Some(_), Some(numbers)) => numbers[position],
                    (Some(_), None) => position as u64,
                };
                by_index.entry(index).or_default().insert(file);
            }
        }
        by_index
    }
}

fn list_of<'a>(numbers: impl ExactSizeIterator<Item = &'a u64>) -> String {
    const SHOWN: usize = 20;
    let more = if numbers.len() > SHOWN { ", …" } else { "" };
    let shown: Vec<String> = numbers.take(SHOWN).map(u64::to_string).collect();
    if shown.is_empty() { "none: no file matches".to_owned() } else { shown.join(", ") + more }
}

fn parse_input(uri: &str, line: u32, variables: &Variables) -> Result<Input, (String, String)> {
    let parts: Vec<&str> = uri.split('%').collect();
    let [before, expression, after] = parts[..] else {
        if parts.len() == 1 {
            let location = Location::parse(uri)?.expand(variables);
            return Ok(Input { line, location, pattern: None });
        }
        let problem = format!("{} has not exactly one expression between two % signs", quote(uri));
        return Err((problem, "write `lustre://in/part%[0-9]+%.dat`".to_owned()));
    };
    if expression.contains('/') {
        let problem = format!("the expression {} contains a slash", quote(expression));
        return Err((problem, "an expression describes one component of the path".to_owned()));
    }
    let start = before.rfind('/').map_or(0, |at| at + 1);
    let (directory, head) = before.split_at(start);
    let (tail, rest) = after.split_once('/').unwrap_or((after, ""));
    let location = Location::parse(directory)?.expand(variables);
    // Checked as a path.
    let rest = Location::parse(&format!("{}://{rest}", location.dataspace))?.expand(variables).path;
    let whole = format!("^{}({expression}){}$", regex::escape(head), regex::escape(tail));
    let compiled = RegexBuilder::new(&whole).size_limit(MAX_EXPRESSION_BYTES).build();
    let expression = compiled.map_err(|error| {
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let problem = format!("{} is no regular expression: {reason}", quote(expression));
        (problem, "write such as `%[0-9]+%`".to_owned())
    })?;
    Ok(Input { line, location, pattern: Some(Pattern { expression, rest }) })
}
