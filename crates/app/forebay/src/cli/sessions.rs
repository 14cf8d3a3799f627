//! `forebay admin sessions` and `forebay admin evict`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use forebay_console::table::{Column, Table};
use forebay_control::controller::{Cause, Failure, Request};
use forebay_daemon::PoolConfig;
use forebay_daemon::activity::Status;
use forebay_daemon::sessions::{StorageDaemon, daemon_of_embedded, daemons_of, for_each};
use forebay_job::{PoolSelection, RunError, pool_status, request_once};
use forebay_protocol::SessionId;
use forebay_protocol::message::SessionInfo;
use forebay_units::human;
use serde::Serialize;

use super::admin::user_id;
use super::pool::PoolArguments;
use crate::console::{print_answer, print_stderr};
use crate::show::user_name;

/// Sessions to list.
#[derive(Debug, Args)]
pub struct SessionsArguments {
    #[command(flatten)]
    pool: PoolArguments,
    #[command(flatten)]
    filter: Filter,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Sessions to end.
#[derive(Debug, Args)]
pub struct EvictArguments {
    #[command(flatten)]
    pool: PoolArguments,
    #[command(flatten)]
    filter: Filter,
    /// Only this session, as `admin sessions` lists it
    #[arg(long, value_name = "NODE:NUMBER", value_parser = session)]
    session: Option<(String, SessionId)>,
}

/// The sessions that a command concerns: those that match all that is given.
#[derive(Debug, Args)]
struct Filter {
    /// Only those of clients on this host
    #[arg(long)]
    host: Option<String>,
    /// Only those of this user, by name or number: programs that the user runs, and mounts of the
    /// user's instances
    #[arg(long)]
    user: Option<String>,
    /// Only those with this instance, by job id, name or number
    #[arg(long)]
    instance: Option<String>,
}

fn session(text: &str) -> Result<(String, SessionId), String> {
    let parsed = text
        .rsplit_once(':')
        .and_then(|(node, number)| Some((node.to_owned(), SessionId(number.parse().ok()?))));
    parsed.ok_or_else(|| "write a node and a number, such as `bb1:12`".to_owned())
}

/// A session, for output.
#[derive(Debug, Serialize)]
struct Row {
    /// Name of the storage node.
    node: String,
    session: u64,
    host: String,
    /// `mount`, or `program`: a client library or a stage.
    kind: &'static str,
    /// The user of a program; of a mount the owner of its instance.
    user: u32,
    instance: u64,
    /// Job id or name of the instance, if the controller knows it.
    label: Option<String>,
    /// Absent if it began before the start of the storage daemon.
    age_seconds: Option<f64>,
    idle_seconds: f64,
    connections: u32,
    data_connections: u32,
    open_handles: u64,
    read_leases: u64,
    locks: bool,
    read_bytes: u64,
    written_bytes: u64,
}

/// Names and owners of instances, as the controller knows them.
struct Instances(BTreeMap<u64, (String, u32)>);

impl Instances {
    fn of(status: &Status) -> Instances {
        let owners: BTreeMap<_, _> =
            status.sessions.iter().map(|session| (session.id, session.owner.uid)).collect();
        let named = status.instances.iter().filter_map(|instance| {
            let owner = owners.get(&instance.session)?;
            Some((instance.id.0, (instance.label.clone(), *owner)))
        });
        Instances(named.collect())
    }
}

fn row(node: &str, session: &SessionInfo, instances: &Instances) -> Row {
    let known = instances.0.get(&session.instance.0);
    let is_mount = session.client.mount.is_some();
    let seconds = |ns: u64| ns as f64 / 1e9;
    Row {
        node: node.to_owned(),
        session: session.id.0,
        host: session.client.host.clone(),
        kind: if is_mount { "mount" } else { "program" },
        user: known.filter(|_| is_mount).map_or(session.uid, |(_, owner)| *owner),
        instance: session.instance.0,
        label: known.map(|(label, _)| label.clone()),
        age_seconds: session.age_ns.map(seconds),
        idle_seconds: seconds(session.idle_ns),
        connections: session.connections,
        data_connections: session.data_connections,
        open_handles: session.handles,
        read_leases: session.read_leases,
        locks: session.has_locks,
        read_bytes: session.read,
        written_bytes: session.written,
    }
}

impl Filter {
    fn is_empty(&self) -> bool {
        self.host.is_none() && self.user.is_none() && self.instance.is_none()
    }

    /// The condition on a session.
    fn condition(&self) -> Result<impl Fn(&Row) -> bool + '_, RunError> {
        let user = self.user.as_deref().map(user_id).transpose()?;
        Ok(move |row: &Row| {
            let is_instance = |name: &String| {
                row.label.as_ref() == Some(name) || name.parse() == Ok(row.instance)
            };
            self.host.as_ref().is_none_or(|host| *host == row.host)
                && user.is_none_or(|user| user == row.user)
                && self.instance.as_ref().is_none_or(is_instance)
        })
    }

    /// The options, in words.
    fn describe(&self) -> Vec<String> {
        let parts = [("host", &self.host), ("user", &self.user), ("instance", &self.instance)];
        let given = parts
            .into_iter()
            .filter_map(|(name, value)| value.as_ref().map(|value| format!("{name} {value}")));
        given.collect()
    }
}

fn failed(step: &'static str, reason: String) -> RunError {
    RunError::Step(step, Failure::new(Cause::Failed, reason))
}

