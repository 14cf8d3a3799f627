//! Machine files that are based on others.
//!
//! `base = "edison"` takes over what the file does not have itself from an embedded machine, or from the file at
//! a path that ends in `.toml`, relative to the directory of the file. Tables are joined key by key; entries,
//! texts and lists are replaced whole. `without = ["burst_buffer"]` leaves out tables or entries of the base.
//!
//! The texts of a file and its bases count as one text in which they follow each other: a position in it
//! tells which file it is in.

use crate::builtin::Source;
use crate::machine::SourceFile;
use crate::problem::{MachineError, Problem, excerpt, file_name, suggestion};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A machine file and those on which it is based, itself first.
pub(crate) struct Layers {
    sources: Vec<Source>,
}

impl Layers {
    /// A file, and its bases.
    ///
    /// # Errors
    /// A file that is no TOML document; a base that does not exist, or that is based on the file.
    pub(crate) fn of(source: Source) -> Result<Layers, MachineError> {
        let mut layers = Layers { sources: vec![source] };
        while let Some(base) = layers.next_base()? {
            layers.sources.push(base);
        }
        Ok(layers)
    }

    /// The base of the last file.
    fn next_base(&self) -> Result<Option<Source>, MachineError> {
        let Some(last) = self.sources.last() else { return Ok(None) };
        let joined = JoinedText::of([(last.file.as_str(), last.text.as_str())]);
        let root = joined.parse(0)?;
        let Some(value) = root.get("base") else { return Ok(None) };
        let problem = |message, expected| joined.problem_at(value.span().start, message, expected);
        let Some(name) = value.get_ref().as_str() else {
            let found = excerpt(&last.text, &value.span());
            let expected = "the name of a machine, or the path of a file that ends in .toml";
            return Err(problem(format!("`base` is {found}, not a text"), expected.into()).into());
        };
        let base = last
            .find_base(name)
            .map_err(|why| problem(format!("base \"{name}\": {}", why.message), why.expected))?;
        if self.sources.iter().any(|source| source.is_same_file(&base)) {
            let message = format!("base \"{name}\" leads back to {}", base.file);
            return Err(
                problem(message, "a machine file that is not based on this one".into()).into()
            );
        }
        Ok(Some(base))
    }

    /// The files, the machine's own first.
    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Replaces the text of a file.
    pub(crate) fn set_text(&mut self, number: usize, text: String) {
        if let Some(source) = self.sources.get_mut(number) {
            source.text = text;
        }
    }

    /// The files as they can be kept in one directory, to load the machine from there: each names the next one
    /// as its base.
    pub(crate) fn files(&self) -> Vec<SourceFile> {
        let name_of = |number: usize, source: &Source| match number {
            0 => file_name(&source.file).to_owned(),
            _ => format!("base{number}-{}", file_name(&source.file)),
        };
        let mut files = Vec::new();
        for (number, source) in self.sources.iter().enumerate() {
            let mut text = source.text.clone();
            if let (Some(base), Some(span)) = (self.sources.get(number + 1), base_span(&text)) {
                text.replace_range(span, &format!("\"{}\"", name_of(number + 1, base)));
            }
            files.push(SourceFile { name: name_of(number, source), text });
        }
        files
    }

    pub(crate) fn join(&self) -> JoinedText {
        JoinedText::of(self.sources.iter().map(|s| (s.file.as_str(), s.text.as_str())))
    }
}

/// The place of the value of `base` in a text.
fn base_span(text: &str) -> Option<Range<usize>> {
    let (root, _) = DeTable::parse_recoverable(text);
    root.get_ref().get("base").map(Spanned::span)
}

/// The texts of a file and its bases, one behind the other.
pub(crate) struct JoinedText {
    pub(crate) text: String,
    parts: Vec<Part>,
}

/// One of the texts.
struct Part {
    file: String,
    /// Where it starts in the joined text.
    start: usize,
    /// It, behind as many blanks: the spans of its values are those of the joined text.
    padded: String,
}

impl JoinedText {
    fn of<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> JoinedText {
        let mut joined = JoinedText { text: String::new(), parts: Vec::new() };
        for (file, text) in texts {
            if !joined.parts.is_empty() {
                joined.text.push('\n');
            }
            let start = joined.text.len();
            joined.text.push_str(text);
            let padded = " ".repeat(start) + text;
            joined.parts.push(Part { file: file.to_owned(), start, padded });
        }
        joined
    }

