//! `forebay serve`: the daemons of a pool over several hosts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use forebay_daemon::activity::{self, Exporter, StatusSource};
use forebay_daemon::{ConfigError, Daemon, DaemonError, PoolConfig, host_name};

use super::pool::{CONFIGURATION, in_environment};
use super::print_answer;
use crate::console::print_stderr;

/// Time between looks at whether a daemon has ended.
const LOOK: Duration = Duration::from_millis(200);

/// A daemon of a pool over several hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Decides and remembers; one in a pool
    Controller,
    /// Keeps data; on each storage node
    Storage,
    /// Mounts; on each compute node
    Agent,
}

#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Which daemon
    #[arg(value_enum)]
    daemon: Role,
    /// The pool's configuration [default: $FOREBAY_POOL, or /etc/forebay/pool.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of this host in the pool [default: its host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Serve metrics for Prometheus at this address, such as 10.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Check the configuration and end
    #[arg(long)]
    check: bool,
}

/// Runs a daemon until it is told to end.
pub fn serve(arguments: ServeArguments) -> ExitCode {
    let named = arguments.config.clone().or_else(in_environment);
    let file = named.unwrap_or_else(|| PathBuf::from(CONFIGURATION));
    let config = match configuration(&file) {
        Ok(config) => config,
        Err(error) => {
            print_stderr(format_args!("error: {error}"));
            return ExitCode::from(2);
        }
    };
    if arguments.check {
        return print_answer(&format!(
            "{}: pool `{}` is configured well\n",
            file.display(),
            config.name
        ));
    }
    match run_daemon(&arguments, &config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended::Serve(error)) => {
            print_stderr(format_args!("error: {error}"));
            ExitCode::from(if error.is_bad_input() { 2 } else { 1 })
        }
        Err(Ended::Metrics(reason)) => {
            print_stderr(format_args!("error: {reason}"));
            ExitCode::FAILURE
        }
    }
}

enum Ended {
    Serve(DaemonError),
    Metrics(String),
}

fn configuration(file: &Path) -> Result<PoolConfig, ConfigError> {
    let config = PoolConfig::read(file)?;
    config.identity()?;
    Ok(config)
}

fn run_daemon(arguments: &ServeArguments, config: &PoolConfig) -> Result<(), Ended> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // Registering fails only for signals that cannot be caught.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    let name = arguments.name.clone().unwrap_or_else(host_name);
    let metrics = |source: StatusSource| -> Result<Option<Exporter>, Ended> {
        let Some(address) = arguments.metrics else {
            return Ok(None);
        };
        let responder = activity::serve_metrics(address, source).map_err(Ended::Metrics)?;
        print_stderr(format_args!(
            "metrics at http://{}/metrics",
            responder.address()
        ));
        Ok(Some(responder))
    };
    let daemon = match arguments.daemon {
        Role::Controller => Daemon::start_controller(config),
        Role::Storage => Daemon::start_storage(config, &name),
        Role::Agent => Daemon::start_agent(config, &name),
    }
    .map_err(Ended::Serve)?;
    let _metrics = metrics(daemon.status_source())?;
    print_stderr(format_args!(
        "{:?} of pool `{}` is up",
        arguments.daemon, config.name
    ));
    while !stop.load(Ordering::Relaxed) && !daemon.has_ended() {
        std::thread::sleep(LOOK);
    }
    daemon.stop().map_err(Ended::Serve)
}
