//! `dwstat`: the objects of a pool as DataWarp's tables.

mod tables;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use forebay_console::{print_stderr, print_stdout};
use forebay_daemon::config::{DEFAULT_CONFIG_FILE, pool_from_environment};
use forebay_wlm::Bridge;
use tables::Table;

/// A kind of objects, or several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Objects {
    /// Pools, sessions, instances, configurations, registrations and activations
    Most,
    /// All objects
    All,
    /// Pools
    Pools,
    /// Storage nodes
    Nodes,
    /// Sessions
    Sessions,
    /// Instances
    Instances,
    /// Configurations
    Configurations,
    /// Registrations
    Registrations,
    /// Activations
    Activations,
    /// Fragments
    Fragments,
    /// Name spaces
    Namespaces,
}

impl Objects {
    fn tables(self) -> &'static [Table] {
        const ALL: [Table; 9] = [
            Table::Pools,
            Table::Sessions,
            Table::Instances,
            Table::Configurations,
            Table::Registrations,
            Table::Activations,
            Table::Nodes,
            Table::Fragments,
            Table::Namespaces,
        ];
        match self {
            Objects::Most => &ALL[..6],
            Objects::All => &ALL,
            Objects::Pools => &ALL[0..1],
            Objects::Sessions => &ALL[1..2],
            Objects::Instances => &ALL[2..3],
            Objects::Configurations => &ALL[3..4],
            Objects::Registrations => &ALL[4..5],
            Objects::Activations => &ALL[5..6],
            Objects::Nodes => &ALL[6..7],
            Objects::Fragments => &ALL[7..8],
            Objects::Namespaces => &ALL[8..9],
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
    /// Objects to show
    #[arg(value_enum, default_value = "pools")]
    objects: Vec<Objects>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let configuration = pool_from_environment().unwrap_or_else(|| DEFAULT_CONFIG_FILE.into());
    let status = match Bridge::new(configuration).status() {
        Ok(status) => status,
        Err(error) => {
            print_stderr(format_args!("error: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let tables = arguments.objects.iter().flat_map(|objects| objects.tables());
    let texts: Vec<String> = tables.map(|table| table.text(&status)).collect();
    match print_stdout(&texts.join("\n")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_stderr(format_args!("error: standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}
