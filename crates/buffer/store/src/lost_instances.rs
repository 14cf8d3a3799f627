//! Instances that the log should have, and has not: the log was removed, or damaged from its begin.
//!
//! A start removes the data objects of instances that the log does not have, because it may have been
//! interrupted between the record of a removal and the removal itself. With a lost log it would remove
//! all. Before a daemon serves, its first record is durable, so that a log without any record belongs to
//! no instance. Storage nodes also know from their own records which instances there are.

use crate::log::RecoveryError;
use crate::state::NodeState;
use crate::storage::{Storage, replace_file};
use forebay_protocol::InstanceId;
use std::collections::BTreeSet;
use std::io;

const DROPPED: &str = "dropped.";

/// Fails if the log has lost instances: of those that `expected` names, and, if it has no record at all,
/// of those with a directory for data objects. An instance that was [given up](note_dropped) is not lost.
pub fn check_instances<S: Storage>(
    storage: &S,
    (state, last): (&NodeState, u64),
    expected: &[InstanceId],
    with_directory: &[InstanceId],
) -> Result<(), RecoveryError> {
    let with_directory = if last == 0 { with_directory } else { &[] };
    let mut lost: BTreeSet<InstanceId> = expected.iter().chain(with_directory).copied().collect();
    lost.retain(|id| !state.volumes.contains_key(id));
    if !lost.is_empty() {
        for id in dropped_instances(storage)? {
            lost.remove(&id);
        }
    }
    if lost.is_empty() { Ok(()) } else { Err(RecoveryError::LostInstances(lost)) }
}

/// Note durably that an instance is given up: no later start looks for it.
pub fn note_dropped<S: Storage>(storage: &S, id: InstanceId) -> io::Result<()> {
    replace_file(storage, &format!("{DROPPED}{id}"), &[])
}

/// The instances that were given up.
pub fn dropped_instances<S: Storage>(storage: &S) -> io::Result<Vec<InstanceId>> {
    let names = storage.list_files()?;
    Ok(names.iter().filter_map(|name| name.strip_prefix(DROPPED)?.parse().ok()).collect())
}
