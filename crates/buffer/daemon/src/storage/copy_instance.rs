//! The copy of a whole instance to another one, which takes its place.

use std::path::Path;
use std::sync::Arc;

use forebay_client::Fs;
use forebay_control::messages::InstanceId;
use forebay_stage::{
    ItemKind, Namespace, Problem, ProgressCounters, StageError, StageItem, StageLocation,
    StageOptions, StageReport, StageRequest, run_stage,
};

/// Copies everything in the instance of `source` to the empty, or partly copied, one of `target`:
/// the directories of all access modes, with owners, permissions, times and attributes. Both sessions
/// have the rights of root.
pub(super) fn copy_instance(
    source: (InstanceId, Fs),
    target: (InstanceId, Fs),
    options: &StageOptions,
    counters: &ProgressCounters,
) -> Result<StageReport, StageError> {
    let (source, target) = (root_of(source), root_of(target));
    let request = StageRequest {
        items: vec![StageItem {
            kind: ItemKind::Directory,
            source: StageLocation::in_instance(&source.map_err(StageError::Stopped)?, ""),
            target: StageLocation::in_instance(&target.map_err(StageError::Stopped)?, ""),
        }],
    };
    run_stage(&request, options, counters)
}

/// The whole name space of an instance.
fn root_of((id, attached): (InstanceId, Fs)) -> Result<Arc<Namespace>, Problem> {
    let shown = format!("instance {id}");
    Namespace::new(attached, Path::new(""), &shown).map_err(|error| Problem {
        path: shown.into(),
        reason: format!("cannot open the instance: {error}"),
        code: error.raw_os_error().unwrap_or(forebay_protocol::Errno::EIO.0),
    })
}
