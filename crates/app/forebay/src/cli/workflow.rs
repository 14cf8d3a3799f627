//! `forebay workflow`: the workflows of Slurm jobs and their data.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use forebay_console::Failure;
use forebay_workflow::calls::{Reply, Report, Request, Status};
use forebay_workflow::config::{SiteConfig, selected_file};
use forebay_workflow::controller::call;
use forebay_workflow::graph::Job;
use forebay_workflow::recovery::outcome;
use forebay_workflow_script::{Location, PersistAction, Principal};

use crate::console::print_stdout;
use crate::show::workflow::describe;

/// Interval at which a recovery looks at its progress.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Commands of `forebay workflow`.
#[derive(Debug, Subcommand)]
pub enum WorkflowCommand {
    /// Show your workflows: jobs, data on the nodes, remaining times (root: those of all users)
    Status {
        #[command(flatten)]
        site: SiteArguments,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove the data that an ended workflow left on the nodes
    Remove {
        #[command(flatten)]
        site: SiteArguments,
        /// The workflow
        workflow: u32,
    },
    /// Repeat the stages out of a workflow that have failed, and wait for them
    Recover {
        #[command(flatten)]
        site: SiteArguments,
        /// The workflow
        workflow: u32,
    },
    /// Share persistent data on the nodes, or remove them
    Persist {
        #[command(flatten)]
        site: SiteArguments,
        /// The action
        action: Action,
        /// The data, such as nvme0://tables
        location: String,
        /// The user that may read them, or `group:NAME`
        #[arg(required_if_eq_any([("action", "share"), ("action", "unshare")]))]
        user: Option<String>,
    },
}

/// Actions on persistent data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Action {
    /// Let a user or group read them
    Share,
    /// No longer
    Unshare,
    /// Remove them
    Delete,
}

/// The choice of the site's configuration.
#[derive(Debug, clap::Args)]
pub struct SiteArguments {
    /// The site's configuration [default: $FOREBAY_WORKFLOW, or /etc/forebay/workflow.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl SiteArguments {
    fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let config = SiteConfig::read(&selected_file(self.config.clone()));
        let config = config.map_err(|error| Failure::Input(error.to_string()))?;
        let auth = config.authenticator().map_err(Failure::Failed)?;
        let reply = call(&config, &auth, request);
        reply.map_err(|error| Failure::Failed(error.to_string()))
    }

    fn status(&self) -> Result<Status, Failure> {
        match self.call(&Request::Status)? {
            Reply::Status(status) => Ok(*status),
            Reply::Plan(_) | Reply::Done | Reply::Failed(_) => {
                Err(Failure::Failed("unexpected reply of the controller".to_owned()))
            }
        }
    }
}

/// Repeats the failed stages out of a workflow and waits for their end.
fn recover(site: &SiteArguments, workflow: u32) -> Result<(), Failure> {
    site.call(&Request::Recover { workflow })?;
    loop {
        let status = site.status()?;
        let jobs = status.jobs.iter().filter(|job| job.workflow == workflow);
        let (copying, failed) = outcome(jobs);
        if copying.is_empty() {
            let line = |report: &Report| {
                let reason = report.failure.as_deref().unwrap_or_default();
                format!("job {} on {}: {reason}", report.job, report.node)
            };
            let lines: Vec<String> = failed.into_iter().map(line).collect();
            return match lines.is_empty() {
                true => Ok(()),
                false => Err(Failure::Failed(lines.join("\n"))),
            };
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Runs a command.
pub fn run(command: WorkflowCommand) -> Result<(), Failure> {
    let invalid = |(problem, remedy)| Failure::Input(format!("{problem}; {remedy}"));
    match command {
        WorkflowCommand::Status { site, json } => {
            let status = site.status()?;
            print_stdout(&if json { as_json(&status)? } else { describe(&status) })
        }
        WorkflowCommand::Recover { site, workflow } => recover(&site, workflow),
        WorkflowCommand::Remove { site, workflow } => {
            site.call(&Request::Remove { workflow }).map(drop)
        }
        WorkflowCommand::Persist { site, action, location, user } => {
            let location = location.parse::<Location>().map_err(Failure::Input)?;
            let principal = user.as_deref().map(Principal::parse).transpose().map_err(invalid)?;
            let action = match action {
                Action::Share => PersistAction::Share,
                Action::Unshare => PersistAction::Unshare,
                Action::Delete => PersistAction::Delete,
            };
            site.call(&Request::Persist { action, location, principal }).map(drop)
        }
    }
}

fn as_json(status: &Status) -> Result<String, Failure> {
    let mut workflows: BTreeMap<u32, Vec<&Job>> = BTreeMap::new();
    for job in &status.jobs {
        workflows.entry(job.workflow).or_default().push(job);
    }
    let list: Vec<_> = workflows
        .iter()
        .map(|(id, jobs)| {
            let data = status.holdings.iter().find(|(workflow, _)| workflow == id);
            serde_json::json!({ "id": id, "jobs": jobs, "data": data.map(|(_, data)| data) })
        })
        .collect();
    let value = serde_json::json!({
        "version": 1, "workflows": list, "persistent": status.persistent
    });
    let text = serde_json::to_string_pretty(&value);
    text.map(|text| text + "\n").map_err(|error| Failure::Failed(error.to_string()))
}
