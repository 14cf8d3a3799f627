//! One file or symbolic link: copied under a hidden name, then given its own.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fstat, ftruncate, openat, readlinkat, renameat, statat,
    symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::copy::{Part, copy, read_back};
use crate::error::{Failure, Problem};
use crate::journal::Copied;
use crate::metadata::{apply, modified, times, unchanged};
use crate::mover::{Directory, HIDDEN, Job};
use crate::request::Verify;

/// Bytes after which what was copied is put on stable storage, so that a reboot loses little.
const SYNC_EVERY: u64 = 8 << 30;

/// A file that is being copied.
pub(crate) struct OpenFile {
    pub source: OwnedFd,
    pub stat: Stat,
    pub hidden: OwnedFd,
    pub parent: Arc<OwnedFd>,
    pub hidden_name: OsString,
    pub name: OsString,
    /// In the journal.
    pub key: PathBuf,
    /// For messages.
    pub shown: PathBuf,
}

/// The name of a file while it is not whole: the same for the same file, so that an interrupted
/// stage finds it again.
fn hidden_name(name: &OsStr) -> OsString {
    let digest = blake3::hash(name.as_bytes()).to_hex();
    OsString::from(format!("{HIDDEN}{}", digest.get(..32).unwrap_or_default()))
}

impl Job<'_> {
    /// Copies a file that is open.
    #[allow(clippy::too_many_arguments)]
    pub fn file(
        &self,
        source: OwnedFd,
        parent: Arc<OwnedFd>,
        name: OsString,
        key: PathBuf,
        shown: PathBuf,
        buffer: &mut [u8],
    ) -> Result<(), Failure> {
        let stat = fstat(&source).map_err(|e| Failure::source("reading its state", e))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => {
                return Err(Failure::File(
                    "is a directory; stage it with type=directory".to_owned(),
                ));
            }
            _ => {
                return Err(Failure::File(
                    "is a device, a pipe or a socket, which cannot be staged".to_owned(),
                ));
            }
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if self.is_there(&parent, &name, &key, &stat) {
            self.progress.staged_bytes(size);
            self.progress.staged_file();
            self.totals.resumed.fetch_add(1, Ordering::Relaxed);
            self.totals.files.fetch_add(1, Ordering::Relaxed);
            self.totals.bytes.fetch_add(size, Ordering::Relaxed);
            return Ok(());
        }
        let hidden_name = hidden_name(&name);
        let large = size > self.options.segment.max(1);
        let fresh = if large && self.journal.is_some() {
            OFlags::empty()
        } else {
            OFlags::TRUNC
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | fresh;
        let hidden = openat(&*parent, &hidden_name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| Failure::target("making its copy", e))?;
        let file = OpenFile {
            source,
            stat,
            hidden,
            parent,
            hidden_name,
            name,
            key,
            shown,
        };
        if large {
            return self.open_large(file, size);
        }
        let part = Part {
            source: &file.source,
            target: &file.hidden,
            from: 0,
            to: size,
            sparse: is_sparse(&file.stat),
        };
        let outcome = copy(&part, self.options.verify, self.progress, buffer).and_then(|sum| {
            if self.options.verify == Verify::ReadBack {
                read_back(&file.hidden, &sum, self.progress, buffer)?;
            }
            Ok(sum.digest)
        });
        let outcome = outcome.and_then(|digest| self.whole(&file, digest));
        if outcome.is_err() {
            let _ = unlinkat(&*file.parent, &file.hidden_name, AtFlags::empty());
        }
        outcome
    }

    /// Whether an earlier run has copied the file already and nothing has changed since.
    fn is_there(&self, parent: &OwnedFd, name: &OsStr, key: &Path, stat: &Stat) -> bool {
        let known = self
            .journal
            .as_ref()
            .and_then(|journal| journal.known(key, None));
        let Some(known) = known.filter(|known| matches(known, stat)) else {
            return false;
        };
        statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|copy| {
            FileType::from_raw_mode(copy.st_mode).is_file()
                && u64::try_from(copy.st_size).is_ok_and(|size| size == known.size)
                && modified(&copy) == known.modified
        })
    }

    /// All of a file's contents are copied: if it is still what it was, the copy gets what belongs
    /// to it and its name.
    pub fn whole(&self, file: &OpenFile, digest: String) -> Result<(), Failure> {
        let now = fstat(&file.source).map_err(|e| Failure::source("reading its state", e))?;
        if !unchanged(&file.stat, &now) {
            let reason = "changed while it was staged; stage it again when nobody writes to it";
            return Err(Failure::File(reason.to_owned()));
        }
        let size = u64::try_from(file.stat.st_size).unwrap_or(0);
        ftruncate(&file.hidden, size).map_err(|e| Failure::target("setting its length", e))?;
        if let Some(lost) = apply(&file.source, &file.stat, &file.hidden)? {
            self.warnings.add(&file.shown, lost);
        }
        renameat(&*file.parent, &file.hidden_name, &*file.parent, &file.name)
            .map_err(|e| Failure::target("giving its copy its name", e))?;
        self.record(&file.key, None, &file.stat, digest)?;
        self.totals.files.fetch_add(1, Ordering::Relaxed);
        self.totals.bytes.fetch_add(size, Ordering::Relaxed);
        self.progress.staged_file();
        if size <= self.options.segment.max(1) {
            self.sync_sometimes(&file.hidden, size)?;
        }
        Ok(())
    }

    pub fn record(
        &self,
        key: &Path,
        part: Option<u64>,
        stat: &Stat,
        digest: String,
    ) -> Result<(), Failure> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let copied = Copied {
            size,
            modified: modified(stat),
            digest,
        };
        journal
            .add(key, part, &copied)
            .map_err(|problem| Failure::Fatal(problem.to_string()))
    }

    pub fn sync_sometimes(&self, target: &OwnedFd, bytes: u64) -> Result<(), Failure> {
        let Some(journal) = &self.journal else {
            return Ok(());
        };
        if self.unsynced.fetch_add(bytes, Ordering::Relaxed) + bytes < SYNC_EVERY {
            return Ok(());
        }
        self.unsynced.store(0, Ordering::Relaxed);
        let sync = || {
            rustix::fs::syncfs(target).map_err(|errno| Problem {
                path: PathBuf::new(),
                reason: crate::error::describe(errno),
            })
        };
        journal
            .synced(sync)
            .map_err(|problem| Failure::Fatal(problem.reason))
    }

    /// Copies a symbolic link.
    pub fn link(&self, here: &Directory, name: &OsStr) -> Result<(), Failure> {
        let goal = readlinkat(&here.source, name, Vec::new())
            .map_err(|e| Failure::source("reading the link", e))?;
        let stat = statat(&here.source, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| Failure::source("reading its state", e))?;
        let hidden = hidden_name(name);
        match unlinkat(&*here.target, &hidden, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Failure::target("making the link", errno)),
        }
        symlinkat(&*goal, &*here.target, &hidden)
            .map_err(|e| Failure::target("making the link", e))?;
        if rustix::process::geteuid().is_root() {
            let owner = Some(rustix::fs::Uid::from_raw(stat.st_uid));
            let group = Some(rustix::fs::Gid::from_raw(stat.st_gid));
            rustix::fs::chownat(
                &*here.target,
                &hidden,
                owner,
                group,
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .map_err(|e| Failure::target("setting the link's owner", e))?;
        }
        // Some file systems keep no times of links; nothing depends on them.
        let _ = utimensat(
            &*here.target,
            &hidden,
            &times(&stat),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        renameat(&*here.target, &hidden, &*here.target, name)
            .map_err(|e| Failure::target("making the link", e))?;
        self.totals.symbolic_links.fetch_add(1, Ordering::Relaxed);
        self.progress.staged_file();
        Ok(())
    }
}

pub(crate) fn is_sparse(stat: &Stat) -> bool {
    i128::from(stat.st_blocks) * 512 < i128::from(stat.st_size)
}

pub(crate) fn matches(known: &Copied, stat: &Stat) -> bool {
    u64::try_from(stat.st_size).is_ok_and(|size| size == known.size)
        && modified(stat) == known.modified
}
