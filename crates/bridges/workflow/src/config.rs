//! The site's configuration: one TOML file, the same on all hosts.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use forebay_net::auth::Authenticator;
use forebay_net::munge::Munge;
use forebay_net::record::DataProtection;
use forebay_workflow_script::{Location, NornsScript, StageDirection};
use serde::Deserialize;

/// The configuration of an installed host.
pub const DEFAULT_CONFIG_FILE: &str = "/etc/forebay/workflow.toml";
/// Environment variable that names another file.
pub const CONFIG_VARIABLE: &str = "FOREBAY_WORKFLOW";

/// An error in the configuration.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct ConfigError {
    file: PathBuf,
    reason: String,
}

/// Kinds of dataspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataspaceKind {
    /// A directory of its own on every node.
    Node,
    /// A directory of a file system that all nodes share.
    Shared,
}

/// A dataspace.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dataspace {
    /// Name: `nvme0` for locations `nvme0://PATH`.
    pub name: String,
    /// Kind.
    pub kind: DataspaceKind,
    /// The directory.
    pub directory: PathBuf,
}

/// `[controller]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerConfig {
    /// Address at which it listens.
    pub address: SocketAddr,
    /// Directory of its state.
    pub directory: PathBuf,
    /// Interval at which it reads Slurm's queue, in milliseconds.
    #[serde(default = "default_poll")]
    pub poll_milliseconds: u64,
    /// Time that a job waits for the nodes that have its data, in seconds.
    #[serde(default = "default_wait")]
    pub wait_for_nodes_seconds: u64,
}

/// `[node]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Port of the server of node-local data on each node.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Directory for files that last as long as a job, on each node.
    #[serde(default = "default_run")]
    pub run_directory: PathBuf,
}

impl Default for NodeConfig {
    fn default() -> NodeConfig {
        NodeConfig { port: default_port(), run_directory: default_run() }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MungeConfig {
    socket: Option<PathBuf>,
}

/// The configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteConfig {
    /// The controller.
    pub controller: ControllerConfig,
    /// The nodes.
    #[serde(default)]
    pub node: NodeConfig,
    #[serde(default)]
    munge: MungeConfig,
    /// Dataspaces.
    #[serde(default, rename = "dataspace")]
    pub dataspaces: Vec<Dataspace>,
}

fn default_poll() -> u64 {
    1000
}

fn default_wait() -> u64 {
    60
}

fn default_port() -> u16 {
    7521
}

fn default_run() -> PathBuf {
    PathBuf::from("/run/forebay/workflow")
}

/// The configuration file that is selected: the one given, that of the environment, or the installed
/// one.
pub fn selected_file(given: Option<PathBuf>) -> PathBuf {
    let named = || std::env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty());
    given.or_else(|| named().map(PathBuf::from)).unwrap_or_else(|| DEFAULT_CONFIG_FILE.into())
}

impl SiteConfig {
    /// Reads a file.
    pub fn read(file: &Path) -> Result<SiteConfig, ConfigError> {
        let failed = |reason: String| ConfigError { file: file.to_owned(), reason };
        let text = fs::read_to_string(file).map_err(|error| {
            let remedy = format!("create it, or name another file with {CONFIG_VARIABLE}");
            failed(format!("cannot be read ({error}): {remedy}"))
        })?;
        SiteConfig::parse(&text).map_err(failed)
    }

    fn parse(text: &str) -> Result<SiteConfig, String> {
        let config: SiteConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        for (index, space) in config.dataspaces.iter().enumerate() {
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if !space.name.starts_with(|c: char| c.is_ascii_lowercase())
                || !space.name.chars().all(allowed)
            {
                return Err(format!(
                    "dataspace `{}`: a name has lower-case letters, digits and underscores, such \
                     as `nvme0`",
                    space.name
                ));
            }
            if config.dataspaces[..index].iter().any(|other| other.name == space.name) {
                return Err(format!("two dataspaces are called `{}`: rename one", space.name));
            }
            if !space.directory.is_absolute() || space.directory.parent().is_none() {
                return Err(format!(
                    "dataspace `{}`: `directory` is an absolute path such as \"/local/nvme\"",
                    space.name
                ));
            }
        }
        if config.controller.poll_milliseconds == 0 {
            return Err("controller: `poll_milliseconds` is at least 1".to_owned());
        }
        Ok(config)
    }

