//! A process of a job on one host: reads its input, writes results, and checks what it reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_client::{Fs, System};
use forebay_protocol::Errno;
use forebay_protocol::message::{OpenMode, SetAttr};

use crate::actor_thread::{self, Machine};
use crate::random::Random;
use crate::world::host_name;

/// Expected state of a file that a process writes.
#[derive(Clone, Debug, Default)]
pub struct FileState {
    /// Its contents; `None` if it was removed.
    pub data: Option<Vec<u8>>,
    /// Whether no operation with an unknown outcome is left.
    pub certain: bool,
    /// Whether it survives power cuts.
    pub synced: bool,
    /// Number of power cuts when it was last synced or empty.
    pub cuts: u64,
}

/// Files below the striped directory of an instance.
pub type Files = Arc<Mutex<BTreeMap<PathBuf, FileState>>>;

/// Losses of data that may occur in this history.
#[derive(Debug, Default)]
pub struct Losses {
    /// Whether nodes lose power, and unsynced data with it.
    pub power: AtomicBool,
    /// Number of power cuts.
    pub power_cuts: AtomicU64,
    /// Whether a node has lost its disk.
    pub disk: AtomicBool,
}

pub struct Process {
    /// The job's own instance and, if it uses one, a persistent one.
    pub own: Fs,
    pub persistent: Option<(Fs, Files)>,
    /// The host's private directory, if the job has such ones.
    pub private: Option<(Fs, Files)>,
    pub files: Files,
    /// Directories for results.
    pub outs: Vec<PathBuf>,
    /// Staged input and its expected contents.
    pub inputs: Vec<(PathBuf, Arc<Vec<u8>>)>,
    pub host: usize,
    pub token: String,
    pub random: Random,
    pub machine: Machine,
    pub losses: Arc<Losses>,
    /// Whether machines are partitioned for longer than sessions run_steps.
    pub may_expire: bool,
    /// Whether it makes some requests in batches.
    pub batches: bool,
    pub steps: u64,
}

const WRITE: OpenMode =
    OpenMode { read: true, write: true, truncate: false, descriptor: false, ..OpenMode::NONE };
const MAX_BYTES: u64 = 40 << 10;

/// Early end of a process, after an error that faults explain.
pub struct Ended;

impl Process {
    pub fn run(mut self) {
        let _ = self.run_steps();
    }

    /// Errors that faults explain end the process; any other error fails the test.
    pub fn check_error(&self, what: &str, path: &Path, errno: Errno) -> Ended {
        let usual = [Errno::EIO, Errno::ESTALE, Errno::ENOSPC];
        // A session that was lost, in a power cut or because it expired, had files open.
        let power = self.losses.power.load(Ordering::Relaxed);
        let closed = errno == Errno::EBADF && (power || self.may_expire);
        let lost = self.losses.disk.load(Ordering::Relaxed)
            || self.losses.power.load(Ordering::Relaxed) && errno == Errno::ENOENT;
        assert!(
            usual.contains(&errno)
                || closed
                || lost
                || actor_thread::is_killed()
                || errno == Errno::ENOENT && self.is_instance_removed(),
            "{what} {}: {errno}",
            path.display()
        );
        Ended
    }

    /// Whether the instance is gone: its job was torn down while this host was presumed dead.
    fn is_instance_removed(&self) -> bool {
        let found = self.own.resolve(Path::new("striped"), false);
        self.may_expire && matches!(found, Err(Errno::ENOENT | Errno::ESTALE))
    }

    fn run_steps(&mut self) -> Result<(), Ended> {
        self.check_inputs()?;
        if let Some((fs, files)) = self.persistent.clone() {
            self.use_persistent(&fs, &files)?;
        }
        if let Some((fs, files)) = self.private.clone() {
            let path = Path::new("private").join(host_name(self.host));
            for _ in 0..4 {
                let path = path.join(format!("p{}", self.random.below(2)));
                self.step(&fs, &files, &path)?;
            }
        }
        let outs = self.outs.clone();
        if outs.is_empty() {
            return Ok(()); // It only reads.
        }
        for out in &outs {
            let made = self.own.mkdir_all(out, 0o755);
            made.map_err(|errno| self.check_error("mkdir", out, errno))?;
        }
        for _ in 0..self.steps {
            if !self.random.chance(300) {
                let pause = Duration::from_millis(self.random.below(1500));
                self.machine.sleep(pause);
            }
            let out = outs[self.random.below(outs.len() as u64) as usize].clone();
            if self.batches && self.random.chance(300) {
                self.use_batches(&out)?;
            }
            let path = out.join(format!("h{}_{}", self.host, self.random.below(4)));
            let (own, files) = (self.own.clone(), self.files.clone());
            self.step(&own, &files, &path)?;
        }
        Ok(())
    }

