//! The state on stable storage: dataspaces and jobs in one file, and a file for each task.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use forebay_net::lock_file;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::registry::Registry;
use crate::task::TaskRecord;

const REGISTRY_FILE: &str = "registry.json";

/// The directory of the state, which one service uses at a time.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    _lock: File,
}

impl Store {
    /// Opens the directory, and creates it if missing.
    pub fn open(directory: &Path) -> io::Result<Store> {
        let tasks = directory.join("tasks");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&tasks)?;
        let lock = lock_file::lock_directory(directory)?;
        let lock = lock.ok_or_else(|| io::Error::other("another service uses this directory"))?;
        Ok(Store { directory: directory.to_owned(), _lock: lock })
    }

    fn task_file(&self, task: u32) -> PathBuf {
        self.directory.join(format!("tasks/{task}.json"))
    }

    /// The journal of a task's copies.
    pub fn journal(&self, task: u32) -> PathBuf {
        self.directory.join(format!("tasks/{task}.copies"))
    }

    /// The registered dataspaces and jobs.
    pub fn registry(&self) -> io::Result<Registry> {
        match read(&self.directory.join(REGISTRY_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Registry::default()),
            other => other,
        }
    }

    /// Records the dataspaces and jobs.
    pub fn write_registry(&self, registry: &Registry) -> io::Result<()> {
        write(&self.directory, &self.directory.join(REGISTRY_FILE), registry)
    }

    /// Records a task.
    pub fn write_task(&self, record: &TaskRecord) -> io::Result<()> {
        write(&self.directory.join("tasks"), &self.task_file(record.task), record)
    }

    /// Removes the journal of a task that is over.
    pub fn remove_journal(&self, task: u32) {
        // Most tasks have none.
        let _ = fs::remove_file(self.journal(task));
    }

    /// Removes a task whose result is not kept any more.
    pub fn remove_task(&self, task: u32) {
        let _ = fs::remove_file(self.task_file(task));
    }

    /// All tasks by number.
    pub fn tasks(&self) -> io::Result<Vec<TaskRecord>> {
        let mut found: Vec<TaskRecord> = Vec::new();
        for entry in fs::read_dir(self.directory.join("tasks"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                found.push(read(&path)?);
            }
        }
        found.sort_by_key(|record| record.task);
        Ok(found)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let text = fs::read(path)?;
    serde_json::from_slice(&text).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
    })
}

/// Replaces the file `path` in `directory`. It is on stable storage afterwards.
fn write(directory: &Path, path: &Path, value: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(directory)?.sync_all()
}
