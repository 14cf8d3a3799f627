//! The version of the format of a daemon's directory: of the records in its log, its checkpoints and
//! its data objects. A release reads the directories of its own version and of the ones before.
//! Version 3 records how many nodes may have data objects of a file (`namespace::PieceNodes`).
//!
//! The file `format` holds the version as text. Directories without it are of version 1.

use crate::log::RecoveryError;
use crate::storage::{Storage, is_out_of_space, replace_file};
use std::io;

/// The version that this release writes.
pub const FORMAT_VERSION: u32 = 3;

const FILE: &str = "format";

/// Check that this release can read the directory, and return its version.
///
/// # Errors
/// A newer release has written it, or the file is not readable as a version.
pub fn check_format<S: Storage>(storage: &S) -> Result<u32, RecoveryError> {
    let text = match storage.read_file(FILE) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(1),
        Err(error) => return Err(error.into()),
    };
    match text.trim().parse() {
        Ok(version @ 1..=FORMAT_VERSION) => Ok(version),
        Ok(version) => Err(RecoveryError::UnknownFormat(format!("version {version}"))),
        Err(_) => Err(RecoveryError::UnknownFormat(format!("`{}`", text.trim()))),
    }
}

/// Note durably that this release writes the directory, before it does. Without space for that the
/// old version stays: the formats of both are the same then.
pub fn note_format<S: Storage>(storage: &S) -> Result<(), RecoveryError> {
    if check_format(storage)? == FORMAT_VERSION {
        return Ok(());
    }
    match replace_file(storage, FILE, format!("{FORMAT_VERSION}\n").as_bytes()) {
        Err(error) if is_out_of_space(&error) => {
            tracing::warn!(%error, "the version of the directory's format is not noted");
            Ok(())
        }
        replaced => Ok(replaced?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::DiskStorage;

    #[test]
    fn version_is_noted_and_those_of_newer_releases_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let storage = DiskStorage::open(home.path()).unwrap();
        assert_eq!(check_format(&storage).unwrap(), 1);
        note_format(&storage).unwrap();
        note_format(&storage).unwrap();
        assert_eq!(check_format(&storage).unwrap(), FORMAT_VERSION);
        for (text, named) in
            [("4\n", "version 4"), ("0", "version 0"), ("two", "`two`"), ("", "``")]
        {
            std::fs::write(home.path().join(FILE), text).unwrap();
            let error = check_format(&storage).unwrap_err().to_string();
            let own = format!("versions 1 to {FORMAT_VERSION}");
            assert!(error.contains(named) && error.contains(&own), "{error}");
            assert!(note_format(&storage).is_err(), "{text}");
        }
    }
}
