//! A TOML document in which every number carries its source.
//!
//! A number is written as an entry `{ value = …, from = "id" }`, where `id` names a text of the
//! `[sources]` table, or `{ value = …, assumed = "reason" }`. `calibrated = "row"` says which
//! measurement a value was fitted to, `note = "…"` adds a remark. All problems are collected,
//! so that one look at a wrong file shows everything.

use crate::machine::Provenance;
use crate::problem::{Problem, excerpt, suggestion};
use crate::units::{Bytes, Rate, Time};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Keys of an entry.
const ENTRY_KEYS: [&str; 5] = ["value", "from", "assumed", "calibrated", "note"];

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) span: Range<usize>,
}

/// One file being read: its text, the problems and the sources found so far.
pub(crate) struct Document<'t> {
    pub(crate) file: &'t str,
    pub(crate) text: &'t str,
    problems: RefCell<Vec<(usize, Problem)>>,
    provenance: RefCell<Vec<(usize, Provenance)>>,
    sources: RefCell<BTreeMap<String, At<String>>>,
    used_sources: RefCell<BTreeSet<String>>,
}

impl<'t> Document<'t> {
    pub(crate) fn new(file: &'t str, text: &'t str) -> Document<'t> {
        Document {
            file,
            text,
            problems: RefCell::default(),
            provenance: RefCell::default(),
            sources: RefCell::default(),
            used_sources: RefCell::default(),
        }
    }

    /// Notes a problem at a byte offset.
    pub(crate) fn problem(
        &self,
        offset: usize,
        message: impl Into<String>,
        expected: impl Into<String>,
    ) {
        let problem = Problem::at(self.file, self.text, offset, message, expected);
        self.problems.borrow_mut().push((offset, problem));
    }

    /// Notes a problem of another file that `offset` of this one refers to.
    pub(crate) fn foreign(&self, offset: usize, problem: Problem) {
        self.problems.borrow_mut().push((offset, problem));
    }

    pub(crate) fn is_sound(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// The problems in the order of the file, and the provenance in the order of the file.
    pub(crate) fn finish(self) -> (Vec<Problem>, Vec<Provenance>) {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(offset, _)| *offset);
        let mut provenance = self.provenance.into_inner();
        provenance.sort_by_key(|(offset, _)| *offset);
        (
            problems.into_iter().map(|(_, p)| p).collect(),
            provenance.into_iter().map(|(_, p)| p).collect(),
        )
    }

    /// Reads the `[sources]` table, if there is one: id = "text".
    pub(crate) fn read_sources(&self, root: &Section<'_, 't>) {
        let Some(section) = root.optional_section("sources") else {
            return;
        };
        for (key, value) in section.table {
            section.used.borrow_mut().insert(key.get_ref().to_string());
            match value.get_ref().as_str() {
                Some(text) if !text.trim().is_empty() => {
                    let at = At {
                        value: text.to_owned(),
                        span: key.span(),
                    };
                    self.sources
                        .borrow_mut()
                        .insert(key.get_ref().to_string(), at);
                }
                _ => self.problem(
                    value.span().start,
                    format!(
                        "source `{}` is {}, not a text",
                        key.get_ref(),
                        excerpt(self.text, &value.span())
                    ),
                    "the document or data sheet in quotes",
                ),
            }
        }
        section.finish();
    }

    /// A source that nothing refers to is a slip of the pen.
    pub(crate) fn check_unused_sources(&self) {
        let used = self.used_sources.borrow();
        for (id, at) in self.sources.borrow().iter() {
            if !used.contains(id) {
                self.problem(
                    at.span.start,
                    format!("source `{id}` is not used by any number"),
                    format!("an entry with `from = \"{id}\"`, or no such source"),
                );
            }
        }
    }
}

/// One table of the document; knows which of its keys were asked for.
pub(crate) struct Section<'d, 't> {
    pub(crate) doc: &'d Document<'t>,
    table: &'d DeTable<'t>,
    /// Dotted path, empty for the root.
    path: String,
    pub(crate) span: Range<usize>,
    used: RefCell<BTreeSet<String>>,
}

