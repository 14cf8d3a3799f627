//! The journal of a stage: what is already copied, so that an interrupted stage can continue.
//!
//! A text file. The first line names the format and the stage. Each further line is one of:
//!
//! - `F`: a file was copied.
//! - `S`: a part of a large file was copied.
//! - `Y`: everything recorded so far is on stable storage.
//! - `N`: a sync failed; entries since the last `Y` are void.
//! - `M`: the stage created this directory as a target.
//! - `D`: a large file is started over; earlier entries of its parts are void.
//! - `B`: the copies of this share of the stage are on stable storage, in the attempt with this key.
//! - `C`: the stage, or its attempt of the last `B`, is complete.
//!
//! A last line without a newline is incomplete and ignored.
//!
//! If there is no space for the journal, it is emptied, and the run goes on without: a stage-out must
//! not fail because the flash is full. A later run starts over.
//!
//! Entries of files and parts count only if a `Y` follows, even if this host has not restarted
//! since: a PFS server may have restarted and lost unsynced data. It reports that only to clients
//! that had the file open at the time.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::error::Problem;
use records::{Contents, encode_path, format_entry, format_share, parse_journal};

mod records;

pub(crate) use records::{CompleteShare, Copied, NO_DIGEST};

const FORMAT: &str = "forebay-stage-3";

/// The host of a mover: the disk with its journals, and the clock. A simulation implements it, too.
pub trait JournalHost: fmt::Debug + Send + Sync {
    /// Reads a file; `None` if it does not exist.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Replaces a file atomically and durably, and opens it for appending.
    fn replace(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn AppendFile>>;
    /// Empties a file, if it exists, durably. Takes no space.
    fn empty(&self, path: &Path) -> io::Result<()>;
    /// The time on a monotonic clock.
    fn now(&self) -> Instant;
}

/// A file open for appending.
pub trait AppendFile: Write + Send {
    /// Writes its contents to stable storage.
    fn sync(&self) -> io::Result<()>;
}

/// The operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct Os;

impl JournalHost for Os {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace(&self, path: &Path, contents: &[u8]) -> io::Result<Box<dyn AppendFile>> {
        let temporary = path.with_extension("new");
        let mut file =
            OpenOptions::new().create(true).write(true).truncate(true).open(&temporary)?;
        let written = file.write_all(contents).and_then(|()| file.sync_all());
        let replaced = written.and_then(|()| std::fs::rename(&temporary, path));
        if let Err(error) = replaced {
            let _ = std::fs::remove_file(&temporary);
            return Err(error);
        }
        Ok(Box::new(file))
    }

