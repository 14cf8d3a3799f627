//! Reading back what was copied, once it is on stable storage, and comparing it with the checksums
//! of what was read at the source.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;

use crate::copy::{CHUNK_BYTES, Pieces, digest};
use crate::end::{DirHandle, FileHandle, MAX_SMALL_FILE};
use crate::error::{Failure, Problem};
use crate::file::hidden_name;
use crate::mover::{DirTree, StageContext};
use crate::path::{StageLocation, descend};

/// Where a copy is.
#[derive(Clone)]
pub(crate) enum CopyLocation {
    /// In a directory of a tree.
    Tree {
        tree: Arc<DirTree>,
        directory: Arc<Path>,
        name: OsString,
    },
    /// At a place of its own.
    Single(StageLocation),
}

impl CopyLocation {
    /// Its path, for messages.
    fn shown(&self) -> PathBuf {
        match self {
            CopyLocation::Tree {
                tree,
                directory,
                name,
            } => tree.copies.join(directory).join(name),
            CopyLocation::Single(place) => place.display(),
        }
    }
}

/// What is known of a copy of which parts are read back.
#[derive(Debug, Default)]
pub(crate) struct ReadBackState {
    /// Whether a part was found to be damaged.
    pub damaged: AtomicBool,
    /// Parts that are not known to be good yet.
    pub left: AtomicUsize,
}

/// Something that was copied and is to be read back.
pub(crate) struct ReadBackItem {
    pub at: CopyLocation,
    pub pieces: Pieces,
    pub digest: String,
    /// Of the whole copy.
    pub known: Arc<ReadBackState>,
}

/// All that is to be read back.
pub(crate) type ReadBackQueue = Mutex<Vec<ReadBackItem>>;

/// Reads back everything that was copied, with twice as many threads as copied it: while some take
/// checksums, enough others wait for data to keep the storage busy. A copy that differs is told, and
/// gets a hidden name, so that the next try makes it anew.
pub(crate) fn verify(job: &StageContext<'_>) {
    let written = std::mem::take(&mut *job.written.lock().unwrap_or_else(PoisonError::into_inner));
    let next = Mutex::new(0);
    if job.options.workers == 0 {
        return read_back(job, &written, &next);
    }
    std::thread::scope(|scope| {
        for _ in 0..job.options.workers.saturating_mul(2).min(256) {
            scope.spawn(|| read_back(job, &written, &next));
        }
    });
}

/// Copies that a thread has the kernel read from their storage at a time, and their bytes: one
/// after the other, every small one would be waited for.
const AT_ONCE: (usize, u64) = (32, 1 << 20);

/// The next copies for one thread.
fn claim<'w>(written: &'w [ReadBackItem], next: &Mutex<usize>) -> &'w [ReadBackItem] {
    let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
    let rest = written.get(*next..).unwrap_or_default();
    let mut bytes = 0u64;
    let fits = |one: &&ReadBackItem| {
        bytes = bytes.saturating_add(one.pieces.length());
        bytes <= AT_ONCE.1
    };
    let count = rest.iter().take(AT_ONCE.0).take_while(fits).count();
    let some = rest.get(..count.max(1)).unwrap_or_default();
    *next += some.len();
    some
}

fn read_back(job: &StageContext<'_>, written: &[ReadBackItem], next: &Mutex<usize>) {
    let mut buffer = vec![0u8; CHUNK_BYTES];
    let mut nearby = None;
    loop {
        let some = claim(written, next);
        if some.is_empty() {
            return;
        }
        let mut open = Vec::with_capacity(some.len());
        for one in some {
            if job.is_stopped() {
                return;
            }
            if one.known.damaged.load(Ordering::Relaxed) {
                continue;
            }
            match opened(one, &mut nearby) {
                Ok(Some(body)) => {
                    forget(&*body, &one.pieces);
                    begin_to_read(&*body, &one.pieces);
                    open.push((one, body));
                }
                Ok(None) => {}
                Err(failure) => job.note(&one.at.shown(), Err(failure)),
            }
        }
        for (one, body) in open {
            if job.is_stopped() {
                return;
            }
            let outcome = compare(job, one, body, &mut nearby, &mut buffer);
            job.note(&one.at.shown(), outcome);
        }
    }
}

/// The directory of copies that a thread used last.
type Nearby = Option<(usize, Arc<Path>, Box<dyn DirHandle>)>;

fn folder<'n>(
    nearby: &'n mut Nearby,
    tree: &DirTree,
    directory: &Arc<Path>,
) -> Result<&'n dyn DirHandle, Failure> {
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

fn told(problem: Problem) -> Failure {
    let errno = Errno::from_raw_os_error(problem.code);
    Failure::File(format!("reading it back: {}", problem.reason), errno)
}

/// Opens a copy; `None` if it has been found to be damaged meanwhile.
fn opened(
    written: &ReadBackItem,
    nearby: &mut Nearby,
) -> Result<Option<Box<dyn FileHandle>>, Failure> {
    let opened = match &written.at {
        CopyLocation::Tree {
            tree,
            directory,
            name,
        } => folder(nearby, tree, directory)?
            .open(name, None)
            .map_err(|e| Failure::target("reading it back", e)),
        CopyLocation::Single(place) => place.open_file().map_err(told),
    };
    match opened {
        // Another thread has found another part of it damaged.
        Err(_) if written.known.damaged.load(Ordering::Acquire) => Ok(None),
        opened => opened.map(Some),
    }
}

fn compare(
    job: &StageContext<'_>,
    written: &ReadBackItem,
    body: Box<dyn FileHandle>,
    nearby: &mut Nearby,
    buffer: &mut [u8],
) -> Result<(), Failure> {
    let found = digest(&*body, &written.pieces, job.progress, buffer);
    match found {
        Ok(found) if found == written.digest => {
            if written.known.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                job.progress.read_back_file();
            }
            return Ok(());
        }
        Err(Failure::Cancelled) => return Err(Failure::Cancelled),
        // It is shorter, or cannot be read.
        Ok(_) | Err(_) => {}
    }
    drop(body);
    if written.known.damaged.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    let aside = match &written.at {
        CopyLocation::Tree {
            tree,
            directory,
            name,
        } => set_aside(folder(nearby, tree, directory)?, name),
        CopyLocation::Single(place) => match place.open_parent() {
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
fn set_aside(folder: &dyn DirHandle, name: &OsStr) -> Result<OsString, Errno> {
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

/// Has the kernel forget these pieces of a file, so that they are read from its storage and not from
/// the memory they were just written to. Other parts of it may be being read ahead for other threads.
fn forget(body: &dyn FileHandle, pieces: &Pieces) {
    /// The kernel keeps a page of which only a part is to be forgotten.
    const PAGES: u64 = 64 << 10;
    let Some(descriptor) = body.descriptor() else {
        return;
    };
    let (from, to) = pieces.bounds();
    let from = from / PAGES * PAGES;
    let length = to.saturating_sub(from).next_multiple_of(PAGES);
    if let Some(length) = NonZeroU64::new(length) {
        let _ = fadvise(descriptor, from, Some(length), Advice::DontNeed);
    }
}

/// Has the kernel read a small file without being waited for.
fn begin_to_read(body: &dyn FileHandle, pieces: &Pieces) {
    let Pieces::All(0, to @ ..=MAX_SMALL_FILE) = pieces else {
        return;
    };
    if let (Some(descriptor), Some(length)) = (body.descriptor(), NonZeroU64::new(*to)) {
        let _ = fadvise(descriptor, 0, Some(length), Advice::WillNeed);
    }
}
