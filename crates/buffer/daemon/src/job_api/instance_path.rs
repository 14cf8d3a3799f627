//! Paths in the instances of a job.

use std::fs;
use std::path::{Component, Path, PathBuf};

use forebay_job_script::{BufferPath, InstanceRef};
use forebay_protocol::Errno;

use super::refused::{Refused, invalid_argument};

/// Longest path in bytes (Linux's PATH_MAX without its terminating zero).
pub(super) const MAX_PATH_BYTES: usize = 4095;

/// An instance of the job that can be staged.
#[derive(Clone, Debug)]
pub(super) struct InstanceRoot {
    /// Its directory by the kernel's name.
    pub path: PathBuf,
    /// Its directory by the job's name; ends with `/`.
    pub shown: String,
    pub instance: InstanceRef,
}

/// Whether a path is `other` or below it.
pub(super) fn is_within(path: &BufferPath, other: &BufferPath) -> bool {
    path.instance == other.instance && Path::new(&path.path).starts_with(&other.path)
}

/// Locates an absolute path in the job's instances.
pub(super) fn locate(roots: &[InstanceRoot], path: &str) -> Result<BufferPath, Refused> {
    check_length(path)?;
    for root in roots {
        let Ok(rest) = Path::new(path).strip_prefix(&root.path) else {
            continue;
        };
        let mut names = Vec::new();
        for component in rest.components() {
            let Component::Normal(name) = component else {
                return invalid_argument(format!("{path}: leads out of the instance"));
            };
            names.push(name.to_string_lossy().into_owned());
        }
        return Ok(BufferPath { instance: root.instance.clone(), path: names.join("/") });
    }
    invalid_argument(format!("{path}: is in no instance of the job that can be staged"))
}

/// Refuses a path that the kernel would refuse.
pub(super) fn check_length(path: &str) -> Result<(), Refused> {
    if path.len() <= MAX_PATH_BYTES {
        return Ok(());
    }
    let reason = format!("a path has at most {MAX_PATH_BYTES} bytes");
    Err(Refused(Errno::ENAMETOOLONG, reason))
}

/// The instances that can be staged, from the job's environment variables. Their values are
/// symbolic links into mounts; only the links are read, so that this process does not wait for
/// its own mount.
pub(super) fn instance_roots(variables: &[(String, String)]) -> Vec<InstanceRoot> {
    let root = |(name, value): &(String, String)| {
        let instance = match name.strip_prefix("DW_PERSISTENT_STRIPED_") {
            Some(persistent) => InstanceRef::Persistent(persistent.to_owned()),
            None if name == "DW_JOB_STRIPED" => InstanceRef::Job,
            None => return None,
        };
        let link = Path::new(value.trim_end_matches('/'));
        Some(InstanceRoot {
            path: fs::read_link(link).unwrap_or_else(|_| link.to_owned()),
            shown: value.clone(),
            instance,
        })
    };
    variables.iter().filter_map(root).collect()
}
