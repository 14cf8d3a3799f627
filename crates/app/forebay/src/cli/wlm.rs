//! `forebay wlm` and `forebay check`: calls for batch systems, and a script's requests for its user.

use std::fmt::Write;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_daemon::config::selected_file;
use forebay_job_script::AccessMode;
use forebay_units::human;
use forebay_wlm::{
    Bridge, Call, ErrorKind, Reply, Requested, RequestedInstance, ScriptReport, WlmError,
    parse_call, reply_text,
};

use crate::console::{print_answer, print_stderr, print_stdout};

/// Largest call that is read, in bytes.
const MAX_CALL: u64 = 1 << 20;

/// Placeholder for the id of a job that is not submitted.
const JOB_ID: &str = "JOBID";

/// Arguments of `forebay wlm`.
#[derive(Debug, clap::Args)]
pub struct WlmArguments {
    /// The pool's configuration [default: $FOREBAY_POOL, or /etc/forebay/pool.toml]
    #[arg(long, value_name = "FILE")]
    pool: Option<PathBuf>,
    /// The call, such as '{"version": 1, "function": "show"}' [default: standard input]
    call: Option<String>,
}

/// Arguments of `forebay check`.
#[derive(Debug, clap::Args)]
pub struct CheckArguments {
    /// The configuration of a pool over several hosts [default: $FOREBAY_POOL, or /etc/forebay/pool.toml]
    #[arg(long, value_name = "FILE")]
    pool: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The job script
    script: PathBuf,
}

/// Makes one call, and prints its outcome as JSON. The exit code is 0 if the call succeeded, 2 if
/// it is invalid, and 1 if it failed otherwise.
pub fn run(arguments: &WlmArguments) -> ExitCode {
    let outcome = read_call(arguments)
        .and_then(|call| Bridge::new(selected_file(arguments.pool.clone())).perform(call));
    let printed = print_answer(&(reply_text(&outcome) + "\n"));
    match outcome {
        Ok(_) => printed,
        Err(error) if error.kind == ErrorKind::Invalid => ExitCode::from(2),
        Err(_) => ExitCode::FAILURE,
    }
}

fn read_call(arguments: &WlmArguments) -> Result<Call, WlmError> {
    if let Some(call) = &arguments.call {
        return parse_call(call);
    }
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(MAX_CALL).read_to_end(&mut bytes);
    let failed = |error| WlmError::new(ErrorKind::Failed, format!("standard input: {error}"));
    read.map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| {
        WlmError::new(ErrorKind::Invalid, "standard input: the call is not text in UTF-8")
    })?;
    parse_call(&text)
}

/// Prints the requests of a script, and the allocation that it would get.
pub fn check(arguments: &CheckArguments) -> Result<(), Failure> {
    if let Some(pool) = arguments.pool.as_deref().filter(|pool| !pool.is_file()) {
        return Err(Failure::Input(format!(
            "--pool {}: not a file; `check` asks pools over several hosts, by their configuration; without a \
             pool it only reads the script",
            pool.display()
        )));
    }
    let bridge = Bridge::new(selected_file(arguments.pool.clone()));
    let requested = Requested::read_before_submission(&arguments.script, JOB_ID);
    let report = requested.and_then(|requested| bridge.validate(&requested)).map_err(|error| {
        let file = arguments.script.display();
        let lines: Vec<String> =
            error.message.lines().map(|line| format!("{file}: {line}")).collect();
        Failure::Input(lines.join("\n"))
    })?;
    let text = match arguments.json {
        true => reply_text(&Ok(Reply::Script(Box::new(report)))) + "\n",
        false => describe(&report),
    };
    print_stdout(&text)
}

fn describe(report: &ScriptReport) -> String {
    let mut text = String::new();
    if let Some(instance) = &report.instance {
        let _ = writeln!(text, "instance     {}", describe_instance(instance));
    }
    for created in &report.creates {
        let name = created.name.as_deref().unwrap_or_default();
        let _ = writeln!(text, "creates      {name}: {}", describe_instance(created));
    }
    let lists = [
        ("uses", &report.persistent),
        ("destroys", &report.destroys),
        ("environment", &report.variables),
    ];
    for (name, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
        let _ = writeln!(text, "{name:<12} {}", items.join(", "));
    }
    if report.stages.is_empty() {
        text.push_str("stages       none\n");
    } else {
        let text_column = |name| Column::text(name, 0);
        let mut table = Table::new([
            Column::number("line", 0),
            text_column("stage"),
            text_column("kind"),
            text_column("source"),
            text_column("destination"),
        ]);
        for stage in &report.stages {
            table.push([
                stage.line.to_string(),
                stage.direction.to_owned(),
                format!("{:?}", stage.kind).to_lowercase(),
                stage.source.clone(),
                stage.destination.clone(),
            ]);
        }
        let _ = write!(text, "\n{table}");
    }
    for warning in &report.warnings {
        print_stderr(format_args!("warning: {warning}"));
    }
    text
}

fn describe_instance(instance: &RequestedInstance) -> String {
    let modes: Vec<&str> = instance.access.iter().map(|mode| AccessMode::keyword(*mode)).collect();
    let modes = modes.join(",");
    match &instance.allocation {
        None => format!("{} requested, {modes}; the pool is not reachable", instance.requested),
        Some(allocation) => format!(
            "{} on {} of pool `{}`, {modes} (requested: {}; a granule is {})",
            human::bytes(allocation.capacity.0),
            human::counted(u64::from(allocation.nodes), "storage node"),
            allocation.pool,
            instance.requested,
            human::bytes(allocation.granularity.0)
        ),
    }
}
