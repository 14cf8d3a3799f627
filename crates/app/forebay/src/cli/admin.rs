//! `forebay admin`: usage and quotas, sessions of clients.

use std::process::ExitCode;

use clap::Subcommand;
use forebay_console::table::{Column, Table};
use forebay_control::controller::{QuotaSubject, Request, UsageStatus};
use forebay_job::{PoolHandle, RunError, group_id, request_once};
use forebay_units::{Bytes, human};

use super::job::show_job_usage;
use super::pool::{PoolArguments, size};
use super::sessions::{self, EvictArguments, SessionsArguments};
use crate::console::print_answer;
use crate::show::user_name;

/// Administration of a pool.
#[derive(Debug, Subcommand)]
pub enum AdminCommand {
    /// Show the bytes allocated to users, groups and accounts, and their quotas; or the I/O of jobs
    Usage {
        #[command(flatten)]
        pool: PoolArguments,
        /// The I/O of all jobs and persistent instances instead, also of the last ones that ended
        #[arg(long)]
        jobs: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List the sessions of clients on the storage nodes (administrators only)
    ///
    /// A mount has one session with each storage node of its instance that it has used, and so has
    /// each program with a client library and each stage.
    Sessions(SessionsArguments),
    /// End sessions of clients (administrators only)
    ///
    /// Their connections are closed, their open files and locks are released, and their later
    /// requests fail with ESHUTDOWN ("Cannot send after transport endpoint shutdown"). An evicted
    /// mount stays so until it is mounted again. At least one option selects the sessions; those that
    /// match all options are evicted.
    Evict(EvictArguments),
    /// Limit the bytes that are allocated to a user, a group or an account (operators only)
    ///
    /// Existing instances stay. Requests beyond the quota are refused.
    #[command(group = clap::ArgGroup::new("subject").required(true))]
    Quota {
        #[command(flatten)]
        pool: PoolArguments,
        /// The user, by name or number
        #[arg(long, group = "subject")]
        user: Option<String>,
        /// The group, by name or number
        #[arg(long, group = "subject")]
        group: Option<String>,
        /// The account of the batch system
        #[arg(long, group = "subject")]
        account: Option<String>,
        /// The quota, such as 10TiB, or `none`
        #[arg(value_name = "SIZE|none", value_parser = quota)]
        quota: Quota,
    },
}

/// A quota on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Quota(Option<Bytes>);

fn quota(text: &str) -> Result<Quota, String> {
    match text {
        "none" => Ok(Quota(None)),
        text => size(text).map(|bytes| Quota(Some(bytes))),
    }
}

/// Runs one of the commands.
pub fn execute(command: AdminCommand) -> Result<ExitCode, RunError> {
    match command {
        AdminCommand::Usage { pool, jobs: true, json } => {
            show_job_usage(&pool.selection()?, None, json)
        }
        AdminCommand::Usage { pool, jobs: false, json } => {
            let pool = PoolHandle::open_existing(&pool.selection()?)?;
            let status = pool.controller().status();
            let status = status.map_err(|failure| RunError::Step("usage", failure))?;
            let rows = [status.control.usage, status.control.account_usage].concat();
            let text = match json {
                true => serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n",
                false => usage(&rows),
            };
            pool.close()?;
            Ok(print_answer(&text))
        }
        AdminCommand::Sessions(arguments) => sessions::list(arguments),
        AdminCommand::Evict(arguments) => sessions::evict(arguments),
        AdminCommand::Quota { pool, user, group, account, quota } => {
            let subject = match (user, group, account) {
                (Some(user), ..) => QuotaSubject::User(user_id(&user)?),
                (None, Some(group), _) => QuotaSubject::Group(group_id(&group)?),
                (None, None, account) => QuotaSubject::Account(account.unwrap_or_default()),
            };
            let request = Request::SetQuota { subject, quota: quota.0 };
            request_once(&pool.selection()?, "quota", request)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The number of a user that is named or numbered.
pub(super) fn user_id(text: &str) -> Result<u32, RunError> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) | Err(_) => {
            Err(RunError::Usage(format!("there is no user `{text}` on this host")))
        }
    }
}

fn group_name(gid: u32) -> String {
    match nix::unistd::Group::from_gid(gid.into()) {
        Ok(Some(group)) => group.name,
        Ok(None) | Err(_) => gid.to_string(),
    }
}

/// A table of all users, groups and accounts.
fn usage(rows: &[UsageStatus]) -> String {
    let mut table = Table::new([
        Column::text("of", 0),
        Column::text("name", 0),
        Column::number("instances", 0),
        Column::number("allocated", 0),
        Column::number("quota", 0),
    ]);
    for row in rows {
        let (kind, name) = match &row.subject {
            QuotaSubject::User(uid) => ("user", user_name(*uid)),
            QuotaSubject::Group(gid) => ("group", group_name(*gid)),
            QuotaSubject::Account(name) => ("account", name.clone()),
        };
        table.push([
            kind.to_owned(),
            name,
            row.instances.to_string(),
            human::bytes(row.used.0),
            row.quota.map_or_else(|| "none".to_owned(), |quota| human::bytes(quota.0)),
        ]);
    }
    table.to_string()
}
