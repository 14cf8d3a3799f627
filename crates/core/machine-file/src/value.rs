//! Entries of a table as typed values: numbers, quantities, choices.

use crate::document::Located;
use crate::problem::{excerpt, suggestion};
use crate::section::Section;
use forebay_units::{Bytes, Rate, Time, UnitError};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use toml::Spanned;
use toml::de::DeValue;

impl<'t> Section<'_, 't> {
    /// A whole number within `range`.
    pub(crate) fn integer<T>(&self, key: &str, range: RangeInclusive<T>) -> Option<Located<T>>
    where
        T: Copy + PartialOrd + Display + TryFrom<u64>,
    {
        let value = self.sourced_value(key, &range.start().to_string())?;
        let span = value.span();
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let found = excerpt(self.doc.text, &span);
        let Some(integer) = value.get_ref().as_integer() else {
            return self.doc.refuse(
                span.start,
                format!("`{}` is {found}, not a whole number", self.dotted_key(key)),
                expected,
            );
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .and_then(|n| T::try_from(n).ok())
            .filter(|n| range.contains(n));
        if number.is_none() {
            self.doc.add_problem(
                span.start,
                format!("`{}` is {found}, out of range", self.dotted_key(key)),
                expected,
            );
        }
        Some(Located { value: number?, span })
    }

    /// A quantity with a unit, in quotes, within `range`.
    fn quantity<Q>(&self, key: &str, example: &str, range: RangeInclusive<Q>) -> Option<Located<Q>>
    where
        Q: FromStr<Err = UnitError> + PartialOrd + Display + Copy,
    {
        let value = self.sourced_value(key, &format!("\"{example}\""))?;
        let span = value.span();
        let path = self.dotted_key(key);
        let Some(text) = value.get_ref().as_str() else {
            let found = excerpt(self.doc.text, &span);
            return self.doc.refuse(
                span.start,
                format!("`{path}` is {found}, which has no unit"),
                format!("a quantity with its unit in quotes, as \"{example}\""),
            );
        };
        match text.parse::<Q>() {
            Ok(value) if range.contains(&value) => Some(Located { value, span }),
            Ok(_) => self.doc.refuse(
                span.start,
                format!("`{path}` is \"{text}\", out of range"),
                format!("{} to {}", range.start(), range.end()),
            ),
            Err(error) => {
                // A string without escapes is the same text in the file:
                // the offset counts from after the quote.
                let inner = span.start + 1..span.end.saturating_sub(1);
                let verbatim = self.doc.text.get(inner) == Some(text);
                let offset = if verbatim { span.start + 1 + error.offset } else { span.start };
                self.doc.refuse(offset, format!("`{path}`: {}", error.problem), error.expected)
            }
        }
    }

    /// A size within `range`.
    pub(crate) fn bytes(&self, key: &str, range: RangeInclusive<Bytes>) -> Option<Located<Bytes>> {
        self.quantity(key, "512 KiB", range)
    }

    /// A rate above zero.
    pub(crate) fn rate(&self, key: &str) -> Option<Located<Rate>> {
        self.quantity(key, "5.25 GB/s", Rate(1_000)..=Rate(1_000_000_000_000_000))
    }

    /// A time from `least` to 1 s.
    pub(crate) fn time(&self, key: &str, least: Time) -> Option<Located<Time>> {
        self.quantity(key, "100 ns", least..=Time::from_seconds(1))
    }

    /// A choice with a source.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<Located<T>> {
        let example = choices.first().map_or("", |(name, _)| *name);
        let value = self.sourced_value(key, &format!("\"{example}\""))?;
        self.find_choice(key, value, choices)
    }

    /// A choice with a source, or the default without an entry.
    pub(crate) fn optional_choice<T: Copy + Default>(
        &self,
        key: &str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        match self.has_key(key) {
            true => self.choice(key, choices).map(|choice| choice.value),
            false => Some(T::default()),
        }
    }

    /// A choice without a source.
    pub(crate) fn unsourced_choice<T: Copy>(
        &self,
        key: &str,
        choices: &[(&str, T)],
    ) -> Option<Located<T>> {
        let Some(value) = self.get(key) else {
            let example = choices.first().map_or("", |(name, _)| *name);
            self.report_missing_key(key, &format!("\"{example}\""));
            return None;
        };
        self.find_choice(key, value, choices)
    }

    fn find_choice<T: Copy>(
        &self,
        key: &str,
        value: &Spanned<DeValue<'t>>,
        choices: &[(&str, T)],
    ) -> Option<Located<T>> {
        let found = value.get_ref().as_str();
        if let Some((_, choice)) = choices.iter().find(|(name, _)| Some(*name) == found) {
            return Some(Located { value: *choice, span: value.span() });
        }
        let names = choices.iter().map(|(name, _)| *name);
        self.doc.refuse(
            value.span().start,
            format!(
                "`{}` is {}, which is not known",
                self.dotted_key(key),
                excerpt(self.doc.text, &value.span())
            ),
            suggestion(found.unwrap_or_default(), names),
        )
    }

    /// A text with a source.
    pub(crate) fn sourced_text(&self, key: &str, example: &str) -> Option<Located<String>> {
        let value = self.sourced_value(key, &format!("\"{example}\""))?;
        self.parse_text(key, value, example)
    }
}
