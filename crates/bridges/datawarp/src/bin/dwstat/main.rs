//! `dwstat`: the objects of a pool as DataWarp's tables.

mod tables;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, ValueEnum};
use forebay_console::{manual, print_stderr, print_stdout};
use forebay_daemon::config::selected_file;
use forebay_wlm::Bridge;
use tables::Table;

/// Tables that a word selects.
#[derive(Clone, Debug)]
struct Selection(Vec<Table>);

/// The selection of a word: `most`, `all`, or the name of a table.
fn selection(word: &str) -> Result<Selection, String> {
    match word {
        "most" => Ok(Selection(Table::MOST.to_vec())),
        "all" => Ok(Selection(Table::value_variants().to_vec())),
        word => {
            let names = Table::value_variants().iter().filter_map(Table::to_possible_value);
            let names: Vec<String> = names.map(|value| value.get_name().to_owned()).collect();
            let table = Table::from_str(word, false);
            let table = table.map_err(|_| format!("write most, all, {}", names.join(", ")))?;
            Ok(Selection(vec![table]))
        }
    }
}

#[derive(Debug, Parser)]
#[command(
    name = "dwstat",
    version,
    about = "The objects of a Forebay pool, as DataWarp's tables",
    after_help = "The pool is that of FOREBAY_POOL, or of /etc/forebay/pool.toml. Slurm runs this \
                  command for `scontrol show bbstat`: GetSysStatus=/usr/bin/dwstat in \
                  burst_buffer.conf. States: goal C(reate) or D(estroy), A(ctual), T(ransitioning), \
                  M(ixed)."
)]
struct Arguments {
    /// Objects to show: pools, sessions, instances, configurations, registrations, activations,
    /// nodes, fragments, namespaces; most: the first six; all: all of them
    #[arg(value_parser = selection, default_value = "pools")]
    objects: Vec<Selection>,
}

fn main() -> ExitCode {
    if let Some(code) = manual::generate_if_requested(Arguments::command(), 1) {
        return code;
    }
    let arguments = Arguments::parse();
    let status = match Bridge::new(selected_file(None)).status() {
        Ok(status) => status,
        Err(error) => {
            print_stderr(format_args!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let tables = arguments.objects.iter().flat_map(|Selection(tables)| tables);
    let texts: Vec<String> = tables.map(|table| table.text(&status)).collect();
    match print_stdout(&texts.join("\n")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_stderr(format_args!("error: standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}
