//! Tables of a machine file and their entries with sources.

use crate::document::{Document, Located};
use crate::machine::Provenance;
use crate::problem::{excerpt, file_name, suggestion};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Keys of an entry.
const ENTRY_KEYS: [&str; 6] = ["value", "from", "assumed", "calibrated", "settled_in_view", "note"];

/// A table of the document; records which of its keys were used.
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
        Section { doc, table, path: String::new(), span: 0..0, used: RefCell::default() }
    }

    pub(crate) fn dotted_key(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// All keys and values of a table with arbitrary keys, which are then used.
    fn entries(
        &self,
    ) -> impl Iterator<Item = (&'d Spanned<DeString<'t>>, &'d Spanned<DeValue<'t>>)> {
        self.used.borrow_mut().extend(self.table.keys().map(|key| key.get_ref().to_string()));
        self.table.iter()
    }

    /// Parses the optional `[sources]` table: id = "text".
    pub(crate) fn read_sources(&self) {
        let Some(section) = self.optional_section("sources") else {
            return;
        };
        for (key, value) in section.entries() {
            match value.get_ref().as_str() {
                Some(text) if !text.trim().is_empty() => {
                    let at = Located { value: text.to_owned(), span: key.span() };
                    self.doc.add_source(key.get_ref().to_string(), at);
                }
                _ => self.doc.add_problem(
                    value.span().start,
                    format!(
                        "source `{}` is {}, not a text",
                        key.get_ref(),
                        excerpt(self.doc.text, &value.span())
                    ),
                    "the document or data sheet in quotes",
                ),
            }
        }
        section.report_unused_keys();
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'d Spanned<DeValue<'t>>> {
        self.used.borrow_mut().insert(key.to_owned());
        self.table.get(key)
    }

    pub(crate) fn has_key(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(crate) fn report_missing_key(&self, key: &str, example: &str) {
        self.doc.add_problem(
            self.span.start,
            format!("`{}` is missing", self.dotted_key(key)),
            format!("{key} = {example}"),
        );
    }

    fn child(&self, path: String, value: &'d Spanned<DeValue<'t>>) -> Option<Section<'d, 't>> {
        let span = value.span();
        match value.get_ref() {
            DeValue::Table(table) => {
                Some(Section { doc: self.doc, table, path, span, used: RefCell::default() })
            }
            _ => {
                let found = excerpt(self.doc.text, &span);
                self.doc.refuse(
                    span.start,
                    format!("`{path}` is {found}, not a table"),
                    format!("a table `[{path}]`"),
                )
            }
        }
    }

    /// A required table.
    pub(crate) fn required_section(&self, key: &str) -> Option<Section<'d, 't>> {
        if !self.has_key(key) {
            let path = self.dotted_key(key);
            self.used.borrow_mut().insert(key.to_owned());
            self.doc.add_problem(
                self.span.start,
                format!("`{path}` is missing"),
                format!("a table `[{path}]`"),
            );
        }
        self.optional_section(key)
    }

    /// An optional table.
    pub(crate) fn optional_section(&self, key: &str) -> Option<Section<'d, 't>> {
        let value = self.get(key)?;
        self.child(self.dotted_key(key), value)
    }

    /// An optional array of tables.
    pub(crate) fn sections(&self, key: &str) -> Vec<Section<'d, 't>> {
        let Some(value) = self.get(key) else {
            return Vec::new();
        };
        let path = self.dotted_key(key);
        match value.get_ref() {
            DeValue::Array(items) => items
                .iter()
                .enumerate()
                .filter_map(|(i, item)| self.child(format!("{path}.{i}"), item))
                .collect(),
            _ => {
                let found = excerpt(self.doc.text, &value.span());
                self.doc.add_problem(
                    value.span().start,
                    format!("`{path}` is {found}, not a list of tables"),
                    format!("one or more `[[{path}]]`"),
                );
                Vec::new()
            }
        }
    }

    /// All keys of a table of tables, each with its table.
    pub(crate) fn subsections(&self) -> Vec<(String, Section<'d, 't>)> {
        self.entries()
            .filter_map(|(key, value)| {
                let name = key.get_ref().to_string();
                let section = self.child(self.dotted_key(&name), value)?;
                Some((name, section))
            })
            .collect()
    }

    /// A list of texts without a source.
    fn texts(&self, key: &str, example: &str) -> Option<Vec<String>> {
        let value = self.get(key)?;
        let items: Vec<_> = value.get_ref().as_array().into_iter().flatten().collect();
        let texts: Vec<String> = items
            .iter()
            .filter_map(|item| item.get_ref().as_str())
            .filter(|text| !text.trim().is_empty())
            .map(str::to_owned)
            .collect();
        if texts.is_empty() || texts.len() < items.len() {
            let found = excerpt(self.doc.text, &value.span());
            return self.doc.refuse(
                value.span().start,
                format!("`{}` is {found}, not a list of texts", self.dotted_key(key)),
                format!("[\"{example}\"]"),
            );
        }
        Some(texts)
    }

    /// A text without a source.
    pub(crate) fn text(&self, key: &str, example: &str) -> Option<Located<String>> {
        let Some(value) = self.get(key) else {
            self.report_missing_key(key, &format!("\"{example}\""));
            return None;
        };
        self.parse_text(key, value, example)
    }

    pub(crate) fn parse_text(
        &self,
        key: &str,
        value: &Spanned<DeValue<'t>>,
        example: &str,
    ) -> Option<Located<String>> {
        match value.get_ref().as_str() {
            Some(text) if !text.trim().is_empty() => {
                Some(Located { value: text.to_owned(), span: value.span() })
            }
            _ => {
                let found = excerpt(self.doc.text, &value.span());
                self.doc.refuse(
                    value.span().start,
                    format!("`{}` is {found}, not a text", self.dotted_key(key)),
                    format!("\"{example}\""),
                )
            }
        }
    }

    /// The `value` of an entry with a source; records its provenance.
    pub(crate) fn sourced_value(
        &self,
        key: &str,
        example: &str,
    ) -> Option<&'d Spanned<DeValue<'t>>> {
        let doc = self.doc;
        let whole = format!("{{ value = {example}, from = \"…\" }}");
        let Some(entry) = self.get(key) else {
            self.report_missing_key(key, &whole);
            return None;
        };
        let path = self.dotted_key(key);
        if !entry.get_ref().is_table() {
            let found = excerpt(doc.text, &entry.span());
            return doc.refuse(
                entry.span().start,
                format!("`{path}` is {found}, without a source"),
                format!("{{ value = {found}, from = \"…\" }} or {{ value = {found}, assumed = \"why\" }}"),
            );
        }
        let entry = self.child(path.clone(), entry)?;
        let value = entry.get("value");
        if value.is_none() {
            entry.report_missing_key("value", example);
        }
        let source = entry.source(example);
        let calibrated = entry.has_key("calibrated").then(|| entry.text("calibrated", "row-id"));
        let settled =
            entry.has_key("settled_in_view").then(|| entry.texts("settled_in_view", "row-id"));
        let note = entry.has_key("note").then(|| entry.text("note", "a remark"));
        entry.report_unused_keys();
        let (value, (mut source, source_id)) = (value?, source?);
        let settled_in_view = match settled {
            Some(rows) => rows?,
            None => Vec::new(),
        };
        if let Some(note) = note.flatten() {
            source = format!("{source} ({})", note.value);
        }
        let raw = doc.text.get(value.span()).unwrap_or_default();
        let written = value.get_ref().as_str().unwrap_or(raw).to_owned();
        let calibrated = calibrated.flatten().map(|c| c.value);
        let (file, path_of_file) = doc.file_at(value.span().start);
        doc.add_provenance(
            value.span().start,
            Provenance {
                key: path,
                value: written,
                source,
                source_id,
                calibrated,
                settled_in_view,
                base: (file > 0).then(|| file_name(path_of_file).to_owned()),
            },
        );
        Some(value)
    }

    /// The source of this section, which is an entry, and its id if it is a document.
    fn source(&self, example: &str) -> Option<(String, Option<String>)> {
        let doc = self.doc;
        let from = self.get("from");
        let assumed = self.get("assumed");
        match (from, assumed) {
            (Some(from), None) => {
                let id = self.parse_text("from", from, "a source's id")?;
                match doc.use_source(&id.value) {
                    Ok(source) => Some((source, Some(id.value))),
                    Err(known) => doc.refuse(
                            id.span.start,
                            format!("`{}` is not in [sources]", id.value),
                            if known.is_empty() {
                                format!("a line `{} = \"…\"` in [sources]", id.value)
                            } else {
                                suggestion(&id.value, known.iter().map(String::as_str))
                            },
                        ),
                }
            }
            (None, Some(reason)) => {
                let reason = self.parse_text("assumed", reason, "why")?;
                Some((format!("assumed: {}", reason.value), None))
            }
            (Some(_), Some(assumed)) => doc.refuse(
                    assumed.span().start,
                    format!("`{}` has both `from` and `assumed`", self.path),
                    "one of the two (`note` for remarks)",
                ),
            (None, None) if self.has_key("calibrated") => Some(("calibrated".to_owned(), None)),
            (None, None) => doc.refuse(
                    self.span.start,
                    format!("`{}` has no source", self.path),
                    format!("{{ value = {example}, from = \"…\" }}, or `assumed = \"why\"`, or `calibrated = \"row-id\"`"),
                ),
        }
    }

    /// Reports the keys that are not among `known`; returns whether there are any.
    pub(crate) fn report_unknown_keys(&self, known: &[&str]) -> bool {
        let mut any = false;
        for key in self.table.keys().filter(|k| !known.contains(&k.get_ref().as_ref())) {
            any = true;
            self.doc.add_problem(
                key.span().start,
                format!("unknown key `{}`", self.dotted_key(key.get_ref())),
                suggestion(key.get_ref(), known.iter().copied()),
            );
        }
        any
    }

    /// Reports the keys that were not used.
    pub(crate) fn report_unused_keys(self) {
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
            self.doc.add_problem(
                key.span().start,
                format!("unknown key `{}`", self.dotted_key(name)),
                known,
            );
        }
    }
}