fn daemons(selection: &PoolSelection, step: &'static str) -> Result<Vec<StorageDaemon>, RunError> {
    match selection {
        PoolSelection::Embedded(options) => {
            let directory =
                std::path::absolute(&options.directory).and_then(std::fs::canonicalize).map_err(
                    |error| failed(step, format!("{}: {error}", options.directory.display())),
                )?;
            Ok(daemon_of_embedded(&directory).into_iter().collect())
        }
        PoolSelection::Shared(file) => {
            let config = PoolConfig::read(file).map_err(|error| failed(step, error.to_string()))?;
            daemons_of(&config).map_err(|error| failed(step, error.to_string()))
        }
    }
}

/// All sessions by node, and the nodes that did not reply.
fn collect(daemons: &[StorageDaemon], instances: &Instances) -> (Vec<Row>, Vec<String>) {
    let (mut rows, mut silent) = (Vec::new(), Vec::new());
    let listed = for_each(daemons, StorageDaemon::sessions);
    for (daemon, sessions) in daemons.iter().zip(listed) {
        match sessions {
            Ok(sessions) => {
                rows.extend(sessions.iter().map(|one| row(&daemon.node, one, instances)));
            }
            Err(reason) => silent.push(reason),
        }
    }
    (rows, silent)
}

/// Exit code of a command that some storage nodes have not answered, whose reasons it prints.
fn exit_code(silent: &[String]) -> ExitCode {
    for reason in silent {
        print_stderr(format_args!("error: {reason}"));
    }
    if silent.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Lists sessions.
pub fn list(arguments: SessionsArguments) -> Result<ExitCode, RunError> {
    let selection = arguments.pool.selection()?;
    let matches = arguments.filter.condition()?;
    let instances = Instances::of(&pool_status(&selection)?);
    let (mut rows, silent) = collect(&daemons(&selection, "sessions")?, &instances);
    rows.retain(matches);
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&rows).unwrap_or_default() + "\n",
        false => table(&rows),
    };
    let printed = print_answer(&text);
    let code = exit_code(&silent);
    Ok(if silent.is_empty() { printed } else { code })
}

/// Ends sessions, after the controller has recorded that.
pub fn evict(arguments: EvictArguments) -> Result<ExitCode, RunError> {
    let EvictArguments { pool, filter, session } = arguments;
    if filter.is_empty() && session.is_none() {
        let reason = "name the sessions to evict with --session, --host, --user or --instance";
        return Err(RunError::Usage(reason.to_owned()));
    }
    let selection = pool.selection()?;
    if let PoolSelection::Embedded(_) = selection {
        let reason = "an embedded pool belongs to one process: end that process instead";
        return Err(RunError::Usage(reason.to_owned()));
    }
    let matches = filter.condition()?;
    let is_named = |row: &Row| {
        let is_it = |(node, id): &(String, SessionId)| *node == row.node && id.0 == row.session;
        session.as_ref().is_none_or(is_it)
    };
    let daemons = daemons(&selection, "evict")?;
    let instances = Instances::of(&pool_status(&selection)?);
    let (mut rows, mut silent) = collect(&daemons, &instances);
    rows.retain(|row| matches(row) && is_named(row));
    if rows.is_empty() && silent.is_empty() {
        return Err(failed("evict", "there is no such session".to_owned()));
    }
    let mut chosen = filter.describe();
    chosen.extend(session.iter().map(|(node, id)| format!("session {node}:{}", id.0)));
    let sessions = format!("{}: {} session(s)", chosen.join(", "), rows.len());
    request_once(&selection, "evict", Request::EvictSessions { sessions })?;
    let outcomes = for_each(&daemons, |daemon| {
        let of_node = rows.iter().filter(|row| row.node == daemon.node);
        let ids: Vec<SessionId> = of_node.map(|row| SessionId(row.session)).collect();
        if ids.is_empty() { Ok(()) } else { daemon.evict(&ids) }
    });
    for (daemon, outcome) in daemons.iter().zip(outcomes) {
        if let Err(reason) = outcome {
            rows.retain(|row| row.node != daemon.node);
            silent.push(reason);
        }
    }
    let printed = print_answer(&format!("evicted:\n{}", table(&rows)));
    let code = exit_code(&silent);
    Ok(if silent.is_empty() { printed } else { code })
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new([
        Column::text("session", 0),
        Column::text("host", 0),
        Column::text("client", 0),
        Column::text("user", 0),
        Column::text("instance", 0),
        Column::number("age", 0),
        Column::number("idle", 0),
        Column::number("files", 0),
        Column::number("leases", 0),
        Column::text("locks", 0),
        Column::number("read", 0),
        Column::number("written", 0),
    ]);
    for row in rows {
        table.push([
            format!("{}:{}", row.node, row.session),
            row.host.clone(),
            row.kind.to_owned(),
            user_name(row.user),
            row.label.clone().unwrap_or_else(|| row.instance.to_string()),
            row.age_seconds.map_or_else(|| "?".to_owned(), human::seconds),
            human::seconds(row.idle_seconds),
            row.open_handles.to_string(),
            row.read_leases.to_string(),
            if row.locks { "yes" } else { "no" }.to_owned(),
            human::bytes(row.read_bytes),
            human::bytes(row.written_bytes),
        ]);
    }
    table.to_string()
}
