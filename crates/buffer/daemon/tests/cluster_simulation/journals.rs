//! Journals of movers, on their node's disk.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::System;
use forebay_control::messages::StageId;
use forebay_stage::{AppendFile, JournalHost};

use crate::actor_thread::{self, Machine};

/// The contents of a journal, and how many of its bytes are durable.
type JournalFile = (Vec<u8>, usize);

/// Journals of a node's stages.
#[derive(Clone, Debug)]
pub struct Journals {
    files: Arc<Mutex<BTreeMap<PathBuf, JournalFile>>>,
    machine: Machine,
}

impl Journals {
    pub fn new(machine: Machine) -> Journals {
        Journals { files: Arc::default(), machine }
    }

    pub fn power_cut(&self, random: &mut crate::random::Random) {
        for (bytes, synced) in self.files.lock().unwrap().values_mut() {
            let lost = random.below((bytes.len() - *synced) as u64 + 1) as usize;
            bytes.truncate(bytes.len() - lost);
            *synced = bytes.len();
        }
    }

    pub fn sweep(&self, may_resume: impl Fn(StageId) -> bool) {
        let stage = |path: &Path| StageId(path.to_str().unwrap()[1..].parse().unwrap());
        let mut files = self.files.lock().unwrap();
        files.retain(|path, _| may_resume(stage(path)));
    }

    pub fn remove(&self, stage: StageId) {
        self.files.lock().unwrap().remove(&journal(stage));
    }
}

pub fn journal(stage: StageId) -> PathBuf {
    PathBuf::from(format!("s{}", stage.0))
}

impl JournalHost for Journals {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let files = self.files.lock().unwrap();
        Ok(files.get(path).map(|(bytes, _)| bytes.clone()))
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn AppendFile>> {
        self.machine.sleep(Duration::from_millis(2));
        if actor_thread::is_killed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut files = self.files.lock().unwrap();
        files.insert(path.to_owned(), (contents.to_vec(), contents.len()));
        drop(files);
        Ok(Box::new(OpenJournal(self.clone(), path.to_owned())))
    }

    fn empty(&self, path: &Path) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        if let Some(file) = files.get_mut(path) {
            *file = (Vec::new(), 0);
        }
        Ok(())
    }

    fn now(&self) -> std::time::Instant {
        self.machine.time()
    }
}

struct OpenJournal(Journals, PathBuf);

impl Write for OpenJournal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if actor_thread::is_killed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut files = self.0.files.lock().unwrap();
        if let Some((all, _)) = files.get_mut(&self.1) {
            all.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AppendFile for OpenJournal {
    fn sync(&self) -> io::Result<()> {
        self.0.machine.sleep(Duration::from_millis(2));
        if actor_thread::is_killed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut files = self.0.files.lock().unwrap();
        if let Some((all, synced)) = files.get_mut(&self.1) {
            *synced = all.len();
        }
        Ok(())
    }
}
