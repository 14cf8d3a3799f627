//! `forebay status`: the pool, its nodes, instances and stages as text.

use forebay_control::controller::{
    ExpiryStep, InstanceStatus, Lifetime, SessionStatus, StageState, StageStatus,
};
use forebay_control::messages::UnixMillis;
use forebay_daemon::activity::Status;
use forebay_daemon::embedded::POOL_NAME;
use forebay_protocol::progress::StageAmount;
use forebay_store::daemon::{DamagedObject, StoreReport};
use forebay_store::log::LogSpace;
use forebay_store::objects::RemovalProgress;
use forebay_units::human::{bytes, counted, seconds};

use forebay_console::table::{Column, Table};

use super::evacuations::add_evacuations;

/// A user's name, or the number of a user without a name.
pub fn user_name(uid: u32) -> String {
    match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => uid.to_string(),
    }
}

/// The state of an instance.
pub fn instance_state(instance: &InstanceStatus) -> &'static str {
    let state = instance.state.as_str();
    match () {
        () if state.starts_with('D') => "being removed",
        () if !instance.intact => "data lost",
        () if state.contains('A') => "ready",
        () => "being made",
    }
}

/// The state of an instance that is being removed.
fn removal_state(removal: &RemovalProgress) -> String {
    let RemovalProgress { removed_objects, total_objects, .. } = removal;
    match total_objects {
        // Not counted yet.
        0 => "being removed".to_owned(),
        total => format!("{removed_objects} of {total} files removed"),
    }
}

/// The state of a stage; the phase of a running one.
pub fn stage_state(stage: &StageStatus) -> &'static str {
    match &stage.state {
        StageState::Waiting => "waiting",
        StageState::Queued => "queued",
        StageState::Running if stage.stalled => "no progress",
        StageState::Running => stage.progress.phase.words(),
        StageState::Cancelling => "stopping",
        StageState::Done => "done",
        StageState::Failed(_) => "failed",
        StageState::Cancelled => "cancelled",
    }
}

/// Progress of a stage: that of its current phase while it runs, the copied amount otherwise.
pub fn stage_amount(stage: &StageStatus) -> StageAmount {
    match stage.state == StageState::Running {
        true => stage.progress.present(),
        false => stage.progress.copied(),
    }
}

/// The time from `then` to `now` in whole seconds.
fn age(now: UnixMillis, then: UnixMillis) -> String {
    match now.ms_since(then) / 1000 {
        s if s < 60 => format!("{s} s"),
        s => seconds(s as f64),
    }
}

/// The status of a pool at the time `now`.
pub fn status(status: &Status, now: UnixMillis, pool_option: &str) -> String {
    let mut text = String::new();
    add_pools(&mut text, status);
    text.push('\n');
    add_nodes(&mut text, status);
    text.push('\n');
    add_instances(&mut text, status, now);
    add_stages(&mut text, status);
    add_evacuations(&mut text, status);
    add_decisions(&mut text, status);
    add_advice(&mut text, status, pool_option);
    text
}

fn add_pools(text: &mut String, status: &Status) {
    let mut table = Table::new([
        Column::text("pool", 0),
        Column::number("size", 0),
        Column::number("in use", 0),
        Column::number("free", 0),
        Column::number("granule", 0),
    ]);
    for pool in &status.pools {
        let size = |granules: u64| bytes(granules.saturating_mul(pool.granularity.0));
        table.push([
            pool.name.clone(),
            size(pool.quantity),
            size(pool.quantity.saturating_sub(pool.free)),
            size(pool.free),
            bytes(pool.granularity.0),
        ]);
    }
    text.push_str(&table.to_string());
}

fn add_nodes(text: &mut String, status: &Status) {
    let mut table = Table::new([
        Column::text("node", 0),
        Column::text("pool", 0),
        Column::text("state", 0),
        Column::number("size", 0),
        Column::number("in use", 0),
        Column::number("fragments", 0),
        Column::number("written", 0),
    ]);
    for node in &status.nodes {
        let state = match (node.online, node.drained) {
            _ if node.forgotten => "given up",
            _ if node.wrong_disk => "wrong disk",
            (false, true) => "drained, offline",
            (_, true) if node.fragments > 0 => "draining",
            (_, true) => "drained",
            (true, false) => "online",
            (false, false) => "offline",
        };
        let pool = status.pools.iter().find(|pool| pool.name == node.pool);
        let granule = pool.map_or(0, |pool| pool.granularity.0);
        table.push([
            node.name.clone(),
            node.pool.clone(),
            state.to_owned(),
            bytes(node.granules.saturating_mul(granule)),
            bytes(node.used.saturating_mul(granule)),
            node.fragments.to_string(),
            match node.written.0 {
                0 => "?".to_owned(),
                written => bytes(written),
            },
        ]);
    }
    text.push_str(&table.to_string());
    add_storage_conditions(text, status);
}

