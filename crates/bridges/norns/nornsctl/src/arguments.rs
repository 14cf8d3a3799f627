//! The command line.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use forebay_console::Failure;
use forebay_norns_api::message::{Backend, DataspaceRequest, JobRequest};
use forebay_units::Bytes;

#[derive(Debug, Parser)]
#[command(
    name = "nornsctl",
    version,
    about = "Inspects and administers the data transfer service of this node",
    after_help = "Examples:\n  \
        nornsctl dataspace add nvm0 /mnt/nvm --capacity 100GiB\n  \
        nornsctl job add 42 --host node0 --host node1 --limit nvm0=10GiB\n  \
        nornsctl tasks\n\n\
        Exit codes: 0 done, 1 refused or unreachable, 2 invalid input."
)]
pub struct Arguments {
    /// The service's configuration [default: $NORNS_CONFIG_FILE, or /etc/norns/norns.conf]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(subcommand)]
    pub action: Action,
}

/// The action.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Count tasks in progress and pending, and estimate the time until those in progress are over
    Status,
    /// List dataspaces, their capacity and what is used of it
    Dataspaces,
    /// List jobs, their limits and processes
    Jobs,
    /// List tasks: pending, in progress, and the last that are over
    Tasks,
    /// Cancel a task
    Cancel {
        /// Its number
        task: u32,
    },
    /// Add, change or remove a dataspace
    #[command(subcommand)]
    Dataspace(DataspaceAction),
    /// Add, change or remove a job
    #[command(subcommand)]
    Job(JobAction),
    /// Add or remove a process of a job
    #[command(subcommand)]
    Process(ProcessAction),
    /// Check that the service answers
    Ping,
    /// Refuse new tasks
    Pause,
    /// Accept tasks again
    Resume,
    /// End the service, unless tasks are pending or in progress
    Shutdown,
}

#[derive(Debug, Subcommand)]
pub enum DataspaceAction {
    /// Add a dataspace
    Add(Dataspace),
    /// Change a dataspace; what is used of it stays
    Update(Dataspace),
    /// Remove a dataspace; its files stay
    Remove {
        /// Its name
        name: String,
    },
}

/// Types of dataspaces.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Type {
    Posix,
    Lustre,
    Nvml,
    Echofs,
}

#[derive(Debug, Args)]
pub struct Dataspace {
    /// Its name
    pub name: String,
    /// Its directory
    directory: PathBuf,
    /// Bytes that tasks may store there, such as 100GiB
    #[arg(long)]
    capacity: Bytes,
    /// Its type
    #[arg(long = "type", value_enum, default_value = "posix")]
    kind: Type,
    /// Count what is there already
    #[arg(long)]
    track: bool,
    /// Also for processes that belong to no job
    #[arg(long)]
    visible: bool,
}

impl Dataspace {
    pub fn request(&self) -> Result<DataspaceRequest, Failure> {
        let directory = std::path::absolute(&self.directory)
            .map_err(|error| Failure::io("find", &self.directory, error))?;
        Ok(DataspaceRequest {
            backend: match self.kind {
                Type::Posix => Backend::Posix,
                Type::Lustre => Backend::Lustre,
                Type::Nvml => Backend::Nvml,
                Type::Echofs => Backend::Echofs,
            },
            track: self.track,
            mount: directory.as_os_str().as_bytes().to_vec(),
            capacity: self.capacity.0,
            visible: self.visible,
        })
    }
}

#[derive(Debug, Subcommand)]
pub enum JobAction {
    /// Add a job
    Add(Job),
    /// Replace hosts and limits of a job; its processes stay
    Update(Job),
    /// Remove a job; its tasks go on
    Remove {
        /// Its number
        job: u32,
    },
}

#[derive(Debug, Args)]
pub struct Job {
    /// Its number
    pub job: u32,
    /// A host of the job; may be repeated
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// A dataspace that the job may use, and the bytes that it may store there; may be repeated
    #[arg(long = "limit", value_name = "DATASPACE=BYTES", value_parser = limit)]
    limits: Vec<(String, u64)>,
}

impl Job {
    pub fn request(&self) -> JobRequest {
        JobRequest { hosts: self.hosts.clone(), limits: self.limits.clone() }
    }
}

fn limit(text: &str) -> Result<(String, u64), String> {
    // The name of a dataspace may contain the sign.
    let (name, bytes) = text.rsplit_once('=').ok_or("write DATASPACE=BYTES, such as nvm0=10GiB")?;
    let bytes: Bytes = bytes.parse().map_err(|error| format!("{error}"))?;
    Ok((name.to_owned(), bytes.0))
}

#[derive(Debug, Subcommand)]
pub enum ProcessAction {
    /// Add a process to a job; its descendants belong to the job, too
    Add {
        /// Number of the job
        job: u32,
        /// Number of the process
        pid: i32,
        /// Its user
        #[arg(long)]
        uid: u32,
        /// Its group
        #[arg(long)]
        gid: u32,
    },
    /// Remove a process from a job
    Remove {
        /// Number of the job
        job: u32,
        /// Number of the process
        pid: i32,
        /// Its user
        #[arg(long)]
        uid: u32,
        /// Its group
        #[arg(long)]
        gid: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_a_dataspace_and_bytes() {
        assert_eq!(limit("nvm0=10GiB"), Ok(("nvm0".to_owned(), 10 << 30)));
        assert_eq!(limit("a=b://=1MiB"), Ok(("a=b://".to_owned(), 1 << 20)));
        assert!(limit("nvm0").unwrap_err().contains("DATASPACE=BYTES"));
        assert!(limit("nvm0=many").is_err());
    }
}
