//! The machine files that are embedded in the binary.

use crate::layers::Layers;
use crate::machine::Machine;
use crate::problem::{MachineError, Problem, suggestion};
use crate::settings::Setting;
use std::path::{Path, PathBuf};

/// One embedded machine file.
struct Builtin {
    name: &'static str,
    text: &'static str,
}

macro_rules! embed {
    ($($name:literal),* $(,)?) => {
        &[$(Builtin {
            name: $name,
            text: include_str!(concat!("../../../../machines/", $name, ".toml")),
        }),*]
    };
}

const MACHINES: &[Builtin] = embed![
    "toy",
    "toy-plus",
    "toy-tree",
    "cori-phase1",
    "theta",
    "edison",
    "edison-scratch3",
    "shaheen2",
    "piz-daint",
    "trinity-phase2",
    "cori",
    "frontier",
    "trinity"
];

/// Node maps of the embedded machine files.
const MAPS: &[(&str, &str)] = &[
    ("cori.csv", include_str!("../../../../machines/cori.csv")),
    ("edison.csv", include_str!("../../../../machines/edison.csv")),
];

/// Alternative names of embedded machines.
const ALIASES: &[(&str, &str)] = &[("cori-phase2", "cori")];

/// The embedded machines: name and title, smallest first.
pub fn builtin_machines() -> Vec<(&'static str, &'static str)> {
    MACHINES.iter().map(|m| (m.name, title(m.text))).collect()
}

/// The title of an embedded file, found without parsing the rest.
fn title(text: &'static str) -> &'static str {
    text.lines()
        .find_map(|line| line.strip_prefix("title = \"")?.strip_suffix('"'))
        .unwrap_or_default()
}

/// The text of a machine file, and where its node map is.
pub(crate) struct Source {
    /// Its name in errors.
    pub(crate) file: String,
    pub(crate) text: String,
    /// Directory of the node map and of its bases; `None`: they are embedded.
    folder: Option<PathBuf>,
}

impl Source {
    /// A text whose node map and base are embedded, if it has them.
    pub(crate) fn of_text(file: &str, text: &str) -> Source {
        Source { file: file.to_string(), text: text.to_string(), folder: None }
    }

    /// The file that this one names as its base.
    pub(crate) fn find_base(&self, name_or_path: &str) -> Result<Source, Problem> {
        match &self.folder {
            Some(folder) if name_or_path.ends_with(".toml") => {
                Source::read(&folder.join(name_or_path).to_string_lossy())
            }
            None if name_or_path.ends_with(".toml") => {
                let message = "a path, but this file is in no directory";
                let expected = suggestion(name_or_path, MACHINES.iter().map(|m| m.name));
                Err(Problem::in_file(&self.file, message, expected))
            }
            _ => Source::find(name_or_path),
        }
    }

    /// Whether two are one file, by whatever path.
    pub(crate) fn is_same_file(&self, other: &Source) -> bool {
        let real = |source: &Source| std::fs::canonicalize(&source.file).ok();
        match (&self.folder, &other.folder) {
            (Some(_), Some(_)) => real(self).is_some() && real(self) == real(other),
            (None, None) => self.file == other.file,
            _ => false,
        }
    }

    fn find(name_or_path: &str) -> Result<Source, Problem> {
        if name_or_path.ends_with(".toml") {
            return Source::read(name_or_path);
        }
        let name = ALIASES
            .iter()
            .find(|(alias, _)| *alias == name_or_path)
            .map_or(name_or_path, |(_, name)| name);
        let Some(found) = MACHINES.iter().find(|m| m.name == name) else {
            let known = suggestion(name, MACHINES.iter().map(|m| m.name));
            let expected = format!("{known}, or the path of a file that ends in .toml");
            return Err(Problem::in_file(name_or_path, "unknown machine", expected));
        };
        let file = format!("machines/{name}.toml");
        Ok(Source { file, text: found.text.to_string(), folder: None })
    }

    fn read(path: &str) -> Result<Source, Problem> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let expected = "a readable machine file, or one of the built-in names";
            Problem::in_file(path, format!("cannot be read: {error}"), expected)
        })?;
        let folder = Path::new(path).parent().unwrap_or(Path::new("")).to_path_buf();
        Ok(Source { file: path.to_string(), text, folder: Some(folder) })
    }

    /// The text of a node map of the file.
    pub(crate) fn map(&self, name: &str) -> Result<String, String> {
        match &self.folder {
            Some(folder) => {
                std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string())
            }
            None => {
                let known = MAPS.iter().find(|(known, _)| *known == name);
                known.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "not embedded".to_owned())
            }
        }
    }
}

impl Machine {
    /// Loads an embedded machine by its name, or a file by its path (which ends in `.toml`); its
    /// node map and its base, if any, are found from the same directory.
    ///
    /// # Errors
    /// An unknown name, an unreadable file, or all problems of the file.
    pub fn load(name_or_path: &str) -> Result<Machine, MachineError> {
        Machine::of_layers(&Layers::of(Source::find(name_or_path)?)?)
    }

    /// Loads a machine as [`Machine::load`], with some numbers replaced; of several settings of a
    /// key the last counts. The machine's provenance says which numbers are not the file's.
    ///
    /// # Errors
    /// As [`Machine::load`]; an unknown key, or a value that the file could not have.
    pub fn load_with(name_or_path: &str, settings: &[Setting]) -> Result<Machine, MachineError> {
        Source::find(name_or_path)?.parse_with(settings)
    }

    /// Parses the text of a machine file without a node map, with some numbers replaced as by
    /// [`Machine::load_with`]. `file` is its name in errors and gives the machine its name.
    ///
    /// # Errors
    /// All problems of the file; an unknown key, or a value that the file could not have.
    pub fn parse_with(
        file: &str,
        text: &str,
        settings: &[Setting],
    ) -> Result<Machine, MachineError> {
        Source::of_text(file, text).parse_with(settings)
    }
}

impl Source {
    fn parse_with(self, settings: &[Setting]) -> Result<Machine, MachineError> {
        let mut layers = Layers::of(self)?;
        if !settings.is_empty() {
            // The problems of the file itself first.
            Machine::of_layers(&layers)?;
        }
        let mut applied = Vec::new();
        for setting in settings {
            let change = setting.apply(&layers)?;
            layers.set_text(change.file, change.text.clone());
            applied.push((setting, change));
        }
        let mut machine = Machine::of_layers(&layers).map_err(|mut error| {
            settings.iter().for_each(|setting| setting.claim(&mut error));
            error
        })?;
        for (setting, change) in &applied {
            setting.record(change, &mut machine);
        }
        Ok(machine)
    }
}