    /// The number of the file that a position is in, and the position in its text.
    pub(crate) fn locate(&self, offset: usize) -> (usize, usize) {
        let number = self.parts.iter().rposition(|part| part.start <= offset).unwrap_or(0);
        (number, offset - self.parts.get(number).map_or(0, |part| part.start))
    }

    /// The path of the file with a number.
    pub(crate) fn file(&self, number: usize) -> &str {
        self.parts.get(number).map_or("", |part| &part.file)
    }

    /// A problem at a position.
    pub(crate) fn problem_at(
        &self,
        offset: usize,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) -> Problem {
        let (number, local) = self.locate(offset);
        let text = self.parts.get(number).and_then(|part| part.padded.get(part.start..));
        Problem::at_offset(self.file(number), text.unwrap_or(""), local, message, expected)
    }

    /// The document of one of the texts.
    fn parse(&self, number: usize) -> Result<DeTable<'_>, MachineError> {
        let padded = self.parts.get(number).map_or("", |part| &part.padded);
        let (root, errors) = DeTable::parse_recoverable(padded);
        if errors.is_empty() {
            return Ok(root.into_inner());
        }
        let problems = errors.iter().map(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let message = error.message().replace('\n', ", ");
            self.problem_at(offset, format!("not TOML: {message}"), "a TOML document")
        });
        Err(MachineError { problems: problems.collect() })
    }

    /// The first document with what it takes over from the others.
    ///
    /// # Errors
    /// Texts that are no TOML documents; keys to leave out that a base does not have.
    pub(crate) fn merged(&self) -> Result<DeTable<'_>, MachineError> {
        let mut merged = DeTable::new();
        for number in (0..self.parts.len()).rev() {
            let mut table = self.parse(number)?;
            table.remove("base");
            if let Some(list) = table.remove("without") {
                self.leave_out(&list, &mut merged)?;
            }
            add_missing(&mut table, merged);
            merged = table;
        }
        Ok(merged)
    }

    /// Removes the keys of a list from a base.
    fn leave_out(
        &self,
        list: &Spanned<DeValue<'_>>,
        base: &mut DeTable<'_>,
    ) -> Result<(), MachineError> {
        let not_keys = |value: &Spanned<DeValue<'_>>| {
            let found = excerpt(&self.text, &value.span());
            let message = format!("`without` has {found}, which is no key of the base");
            self.problem_at(value.span().start, message, "a list as [\"pfs\", \"client.types\"]")
        };
        let keys = list.get_ref().as_array().ok_or_else(|| not_keys(list))?;
        for key in keys {
            let path = key.get_ref().as_str().ok_or_else(|| not_keys(key))?;
            remove(base, path).map_err(|known| {
                self.problem_at(key.span().start, format!("the base has no `{path}`"), known)
            })?;
        }
        Ok(())
    }
}

/// Removes a table or an entry by its dotted key; otherwise returns the keys that there are.
fn remove(table: &mut DeTable<'_>, path: &str) -> Result<(), String> {
    let (head, rest) = path.split_once('.').map_or((path, None), |(head, rest)| (head, Some(rest)));
    let known = suggestion(head, table.keys().map(|key| key.get_ref().as_ref()));
    match (rest, table.get_mut(head).map(Spanned::get_mut)) {
        (None, Some(_)) => drop(table.remove(head)),
        (Some(rest), Some(DeValue::Table(inner))) => remove(inner, rest)?,
        (_, _) => return Err(known),
    }
    Ok(())
}

/// Adds what a table does not have from that of its base.
fn add_missing<'t>(table: &mut DeTable<'t>, base: DeTable<'t>) {
    for (key, value) in base {
        match table.get_mut::<str>(key.get_ref()).map(Spanned::get_mut) {
            None => drop(table.insert(key, value)),
            Some(DeValue::Table(own)) => {
                // An entry is replaced with its source.
                if let DeValue::Table(inherited) = value.into_inner()
                    && !own.contains_key("value")
                    && !inherited.contains_key("value")
                {
                    add_missing(own, inherited);
                }
            }
            Some(_) => {}
        }
    }
}
