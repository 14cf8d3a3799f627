//! `forebay adhoc`: a buffer of one user on the hosts of an allocation.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use forebay_adhoc::{
    AdhocError, AdhocOptions, LEADER_VARIABLE, Launcher, Reach, RecoverOptions, StagedItem, hold,
    host_list, recover, run as run_adhoc, run_node, start, stop, watch_leader,
};
use forebay_job::{OnFailure, Recovery};
use forebay_units::Bytes;

use super::pool::size;
use crate::console::{print_answer, print_stderr};
use crate::show::{self, Terminal};

/// The interception library beside the program or in the system's directory for libraries.
const LIBRARY: &str = "libforebay_preload.so";

/// Arguments of `forebay adhoc`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct AdhocArguments {
    #[command(subcommand)]
    command: Option<AdhocCommand>,
    #[command(flatten)]
    buffer: BufferArguments,
    /// The program and its arguments; it is run on this host
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
enum AdhocCommand {
    /// Start a buffer in the background, and print the commands that set its variables in a shell
    ///
    /// In a script: `eval "$(forebay adhoc start …)"`, the programs that use $FOREBAY_MOUNT, and
    /// `forebay adhoc stop`.
    Start(BufferArguments),
    /// Stage out, and remove a buffer that was started in the background
    Stop {
        /// The directory of its leader [default: $FOREBAY_ADHOC]
        leader: Option<PathBuf>,
    },
    /// The program of a buffer that was started in the background
    #[command(hide = true)]
    Hold,
    /// Stage out the data that an interrupted instance has left on its hosts, and remove it
    Recover {
        /// The directory of its leader, `forebay-….leader`; on the leader's host
        leader: PathBuf,
        /// Remove the data without staging it out
        #[arg(long)]
        discard: bool,
        /// As for the instance [default: the one with which it was started]
        #[arg(long, value_name = "LAUNCHER")]
        launcher: Option<String>,
        /// Network interface of this host that the hosts can reach
        #[arg(long, value_name = "NAME")]
        interface: Option<String>,
    },
    /// The process that removes the directory of a killed leader
    #[command(hide = true)]
    Watch {
        /// The directory
        leader: PathBuf,
    },
    /// The process on each host, which the launcher starts
    #[command(hide = true)]
    Node {
        /// The host's name in the list of hosts
        host: String,
    },
}

/// Arguments that describe a buffer.
#[derive(Debug, Args)]
pub struct BufferArguments {
    /// Hosts, such as `n[1-3,7]`, or a file with a host in each line as `@FILE` [default:
    /// $SLURM_JOB_NODELIST, or the file $PBS_NODEFILE, or this host]
    #[arg(long, value_name = "LIST")]
    hosts: Option<String>,
    /// Local directory on each host, for the data
    #[arg(long, value_name = "DIRECTORY", required = true)]
    local: Option<PathBuf>,
    /// `srun`, `ssh`, or a command to which a host and a command are appended [default: srun in a
    /// job of Slurm, else ssh]
    #[arg(long, value_name = "LAUNCHER")]
    launcher: Option<String>,
    /// Network interface of this host that the hosts can reach, such as ib0 [default: the first]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Size on each host, such as 100GiB [default: 4/5 of the free space]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<Bytes>,
    /// Stage a file or directory in: SOURCE[:PATH], where PATH is in the buffer
    #[arg(long, value_name = "SOURCE[:PATH]")]
    stage_in: Vec<String>,
    /// Stage a directory out when the program has ended: PATH:DESTINATION, where PATH is in the buffer
    #[arg(long, value_name = "PATH:DESTINATION")]
    stage_out: Vec<String>,
    /// Stage a file out when the program has ended
    #[arg(long, value_name = "PATH:DESTINATION")]
    stage_out_file: Vec<String>,
    /// Treatment of the results if the program fails
    #[arg(long, value_enum, default_value = "stage-out")]
    on_failure: OnFailure,
}

impl BufferArguments {
    fn options(self, program: Vec<OsString>) -> Result<AdhocOptions, String> {
        let launcher = match &self.launcher {
            Some(text) => Launcher::parse(text).map_err(|e| format!("--launcher: {e}"))?,
            None => Launcher::from_environment(),
        };
        let in_items = self.stage_in.iter().map(|text| StagedItem::parse_in(text));
        let stages_in = in_items.collect::<Result<Vec<_>, String>>();
        let directories = self.stage_out.iter().map(|text| StagedItem::parse_out(text, true));
        let files = self.stage_out_file.iter().map(|text| StagedItem::parse_out(text, false));
        let stages_out = directories.chain(files).collect::<Result<Vec<_>, String>>();
        let program_file =
            std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
        let library = installed_library(&program_file);
        Ok(AdhocOptions {
            hosts: hosts(self.hosts.as_deref())?,
            local: self.local.unwrap_or_default(),
            reach: Reach { launcher, program: program_file },
            interface: self.interface,
            size: self.size,
            stages_in: stages_in.map_err(|e| format!("--stage-in: {e}"))?,
            stages_out: stages_out.map_err(|e| format!("--stage-out: {e}"))?,
            on_failure: self.on_failure,
            library,
            program,
        })
    }
}