    fn check_inputs(&self) -> Result<(), Ended> {
        for (path, expected) in &self.inputs {
            let found =
                read(&self.own, path).map_err(|errno| self.check_error("read", path, errno))?;
            assert!(
                found == **expected || self.losses.disk.load(Ordering::Relaxed),
                "staged in: {}",
                difference(path, &found, expected)
            );
        }
        Ok(())
    }

    /// Checks what other processes have left there, and writes something.
    fn use_persistent(&mut self, fs: &Fs, files: &Files) -> Result<(), Ended> {
        let known: Vec<PathBuf> = files.lock().unwrap().keys().cloned().collect();
        for path in known {
            self.check(fs, files, &path)?;
        }
        let path = Path::new("striped").join(format!("{}_{}", self.token, self.host));
        for _ in 0..3 {
            self.step(fs, files, &path)?;
        }
        Ok(())
    }

    fn step(&mut self, fs: &Fs, files: &Files, path: &Path) -> Result<(), Ended> {
        let what = self.random.below(13);
        tracing::info!(what, path = %path.display(), "process begins a step");
        let done = match what {
            0..5 => self.write(fs, files, path),
            5 => self.append(fs, files, path),
            6 | 7 => return self.check(fs, files, path),
            8 => self.remove(fs, files, path),
            9 => {
                let private = path.starts_with("private");
                let to = if private {
                    path.with_file_name(format!("p{}", self.random.below(2)))
                } else if self.outs.iter().any(|out| path.starts_with(out)) {
                    path.with_file_name(format!("h{}_{}", self.host, self.random.below(4)))
                } else {
                    path.with_extension("moved") // others' files are there, too
                };
                self.rename(fs, files, path, &to)
            }
            10 | 11 => self.truncate(fs, files, path),
            _ => fs.sync(),
        };
        tracing::info!(what, path = %path.display(), known = ?length(files, path), ?done, "process ends a step");
        match done {
            Ok(()) | Err(Errno::ENOSPC) => Ok(()),
            Err(errno) => {
                let known = files.lock().unwrap().get(path).cloned();
                let absent = known.is_none_or(|known| known.data.is_none() || !known.certain);
                if errno == Errno::ENOENT && absent {
                    return Ok(());
                }
                Err(self.check_error("use", path, errno))
            }
        }
    }

    fn write(&mut self, fs: &Fs, files: &Files, path: &Path) -> Result<(), Errno> {
        let before = mark_uncertain(files, path);
        let truncate = !before.certain || self.random.chance(250);
        let cuts_before = self.losses.power_cuts.load(Ordering::Relaxed);
        let mode = OpenMode { truncate, ..WRITE };
        let opened = fs.create_path(path, 0o644, mode)?;
        let mut data = match truncate {
            true => Vec::new(),
            false => before.data.unwrap_or_default(),
        };
        // What is written again while the file stays open must not give way to what was there.
        for _ in 0..1 + self.random.below(4) {
            let offset = self.random.below(MAX_BYTES / 2);
            let length = 1 + self.random.below(MAX_BYTES / 2);
            let bytes = self.bytes(length);
            opened.file.write_all_at(&bytes, offset)?;
            let end = (offset + length) as usize;
            if data.len() < end {
                data.resize(end, 0);
            }
            data[offset as usize..end].copy_from_slice(&bytes);
        }
        if self.random.chance(200) {
            let size = self.random.below(MAX_BYTES);
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.set_attr(opened.file.ino(), Some(&opened.file), set)?;
            data.resize(size as usize, 0);
        }
        if self.random.chance(500) {
            self.pause();
        }
        // A file that was closed without a sync is not reported as lost later.
        let cuts = self.losses.power_cuts.load(Ordering::Relaxed);
        let before_synced = before.synced;
        let whole = truncate || before.synced || before.cuts == cuts_before;
        let begun = if whole { cuts_before } else { before.cuts };
        set_certain(files, path, Some(data), begun);
        if self.random.chance(700) {
            opened.file.fsync(false)?;
            // Nor is it if the power cut comes before the sync.
            let now = self.losses.power_cuts.load(Ordering::Relaxed);
            let calm = truncate || before_synced || now == cuts_before;
            if whole && calm {
                mark_synced(files, path, cuts);
            }
        }
        Ok(())
    }

