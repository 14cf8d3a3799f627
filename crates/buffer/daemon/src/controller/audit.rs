//! The audit log: who had allocations made and removed, and what operators did. One JSON object a line.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use forebay_control::controller::{Notice, Outcome, Request, RequestId, truncate_text};
use forebay_control::messages::{Owner, UnixMillis};
use forebay_job_script::Capacity;
use serde::Serialize;

/// Longest description of an object, in bytes.
const MAX_OBJECT_BYTES: usize = 1024;

/// The file. It is opened again when it was renamed or removed, as log rotation does.
#[derive(Debug)]
pub(crate) struct AuditLog {
    path: PathBuf,
    file: File,
    /// Requests without an outcome yet.
    pending: BTreeMap<RequestId, AuditEntry>,
}

/// A request that is logged with its outcome.
#[derive(Clone, Debug)]
struct AuditEntry {
    caller: Owner,
    source: Option<IpAddr>,
    action: &'static str,
    object: String,
}

/// A line of the log.
#[derive(Serialize)]
struct AuditLine<'a> {
    /// Milliseconds since 1970.
    time_ms: u64,
    uid: u32,
    gid: u32,
    /// The caller's host; none for the controller's own.
    source: Option<IpAddr>,
    action: &'a str,
    object: &'a str,
    /// `done`, or why not.
    outcome: &'a str,
    /// The request's key; empty for events without a request.
    request: String,
}

impl AuditLog {
    /// Opens the log for appending.
    ///
    /// # Errors
    /// The file can neither be opened nor created.
    pub fn open(path: PathBuf) -> io::Result<AuditLog> {
        let file = append_to(&path)?;
        Ok(AuditLog { path, file, pending: BTreeMap::new() })
    }

    /// Notes a request that is about to be carried out, if it is one of those that are logged.
    pub fn begin(
        &mut self,
        id: RequestId,
        caller: Owner,
        source: Option<IpAddr>,
        request: &Request,
    ) {
        if let Some((action, mut object)) = audited(request) {
            // A request that is refused may have a name of any length.
            truncate_text(&mut object, MAX_OBJECT_BYTES);
            self.pending.entry(id).or_insert(AuditEntry { caller, source, action, object });
        }
    }

    /// Logs the outcome of a request.
    pub fn finish(&mut self, now: UnixMillis, id: RequestId, outcome: &Outcome) {
        let Some(entry) = self.pending.remove(&id) else {
            return;
        };
        let reason = outcome.as_ref().err().map(|failure| failure.reason.as_str());
        let line = AuditLine {
            time_ms: now.0,
            uid: entry.caller.uid,
            gid: entry.caller.gid,
            source: entry.source,
            action: entry.action,
            object: &entry.object,
            outcome: reason.unwrap_or("done"),
            request: id.to_string(),
        };
        self.log(&line);
    }

    /// Logs an event of which no request is the cause.
    pub fn note(&mut self, now: UnixMillis, notice: &Notice) {
        let line = AuditLine {
            time_ms: now.0,
            uid: 0,
            gid: 0,
            source: None,
            action: notice.action,
            object: &notice.object,
            outcome: &notice.outcome,
            request: String::new(),
        };
        self.log(&line);
    }

    fn log(&mut self, line: &AuditLine<'_>) {
        if let Err(error) = self.write(line) {
            tracing::error!(%error, file = %self.path.display(), "cannot write the audit log");
        }
    }

    fn write(&mut self, line: &AuditLine<'_>) -> io::Result<()> {
        if !self.is_current()? {
            self.file = append_to(&self.path)?;
        }
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)
    }

    /// Whether the open file is the one that has the name.
    fn is_current(&self) -> io::Result<bool> {
        let open = self.file.metadata()?;
        match std::fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn append_to(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn capacity_text(capacity: Capacity) -> String {
    match capacity {
        Capacity::Bytes(bytes) => format!("{} bytes", bytes.0),
        Capacity::Nodes(nodes) => format!("{nodes} nodes"),
    }
}

/// Action and object of a request that is logged.
fn audited(request: &Request) -> Option<(&'static str, String)> {
    Some(match request {
        Request::Setup { token, owner, setup, .. } => {
            let capacity = setup.instance.as_ref().map(|spec| capacity_text(spec.capacity));
            let capacity = capacity.unwrap_or_else(|| "no instance".to_owned());
            ("setup", format!("job {token} of user {}: {capacity}", owner.uid))
        }
        Request::CreatePersistent { name, owner, spec, .. } => (
            "create_persistent",
            format!("{name} of user {}: {}", owner.uid, capacity_text(spec.capacity)),
        ),
        Request::Teardown { token, hurry, .. } => ("teardown", removal("job", token, *hurry)),
        Request::DestroyPersistent { name, hurry } => {
            ("destroy_persistent", removal("instance", name, *hurry))
        }
        Request::ExtendPersistent { name, lifetime_ms } => {
            let text = match lifetime_ms {
                Some(lifetime) => format!("{name}: {} s from now", lifetime / 1000),
                None => format!("{name}: as long as the pool allows"),
            };
            ("extend_persistent", text)
        }
        Request::AddPool { name, .. } => ("add_pool", name.clone()),
        Request::AddNode { name, granules, .. } => {
            ("add_node", format!("{name} with {granules} granules"))
        }
        Request::DrainNode { node, drained: true, evacuate } => {
            let moves = if *evacuate { ", persistent instances move off it" } else { "" };
            ("drain", format!("storage node {}{moves}", node.0))
        }
        Request::DrainNode { node, drained: false, .. } => {
            ("undrain", format!("storage node {}", node.0))
        }
        Request::ForgetNode { node, allow_data_loss } => {
            let loss = if *allow_data_loss { ", even if data is lost" } else { "" };
            ("forget", format!("storage node {}{loss}", node.0))
        }
        Request::SetQuota { subject, quota } => match quota {
            Some(quota) => ("set_quota", format!("{subject}: {} bytes", quota.0)),
            None => ("remove_quota", subject.to_string()),
        },
        Request::EvictSessions { sessions } => ("evict_sessions", sessions.clone()),
        Request::AcceptRestored => ("accept_restored", "the database".to_owned()),
        Request::DiscardUnknown { node } => ("discard_unknown", format!("storage node {}", node.0)),
        Request::StageIn { .. }
        | Request::StageOut { .. }
        | Request::Activate { .. }
        | Request::Deactivate { .. }
        | Request::BeginStage { .. }
        | Request::DeferStage { .. }
        | Request::ReleaseStage { .. }
        | Request::LimitStages { .. }
        | Request::AwaitStage { .. }
        | Request::CancelStage { .. } => return None,
    })
}

fn removal(kind: &str, name: &str, hurry: bool) -> String {
    let hurry = if hurry { ", with what is not staged out" } else { "" };
    format!("{kind} {name}{hurry}")
}
