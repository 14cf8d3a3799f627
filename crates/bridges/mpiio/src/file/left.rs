//! Files whose logs were left to the movers, and which the program may remove afterwards.
//!
//! A path that names another file later says nothing: the file may have been renamed. A file that has no
//! name any more while its descriptor is open was removed, whoever did it. Its logs are removed with it, as
//! by `MPI_File_delete`; otherwise a stage-out would find logs without a file, and fail.

use super::report;
use forebay_mpiio_log::{FileIdentity, discard_of_removed, logs};
use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most files that are kept open.
const MOST: usize = 64;

/// A closed file, kept open so that its number is not used again.
struct LeftFile {
    path: PathBuf,
    /// Directory of its logs.
    directory: PathBuf,
    file: Arc<File>,
    identity: FileIdentity,
}

static LEFT: Mutex<Vec<LeftFile>> = Mutex::new(Vec::new());

fn has_name(file: &File) -> bool {
    // What cannot be asked may have one.
    file.metadata().map_or(true, |found| found.nlink() > 0)
}

/// Keeps a file whose logs are left to the movers. Not one in a file system whose numbers do not last, or
/// which counts no names.
pub fn keep(path: &Path, directory: &Path, file: Arc<File>) {
    let (Some(named), Some(identity)) = (FileIdentity::of(path), FileIdentity::of_file(&file))
    else {
        return;
    };
    if !named.is_same(identity) || !has_name(&file) {
        return;
    }
    let mut left = LEFT.lock();
    // The logs of those that are forgotten stay if they are removed.
    let forgotten = (left.len() + 1).saturating_sub(MOST);
    left.drain(..forgotten);
    left.push(LeftFile { path: path.to_owned(), directory: directory.to_owned(), file, identity });
}

/// Removes the logs of the kept files that have no name any more.
pub fn discard_of_unnamed() {
    let removed: Vec<LeftFile> = LEFT.lock().extract_if(.., |left| !has_name(&left.file)).collect();
    for LeftFile { path, directory, identity, .. } in removed {
        let count = || logs(&directory).map_or(0, |logs| logs.len());
        let before = count();
        match discard_of_removed(&directory, &path, identity) {
            Ok(()) if count() < before => eprintln!(
                "forebay: {} was removed before its logs were applied; they are removed, too",
                path.display()
            ),
            Ok(()) => {}
            Err(error) => {
                report(&path, "discard the logs of", &error);
            }
        }
    }
}