    fn append(&mut self, fs: &Fs, files: &Files, path: &Path) -> Result<(), Errno> {
        let before = mark_uncertain(files, path);
        let (true, Some(mut data)) = (before.certain, before.data.clone()) else {
            return Ok(());
        };
        let cuts = self.cuts(&before);
        let opened = fs.create_path(path, 0o644, WRITE)?;
        let length = 1 + self.random.below(9000);
        let bytes = self.bytes(length);
        let count = opened.file.append(&bytes)?;
        if count < bytes.len() {
            return Ok(()); // A node failed on the way; parts behind may have been written.
        }
        data.extend_from_slice(&bytes);
        set_certain(files, path, Some(data), cuts);
        Ok(())
    }

    fn truncate(&mut self, fs: &Fs, files: &Files, path: &Path) -> Result<(), Errno> {
        let before = mark_uncertain(files, path);
        let (true, Some(mut data)) = (before.certain, before.data.clone()) else {
            return Ok(());
        };
        let cuts = self.cuts(&before);
        let opened = fs.open_path(path, WRITE)?;
        let size = self.random.below(MAX_BYTES);
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let file = self.random.chance(500).then_some(&*opened.file);
        fs.set_attr(opened.file.ino(), file, set)?;
        data.resize(size as usize, 0);
        set_certain(files, path, Some(data), cuts);
        if self.random.chance(600) {
            self.pause();
            opened.file.fsync(false)?;
            // A loss of earlier changes by other processes is not reported.
            if before.synced {
                mark_synced(files, path, cuts);
            }
        }
        Ok(())
    }

    fn remove(&mut self, fs: &Fs, files: &Files, path: &Path) -> Result<(), Errno> {
        let before = mark_uncertain(files, path);
        let removed = fs.unlink_path(path);
        self.check_missing(&before, path, removed)?;
        let cuts = self.losses.power_cuts.load(Ordering::Relaxed);
        set_certain(files, path, None, before.cuts);
        if self.random.chance(300) {
            self.pause();
            fs.sync()?;
            mark_synced(files, path, cuts);
        }
        Ok(())
    }

    fn rename(&self, fs: &Fs, files: &Files, from: &Path, to: &Path) -> Result<(), Errno> {
        if from == to {
            return Ok(());
        }
        let before = mark_uncertain(files, from);
        mark_uncertain(files, to);
        let renamed = fs.rename_path(from, to);
        self.check_missing(&before, from, renamed)?;
        if before.certain {
            set_certain(files, to, before.data, before.cuts);
            set_certain(files, from, None, before.cuts);
        }
        Ok(())
    }

    fn pause(&mut self) {
        let pause = Duration::from_millis(self.random.below(4000));
        self.machine.sleep(pause);
    }

    /// An existing file cannot be missing: a repeated request is carried out once.
    pub fn check_missing(
        &self,
        before: &FileState,
        path: &Path,
        done: Result<(), Errno>,
    ) -> Result<(), Errno> {
        let power = self.losses.power.load(Ordering::Relaxed);
        let there = before.certain && before.data.is_some() && (before.synced || !power);
        let lost = self.losses.disk.load(Ordering::Relaxed) || actor_thread::is_killed();
        assert!(
            done != Err(Errno::ENOENT) || !there || lost,
            "{} existed and is missing",
            path.display()
        );
        done
    }

    /// Number of power cuts before the oldest unsynced change.
    fn cuts(&self, before: &FileState) -> u64 {
        match before.synced {
            true => self.losses.power_cuts.load(Ordering::Relaxed),
            false => before.cuts,
        }
    }

    pub fn bytes(&mut self, length: u64) -> Vec<u8> {
        let first = self.random.next();
        (0..length).map(|i| (first + i / 7) as u8).collect()
    }

