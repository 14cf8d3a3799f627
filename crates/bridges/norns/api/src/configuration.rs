//! The configuration file of the service, which the libraries read to find its sockets.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use yaml_rust2::Yaml;

use crate::message::{Backend, DataspaceRequest};
use crate::yaml::{self, Section};

/// Environment variable that names the configuration file.
pub const FILE_VARIABLE: &str = "NORNS_CONFIG_FILE";
/// The configuration file of an installed host.
pub const DEFAULT_FILE: &str = "/etc/norns/norns.conf";
/// Port for other nodes, unless the file names another one.
pub const DEFAULT_PORT: u16 = 42_000;

/// Maximum number of workers.
const MAX_WORKERS: u32 = 1024;
const GLOBAL: &[&str] = &[
    "use_syslog",
    "log_file",
    "log_file_max_size",
    "dry_run",
    "global_socket",
    "control_socket",
    "bind_address",
    "remote_port",
    "pidfile",
    "workers",
    "staging_directory",
    "key_file",
    "munge_socket",
];
const DATASPACE: &[&str] =
    &["nsid", "track_contents", "mountpoint", "type", "capacity", "visibility"];

/// A configuration file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct ConfigurationError {
    file: PathBuf,
    reason: String,
}

/// The sockets of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// For all users.
    pub global: PathBuf,
    /// For administrators.
    pub control: PathBuf,
}

/// The configuration of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Whether messages are sent to syslog.
    pub use_syslog: bool,
    /// File of messages.
    pub log_file: Option<PathBuf>,
    /// Whether tasks finish without any effect.
    pub dry_run: bool,
    /// The sockets.
    pub sockets: Sockets,
    /// Address for other nodes: an IP address of this host.
    pub bind_address: IpAddr,
    /// Port for other nodes, here and there.
    pub remote_port: u16,
    /// File of the number of the process.
    pub pidfile: PathBuf,
    /// Tasks that run at a time.
    pub workers: u32,
    /// Directory of the service's state.
    pub staging_directory: PathBuf,
    /// File of the secret with which nodes authenticate each other; `None`: MUNGE.
    pub key_file: Option<PathBuf>,
    /// Socket of `munged`, if it is not the default one; used without a key file.
    pub munge_socket: Option<PathBuf>,
    /// Dataspaces that exist from the start.
    pub dataspaces: Vec<(String, DataspaceRequest)>,
}

/// The file that the environment names, or the installed one.
pub fn selected_file() -> PathBuf {
    let named = std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty());
    named.map_or_else(|| PathBuf::from(DEFAULT_FILE), PathBuf::from)
}

/// Reads the sockets only: a library may be older or newer than the service.
pub fn read_sockets(file: &Path) -> Result<Sockets, ConfigurationError> {
    read_with(file, |document| {
        let entry = |key: &str| {
            let global = &document["global_settings"];
            let found = match global {
                Yaml::Array(items) => {
                    items.iter().map(|item| &item[key]).find(|v| !v.is_badvalue())
                }
                map => Some(&map[key]),
            };
            let text = found.and_then(Yaml::as_str);
            text.map(PathBuf::from).ok_or_else(|| format!("`global_settings` does not set `{key}`"))
        };
        Ok(Sockets { global: entry("global_socket")?, control: entry("control_socket")? })
    })
}

fn read_with<T>(
    file: &Path,
    parse: impl FnOnce(&Yaml) -> Result<T, String>,
) -> Result<T, ConfigurationError> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
    let parsed = text.and_then(|text| parse(&yaml::parse(&text)?));
    parsed.map_err(|reason| ConfigurationError { file: file.to_owned(), reason })
}

impl Configuration {
    /// Reads the whole file.
    pub fn read(file: &Path) -> Result<Configuration, ConfigurationError> {
        read_with(file, Configuration::parse)
    }

