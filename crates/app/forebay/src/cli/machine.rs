//! `forebay machine`: list, show, check.

use super::output::to_json;
use crate::console::print_stdout;
use clap::Subcommand;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_machine_file::machine::{Machine, NodeKind};
use forebay_machine_file::{Setting, builtin_machines, describe};
use forebay_units::human::grouped;
use serde::Serialize;

#[derive(Debug, Subcommand)]
pub(super) enum MachineCommand {
    /// List the built-in machines
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a machine: groups, routers, links by class, bisection, node layout
    #[command(after_help = "Examples:\n  forebay machine show toy\n  \
        forebay machine show trinity-phase2 --sources\n  forebay machine show my.toml --json")]
    Show {
        /// A built-in name, or the path of a file that ends in .toml
        machine: String,
        /// With the source of each number
        #[arg(long)]
        sources: bool,
        /// As JSON, with all numbers in base units
        #[arg(long)]
        json: bool,
    },
    /// Check a machine file and report every error
    Check {
        /// The path of a file that ends in .toml, or a built-in name
        file: String,
    },
}

/// Loads a machine by name or path; its errors are invalid input.
pub(super) fn load(name_or_path: &str) -> Result<Machine, Failure> {
    Machine::load(name_or_path).map_err(|e| Failure::Input(e.to_string()))
}

/// Loads a machine with some numbers replaced; its errors are invalid input.
pub(super) fn load_with(name_or_path: &str, settings: &[Setting]) -> Result<Machine, Failure> {
    Machine::load_with(name_or_path, settings).map_err(|e| Failure::Input(e.to_string()))
}

pub(super) fn run(command: MachineCommand) -> Result<(), Failure> {
    match command {
        MachineCommand::List { json } => list(json),
        MachineCommand::Show { machine, sources, json } => {
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
                "{file}: valid: {} groups, {} routers, {} nodes, {} numbers with their source\n",
                machine.network.groups,
                grouped(machine.routers().into()),
                grouped(machine.nodes.len() as u64),
                machine.provenance.len()
            ))?;
            for warning in machine.network.warnings() {
                print_stdout(&format!("{file}: warning: {warning}\n"))?;
            }
            Ok(())
        }
    }
}

/// A machine as JSON.
pub(super) fn json_of(machine: &Machine) -> Result<String, Failure> {
    serde_json::to_string_pretty(machine)
        .map_err(|e| Failure::Failed(format!("cannot write {} as JSON: {e}", machine.name)))
}

/// A built-in machine in the list.
#[derive(Serialize)]
struct Listed {
    machine: &'static str,
    groups: u32,
    routers: u32,
    compute: usize,
    burst_buffers: usize,
    description: &'static str,
}

impl Listed {
    fn of((machine, description): (&'static str, &'static str)) -> Result<Listed, Failure> {
        let loaded = load(machine)?;
        let nodes = |kind| loaded.nodes_of_kind(kind).len();
        Ok(Listed {
            machine,
            groups: loaded.network.groups,
            routers: loaded.routers(),
            compute: nodes(NodeKind::Compute),
            burst_buffers: nodes(NodeKind::BurstBuffer),
            description,
        })
    }
}

fn list(json: bool) -> Result<(), Failure> {
    let all: Vec<Listed> =
        builtin_machines().into_iter().map(Listed::of).collect::<Result<_, _>>()?;
    if json {
        return print_stdout(&to_json(&all)?);
    }
    let mut table = Table::new([
        Column::text("machine", 0),
        Column::number("groups", 0),
        Column::number("routers", 0),
        Column::number("compute", 0),
        Column::number("burst buffers", 0),
        Column::text("description", 0),
    ]);
    for one in all {
        table.push([
            one.machine.to_string(),
            one.groups.to_string(),
            grouped(one.routers.into()),
            grouped(one.compute as u64),
            grouped(one.burst_buffers as u64),
            one.description.to_string(),
        ]);
    }
    print_stdout(&table.to_string())
}
