//! `nornsctl`: inspection and administration of the data transfer service.

mod arguments;
mod tables;

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use arguments::{Action, Arguments, DataspaceAction, JobAction, ProcessAction};
use clap::{CommandFactory, Parser};
use forebay_console::{Failure, manual, print_stdout};
use forebay_norns_api::client;
use forebay_norns_api::configuration::{read_sockets, selected_file};
use forebay_norns_api::message::{Call, Command, ControlCall, Process, Reply};

fn main() -> ExitCode {
    if let Some(code) = manual::generate_if_requested(Arguments::command(), 8) {
        return code;
    }
    Failure::exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let file = arguments.config.clone().unwrap_or_else(selected_file);
    let sockets = read_sockets(&file).map_err(|error| Failure::Input(error.to_string()))?;
    let call = call(&arguments.action)?;
    let socket = &sockets.control;
    let reply = client::send(socket, &call, None).map_err(|code| {
        let is_denied = UnixStream::connect(socket)
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        let text = match is_denied {
            true => "permission denied: this socket is for root and its group".into(),
            false => code.text().to_string_lossy(),
        };
        Failure::Failed(format!("{}: {text}", socket.display()))
    })?;
    let text = match reply {
        Reply::Refused(_, reason) => return Err(Failure::Failed(reason)),
        Reply::Status(status) => tables::status(&status),
        Reply::Listing(listing) => match arguments.action {
            Action::Dataspaces => tables::dataspaces(&listing),
            Action::Jobs => tables::jobs(&listing),
            _ => tables::tasks(&listing),
        },
        Reply::Done | Reply::Task(_) | Reply::State(_) => String::new(),
    };
    print_stdout(&text).map_err(|error| Failure::Failed(error.to_string()))
}

/// The call that carries out an action.
fn call(action: &Action) -> Result<Call, Failure> {
    let control = match action {
        Action::Status => ControlCall::Status,
        Action::Dataspaces | Action::Jobs | Action::Tasks => ControlCall::List,
        Action::Cancel { task } => return Ok(Call::Cancel(*task)),
        Action::Ping => ControlCall::Command(Command::Ping),
        Action::Pause => ControlCall::Command(Command::Pause),
        Action::Resume => ControlCall::Command(Command::Resume),
        Action::Shutdown => ControlCall::Command(Command::Shutdown),
        Action::Dataspace(DataspaceAction::Add(space)) => {
            ControlCall::RegisterDataspace(space.name.clone(), space.request()?)
        }
        Action::Dataspace(DataspaceAction::Update(space)) => {
            ControlCall::UpdateDataspace(space.name.clone(), space.request()?)
        }
        Action::Dataspace(DataspaceAction::Remove { name }) => {
            ControlCall::UnregisterDataspace(name.clone())
        }
        Action::Job(JobAction::Add(job)) => ControlCall::RegisterJob(job.job, job.request()),
        Action::Job(JobAction::Update(job)) => ControlCall::UpdateJob(job.job, job.request()),
        Action::Job(JobAction::Remove { job }) => ControlCall::UnregisterJob(*job),
        Action::Process(ProcessAction::Add { job, uid, gid, pid }) => {
            ControlCall::AddProcess(*job, Process { uid: *uid, gid: *gid, pid: *pid })
        }
        Action::Process(ProcessAction::Remove { job, uid, gid, pid }) => {
            ControlCall::RemoveProcess(*job, Process { uid: *uid, gid: *gid, pid: *pid })
        }
    };
    Ok(Call::Control(control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