/// Storage daemons whose disk is full, or whose data are damaged.
fn add_storage_conditions(text: &mut String, status: &Status) {
    for host in &status.activity {
        let Some(store) = &host.store else { continue };
        let name = &host.host;
        let log_space = store.gauges.as_ref().map(|gauges| gauges.log_space);
        match log_space.unwrap_or(LogSpace::Normal) {
            LogSpace::Normal => {}
            LogSpace::ReserveOnly => text.push_str(&format!(
                "{name}: disk full: only reads and removals are carried out until the log has space\n"
            )),
            LogSpace::Exhausted => text.push_str(&format!(
                "{name}: disk full and log full: only reads are carried out\n"
            )),
        }
        add_damage(text, name, store, status);
    }
}

/// Data objects of a node that do not match their checksums.
fn add_damage(text: &mut String, node: &str, store: &StoreReport, status: &Status) {
    for DamagedObject { instance, ino, offset } in &store.damaged {
        let known = status.instances.iter().find(|known| known.id.0 == *instance);
        let label = known.map_or_else(|| format!("{instance:x}"), |known| known.label.clone());
        text.push_str(&format!(
            "{node}: instance {label}: inode {ino} is damaged from byte {offset} of its object on\n"
        ));
    }
    let more = store.damaged_objects.saturating_sub(store.damaged.len() as u64);
    if more > 0 {
        text.push_str(&format!("{node}: {more} more damaged objects: see its log\n"));
    }
}

fn holder(session: Option<&SessionStatus>) -> String {
    match session {
        Some(session) if session.lifetime == Lifetime::Job => format!("job {}", session.token),
        Some(_) => "persistent".to_owned(),
        None => String::new(),
    }
}

/// The instances without those that become copies of others.
fn shown_instances(status: &Status) -> impl Iterator<Item = &InstanceStatus> {
    status.instances.iter().filter(|instance| instance.replaces.is_none())
}

fn add_instances(text: &mut String, status: &Status, now: UnixMillis) {
    if shown_instances(status).next().is_none() {
        text.push_str("nothing is allocated\n");
        return;
    }
    let mut table = Table::new([
        Column::text("instance", 0),
        Column::text("of", 0),
        Column::text("user", 0),
        Column::text("access", 0),
        Column::text("state", 0),
        Column::number("used", 0),
        Column::number("size", 0),
        Column::number("age", 0),
    ]);
    for instance in shown_instances(status) {
        let session = status.sessions.iter().find(|s| s.id == instance.session);
        let modes: Vec<&str> = instance.modes.iter().map(|mode| mode.keyword()).collect();
        let used = status.instance_usage(instance.id);
        table.push([
            instance.label.clone(),
            holder(session),
            session.map_or_else(String::new, |s| user_name(s.owner.uid)),
            modes.join(","),
            match status.removal_progress(instance.id) {
                Some(removal) => removal_state(&removal),
                None => instance_state(instance).to_owned(),
            },
            used.map_or_else(|| "?".to_owned(), |(used, _)| bytes(used)),
            bytes(instance.capacity.0),
            age(now, instance.created),
        ]);
    }
    text.push_str(&table.to_string());
    for instance in &status.instances {
        if let Some(reason) = instance.broken.as_ref().filter(|_| !instance.intact) {
            text.push_str(&format!("{}: {reason}\n", instance.label));
        }
    }
    for instance in &status.instances {
        let Some(expiry) = &instance.expiry else { continue };
        let label = &instance.label;
        match expiry.step {
            ExpiryStep::None => {}
            ExpiryStep::Warned => {
                let left = seconds(expiry.at.ms_since(now) as f64 / 1e3);
                text.push_str(&format!("{label}: expires in {left}\n"));
            }
            ExpiryStep::Expired => {
                text.push_str(&format!("{label}: expired; it is removed after a grace period\n"));
            }
            ExpiryStep::Kept => text.push_str(&format!(
                "{label}: expired; kept, as it is in use or data wait for their stage-out\n"
            )),
        }
    }
    add_unreachable_data(text, status);
}