    /// The dataspace called `name`.
    ///
    /// # Errors
    /// There is none; the message lists those there are.
    pub fn dataspace(&self, name: &str) -> Result<&Dataspace, String> {
        let found = self.dataspaces.iter().find(|space| space.name == name);
        found.ok_or_else(|| {
            let names: Vec<String> =
                self.dataspaces.iter().map(|space| format!("{}://", space.name)).collect();
            format!("there is no dataspace `{name}://`; this site has {}", names.join(", "))
        })
    }

    /// The dataspace of a location on the nodes.
    ///
    /// # Errors
    /// There is none, or it is a shared one.
    pub fn node_space(&self, location: &Location) -> Result<&Dataspace, String> {
        let space = self.dataspace(&location.dataspace)?;
        match space.kind {
            DataspaceKind::Node => Ok(space),
            DataspaceKind::Shared => Err(format!("{location} is not on the nodes")),
        }
    }

    /// Requests of a script that this site cannot fulfil, each with its line.
    pub fn problems_of(&self, script: &NornsScript) -> Vec<String> {
        let mut problems = Vec::new();
        for stage in &script.stages {
            let kinds = [&stage.origin, &stage.destination]
                .map(|location| self.dataspace(&location.dataspace).map(|space| space.kind));
            let reason = match (stage.direction, kinds) {
                (_, [Err(reason), _] | [Ok(_), Err(reason)]) => reason,
                (StageDirection::In, [Ok(_), Ok(DataspaceKind::Node)])
                | (StageDirection::Out, [Ok(DataspaceKind::Node), Ok(DataspaceKind::Shared)]) => {
                    continue;
                }
                (StageDirection::In, [Ok(_), Ok(DataspaceKind::Shared)]) => {
                    "`stage_in` copies to a dataspace on the nodes; swap the locations, or write \
                     `stage_out`"
                        .to_owned()
                }
                (StageDirection::Out, [Ok(_), Ok(_)]) => {
                    "`stage_out` copies from a dataspace on the nodes to a shared one; swap the \
                     locations, or write `stage_in`"
                        .to_owned()
                }
            };
            problems.push(format!("line {}, column 1: {reason}", stage.line));
        }
        for persist in &script.persists {
            let reason = match self.dataspace(&persist.location.dataspace) {
                Ok(space) if space.kind == DataspaceKind::Node => continue,
                Ok(_) => {
                    "only data on the nodes can be persistent; a shared file system keeps its \
                          files anyway"
                        .to_owned()
                }
                Err(reason) => reason,
            };
            problems.push(format!("line {}, column 1: {reason}", persist.line));
        }
        problems
    }

    /// The keys of this host: those of MUNGE. Data between nodes carry keyed hashes, so that nobody can
    /// change them on the way.
    pub fn authenticator(&self) -> Result<Authenticator, String> {
        let munge = Munge::new(self.munge.socket.clone()).map_err(|error| error.to_string())?;
        Ok(Authenticator {
            key: None,
            munge: Some(munge),
            data_protection: Some(DataProtection::Integrity),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "[controller]\naddress = \"10.0.0.1:7520\"\ndirectory = \"/var/lib/x\"\n";

    fn parse(more: &str) -> Result<SiteConfig, String> {
        SiteConfig::parse(&format!("{BASE}{more}"))
    }

    #[test]
    fn dataspaces_are_found_and_wrong_ones_refused_with_a_remedy() {
        let nvme = "[[dataspace]]\nname = \"nvme0\"\nkind = \"node\"\ndirectory = \"/nvme\"\n";
        let config = parse(nvme).unwrap();
        assert_eq!(config.dataspace("nvme0").unwrap().kind, DataspaceKind::Node);
        let error = config.dataspace("lustre").unwrap_err();
        assert_eq!(error, "there is no dataspace `lustre://`; this site has nvme0://");
        assert!(parse(&nvme.repeat(2)).unwrap_err().contains("two dataspaces are called `nvme0`"));
        assert!(parse(&nvme.replace("nvme0", "NV")).unwrap_err().contains("lower-case"));
        assert!(
            parse(&nvme.replace("\"/nvme\"", "\"nvme\"")).unwrap_err().contains("absolute path")
        );
        assert!(parse(&nvme.replace("node", "local")).unwrap_err().contains("unknown variant"));
    }
}
