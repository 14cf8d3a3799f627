//! `forebay machine`: list, show, check.

use crate::console::print_stdout;
use crate::failure::Failure;
use crate::quantity::thousands;
use crate::table::{self, Column};
use clap::Subcommand;
use forebay_machine_file::machine::{Machine, NodeKind};
use forebay_machine_file::{builtin_machines, describe};

#[derive(Debug, Subcommand)]
pub(super) enum MachineCommand {
    /// The built-in machines
    List,
    /// One machine: groups, routers, links by class, bisection, where the nodes sit
    #[command(after_help = "Examples:\n  forebay machine show toy\n  \
        forebay machine show trinity-phase2 --sources\n  forebay machine show my.toml --json")]
    Show {
        /// A built-in name, or the path of a file that ends in .toml
        machine: String,
        /// Also where each number comes from
        #[arg(long)]
        sources: bool,
        /// As JSON, with all numbers in base units
        #[arg(long)]
        json: bool,
    },
    /// Read a machine file and say everything that is wrong with it
    Check {
        /// The path of a file that ends in .toml, or a built-in name
        file: String,
    },
}

/// Reads a machine by name or path; what is wrong with it is wrong input.
pub(super) fn load(name_or_path: &str) -> Result<Machine, Failure> {
    Machine::load(name_or_path).map_err(|e| Failure::Input(e.to_string()))
}

pub(super) fn run(command: MachineCommand) -> Result<(), Failure> {
    match command {
        MachineCommand::List => list(),
        MachineCommand::Show {
            machine,
            sources,
            json,
        } => {
            let machine = load(&machine)?;
            if json {
                return print_stdout(&format!("{}\n", json_of(&machine)?));
            }
            let mut text = describe::describe(&machine);
            if sources {
                text.push('\n');
                text.push_str(&describe::list_sources(&machine));
            }
            print_stdout(&text)
        }
        MachineCommand::Check { file } => {
            let machine = load(&file)?;
            print_stdout(&format!(
                "{file}: fine: {} groups, {} routers, {} nodes, {} numbers with their source\n",
                machine.network.groups,
                thousands(machine.routers().into()),
                thousands(machine.nodes.len() as u64),
                machine.provenance.len()
            ))
        }
    }
}

/// A machine as JSON.
pub(super) fn json_of(machine: &Machine) -> Result<String, Failure> {
    serde_json::to_string_pretty(machine)
        .map_err(|e| Failure::Failed(format!("cannot write {} as JSON: {e}", machine.name)))
}

fn list() -> Result<(), Failure> {
    let columns = [
        Column::text("machine", 0),
        Column::number("groups", 0),
        Column::number("routers", 0),
        Column::number("compute", 0),
        Column::number("burst buffers", 0),
        Column::text("what it is", 0),
    ];
    let mut rows = Vec::new();
    for (name, title) in builtin_machines() {
        let machine = load(name)?;
        let nodes = |kind| thousands(machine.nodes_of_kind(kind).len() as u64);
        rows.push(vec![
            name.to_string(),
            machine.network.groups.to_string(),
            thousands(machine.routers().into()),
            nodes(NodeKind::Compute),
            nodes(NodeKind::BurstBuffer),
            title.to_string(),
        ]);
    }
    print_stdout(&table::whole(&columns, &rows))
}
