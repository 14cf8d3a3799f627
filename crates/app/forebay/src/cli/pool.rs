//! The choice of a pool, and the commands of its operator: `forebay drain`, `undrain`, `forget`,
//! `create-persistent`, `extend-persistent`, `destroy-persistent`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use forebay_control::controller::{Answer, Cause, Failure, InstanceSpec, NodeStatus, Request};
use forebay_control::messages::Owner;
use forebay_daemon::config::{
    DEFAULT_CONFIG_FILE, POOL_VARIABLE, parse_period, pool_from_environment,
};
use forebay_daemon::embedded::EmbeddedPoolOptions;
use forebay_job::{PoolHandle, PoolSelection, RunError, group_id, request_once};
use forebay_job_script::{Access, AccessMode, Capacity, check_persistent_name};
use forebay_units::Bytes;

use super::admin::{self, AdminCommand};
use crate::console::print_answer;
use crate::show::evacuations::left_on_node;

/// Time between two looks at a node that is being drained.
const WAIT_INTERVAL: Duration = Duration::from_secs(1);

/// Time in which the storage nodes of a pool report to a controller that has started.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two looks at whether they have.
const CONTACT_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub struct PoolArguments {
    /// Configuration file of a pool over several hosts, or directory of an embedded pool
    /// [default: $FOREBAY_POOL, or /etc/forebay/pool.toml if it exists, or
    /// $XDG_STATE_HOME/forebay, or ./.forebay]
    #[arg(long, value_name = "FILE|DIRECTORY")]
    pool: Option<PathBuf>,
}

/// The choice of a pool that a command may create or resize.
#[derive(Debug, Args)]
pub struct NewPoolArguments {
    #[command(flatten)]
    pool: PoolArguments,
    /// Size of an embedded pool, such as 10GiB [default: unchanged; 4/5 of the free space for a
    /// new pool]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pool_size: Option<Bytes>,
}

pub(super) fn size(text: &str) -> Result<Bytes, String> {
    match Capacity::parse(text)? {
        Capacity::Bytes(bytes) => Ok(bytes),
        Capacity::Nodes(_) => Err("write a size such as `10GiB`".to_owned()),
    }
}

impl PoolArguments {
    /// The pool that the arguments, the environment or the installed configuration select.
    pub fn selection(self) -> Result<PoolSelection, RunError> {
        NewPoolArguments { pool: self, pool_size: None }.selection()
    }
}

