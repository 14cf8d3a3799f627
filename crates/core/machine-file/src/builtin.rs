//! The machine files that are embedded in the binary.

use crate::machine::Machine;
use crate::problem::{MachineError, Problem, suggestion};
use std::path::Path;

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
    "cori-phase1",
    "theta",
    "edison",
    "shaheen2",
    "trinity-phase2",
    "cori",
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

impl Machine {
    /// Loads an embedded machine by its name, or a file by its path (which ends in `.toml`).
    ///
    /// # Errors
    /// An unknown name, an unreadable file, or all problems of the file.
    pub fn load(name_or_path: &str) -> Result<Machine, MachineError> {
        if name_or_path.ends_with(".toml") {
            return Machine::read(name_or_path);
        }
        let name = ALIASES
            .iter()
            .find(|(alias, _)| *alias == name_or_path)
            .map_or(name_or_path, |(_, name)| name);
        let Some(found) = MACHINES.iter().find(|m| m.name == name) else {
            let known = suggestion(name, MACHINES.iter().map(|m| m.name));
            let expected = format!("{known}, or the path of a file that ends in .toml");
            return Err(Problem::in_file(name_or_path, "unknown machine", expected).into());
        };
        let file = format!("machines/{name}.toml");
        Machine::parse(&file, found.text, &|map| {
            let known = MAPS.iter().find(|(name, _)| *name == map);
            known.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "not embedded".to_owned())
        })
    }

    /// Loads a machine file; its node map, if any, is in the same directory.
    fn read(path: &str) -> Result<Machine, MachineError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let expected = "a readable machine file, or one of the built-in names";
            Problem::in_file(path, format!("cannot be read: {error}"), expected)
        })?;
        let folder = Path::new(path).parent().unwrap_or(Path::new(""));
        Machine::parse(path, &text, &|map| {
            std::fs::read_to_string(folder.join(map)).map_err(|error| error.to_string())
        })
    }
}
