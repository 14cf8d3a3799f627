//! `forebay drain`, `undrain`, `forget`, `create-persistent`, `destroy-persistent`: which pool is
//! meant, and what its operator does.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use forebay_control::controller::{Answer, Cause, Failure, InstanceSpec, NodeStatus, Request};
use forebay_control::messages::Owner;
use forebay_daemon::embedded::EmbeddedPoolOptions;
use forebay_job::{PoolHandle, PoolSelection, RunError, request_once};
use forebay_job_script::{Access, AccessMode, Capacity, InstanceType};

use super::print_answer;
use super::serve::{ServeArguments, serve};

/// Where a host's pool is described unless something else is named.
pub(super) const CONFIGURATION: &str = "/etc/forebay/pool.toml";
/// Variable that names the pool.
const VARIABLE: &str = "FOREBAY_POOL";

#[derive(Debug, Args)]
pub struct PoolArguments {
    /// The pool: configuration file of one over several hosts, or directory of an embedded one
    /// [default: $FOREBAY_POOL, or /etc/forebay/pool.toml if it exists, or
    /// $XDG_STATE_HOME/forebay, or ./.forebay]
    #[arg(long, value_name = "FILE|DIRECTORY")]
    pool: Option<PathBuf>,
    /// Size of an embedded pool, such as 10GiB [default: as it was; of a new one 4/5 of what is
    /// free]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pool_size: Option<forebay_units::Bytes>,
}

fn size(text: &str) -> Result<forebay_units::Bytes, String> {
    match Capacity::parse(text)? {
        Capacity::Bytes(bytes) => Ok(bytes),
        Capacity::Nodes(_) => Err("write a size such as `10GiB`".to_owned()),
    }
}

/// The pool that is named in the environment.
pub(super) fn in_environment() -> Option<PathBuf> {
    let value = std::env::var_os(VARIABLE)?;
    (!value.is_empty()).then(|| PathBuf::from(value))
}

impl PoolArguments {
    /// The pool that is meant.
    pub fn which(self) -> Result<PoolSelection, RunError> {
        // Whoever says how large an embedded pool is to be means an embedded one.
        let installed = || {
            let path = Path::new(CONFIGURATION);
            (self.pool_size.is_none() && path.is_file()).then(|| path.to_owned())
        };
        let named = self.pool.clone().or_else(in_environment).or_else(installed);
        if let Some(file) = named.as_ref().filter(|path| path.is_file()) {
            if self.pool_size.is_some() {
                let reason = format!(
                    "--pool-size is for embedded pools, but {} describes one over several hosts",
                    file.display()
                );
                return Err(RunError::Usage(reason));
            }
            return Ok(PoolSelection::Shared(file.clone()));
        }
        let described = |path: &&PathBuf| path.extension().is_some_and(|end| end == "toml");
        if let Some(file) = named.as_ref().filter(described)
            && !file.exists()
        {
            let reason = format!(
                "{}: there is no such file to describe a pool; name another with --pool or \
                     {VARIABLE}",
                file.display()
            );
            return Err(RunError::Usage(reason));
        }
        let default = EmbeddedPoolOptions::default();
        Ok(PoolSelection::Embedded(EmbeddedPoolOptions {
            directory: named.unwrap_or(default.directory),
            size: self.pool_size,
        }))
    }
}

/// What an operator does to a pool.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Run a daemon of a pool over several hosts
    Serve(ServeArguments),
    /// Take a storage node out of service: it keeps what it has and gets nothing new
    Drain {
        #[command(flatten)]
        pool: PoolArguments,
        /// The node's name
        node: String,
    },
    /// Put a storage node back into service
    Undrain {
        #[command(flatten)]
        pool: PoolArguments,
        /// The node's name
        node: String,
    },
    /// Give up a storage node that is offline and will never come back: what only it held is lost
    ///
    /// Says which instances have data on the node that is nowhere else, and gives them up only with
    /// --lost. Whoever waits for the node goes on without it. If it comes back all the same, it is
    /// emptied before it is used again.
    Forget {
        #[command(flatten)]
        pool: PoolArguments,
        /// The node's name
        node: String,
        /// Even if that loses data
        #[arg(long)]
        lost: bool,
    },
    /// Make an instance that outlives jobs
    CreatePersistent {
        #[command(flatten)]
        pool: PoolArguments,
        /// Its name
        name: String,
        /// How much, such as 100GiB
        #[arg(long, value_name = "SIZE", value_parser = size)]
        capacity: forebay_units::Bytes,
        /// How jobs see it
        #[arg(long, value_enum, default_value = "striped")]
        access: Mode,
        /// Any user may use it
        #[arg(long)]
        public: bool,
        /// For this user and group, as `UID:GID` (operators only) [default: yours]
        #[arg(long, value_name = "UID:GID", value_parser = owner)]
        owner: Option<Owner>,
    },
    /// End an instance that outlives jobs, with all that is in it
    DestroyPersistent {
        #[command(flatten)]
        pool: PoolArguments,
        /// Its name
        name: String,
        /// Even if data in it waits to be staged out
        #[arg(long)]
        hurry: bool,
    },
}

