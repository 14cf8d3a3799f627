//! Stable storage: syncing the copies, and recording in the journal those that are complete.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::end::{DirHandle, FileStat};
use crate::error::{Problem, describe};
use crate::journal::{CompleteShare, Copied, Journal};
use crate::request::StageOptions;

/// Bytes copied between two syncs of a journaled stage.
const MAX_UNSYNCED_BYTES: u64 = 8 << 30;
/// Maximum number of copies whose durability is confirmed by one sync.
const MAX_UNCONFIRMED: usize = 512;

/// A copy that a storage node may still lose in a power failure that this host survives.
struct UnconfirmedCopy {
    /// The index of its tree.
    tree: usize,
    parent: Arc<dyn DirHandle>,
    journal_key: PathBuf,
    copied: Copied,
}

/// Copies to be recorded in the journal once they are on stable storage.
#[derive(Default)]
struct UnconfirmedCopies {
    copies: Vec<UnconfirmedCopy>,
    /// A storage node has lost some copies; which ones is unknown.
    lost: Option<Errno>,
}

/// Progress since the last sync.
struct Unsynced {
    bytes: u64,
    since: Instant,
}

/// A directory kept open on a target file system, with its path for messages.
type SyncTarget = (PathBuf, Arc<dyn DirHandle>);

/// Syncs the targets of a stage and keeps its journal.
pub(crate) struct Durability<'a> {
    options: &'a StageOptions,
    journal: Option<Journal>,
    /// One open directory on each target file system, by device number.
    /// A file system reports lost writes only to those that had something open on it before.
    targets: Mutex<BTreeMap<u64, SyncTarget>>,
    unsynced: Mutex<Unsynced>,
    unconfirmed: Mutex<UnconfirmedCopies>,
}

impl<'a> Durability<'a> {
    pub fn new(options: &'a StageOptions, journal: Option<Journal>) -> Durability<'a> {
        Durability {
            options,
            journal,
            targets: Mutex::default(),
            unsynced: Mutex::new(Unsynced { bytes: 0, since: options.host.now() }),
            unconfirmed: Mutex::default(),
        }
    }

    /// Whether a later run will know what this one copies.
    pub fn is_journaled(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_recording)
    }

