//! Logs of MPI-IO writes that are applied to files which were removed or renamed meanwhile.

use forebay_mpiio_log::{Identity, Limits, LogWriter, View, logs};
use forebay_stage::end::LocalFileSystem;
use forebay_stage::{ProgressCounters, StageError, StageLocation, StageReport, apply_logs};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// A directory of logs, and one of files.
fn directories() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("logs")).unwrap();
    fs::create_dir(home.path().join("pfs")).unwrap();
    home
}

/// Logs `length` bytes of this value for a file.
fn log(home: &Path, file: &Path, run: &str, value: u8, length: usize) {
    let identity = Identity { target: file.to_owned(), run: run.to_owned(), rank: 0, ranks: 1 };
    let limits = Limits::default();
    let mut writer = LogWriter::create(&home.join("logs"), &identity, limits).unwrap();
    writer.append(&Arc::new(View::bytes(0)), 0, &vec![value; length]).unwrap();
    writer.close().unwrap();
}

fn apply(home: &Path) -> Result<StageReport, StageError> {
    let pfs = LocalFileSystem::open(&[], None);
    let at = |name: &str| StageLocation::in_pfs(&pfs, home.join(name));
    let owner = rustix::process::geteuid().as_raw();
    apply_logs(&at("logs"), &at("pfs"), owner, &ProgressCounters::new())
}

#[test]
fn logs_are_applied_to_a_file_that_was_renamed_in_its_directory() {
    for has_successor in [false, true] {
        let home = directories();
        let home = home.path();
        let (file, renamed) = (home.join("pfs/file.tmp"), home.join("pfs/file"));
        fs::write(&file, "").unwrap();
        log(home, &file, "run", b'o', 2000);
        fs::rename(&file, &renamed).unwrap();
        if has_successor {
            fs::write(&file, "new").unwrap();
        }
        apply(home).unwrap();
        assert_eq!(fs::read(&renamed).unwrap(), [b'o'; 2000]);
        assert_eq!(fs::read(&file).ok(), has_successor.then(|| b"new".to_vec()));
        assert!(logs(&home.join("logs")).unwrap().is_empty());
    }
}

#[test]
fn logs_of_a_file_that_was_removed_stay_and_those_of_its_successor_are_applied() {
    let home = directories();
    let home = home.path();
    let file = home.join("pfs/file");
    fs::write(&file, "").unwrap();
    log(home, &file, "first", b'o', 2000);
    fs::remove_file(&file).unwrap();
    // Perhaps with the same inode number.
    fs::write(&file, "").unwrap();
    log(home, &file, "second", b'n', 20);
    let error = apply(home).unwrap_err();
    assert!(error.to_string().contains("was removed or renamed"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), [b'n'; 20]);
    assert_eq!(logs(&home.join("logs")).unwrap().len(), 1);
}

#[test]
fn logs_of_a_file_that_was_renamed_to_another_directory_stay() {
    let home = directories();
    let home = home.path();
    let (file, elsewhere) = (home.join("pfs/file"), home.join("file"));
    fs::write(&file, "").unwrap();
    log(home, &file, "run", b'o', 2000);
    fs::rename(&file, &elsewhere).unwrap();
    apply(home).unwrap_err();
    assert!(!file.exists());
    assert_eq!(logs(&home.join("logs")).unwrap().len(), 1);
    // Back under its name.
    fs::rename(&elsewhere, &file).unwrap();
    apply(home).unwrap();
    assert_eq!(fs::read(&file).unwrap(), [b'o'; 2000]);
}