    fn parse(document: &Yaml) -> Result<Configuration, String> {
        let top = Section::new("the file", document, &["global_settings", "namespaces"])?;
        let global =
            top.value("global_settings").ok_or("the section `global_settings` is missing")?;
        let global = Section::new("global_settings", global, GLOBAL)?;
        let path = |key: &str| global.text(key).map(PathBuf::from);
        let port = match global.value("remote_port") {
            Some(_) => global.number("remote_port", u16::MAX.into())?,
            None => DEFAULT_PORT.into(),
        };
        let address = global.text("bind_address")?;
        let bind_address = address
            .parse()
            .map_err(|_| format!("`bind_address: {address}`: write an IP address of this host"))?;
        Ok(Configuration {
            use_syslog: global.boolean("use_syslog")?.unwrap_or(false),
            log_file: global.optional("log_file")?.map(PathBuf::from),
            dry_run: global.boolean("dry_run")?.unwrap_or(false),
            sockets: Sockets { global: path("global_socket")?, control: path("control_socket")? },
            bind_address,
            remote_port: u16::try_from(port).unwrap_or(DEFAULT_PORT),
            pidfile: path("pidfile")?,
            workers: global.number("workers", MAX_WORKERS)?,
            staging_directory: path("staging_directory")?,
            key_file: global.optional("key_file")?.map(PathBuf::from),
            munge_socket: global.optional("munge_socket")?.map(PathBuf::from),
            dataspaces: dataspaces(top.value("namespaces"))?,
        })
    }
}

fn dataspaces(list: Option<&Yaml>) -> Result<Vec<(String, DataspaceRequest)>, String> {
    let items = match list {
        None | Some(Yaml::Null) => return Ok(Vec::new()),
        Some(Yaml::Array(items)) => items,
        Some(_) => return Err("`namespaces` is not a list".to_owned()),
    };
    items.iter().map(dataspace).collect()
}

fn dataspace(item: &Yaml) -> Result<(String, DataspaceRequest), String> {
    let section = Section::new("namespaces", item, DATASPACE)?;
    let nsid = section.text("nsid")?;
    let in_space = |reason: String| format!("dataspace `{nsid}`: {reason}");
    let kind = section.text("type")?;
    let backend = backend(&kind).ok_or_else(|| {
        in_space(format!(
            "`type: {kind}`: write POSIX/LOCAL, POSIX/SHARED, NVML, LUSTRE, ECHOFS or \
             POSIX_FILESYSTEM"
        ))
    })?;
    let capacity = section.text("capacity")?;
    let visibility = section.text("visibility")?;
    let visible = match visibility.as_str() {
        "all" => true,
        "none" => false,
        other => return Err(in_space(format!("`visibility: {other}`: write `all` or `none`"))),
    };
    let mount = section.text("mountpoint")?;
    if !Path::new(&mount).is_absolute() {
        return Err(in_space(format!("`mountpoint: {mount}`: write an absolute path")));
    }
    let space = DataspaceRequest {
        backend,
        track: section.boolean("track_contents")?.unwrap_or(false),
        mount: mount.into_bytes(),
        capacity: parse_size(&capacity).ok_or_else(|| {
            in_space(format!("`capacity: {capacity}`: write a size such as `5 GiB`"))
        })?,
        visible,
    };
    Ok((nsid, space))
}

fn backend(kind: &str) -> Option<Backend> {
    match kind.to_ascii_uppercase().as_str() {
        "POSIX/LOCAL" | "POSIX/SHARED" | "POSIX_FILESYSTEM" => Some(Backend::Posix),
        "NVML" => Some(Backend::Nvml),
        "LUSTRE" => Some(Backend::Lustre),
        "ECHOFS" => Some(Backend::Echofs),
        _ => None,
    }
}

/// A size in bytes: a number with an optional unit, decimal (`MB`) or binary (`MiB`).
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit)?,
        Err(_) => (number.parse::<f64>().ok()? * unit as f64) as u64,
    };
    (bytes > 0).then_some(bytes)
}

#[cfg(test)]
mod tests;