impl<'d, 't> Section<'d, 't> {
    pub(crate) fn root(doc: &'d Document<'t>, table: &'d DeTable<'t>) -> Section<'d, 't> {
        Section {
            doc,
            table,
            path: String::new(),
            span: 0..0,
            used: RefCell::default(),
        }
    }

    fn dotted(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn get(&self, key: &str) -> Option<&'d Spanned<DeValue<'t>>> {
        self.used.borrow_mut().insert(key.to_owned());
        self.table.get(key)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    fn missing(&self, key: &str, example: &str) {
        self.doc.problem(
            self.span.start,
            format!("`{}` is missing", self.dotted(key)),
            format!("{key} = {example}"),
        );
    }

    fn child(&self, path: String, value: &'d Spanned<DeValue<'t>>) -> Option<Section<'d, 't>> {
        let span = value.span();
        match value.get_ref() {
            DeValue::Table(table) => Some(Section {
                doc: self.doc,
                table,
                path,
                span,
                used: RefCell::default(),
            }),
            _ => {
                let found = excerpt(self.doc.text, &span);
                self.doc.problem(
                    span.start,
                    format!("`{path}` is {found}, not a table"),
                    format!("a table `[{path}]`"),
                );
                None
            }
        }
    }

    /// A table that must be there.
    pub(crate) fn section(&self, key: &str) -> Option<Section<'d, 't>> {
        if !self.has(key) {
            let path = self.dotted(key);
            self.used.borrow_mut().insert(key.to_owned());
            self.doc.problem(
                self.span.start,
                format!("`{path}` is missing"),
                format!("a table `[{path}]`"),
            );
        }
        self.optional_section(key)
    }

    /// A table that may be there.
    pub(crate) fn optional_section(&self, key: &str) -> Option<Section<'d, 't>> {
        let value = self.get(key)?;
        self.child(self.dotted(key), value)
    }

    /// An array of tables; empty if it is not there.
    pub(crate) fn sections(&self, key: &str) -> Vec<Section<'d, 't>> {
        let Some(value) = self.get(key) else {
            return Vec::new();
        };
        let path = self.dotted(key);
        match value.get_ref() {
            DeValue::Array(items) => items
                .iter()
                .enumerate()
                .filter_map(|(i, item)| self.child(format!("{path}.{i}"), item))
                .collect(),
            _ => {
                let found = excerpt(self.doc.text, &value.span());
                self.doc.problem(
                    value.span().start,
                    format!("`{path}` is {found}, not a list of tables"),
                    format!("one or more `[[{path}]]`"),
                );
                Vec::new()
            }
        }
    }

    /// A plain text without a source.
    pub(crate) fn text(&self, key: &str, example: &str) -> Option<At<String>> {
        let Some(value) = self.get(key) else {
            self.missing(key, &format!("\"{example}\""));
            return None;
        };
        self.text_of(key, value, example)
    }

    fn text_of(
        &self,
        key: &str,
        value: &Spanned<DeValue<'t>>,
        example: &str,
    ) -> Option<At<String>> {
        match value.get_ref().as_str() {
            Some(text) if !text.trim().is_empty() => Some(At {
                value: text.to_owned(),
                span: value.span(),
            }),
            _ => {
                let found = excerpt(self.doc.text, &value.span());
                self.doc.problem(
                    value.span().start,
                    format!("`{}` is {found}, not a text", self.dotted(key)),
                    format!("\"{example}\""),
                );
                None
            }
        }
    }

    /// The `value` of a sourced entry; notes its provenance.
    fn entry(&self, key: &str, example: &str) -> Option<&'d Spanned<DeValue<'t>>> {
        let doc = self.doc;
        let whole = format!("{{ value = {example}, from = \"…\" }}");
        let Some(entry) = self.get(key) else {
            self.missing(key, &whole);
            return None;
        };
        let path = self.dotted(key);
        if !entry.get_ref().is_table() {
            let found = excerpt(doc.text, &entry.span());
            doc.problem(
                entry.span().start,
                format!("`{path}` is {found}, without a source"),
                format!("{{ value = {found}, from = \"…\" }} or {{ value = {found}, assumed = \"why\" }}"),
            );
            return None;
        }
        let entry = self.child(path.clone(), entry)?;
        let value = entry.get("value");
        if value.is_none() {
            entry.missing("value", example);
        }
        let source = entry.source(example);
        let calibrated = entry
            .has("calibrated")
            .then(|| entry.text("calibrated", "row-id"));
        let note = entry.has("note").then(|| entry.text("note", "a remark"));
        entry.finish();
        let (value, mut source) = (value?, source?);
        if let Some(note) = note.flatten() {
            source = format!("{source} ({})", note.value);
        }
        let raw = doc.text.get(value.span()).unwrap_or_default();
        let written = value.get_ref().as_str().unwrap_or(raw).to_owned();
        let calibrated = calibrated.flatten().map(|c| c.value);
        doc.provenance.borrow_mut().push((
            value.span().start,
            Provenance {
                key: path,
                value: written,
                source,
                calibrated,
            },
        ));
        Some(value)
    }

    /// The source of the entry that this section is.
    fn source(&self, example: &str) -> Option<String> {
        let doc = self.doc;
        let from = self.get("from");
        let assumed = self.get("assumed");
        match (from, assumed) {
            (Some(from), None) => {
                let id = self.text_of("from", from, "a source's id")?;
                let sources = doc.sources.borrow();
                if let Some(source) = sources.get(&id.value) {
                    doc.used_sources.borrow_mut().insert(id.value);
                    return Some(source.value.clone());
                }
                let known = suggestion(&id.value, sources.keys().map(String::as_str));
                doc.problem(
                    id.span.start,
                    format!("`{}` is not in [sources]", id.value),
                    known,
                );
                None
            }
            (None, Some(reason)) => Some(format!(
                "assumed: {}",
                self.text_of("assumed", reason, "why")?.value
            )),
            (Some(_), Some(assumed)) => {
                doc.problem(
                    assumed.span().start,
                    format!("`{}` has both `from` and `assumed`", self.path),
                    "one of the two (`note` for remarks)",
                );
                None
            }
            (None, None) if self.has("calibrated") => Some("calibrated".to_owned()),
            (None, None) => {
                doc.problem(
                    self.span.start,
                    format!("`{}` has no source", self.path),
                    format!("{{ value = {example}, from = \"…\" }}, or `assumed = \"why\"`, or `calibrated = \"row-id\"`"),
                );
                None
            }
        }
    }

    /// A whole number within `range`.
    pub(crate) fn integer<T>(&self, key: &str, range: RangeInclusive<T>) -> Option<At<T>>
    where
        T: Copy + PartialOrd + Display + TryFrom<u64>,
    {
        let value = self.entry(key, &range.start().to_string())?;
        let span = value.span();
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let found = excerpt(self.doc.text, &span);
        let Some(integer) = value.get_ref().as_integer() else {
            self.doc.problem(
                span.start,
                format!("`{}` is {found}, not a whole number", self.dotted(key)),
                expected,
            );
            return None;
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .and_then(|n| T::try_from(n).ok())
            .filter(|n| range.contains(n));
        if number.is_none() {
            self.doc.problem(
                span.start,
                format!("`{}` is {found}, out of range", self.dotted(key)),
                expected,
            );
        }
        Some(At {
            value: number?,
            span,
        })
    }

    /// A quantity with a unit, in quotes, within `range`.
    fn quantity<Q>(&self, key: &str, example: &str, range: RangeInclusive<Q>) -> Option<At<Q>>
    where
        Q: FromStr<Err = crate::units::UnitError> + PartialOrd + Display + Copy,
    {
        let value = self.entry(key, &format!("\"{example}\""))?;
        let span = value.span();
        let path = self.dotted(key);
        let Some(text) = value.get_ref().as_str() else {
            let found = excerpt(self.doc.text, &span);
            self.doc.problem(
                span.start,
                format!("`{path}` is {found}, which has no unit"),
                format!("a quantity with its unit in quotes, as \"{example}\""),
            );
            return None;
        };
        match text.parse::<Q>() {
            Ok(value) if range.contains(&value) => Some(At { value, span }),
            Ok(_) => {
                self.doc.problem(
                    span.start,
                    format!("`{path}` is \"{text}\", out of range"),
                    format!("{} to {}", range.start(), range.end()),
                );
                None
            }
            Err(error) => {
                // A basic or literal string without escapes stands in the file as it is read:
                // the offset counts from behind the quote.
                let inner = span.start + 1..span.end.saturating_sub(1);
                let verbatim = self.doc.text.get(inner) == Some(text);
                let offset = if verbatim {
                    span.start + 1 + error.offset
                } else {
                    span.start
                };
                self.doc.problem(
                    offset,
                    format!("`{path}`: {}", error.problem),
                    error.expected,
                );
                None
            }
        }
    }

    /// A size from `least` to `most`.
    pub(crate) fn bytes(&self, key: &str, range: RangeInclusive<Bytes>) -> Option<At<Bytes>> {
        self.quantity(key, "512 KiB", range)
    }

    /// A rate above zero.
    pub(crate) fn rate(&self, key: &str) -> Option<At<Rate>> {
        self.quantity(key, "5.25 GB/s", Rate(1_000)..=Rate(1_000_000_000_000_000))
    }

    /// A time of at least `least`, at most 1 s.
    pub(crate) fn time(&self, key: &str, least: Time) -> Option<At<Time>> {
        self.quantity(key, "100 ns", least..=Time::from_seconds(1))
    }

    /// One of a few words, with a source.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<At<T>> {
        let example = choices.first().map_or("", |(name, _)| *name);
        let value = self.entry(key, &format!("\"{example}\""))?;
        self.chosen(key, value, choices)
    }

    /// One of a few words, without a source.
    pub(crate) fn word<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<At<T>> {
        let Some(value) = self.get(key) else {
            let example = choices.first().map_or("", |(name, _)| *name);
            self.missing(key, &format!("\"{example}\""));
            return None;
        };
        self.chosen(key, value, choices)
    }

    fn chosen<T: Copy>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'t>>,
        choices: &[(&str, T)],
    ) -> Option<At<T>> {
        let found = value.get_ref().as_str();
        if let Some((_, choice)) = choices.iter().find(|(name, _)| Some(*name) == found) {
            return Some(At {
                value: *choice,
                span: value.span(),
            });
        }
        let names = choices.iter().map(|(name, _)| *name);
        self.doc.problem(
            value.span().start,
            format!(
                "`{}` is {}, which is not known",
                self.dotted(key),
                excerpt(self.doc.text, &value.span())
            ),
            suggestion(found.unwrap_or_default(), names),
        );
        None
    }

    /// A text with a source.
    pub(crate) fn sourced_text(&self, key: &str, example: &str) -> Option<At<String>> {
        let value = self.entry(key, &format!("\"{example}\""))?;
        self.text_of(key, value, example)
    }

    /// Names the keys that are not among `known`; whether there are any.
    pub(crate) fn unknown(&self, known: &[&str]) -> bool {
        let mut any = false;
        for key in self
            .table
            .keys()
            .filter(|k| !known.contains(&k.get_ref().as_ref()))
        {
            any = true;
            self.doc.problem(
                key.span().start,
                format!("unknown key `{}`", self.dotted(key.get_ref())),
                suggestion(key.get_ref(), known.iter().copied()),
            );
        }
        any
    }

    /// Names the keys that nobody asked for.
    pub(crate) fn finish(self) {
        let used = self.used.borrow();
        let is_entry = used.contains("from");
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if used.contains(name) {
                continue;
            }
            let known = if is_entry {
                suggestion(name, ENTRY_KEYS)
            } else {
                suggestion(name, used.iter().map(String::as_str))
            };
            self.doc.problem(
                key.span().start,
                format!("unknown key `{}`", self.dotted(name)),
                known,
            );
        }
    }
}
