//! Reading back what was copied, once it is on stable storage, and comparing it with the checksums
//! of what was read at the source.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;

use crate::copy::{CHUNK, Pieces, digest};
use crate::end::{Body, Folder};
use crate::error::{Failure, Problem};
use crate::file::hidden_name;
use crate::mover::{Job, Tree};
use crate::place::{Place, descend};

/// Where a copy is.
#[derive(Clone)]
pub(crate) enum Whereabouts {
    /// In a directory of a tree.
    Tree {
        tree: Arc<Tree>,
        directory: Arc<Path>,
        name: OsString,
    },
    /// At a place of its own.
    Single(Place),
}

impl Whereabouts {
    /// Its path, for messages.
    fn shown(&self) -> PathBuf {
        match self {
            Whereabouts::Tree {
                tree,
                directory,
                name,
            } => tree.copies.join(directory).join(name),
            Whereabouts::Single(place) => place.display(),
        }
    }
}

/// Something that was copied and is to be read back.
pub(crate) struct Written {
    pub at: Whereabouts,
    pub pieces: Pieces,
    pub digest: String,
    /// Whether another part of the same copy was found to be damaged.
    pub damaged: Arc<AtomicBool>,
}

/// All that is to be read back.
pub(crate) type Ledger = Mutex<Vec<Written>>;

/// Reads back everything that was copied, with as many threads as copied it. A copy that differs is
/// told, and gets a hidden name, so that the next try makes it anew.
pub(crate) fn verify(job: &Job<'_>) {
    let written = std::mem::take(&mut *job.written.lock().unwrap_or_else(PoisonError::into_inner));
    let next = AtomicUsize::new(0);
    if job.options.workers == 0 {
        return read_back(job, &written, &next);
    }
    std::thread::scope(|scope| {
        for _ in 0..job.options.workers.min(256) {
            scope.spawn(|| read_back(job, &written, &next));
        }
    });
}

fn read_back(job: &Job<'_>, written: &[Written], next: &AtomicUsize) {
    let mut buffer = vec![0u8; CHUNK];
    let mut nearby = None;
    while let Some(one) = written.get(next.fetch_add(1, Ordering::Relaxed)) {
        if job.is_stopped() {
            return;
        }
        if one.damaged.load(Ordering::Relaxed) {
            continue;
        }
        let outcome = compare(job, one, &mut nearby, &mut buffer);
        job.note(&one.at.shown(), outcome);
    }
}

/// The directory of copies that a thread used last.
type Nearby = Option<(usize, Arc<Path>, Box<dyn Folder>)>;

fn folder<'n>(
    nearby: &'n mut Nearby,
    tree: &Tree,
    directory: &Arc<Path>,
) -> Result<&'n dyn Folder, Failure> {
    let same = |(index, path, _): &(usize, Arc<Path>, _)| *index == tree.index && path == directory;
    if !nearby.as_ref().is_some_and(same) {
        let opened = descend(&*tree.target, directory)
            .map_err(|e| Failure::target("opening its directory to read it back", e))?;
        *nearby = Some((tree.index, directory.clone(), opened));
    }
    match nearby {
        Some((_, _, folder)) => Ok(&**folder),
        None => Err(Failure::target("opening its directory", Errno::IO)),
    }
}

fn compare(
    job: &Job<'_>,
    written: &Written,
    nearby: &mut Nearby,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let told = |problem: Problem| {
        let errno = Errno::from_raw_os_error(problem.code);
        Failure::File(format!("reading it back: {}", problem.reason), errno)
    };
    let opened = match &written.at {
        Whereabouts::Tree {
            tree,
            directory,
            name,
        } => folder(nearby, tree, directory)?
            .open(name, None)
            .map_err(|e| Failure::target("reading it back", e)),
        Whereabouts::Single(place) => place.open_file().map_err(told),
    };
    let body = match opened {
        Ok(body) => body,
        // Another thread has found another part of it damaged meanwhile.
        Err(_) if written.damaged.load(Ordering::Acquire) => return Ok(()),
        Err(failure) => return Err(failure),
    };
    forget(&*body);
    let found = digest(&*body, &written.pieces, job.progress, buffer);
    match found {
        Ok(found) if found == written.digest => return Ok(()),
        Err(Failure::Cancelled) => return Err(Failure::Cancelled),
        // It is shorter, or cannot be read.
        Ok(_) | Err(_) => {}
    }
    drop(body);
    if written.damaged.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let aside = match &written.at {
        Whereabouts::Tree {
            tree,
            directory,
            name,
        } => set_aside(folder(nearby, tree, directory)?, name),
        Whereabouts::Single(place) => match place.open_parent() {
            Ok((parent, name)) => set_aside(&*parent, &name),
            Err(problem) => return Err(told(problem)),
        },
    };
    let aside = aside.map_err(|e| Failure::target("setting the damaged copy aside", e))?;
    let reason = format!(
        "what was read back is not what was copied: the storage there is faulty, or someone writes \
         to it; the copy is set aside as {}",
        aside.to_string_lossy()
    );
    Err(Failure::File(reason, Errno::IO))
}

/// Takes a copy's name away. Nothing is removed: what stands there may be someone else's by now.
fn set_aside(folder: &dyn Folder, name: &OsStr) -> Result<OsString, Errno> {
    let aside = damaged_name(name);
    folder.rename(name, &aside)?;
    Ok(aside)
}

/// What a damaged copy is called until its file is copied again. Not as one that is being copied:
/// nothing of it is to be taken for good.
pub(crate) fn damaged_name(name: &OsStr) -> OsString {
    let mut damaged = hidden_name(name);
    damaged.push("-damaged");
    damaged
}

/// Has the kernel forget what it knows of a file, so that it is read from its storage and not from
/// the memory it was just written to.
fn forget(body: &dyn Body) {
    if let Some(descriptor) = body.descriptor() {
        let _ = fadvise(descriptor, 0, None, Advice::DontNeed);
    }
}