    /// Checks the contents of a file.
    fn check(&self, fs: &Fs, files: &Files, path: &Path) -> Result<(), Ended> {
        let Some(known) = files.lock().unwrap().get(path).cloned() else {
            return Ok(());
        };
        let found = read(fs, path);
        // Another process may have changed it meanwhile, on a persistent instance.
        let now = files.lock().unwrap().get(path).cloned();
        let same = now.is_some_and(|now| {
            (now.certain, &now.data, now.synced) == (known.certain, &known.data, known.synced)
        });
        let power = self.losses.power.load(Ordering::Relaxed);
        let must = known.certain && same && (known.synced || !power);
        match (found, known.data) {
            (Err(Errno::ENOENT), None) => Ok(()),
            (Ok(found), Some(expected)) if must => {
                assert!(
                    found == expected || self.losses.disk.load(Ordering::Relaxed),
                    "{}",
                    difference(path, &found, &expected)
                );
                Ok(())
            }
            (Ok(_), None) if must => panic!("{} was removed and is there", path.display()),
            (Ok(_), _) => Ok(()),
            (Err(Errno::ENOENT), _) if !must => Ok(()),
            (Err(errno), _) => Err(self.check_error("read", path, errno)),
        }
    }
}

/// Checks that a complete copy of an instance has all files that must survive.
pub fn check_copy(fs: &Fs, files: &Files, losses: &Losses) {
    let known: Vec<PathBuf> = files.lock().unwrap().keys().cloned().collect();
    for path in known {
        let before = files.lock().unwrap().get(&path).cloned().unwrap_or_default();
        let found = read(fs, &path);
        let now = files.lock().unwrap().get(&path).cloned().unwrap_or_default();
        let power = losses.power.load(Ordering::Relaxed);
        let must = before.certain
            && (now.certain, &now.data) == (before.certain, &before.data)
            && (before.synced && now.synced || !power)
            && !losses.disk.load(Ordering::Relaxed)
            && !actor_thread::is_killed();
        match (found, before.data) {
            (Ok(found), Some(expected)) if must => {
                assert!(found == expected, "in a copy: {}", difference(&path, &found, &expected));
            }
            (Err(Errno::ENOENT), Some(_)) if must => {
                panic!("{} is missing in a copy", path.display())
            }
            (Ok(_), None) if must => panic!("{} was removed and is in a copy", path.display()),
            // A node has failed meanwhile.
            (Ok(_) | Err(_), _) => {}
        }
    }
}

/// Expected length of a file, and whether it is certain.
fn length(files: &Files, path: &Path) -> Option<(usize, bool)> {
    let files = files.lock().unwrap();
    let known = files.get(path)?;
    Some((known.data.as_ref()?.len(), known.certain))
}

/// Describes how two files differ.
pub fn difference(path: &Path, found: &[u8], expected: &[u8]) -> String {
    let common = found.iter().zip(expected).position(|(a, b)| a != b);
    format!(
        "{}: {} bytes, {} expected; the first other byte is at {common:?}",
        path.display(),
        found.len(),
        expected.len()
    )
}

/// Reads a whole file.
fn read(fs: &Fs, path: &Path) -> Result<Vec<u8>, Errno> {
    let mode = OpenMode { read: true, ..OpenMode::default() };
    let opened = fs.open_path(path, mode)?;
    let mut bytes = vec![0; opened.attr.size as usize + 1];
    let count = opened.file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Notes that an operation on a file begins. Returns its expected state.
pub fn mark_uncertain(files: &Files, path: &Path) -> FileState {
    let mut files = files.lock().unwrap();
    let known = files.entry(path.to_owned()).or_insert(FileState {
        certain: true,
        synced: true,
        ..FileState::default()
    });
    let before = known.clone();
    if !(actor_thread::is_killed()) {
        (known.certain, known.synced) = (false, false);
    }
    before
}

/// Notes that the operation has succeeded.
pub fn set_certain(files: &Files, path: &Path, data: Option<Vec<u8>>, cuts: u64) {
    if !actor_thread::is_killed() {
        let known = FileState { data, certain: true, synced: false, cuts };
        files.lock().unwrap().insert(path.to_owned(), known);
    }
}

fn mark_synced(files: &Files, path: &Path, cuts: u64) {
    if let Some(known) = files.lock().unwrap().get_mut(path) {
        (known.synced, known.cuts) = (true, cuts);
    }
}
