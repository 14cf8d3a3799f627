//! One file or symbolic link: copied under a hidden name, then given its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::io::Errno;

use crate::copy::{CopyRange, Pieces, copy};
use crate::end::{DirHandle, FileHandle, FileKind, FileStat};
use crate::error::{Failure, Problem};
use crate::journal::Copied;
use crate::metadata::apply;
use crate::mover::{DirPair, HIDDEN_PREFIX, StageContext};
use crate::request::Verify;
use crate::verify::{CopyLocation, ReadBackItem, ReadBackState, damaged_name};

/// Where a copy goes, and what it is called on the way.
pub(crate) struct Destination {
    pub parent: Arc<dyn DirHandle>,
    pub name: OsString,
    /// In the journal.
    pub key: PathBuf,
    /// For messages.
    pub shown: PathBuf,
    /// For those who look at the copy later.
    pub at: CopyLocation,
}

/// A file that is being copied.
pub(crate) struct OpenFile {
    pub source: Box<dyn FileHandle>,
    pub state: FileStat,
    pub hidden: Box<dyn FileHandle>,
    pub parent: Arc<dyn DirHandle>,
    pub hidden_name: OsString,
    pub name: OsString,
    /// In the journal.
    pub key: PathBuf,
    /// For messages.
    pub shown: PathBuf,
    pub at: CopyLocation,
}

/// The name of a file while it is not whole: the same for the same file, so that an interrupted
/// stage finds it again.
pub(crate) fn hidden_name(name: &OsStr) -> OsString {
    let digest = blake3::hash(name.as_bytes()).to_hex();
    OsString::from(format!(
        "{HIDDEN_PREFIX}{}",
        digest.get(..32).unwrap_or_default()
    ))
}