/// Files and bytes of a stage, as `done of total`.
fn stage_amounts(stage: &StageStatus) -> (String, String) {
    let progress = &stage.progress;
    if stage.state == StageState::Done {
        return (progress.files.to_string(), bytes(progress.bytes));
    }
    // The totals still grow while the source is walked.
    let open = if progress.all_found { "" } else { "+" };
    let moved = stage_amount(stage);
    (
        format!("{} of {}{open}", moved.files, moved.files_total),
        format!("{} of {}{open}", bytes(moved.bytes), bytes(moved.bytes_total)),
    )
}

fn add_stages(text: &mut String, status: &Status) {
    if status.stages.is_empty() {
        return;
    }
    let mut table = Table::new([
        Column::text("stage of", 0),
        Column::number("line", 0),
        Column::text("direction", 0),
        Column::text("state", 0),
        Column::number("files", 0),
        Column::number("data", 0),
    ]);
    for stage in &status.stages {
        let (files, data) = stage_amounts(stage);
        table.push([
            stage.token.clone(),
            match stage.line {
                // Requested by a running job or by `forebay stage`, not by a script.
                0 => "-".to_owned(),
                line => line.to_string(),
            },
            stage.direction.name().to_owned(),
            stage_state(stage).to_owned(),
            files,
            data,
        ]);
    }
    text.push('\n');
    text.push_str(&table.to_string());
    for stage in &status.stages {
        if let StageState::Failed(reason) = &stage.state {
            let token = &stage.token;
            let line = match stage.line {
                0 => String::new(),
                line => format!(", line {line},"),
            };
            text.push_str(&format!("stage of {token}{line} failed: {reason}\n"));
        }
    }
}

/// Whether the pool is embedded, and so open only while a process uses it.
fn is_embedded(status: &Status) -> bool {
    status.pools.iter().all(|pool| pool.name == POOL_NAME)
}

/// Decisions of an operator on which the use of nodes or of the controller depends.
fn add_decisions(text: &mut String, status: &Status) {
    if status.outdated {
        text.push_str(
            "the controller's database is older than what the storage nodes have obeyed, and it does \
             nothing: restore the latest one, or accept the loss of what happened since with \
             `forebay accept-restored`\n",
        );
    }
    for node in &status.nodes {
        let name = &node.name;
        if node.wrong_disk {
            text.push_str(&format!(
                "{name} reports a directory that is not the one with its fragments: mount its \
                 flash, or give up what was on it with `forebay forget {name} --lost`\n"
            ));
        }
        if node.unknown > 0 {
            text.push_str(&format!(
                "{name} has {} that the restored controller does not know; `forebay \
                 discard-unknown {name}` removes what is in them\n",
                counted(node.unknown.into(), "fragment")
            ));
        }
    }
}

/// Instances with data on nodes that are offline. The node of an embedded pool is offline whenever
/// no process uses the pool.
fn add_unreachable_data(text: &mut String, status: &Status) {
    if is_embedded(status) {
        return;
    }
    let mut any = false;
    for instance in &status.instances {
        let offline: Vec<&str> = status
            .nodes
            .iter()
            .filter(|node| !node.online && !node.forgotten && instance.nodes.contains(&node.id))
            .map(|node| node.name.as_str())
            .collect();
        if !offline.is_empty() {
            any = true;
            text.push_str(&format!(
                "{} has data on offline nodes {}; operations that need them are blocked\n",
                instance.label,
                offline.join(", ")
            ));
        }
    }
    if any {
        text.push_str("if a node is lost for good, an operator runs `forebay forget NODE`\n");
    }
}

/// The process that uses the pool, or the jobs that need `forebay recover`.
fn add_advice(text: &mut String, status: &Status, pool_option: &str) {
    if let Some(process) = status.process {
        text.push_str(&format!("\nprocess {process} has the pool open\n"));
        return;
    }
    let is_job = |session: &&SessionStatus| session.lifetime == Lifetime::Job;
    let mut jobs = status.sessions.iter().filter(is_job).peekable();
    if !is_embedded(status) || jobs.peek().is_none() {
        return;
    }
    text.push('\n');
    for job in jobs {
        let advice = if job.written {
            format!("its data is here; `forebay recover{pool_option}` stages it out")
        } else {
            format!("it had not run; `forebay recover{pool_option}` removes it")
        };
        text.push_str(&format!("job {} was interrupted: {advice}\n", job.token));
    }
}

#[cfg(test)]
mod tests;