/// The hosts that are given, or those of the allocation, or this one.
fn hosts(given: Option<&str>) -> Result<Vec<String>, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(text) = given {
        let list = match text.strip_prefix('@') {
            Some(file) => host_list::read_file(Path::new(file)),
            None => host_list::parse(text),
        };
        return list.map_err(|reason| format!("--hosts: {reason}"));
    }
    if let Some(list) = variable("SLURM_JOB_NODELIST") {
        return host_list::parse(&list).map_err(|e| format!("SLURM_JOB_NODELIST: {e}"));
    }
    if let Some(file) = variable("PBS_NODEFILE") {
        return host_list::read_file(Path::new(&file)).map_err(|e| format!("PBS_NODEFILE: {e}"));
    }
    Ok(vec![forebay_daemon::host_name()])
}

fn installed_library(program: &Path) -> Option<PathBuf> {
    let beside = program.with_file_name(LIBRARY);
    let installed = program.parent()?.parent()?.join("lib").join(LIBRARY);
    [beside, installed].into_iter().find(|path| path.is_file())
}

/// Runs a command and prints its error.
pub fn run(arguments: AdhocArguments) -> ExitCode {
    let mut terminal = Terminal::default();
    let AdhocArguments { command, buffer, program } = arguments;
    let outcome = match command {
        Some(AdhocCommand::Node { host }) => return run_node(&host),
        Some(AdhocCommand::Watch { leader }) => {
            watch_leader(&leader);
            Ok(ExitCode::SUCCESS)
        }
        Some(AdhocCommand::Start(_)) => execute_start(),
        Some(AdhocCommand::Stop { leader }) => execute_stop(leader),
        Some(AdhocCommand::Hold) => hold().map(|()| ExitCode::SUCCESS),
        Some(AdhocCommand::Recover { leader, discard, launcher, interface }) => {
            let launcher = launcher.map(|text| Launcher::parse(&text)).transpose();
            let options =
                launcher.map(|launcher| RecoverOptions { leader, launcher, interface, discard });
            execute_recover(options, &mut terminal)
        }
        None => execute_run(buffer.options(program), &mut terminal),
    };
    terminal.clear();
    outcome.unwrap_or_else(|error| {
        print_stderr(format_args!("error: {error}"));
        ExitCode::from(match error.is_interrupt() {
            true => 130,
            false => 1 + u8::from(error.is_bad_input()),
        })
    })
}

/// Runs a program in a new buffer. The exit code is that of the program.
fn execute_run(
    options: Result<AdhocOptions, String>,
    terminal: &mut Terminal,
) -> Result<ExitCode, AdhocError> {
    let report = run_adhoc(&options.map_err(AdhocError::Usage)?, terminal)?;
    terminal.clear();
    print_stderr(format_args!("\n{}", show::summary(&report).trim_end()));
    if report.code != 0 {
        print_stderr(format_args!("the program ended with status {}", report.code));
    }
    Ok(ExitCode::from(u8::try_from(report.code).unwrap_or(1)))
}

/// Starts `forebay adhoc` with the same arguments, and with a program that waits for the stop.
fn execute_start() -> Result<ExitCode, AdhocError> {
    let program = std::env::current_exe()
        .map_err(|e| AdhocError::Start(format!("cannot find this program: {e}")))?;
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = arguments.windows(2).position(|pair| pair[0] == "adhoc" && pair[1] == "start");
    if let Some(at) = command {
        arguments.remove(at + 1);
    }
    let hold = ["--".into(), program.clone().into_os_string(), "adhoc".into(), "hold".into()];
    arguments.extend(hold);
    start(&program, &arguments)
}

fn execute_stop(leader: Option<PathBuf>) -> Result<ExitCode, AdhocError> {
    let leader = leader.or_else(|| std::env::var_os(LEADER_VARIABLE).map(PathBuf::from));
    let leader = leader.ok_or_else(|| {
        AdhocError::Usage(format!("name the directory of the leader, or set {LEADER_VARIABLE}"))
    })?;
    stop(&leader).map(|()| ExitCode::SUCCESS)
}

fn execute_recover(
    options: Result<RecoverOptions, String>,
    terminal: &mut Terminal,
) -> Result<ExitCode, AdhocError> {
    let recovery = recover(&options.map_err(AdhocError::Usage)?, terminal)?;
    terminal.clear();
    Ok(match recovery {
        Recovery::StagedOut(moved) => print_answer(&(show::staged(&moved) + "\n")),
        Recovery::WithoutSources(failure) => print_answer(&format!(
            "removed; there was nothing to stage out at some sources: {failure}\n"
        )),
        Recovery::NothingToSave | Recovery::WasEnding => {
            print_answer("there was nothing to stage out; removed\n")
        }
        Recovery::Discarded => print_answer("removed without staging out, as requested\n"),
        Recovery::Kept(failure) => {
            print_stderr(format_args!("error: {failure}"));
            ExitCode::FAILURE
        }
    })
}