    /// Whether an earlier run of the stage may have left files behind.
    pub fn is_resumed(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::is_resumed)
    }

    /// Record that an earlier run made of a file, or of a part of it.
    pub fn recorded(&self, key: &Path, part: Option<u64>) -> Option<&Copied> {
        self.journal.as_ref()?.recorded(key, part)
    }

    /// Runs `act`, if there is a journal.
    fn in_journal(&self, act: impl FnOnce(&Journal) -> Result<(), Problem>) -> Result<(), Problem> {
        self.journal.as_ref().map_or(Ok(()), act)
    }

    /// Records that the stage created the target directory `key`.
    pub fn record_created_dir(&self, key: &Path) -> Result<(), Problem> {
        self.in_journal(|journal| journal.record_created_dir(key))
    }

    /// Voids what was recorded of the parts of the file `key`.
    pub fn void_parts(&self, key: &Path) -> Result<(), Problem> {
        self.in_journal(|journal| journal.void_parts(key))
    }

    /// Records a copied file, or part of one. It counts for a later run from the next sync on.
    pub fn record(
        &self,
        key: &Path,
        part: Option<u64>,
        stat: &FileStat,
        digest: String,
    ) -> Result<(), Problem> {
        self.in_journal(|journal| journal.add(key, part, &Copied::of(stat, digest)))
    }

    /// Records a copied file once a sync of `parent`, which is in the tree with this index,
    /// confirms that it is on stable storage.
    pub fn record_when_synced(
        &self,
        tree: usize,
        parent: &Arc<dyn DirHandle>,
        key: &Path,
        copied: Copied,
    ) -> Result<(), Problem> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let mut unconfirmed = self.unconfirmed.lock();
        unconfirmed.copies.push(UnconfirmedCopy {
            tree,
            parent: parent.clone(),
            journal_key: key.to_owned(),
            copied,
        });
        assert!(unconfirmed.copies.len() <= MAX_UNCONFIRMED);
        if unconfirmed.copies.len() < MAX_UNCONFIRMED {
            return Ok(());
        }
        confirm_copies(&mut unconfirmed, journal)
    }

    /// Adds the file system of `dir` to those that [`sync`](Durability::sync) writes to stable
    /// storage. `path` is for messages.
    pub fn add_target(&self, dir: &Arc<dyn DirHandle>, path: PathBuf) -> Result<(), Problem> {
        let device = dir.device().map_err(|errno| Problem::new(&path, describe(errno), errno))?;
        let mut targets = self.targets.lock();
        targets.entry(device).or_insert_with(|| (path, dir.clone()));
        Ok(())
    }

    /// Syncs if there is a journal and the last sync is long ago, in bytes or time. `bytes` were
    /// copied and recorded since the previous call.
    pub fn sync_if_due(&self, bytes: u64) -> Result<(), Problem> {
        if self.journal.is_none() {
            return Ok(());
        }
        let now = self.options.host.now();
        let mut unsynced = self.unsynced.lock();
        unsynced.bytes = unsynced.bytes.saturating_add(bytes);
        let age = now.saturating_duration_since(unsynced.since);
        if unsynced.bytes < MAX_UNSYNCED_BYTES && age < self.options.sync_interval {
            return Ok(());
        }
        *unsynced = Unsynced { bytes: 0, since: now };
        drop(unsynced);
        self.sync()?;
        // The sync itself may have taken longer than the interval.
        self.unsynced.lock().since = self.options.host.now();
        Ok(())
    }

    /// Writes everything that was copied to stable storage, and records that.
    pub fn sync(&self) -> Result<(), Problem> {
        let targets: Vec<_> = self.targets.lock().values().cloned().collect();
        let sync_targets = || {
            targets.iter().try_for_each(|(path, target)| {
                target.syncfs().map_err(|errno| {
                    let reason = format!("syncing the copies failed: {}", describe(errno));
                    Problem::new(path, reason, errno)
                })
            })
        };
        match &self.journal {
            None => sync_targets(),
            Some(journal) => {
                // Held: what other threads copy meanwhile may be among what this sync reports as lost.
                let mut unconfirmed = self.unconfirmed.lock();
                confirm_copies(&mut unconfirmed, journal)?;
                journal.record_sync(sync_targets).inspect_err(|problem| {
                    let errno = Errno::from_raw_os_error(problem.code);
                    unconfirmed.lost.get_or_insert(errno);
                })
            }
        }
    }

    /// Whether an earlier run has recorded that the copies of this share are on stable storage.
    pub fn is_share_complete(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.complete_share().is_some())
    }

    /// Records that the copies of a share are on stable storage.
    pub fn record_share(&self, share: &CompleteShare) -> Result<(), Problem> {
        assert!(self.unconfirmed.lock().copies.is_empty());
        self.in_journal(|journal| journal.record_share(share))
    }

    /// Records that the stage is complete; everything must be on stable storage.
    pub fn complete(&self) -> Result<(), Problem> {
        assert!(self.unconfirmed.lock().copies.is_empty());
        self.in_journal(Journal::record_completion)
    }
}

fn confirm_copies(unconfirmed: &mut UnconfirmedCopies, journal: &Journal) -> Result<(), Problem> {
    let copies = std::mem::take(&mut unconfirmed.copies);
    let mut trees: BTreeMap<usize, &Arc<dyn DirHandle>> = BTreeMap::new();
    for copy in &copies {
        trees.entry(copy.tree).or_insert(&copy.parent);
    }
    // A node reports lost writes once; earlier copies may be among them, too.
    let synced = match unconfirmed.lost {
        Some(errno) => Err(errno),
        None => trees.values().try_for_each(|dir| dir.syncfs()),
    };
    if let Err(errno) = synced {
        unconfirmed.lost = Some(errno);
        let reason = format!("syncing the copies failed: {}", describe(errno));
        return Err(Problem::new("", reason, errno));
    }
    for copy in copies {
        journal.add(&copy.journal_key, None, &copy.copied)?;
    }
    Ok(())
}
