//! `forebayd`: the controller, storage daemon or agent of a pool over several hosts, or the data
//! transfer service of NORNS.

mod norns;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser, ValueEnum};
use forebay_console::log::{self, LogArguments};
use forebay_console::service_manager::{self, ServiceState, Watchdog};
use forebay_console::{Failure, manual, print_stderr, print_stdout};
use forebay_daemon::activity::{self, Exporter, StatusSource};
use forebay_daemon::{ConfigError, Daemon, DaemonError, PoolConfig, host_name};

/// Interval at which the main thread checks for a signal and for a daemon that has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The daemons of a pool over several hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// Allocates and keeps the pool's state; one per pool
    Controller,
    /// Serves data; on each storage node
    Storage,
    /// Mounts instances; on each compute node
    Agent,
    /// Transfers data for programs that use NORNS; on each node, with its own configuration
    Norns,
}

#[derive(Debug, Parser)]
#[command(
    name = "forebayd",
    version,
    about = "The daemons of a Forebay pool over several hosts",
    after_help = "Examples:\n  \
        forebayd controller --check\n  \
        forebayd storage --config /etc/forebay/pool.toml --metrics 10.0.0.11:9464\n  \
        forebayd norns --config /etc/norns/norns.conf\n\n\
        FOREBAY_LOG is the log filter: error, warn, info, debug, trace, or such as\n\
        forebay_store=debug,warn. SIGHUP opens the file of --log again, and a\n\
        controller applies a changed configuration as far as that needs no restart.\n\n\
        Exit codes: 0 stopped by SIGTERM or SIGINT, 1 failed, 2 invalid input."
)]
struct Arguments {
    #[command(flatten)]
    log: LogArguments,
    /// The daemon to run
    #[arg(value_enum)]
    daemon: Role,
    /// The pool's configuration [default: $FOREBAY_POOL, or /etc/forebay/pool.toml]; of norns
    /// [default: $NORNS_CONFIG_FILE, or /etc/norns/norns.conf]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of this host in the pool [default: its host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Serve metrics for Prometheus at this address, such as 10.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Check the configuration and exit
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    if let Some(code) = manual::generate_if_requested(Arguments::command(), 8) {
        return code;
    }
    Failure::exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.daemon == Role::Norns {
        return norns::run(arguments);
    }
    log::start_daemon(&arguments.log)?;
    let file = forebay_daemon::config::selected_file(arguments.config.clone());
    let config = read_config(&file).map_err(|error| Failure::Input(error.to_string()))?;
    if !arguments.check {
        return run_daemon(arguments, &config);
    }
    let name = &config.name;
    let text = format!("{}: the configuration of pool `{name}` is valid\n", file.display());
    print_stdout(&text).map_err(|error| Failure::Failed(error.to_string()))
}

fn read_config(file: &Path) -> Result<PoolConfig, ConfigError> {
    let config = PoolConfig::read(file)?;
    config.identity()?;
    Ok(config)
}

fn daemon_failure(error: DaemonError) -> Failure {
    match error.is_bad_input() {
        true => Failure::Input(error.to_string()),
        false => Failure::Failed(error.to_string()),
    }
}

/// A flag that SIGTERM and SIGINT set.
fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // Registration fails only for signals that cannot be caught.
        let _ = signal_hook::flag::register(signal, stop.clone());
    }
    stop
}

/// Runs the daemon until a signal arrives or it ends.
fn run_daemon(arguments: &Arguments, config: &PoolConfig) -> Result<(), Failure> {
    let stop = stop_flag();
    let reload = log::flag_of_reload_signal()?;
    let name = arguments.name.clone().unwrap_or_else(host_name);
    let daemon = match arguments.daemon {
        Role::Controller => Daemon::start_controller(config),
        Role::Storage => Daemon::start_storage(config, &name),
        Role::Agent => Daemon::start_agent(config, &name),
        Role::Norns => unreachable!("it has no pool"),
    }
    .map_err(daemon_failure)?;
    let _metrics = start_metrics(arguments.metrics, daemon.status_source())?;
    let kind = arguments.daemon.to_possible_value();
    print_stderr(format_args!(
        "forebayd: {} of pool `{}` is running",
        kind.as_ref().map_or("daemon", |kind| kind.get_name()),
        config.name
    ));
    notify(ServiceState::Ready);
    let mut watchdog = Watchdog::from_environment();
    let mut running = config.clone();
    while !stop.load(Ordering::Relaxed) && !daemon.has_ended() {
        std::thread::sleep(POLL_INTERVAL);
        if reload.swap(false, Ordering::Relaxed)
            && arguments.daemon == Role::Controller
            && let Err(reason) = reload_config(&daemon, &mut running)
        {
            report_refused_reload(&arguments.log, &reason);
        }
        if let Some(watchdog) = &mut watchdog
            && watchdog.is_due(Instant::now())
            && daemon.status_source()().is_ok()
        {
            notify(ServiceState::Alive);
            watchdog.note_report(Instant::now());
        }
    }
    notify(ServiceState::Stopping);
    daemon.stop().map_err(daemon_failure)
}

/// Reads the configuration again, and applies the entries that need no restart. `running` is the
/// one that the daemon has, and is replaced. If the new one is invalid or changes the pool itself,
/// nothing changes.
fn reload_config(daemon: &Daemon, running: &mut PoolConfig) -> Result<(), String> {
    let not_reloaded = |error: ConfigError| format!("not reloaded: {error}");
    let new = read_config(&running.file).map_err(not_reloaded)?;
    let merged = running.reloaded(&new).map_err(not_reloaded)?;
    let file = new.file.display();
    let fixed = running.entries_for_restart(&new);
    if !fixed.is_empty() {
        let entries = fixed.join(", ");
        print_stderr(format_args!("forebayd: {file}: {entries} will change with a restart"));
    }
    daemon.reload(&merged).map_err(|reason| format!("{file}: {reason}"))?;
    *running = merged;
    print_stderr(format_args!("forebayd: {file}: reloaded"));
    Ok(())
}

/// Logs a warning, and prints it unless logs go to standard error already.
fn report_refused_reload(log: &LogArguments, reason: &str) {
    tracing::warn!("{reason}");
    if !log.is_stderr() {
        print_stderr(format_args!("forebayd: {reason}"));
    }
}

fn notify(state: ServiceState) {
    if let Err(error) = service_manager::notify(state) {
        print_stderr(format_args!("forebayd: cannot notify the service manager: {error}"));
    }
}

fn start_metrics(
    address: Option<SocketAddr>,
    source: StatusSource,
) -> Result<Option<Exporter>, Failure> {
    let Some(address) = address else {
        return Ok(None);
    };
    let responder = activity::serve_metrics(address, source).map_err(Failure::Failed)?;
    print_stderr(format_args!("forebayd: metrics at http://{}/metrics", responder.address()));
    Ok(Some(responder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