impl NewPoolArguments {
    /// As [`PoolArguments::selection`], with the size of an embedded pool.
    pub fn selection(self) -> Result<PoolSelection, RunError> {
        // `--pool-size` selects an embedded pool.
        let installed = || {
            let path = Path::new(DEFAULT_CONFIG_FILE);
            (self.pool_size.is_none() && path.is_file()).then(|| path.to_owned())
        };
        let named = self.pool.pool.or_else(pool_from_environment);
        let named = named.or_else(installed);
        if let Some(file) = named.as_ref().filter(|path| path.is_file()) {
            if self.pool_size.is_some() {
                let reason = format!(
                    "--pool-size is for embedded pools, but {} describes a pool over several hosts",
                    file.display()
                );
                return Err(RunError::Usage(reason));
            }
            return Ok(PoolSelection::Shared(file.clone()));
        }
        let is_configuration = |path: &&PathBuf| path.extension().is_some_and(|end| end == "toml");
        if let Some(file) = named.as_ref().filter(is_configuration)
            && !file.exists()
        {
            let reason = format!(
                "{}: no such file; select another pool with --pool or {POOL_VARIABLE}",
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

/// Accepts a restored database, once the storage nodes have told what they have obeyed.
fn accept_restored(selection: &PoolSelection) -> Result<(), RunError> {
    let pool = PoolHandle::open_existing(selection)?;
    let asked = Instant::now();
    let outcome = loop {
        match pool.controller().request(Request::AcceptRestored) {
            Err(failure) if failure.cause == Cause::Busy && asked.elapsed() < CONTACT_TIMEOUT => {
                std::thread::sleep(CONTACT_INTERVAL);
            }
            outcome => break outcome,
        }
    };
    pool.close()?;
    outcome.map(drop).map_err(|failure| RunError::Step("accept-restored", failure))
}

/// Commands of a pool's operator.
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Take a storage node out of service: persistent instances move off it
    ///
    /// Nothing new is allocated on it. Each persistent instance with data on it moves to other nodes
    /// as soon as it is mounted nowhere; jobs that want to mount it then wait until it has moved. The
    /// instances of jobs stay, and end with their jobs. `forebay status` shows what is left and what it
    /// waits for; when nothing is left, the node can be switched off.
    Drain {
        #[command(flatten)]
        pool: PoolArguments,
        /// The node's name
        node: String,
        /// Leave persistent instances on it
        #[arg(long)]
        no_evacuate: bool,
        /// Return when nothing is left on it
        #[arg(long, conflicts_with = "no_evacuate")]
        wait: bool,
    },
    /// Allocate on a drained storage node again
    ///
    /// Persistent instances that have not moved off it stay; incomplete copies are removed.
    Undrain {
        #[command(flatten)]
        pool: PoolArguments,
        /// The node's name
        node: String,
    },
    /// Give up a storage node that is lost for good, with the data that only it has
    ///
    /// Lists the instances whose data would be lost, and gives them up only with --lost. Operations
    /// that wait for the node fail or continue without it. If the node comes back, it is emptied
    /// before it is used again.
    Forget {
        #[command(flatten)]
        pool: PoolArguments,
        /// The node's name
        node: String,
        /// Even if data is lost
        #[arg(long)]
        lost: bool,
    },
    /// Accept that the controller's database was restored from a backup
    ///
    /// Until then the controller does nothing. What happened since the backup is lost to it: stages
    /// that had not ended then fail, and instances that were created since stay on the storage nodes
    /// until `forebay discard-unknown`.
    AcceptRestored {
        #[command(flatten)]
        pool: PoolArguments,
    },
    /// Remove the data of instances on a storage node that a restored controller does not know
    DiscardUnknown {
        #[command(flatten)]
        pool: PoolArguments,
        /// The node's name
        node: String,
    },
    /// Show usage, and set quotas
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Create an instance that outlives jobs
    CreatePersistent(CreatePersistentArguments),
    /// Have a persistent instance expire later, also when it has expired already
    ExtendPersistent {
        #[command(flatten)]
        pool: PoolArguments,
        /// Its name
        name: String,
        /// Time from now, such as 30d [default: the longest that the pool allows; for operators
        /// for ever]
        #[arg(long, value_name = "TIME", value_parser = parse_period)]
        lifetime: Option<u64>,
    },
    /// Destroy a persistent instance with its data
    DestroyPersistent {
        #[command(flatten)]
        pool: PoolArguments,
        /// Its name
        name: String,
        /// Even if data waits for its stage-out
        #[arg(long)]
        hurry: bool,
    },
}

/// Arguments of `forebay create-persistent`.
#[derive(Debug, Args)]
pub struct CreatePersistentArguments {
    #[command(flatten)]
    pool: NewPoolArguments,
    /// Its name
    #[arg(value_parser = persistent_name)]
    name: String,
    /// Its capacity, such as 100GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    capacity: Bytes,
    /// One name space for all compute nodes (striped), or one for each (private)
    #[arg(long, default_value = "striped", value_parser = access_mode())]
    access: AccessMode,
    /// Time until it expires, such as 30d [default: that of the pool]
    ///
    /// It is announced before; then no job may use it any more, and after a grace period it is
    /// removed, unless data wait for their stage-out.
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    lifetime: Option<u64>,
    /// Open to all users
    #[arg(long)]
    public: bool,
    /// Open to a group of users, by name or number [default: only to you]
    #[arg(long, conflicts_with = "public")]
    group: Option<String>,
    /// The account for which it counts [default: none]
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// For this user and group, as `UID:GID` (operators only) [default: yours]
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<Owner>,
}

fn persistent_name(name: &str) -> Result<String, String> {
    let checked = check_persistent_name(name);
    checked.map(|()| name.to_owned()).map_err(|(problem, remedy)| format!("{problem}; {remedy}"))
}

/// The access modes of persistent instances.
fn access_mode() -> impl TypedValueParser<Value = AccessMode> {
    let modes = [AccessMode::Striped, AccessMode::Private];
    PossibleValuesParser::new(modes.map(AccessMode::keyword)).map(move |word| {
        let chosen = modes.into_iter().find(|mode| mode.keyword() == word);
        chosen.unwrap_or(AccessMode::Striped)
    })
}

fn owner(text: &str) -> Result<Owner, String> {
    let numbers = text
        .split_once(':')
        .and_then(|(uid, gid)| Some(Owner { uid: uid.parse().ok()?, gid: gid.parse().ok()? }));
    numbers.ok_or_else(|| "write numbers such as `1000:100`".to_owned())
}

/// The storage node named `name`.
fn find_node(pool: &PoolHandle, name: &str) -> Result<NodeStatus, Failure> {
    let nodes = pool.controller().status()?.control.nodes;
    let node = nodes.iter().find(|node| node.name == name);
    node.cloned().ok_or_else(|| {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let reason =
            format!("there is no storage node `{name}`; the nodes are {}", names.join(", "));
        Failure::new(Cause::NotFound, reason)
    })
}

fn set_drained(
    pool: &PoolHandle,
    name: &str,
    drained: bool,
    evacuate: bool,
) -> Result<(), Failure> {
    let node = find_node(pool, name)?.id;
    let request = Request::DrainNode { node, drained, evacuate };
    pool.controller().request(request).map(drop)
}

fn undrain(selection: &PoolSelection, name: &str) -> Result<(), RunError> {
    let pool = PoolHandle::open(selection)?;
    set_drained(&pool, name, false, false).map_err(|failure| RunError::Step("undrain", failure))?;
    pool.close()
}

/// Drains a node and returns what is left on it, for the operator.
fn drain(
    selection: &PoolSelection,
    name: &str,
    evacuate: bool,
    wait: bool,
) -> Result<String, RunError> {
    let pool = PoolHandle::open(selection)?;
    let fail = |failure| RunError::Step("drain", failure);
    set_drained(&pool, name, true, evacuate).map_err(fail)?;
    let text = loop {
        let status = pool.controller().status().map_err(fail)?;
        let node = status.nodes.iter().find(|node| node.name == name);
        let is_empty = node.is_none_or(|node| node.fragments == 0);
        if !wait || is_empty {
            break left_on_node(&status, name);
        }
        std::thread::sleep(WAIT_INTERVAL);
    };
    pool.close()?;
    Ok(text)
}

fn discard_unknown(selection: &PoolSelection, name: &str) -> Result<(), RunError> {
    let pool = PoolHandle::open_existing(selection)?;
    let fail = |failure| RunError::Step("discard-unknown", failure);
    let node = find_node(&pool, name).map_err(fail)?.id;
    pool.controller().request(Request::DiscardUnknown { node }).map_err(fail)?;
    pool.close()
}

/// Gives up a node and returns the message for the operator.
fn forget(selection: &PoolSelection, name: &str, lost: bool) -> Result<String, RunError> {
    if let PoolSelection::Embedded(options) = selection {
        let reason = format!(
            "{} is an embedded pool, which has no other storage nodes; select a pool over several \
             hosts with --pool",
            options.directory.display()
        );
        return Err(RunError::Usage(reason));
    }
    let pool = PoolHandle::open_existing(selection)?;
    let fail = |failure| RunError::Step("forget", failure);
    let node = find_node(&pool, name).map_err(fail)?.id;
    let answer = pool.controller().request(Request::ForgetNode { node, allow_data_loss: lost });
    let answer = answer.map_err(fail)?;
    let mut text = format!("storage node {name} is given up\n");
    if let Answer::NodeForgotten(losses) = answer {
        for loss in losses {
            let _ = writeln!(text, "lost: {loss}");
        }
    }
    pool.close()?;
    Ok(text)
}

/// Runs one of the commands.
pub fn execute(command: PoolCommand) -> Result<ExitCode, RunError> {
    match command {
        PoolCommand::Drain { pool, node, no_evacuate, wait } => {
            let left = drain(&pool.selection()?, &node, !no_evacuate, wait)?;
            return Ok(print_answer(&left));
        }
        PoolCommand::Undrain { pool, node } => undrain(&pool.selection()?, &node)?,
        PoolCommand::Forget { pool, node, lost } => {
            return Ok(print_answer(&forget(&pool.selection()?, &node, lost)?));
        }
        PoolCommand::AcceptRestored { pool } => {
            accept_restored(&pool.selection()?)?;
        }
        PoolCommand::DiscardUnknown { pool, node } => discard_unknown(&pool.selection()?, &node)?,
        PoolCommand::Admin(command) => return admin::execute(command),
        PoolCommand::CreatePersistent(arguments) => create_persistent(arguments)?,
        PoolCommand::ExtendPersistent { pool, name, lifetime } => {
            let request = Request::ExtendPersistent { name, lifetime_ms: lifetime };
            request_once(&pool.selection()?, "extend-persistent", request)?;
        }
        PoolCommand::DestroyPersistent { pool, name, hurry } => {
            let request = Request::DestroyPersistent { name, hurry };
            request_once(&pool.selection()?, "destroy-persistent", request)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn create_persistent(arguments: CreatePersistentArguments) -> Result<(), RunError> {
    let pool = PoolHandle::open(&arguments.pool.selection()?)?;
    let access = vec![Access { mode: arguments.access, modifiers: Default::default() }];
    let mut spec = InstanceSpec::scratch(Capacity::Bytes(arguments.capacity), access, None);
    spec.lifetime_ms = arguments.lifetime;
    spec.account = arguments.account;
    spec.group = arguments.group.as_deref().map(group_id).transpose()?;
    let request = Request::CreatePersistent {
        name: arguments.name,
        owner: arguments.owner.unwrap_or(pool.controller().caller()),
        spec,
        public: arguments.public,
    };
    let created = pool.controller().request(request);
    created.map_err(|failure| RunError::Step("create-persistent", failure))?;
    pool.close()
}
