//! Reading values out of the configuration file.
//!
//! A section is a mapping, or a list of single entries: `[workers: 4, dry_run: false]`.

use yaml_rust2::{Yaml, YamlLoader};

/// The entries of a section, with its name for messages.
pub(crate) struct Section<'a> {
    name: &'a str,
    entries: Vec<(String, &'a Yaml)>,
}

/// The first document of `text`.
pub(crate) fn parse(text: &str) -> Result<Yaml, String> {
    // A bracket that closes a list may be at the margin, which YAML forbids and most libraries accept.
    let margin = text.replace("\n]", "\n  ]").replace("\n}", "\n  }");
    let documents = YamlLoader::load_from_str(&margin).map_err(|error| error.to_string())?;
    documents.into_iter().next().ok_or_else(|| "is empty".to_owned())
}

fn scalar(value: &Yaml) -> Option<String> {
    match value {
        Yaml::String(text) | Yaml::Real(text) => Some(text.clone()),
        Yaml::Integer(number) => Some(number.to_string()),
        Yaml::Boolean(value) => Some(value.to_string()),
        Yaml::Array(_) | Yaml::Hash(_) | Yaml::Alias(_) | Yaml::Null | Yaml::BadValue => None,
    }
}

impl<'a> Section<'a> {
    /// The section `value`, whose keys must be in `known`.
    pub fn new(name: &'a str, value: &'a Yaml, known: &[&str]) -> Result<Section<'a>, String> {
        let mut entries = Vec::new();
        let maps: Vec<&Yaml> = match value {
            Yaml::Array(items) => items.iter().collect(),
            other => vec![other],
        };
        for map in maps {
            let map = map.as_hash().ok_or_else(|| {
                format!("`{name}` has an entry without a key; write `key: value`")
            })?;
            for (key, value) in map {
                let key =
                    scalar(key).ok_or_else(|| format!("`{name}` has a key that is no text"))?;
                if !known.contains(&key.as_str()) {
                    return Err(format!(
                        "`{name}` has no setting `{key}`; the settings are {}",
                        known.join(", ")
                    ));
                }
                if entries.iter().any(|(seen, _)| *seen == key) {
                    return Err(format!("`{name}` sets `{key}` twice"));
                }
                entries.push((key, value));
            }
        }
        Ok(Section { name, entries })
    }

    /// The value of `key`.
    pub fn value(&self, key: &str) -> Option<&'a Yaml> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// The text of `key`; `None` if it is not set.
    pub fn optional(&self, key: &str) -> Result<Option<String>, String> {
        let text = |value| {
            scalar(value).ok_or_else(|| format!("`{key}` in `{}` is not one value", self.name))
        };
        self.value(key).map(text).transpose()
    }

    /// The text of `key`, which must be set.
    pub fn text(&self, key: &str) -> Result<String, String> {
        let text = self.optional(key)?.filter(|text| !text.is_empty());
        text.ok_or_else(|| format!("`{}` does not set `{key}`", self.name))
    }

    /// The boolean `key`.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, String> {
        let Some(text) = self.optional(key)? else { return Ok(None) };
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(Some(true)),
            "false" | "0" => Ok(Some(false)),
            _ => Err(format!("`{key}: {text}` in `{}`: write `true` or `false`", self.name)),
        }
    }

    /// The number `key`, between 1 and `max`.
    pub fn number(&self, key: &str, max: u32) -> Result<u32, String> {
        let text = self.text(key)?;
        let number = text.parse().ok().filter(|number| (1..=max).contains(number));
        number.ok_or_else(|| {
            format!("`{key}: {text}` in `{}`: write a number from 1 to {max}", self.name)
        })
    }
}