/// Access modes of persistent instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// One name space for all hosts
    Striped,
    /// One for each host
    Private,
}

fn owner(text: &str) -> Result<Owner, String> {
    let numbers = text.split_once(':').and_then(|(uid, gid)| {
        Some(Owner {
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
        })
    });
    numbers.ok_or_else(|| "write numbers such as `1000:100`".to_owned())
}

/// The storage node of this name.
fn node_of(buffer: &PoolHandle, name: &str) -> Result<NodeStatus, Failure> {
    let nodes = buffer.controller().status()?.control.nodes;
    let node = nodes.iter().find(|node| node.name == name);
    node.cloned().ok_or_else(|| {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let reason = format!(
            "there is no storage node `{name}`; the nodes are {}",
            names.join(", ")
        );
        Failure::new(Cause::NotFound, reason)
    })
}

fn drain(which: &PoolSelection, name: &str, drained: bool) -> Result<(), RunError> {
    let step = if drained { "drain" } else { "undrain" };
    let buffer = PoolHandle::open(which)?;
    let fail = |failure| RunError::Step(step, failure);
    let node = node_of(&buffer, name).map_err(fail)?.id;
    buffer
        .controller()
        .request(Request::DrainNode { node, drained })
        .map_err(fail)?;
    buffer.close()
}

/// Gives up a node; what to say of it.
fn forget(which: &PoolSelection, name: &str, lost: bool) -> Result<String, RunError> {
    if let PoolSelection::Embedded(options) = which {
        let reason = format!(
            "the pool in {} is this host's alone, without other storage nodes; name the \
             configuration of a pool over several hosts with --pool",
            options.directory.display()
        );
        return Err(RunError::Usage(reason));
    }
    let buffer = PoolHandle::open_existing(which)?;
    let fail = |failure| RunError::Step("forget", failure);
    let node = node_of(&buffer, name).map_err(fail)?.id;
    let answer = buffer.controller().request(Request::ForgetNode {
        node,
        allow_data_loss: lost,
    });
    let answer = answer.map_err(fail)?;
    let mut told = format!("storage node {name} is given up\n");
    if let Answer::NodeForgotten(losses) = answer {
        for loss in losses {
            let _ = writeln!(told, "lost: {loss}");
        }
    }
    buffer.close()?;
    Ok(told)
}

/// Carries out one of the commands but `serve`.
pub fn execute(command: PoolCommand) -> Result<ExitCode, RunError> {
    match command {
        PoolCommand::Serve(arguments) => return Ok(serve(arguments)),
        PoolCommand::Drain { pool, node } => drain(&pool.which()?, &node, true)?,
        PoolCommand::Undrain { pool, node } => drain(&pool.which()?, &node, false)?,
        PoolCommand::Forget { pool, node, lost } => {
            return Ok(print_answer(&forget(&pool.which()?, &node, lost)?));
        }
        PoolCommand::CreatePersistent {
            pool,
            name,
            capacity,
            access,
            public,
            owner,
        } => {
            let mode = match access {
                Mode::Striped => AccessMode::Striped,
                Mode::Private => AccessMode::Private,
            };
            let buffer = PoolHandle::open(&pool.which()?)?;
            let spec = InstanceSpec {
                capacity: Capacity::Bytes(capacity),
                kind: InstanceType::Scratch,
                access: vec![Access {
                    mode,
                    modifiers: Default::default(),
                }],
                pool: None,
                preference: Default::default(),
                modifiers: Default::default(),
            };
            let request = Request::CreatePersistent {
                name,
                owner: owner.unwrap_or(buffer.controller().caller()),
                spec,
                public,
            };
            let made = buffer.controller().request(request);
            made.map_err(|failure| RunError::Step("create-persistent", failure))?;
            buffer.close()?;
        }
        PoolCommand::DestroyPersistent { pool, name, hurry } => {
            let request = Request::DestroyPersistent { name, hurry };
            request_once(&pool.which()?, "destroy-persistent", request)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