    fn empty(&self, path: &Path) -> io::Result<()> {
        match OpenOptions::new().write(true).truncate(true).open(path) {
            Ok(file) => file.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

impl AppendFile for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The end of the journal that this run writes.
struct Tail {
    /// `None`: there is no space, and nothing is recorded.
    file: Option<BufWriter<Box<dyn AppendFile>>>,
    /// Entries since the last sync mark.
    unsynced: u64,
    complete: bool,
}

pub(crate) struct Journal {
    host: Arc<dyn JournalHost>,
    path: PathBuf,
    /// What earlier runs have recorded.
    earlier: Contents,
    resumed: bool,
    /// Whether there is space. Readers do not wait for a sync, as for the tail.
    recording: AtomicBool,
    tail: Mutex<Tail>,
}

impl Journal {
    /// Opens the journal of the stage `stage`. The journal of any other stage is overwritten. If
    /// several movers share the stage, `attempt` is the key of the attempt.
    pub fn open(
        host: &Arc<dyn JournalHost>,
        path: &Path,
        stage: &str,
        attempt: Option<u64>,
    ) -> Result<Journal, Problem> {
        let problem = |error: io::Error| Problem {
            path: path.to_owned(),
            reason: format!("cannot open the journal: {error}"),
            code: error.raw_os_error().unwrap_or(libc::EIO),
        };
        let header = format!("{FORMAT} {stage}\n");
        let bytes = host.read(path).map_err(problem)?;
        let resumed = bytes.is_some();
        // Bytes that are not text are not a journal.
        let text = String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default();
        let mut earlier = parse_journal(&text, &header);
        let of_attempt = earlier.share.map(|share| share.key) == attempt;
        if !of_attempt {
            // The other movers have to start again, too.
            (earlier.share, earlier.complete) = (None, false);
        }
        // The journal is rewritten without void entries.
        let mut contents = header.clone();
        for ((path, part), copied) in &earlier.recorded {
            contents.push_str(&format_entry(path, *part, copied));
        }
        contents.push_str("Y\n");
        contents.extend(earlier.share.as_ref().map(format_share));
        contents.push_str(if earlier.complete { "C\n" } else { "" });
        let again = || parse_journal(&contents, &header);
        debug_assert_eq!(again().recorded.len(), earlier.recorded.len());
        let file = match host.replace(path, contents.as_bytes()) {
            Ok(file) => Some(BufWriter::new(file)),
            Err(error) if is_full(&error) => {
                // What this run copies again must not count as recorded.
                host.empty(path).map_err(problem)?;
                note_no_space(path);
                None
            }
            Err(error) => return Err(problem(error)),
        };
        Ok(Journal {
            host: host.clone(),
            path: path.to_owned(),
            resumed,
            recording: AtomicBool::new(file.is_some()),
            tail: Mutex::new(Tail { file, unsynced: 0, complete: earlier.complete }),
            earlier,
        })
    }

    /// Whether a later run will know what this one copies.
    pub fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    /// Whether the stage was completed by an earlier run.
    pub fn is_complete(&self) -> bool {
        self.earlier.complete
    }

    /// This share of the attempt, if an earlier run has recorded that its copies are on stable
    /// storage.
    pub fn complete_share(&self) -> Option<&CompleteShare> {
        self.earlier.share.as_ref()
    }

    /// Whether an earlier run may have left files behind.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Record that an earlier run made of a file, or of a part of it.
    pub fn recorded(&self, path: &Path, part: Option<u64>) -> Option<&Copied> {
        self.earlier.recorded.get(&(path.to_owned(), part))
    }

    /// Records a copied file or part. It counts for a later run from the next
    /// [`Journal::record_sync`] on.
    pub fn add(&self, path: &Path, part: Option<u64>, copied: &Copied) -> Result<(), Problem> {
        let mut tail = self.lock_tail();
        tail.unsynced += 1;
        let entry = format_entry(path, part, copied);
        self.append(&mut tail, |file| file.write_all(entry.as_bytes()))
    }

    /// Records that the stage created this directory. Counts at once.
    pub fn record_created_dir(&self, path: &Path) -> Result<(), Problem> {
        self.append_durably(&mut self.lock_tail(), &format!("M {}\n", encode_path(path)))
    }

    /// Voids the recorded parts of a large file that is started over. Counts at once.
    pub fn void_parts(&self, path: &Path) -> Result<(), Problem> {
        let first = (path.to_owned(), Some(0));
        let last = (path.to_owned(), Some(u64::MAX));
        if self.earlier.recorded.range(first..=last).next().is_none() {
            return Ok(());
        }
        self.append_durably(&mut self.lock_tail(), &format!("D {}\n", encode_path(path)))
    }

    /// Writes everything recorded so far to stable storage by `sync`, and records that. No entry is
    /// added meanwhile, because `sync` might miss it.
    pub fn record_sync(&self, sync: impl FnOnce() -> Result<(), Problem>) -> Result<(), Problem> {
        let mut tail = self.lock_tail();
        if let Err(problem) = sync() {
            // A file system reports lost writes only once.
            let _ = self.append_durably(&mut tail, "N\n");
            return Err(problem);
        }
        self.append_durably(&mut tail, "Y\n")?;
        tail.unsynced = 0;
        Ok(())
    }

    /// Records that the copies of a share of the stage are on stable storage.
    pub fn record_share(&self, share: &CompleteShare) -> Result<(), Problem> {
        let mut tail = self.lock_tail();
        assert_eq!(tail.unsynced, 0, "a complete share is on stable storage");
        self.append_durably(&mut tail, &format_share(share))
    }

    /// Records that the stage is complete.
    pub fn record_completion(&self) -> Result<(), Problem> {
        let mut tail = self.lock_tail();
        assert_eq!(tail.unsynced, 0, "a complete stage is on stable storage");
        self.append_durably(&mut tail, "C\n")?;
        tail.complete = true;
        Ok(())
    }

    fn lock_tail(&self) -> MutexGuard<'_, Tail> {
        let tail = self.tail.lock();
        assert!(!tail.complete, "nothing is recorded after completion");
        tail
    }

    /// Writes a line, and everything before it, to stable storage.
    fn append_durably(&self, tail: &mut Tail, line: &str) -> Result<(), Problem> {
        assert!(line.ends_with('\n'));
        self.append(tail, |file| {
            file.write_all(line.as_bytes())?;
            file.flush()?;
            file.get_ref().sync()
        })
    }

    /// Appends something by `write`, if there is space.
    fn append(
        &self,
        tail: &mut Tail,
        write: impl FnOnce(&mut BufWriter<Box<dyn AppendFile>>) -> io::Result<()>,
    ) -> Result<(), Problem> {
        let outcome = tail.file.as_mut().map_or(Ok(()), write);
        match outcome {
            Err(error) if is_full(&error) => {
                // What is buffered must not be written any more.
                tail.file.take().map(BufWriter::into_parts);
                self.recording.store(false, Ordering::Relaxed);
                note_no_space(&self.path);
                self.host.empty(&self.path)
            }
            outcome => outcome,
        }
        .map_err(|error| self.problem(&error))
    }

    fn problem(&self, error: &io::Error) -> Problem {
        let reason = format!("cannot write the journal: {error}");
        Problem { path: self.path.clone(), reason, code: error.raw_os_error().unwrap_or(libc::EIO) }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn note_no_space(path: &Path) {
    tracing::warn!(
        path = %path.display(),
        "no space for the journal of a stage: if the stage is interrupted, it starts over"
    );
}

#[cfg(test)]
mod tests;
