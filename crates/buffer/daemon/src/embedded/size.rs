//! The size of a pool.

use std::path::{Path, PathBuf};

use forebay_units::{Bytes, human};

use crate::error::DaemonError;

/// Granules of a pool of this size in `directory`; by default of four fifths of the free space.
pub(super) fn granules(
    directory: &Path,
    size: Option<Bytes>,
    granularity: Bytes,
) -> Result<u64, DaemonError> {
    let checked = checked_size(directory, size)?;
    match checked.0 / granularity.0.max(1) {
        0 => {
            let (size_text, granule) = (human::bytes(checked.0), human::bytes(granularity.0));
            let what = match size {
                Some(_) => format!("{size_text} is less than one granule, {granule}"),
                None => format!(
                    "four fifths of the free space is {size_text}, less than one granule, {granule}"
                ),
            };
            let remedy = "name a larger --pool-size, or another directory with --pool";
            Err(DaemonError::new(format!("{what}; {remedy}")))
        }
        granules => Ok(granules),
    }
}

/// The requested size if the file system has it, or four fifths of its free space.
fn checked_size(directory: &Path, size: Option<Bytes>) -> Result<Bytes, DaemonError> {
    let state = rustix::fs::statvfs(directory).map_err(DaemonError::new)?;
    let Some(size) = size else {
        let free = state.f_bavail.saturating_mul(state.f_frsize);
        return Ok(Bytes(free / 5 * 4));
    };
    let total = state.f_blocks.saturating_mul(state.f_frsize);
    // Some file systems report no size.
    if total > 0 && size.0 > total {
        return Err(DaemonError::new(format!(
            "{} are more than its file system has, which is {}; name a smaller --pool-size",
            human::bytes(size.0),
            human::bytes(total)
        )));
    }
    Ok(size)
}

/// The directory, or the nearest one above it that exists.
pub(super) fn existing_ancestor(directory: &Path) -> PathBuf {
    let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let existing = absolute.ancestors().find(|path| path.exists());
    existing.unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{EmbeddedPoolOptions, OpenPool};
    use super::*;

    #[test]
    fn refused_size_leaves_no_directory() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("outer/pool");
        for (size, words) in [
            (1 << 60, "name a smaller --pool-size"),
            (3_352_164, "3.20 MiB is less than one granule, 16.0 MiB"),
        ] {
            let options =
                EmbeddedPoolOptions { directory: directory.clone(), size: Some(Bytes(size)) };
            let refused = OpenPool::open(&options, &mut |_| false).err().unwrap().to_string();
            assert!(refused.contains(words), "{refused}");
            assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        }
    }
}
