//! `forebay workflow`: the workflows of Slurm jobs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use clap::Subcommand;
use forebay_console::Failure;
use forebay_console::table::{Column, Table};
use forebay_workflow::calls::{Reply, Request};
use forebay_workflow::config::{SiteConfig, selected_file};
use forebay_workflow::controller::call;
use forebay_workflow::graph::Job;

use crate::console::print_stdout;

/// Commands of `forebay workflow`.
#[derive(Debug, Subcommand)]
pub enum WorkflowCommand {
    /// Show your workflows: their jobs, the order and state of these (root: all users' workflows)
    Status {
        #[command(flatten)]
        site: SiteArguments,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// The choice of the site's configuration.
#[derive(Debug, clap::Args)]
pub struct SiteArguments {
    /// The site's configuration [default: $FOREBAY_WORKFLOW, or /etc/forebay/workflow.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl SiteArguments {
    fn call(self, request: &Request) -> Result<Reply, Failure> {
        let config = SiteConfig::read(&selected_file(self.config));
        let config = config.map_err(|error| Failure::Input(error.to_string()))?;
        let auth = config.authenticator().map_err(Failure::Failed)?;
        call(&config, &auth, request).map_err(Failure::Failed)
    }
}

/// Runs a command.
pub fn run(command: WorkflowCommand) -> Result<(), Failure> {
    match command {
        WorkflowCommand::Status { site, json } => {
            let jobs = match site.call(&Request::Status)? {
                Reply::Status(jobs) => jobs,
                Reply::Failed(reason) => return Err(Failure::Failed(reason)),
            };
            let mut workflows: BTreeMap<u32, Vec<Job>> = BTreeMap::new();
            for job in jobs {
                workflows.entry(job.workflow).or_default().push(job);
            }
            print_stdout(&if json { as_json(&workflows)? } else { describe(&workflows) })
        }
    }
}

fn as_json(workflows: &BTreeMap<u32, Vec<Job>>) -> Result<String, Failure> {
    let list: Vec<_> =
        workflows.iter().map(|(id, jobs)| serde_json::json!({ "id": id, "jobs": jobs })).collect();
    let value = serde_json::json!({ "version": 1, "workflows": list });
    let text = serde_json::to_string_pretty(&value);
    text.map(|text| text + "\n").map_err(|error| Failure::Failed(error.to_string()))
}

fn describe(workflows: &BTreeMap<u32, Vec<Job>>) -> String {
    if workflows.is_empty() {
        return "no workflows\n".to_owned();
    }
    let mut text = String::new();
    for (id, jobs) in workflows {
        let user = jobs.first().map_or("", |job| &job.user);
        let _ = writeln!(text, "workflow {id} of {user}");
        let text_column = |name| Column::text(name, 0);
        let mut table = Table::new([
            Column::number("job", 0),
            text_column("after"),
            text_column("state"),
            text_column("nodes"),
            text_column("remark"),
        ]);
        for job in jobs {
            let after: Vec<String> = job.mark.prior.iter().map(u32::to_string).collect();
            table.push([
                job.id.to_string(),
                after.join(","),
                format!("{:?}", job.state).to_lowercase(),
                job.nodes.join(","),
                job.reason.clone(),
            ]);
        }
        let _ = write!(text, "{table}");
    }
    text
}
