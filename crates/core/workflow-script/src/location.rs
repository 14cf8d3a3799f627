//! Locations: a dataspace and a path in it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::quote;

/// Variables that a location may contain.
const VARIABLES: [&str; 3] = ["HOME", "USER", "SLURM_JOB_ID"];

/// Values of the variables in locations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// `HOME`: home directory of the job's user.
    pub home: String,
    /// `USER`: name of the job's user.
    pub user: String,
    /// `SLURM_JOB_ID`.
    pub job: String,
}

impl Variables {
    fn get(&self, name: &str) -> Option<&str> {
        match name {
            "HOME" => Some(&self.home),
            "USER" => Some(&self.user),
            "SLURM_JOB_ID" => Some(&self.job),
            _ => None,
        }
    }
}

/// A path in a dataspace, such as `nvme0://out/mesh`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Name of the dataspace, in lower case.
    pub dataspace: String,
    /// Path in it without `.` and `..`; with a leading slash an absolute path of the host.
    pub path: String,
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Location, String> {
        Location::parse(text).map_err(|(problem, remedy)| format!("{problem}; {remedy}"))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.dataspace, self.path)
    }
}

impl Location {
    /// Parses `NAME://PATH` or `$NAME/PATH`. An error is a problem and its remedy.
    pub(crate) fn parse(text: &str) -> Result<Location, (String, String)> {
        let example = "write a dataspace and a path, such as `nvme0://out`".to_owned();
        let (name, path) = match text.split_once("://") {
            Some(parts) => parts,
            None => match text.strip_prefix('$') {
                Some(rest) => rest.split_once('/').unwrap_or((rest, "")),
                None => return Err((format!("{} names no dataspace", quote(text)), example)),
            },
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(allowed) {
            return Err((format!("{} is no name of a dataspace", quote(name)), example));
        }
        for variable in variables_of(path) {
            if !VARIABLES.contains(&variable) {
                let problem = format!("the variable {} is not known here", quote(variable));
                return Err((problem, format!("only {} are", VARIABLES.join(", "))));
            }
        }
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                let problem = format!("{} leads out of its dataspace", quote(text));
                return Err((problem, "write the path without `..`".to_owned()));
            }
            parts.push(part);
        }
        let absolute = if path.starts_with('/') { "/" } else { "" };
        let path = format!("{absolute}{}", parts.join("/"));
        Ok(Location { dataspace: name.to_ascii_lowercase(), path })
    }

    /// The location with values in place of `$HOME`, `${USER}` and so on.
    #[must_use]
    pub fn expand(&self, variables: &Variables) -> Location {
        let mut path = self.path.clone();
        for name in VARIABLES {
            let value = variables.get(name).unwrap_or_default();
            path = path.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value);
        }
        // A value may begin with a slash of its own.
        while path.contains("//") {
            path = path.replace("//", "/");
        }
        Location { dataspace: self.dataspace.clone(), path }
    }

    /// Whether this location is `other` or below it.
    pub fn is_within(&self, other: &Location) -> bool {
        let below = |path: &str| match path.strip_prefix(other.path.as_str()) {
            Some(rest) => {
                rest.is_empty()
                    || rest.starts_with('/')
                    || other.path.is_empty()
                    || other.path == "/"
            }
            None => false,
        };
        self.dataspace == other.dataspace && below(&self.path)
    }

    /// The path, if it is one name at the top of the dataspace.
    ///
    /// # Errors
    /// It is not.
    pub fn top_name(&self) -> Result<&str, String> {
        let path = self.path.as_str();
        if path.is_empty() || path.contains('/') || path == ".." || path == "." {
            return Err(format!("{self} is no file or directory at the top of a dataspace"));
        }
        Ok(path)
    }

    /// The location `name` in this one.
    #[must_use]
    pub fn join(&self, name: &str) -> Location {
        let path = match self.path.as_str() {
            "" => name.to_owned(),
            path if path.ends_with('/') => format!("{path}{name}"),
            path => format!("{path}/{name}"),
        };
        Location { dataspace: self.dataspace.clone(), path }
    }
}

/// Names of the variables in a path, in its order.
fn variables_of(path: &str) -> Vec<&str> {
    let name_end = |text: &str| {
        text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
    };
    path.split('$')
        .skip(1)
        .map(|rest| match rest.strip_prefix('{') {
            Some(braced) => braced.split('}').next().unwrap_or(braced),
            None => &rest[..name_end(rest)],
        })
        .collect()
}