impl StageContext<'_> {
    /// Copies a file that is open.
    pub fn file(
        &self,
        source: Box<dyn FileHandle>,
        to: Destination,
        buffer: &mut [u8],
    ) -> Result<(), Failure> {
        let state = source
            .opened_stat()
            .map_err(|e| Failure::source("reading its state", e))?;
        let refused = match state.kind {
            FileKind::File => None,
            FileKind::Directory => {
                Some(("is a directory; stage it with type=directory", Errno::ISDIR))
            }
            _ => Some((
                "is a device, a pipe or a socket, which cannot be staged",
                Errno::INVAL,
            )),
        };
        if let Some((reason, errno)) = refused {
            return Err(Failure::File(reason.to_owned(), errno));
        }
        if self.is_there(&to, &state) {
            self.progress.staged_bytes(state.size);
            self.progress.staged_file();
            self.totals.resumed.fetch_add(1, Ordering::Relaxed);
            self.totals.files.fetch_add(1, Ordering::Relaxed);
            self.totals.bytes.fetch_add(state.size, Ordering::Relaxed);
            return Ok(());
        }
        let journal = self.journal.as_ref();
        if journal.is_some_and(|journal| journal.known(&to.key, None).is_some()) {
            // What an earlier run may have found damaged and set aside.
            let _ = to.parent.unlink(&damaged_name(&to.name));
        }
        let hidden_name = hidden_name(&to.name);
        let large = state.size > self.options.segment_bytes.max(1);
        let keep = large && self.journal.is_some();
        let hidden = to
            .parent
            .create(&hidden_name, keep)
            .map_err(|e| Failure::target("making its copy", e))?;
        let file = OpenFile {
            source,
            state,
            hidden,
            parent: to.parent,
            hidden_name,
            name: to.name,
            key: to.key,
            shown: to.shown,
            at: to.at,
        };
        if large {
            return self.open_large(file, state.size);
        }
        let outcome = self.whole_small(&file, buffer);
        if outcome.is_err() {
            let _ = file.parent.unlink(&file.hidden_name);
        }
        outcome
    }

    fn whole_small(&self, file: &OpenFile, buffer: &mut [u8]) -> Result<(), Failure> {
        let part = CopyRange {
            source: &*file.source,
            target: &*file.hidden,
            from: 0,
            to: file.state.size,
            sparse: file.state.is_sparse(),
        };
        let sum = copy(&part, self.options.verify, self.progress, buffer)?;
        if part.sparse {
            // A hole at the end has not been written.
            file.hidden
                .truncate(file.state.size)
                .map_err(|e| Failure::target("setting its length", e))?;
        }
        self.whole(file, sum.digest.clone())?;
        self.to_read_back(&file.at, [(sum.pieces, sum.digest)]);
        Ok(())
    }

    /// Has something that was copied read back in the end, if that is wanted.
    pub fn to_read_back(
        &self,
        at: &CopyLocation,
        parts: impl IntoIterator<Item = (Pieces, String)>,
    ) {
        if self.options.verify != Verify::ReadBack {
            return;
        }
        let known = Arc::new(ReadBackState::default());
        let part = |(pieces, digest)| ReadBackItem {
            at: at.clone(),
            pieces,
            digest,
            known: known.clone(),
        };
        let parts: Vec<ReadBackItem> = parts.into_iter().map(part).collect();
        known.left.store(parts.len(), Ordering::Relaxed);
        let bytes = parts.iter().map(|part| part.pieces.length()).sum();
        self.progress.to_read_back(bytes);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.extend(parts);
    }

    /// Whether an earlier run has copied the file already and nothing has changed since.
    fn is_there(&self, to: &Destination, state: &FileStat) -> bool {
        let known = self
            .journal
            .as_ref()
            .and_then(|journal| journal.known(&to.key, None));
        let Some(known) = known.filter(|known| known.is_of(state)) else {
            return false;
        };
        let copy = to.parent.lstat(&to.name);
        let there = copy.is_ok_and(|copy| copy.kind == FileKind::File && known.is_like(&copy));
        there && self.read_back_again(to, state, &known.digest)
    }

    /// Has a copy of an earlier run read back in the end. `false`: what its checksums were taken of
    /// is not known any more.
    fn read_back_again(&self, to: &Destination, state: &FileStat, digest: &str) -> bool {
        if self.options.verify != Verify::ReadBack {
            return true;
        }
        if state.is_sparse() || digest == "-" {
            return false;
        }
        let segment = self.options.segment_bytes.max(1);
        if state.size <= segment {
            let all = Pieces::All(0, state.size);
            self.to_read_back(&to.at, [(all, digest.to_owned())]);
            return true;
        }
        let part = |part: u64| {
            let known = self.journal.as_ref()?.known(&to.key, Some(part))?;
            let from = part * segment;
            let pieces = Pieces::All(from, from.saturating_add(segment).min(state.size));
            (known.is_of(state) && known.digest != "-").then(|| (pieces, known.digest.clone()))
        };
        let parts: Option<Vec<_>> = (0..state.size.div_ceil(segment)).map(part).collect();
        let Some(parts) = parts else { return false };
        self.to_read_back(&to.at, parts);
        true
    }

    /// All of a file's contents are copied: if it is still what it was, the copy gets what belongs
    /// to it and its name.
    pub fn whole(&self, file: &OpenFile, digest: String) -> Result<(), Failure> {
        let now = file
            .source
            .stat()
            .map_err(|e| Failure::source("reading its state", e))?;
        if !file.state.is_unchanged(&now) {
            let reason = "changed while it was staged; stage it again when nobody writes to it";
            return Err(Failure::File(reason.to_owned(), Errno::BUSY));
        }
        if let Some(lost) = apply(&*file.source, &file.state, &*file.hidden)? {
            self.warnings.warn(&file.shown, lost);
        }
        if file.hidden.needs_fdatasync() {
            file.hidden
                .fdatasync()
                .map_err(|e| Failure::target("putting it on stable storage", e))?;
        }
        file.parent
            .rename(&file.hidden_name, &file.name)
            .map_err(|e| Failure::target("giving its copy its name", e))?;
        self.record(&file.key, None, &file.state, digest)?;
        self.count(&file.state);
        if file.state.size <= self.options.segment_bytes.max(1) {
            self.sync_sometimes(file.state.size)?;
        }
        Ok(())
    }

    /// A file's copy has its name.
    pub fn count(&self, state: &FileStat) {
        self.totals.files.fetch_add(1, Ordering::Relaxed);
        self.totals.bytes.fetch_add(state.size, Ordering::Relaxed);
        self.progress.staged_file();
    }

    pub fn record(
        &self,
        key: &Path,
        part: Option<u64>,
        state: &FileStat,
        digest: String,
    ) -> Result<(), Failure> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let copied = Copied::of(state, digest);
        journal.add(key, part, &copied).map_err(fatal)
    }

    /// Copies a symbolic link that was found like this.
    pub fn link(&self, here: &DirPair, name: &OsStr, seen: &FileStat) -> Result<(), Failure> {
        let goal = here.source.readlink(name, seen);
        let goal = goal.map_err(|e| Failure::source("reading the link", e))?;
        let making = |e| Failure::target("making the link", e);
        match here.target.symlink(name, &goal, seen) {
            Err(Errno::EXIST) => replace_link(&*here.target, name, &goal, seen).map_err(making)?,
            outcome => outcome.map_err(making)?,
        }
        self.totals.symbolic_links.fetch_add(1, Ordering::Relaxed);
        self.progress.staged_file();
        Ok(())
    }
}

/// Puts a symbolic link in the place of what has the name.
fn replace_link(
    folder: &dyn DirHandle,
    name: &OsStr,
    goal: &OsStr,
    like: &FileStat,
) -> Result<(), Errno> {
    let hidden = hidden_name(name);
    match folder.symlink(&hidden, goal, like) {
        // The rest of an interrupted stage.
        Err(Errno::EXIST) => {
            folder.unlink(&hidden)?;
            folder.symlink(&hidden, goal, like)?;
        }
        outcome => outcome?,
    }
    folder.rename(&hidden, name)
}

pub(crate) fn fatal(problem: Problem) -> Failure {
    let errno = Errno::from_raw_os_error(problem.code);
    let reason = if problem.path.as_os_str().is_empty() {
        problem.reason
    } else {
        problem.to_string()
    };
    Failure::Fatal(reason, errno)
}
