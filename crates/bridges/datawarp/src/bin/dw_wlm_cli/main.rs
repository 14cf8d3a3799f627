//! `dw_wlm_cli`: the command by which a batch system uses DataWarp, for a pool of this buffer.
//!
//! Each function is one call of [`forebay_wlm`]. Queries print JSON on standard output, and
//! nothing else; all other text is for the user of the job. Slurm's burst_buffer/datawarp plugin
//! reads both outputs together, and takes the phrases `token not found` and `No matching session`
//! as the sign that a job has no instance.

mod arguments;
mod queries;
mod reclaim;
mod slurm;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use arguments::{Arguments, Function};
use clap::{CommandFactory, Parser};
use forebay_console::{manual, print_stderr, print_stdout};
use forebay_control::controller::Lifetime;
use forebay_daemon::config::selected_file;
use forebay_wlm::{Bridge, Call, ErrorKind, Reply, WlmError, parse_access};

/// Largest file of host names that is read, in bytes.
const MAX_HOSTS_FILE: u64 = 16 << 20;
/// Greatest node id. A job has at most as many nodes.
const MAX_NID: u32 = 999_999;

fn main() -> ExitCode {
    if let Some(code) = manual::generate_if_requested(Arguments::command(), 8) {
        return code;
    }
    let text = match run(Arguments::parse(), &Bridge::new(selected_file(None))) {
        Ok(text) => text,
        Err(error) => {
            print_stderr(message(&error));
            return ExitCode::FAILURE;
        }
    };
    match print_stdout(&text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_stderr(format_args!("error: standard output: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// The text of a failure.
fn message(error: &WlmError) -> String {
    match error.kind == ErrorKind::NoSuchJob {
        true => format!("token not found: No matching session: {error}"),
        false => error.to_string(),
    }
}

/// Carries a function out, and returns its output.
fn run(arguments: Arguments, bridge: &Bridge) -> Result<String, WlmError> {
    let call = match arguments.function {
        Function::ShowPools => return Ok(queries::pools(&bridge.status()?)),
        Function::ShowInstances => return Ok(queries::instances(&bridge.status()?)),
        Function::ShowSessions => return Ok(queries::sessions(&bridge.status()?)),
        Function::ShowConfigurations => return Ok(queries::configurations(&bridge.status()?)),
        Function::Reclaim => return reclaim::reclaim(bridge),
        Function::Paths => return write_paths(&arguments, bridge),
        Function::JobProcess => Call::Validate { script: arguments.job()? },
        Function::Setup => Call::Setup {
            job: arguments.token()?,
            user: arguments.user()?,
            group: arguments.groupid,
            script: arguments.job()?,
            pool: arguments.pool(),
            account: job_account(&arguments)?,
            caller: arguments.caller,
        },
        Function::DataIn => Call::StageIn { job: arguments.token()? },
        Function::RealSize => Call::Capacity { job: arguments.token()? },
        Function::PreRun => Call::Mount { job: arguments.token()?, hosts: read_hosts(&arguments)? },
        Function::PostRun => Call::Unmount { job: arguments.token()? },
        Function::DataOut => Call::StageOut { job: arguments.token()? },
        Function::Teardown => teardown(arguments.token()?, arguments.hurry, bridge)?,
        Function::CreatePersistent => return create_persistent(&arguments, bridge),
    };
    Ok(match bridge.perform(call)? {
        Reply::Capacity { bytes, .. } => queries::real_size(bytes),
        Reply::Done {}
        | Reply::Script(_)
        | Reply::Pool(_)
        | Reply::Staged(_)
        | Reply::Environment { .. } => String::new(),
    })
}

/// The account that is given, or that of the job in Slurm.
fn job_account(arguments: &Arguments) -> Result<Option<String>, WlmError> {
    let token = arguments.token()?;
    let given = arguments.account.clone();
    Ok(given.or_else(|| slurm::slurm_account(arguments.caller.as_deref(), &token)))
}

/// Creates a persistent instance. Slurm looks for the word `created` in the output.
fn create_persistent(arguments: &Arguments, bridge: &Bridge) -> Result<String, WlmError> {
    let name = arguments.token()?;
    bridge.perform(Call::CreatePersistent {
        name: name.clone(),
        lifetime_seconds: None,
        user: arguments.user()?,
        group: arguments.groupid,
        capacity: arguments.requested_capacity()?,
        access: parse_access(arguments.scratch_access()?)?,
        pool: arguments.pool(),
        account: arguments.account.clone(),
        public: false,
    })?;
    Ok(format!("created persistent instance {name}\n"))
}

/// The call that ends what a token names: a job or a persistent instance.
fn teardown(token: String, hurry: bool, bridge: &Bridge) -> Result<Call, WlmError> {
    let status = bridge.status()?;
    let lifetime = status.sessions.iter().find(|session| session.token == token);
    match lifetime.map(|session| session.lifetime) {
        Some(Lifetime::Job) => Ok(Call::Teardown { job: token, hurry }),
        Some(Lifetime::Persistent) => Ok(Call::DestroyPersistent { name: token, hurry }),
        None => Err(WlmError::new(ErrorKind::NoSuchJob, format!("there is no `{token}`"))),
    }
}

/// Writes the environment variables of a job, one `NAME=value` a line.
fn write_paths(arguments: &Arguments, bridge: &Bridge) -> Result<String, WlmError> {
    let file = arguments.pathfile()?;
    let environment = bridge.environment(&arguments.token()?)?;
    let line = |(name, value): &(String, String)| format!("{name}={value}\n");
    let text: String = environment.iter().map(line).collect();
    let written = fs::File::create(&file).and_then(|mut out| out.write_all(text.as_bytes()));
    let failed = |error| format!("{}: {error}", file.display());
    written.map_err(|error| WlmError::new(ErrorKind::Failed, failed(error)))?;
    Ok(String::new())
}

/// The compute nodes of a job; none if the job has no nodes.
fn read_hosts(arguments: &Arguments) -> Result<Vec<String>, WlmError> {
    let read = |file: &Path| -> Result<String, WlmError> {
        let mut text = String::new();
        let opened = fs::File::open(file);
        let read = opened.and_then(|open| open.take(MAX_HOSTS_FILE).read_to_string(&mut text));
        let failed = |error| format!("{}: {error}", file.display());
        read.map_err(|error| WlmError::new(ErrorKind::Failed, failed(error)))?;
        Ok(text)
    };
    if let Some(file) = &arguments.nodehostnamefile {
        return Ok(read(file)?.split_whitespace().map(str::to_owned).collect());
    }
    let Some(file) = &arguments.nidlistfile else {
        return Ok(Vec::new());
    };
    hosts_of_nids(&read(file)?).map_err(|range| {
        let text =
            format!("{}: `{range}` is not a range of node ids from 0 to {MAX_NID}", file.display());
        WlmError::new(ErrorKind::Invalid, text)
    })
}

/// The host names of ranges of node ids, as on Cray systems. An error is the range that is not one.
fn hosts_of_nids(text: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for range in text.split_whitespace() {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last))
                if first <= last && last <= MAX_NID && hosts.len() <= MAX_NID as usize =>
            {
                hosts.extend((first..=last).map(|nid| format!("nid{nid:05}")));
            }
            _ => return Err(range.to_owned()),
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_become_host_names() {
        let hosts = ["nid00008", "nid00011", "nid00012", "nid123456"].map(str::to_owned).to_vec();
        assert_eq!(hosts_of_nids("8 11-12\n123456\n"), Ok(hosts));
    }

    #[test]
    fn text_that_is_no_range_of_node_ids_is_refused() {
        for wrong in ["a", "3-", "-3", "5-4", "0-4294967295", "1-2-3"] {
            assert_eq!(hosts_of_nids(&format!("1 {wrong}")), Err(wrong.to_owned()));
        }
    }
}
