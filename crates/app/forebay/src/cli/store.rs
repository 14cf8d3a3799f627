//! `forebay store`.

use crate::console::print_stdout;
use clap::{Args, Subcommand};
use forebay_console::Failure;
use forebay_protocol::InstanceId;
use forebay_store::offline::OfflineStore;
use std::path::{Path, PathBuf};

#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Read checkpoints, log and objects, and report damage; status 1 if there is any
    Check(CheckArgs),
    /// Print the instances on the node, and with --names the names in them, as JSON
    Dump(DumpArgs),
    /// Remove an instance from the node; the next start of the daemon frees its space
    DropInstance(DropArgs),
}

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Directory of a storage daemon, or of an embedded pool
    directory: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct DumpArgs {
    /// Directory of a storage daemon, or of an embedded pool
    directory: PathBuf,
    /// Print all names, too
    #[arg(long)]
    names: bool,
}

#[derive(Debug, Args)]
pub(super) struct DropArgs {
    /// Directory of a storage daemon, or of an embedded pool
    directory: PathBuf,
    /// Id of the instance, 16 hexadecimal digits as `check` and `dump` print it
    #[arg(long, value_name = "ID")]
    instance: InstanceId,
    /// Confirm that its files on this node are destroyed
    #[arg(long)]
    destroy_data: bool,
}

pub(super) fn run(command: &StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Check(args) => check(&args.directory),
        StoreCommand::Dump(args) => dump(args),
        StoreCommand::DropInstance(args) => drop_instance(args),
    }
}

fn open(directory: &Path) -> Result<OfflineStore, Failure> {
    if !directory.is_dir() {
        return Err(Failure::Input(format!("{} is not a directory", directory.display())));
    }
    OfflineStore::open(directory).map_err(Failure::Failed)
}

fn check(directory: &Path) -> Result<(), Failure> {
    let report = open(directory)?.check();
    for fact in &report.facts {
        print_stdout(&format!("{fact}\n"))?;
    }
    for warning in &report.warnings {
        print_stdout(&format!("warning: {warning}\n"))?;
    }
    for error in &report.errors {
        print_stdout(&format!("damage: {error}\n"))?;
    }
    match report.errors.len() {
        0 => Ok(()),
        1 => Err(Failure::Failed("the directory is damaged in one place".to_owned())),
        count => Err(Failure::Failed(format!("the directory is damaged in {count} places"))),
    }
}

fn dump(args: &DumpArgs) -> Result<(), Failure> {
    let dump = open(&args.directory)?.dump(args.names).map_err(Failure::Failed)?;
    let text = serde_json::to_string_pretty(&dump)
        .map_err(|error| Failure::Failed(format!("the state cannot be printed: {error}")))?;
    print_stdout(&format!("{text}\n"))
}

fn drop_instance(args: &DropArgs) -> Result<(), Failure> {
    if !args.destroy_data {
        return Err(Failure::Input(format!(
            "the files of instance {} on this node would be destroyed; confirm with --destroy-data",
            args.instance
        )));
    }
    open(&args.directory)?.drop_instance(args.instance).map_err(Failure::Failed)?;
    print_stdout(&format!(
        "instance {} is removed; the next start of the daemon frees its space\n",
        args.instance
    ))
}
